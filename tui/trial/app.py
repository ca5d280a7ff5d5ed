"""The live page of a trial in the terminal: draws what it is handed, and asks for an end."""

import asyncio
import signal
from collections.abc import Callable
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding

from netdoctor.tui.keys import MOVES
from netdoctor.tui.lines import line
from netdoctor.tui.trial import page
from netdoctor.tui.trial.page import Picture
from netdoctor.tui.widgets import Bar, Page

DRAW_S = 0.2
MARGIN = 2  # the page's cursor and its scroll bar


class TrialApp(App[None], inherit_bindings=False):
    """Shows pictures until the trial is over. q asks for its end, and a second one does not wait for it."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "netdoctor"
    CSS = """
    Screen { layout: vertical; overflow: hidden; }
    Bar { height: auto; }
    Page { width: 1fr; height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
    Page { scrollbar-background: $surface; scrollbar-color: $foreground 40%; }
    """
    BINDINGS: ClassVar = [
        *(Binding(",".join(keys), f"go('{name}')", name) for name, keys in MOVES),
        Binding("q,Q,ctrl+c", "end", "end", priority=True),
    ]

    def __init__(
        self,
        picture: Callable[[], Picture],
        is_over: Callable[[], bool],
        stop: Callable[[], None],
        *,
        light: bool = False,
    ) -> None:
        """picture: the newest one; is_over: whether the trial has ended; stop: asks it to. None may wait."""
        super().__init__()
        self.picture, self.is_over, self.stop, self.light = picture, is_over, stop, light
        self.ending = False
        self.hurried = False  # somebody does not wait for the end on the nodes
        self.crash: Exception | None = None
        self.signal = 0  # the number of the signal that asked for the end
        self.drawn: tuple[Picture, bool, int] | None = None

    def compose(self) -> ComposeResult:
        yield Bar(id="head")
        yield Page(id="rows")
        yield Bar(id="detail")
        yield Bar(id="keys")

    def on_mount(self) -> None:
        self.theme = "textual-light" if self.light else "textual-dark"
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self.end_by, number)
        self.set_interval(DRAW_S, self.draw)
        self.draw()

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """The newest picture, if it is another one."""
        if self.is_over():
            self.exit()
            return
        width = self.size.width
        state = (self.picture(), self.ending, width)
        if state == self.drawn:
            return
        first, self.drawn = self.drawn is None, state
        picture = state[0]
        self.query_one("#head", Bar).show(page.head(picture, width, ending=self.ending))
        lines = [page.columns(width - MARGIN), *page.table(picture, width - MARGIN)]
        self.query_one("#rows", Page).show(lines, top=first, heads=1)
        self.on_page_moved()
        text = "ends the job on all nodes; q does not wait" if self.ending else "end the trial"
        self.query_one("#keys", Bar).show([line(" ", ("q", "key"), f" {text}", fill="band")])

    def on_page_moved(self) -> None:
        """What the row under the cursor printed last, in full."""
        name = self.query_one("#rows", Page).key
        detail = page.detail(self.picture(), name, self.size.width)
        self.query_one("#detail", Bar).show(detail)

    def action_end(self) -> None:
        if self.ending:
            self.hurried = True
            self.exit()
            return
        self.ending = True
        self.stop()
        self.draw()

    def end_by(self, number: int) -> None:
        """A signal asks for the end."""
        self.signal = number
        self.action_end()

    def action_go(self, way: str) -> None:
        rows = self.query_one("#rows", Page)
        by = 1 if way in ("down", "bottom", "page-down") else -1
        if way in ("up", "down"):
            rows.move(by)
        elif way in ("top", "bottom"):
            rows.edge(last=by > 0)
        elif way in ("page-up", "page-down"):
            rows.page(by)

    def _handle_exception(self, error: Exception) -> None:
        self.crash = self.crash or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """Leave the screen quietly: who started us says what happened."""
        self._close_messages_no_wait()
