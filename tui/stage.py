"""What is shown: one State, one Where, and the widgets that draw them. Actions move it; see tui/actions/."""

import contextlib
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported
from textual.screen import Screen
from textual.widgets import Input

from netdoctor.errors import InputError
from netdoctor.report import fmt
from netdoctor.report.diff import diff
from netdoctor.report.model import Cause, Report, Result
from netdoctor.tui import compare, frame, nodes, pages, pairs, square, turned, where
from netdoctor.tui.dialogs import Ask
from netdoctor.tui.events import Event
from netdoctor.tui.keys import HINTS, Action
from netdoctor.tui.lines import Line, line, narrowed, wrap
from netdoctor.tui.matrix import MatrixView
from netdoctor.tui.rows import rows_of, worst_check
from netdoctor.tui.runner import Runner
from netdoctor.tui.state import Known, State
from netdoctor.tui.where import Spot, Where
from netdoctor.tui.widgets import Bar, Page

# Columns of a window from which on there is a second pane, and what the first one gets of them.
SIDE_FROM, SIDE_FROM_OF_NODES = 110, 140
LIST_LEAST, LIST_MOST, CAUSE_ROOM = 46, 72, 88
SIDE, SIDE_LEAST = 54, 40
FRAMES_FROM = 20  # lines of a window; fewer have none to spare for frames, or for the cell under the cursor
ROOMY_FROM = (30, 40)  # lines of a window, to say something of nodes below the causes: few, and many
# Of fixes that are no command for this shell.
COPY_HINTS = {"look": "y copy inspect", "job": "y copy for job", "console": "y copy for console"}
SPINNER = "|/-\\"
BARS = ("head", "tabs", "panel", "detail", "status", "keys")
# Screens that the small form has, and actions that lead to others.
SMALL_VIEWS = ("causes", "cause", "evidence")
# What actions on causes need some cause to have.
CAUSE_ACTIONS: dict[str, Callable[[Cause], object]] = {
    **dict.fromkeys(("copy-fix", "export"), lambda cause: cause.fixes),
    **dict.fromkeys(("copy-all", "evidence"), lambda cause: True),
    "copy-verify": lambda cause: cause.verify,
}
SCREEN_ACTIONS = ("matrix", "pairs", "node", "diff")


class Stage(App[None], inherit_bindings=False):
    """Draws `state` as seen from `where`, and says what is under the cursor."""

    def __init__(
        self,
        state: State | None = None,
        *,
        runner: Runner | None = None,
        path: Path | None = None,
        export: Path | None = None,
        export_to_stdout: bool = False,
        light: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.state = state or State()
        # The report of the state, by its keys.
        self.known = Known(self.state.report, self.state.log) if self.state.report else None
        self.where = Where()
        self.runner = runner
        self.events: deque[Event] = runner.events if runner else deque()
        self.path = path
        self.base: Report | None = None  # what the Diff screen compares with
        self.base_name = ""
        self.base_chosen = False  # whether somebody named it
        self.picture = square.Picture([], [])
        self.turned: turned.Turned | None = None  # the matrix with a row per check, while it is shown so
        self.narrowed_from = ""  # the screen that this window is too narrow for; a wider one shows it again
        self.export = export
        self.export_to_stdout = export_to_stdout
        self.exported: list[str] = []  # scripts for standard output
        self.files: set[Path] = set()  # what was written here
        self.left_behind: list[str] = []
        self.agreed = runner is None or not runner.question  # whether nodes may be contacted
        self.agreed_costs: frozenset[str] = frozenset()  # what checks may cost the nodes (Check.cost)
        self.clock = now
        self.light = light
        self.spin = 0
        self.regrouped = 0.0
        self.status = ""

    def find_widgets(self) -> None:
        """The main screen has its widgets."""
        self.matrix = self._main.query_one(MatrixView)
        self.page = self._main.query_one("#page", Page)
        self.side = self._main.query_one("#side", Page)
        self.bars = {str(bar.id): bar for bar in self._main.query(Bar)}
        self.main_filter = self._main.query_one("#filter", Input)

    @property
    def _main(self) -> Screen[Any]:
        return self.screen_stack[0]

    # What there is to look at

    @property
    def drawn(self) -> bool:
        """Whether there is something to draw on: not before the first picture, not while leaving."""
        return hasattr(self, "page") and self.page.is_attached and not self._exit

    @property
    def small(self) -> bool:
        return self.size.width < pages.SMALL_BELOW

    @property
    def tiny(self) -> bool:
        return self.size.width < frame.SMALLEST[0] or self.size.height < frame.SMALLEST[1]

    @property
    def framed(self) -> bool:
        return not (self.small or self.tiny) and self.size.height >= FRAMES_FROM

    @property
    def turns(self) -> bool:
        """Whether the matrix has a row per check: where somebody wants it so, or nodes are few."""
        look = self.where
        if look.view != "matrix" or self.small:
            return False
        return self.few and look.axis != "nodes" and (look.zoom == "rows" or not look.zoom_chosen)

    @property
    def few(self) -> bool:
        """Whether there is room for a column per node."""
        return turned.fits(self.state.cells, self.size.width - pages.MARGIN - 2 * self.framed)

    @property
    def side_width(self) -> int:
        """Columns of the second pane, 0 where there is none."""
        width, view = self.size.width, self.where.view
        turns = view == "matrix" and bool(self.state.cells.nodes) and self.turns
        if not self.framed or width < SIDE_FROM or (self.known is None and not turns):
            return 0
        if view == "causes" and self.known is not None and (self.known.listed or self.state.cells.checks):
            return width - min(max(width * 2 // 5, width - CAUSE_ROOM, LIST_LEAST), LIST_MOST)
        if turns:
            left = width - pages.MARGIN - 2
            wide, least = (left - turned.room(self.state.cells, title) for title in (turned.TITLE, 0))
            return min(SIDE, wide) if wide >= SIDE_LEAST else SIDE_LEAST if least >= SIDE_LEAST else 0
        if view == "matrix" and (self.where.zoom == "overview" or width >= SIDE_FROM_OF_NODES):
            return SIDE if width >= SIDE_FROM_OF_NODES else SIDE_LEAST
        return 0

    @property
    def room(self) -> int:
        """Columns for the lines of the screen."""
        return self.size.width - self.side_width - pages.MARGIN - 2 * self.framed

    @property
    def bad_input(self) -> bool:
        """Whether the host list could not be used, so that there is nothing else to show."""
        state = self.state
        return self.runner is not None and state.report is None and not state.scanning and bool(state.message)

    @property
    def node(self) -> str | None:
        """The node under the cursor of the matrix, which the Node screen shows; None without nodes."""
        names = self.state.cells.nodes
        cursor = self.where.cursor
        return cursor.node if cursor is not None and cursor.node in names else next(iter(names), None)

    @property
    def check_here(self) -> str | None:
        """The check under the cursor of the matrix; of a family the one that says the worst."""
        cells = self.state.cells
        columns = [cells.checks.index(check) for check in self.matrix.checks]
        if self.node is None or not columns:
            return None
        at = worst_check(cells, cells.nodes.index(self.node), columns)
        return None if at is None else cells.checks[at]

    @property
    def row_here(self) -> tuple[str, ...]:
        """The checks of the row under the cursor, where rows are checks."""
        check = self.where.cursor.check if self.where.cursor is not None else None
        return self.turned.row_of(check) if self.turned is not None else ()

    @property
    def results(self) -> Sequence[Result]:
        """What the Evidence screen shows."""
        cell = self.where.cell
        if self.known is None:
            return ()
        if cell is not None and cell.check is not None:
            found = self.known.result(cell.check, cell.node)
            return (found,) if found is not None else ()
        item = self.known.cause_at(self.where.cause)
        every = pages.results_of(self.known, item) if item is not None else []
        # Of a node that a cause only holds up, there is nothing but what was seen elsewhere.
        return [result for result in every if cell is not None and result.target == cell.node] or every

    @property
    def cause(self) -> Cause | None:
        """The cause that keys act on."""
        known, view = self.known, self.where.view
        if known is None:
            return None
        if view == "evidence" and self.where.cell is not None and self.where.cell.check is not None:
            found = [known.causes.get(r.cause) for r in self.results if r.cause is not None]
            return found[0] if found else None
        if view in ("cause", "evidence"):
            return known.cause_at(self.where.cause)
        key = self.page.key if view in ("causes", "node") else None
        if isinstance(key, tuple) and key[0] == "cause":
            return known.cause_at(key[1])
        if isinstance(key, tuple) and key[0] == "cell":
            return known.cause_of(key[1], key[2])
        if view in ("matrix", "node") and self.node is not None:
            for check in self.matrix.checks if view == "matrix" else ():
                if self.letter(check, self.node) in "X!?b":
                    item = known.cause_of(check, self.node)
                    if item is not None:
                        return item
            return next(iter(known.causes_of(self.node)), None)
        if view == "causes" and known.listed and self.small:
            return known.listed[0]
        return None

    @property
    def nodes_here(self) -> tuple[str, ...]:
        """The nodes that keys act on."""
        names = self.state.cells.nodes
        if self.where.view == "matrix":
            return tuple(n for n in names if n in self.where.marks) or self.matrix.members
        if self.where.view == "node" and self.node is not None:
            return (self.node,)
        item = self.cause
        return item.node_list if item else ()

    @property
    def kinds(self) -> list[str]:
        """What the Pairs screen can show."""
        return pairs.kinds(self.state.report) if self.state.report else []

    @property
    def kind(self) -> str:
        return where.kind_of(self.where, self.kinds)

    @property
    def paths(self) -> list[str]:
        """The paths of which pairs can be shown by themselves."""
        report = self.state.report if self.where.view in ("pairs", "pair") else None
        return pairs.paths(report, self.kind) if report is not None else []

    def letter(self, check: str, node: str) -> str:
        """What a check says on a node; a space where there is no such cell."""
        cells = self.state.cells
        if node not in cells.nodes or check not in cells.checks:
            return " "
        return cells.letter(cells.nodes.index(node), cells.checks.index(check))

    # Where to look

    def show_view(self, view: str, *, line: Hashable = None, keep: bool = True, **fields: Any) -> None:
        """Another screen, with the cursor on a line; fields: see where.goto."""
        self.where = where.goto(self.where, view, left=self.page.key, keep=keep, **fields)
        self.draw(top=True, key=line)

    def point(self, spot: Spot | None) -> None:
        """The cursor of the matrix elsewhere."""
        if spot is None or self.matrix.line_of(spot.node) is None:
            return
        self.matrix.put(spot)
        self.where = replace(self.where, cursor=self.matrix.cursor)
        if self.turned is not None:
            self.draw_turned()
        self.draw_detail()
        self.draw_bars()

    # Drawing

    def draw(self, *, top: bool = False, key: Hashable = None) -> None:
        """The whole picture."""
        if not self.drawn:
            return
        if self.small and self.where.view not in SMALL_VIEWS and not self.tiny:
            self.narrowed_from, self.where = self.where.view, replace(self.where, view="causes")
        elif not self.small and self.narrowed_from:
            view, self.narrowed_from = self.narrowed_from, ""
            self.where = replace(self.where, view=view) if self.where.view == "causes" else self.where
        on_matrix = self.where.view == "matrix" and bool(self.state.cells.nodes) and not self.tiny
        turns = on_matrix and self.turns
        self.turned = self.turned if turns else None
        focus = self.matrix if on_matrix and not turns else self.page
        self.matrix.display = focus is self.matrix
        self.page.display = focus is self.page
        self.side.display = self.side_width > 0
        self.side.styles.width = self.side_width
        self._main.set_class(self.framed, "framed")
        if not self.main_filter.has_focus and len(self.screen_stack) == 1:
            focus.focus(scroll_visible=False)
        if on_matrix:
            self.draw_matrix()
        else:
            self.draw_page(key, top=top)
        self.draw_bars()

    def draw_turned(self) -> None:
        """The matrix with a row per check: its cursor is drawn into a cell of its line."""
        look = self.where
        for _ in range(2):  # the cursor may stand where there is no row; then it goes to the first
            found = turned.page(
                self.known,
                self.state.cells,
                self.matrix.rows,
                look.cursor,
                self.room,
                marks=look.marks,
                busy=self.state.busy,
                every=look.wide,
            )
            if look.cursor is None or not found.rows:
                break
            cursor = found.keep(self.turned, look.cursor) or look.cursor
            if cursor == look.cursor and found.row_of(cursor.check):
                break
            self.matrix.put(cursor if found.row_of(cursor.check) else found.near(cursor, "", 1))
            look = self.where = replace(look, cursor=self.matrix.cursor)
        self.turned = found
        row = found.row_of(look.cursor.check if look.cursor is not None else None)
        self.page.show(found.lines, ("check", row[0]) if row else None, heads=found.heads)

    def draw_page(self, key: Hashable = None, *, top: bool = False) -> None:
        """The lines of the screen. Among pairs the cursor is drawn into a cell of its line."""
        if self.where.view != "pairs" or self.state.report is None:
            self.page.show(self.page_lines(), key, top=top)
            self.draw_side()
            return
        for _ in range(2):  # where the cursor stands is known when there are lines
            lines = self.page_lines()
            self.page.show(lines, key, top=top, heads=self.picture.heads)
            key, top = None, False
        self.draw_detail()

    def _square(self, report: Report) -> square.Picture:
        """The pairs that are shown."""
        look, width = self.where, self.room
        how = {"transpose": look.transposed, "values": look.values}
        row, column = self._row_here, look.column
        return square.page(report, self.kind, width, path=look.path, row=row, column=column, **how)

    @property
    def _row_here(self) -> str | None:
        """A node of the row of pairs under the cursor."""
        key = self.page.key
        return key[1][0] if isinstance(key, tuple) and key[0] == "pairs" else None

    def next_column(self, by: int) -> None:
        """The cursor of the pairs on another column."""
        look, report = self.where, self.state.report
        if look.view == "pairs" and report is not None:
            column = square.moved(
                report, self.kind, look.path, self._row_here, look.column, by, transpose=look.transposed
            )
            self.where = replace(look, column=column)
            self.draw_page()
            self.draw_bars()

    def page_lines(self) -> list[Line]:
        """The lines of the screen that is shown, those that its filter lets through."""
        if self.tiny:
            return frame.tiny(self.state, *self.size)
        lines = self._every_line(self.room)
        return narrowed(lines, self.where.sought) if self.where.sought else lines

    def _every_line(self, width: int) -> list[Line]:
        known, report, look = self.known, self.state.report, self.where
        if known is None or report is None:
            return frame.no_report(self.state, self._ways_out(), width)
        if look.view == "cause" and (item := self.cause) is not None:
            return pages.cause(known, item, width)
        if look.view == "evidence":
            return pages.evidence(known, self.results, width)
        if look.view == "pairs":
            self.picture = self._square(report)
            return self.picture.lines
        if look.view == "pair":
            return pairs.detail(report, self.kind, look.group, width, look.path)
        if look.view == "node" and self.node is not None:
            return nodes.page(known, self.state.cells, self.node, width, every=look.wide or bool(look.sought))
        if look.view == "diff":
            return self._diff_lines(report, width)
        lines = pages.causes(self.state, known, width, self.clock(), small=self.small)
        least = ROOMY_FROM[len(self.state.cells.nodes) > nodes.NAMED_MOST]
        roomy = not self.small and self.size.height >= least and self.state.cells.nodes
        gap = [] if lines and not lines[-1].text else [Line()]
        return [*lines, *gap, *nodes.strip(known, self.state.cells, width)] if roomy else lines

    def _ways_out(self) -> list[str]:
        """The keys that help where there is no report."""
        keys = []
        if self.runner is not None and self.bad_input:
            editor = self.runner.editor()
            if editor is not None:
                keys.append(f"enter opens {fmt.plain(editor[0], 60)} in your editor")
            if self.runner.formats:
                keys.append(f"tab reads it as another format than {fmt.plain(self.runner.formats[0], 20)}")
        if self.runner is not None:
            keys.append("R reads again and scans")
        return [*keys, "q quit"]

    def _diff_lines(self, report: Report, width: int) -> list[Line]:
        if self.base is None:
            return [Line(), line("   no earlier report of these nodes.   ", ("b chooses a file", "head"))]
        changes_only = self.where.changes_only
        try:
            changed = diff(self.base, report)
        except InputError as error:  # pairs that are damaged in their file
            return [Line(), line(f"   {fmt.plain(str(error), 300)}")]
        lines = compare.page(changed, self.base, report, width, changes_only=changes_only)
        base, other = f" base: {fmt.plain(self.base_name, 100)}", "   (b chooses another)"
        return [line((base + other if len(base + other) < width else base, "dim")), *lines]

    def draw_matrix(self) -> None:
        """Rows in their order, filtered and grouped, in the matrix."""
        cells = self.state.cells
        # What stands around the rows: title, screens, frame, head, legend, cell and keys.
        others = 7 + (0 if not self.framed else 2 if self.side_width and self.where.zoom != "overview" else 5)
        look = where.fitted(self.where, cells, self.size.height - others)
        self.regrouped = time.monotonic()
        rows = rows_of(self.state, self.known, look)
        wide = look.wide or self.page.display
        cursor = self.matrix.show(
            cells, rows, cursor=look.cursor, zoom=look.zoom, wide=wide, colour=look.colour
        )
        self.where = replace(look, cursor=cursor)
        self.matrix.set_marks(look.marks, self.state.busy)
        if self.page.display:
            self.draw_turned()
        self.draw_detail()

    def draw_detail(self) -> None:
        """What is under the cursor of the matrix, spelled out."""
        width, cells, node = self.size.width, self.state.cells, self.node
        if self.where.view == "pairs" and self.state.report is not None and not self.tiny:
            below = self.picture.below
            self.bars["detail"].show(below if self.framed else below[:2])
            return
        self.draw_side()
        if self.where.view != "matrix" or self.tiny or not self.matrix.rows or node is None:
            self.bars["detail"].show([])
            return
        lines = [frame.legend(self.state, self.where, self.matrix.rows, width)]
        if self.framed and (not self.side_width or self.where.zoom == "overview"):
            check = None if len(self.row_here) > 1 else self.check_here
            lines += nodes.under_cursor(self.known, cells, node, check, width, group=self.row_here)
        self.bars["detail"].show(lines)

    def draw_side(self) -> None:
        """The second pane: what the cursor is on."""
        known, inner, key = self.known, self.side_width - 2 - pages.MARGIN, self.page.key
        if inner < 0:
            return
        item, node = self.cause, self.node
        lines, title = [], ""
        if known is None:
            if node is not None:
                lines = nodes.row(self.state.cells, node, self.row_here, inner)
                title = fmt.plain(node, 60)
        elif self.where.view == "causes" and isinstance(key, tuple) and key[0] == "family":
            lines, title = pages.family(known, self.state.cells, key[1], inner), "family"
        elif self.where.view == "causes" and not known.listed:
            lines, title = pages.every_family(known, self.state.cells, inner), "what was looked at"
        elif self.where.view == "matrix" and self.where.zoom == "overview":
            lines, title = nodes.groups(known, self.state.cells, inner), "by cause"
        elif self.where.view == "matrix" and node is not None and (check := self.check_here) is not None:
            lines = nodes.cell(known, self.state.cells, node, check, inner)
            title = f"{fmt.plain(check, 40)} on {fmt.plain(node, 60)}"
        elif item is not None:
            lines, title = self._whole_cause(known, item, inner), "what fixes it"
        elif node is not None:
            lines, title = nodes.page(known, self.state.cells, node, inner), fmt.plain(node, 60)
        self.side.show([replace(one, key=None) for one in lines], top=True)
        self.side.title(title, f"{fmt.number(self.side.below, 'more line')}" if self.side.below > 0 else "")

    def _whole_cause(self, known: Known, item: Cause, width: int) -> list[Line]:
        """A cause for the second pane: with undo and what was observed where there is room for them."""
        height = self.side.size.height
        lines = pages.cause(known, item, width)
        if len(lines) > height:
            return pages.cause(known, item, width, brief=True)
        groups, more = pages.by_words(pages.results_of(known, item)), [Line(), line((" observed", "label"))]
        for number, group in enumerate(groups):
            one = pages.evidence(known, group, width)
            if len(lines) + len(more) + len(one) >= height:
                rest = sum(map(len, groups[number:]))
                more.append(line((f" and {fmt.number(rest, 'more result')} (e opens)", "dim")))
                break
            more += one
        return [*lines, *more] if len(more) > 3 and len(lines) + len(more) <= height else lines

    def draw_bars(self) -> None:
        width = self.size.width
        if not self.drawn:
            return
        if self.tiny:
            for name in BARS:
                self.bars[name].show([])
            return
        spinner = SPINNER[self.spin % len(SPINNER)] if self.state.scanning else ""
        self.bars["head"].show([pages.header(self.state, width, self.clock(), spinner)])
        if self.small:
            self.bars["tabs"].show([])
        else:
            self.bars["tabs"].show(*frame.tabs(self.state, self.where, self.matrix.rows, width))
        panel = pages.scan_panel(self.state, width) if self.state.live and not self.small else []
        self.bars["panel"].show(panel)
        if self.where.view not in ("matrix", "pairs"):
            self.bars["detail"].show([])
        status = (
            [line((f" {piece}", "head")) for piece in wrap(self.status, width - 2)] if self.status else []
        )
        below = self._below()
        if self.framed:
            (self.matrix if self.matrix.display else self.page).title(self._title(), below)
        elif below:
            status = [line((below.rjust(width - 1), "dim")), *status]
        self.bars["status"].show(status)
        self.bars["keys"].show(*frame.footer(self._mode(), self._offered, width, self._hints()))

    def _title(self) -> str:
        """What the first pane shows."""
        view, cells = self.where.view, self.state.cells
        if view == "causes" and self.known is not None and self.known.listed:
            return "causes, worst first"
        if self.turned is not None:
            what = "in their families" if self.known is None else "alike on all nodes"
            more = f"   {self.turned.folded} {what}: a shows them" if self.turned.folded else ""
            return f"checks x nodes{more}"
        if view == "matrix":
            return f"nodes x checks   {len(self.matrix.rows.order)} x {len(cells.checks)}"
        if view == "node" and self.node is not None:
            return f"node {fmt.plain(self.node, 60)}"
        return {"pair": "pairs one by one", "diff": "changes"}.get(view, view)

    def _below(self) -> str:
        """That there is more of the page than can be seen, '' when there is not."""
        more = self.page.below if self.page.display else 0
        return f"{fmt.number(more, 'more line')} below" if more else ""

    def _mode(self) -> str:
        """What the keys are for: a key of FOOTERS."""
        if self.main_filter.display:
            return "filter"
        if self.bad_input:
            return "input"
        return "waiting" if self.state.report is None and not self.state.cells.nodes else self.where.view

    def _hints(self) -> dict[str, str]:
        """What keys do for the line under the cursor and in this state, where that has another name."""
        hints = dict(HINTS.get(self._mode(), {}))
        if self.where.paused:
            hints["pause"] = "p go on"
        key, item = self.page.key, self.cause
        if self.where.view == "cause" and isinstance(key, tuple) and key[0] == "verify":
            hints["copy-fix"] = "y copy verify"
        elif item is not None and item.fixes:
            number = key[2] if isinstance(key, tuple) and key[0] == "fix" else 0
            hints["copy-fix"] = COPY_HINTS.get(
                item.fixes[min(number, len(item.fixes) - 1)].kind, "y copy fix"
            )
        return hints

    def say(self, text: str) -> None:
        """One line of our own above the keys; the next key takes it away."""
        self.status = fmt.plain(text, 400)
        if self.drawn:
            self.draw_bars()

    # What can be done

    def allowed(self, action: Action) -> bool:
        """Whether an action does something here and now."""
        if self.tiny:
            return action.id in ("quit", "quit-leaving", "stop")
        if self.where.view not in action.views or (self.small and action.id in SCREEN_ACTIONS):
            return False
        return {
            "scan": self.state.scanning,
            "report": self.state.report is not None,
            "runner": self.runner is not None and not self.runner.cannot,
            "idle": self.runner is not None and not self.runner.cannot and not self.state.scanning,
            "input": self.bad_input,
            "paths": bool(self.paths),
        }.get(action.needs, True)

    def _offered(self, action: Action) -> bool:
        """Whether the last line names an action: not what needs a cause, a fix or its proof where none is."""
        needs = (
            CAUSE_ACTIONS.get(action.id) if self.where.view == "causes" and self.known is not None else None
        )
        listed = self.known.listed if self.known is not None else ()
        return self.allowed(action) and (needs is None or any(map(needs, listed)))

    def why_not(self, action: Action) -> str:
        if self.small and action.id in SCREEN_ACTIONS:
            return f"{action.id} needs {pages.SMALL_BELOW} columns"
        if action.needs == "idle" and self.state.scanning:
            return "a scan goes on; x stops it"
        if action.needs in ("runner", "idle"):
            return (self.runner.cannot if self.runner else "") or "this report does not say how to scan again"
        return {
            "scan": "no scan goes on",
            "input": "the host list could be read",
            "report": "there is no report yet",
            "paths": "all of this is of one path",
        }.get(action.needs, f"works on: {', '.join(action.views)}")

    def ask(
        self, question: Sequence[Line], then: Callable[[], object], other: Callable[[], object] | None = None
    ) -> None:
        """A question in a box. then: what happens on yes; other: on no."""

        def answered(yes: bool | None) -> None:
            if yes:
                then()
            elif other is not None:
                other()

        self.push_screen(Ask(question), answered)

    def question_lines(self, text: str, style: str = "", indent: int = 1) -> list[Line]:
        """Text for a question, in lines that fit into its box."""
        pieces = wrap(text, min(self.size.width - 16, 96))
        return [line((" " * indent + piece, style)) for piece in pieces]

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


def screen_text(app: App[Any]) -> list[str]:
    """What an application shows, line by line, without colours."""
    rows = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in rows]
