"""Screens on top of the others: pick one of many by typing, answer a question."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input

from netdoctor.tui.lines import Line, fit, inert, line
from netdoctor.tui.query import fuzzy
from netdoctor.tui.widgets import Bar, Page

Choice = tuple[str, str, str]  # what is returned, what is shown, what stands beside it


class Picker(ModalScreen[str | None], inherit_bindings=False):
    """A list that narrows while one types; returns the chosen id, or the text typed with `free`."""

    BINDINGS: ClassVar = [
        Binding("escape", "leave", id="netdoctor.picker.leave"),
        Binding("ctrl+c", "leave"),
        Binding("up", "move(-1)"),
        Binding("down", "move(1)"),
        Binding("pageup", "move(-10)"),
        Binding("pagedown", "move(10)"),
    ]

    class Ready(Message):
        """It takes keys now."""

    def __init__(
        self,
        title: str,
        choices: Callable[[str], Sequence[Choice]],
        *,
        free: bool = False,
        overview: Callable[[int], Sequence[Line]] | None = None,
    ) -> None:
        """overview: lines for a width, shown as long as nothing is typed."""
        super().__init__()
        self.heading = title
        self.choices = choices
        self.free = free
        self.overview = overview
        self.ids: list[str] = []
        self.ready = False  # whether its input takes keys

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Input(id="box-input", placeholder="type to narrow", select_on_focus=False)
            yield Page(id="box-list")
            yield Bar(id="box-keys")

    def on_mount(self) -> None:
        room = self.app.size.width * 9 // 10 - 8
        self.query_one("#box").border_title = Content(inert(fit(self.heading, room).rstrip()))
        self.query_one("#box-list", Page).can_focus = False
        self.set_focus(self.query_one("#box-input", Input))
        self._list("")
        self.ready = True
        self.post_message(self.Ready())

    def on_input_changed(self, event: Input.Changed) -> None:
        self._list(event.value)

    def _list(self, text: str) -> None:
        # What is left of the window beside frame, margin, cursor and scroll bar: see the style sheet.
        width = max(min(self.app.size.width * 9 // 10, 110) - 8, 30)
        if self.overview is not None and not text:
            self.ids = []
            self.query_one("#box-list", Page).show(self.overview(width), top=True)
            self.call_after_refresh(self._count)
            return
        found = list(self.choices(text))
        half = min(46, width // 2)
        lines = [
            line(
                f"{fit(inert(name), half if more else width)} ",
                (fit(inert(more), width - half).rstrip(), "dim"),
                key=("choice", n),
            )
            for n, (_, name, more) in enumerate(found)
        ]
        self.ids = [chosen for chosen, _, _ in found]
        nothing = [] if self.free else [line((" nothing fits", "dim"))]
        self.query_one("#box-list", Page).show(lines or nothing, top=True)
        self.call_after_refresh(self._count)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        page = self.query_one("#box-list", Page)
        if self.ids and not (self.free and event.value):
            self.dismiss(self.ids[min(page.at, len(self.ids) - 1)])
        elif self.free:
            self.dismiss(event.value)

    def on_page_moved(self, event: Page.Moved) -> None:
        event.stop()
        self._count()

    def _count(self) -> None:
        """How many there are, and that not all of them can be seen."""
        page = self.query_one("#box-list", Page)
        position = f"{page.at + 1} of {len(self.ids)}, " if self.ids else ""
        more = f"{page.below} more below, " if page.below else ""
        takes = "enter takes it, " if self.ids else ""
        self.query_one("#box-keys", Bar).show([line((f" {position}{more}{takes}esc closes", "dim"))])

    def on_page_opened(self, event: Page.Opened) -> None:
        event.stop()
        if self.ids:
            self.dismiss(self.ids[self.query_one("#box-list", Page).at])

    def action_move(self, by: int) -> None:
        self.query_one("#box-list", Page).move(by)

    def action_leave(self) -> None:
        self.dismiss(None)


def matching(text: str, choices: Sequence[Choice], most: int = 200) -> list[Choice]:
    """The choices that fit what was typed, best first."""
    if not text.strip():
        return list(choices[:most])
    scored = []
    for position, choice in enumerate(choices):
        # Of the id only its first word: what follows may be a fingerprint, in which any letters are found.
        parts = (choice[0].partition(" ")[0], choice[1])
        found = [s for s in (fuzzy(text.strip(), part) for part in parts) if s is not None]
        if found:
            scored.append((min(found), position, choice))
    return [choice for _, _, choice in sorted(scored)[:most]]


class Ask(ModalScreen[bool], inherit_bindings=False):
    """A question that y or Enter agrees to, and anything else refuses."""

    def __init__(self, lines: Sequence[Line]) -> None:
        super().__init__()
        self.text = list(lines)

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Page(id="box-list")
            yield Bar(id="box-keys")

    def on_mount(self) -> None:
        self.query_one("#box-list", Page).show(self.text)
        self.query_one("#box-keys", Bar).show(
            [line((" y ", "key"), (" yes    ", ""), ("n ", "key"), ("no", ""))],
            [(0, 0, 10, "yes"), (0, 10, 20, "no")],
        )

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        self.dismiss(event.key in ("y", "enter"))

    def on_bar_clicked(self, event: Bar.Clicked) -> None:
        event.stop()
        self.dismiss(event.action == "yes")
