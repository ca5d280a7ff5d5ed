"""The application: takes events ten times a second, and turns keys and clicks into actions."""

import asyncio
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.keys import _character_to_key  # what Textual names a key by
from textual.screen import Screen
from textual.widgets import Input

from netdoctor.report import describe
from netdoctor.report.diff import is_healed
from netdoctor.tui import actions, where
from netdoctor.tui.actions.copy import copy
from netdoctor.tui.actions.matrix import end_filter
from netdoctor.tui.dialogs import Picker
from netdoctor.tui.events import Began, Ended, Event, Failed
from netdoctor.tui.keys import ACTIONS, BY_ID, MOVES
from netdoctor.tui.matrix import MatrixView
from netdoctor.tui.runner import Request
from netdoctor.tui.stage import Stage
from netdoctor.tui.state import Known, State, fold, worst
from netdoctor.tui.where import Spot
from netdoctor.tui.widgets import Bar, Page

TICK_S = 0.1
HURRY_S = 0.02
REGROUP_S = 1.0
EVENTS_AT_ONCE = 50_000


class Main(Screen[None], inherit_bindings=False):
    """The only screen that stays; pictures change inside it."""

    BINDINGS: ClassVar = [
        *(
            Binding(
                ",".join(action.keys), f"app.do('{action.id}')", action.title, id=f"netdoctor.{action.id}"
            )
            for action in ACTIONS
            if action.keys
        ),
        *(
            Binding(",".join(keys), f"app.go('{name}')", name, id=f"netdoctor.move.{name}")
            for name, keys in MOVES
        ),
        Binding("ctrl+c", "app.interrupt", "quit", id="netdoctor.interrupt"),
        Binding("ctrl+z", "app.suspend_process", "suspend", id="netdoctor.suspend"),
    ]

    def compose(self) -> ComposeResult:
        yield Bar(id="head")
        yield Bar(id="tabs")
        yield Bar(id="panel")
        with Horizontal(id="body"):
            yield MatrixView(id="matrix")
            yield Page(id="page")
            yield Page(id="side")
        yield Bar(id="detail")
        yield Bar(id="status")
        yield Input(id="filter", select_on_focus=False)
        yield Bar(id="keys")

    def on_mount(self) -> None:
        assert isinstance(self.app, NetdoctorApp)
        self.app.ready()


class NetdoctorApp(Stage, inherit_bindings=False):
    """One application for a saved report and for a running scan."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "netdoctor"
    CSS = """
    Screen { layout: vertical; overflow: hidden; }
    Bar { height: auto; }
    #body { height: 1fr; }
    Page, MatrixView { width: 1fr; height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
    Pane { scrollbar-background: $surface; scrollbar-color: $foreground 40%; }
    #side { display: none; }
    .framed #page, .framed #matrix { border: round $primary; border-title-style: bold; }
    .framed #side { border: round $foreground 30%; border-title-color: $foreground 70%; }
    .ascii .framed #page, .ascii .framed #matrix { border: ascii $primary; }
    .ascii .framed #side { border: ascii $foreground 30%; }
    .framed Pane { border-subtitle-color: $foreground 60%; }
    #filter { background: $surface; }
    #filter { height: 1; border: none; padding: 0 1; display: none; }
    Picker, Ask { align: center middle; background: $background 60%; }
    #box { width: 90%; max-width: 110; height: auto; max-height: 90%; background: $surface; padding: 1 2; }
    #box { border: round $primary; border-title-style: bold; }
    .ascii #box { border: ascii $primary; }
    #box Page { height: auto; max-height: 28; min-height: 3; }
    #box-keys { dock: bottom; }
    #box-input { height: 1; border: none; padding: 0 1; }
    """

    def __init__(
        self,
        state: State | None = None,
        *,
        begin: Request | None = None,
        box: bool = False,
        keys: str = "",
        **options: Any,
    ) -> None:
        """begin: what to scan at once. box: frames of box characters, see glyphs. keys: what was typed before
        there was a screen. options: those of Stage.
        """
        super().__init__(state, **options)
        self.set_class(not box, "ascii")
        self.first = begin
        self.crash: Exception | None = None  # the exception that ended it
        self.signal = 0  # the number of the signal that ended it, 0 for none
        # Typed before what it is meant for could take it.
        self.early: list[events.Event] = [
            events.Key(_character_to_key(one), one) for one in keys.replace("\n", "\r")
        ]

    # Life

    def get_default_screen(self) -> Screen[Any]:
        return Main()

    def on_mount(self) -> None:
        self.theme = "textual-light" if self.light else "textual-dark"

    def _handle_exception(self, error: Exception) -> None:
        self.crash = self.crash or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """Leave the screen quietly: who started us writes the traceback to a file."""
        self._close_messages_no_wait()

    def leave(self, number: int) -> None:
        """A signal asks us to go."""
        self.signal = number
        self.exit()

    def ready(self) -> None:
        """The main screen has its widgets: the first picture."""
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self.leave, number)
        self.find_widgets()
        self.set_interval(TICK_S, self.drain)
        if self.first is not None and self.runner is not None:
            self.where = replace(self.where, view="matrix")
            self.runner.begin(self.first, None)
        self.draw(top=True)
        self.hurry()
        self.call_later(self.replay)

    def hurry(self) -> None:
        """Until the nodes are known look for them oftener than for what they say."""
        self.drain()
        if self.first is not None and not self.state.cells.nodes and not self.bad_input and self.drawn:
            self.set_timer(HURRY_S, self.hurry)

    def on_resize(self) -> None:
        if self.drawn:
            self.call_after_refresh(self.draw)

    # Events of a scan

    def drain(self) -> None:
        """Take what happened since the last time, and draw what it changed."""
        if not self.drawn:
            return
        if self.where.paused and self.state.scanning:
            if not (self.events and isinstance(self.events[-1], Ended | Failed)):
                self.draw_bars()
                return
            # There is nothing left to hold: the report of a scan that is over must not get lost.
            self.where = replace(self.where, paused=False)
        batch: list[Event] = []
        while self.events and len(batch) < EVENTS_AT_ONCE:
            batch.append(self.events.popleft())
        if batch:
            self.take(batch)
        elif self.state.scanning:
            self.spin += 1
            self.state = replace(self.state, now=max(self.state.now, self.clock()))
            self.draw_bars()

    def take(self, batch: Sequence[Event]) -> None:
        """Events into the state, and what they changed onto the screen."""
        before = self.state
        self.state = fold(before, batch)
        rows = {event[0] for event in batch if isinstance(event, tuple)}
        self.spin += 1
        if self.state.stamp != before.stamp:
            everything = any(isinstance(event, Began) and not event.partial for event in batch)
            self.draw(top=self.reopen(before, everything or before.live))
            return
        if self.state.message and self.state.message != before.message:
            self.say(self.state.message)
        if self.bad_input:
            self.where = replace(self.where, view="causes")  # where its keys are; there is no matrix
        if self.where.view == "matrix" or (self.state.report is None and self.state.cells.nodes):
            if rows:
                self.draw_letters(rows)
            self.matrix.set_marks(self.where.marks, self.state.busy)
            if self.turned is not None:
                self.draw_matrix()
        if self.state.scanning != before.scanning or not rows:
            self.draw()
        else:
            self.draw_bars()

    def draw_letters(self, rows: set[int]) -> None:
        """The letters that came for these nodes."""
        self.matrix.update(self.state.cells, rows)
        grouping = self.matrix.rows.groups is not None or self.where.filter or self.where.faults
        if grouping and time.monotonic() - self.regrouped > REGROUP_S:
            self.draw_matrix()
        if self.where.following and (cursor := self.where.cursor) is not None:
            cells = self.state.cells
            bad = next((row for row in sorted(rows) if worst(cells.row(row)) == "X"), None)
            if bad is not None:
                found = cells.checks[cells.row(bad).index(b"X")]
                self.point(Spot(cursor.check if self.turned is None else found, cells.nodes[bad]))
        if self.matrix.node in rows:
            self.draw_detail()

    def reopen(self, before: State, everything: bool) -> bool:
        """Another report, or the matrix of a new scan. Returns whether another screen is shown.

        everything: all was scanned, not some cells of a report.
        """
        known, was = self.known, self.where
        if before.report is not None and not self.base_chosen:
            self.base, self.base_name = before.report, "the report as it was before the last run"
        self.known = Known(self.state.report, self.state.log) if self.state.report else None
        self.where = where.carried(was, before.cells, self.state.cells, self.known, everything=everything)
        if where.lost(was, self.where) and not everything:
            item = known.cause_at(was.cause) if known is not None else None
            sure = item is not None and self.known is not None and is_healed(item, self.known.report)
            name = describe.title(item) if item is not None else "that cause"
            self.say(f"fixed: {name}" if sure else f"not found again: {name}")
        if self.state.message:
            self.say(self.state.message)
        return self.where.view != was.view

    # Keys and clicks

    async def on_event(self, event: events.Event) -> None:
        """Each key is done with before the next: what is typed behind the key of an input belongs to it."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            top = self.screen_stack[-1] if self.screen_stack else None
            if self.early or not self.drawn or (isinstance(top, Picker) and not top.ready):
                self.early.append(event)
                return
            filtering = self.focused is self.main_filter
            if isinstance(event, events.Key) and isinstance(top, Main) and not filtering:
                if (active := top.active_bindings.get(event.key)) is not None:
                    await self.run_action(active.binding.action)
                return
        await super().on_event(event)

    async def on_picker_ready(self) -> None:
        await self.replay()

    async def replay(self) -> None:
        """What was typed early, now that there is something to take it."""
        early, self.early = self.early, []
        for event in early:
            await self.on_event(event)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "do" and parameters:
            action_ = BY_ID[str(parameters[0])]
            # What cannot be done here and now says so; keys of other screens stay silent.
            if self.tiny or action_.needs == "input":
                return self.allowed(action_)
            return self.where.view in action_.views
        return True

    def act(self, name: str) -> None:
        """Run an action by its id."""
        actions.act(self, name)

    def action_do(self, name: str) -> None:
        self.act(name)

    def action_interrupt(self) -> None:
        text = self.screen.get_selected_text()
        if text:
            copy(self, text, "the selection")
        else:
            self.act("quit")

    def action_go(self, way: str) -> None:
        """Move in the view that is shown. way: a name in MOVES."""
        by = 1 if way in ("down", "right", "bottom", "page-down") else -1
        if self.status:
            self.status = ""
            self.draw_bars()
        if self.matrix.display:
            self.point(self.matrix.near(way))
        elif self.turned is not None:
            if (cursor := self.where.cursor) is not None and self.turned.rows:
                self.point(self.turned.near(cursor, way, self.page.size.height - 2))
            else:
                self.page.move(by)
        elif way in ("left", "right"):
            self.next_column(by)
        elif way in ("up", "down"):
            self.page.move(by)
        elif way in ("top", "bottom"):
            self.page.edge(last=by > 0)
        else:
            self.page.page(by)

    def on_matrix_view_moved(self) -> None:
        self.point(self.matrix.cursor)

    def on_matrix_view_opened(self) -> None:
        self.act("open")

    def on_matrix_view_head_clicked(self, event: MatrixView.HeadClicked) -> None:
        if (cursor := self.where.cursor) is not None:
            self.point(Spot(event.check, cursor.node))
        self.act("sort-check")

    def on_page_opened(self) -> None:
        self.act("open")

    def on_page_moved(self, event: Page.Moved) -> None:
        if not self.drawn:
            return
        if self.where.view == "pairs":
            self.draw_page()
        elif self.turned is not None and event.x is not None and (cursor := self.where.cursor) is not None:
            key = self.page.key
            check = key[1] if isinstance(key, tuple) else cursor.check
            self.point(Spot(check, self.turned.node_at(event.x) or cursor.node))
        else:
            self.draw_side()
        self.draw_bars()

    def on_bar_clicked(self, event: Bar.Clicked) -> None:
        self.act(event.action)

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter" and event.input.display:
            self.where = where.filtered(self.where, event.value)
            self.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "filter":
            end_filter(self, keep=True)
