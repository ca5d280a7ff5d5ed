"""The matrix: thousands of nodes by dozens of checks in one widget that draws only the lines in sight."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby

from rich.segment import Segment
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip

from netdoctor.report import fmt
from netdoctor.tui.layout import Layout, plan
from netdoctor.tui.lines import CELLS, fit, inert
from netdoctor.tui.rows import Rows, landed
from netdoctor.tui.state import Cells, columns_of, letters_of, uniform, worst
from netdoctor.tui.where import Spot
from netdoctor.tui.widgets import Pane, PlainBars, looks

HEAD = 3
BLOCK = 10
WIDEST = 26  # of a group's names
MANY = ",.."
FOLDED_AT_MOST = 100  # groups whose names are folded before the first is drawn


class MatrixView(Pane, can_focus=True, inherit_bindings=False):
    """Rows of letters under a head of three lines, or one letter per node in the overview.

    Letters live in one bytes object that is replaced as a whole; `update` says which rows it changed, and
    only those in sight are drawn again. The cursor is a node and a check, not a spot on the screen.
    """

    class Moved(Message):
        """The cursor was put elsewhere by a click, or stands in another column at another width."""

    class Opened(Message):
        """A second click on the cell under the cursor."""

    class HeadClicked(Message):
        """check: the first one of the column."""

        def __init__(self, check: str) -> None:
            super().__init__()
            self.check = check

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.cells = Cells()
        self.rows = Rows()
        self.cursor: Spot | None = None
        self.zoom = "rows"
        self.wide = False
        self.marked: frozenset[str] = frozenset()
        self.busy: frozenset[int] = frozenset()
        self.layout_plan = Layout((), ("", "", ""), 0, 0)
        self.node = 0
        self.column = 0
        self._colour: int | None = None
        self._marked: frozenset[int] = frozenset()
        self._strips: dict[int, Strip] = {}
        self._dull: frozenset[int] = frozenset()
        self._telling: tuple[int, ...] | None = None
        self._overview_lines: list[
            tuple[int, int]
        ] = []  # of the overview: where each line begins and ends in the order

    def on_mount(self) -> None:
        self.vertical_scrollbar.renderer = PlainBars  # type: ignore[misc]  # Textual looks it up on the bar

    # What is drawn

    def show(
        self,
        cells: Cells,
        rows: Rows,
        *,
        cursor: Spot | None = None,
        zoom: str = "rows",
        wide: bool = False,
        colour: str | None = None,
    ) -> Spot | None:
        """Draw these rows. Returns where the cursor came to be: what it asks for may be filtered away."""
        if cells.nodes is not self.cells.nodes:
            self.__dict__.pop("_stub", None)
        self.cells, self.rows, self.zoom, self.wide = cells, rows, zoom, wide
        self._colour = cells.checks.index(colour) if colour in cells.checks else None
        self._dull = uniform(cells) if len(rows.order) > 1 else frozenset()
        # What waits everywhere tells no node from another: the overview looks past it.
        waits = {c for c in self._dull if cells.letter(0, c) == "b"}
        telling = [c for c in columns_of(cells, rows.columns) if c not in waits]
        self._telling = tuple(telling) if waits and telling else rows.columns
        self._marked = self._rows_of(self.marked)
        self._measure()
        self._put(landed(cursor, cells, rows))
        self.forget_strips()
        self._into_view()
        self.refresh()
        return self.cursor

    def update(self, cells: Cells, rows: set[int]) -> None:
        """Take new letters; draw again the rows that changed and can be seen."""
        self.cells = cells
        line_of = self.rows.line_of
        if self.zoom == "overview":
            for y in {self._overview_place(line_of[r]) for r in rows if r in line_of}:
                self._refresh_line(y)
            return
        if self.rows.groups is not None:
            return  # groups keep the letters they were made of until the next grouping
        top = round(self.scroll_y)
        height = self.size.height - HEAD
        for row in rows:
            line = line_of.get(row)
            if line is not None:
                self._strips.pop(line, None)
                if top <= line < top + height:
                    self._refresh_line(line - top + HEAD)

    def forget_strips(self) -> None:
        """Draw every row anew, when its looks have changed."""
        self._strips.clear()

    def _refresh_line(self, y: int) -> None:
        if 0 <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    def set_marks(self, marked: frozenset[str], busy: frozenset[int]) -> None:
        """marked: names of nodes. busy: indices into the cells."""
        if marked != self.marked or busy != self.busy:
            self.marked, self.busy = marked, busy
            self._marked = self._rows_of(marked)
            self.forget_strips()
            self.refresh()

    def _rows_of(self, nodes: frozenset[str]) -> frozenset[int]:
        every = self.cells.nodes if nodes else ()
        return frozenset(i for i, name in enumerate(every) if name in nodes)

    def _measure(self) -> None:
        width = self.size.width
        self.layout_plan = plan(
            self.cells,
            self.rows.columns,
            width,
            names=max(self._widest(), len("nodes")),
            counted=self.rows.groups is not None,
            wide=self.wide,
            families=self.app.size.width < 100,
        )
        if self.zoom == "overview":
            self._fold()
            self.virtual_size = Size(width, len(self._overview_lines) + 2)
        else:
            self.virtual_size = Size(max(self.layout_plan.width, width), len(self.rows) + HEAD)

    def _widest(self) -> int:
        """The width of the longest name; of folded ones what is usual, where there are many."""
        if self.rows.groups is None:
            return max((len(fmt.plain(name, 200)) for name in self.cells.nodes), default=0)
        folded = [self._folded(group.members) for group in self.rows.groups[:FOLDED_AT_MOST]]
        return min(max((len(text) for text in folded), default=0), WIDEST)

    def on_resize(self) -> None:
        self._measure()
        self._put(self.cursor)
        self.forget_strips()
        self._into_view()
        self.post_message(self.Moved())

    # The cursor

    @property
    def line(self) -> int:
        """The row under the cursor."""
        return self.rows.line_of.get(self.node, 0)

    @property
    def check(self) -> str | None:
        """The check under the cursor, None on names and on families."""
        checks = self.checks
        return checks[0] if len(checks) == 1 else None

    @property
    def checks(self) -> tuple[str, ...]:
        """The checks of the column under the cursor; none on the names and in the overview."""
        columns = self.layout_plan.columns
        if self.zoom == "overview" or not 0 <= self.column < len(columns):
            return ()
        return tuple(self.cells.checks[c] for c in columns[self.column].checks)

    @property
    def members(self) -> tuple[str, ...]:
        """The nodes of the row under the cursor."""
        line = self.rows.line_of.get(self.node)
        return () if line is None else tuple(self.cells.nodes[n] for n in self.rows.members(line))

    @property
    def telling(self) -> tuple[str, ...]:
        """The checks that tell nodes apart."""
        return tuple(check for c, check in enumerate(self.cells.checks) if c not in self._dull)

    def line_of(self, node: str) -> int | None:
        """The row in which a node stands, None when it is filtered away."""
        return self.rows.line_of.get(self.cells.nodes.index(node)) if node in self.cells.nodes else None

    def between(self, one: str | None, other: str) -> frozenset[str]:
        """The nodes from the row of one to that of the other, both included, or of the one shown."""
        ends = [self.line_of(name) for name in (one, other) if name is not None]
        lines_ = [line for line in ends if line is not None]
        lines = range(min(lines_, default=0), max(lines_, default=-1) + 1)
        return frozenset(self.cells.nodes[n] for line in lines for n in self.rows.members(line))

    def put(self, cursor: Spot) -> None:
        """Move the cursor to a node that is shown, and to a check if that is; else it stays where it is."""
        if self.line_of(cursor.node) is None:
            return
        drawn = [None, *(self.cells.checks[c] for column in self.layout_plan.columns for c in column.checks)]
        if self.cursor is not None and cursor.check not in drawn:
            cursor = cursor._replace(check=self.cursor.check)
        self._redraw(self.node)
        self._put(cursor)
        self._redraw(self.node)
        self._into_view()
        if self.zoom != "overview":
            for y in range(HEAD):
                self._refresh_line(y)

    def near(self, way: str) -> Spot | None:
        """The next cell that way, a name in MOVES; the last one where there is none."""
        page = max(self.size.height - HEAD - 1, 1)
        edge = len(self.rows) + 1
        dx, dy = {
            **{"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)},
            **{"top": (0, -edge), "bottom": (0, edge), "page-up": (0, -page), "page-down": (0, page)},
        }[way]
        if not self.rows or self.cursor is None:
            return self.cursor
        line, check = self.line, self.cursor.check
        columns = self.layout_plan.columns
        if self.zoom == "overview":
            line = self._beyond(line, dx, dy)
        else:
            line += dy
            column = min(max(self.column + dx, -1), len(columns) - 1)
            if column != self.column:
                check = None if column < 0 else self.cells.checks[columns[column].checks[0]]
        node = self.rows.members(min(max(line, 0), len(self.rows) - 1))[0]
        return Spot(check, self.cells.nodes[node])

    def _put(self, cursor: Spot | None) -> None:
        if cursor is None:
            return
        if cursor.node in self.cells.nodes:
            self.node = self.cells.nodes.index(cursor.node)
        self.column = self._column(cursor.check)
        columns = self.layout_plan.columns
        checks = [self.cells.checks[c] for c in columns[self.column].checks] if self.column >= 0 else [None]
        self.cursor = cursor if cursor.check in checks else cursor._replace(check=checks[0])

    def _column(self, check: str | None) -> int:
        """The column of a check; of one that is not shown, the column before it, or the first."""
        if check is None:
            return -1
        columns = self.layout_plan.columns
        index = self.cells.checks.index(check) if check in self.cells.checks else -1
        before = [n for n, column in enumerate(columns) if column.checks[0] <= index]
        holding = [n for n, column in enumerate(columns) if index in column.checks]
        return next(iter(holding), before[-1] if before else min(0, len(columns) - 1))

    def _redraw(self, node: int) -> None:
        line = self.rows.line_of.get(node)
        if line is None:
            return
        if self.zoom == "overview":
            self._refresh_line(self._overview_place(line))
            return
        self._strips.pop(line, None)
        self._refresh_line(line - round(self.scroll_y) + HEAD)

    def _into_view(self) -> None:
        line = self.line
        if self.zoom == "overview":
            line, room = self._line_with(line), self.size.height - 1
        else:
            room = self.size.height - HEAD
        top = round(self.scroll_y)
        if line < top:
            self.scroll_to(y=line, animate=False, immediate=True)
        elif room > 0 and line >= top + room:
            self.scroll_to(y=line - room + 1, animate=False, immediate=True)
        columns = self.layout_plan.columns
        if self.zoom != "overview" and self.layout_plan.width > self.size.width and columns:
            x = columns[self.column].x if self.column >= 0 else 0
            left = round(self.scroll_x)
            if not left + 2 <= x < left + self.size.width - 2:
                self.scroll_to(x=max(x - self.size.width // 2, 0), animate=False, immediate=True)

    # Drawing

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        if not self.rows:
            text = f"  {self.rows.empty}" if y == HEAD and self.rows.empty else ""
            return Strip([Segment(inert(fit(text, width)), base)])
        if self.zoom == "overview":
            return self._overview_line(y)
        left = round(self.scroll_x)
        if y < HEAD:
            return self._cut_off(self._head(y).crop(left, left + width).adjust_cell_length(width, base), y)
        line = y - HEAD + round(self.scroll_y)
        if line >= len(self.rows):
            return Strip.blank(width, base)
        strip = self._strips.get(line)
        if strip is None:
            strip = self._row(line)
            if len(self._strips) > 4096:
                self._strips.clear()
            self._strips[line] = strip
        return strip.crop(left, left + width).adjust_cell_length(width, base)

    def _head(self, y: int) -> Strip:
        known, base = looks(self), self.rich_style
        text = self.layout_plan.heads[y]
        if y == HEAD - 1:
            label = fit("  nodes", self.layout_plan.label) + (
                "     n" if self.rows.groups is not None else ""
            )
            text = label + text[len(label) :]
        columns = self.layout_plan.columns
        segments = [Segment(inert(text), base + known["dim"])]
        if y > 0 and 0 <= self.column < len(columns):
            x = columns[self.column].x
            size = len(fmt.plain(columns[self.column].family, 8)) if self.layout_plan.families else 1
            if x < len(text):
                segments = [
                    Segment(inert(text[:x]), base + known["dim"]),
                    Segment(inert(text[x : x + size]), base + known["head"]),
                    Segment(inert(text[x + size :]), base + known["dim"]),
                ]
        return Strip(segments)

    def _cut_off(self, head: Strip, y: int) -> Strip:
        """The first line of the head with how many columns there are on either side of what can be seen."""
        if y or self.layout_plan.width <= self.size.width:
            return head
        left, width = round(self.scroll_x), self.size.width
        before = sum(column.x < left for column in self.layout_plan.columns)
        after = sum(column.x >= left + width for column in self.layout_plan.columns)
        look = self.rich_style + looks(self)["head"]
        marks = [
            Segment(f"<{before} more " if before else "", look),
            Segment(f" {after} more>" if after else "", look),
        ]
        begin, end = (len(mark.text) for mark in marks)
        room = max(width - end, begin)
        joined = Strip.join([Strip(marks[:1]), head.crop(begin, room), Strip(marks[1:])])
        return joined.adjust_cell_length(width, self.rich_style)

    def letters_at(self, line: int) -> bytes:
        """The letters of a row, of all checks; groups show those they were made of."""
        rows = self.rows
        if rows.groups is None:
            return self.cells.row(rows.order[line])
        if rows.columns is None:
            return rows.groups[line].letters
        letters = bytearray(b" " * len(self.cells.checks))
        for n, column in enumerate(rows.columns):
            letters[column] = rows.groups[line].letters[n]
        return bytes(letters)

    def _row(self, line: int) -> Strip:
        known, base = looks(self), self.rich_style
        letters = self.letters_at(line)
        members = self.rows.members(line)
        current = self.rows.line_of.get(self.node) == line
        if current:
            base += known["line"]
        mark = "*" if self._marked and not self._marked.isdisjoint(members) else " "
        label = self._label(members)
        count = f"{len(members):>6}" if self.rows.groups is not None else ""
        head = f"{'>' if current else ' '}{mark}{fit(label, self.layout_plan.label - 2)}{count}  "
        head_style = base + (
            known["cursor"] if current and self.column < 0 else known["head" if current else ""]
        )
        segments = [Segment(inert(head), head_style)]
        x = len(head)
        for n, column in enumerate(self.layout_plan.columns):
            if column.x > x:
                segments.append(Segment(" " * (column.x - x), base))
            letter = worst(bytes(letters[c] for c in column.checks))
            if self.busy and self._is_busy(members, column.checks):
                letter = "~"
            style = base + known[CELLS.get(letter, "")]
            if current and n == self.column:
                style += known["cursor"]
            # A cell takes the room up to the next one of its family.
            text = letter.ljust(self.layout_plan.step)
            segments.append(Segment(text, style))
            x = column.x + len(text)
        return (
            Strip(segments).simplify().adjust_cell_length(max(self.layout_plan.width, self.size.width), base)
        )

    def _is_busy(self, members: Sequence[int], checks: Sequence[int]) -> bool:
        width = len(self.cells.checks)
        return any(node * width + check in self.busy for node in members[:64] for check in checks)

    def _label(self, members: Sequence[int]) -> str:
        room = self.layout_plan.label - 2
        text = self._folded(members)
        if len(members) == 1 or (len(text) <= room and not text.endswith(MANY)):
            return text
        head, _, _ = text[: room - 3].rpartition(",")
        return f"{head or text[: room - 3]},..{']' if '[' in text else ''}"

    def _folded(self, members: Sequence[int]) -> str:
        if len(members) == 1:
            return fmt.plain(self.cells.nodes[members[0]], 200)
        cut = members if len(members) <= 2048 else members[:256]  # folding thousands takes long
        return fmt.fold([self.cells.nodes[m] for m in cut], None) + (MANY if len(cut) < len(members) else "")

    # Overview

    @cached_property
    def _stub(self) -> int:
        """Where the first letter of the overview stands, behind the name of the row's first node."""
        return min(max((len(fmt.plain(name, 200)) for name in self.cells.nodes), default=0), WIDEST) + 2

    def _across(self) -> int:
        blocks = max((self.size.width - self._stub - 1) // (BLOCK + 1), 1)
        return min(blocks, 8) * BLOCK if self.size.width < 140 else blocks * BLOCK

    def _fold(self) -> None:
        """Which lines there are: all rows where they fit or somebody wants them, else those in which nothing
        is wrong are one line where they follow each other."""
        across, order = self._across(), self.rows.order
        every = range(0, len(order), across)
        self._overview_lines = [(first, min(first + across, len(order))) for first in every]
        chosen = self.wide or self.rows.columns is not None
        if chosen or len(every) < self.size.height or b" " in self.cells.cells:  # which has yet to be told
            return
        quiet = [self._is_quiet(order[first:last]) for first, last in self._overview_lines]
        lines: list[tuple[int, int]] = []
        for is_quiet, run in groupby(range(len(quiet)), key=lambda n: quiet[n]):
            rows = [self._overview_lines[n] for n in run]
            lines += [(rows[0][0], rows[-1][1])] if is_quiet else rows
        self._overview_lines = lines

    def _is_quiet(self, nodes: Sequence[int]) -> bool:
        """Whether these nodes pass, and say nothing but that and that something does not apply."""
        if self._colour is not None:
            return all(self.overview_letter(node) == "." for node in nodes)
        letters_ = (letters_of(self.cells, node, self._telling) for node in nodes)
        return all(b"." in letters and not letters.translate(None, b".-") for letters in letters_)

    def _line_with(self, line: int) -> int:
        """The line of the overview in which a node is drawn."""
        return max(bisect_right(self._overview_lines, (line, len(self.rows.order) + 1)) - 1, 0)

    def _overview_place(self, line: int) -> int:
        """The same, among those in sight."""
        return self._line_with(line) + 1 - round(self.scroll_y)

    def _beyond(self, line: int, dx: int, dy: int) -> int:
        """The node that is so far to the right and below; a line of folded rows is one step each way."""
        y = self._line_with(line)
        first, last = self._overview_lines[y]
        across = self._across()
        if dx:
            folded = last - first > across
            return (last if dx > 0 else first - 1) if folded else line + dx
        goal = min(max(y + dy, 0), len(self._overview_lines) - 1)
        start, end = self._overview_lines[goal]
        if goal == y:
            return end - 1 if dy > 0 else start
        return start if end - start > across else min(start + line % across, end - 1)

    def _overview_line(self, y: int) -> Strip:
        known, base = looks(self), self.rich_style
        across, width = self._across(), self.size.width
        if y == 0:
            marks = "".join(f"{f'+{b * BLOCK}' if b else '':<{BLOCK + 1}}" for b in range(across // BLOCK))
            return Strip([Segment(fit(" " * self._stub + marks, width), base + known["dim"])])
        index = y - 1 + round(self.scroll_y)
        if index >= len(self._overview_lines):
            return Strip.blank(width, base)
        first, last = self._overview_lines[index]
        name = fmt.plain(self.cells.nodes[self.rows.order[first]], 200)
        segments = [Segment(inert(f" {fit(name, self._stub - 2)} "), base + known["dim"])]
        if last - first > across:
            here = first <= self.line < last
            of_all = self._telling is not None and self.rows.columns is None
            what = "no trouble of their own" if of_all else "nothing wrong"
            text = fit(f"{last - first} nodes: {what}   a shows them", width - self._stub)
            return Strip([*segments, Segment(text, base + known["cursor" if here else "dim"])])
        for n, node in enumerate(self.rows.order[first:last]):
            if n and n % BLOCK == 0:
                segments.append(Segment(" ", base))
            letter = self.overview_letter(node)
            style = base + known[CELLS.get(letter, "")]
            if node in self._marked:
                style += known["line"]
            if node == self.node:
                style += known["cursor"]
            segments.append(Segment(letter, style))
        return Strip(segments).simplify().adjust_cell_length(width, base)

    def overview_letter(self, node: int) -> str:
        if self._colour is not None:
            return self.cells.letter(node, self._colour)
        return worst(letters_of(self.cells, node, self._telling))

    # Mouse

    def on_click(self, event: events.Click) -> None:
        point = event.get_content_offset(self)
        if not self.rows or point is None:
            return
        if self.zoom == "overview":
            n = point.x - self._stub
            n -= n // (BLOCK + 1)
            index = point.y - 1 + round(self.scroll_y)
            if point.y > 0 and 0 <= index < len(self._overview_lines):
                first, last = self._overview_lines[index]
                position = first if last - first > self._across() else first + n
                if n >= 0 and first <= position < last:
                    self._clicked(self.rows.order[position], self.column, event)
            return
        x = point.x + round(self.scroll_x)
        columns = self.layout_plan.columns
        column = max((n for n, c in enumerate(columns) if c.x <= x), default=-1)
        if point.y < HEAD:
            if column >= 0:
                self.post_message(self.HeadClicked(self.cells.checks[columns[column].checks[0]]))
            return
        line = point.y - HEAD + round(self.scroll_y)
        if line < len(self.rows):
            self._clicked(self.rows.members(line)[0], column, event)

    def _clicked(self, node: int, column: int, event: events.Click) -> None:
        again = self.rows.line_of.get(node) == self.line and column == self.column and event.chain > 1
        check = None
        if column >= 0:
            checks = self.layout_plan.columns[column].checks
            check = self.cells.checks[checks[0]]
            if self.cursor is not None and column == self.column:
                check = self.cursor.check
        self.put(Spot(check, self.cells.nodes[node]))
        self.post_message(self.Moved())
        if again:
            self.post_message(self.Opened())
