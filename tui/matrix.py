"""The matrix: thousands of nodes by dozens of checks in one widget that draws only the lines in sight."""

from collections.abc import Sequence

from rich.segment import Segment
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from netdoctor.report import words
from netdoctor.tui.layout import Layout, plan
from netdoctor.tui.lines import STYLES, fit, inert
from netdoctor.tui.state import RANK, Cells, Group, letters_of, uniform, worst
from netdoctor.tui.widgets import PlainBars, looks

HEAD = 3
ZOOMS = ("groups", "rows", "overview")
BLOCK = 10


class MatrixView(ScrollView, can_focus=True, inherit_bindings=False):
    """Rows of letters under a head of three lines, or one letter per node in the overview.

    Letters live in one bytes object that is replaced as a whole; `update` says which rows it changed, and
    only those in sight are drawn again. The cursor is a node and a column, not a place.
    """

    class Moved(Message):
        """The cursor is elsewhere."""

    class Opened(Message):
        """Enter, or a second click."""

    class HeadClicked(Message):
        """column: index into the layout's columns."""

        def __init__(self, column: int) -> None:
            super().__init__()
            self.column = column

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.cells = Cells()
        self.zoom = "rows"
        self.order: list[int] = []
        self.groups: list[Group] | None = None
        self.columns: tuple[int, ...] | None = None
        self.wide = False
        self.node = 0
        self.placed = False
        self.column = 0
        self.colour_by: int | None = None
        self.marked: frozenset[int] = frozenset()
        self.busy: frozenset[int] = frozenset()
        self.empty = ""
        self.layout_plan = Layout((), ("", "", ""), 0, 0)
        self._line_of: dict[int, int] = {}
        self._strips: dict[int, Strip] = {}
        self._dull: frozenset[int] = frozenset()
        self._telling: tuple[int, ...] | None = None

    def on_mount(self) -> None:
        self.vertical_scrollbar.renderer = PlainBars  # type: ignore[misc]  # Textual looks it up on the bar

    # What is drawn

    def show(
        self,
        cells: Cells,
        order: list[int],
        groups: list[Group] | None,
        *,
        zoom: str,
        columns: tuple[int, ...] | None = None,
        wide: bool = False,
    ) -> None:
        """Draw these rows; the cursor stays on its node."""
        same_nodes = cells.nodes is self.cells.nodes or cells.nodes == self.cells.nodes
        name = self.cells.nodes[self.node] if self.node < len(self.cells.nodes) else None
        check = self.check if self.check is not None else next(iter(self.checks), None)
        self.cells, self.order, self.groups = cells, order, groups
        self.zoom, self.columns, self.wide = zoom, columns, wide
        if not same_nodes and name in cells.nodes:
            self.node = cells.nodes.index(name)
        if groups is None:
            self._line_of = {node: line for line, node in enumerate(order)}
        else:
            self._line_of = {node: line for line, group in enumerate(groups) for node in group.members}
        placed = self.placed or not any(chr(letter) in "X!?" for letter in set(cells.cells))
        if self.node not in self._line_of or not self.placed:
            first = (groups[0].members[0] if groups else order[0]) if order else 0
            self.node = first
            self.placed = bool(order)
        self._dull = uniform(cells) if len(order) > 1 else frozenset()
        # What waits everywhere tells no node from another: the overview looks past it.
        waits = {c for c in self._dull if cells.letter(0, c) == "b"}
        kept = [c for c in (range(len(cells.checks)) if columns is None else columns) if c not in waits]
        self._telling = tuple(kept) if waits and kept else columns
        self._measure()
        if check is not None:
            self.put_column(check)
        if not placed and order:
            letters = cells.row(self.node)
            self.put_column(max(range(len(letters)), key=lambda c: RANK.get(chr(letters[c]), 0), default=0))
        self._strips.clear()
        self._into_view()
        self.refresh()

    def update(self, cells: Cells, rows: set[int]) -> None:
        """Take new letters; draw again the rows that changed and can be seen."""
        self.cells = cells
        if self.zoom == "overview":
            for y in {self._overview_place(self._line_of[r])[1] for r in rows if r in self._line_of}:
                self._refresh_line(y)
            return
        if self.groups is not None:
            return  # groups keep the letters they were made of until the next grouping
        top = round(self.scroll_y)
        height = self.size.height - HEAD
        for row in rows:
            line = self._line_of.get(row)
            if line is not None:
                self._strips.pop(line, None)
                if top <= line < top + height:
                    self._refresh_line(line - top + HEAD)

    def _refresh_line(self, y: int) -> None:
        if 0 <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    def set_marks(self, marked: frozenset[int], busy: frozenset[int]) -> None:
        if marked != self.marked or busy != self.busy:
            self.marked, self.busy = marked, busy
            self._strips.clear()
            self.refresh()

    def _measure(self) -> None:
        width = self.size.width
        self.layout_plan = plan(
            self.cells, self.columns, width, wide=self.wide, families=self.app.size.width < 100
        )
        self.column = min(self.column, max(len(self.layout_plan.columns) - 1, -1))
        if self.zoom == "overview":
            self.virtual_size = Size(width, -(-len(self.order) // self._across()) + 2)
        else:
            self.virtual_size = Size(max(self.layout_plan.width, width), self.line_count + HEAD)

    @property
    def line_count(self) -> int:
        return len(self.order) if self.groups is None else len(self.groups)

    def on_resize(self) -> None:
        check = self.check if self.check is not None else next(iter(self.checks), None)
        self._measure()
        if check is not None:
            self.put_column(check)
        self._strips.clear()
        self._into_view()

    # The cursor

    @property
    def check(self) -> int | None:
        """The check under the cursor, None on names and on families."""
        if self.zoom == "overview":
            return None
        columns = self.layout_plan.columns
        if 0 <= self.column < len(columns) and len(columns[self.column].checks) == 1:
            return columns[self.column].checks[0]
        return None

    @property
    def checks(self) -> tuple[int, ...]:
        """The checks of the column under the cursor; none on the names."""
        columns = self.layout_plan.columns
        if self.zoom == "overview" or not 0 <= self.column < len(columns):
            return ()
        return columns[self.column].checks

    @property
    def members(self) -> tuple[int, ...]:
        """The nodes of the row under the cursor."""
        line = self._line_of.get(self.node)
        if line is None:
            return ()
        if self.groups is not None and self.zoom == "groups":
            return self.groups[line].members
        return (self.node,)

    def put_column(self, check: int) -> None:
        for n, column in enumerate(self.layout_plan.columns):
            if check in column.checks:
                self.column = n
                return

    def put(self, node: int, check: int | None = None) -> None:
        """Put the cursor on a node, and on a check."""
        if node in self._line_of:
            self._leave()
            self.node = node
            if check is not None:
                self.put_column(check)
            self._arrive()

    def move(self, dx: int, dy: int) -> None:
        if not self.line_count:
            return
        self._leave()
        line = self._line_of.get(self.node, 0)
        if self.zoom == "overview":
            line += dx + dy * self._across()
        else:
            self.column = min(max(self.column + dx, -1), len(self.layout_plan.columns) - 1)
            line += dy
        self.node = self._node_at(min(max(line, 0), self.line_count - 1))
        self._arrive()

    def page(self, by: int) -> None:
        self.move(0, by * max(self.size.height - HEAD - 1, 1))

    def edge(self, last: bool) -> None:
        self.move(0, (1 if last else -1) * (self.line_count + 1))

    def _node_at(self, line: int) -> int:
        if self.groups is not None and self.zoom == "groups":
            return self.groups[line].members[0]
        return self.order[line]

    def _leave(self) -> None:
        self._redraw(self.node)

    def _arrive(self) -> None:
        self._redraw(self.node)
        self._into_view()
        if self.zoom != "overview":
            for y in range(HEAD):
                self._refresh_line(y)
        self.post_message(self.Moved())

    def _redraw(self, node: int) -> None:
        line = self._line_of.get(node)
        if line is None:
            return
        if self.zoom == "overview":
            self._refresh_line(self._overview_place(line)[1])
            return
        self._strips.pop(line, None)
        self._refresh_line(line - round(self.scroll_y) + HEAD)

    def _into_view(self) -> None:
        line = self._line_of.get(self.node, 0)
        if self.zoom == "overview":
            line, room = line // self._across(), self.size.height - 1
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
        if not self.line_count:
            text = f"  {self.empty}" if y == HEAD and self.empty else ""
            return Strip([Segment(inert(fit(text, width)), base)])
        if self.zoom == "overview":
            return self._overview_line(y)
        left = round(self.scroll_x)
        if y < HEAD:
            return self._head(y).crop(left, left + width).adjust_cell_length(width, base)
        line = y - HEAD + round(self.scroll_y)
        if line >= self.line_count:
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
                "    n   " if self.groups is not None else " " * 8
            )
            text = label + text[len(label) :]
        columns = self.layout_plan.columns
        segments = [Segment(inert(text), base + known["dim"])]
        if y > 0 and 0 <= self.column < len(columns):
            x = columns[self.column].x
            size = len(words.plain(columns[self.column].family, 8)) if self.layout_plan.families else 1
            if x < len(text):
                segments = [
                    Segment(inert(text[:x]), base + known["dim"]),
                    Segment(inert(text[x : x + size]), base + known["head"]),
                    Segment(inert(text[x + size :]), base + known["dim"]),
                ]
        return Strip(segments)

    def letters_at(self, line: int) -> bytes:
        """The letters of a row, of all checks; groups show those they were made of."""
        if self.groups is None:
            return self.cells.row(self.order[line])
        if self.columns is None:
            return self.groups[line].letters
        whole = bytearray(b" " * len(self.cells.checks))
        for place, column in enumerate(self.columns):
            whole[column] = self.groups[line].letters[place]
        return bytes(whole)

    def _row(self, line: int) -> Strip:
        known, base = looks(self), self.rich_style
        letters = self.letters_at(line)
        members = (self.order[line],) if self.groups is None else self.groups[line].members
        current = self._line_of.get(self.node) == line
        if current:
            base += known["line"]
        mark = "*" if self.marked and not self.marked.isdisjoint(members) else " "
        label = self._label(members)
        count = f"{len(members):>5}  " if self.groups is not None else "       "
        head = f"{'>' if current else ' '}{mark}{fit(label, self.layout_plan.label - 2)}{count} "
        head_style = base + (
            known["cursor"] if current and self.column < 0 else known["head" if current else ""]
        )
        segments = [Segment(inert(head), head_style)]
        x = self.layout_plan.label + 8
        for n, column in enumerate(self.layout_plan.columns):
            if column.x > x:
                segments.append(Segment(" " * (column.x - x), base))
            letter = worst(bytes(letters[c] for c in column.checks))
            if self.busy and self._is_busy(members, column.checks):
                letter = "~"
            name = STYLES.get(letter, "")
            if column.checks[0] in self._dull and len(column.checks) == 1:
                name = "skip"
            style = base + known[name]
            if current and n == self.column:
                style += known["cursor"]
            segments.append(Segment(letter, style))
            x = column.x + 1
        return (
            Strip(segments).simplify().adjust_cell_length(max(self.layout_plan.width, self.size.width), base)
        )

    def _is_busy(self, members: Sequence[int], checks: Sequence[int]) -> bool:
        width = len(self.cells.checks)
        return any(node * width + check in self.busy for node in members[:64] for check in checks)

    def _label(self, members: Sequence[int]) -> str:
        room = self.layout_plan.label - 2
        if len(members) == 1:
            return words.plain(self.cells.nodes[members[0]], 200)
        cut = members if len(members) <= 2048 else members[:256]  # folding thousands takes long
        text = words.fold([self.cells.nodes[m] for m in cut], None)
        if len(text) <= room and len(cut) == len(members):
            return text
        head, _, _ = text[: room - 3].rpartition(",")
        return f"{head or text[: room - 3]},..{']' if '[' in text else ''}"

    # Overview

    def _across(self) -> int:
        blocks = max((self.size.width - 8) // (BLOCK + 1), 1)
        return min(blocks, 8) * BLOCK if self.size.width < 140 else blocks * BLOCK

    def _overview_place(self, line: int) -> tuple[int, int]:
        """(column, line in sight) of the node drawn at a place."""
        across = self._across()
        n = line % across
        return 7 + n + n // BLOCK, line // across + 1 - round(self.scroll_y)

    def _overview_line(self, y: int) -> Strip:
        known, base = looks(self), self.rich_style
        across, width = self._across(), self.size.width
        if y == 0:
            marks = "".join(f"{1 + b * BLOCK:<{BLOCK + 1}}" for b in range(across // BLOCK))
            return Strip([Segment(fit(f"       {marks}", width), base + known["dim"])])
        first = (y - 1 + round(self.scroll_y)) * across
        if first >= len(self.order):
            return Strip.blank(width, base)
        segments = [Segment(f"{first + 1:>6} ", base + known["dim"])]
        for n, node in enumerate(self.order[first : first + across]):
            if n and n % BLOCK == 0:
                segments.append(Segment(" ", base))
            letter = self.overview_letter(node)
            style = base + known[STYLES.get(letter, "")]
            if node in self.marked:
                style += known["line"]
            if node == self.node:
                style += known["cursor"]
            segments.append(Segment(letter, style))
        return Strip(segments).simplify().adjust_cell_length(width, base)

    def overview_letter(self, node: int) -> str:
        if self.colour_by is not None:
            return self.cells.letter(node, self.colour_by)
        return worst(letters_of(self.cells, node, self._telling))

    # Mouse

    def on_click(self, event: events.Click) -> None:
        if not self.line_count:
            return
        if self.zoom == "overview":
            n = event.x - 7 - (event.x - 7) // (BLOCK + 1)
            place = (event.y - 1 + round(self.scroll_y)) * self._across() + n
            if event.y > 0 and 0 <= n < self._across() and 0 <= place < len(self.order):
                self._clicked(self.order[place], None, event)
            return
        x = event.x + round(self.scroll_x)
        columns = self.layout_plan.columns
        column = max((n for n, c in enumerate(columns) if c.x <= x), default=-1)
        if event.y < HEAD:
            if column >= 0:
                self.post_message(self.HeadClicked(column))
            return
        line = event.y - HEAD + round(self.scroll_y)
        if line < self.line_count:
            self._clicked(self._node_at(line), column, event)

    def _clicked(self, node: int, column: int | None, event: events.Click) -> None:
        same = self._line_of.get(node) == self._line_of.get(self.node) and column in (None, self.column)
        self._leave()
        self.node = node
        if column is not None:
            self.column = column
        self._arrive()
        if same and event.chain > 1:
            self.post_message(self.Opened())
