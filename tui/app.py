"""The application: takes events ten times a second, keeps where somebody looks, draws the screens."""

import asyncio
import contextlib
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Input

from netdoctor.report import words
from netdoctor.report.diff import diff
from netdoctor.report.json_ import ReportError
from netdoctor.report.markdown import render_cause
from netdoctor.report.model import Cause, Report, Result
from netdoctor.report.save import LAST, load, write_whole
from netdoctor.tui import compare, pages, pairs, query
from netdoctor.tui.dialogs import Ask, Choice, Picker, matching
from netdoctor.tui.events import Began, Event
from netdoctor.tui.export import fixes_script
from netdoctor.tui.keys import ACTIONS, BY_ID, FOOTERS, MOVES, Action, spelled
from netdoctor.tui.lines import Line, fit, line, rule, wrap
from netdoctor.tui.matrix import ZOOMS, MatrixView
from netdoctor.tui.runner import Request, Runner
from netdoctor.tui.state import (
    GROUPS_ABOVE,
    SORTS,
    Known,
    State,
    arranged,
    fold,
    grouped,
    letters_of,
    not_green,
    opened,
    worst,
)
from netdoctor.tui.widgets import Bar, Page

TICK_S = 0.1
REGROUP_S = 1.0
SIDE_FROM = 140
SMALLEST = (60, 16)
SPINNER = "|/-\\"
SCREENS = (
    ("1", "Causes", "causes"),
    ("2", "Matrix", "matrix"),
    ("3", "Pairs", "pairs"),
    ("4", "Node", "node"),
    ("6", "Diff", "diff"),
)
TAB_OF = {"cause": "causes", "evidence": "causes", "pair": "pairs"}


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
        yield Input(id="filter", placeholder="gpu07 fail net.* [2] torch!=2.6 !word", select_on_focus=False)
        yield Bar(id="keys")

    def on_mount(self) -> None:
        assert isinstance(self.app, NetdoctorApp)
        self.app.ready()


class NetdoctorApp(App[None], inherit_bindings=False):
    """One application for a saved report and for a running scan."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "netdoctor"
    CSS = """
    Screen { layout: vertical; overflow: hidden; }
    Bar { height: auto; }
    #body { height: 1fr; }
    Page, MatrixView { width: 1fr; height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
    #side { width: 52; border-left: ascii $foreground 20%; display: none; }
    #filter { height: 1; border: none; padding: 0 1; display: none; }
    Picker, Ask { align: center middle; background: $background 60%; }
    #box { width: 90%; max-width: 110; height: auto; max-height: 80%; background: $surface; }
    #box { border: ascii $foreground 60%; }
    #box Page { height: auto; max-height: 20; min-height: 3; }
    #box-input { height: 1; border: none; padding: 0 1; }
    """

    def __init__(
        self,
        state: State | None = None,
        *,
        runner: Runner | None = None,
        begin: Request | None = None,
        path: Path | None = None,
        export: Path | None = None,
        export_to_stdout: bool = False,
        light: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.state = state or State()
        self.known = Known(self.state.report) if self.state.report else None
        self.runner = runner
        self.first = begin
        self.path = path
        self.export = export
        self.export_to_stdout = export_to_stdout
        self.clock = now
        self.light = light
        self.events: deque[Event] = runner.events if runner else deque()
        self.view = "causes"
        self.back: list[tuple[str, Hashable]] = []
        self.cause_id: int | None = None
        self.shown_results: tuple[Result, ...] = ()
        self.pair_group: tuple[str, ...] = ()
        self.kind = ""
        self.values = False
        self.transposed = False
        self.zoom = "groups" if len(self.state.cells.nodes) > GROUPS_ABOVE else "rows"
        self.sort = 0
        self.sort_check: int | None = None
        self.reversed = False
        self.wide = False
        self.faults = False
        self.filter_text = ""
        self.before_filter: tuple[int, str] | None = None
        self.marks: frozenset[int] = frozenset()
        self.mark_anchor: int | None = None
        self.base: Report | None = None
        self.base_name = ""
        self.changes_only = False
        self.following = False
        self.held = False
        self.agreed = runner is None or not runner.question
        self.agreed_costs = False
        self.exported: list[str] = []
        self.export_files: set[Path] = set()
        self.left_behind: list[str] = []
        self.spin = 0
        self.regrouped = 0.0
        self.said = ""
        self.crash: Exception | None = None
        self.signal = 0

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
        self.matrix = self._main.query_one(MatrixView)
        self.page = self._main.query_one("#page", Page)
        self.side = self._main.query_one("#side", Page)
        self.bars = {str(bar.id): bar for bar in self._main.query(Bar)}
        self.main_filter = self._main.query_one("#filter", Input)
        self.set_interval(TICK_S, self.drain)
        if self.first is not None and self.runner is not None:
            self.view = "matrix"
            self.runner.begin(self.first, None)
        self.draw(top=True)

    def bar(self, name: str) -> Bar:
        return self.bars[name]

    @property
    def _main(self) -> Screen[Any]:
        return self.screen_stack[0]

    @property
    def drawn(self) -> bool:
        """Whether there is something to draw on: not before the first picture, not while leaving."""
        return hasattr(self, "page") and self.page.is_attached and not self._exit

    @property
    def small(self) -> bool:
        return self.size.width < pages.SMALL_BELOW

    @property
    def bad_input(self) -> bool:
        """Whether the host list could not be used, so that there is nothing else to show."""
        state = self.state
        return self.runner is not None and state.report is None and not state.scanning and bool(state.message)

    @property
    def tiny(self) -> bool:
        return self.size.width < SMALLEST[0] or self.size.height < SMALLEST[1]

    def on_resize(self) -> None:
        if self.drawn:
            self.call_after_refresh(self.draw)

    def drain(self) -> None:
        """Take what happened since the last time, and draw what it changed."""
        if not self.drawn:
            return
        if self.held and self.state.scanning:
            self.draw_bars()
            return
        batch: list[Event] = []
        while self.events and len(batch) < 50_000:
            batch.append(self.events.popleft())
        if not batch:
            if self.state.scanning:
                self.spin += 1
                self.state = replace(self.state, now=max(self.state.now, self.clock()))
                self.draw_bars()
            return
        self.take(batch)

    def take(self, batch: Sequence[Event]) -> None:
        before = self.state
        self.state = fold(before, batch)
        rows = {event[0] for event in batch if isinstance(event, tuple)}
        self.spin += 1
        if self.state.stamp != before.stamp:
            whole = any(isinstance(event, Began) and not event.partial for event in batch)
            self.draw(top=self.reopened(before, whole or (before.scanning and not before.partial)))
            return
        if self.state.message and self.state.message != before.message:
            self.say(self.state.message)
        if self.bad_input:
            self.view = "causes"  # where its keys are; there is no matrix to look at
        if self.view == "matrix" or (self.state.report is None and self.state.cells.nodes):
            if rows:
                self.matrix.update(self.state.cells, rows)
                now = time.monotonic()
                grouping = self.matrix.groups is not None or self.filter_text or self.faults
                if grouping and now - self.regrouped > REGROUP_S:
                    self.draw_matrix()
                if self.following:
                    self.follow(rows)
                if self.matrix.node in rows:
                    self.draw_detail()
            self.matrix.set_marks(self.marks, self.state.busy)
        if self.state.scanning != before.scanning or not rows:
            self.draw()
        else:
            self.draw_bars()

    def reopened(self, before: State, whole: bool) -> bool:
        """Another report, or the matrix of a new scan: keep what still has a meaning.

        whole: everything was scanned, not some cells of a report. Returns whether another picture is shown.
        """
        view = self.view
        report = self.state.report
        self.known = Known(report) if report else None
        if before.cells.nodes != self.state.cells.nodes:
            self.marks = frozenset()
            self.mark_anchor = None
            self.zoom = "groups" if len(self.state.cells.nodes) > GROUPS_ABOVE else "rows"
        if report is not None:
            if whole:
                self.view = "causes"
                self.back.clear()
            old = before.report
            if self.cause_id is not None and old is not None:
                # The same trouble may have another number now, or be gone.
                was = next((c for c in old.causes if c.id == self.cause_id), None)
                print_ = was.fingerprint if was else None
                again = next((c.id for c in report.causes if c.fingerprint == print_), None)
                if again is None and self.view in ("cause", "evidence"):
                    self.view = "causes"
                    self.back.clear()
                    self.say(f"gone: {words.title(was)}" if was else "that cause is gone")
                self.cause_id = again
            if self.state.message:
                self.say(self.state.message)
        return self.view != view

    # Drawing

    def draw(self, *, top: bool = False, key: Hashable = None) -> None:
        """The whole picture."""
        if not self.drawn:
            return
        if self.small and self.view not in ("causes", "cause", "evidence") and not self.tiny:
            self.view = "causes"
        on_matrix = self.view == "matrix" and bool(self.state.cells.nodes) and not self.tiny
        focus = self.matrix if on_matrix else self.page
        self.matrix.display = on_matrix
        self.page.display = not on_matrix
        self.side.display = on_matrix and self.size.width >= SIDE_FROM and self.known is not None
        if not self.main_filter.has_focus and len(self.screen_stack) == 1:
            focus.focus(scroll_visible=False)
        if on_matrix:
            self.draw_matrix()
        else:
            self.page.show(self.page_lines(), key, top=top)
        self.draw_bars()

    def page_lines(self) -> list[Line]:
        width = self.size.width - 2
        if self.tiny:
            return self.tiny_lines()
        known, report = self.known, self.state.report
        if known is None or report is None:
            return self.no_report(width)
        if self.view == "cause" and (item := self.cause) is not None:
            return pages.cause(known, item, width)
        if self.view == "evidence":
            return pages.evidence(known, self.shown_results, width)
        if self.view == "pairs":
            return pairs.page(report, self.pairs_kind(), width, transpose=self.transposed, values=self.values)
        if self.view == "pair":
            return pairs.detail(report, self.pairs_kind(), self.pair_group, width)
        if self.view == "node" and self.state.cells.nodes:
            return pages.node(known, self.state.cells, self.matrix.node, width)
        if self.view == "diff":
            return self.diff_lines(width)
        return pages.causes(self.state, known, width, self.clock())

    def tiny_lines(self) -> list[Line]:
        report = self.state.report
        causes = f", {words.number(len(report.causes), 'cause')}" if report and report.causes else ""
        size = f"{self.size.width}x{self.size.height}"
        text = (
            f"netdoctor: {self.state.verdict}{causes}. Window {size} is too small for the view; "
            f"{SMALLEST[0]}x{SMALLEST[1]} needed. q quits."
        )
        return [line(piece) for piece in wrap(text, max(self.size.width - 3, 10))]

    def no_report(self, width: int) -> list[Line]:
        if self.state.scanning:
            return [Line(), line("   connecting ...")]
        lines = [Line()]
        if self.state.message:
            first, *rest = self.state.message.split("\n")
            lines.append(line("   ", (fit(words.plain(first, 400), width - 6).rstrip(), "fail")))
            lines += [
                line("     ", piece)
                for text in rest[:100]
                for piece in wrap(words.plain(text, 400), width - 8)
            ]
            lines += [Line(), line(("   nothing was contacted; exit would be 2", "dim"))]
        keys = []
        if self.runner is not None and self.bad_input:
            place = self.runner.editor()
            if place is not None:
                keys.append(f"enter opens {words.plain(place[0], 60)} in your editor")
            if self.runner.formats:
                keys.append(f"tab reads it as another format than {words.plain(self.runner.formats[0], 20)}")
        if self.runner is not None:
            keys.append("R reads again and scans")
        keys.append("q quit")
        lines += [Line(), *(line((f"   {key}", "dim")) for key in keys)]
        return lines

    def diff_lines(self, width: int) -> list[Line]:
        report = self.state.report
        if report is None:
            return []
        if self.base is None:
            return [
                Line(),
                line("   compare with which report?   ", ("b chooses a file", "head")),
            ]
        shown = compare.page(
            diff(self.base, report), self.base, report, width, changes_only=self.changes_only
        )
        return [line((f" base: {words.plain(self.base_name, 100)}", "dim")), *shown]

    def draw_matrix(self) -> None:
        """Rows in their order, filtered and grouped, in the matrix."""
        cells = self.state.cells
        self.regrouped = time.monotonic()
        chosen = query.choose(self.filter_text, cells, self.known)
        rows: Sequence[int] = range(len(cells.nodes)) if chosen.rows is None else chosen.rows
        if self.faults:
            rows = [row for row in rows if worst(letters_of(cells, row, chosen.columns)) in "X!?"]
        if self.state.scanning and not self.state.partial:
            order = arranged(cells, rows, chosen.columns, sort="listed")
        elif self.sort_check is not None:
            order = arranged(cells, rows, sort="check", by=self.sort_check, reverse=self.reversed)
        elif self.zoom == "overview":
            order = arranged(cells, rows, sort="listed")
        else:
            order = arranged(cells, rows, chosen.columns, sort=SORTS[self.sort], reverse=self.reversed)
        groups = grouped(cells, order, chosen.columns) if self.zoom == "groups" else None
        of = len(cells.nodes)
        self.matrix.empty = (
            f"0 of {of} nodes; Esc clears the filter" if self.filter_text or self.faults else ""
        )
        if self.faults and not self.filter_text:
            self.matrix.empty = f"0 of {of} nodes have trouble; f shows all"
        self.matrix.show(cells, order, groups, zoom=self.zoom, columns=chosen.columns, wide=self.wide)
        self.matrix.set_marks(self.marks, self.state.busy)
        self.draw_detail()

    def draw_detail(self) -> None:
        width = self.size.width
        if self.view != "matrix" or self.tiny or not self.matrix.line_count:
            self.bar("detail").show([])
            return
        zoom = f" zoom: {self.zoom}"
        if self.zoom == "groups":
            rows = self.matrix.line_count
            zoom += f" ({words.number(rows, 'row')} for {words.number(len(self.matrix.order), 'node')})"
        if self.zoom == "overview":
            by = (
                self.state.cells.checks[self.matrix.colour_by]
                if self.matrix.colour_by is not None
                else "worst"
            )
            zoom += f"   shows: {words.plain(by, 40)}"
        key = ". pass  ! warn  X fail  b blocked  - skip  ? unknown "
        if self.state.scanning:
            key = "~ running  " + key
        room = width - len(key)
        first = line((fit(zoom, room), "dim"), (key, "dim")) if room > 10 else line((key, "dim"))
        lines = [first]
        if self.size.height >= 20:
            check = self.matrix.check
            columns = self.matrix.checks
            if check is None and columns:
                letters = [self.state.cells.letter(self.matrix.node, c) for c in columns]
                at = max(range(len(columns)), key=lambda n: " -.b~!?X".index(letters[n]))
                check = columns[at]
            lines.append(rule(width))
            lines += pages.under_cursor(self.known, self.state.cells, self.matrix.node, check, width)
        self.bar("detail").show(lines)
        if self.side.display and self.known is not None:
            item = self.cause
            inner = 50
            self.side.show(
                pages.cause(self.known, item, inner)
                if item
                else pages.node(self.known, self.state.cells, self.matrix.node, inner)
            )

    def draw_bars(self) -> None:
        width = self.size.width
        if not self.drawn:
            return
        if self.tiny:
            for name in ("head", "tabs", "panel", "detail", "status", "keys"):
                self.bar(name).show([])
            return
        spinner = SPINNER[self.spin % 4] if self.state.scanning else ""
        self.bar("head").show([pages.header(self.state, width, self.clock(), spinner)])
        self.bar("tabs").show(*self.tabs(width))
        live = self.state.scanning and not self.state.partial
        panel = pages.scan_panel(self.state, width) if live and not self.small else []
        self.bar("panel").show([*panel, rule(width)] if panel else [])
        if self.view != "matrix":
            self.bar("detail").show([])
        status = [line((fit(f" {self.said}", width), "head"))] if self.said else []
        self.bar("status").show([rule(width), *status])
        self.bar("keys").show(*self.footer(width))

    def tabs(self, width: int) -> tuple[list[Line], list[tuple[int, int, int, str]]]:
        if self.small:
            return [rule(width)], []
        parts: list[str | tuple[str, str]] = [" "]
        zones = []
        x = 1
        for key, name, view in SCREENS:
            on = TAB_OF.get(self.view, self.view) == view
            text = f" {key} {name.upper() if on else name} "
            parts.append((text, "tab" if on else ""))
            zones.append((0, x, x + len(text), view))
            x += len(text)
        right = ""
        if self.view == "matrix":
            sort = "check" if self.sort_check is not None else SORTS[self.sort]
            if self.zoom == "overview" or (self.state.scanning and not self.state.partial):
                sort = "listed"
            arrow = ", reversed" if self.reversed else ""
            hits = f" ({len(self.matrix.order)} of {len(self.state.cells.nodes)})" if self.filter_text else ""
            faults = "faults " if self.faults else ""
            shown = words.plain(self.filter_text, 30) or ("none" if not faults else "")
            right = f"sort: {sort}{arrow}   filter: {faults}{shown}{hits} "
            if self.marks:
                right = f"{len(self.marks)} marked   {right}"
        parts.append(
            (fit(right, max(width - x, 0)) if len(right) > width - x else right.rjust(width - x), "dim")
        )
        return [line(*parts), rule(width)], zones

    def footer(self, width: int) -> tuple[list[Line], list[tuple[int, int, int, str]]]:
        parts: list[str | tuple[str, str]] = [" "]
        zones = []
        x = 1
        live = [a for a in ACTIONS if a.needs == "scan" and a.hint and self.allowed(a)]
        rest = [BY_ID[name] for name in FOOTERS.get(self.view, ()) if self.allowed(BY_ID[name])]
        last = [BY_ID["help"], BY_ID["quit"]]
        keep = sum(len(a.hint) + 2 for a in last)
        for action in [*live, *rest]:
            if x + len(action.hint) + 2 + keep > width:
                break
            zones.append((0, x, x + len(action.hint), action.id))
            parts += [action.hint, "  "]
            x += len(action.hint) + 2
        for action in last:
            zones.append((0, x, x + len(action.hint), action.id))
            parts += [action.hint, "  "]
            x += len(action.hint) + 2
        return [line(*((p, "dim") if isinstance(p, str) else p for p in parts))], zones

    def say(self, text: str) -> None:
        """One line of our own above the keys; the next key takes it away."""
        self.said = words.plain(text, 400)
        if self.drawn:
            self.draw_bars()

    # What is under the cursor

    @property
    def cause(self) -> Cause | None:
        """The cause that keys act on."""
        known = self.known
        if known is None:
            return None
        if self.view in ("cause", "evidence"):
            return known.causes.get(self.cause_id) if self.cause_id is not None else None
        key = self.page.key if self.view in ("causes", "node") else None
        if isinstance(key, tuple) and key[0] == "cause":
            return known.causes.get(key[1])
        if isinstance(key, tuple) and key[0] == "cell":
            return known.cause_of(key[1], key[2])
        if self.view in ("matrix", "node") and self.matrix.node < len(self.state.cells.nodes):
            name = self.state.cells.nodes[self.matrix.node]
            for column in self.matrix.checks if self.view == "matrix" else ():
                if self.state.cells.letter(self.matrix.node, column) in "X!?b":
                    found = known.cause_of(self.state.cells.checks[column], name)
                    if found is not None:
                        return found
            return next(iter(known.causes_of(name)), None)
        if self.view == "causes" and known.report.causes:
            return known.report.causes[0] if self.small else None
        return None

    @property
    def nodes_here(self) -> tuple[str, ...]:
        """The nodes that keys act on."""
        names = self.state.cells.nodes
        if self.view == "matrix":
            rows: Iterable[int] = sorted(self.marks) if self.marks else self.matrix.members
            return tuple(names[row] for row in rows)
        if self.view == "node" and self.matrix.node < len(names):
            return (names[self.matrix.node],)
        item = self.cause
        return item.node_list if item else ()

    def pairs_kind(self) -> str:
        every = pairs.kinds(self.state.report) if self.state.report else []
        if self.kind not in every:
            self.kind = every[0] if every else ""
        return self.kind

    # Keys

    def allowed(self, action: Action) -> bool:
        if self.tiny:
            return action.id in ("quit", "quit-leaving", "stop")
        if self.view not in action.views:
            return False
        if self.small and action.id in ("matrix", "pairs", "node", "diff"):
            return False
        if action.needs == "scan":
            return self.state.scanning
        if action.needs == "report":
            return self.state.report is not None
        if action.needs == "runner":
            return self.runner is not None and not self.runner.cannot
        if action.needs == "input":
            return self.bad_input
        return True

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "do" and parameters:
            action_ = BY_ID[str(parameters[0])]
            # What cannot be done here and now says so; keys of other screens stay silent.
            if self.tiny or action_.needs == "input":
                return self.allowed(action_)
            return self.view in action_.views
        return True

    def action_interrupt(self) -> None:
        text = self.screen.get_selected_text()
        if text:
            self.copy(text, "the selection")
        else:
            self.act("quit")

    def action_do(self, name: str) -> None:
        self.act(name)

    def act(self, name: str) -> None:
        """Run an action by its id."""
        if self.said:
            self.said = ""
        action = BY_ID[name]
        if not self.allowed(action):
            self.say(self.why_not(action))
            return
        method = getattr(self, f"act_{name.replace('-', '_')}")
        method()

    def why_not(self, action: Action) -> str:
        if self.small and action.id in ("matrix", "pairs", "node", "diff"):
            return f"{action.id} needs {pages.SMALL_BELOW} columns"
        if action.needs == "runner":
            return (self.runner.cannot if self.runner else "") or "this report does not say how to scan again"
        if action.needs == "scan":
            return "no scan goes on"
        if action.needs == "input":
            return "the host list could be read"
        if action.needs == "report":
            return "there is no report yet"
        return f"works on: {', '.join(action.views)}"

    def action_go(self, way: str) -> None:
        """Move in the view that is shown."""
        if self.said:
            self.said = ""
            self.draw_bars()
        target = self.matrix if self.matrix.display else self.page
        if way in ("up", "down"):
            step = 1 if way == "down" else -1
            if isinstance(target, MatrixView):
                target.move(0, step)
            else:
                target.move(step)
        elif way in ("left", "right"):
            if isinstance(target, MatrixView):
                target.move(1 if way == "right" else -1, 0)
        elif way in ("top", "bottom"):
            target.edge(way == "bottom")
        else:
            target.page(1 if way == "page-down" else -1)

    def on_matrix_view_moved(self) -> None:
        self.draw_detail()
        self.draw_bars()

    def on_matrix_view_opened(self) -> None:
        self.act("open")

    def on_matrix_view_head_clicked(self, event: MatrixView.HeadClicked) -> None:
        self.matrix.column = event.column
        self.act("sort-check")

    def on_page_opened(self) -> None:
        self.act("open")

    def on_bar_clicked(self, event: Bar.Clicked) -> None:
        self.act(event.action)

    # Screens

    def show_view(self, view: str, *, key: Hashable = None, keep: bool = True) -> None:
        if keep and view != self.view:
            self.back.append((self.view, self.page.key))
            del self.back[:-50]
        self.view = view
        self.draw(top=True, key=key)

    def act_causes(self) -> None:
        self.show_view("causes")

    def act_matrix(self) -> None:
        self.show_view("matrix")

    def act_pairs(self) -> None:
        self.show_view("pairs")

    def act_node(self) -> None:
        item = self.cause if self.view in ("causes", "cause", "evidence") else None
        if item is not None and item.node_list and item.node_list[0] in self.state.cells.nodes:
            self.matrix.node = self.state.cells.nodes.index(item.node_list[0])
        self.show_view("node")

    def act_diff(self) -> None:
        if self.base is None and self.path is not None and self.path != LAST and LAST.exists():
            self.take_base(str(LAST))
        self.show_view("diff")

    def act_back(self) -> None:
        if self.main_filter.display:
            self.end_filter(keep=False)
            return
        if self.view == "matrix" and (self.filter_text or self.faults):
            self.filter_text, self.faults = "", False
            self.draw()
            return
        if self.back:
            view, key = self.back.pop()
            self.view = view
            self.draw(key=key)
        elif self.view != "causes":
            self.show_view("causes", keep=False)

    def act_open(self) -> None:
        if self.bad_input:
            self.edit_input()
            return
        if self.view == "matrix":
            self.open_cell()
            return
        key = self.page.key
        if not isinstance(key, tuple):
            return
        kind = key[0]
        if kind == "cause":
            self.cause_id = key[1]
            self.show_view("cause")
        elif kind == "screen":
            self.show_view(key[1])
        elif kind == "family":
            self.filter_text = key[1]
            self.show_view("matrix" if not self.small else "causes")
        elif kind == "cell":
            self.open_result(key[1], key[2])
        elif kind == "pairs":
            self.pair_group = key[1]
            self.show_view("pair")
        elif kind == "fix":
            self.act("copy-fix")
        elif kind == "verify":
            self.act("copy-verify")
        elif kind == "cause-of":
            self.open_compared(key[1], key[2])
        elif kind == "changed" and key[2] in self.state.cells.nodes:
            self.go_to(key[2], key[1])

    def open_cell(self) -> None:
        if not self.matrix.line_count or self.known is None:
            return
        cells = self.state.cells
        check = self.matrix.check
        name = cells.nodes[self.matrix.node]
        if check is not None and self.zoom != "overview":
            item = self.known.cause_of(cells.checks[check], name)
            if item is not None and cells.letter(self.matrix.node, check) in "X!?b":
                self.cause_id = item.id
                self.show_view("cause")
                return
            self.open_result(cells.checks[check], name)
            return
        self.show_view("node")

    def open_result(self, check: str, node: str) -> None:
        if self.known is None:
            return
        item = self.known.cause_of(check, node)
        if item is not None and self.view == "node":
            self.cause_id = item.id
            self.show_view("cause")
            return
        found = self.known.result(check, node)
        self.shown_results = (found,) if found else ()
        if found is None:
            self.say(f"{check} on {node}: no more is recorded than its letter")
            return
        self.cause_id = found.cause
        self.show_view("evidence")

    def open_compared(self, which: str, number: int) -> None:
        if which == "now":
            self.cause_id = number
            self.show_view("cause")
        else:
            self.say("that cause is in the base report only: it is healed")

    def go_to(self, node: str, check: str | None = None) -> None:
        """The matrix with the cursor on a node and a check."""
        cells = self.state.cells
        if node not in cells.nodes:
            return
        self.filter_text, self.faults = "", False
        self.show_view("matrix")
        self.matrix.put(cells.nodes.index(node), cells.checks.index(check) if check in cells.checks else None)

    def act_evidence(self) -> None:
        known = self.known
        if known is None:
            return
        cells = self.state.cells
        if self.view == "matrix" and self.matrix.check is not None:
            name, check = cells.nodes[self.matrix.node], cells.checks[self.matrix.check]
            found = known.result(check, name)
            self.shown_results = (found,) if found else ()
            self.cause_id = found.cause if found else None
        elif self.view == "node" and isinstance(self.page.key, tuple) and self.page.key[0] == "cell":
            found = known.result(self.page.key[1], self.page.key[2])
            self.shown_results = (found,) if found else ()
            self.cause_id = found.cause if found else None
        else:
            item = self.cause
            if item is None:
                self.say("no cause under the cursor")
                return
            self.shown_results = tuple(pages.results_of(known, item))
            self.cause_id = item.id
        self.show_view("evidence")

    # Walking

    def act_next_cause(self) -> None:
        self._other_cause(1)

    def act_previous_cause(self) -> None:
        self._other_cause(-1)

    def _other_cause(self, by: int) -> None:
        report = self.state.report
        if report is None or not report.causes:
            self.say("there are no causes")
            return
        ids = [c.id for c in report.causes]
        at = self.cause.id if self.cause else None
        place = (ids.index(at) + by) % len(ids) if at in ids else (0 if by > 0 else -1)
        self.cause_id = ids[place]
        if self.view == "causes":
            self.draw(key=("cause", ids[place]))
        elif self.view == "matrix":
            item = report.causes[place]
            nodes = [n for n in item.node_list if n in self.state.cells.nodes]
            checks = [c for c in item.checks if c in self.state.cells.checks]
            if nodes:
                self.matrix.put(
                    self.state.cells.nodes.index(nodes[0]),
                    self.state.cells.checks.index(checks[0]) if checks else None,
                )
        else:
            self.show_view("cause", keep=self.view != "cause")

    def act_next_problem(self) -> None:
        self._problem(1)

    def act_previous_problem(self) -> None:
        self._problem(-1)

    def _problem(self, by: int) -> None:
        """The next row with trouble, or the next row at all when a filter has chosen the rows."""
        matrix, cells = self.matrix, self.state.cells
        count = matrix.line_count
        if not count:
            return
        here = matrix._line_of.get(matrix.node, 0)
        for step in range(1, count + 1):
            at = (here + by * step) % count
            node = matrix._node_at(at)
            letters = cells.row(node)
            bad = [c for c in (matrix.columns or range(len(letters))) if chr(letters[c]) in "X!?"]
            if bad or self.filter_text:
                first = max(bad, key=lambda c: " -.b~!?X".index(chr(letters[c])), default=None)
                matrix.put(node, first)
                return
        self.say("no node has trouble")

    def follow(self, rows: set[int]) -> None:
        for row in sorted(rows):
            if worst(self.state.cells.row(row)) == "X":
                self.matrix.put(row)
                return

    # The matrix

    def act_faults(self) -> None:
        if self.view == "diff":
            self.changes_only = not self.changes_only
        else:
            self.faults = not self.faults
        self.draw()

    def act_filter(self) -> None:
        box = self.main_filter
        self.before_filter = (self.matrix.node, self.filter_text)
        box.display = True
        box.value = self.filter_text
        box.focus()
        self.say(" ".join(f"{word.split()[0]}" for word, _ in query.WORDS) + "   enter keep   esc clear")

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter" and event.input.display:
            self.filter_text = event.value[:500]
            self.draw_matrix()
            self.draw_bars()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "filter":
            self.end_filter(keep=True)

    def end_filter(self, *, keep: bool) -> None:
        self.main_filter.display = False
        if not keep and self.before_filter is not None:
            self.matrix.node, self.filter_text = self.before_filter[0], ""
        self.before_filter = None
        self.said = ""
        self.matrix.focus()
        self.draw()

    def act_zoom(self) -> None:
        self._zoom((ZOOMS.index(self.zoom) + 1) % len(ZOOMS))

    def act_zoom_in(self) -> None:
        steps = ("overview", "groups", "rows")
        self._zoom(ZOOMS.index(steps[min(steps.index(self.zoom) + 1, 2)]))

    def act_zoom_out(self) -> None:
        steps = ("overview", "groups", "rows")
        self._zoom(ZOOMS.index(steps[max(steps.index(self.zoom) - 1, 0)]))

    def _zoom(self, place: int) -> None:
        self.zoom = ZOOMS[place]
        self.draw()

    def act_sort(self) -> None:
        self.sort = (self.sort + 1) % len(SORTS) if self.sort_check is None else self.sort
        self.sort_check = None
        self.draw()

    def act_sort_check(self) -> None:
        self.sort_check = self.matrix.checks[0] if self.matrix.checks else None
        self.draw()

    def act_reverse(self) -> None:
        self.reversed = not self.reversed
        self.draw()

    def act_wide(self) -> None:
        self.wide = not self.wide
        self.draw()

    def act_mark(self) -> None:
        members = frozenset(self.matrix.members)
        self.marks = self.marks - members if members <= self.marks else self.marks | members
        self.mark_anchor = self.matrix.node
        self.matrix.set_marks(self.marks, self.state.busy)
        self.matrix.move(*((1, 0) if self.zoom == "overview" else (0, 1)))
        self.draw_bars()

    def act_mark_range(self) -> None:
        lines = self.matrix._line_of
        anchor = self.mark_anchor if self.mark_anchor in lines else None
        start = lines[anchor] if anchor is not None else lines.get(self.matrix.node, 0)
        ends = sorted((start, lines.get(self.matrix.node, 0)))
        chosen = {node for node, at in lines.items() if ends[0] <= at <= ends[1]}
        self.marks |= chosen
        self.mark_anchor = self.matrix.node
        self.matrix.set_marks(self.marks, self.state.busy)
        self.draw_bars()

    def act_colour(self) -> None:
        if self.zoom != "overview":
            self.say("tab changes what the overview shows; z zooms there")
            return
        cells = self.state.cells
        telling = [c for c in range(len(cells.checks)) if c not in self.matrix._dull]
        steps: list[int | None] = [None, *telling]
        at = steps.index(self.matrix.colour_by) if self.matrix.colour_by in steps else 0
        self.matrix.colour_by = steps[(at + 1) % len(steps)]
        self.draw()

    # Pairs and diff

    def act_next_pairs(self) -> None:
        every = pairs.kinds(self.state.report) if self.state.report else []
        if every:
            self.kind = every[(every.index(self.pairs_kind()) + 1) % len(every)]
        self.draw(top=True)

    def act_values(self) -> None:
        self.values = not self.values
        self.draw()

    def act_transpose(self) -> None:
        self.transposed = not self.transposed
        self.draw()

    def act_base(self) -> None:
        def choices(text: str) -> list[Choice]:
            return matching(text, self.report_files())

        self.push_screen(
            Picker("compare with which report?  type a path, or choose", choices, free=True), self.take_base
        )

    def report_files(self) -> list[Choice]:
        found = []
        for path in (*Path().glob("*.json"), *Path(".netdoctor").glob("*.json")):
            with contextlib.suppress(OSError):  # a link to nothing, or gone since it was listed
                if path != self.path:
                    found.append((path.stat().st_mtime, str(path)))
        found.sort(reverse=True)
        return [
            (name, name, time.strftime("%Y-%m-%d %H:%M", time.gmtime(changed)))
            for changed, name in found[:100]
        ]

    def take_base(self, name: str | None) -> None:
        if not name:
            return
        try:
            self.base, self.base_name = load(Path(name)), name
        except ReportError as error:
            self.say(str(error))
            return
        if self.view == "diff":
            self.draw(top=True)

    # Copying

    def copy(self, text: str, what: str) -> None:
        """To the clipboard by OSC 52, which a terminal may refuse in silence."""
        self.copy_to_clipboard(text)
        self.say(f"copied {what}; where the terminal refuses, select it with the mouse, or E writes a file")

    def act_copy_fix(self) -> None:
        item = self.cause
        if item is None:
            self.say("no cause under the cursor")
            return
        key = self.page.key if self.view == "cause" else None
        if isinstance(key, tuple) and key[0] == "verify":
            self.act("copy-verify")
            return
        number = key[2] if isinstance(key, tuple) and key[0] == "fix" else 0
        fixes = item.fixes
        if number >= len(fixes) or not fixes[number].commands:
            self.say(f"[{item.id}] has no command to copy; Y copies the whole cause")
            return
        lines = words.fix_commands(fixes[number], every=True)
        of = f" {number + 1} of {len(fixes)}" if len(fixes) > 1 else ""
        self.copy("\n".join(lines) + "\n", f"fix{of} of [{item.id}], {words.number(len(lines), 'line')}")

    def act_copy_all(self) -> None:
        item, report = self.cause, self.state.report
        if item is None or report is None:
            self.say("no cause under the cursor")
            return
        self.copy(render_cause(report, item), f"[{item.id}] as Markdown")

    def act_copy_verify(self) -> None:
        item = self.cause
        if item is None or item.verify is None:
            self.say("there is no command that proves it")
            return
        self.copy(words.command(item.verify.shell) + "\n", f"the verify command of [{item.id}]")

    def act_copy_names(self) -> None:
        names = self.nodes_here
        if not names:
            self.say("no node under the cursor")
            return
        self.copy(words.fold(names, None), f"the names of {words.number(len(names), 'node')}")

    def act_copy_diff(self) -> None:
        report = self.state.report
        if self.base is None or report is None:
            self.say("b chooses a report to compare with")
            return
        self.copy(compare.markdown(diff(self.base, report), self.base, report), "the changes")

    def act_export(self) -> None:
        """The fixes of this cause, or of all causes, as a script to read before running it."""
        report = self.state.report
        if report is None:
            return
        item = self.cause if self.view in ("cause", "evidence") else None
        script = fixes_script(report, (item,) if item else report.causes)
        what = (
            f"the fixes of [{item.id}]"
            if item
            else f"the fixes of {words.number(len(report.causes), 'cause')}"
        )
        if self.export_to_stdout and self.export is None:
            self.exported.append(script)
            self.say(f"{what} go to standard output at the end")
            return
        path = self.export or self.free_name("netdoctor-fixes", ".sh")
        try:
            write_whole(path, script.encode())
        except OSError as error:
            self.say(f"{path}: {error.strerror or error}")
            return
        self.export_files.add(path)
        self.say(f"wrote {what} to {path}; read it before you run it")

    def free_name(self, stem: str, suffix: str) -> Path:
        """A file of ours, or a name that nobody uses: nothing of anybody else's is written over."""
        for number in range(1, 1000):
            path = Path(f"{stem}{f'-{number}' if number > 1 else ''}{suffix}")
            if path in self.export_files or not path.exists():
                return path
        return Path(f"{stem}-{time.time_ns()}{suffix}")

    def act_save(self) -> None:
        report = self.state.report
        if report is None:
            return
        from netdoctor.report.save import save

        path = self.free_name("netdoctor-report", ".json")
        try:
            save(report, path)
        except OSError as error:
            self.say(f"{path}: {error.strerror or error}")
            return
        self.export_files.add(path)
        self.say(f"saved the report to {path}")

    # Scanning

    def act_rerun(self) -> None:
        cells = self.state.cells
        if self.view == "matrix":
            checks = tuple(cells.checks[c] for c in self.matrix.checks)
            self.rerun(Request(checks=checks or None, nodes=self.nodes_here))
            return
        key = self.page.key
        if self.view == "node" and isinstance(key, tuple) and key[0] == "cell":
            self.rerun(Request(checks=(key[1],), nodes=(key[2],)))
            return
        if self.view == "node":
            self.rerun(Request(nodes=self.nodes_here))
            return
        if self.view in ("pairs", "pair"):
            kind = self.pairs_kind()
            if kind in cells.checks:
                self.rerun(Request(checks=(kind,)))
            return
        item = self.cause
        if item is None:
            self.say("no cause under the cursor; R runs what is not green, Ctrl-R everything")
            return
        # With what it holds up and explains: that is what should turn green, too.
        also = [e for e in item.explains if e.check in cells.checks]
        checks = tuple(dict.fromkeys([*item.checks, *(e.check for e in also)]))
        names = set(cells.nodes)
        nodes = [*item.node_list, *(e.target for e in also)]
        self.rerun(
            Request(
                checks=tuple(c for c in checks if c in cells.checks) or None,
                nodes=tuple(dict.fromkeys(n for n in nodes if n in names)) or None,
            )
        )

    def edit_input(self) -> None:
        place = self.runner.editor() if self.runner is not None else None
        if place is None:
            self.say("no file to open here, or no editor: set EDITOR")
            return
        if self.lend_terminal(place[1]):
            self.say("R reads it again and scans")

    def act_format(self) -> None:
        runner = self.runner
        assert runner is not None

        def choices(text: str) -> list[Choice]:
            known = [(name, name, "in use" if name == runner.formats[0] else "") for name in runner.formats]
            return matching(text, known)

        def chosen(name: str | None) -> None:
            if name in runner.formats:
                runner.read_as(name)
                self.rerun(Request())

        self.push_screen(Picker("read the host list as", choices), chosen)

    def act_rerun_bad(self) -> None:
        if self.state.report is None:
            self.rerun(Request())
            return
        checks, nodes = not_green(self.state.cells)
        if not checks:
            self.say("everything is green; Ctrl-R runs everything again")
            return
        self.rerun(Request(checks=checks, nodes=nodes))

    def act_rerun_all(self) -> None:
        self.rerun(Request())

    def rerun(self, request: Request) -> None:
        """Scan, after asking where that has to be asked."""
        runner = self.runner
        if runner is None or runner.cannot:
            self.say(self.why_not(BY_ID["rerun"]))
            return
        if self.state.scanning:
            self.say("a scan goes on; x stops it")
            return
        known = self.known
        chosen = request.checks or (self.state.cells.checks if self.state.report else ())
        costs = [c for c in chosen if known and known.costs.get(c, "read-only") != "read-only"]
        lines: list[Line] = []
        width = min(self.size.width - 16, 96)
        if not self.agreed:
            lines += [line(f" {piece}") for piece in wrap(words.plain(runner.question, 600), width)]
        if costs and not self.agreed_costs:
            nodes = (
                words.fold(request.nodes, 60) if request.nodes else f"all {len(self.state.cells.nodes)} nodes"
            )
            shown = words.plain(", ".join(costs), 200)
            loads = any(known and known.costs.get(c) == "loads-gpu" for c in costs)
            does = "open ports and load GPUs" if loads else "open ports"
            text = f"{shown} will {does} for a moment on {nodes} and their peers. Go on?"
            lines += [line(f" {piece}") for piece in wrap(text, width)]

        def answered(yes: bool | None) -> None:
            if not yes:
                self.say("nothing was run")
                return
            self.agreed = True
            self.agreed_costs = self.agreed_costs or bool(costs)
            runner.begin(request, self.state.report)

        if lines:
            self.push_screen(Ask(lines), answered)
        else:
            answered(True)

    def act_stop(self) -> None:
        if self.runner is not None:
            self.runner.stop()
            self.held = False
            self.say("stopping; what is known will be judged")

    def act_pause(self) -> None:
        self.held = not self.held
        self.say("the picture is held; the scan goes on; p lets it go" if self.held else "")

    def act_follow(self) -> None:
        self.following = not self.following
        self.say("the cursor follows new problems" if self.following else "the cursor stays where you put it")

    def act_shell(self) -> None:
        names = self.nodes_here
        argv = self.runner.ssh(names[0]) if self.runner is not None and names else None
        if argv is None:
            self.say("no node under the cursor that a shell can be opened on")
            return
        if self.agreed or self.runner is None:
            self.open_shell(argv)
            return
        width = min(self.size.width - 16, 96)
        asked = [line(f" {piece}") for piece in wrap(words.plain(self.runner.question, 600), width)]
        command = [line((f"   {piece}", "command")) for piece in wrap(words.escaped(shlex.join(argv)), width)]

        def answered(yes: bool | None) -> None:
            if yes:
                self.agreed = True
                self.open_shell(argv)

        self.push_screen(Ask([*asked, *command]), answered)

    def open_shell(self, argv: list[str]) -> None:
        # The terminal belongs to ssh then, and what the node says to ssh alone.
        self.lend_terminal(argv)

    def lend_terminal(self, argv: list[str]) -> bool:
        """Run a command in place of the screens; whether that could be done."""
        # Standard output may be a file that waits for exported fixes; the screens are on standard error.
        out = None if sys.__stdout__ is not None and sys.__stdout__.isatty() else sys.__stderr__
        try:
            with self.suspend(), contextlib.suppress(OSError, KeyboardInterrupt):
                subprocess.run(argv, check=False, stdout=out)  # noqa: S603  a list, made by the command line
        except SuspendNotSupported:
            self.say("this terminal cannot be lent to another program")
            return False
        return True

    # Help, palette, end

    def act_help(self) -> None:
        def choices(text: str) -> list[Choice]:
            rows = [
                (action.id, f"{spelled(action.keys):<10} {action.title}", "")
                for action in ACTIONS
                if self.allowed(action)
            ]
            moves = [("", f"{spelled(keys):<10} {name.replace('-', ' ')}", "move") for name, keys in MOVES]
            letters = [("", f"{letter:<10} {word}", "status") for letter, word in words.LETTERS.items()]
            filters = [("", f"/{word:<24} {what}", "filter") for word, what in query.WORDS]
            return matching(text, [*rows, *moves, *letters, *filters])

        self.push_screen(Picker(f"keys of this screen ({self.view}); enter runs one", choices), self.picked)

    def act_palette(self) -> None:
        def choices(text: str) -> list[Choice]:
            return self.palette(text.removeprefix(":"))

        self.push_screen(Picker("run what?  an action, a node, a check, a cause", choices), self.picked)

    def palette(self, text: str) -> list[Choice]:
        actions = [(a.id, a.title, spelled(a.keys)) for a in ACTIONS if self.allowed(a)]
        cells = self.state.cells
        kind, _, rest = text.strip().partition(" ")
        if kind == "q":
            return [("quit", "quit", "q")]
        nodes = [(f"node {i}", f"node {words.plain(n, 80)}", "matrix") for i, n in enumerate(cells.nodes)]
        checks = [
            (f"check {i}", f"check {words.plain(c, 60)}", "sort by it") for i, c in enumerate(cells.checks)
        ]
        if self.allowed(BY_ID["rerun"]):
            checks += [
                (f"run {i}", f"re-run {words.plain(c, 60)}", "on all nodes")
                for i, c in enumerate(cells.checks)
            ]
        causes = [
            (f"cause {c.id}", f"[{c.id}] {words.title(c)}", words.cause_check(c))
            for c in (self.state.report.causes if self.state.report else ())
        ]
        if kind in ("node", "check", "cause") and rest:
            return matching(rest, {"node": nodes, "check": checks, "cause": causes}[kind])
        return matching(text, [*actions, *causes, *checks, *nodes])

    def picked(self, chosen: str | None) -> None:
        """Run what was picked: an action's id, or a place with its number. Nothing else has a meaning."""
        if not chosen:
            return
        if chosen in BY_ID:
            self.act(chosen)
            return
        kind, _, number = chosen.partition(" ")
        cells = self.state.cells
        place = int(number) if number.isdecimal() else -1
        if kind == "cause" and self.known and place in self.known.causes:
            self.cause_id = place
            self.show_view("cause")
        elif kind == "node" and 0 <= place < len(cells.nodes):
            if self.small:
                self.say(self.why_not(BY_ID["matrix"]))
            else:
                self.go_to(cells.nodes[place])
        elif kind == "check" and 0 <= place < len(cells.checks):
            self.sort_check = place
            self.show_view("matrix")
            self.matrix.put_column(place)
            self.draw()
        elif kind == "run" and 0 <= place < len(cells.checks):
            self.rerun(Request(checks=(cells.checks[place],)))

    def act_theme(self) -> None:
        self.light = not self.light
        self.theme = "textual-light" if self.light else "textual-dark"
        self.matrix._strips.clear()
        self.refresh(layout=True)
        self.draw()

    def act_quit(self) -> None:
        if self.state.scanning:
            self.push_screen(
                Ask([line(" a scan goes on. Stop it, keep nothing of it, and quit?")]),
                lambda yes: self.exit() if yes else None,
            )
            return
        self.exit()

    def act_quit_leaving(self) -> None:
        self.left_behind = self.screen_text()
        self.act_quit()

    def screen_text(self) -> list[str]:
        """What is on the screen, line by line."""
        return screen_text(self)


def screen_text(app: App[Any]) -> list[str]:
    """What an application shows, line by line, without colours."""
    rows = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in rows]


def open_report(report: Report, **options: Any) -> NetdoctorApp:
    return NetdoctorApp(opened(report), **options)
