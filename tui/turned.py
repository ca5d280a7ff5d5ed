"""The matrix turned: a row per check and a column per node, where nodes are few enough to be named.

Checks that differ between nodes, or that found something, have a row each; of the others a line per family
says that they are alike. While results come in, families keep their order and the cursor stops at them, too:
a check has a row below its family's from the moment that it finds something. Lines for a given width; the
cursor is a check and a node.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from netdoctor.report import fmt
from netdoctor.tui.lines import CELLS, Line, fit, line, width_of
from netdoctor.tui.rows import Rows
from netdoctor.tui.state import BAD, Cells, Known, columns_of, worst
from netdoctor.tui.where import Spot

NODES_MOST = 20
CELL_LEAST, CELL_MOST = 3, 12
ROOM_LEAST, REFS = 28, 9  # for the family and the name of a check; for the numbers of causes
TITLE_LEAST, TITLE, TITLE_MOST = 24, 36, 56  # for what a check says: less is nothing


@dataclass(frozen=True, slots=True)
class Turned:
    """The screen, and where on it the cursor can be."""

    lines: list[Line]
    heads: int  # of the lines, those that stay in sight
    rows: tuple[tuple[str, ...], ...]  # that the cursor stops at, from top to bottom: their checks
    nodes: tuple[str, ...]  # columns from left to right
    left: int  # where the first cell begins
    step: int
    folded: int  # how many checks have no row of their own
    cursor: Spot | None  # as it is drawn

    def row_of(self, check: str | None) -> tuple[str, ...]:
        """The checks of the row in which a check stands, none where it has none."""
        return next((row for row in self.rows if check in row), ())

    def near(self, cursor: Spot, way: str, page: int) -> Spot:
        """The next cell that way, a name in MOVES; the last one where there is none."""
        row = next((n for n, checks in enumerate(self.rows) if cursor.check in checks), 0)
        column = self.nodes.index(cursor.node) if cursor.node in self.nodes else 0
        every = len(self.rows)
        down = {"up": -1, "down": 1, "top": -every, "bottom": every, "page-up": -page, "page-down": page}
        row = min(max(row + down.get(way, 0), 0), every - 1)
        column = min(max(column + {"left": -1, "right": 1}.get(way, 0), 0), len(self.nodes) - 1)
        return Spot(self.rows[row][0], self.nodes[column])

    def keep(self, before: "Turned | None", cursor: Spot | None) -> Spot | None:
        """Where a cursor belongs that stood on a family's row before a check of it got a row of its own."""
        if before is None or cursor is None or cursor != before.cursor:
            return cursor
        was = before.row_of(cursor.check)
        if len(was) < 2 or len(self.row_of(cursor.check)) > 1:
            return cursor
        left = next((row for row in self.rows if len(row) > 1 and row[0] in was), None)
        return cursor if left is None else Spot(left[0], cursor.node)

    def node_at(self, x: int) -> str | None:
        """The node whose column is drawn there."""
        n = (x - 1 - self.left) // self.step
        return self.nodes[n] if 0 <= n < len(self.nodes) else None


def fits(cells: Cells, width: int) -> bool:
    """Whether all nodes have a column beside the names of the checks."""
    if not 0 < len(cells.nodes) <= NODES_MOST:
        return False
    least = max(min(width_of(name), CELL_LEAST) for name in cells.nodes) + 1
    return ROOM_LEAST + least * len(cells.nodes) + REFS <= width


def room(cells: Cells, title: int = 0) -> int:
    """Columns that the names and all nodes take, with as many for what a check says."""
    step = max(min(max(map(width_of, cells.nodes), default=0), CELL_MOST), CELL_LEAST) + 1
    return ROOM_LEAST + title + step * len(cells.nodes) + REFS


def page(
    known: Known | None,
    cells: Cells,
    rows: Rows,
    cursor: Spot | None,
    width: int,
    *,
    marks: Collection[str] = (),
    busy: Collection[int] = (),
    every: bool = False,
) -> Turned:
    """Checks down and nodes across. every: those that are the same on all nodes have a row, too.

    known: None while results come in, which then are all that there is.
    """
    if not rows:
        return Turned([line("  ", rows.empty)], 0, (), (), 0, 1, 0, None)
    order = rows.order
    columns = columns_of(cells, rows.columns)
    tells = _found if known is None else _differs
    checks = [c for c in columns if every or rows.columns is not None or tells(cells, order, c)]
    others = [c for c in columns if c not in set(checks)]
    table = _Table(known, cells, order, checks, cursor, width)
    families = dict.fromkeys(cells.families[c] for c in (checks if known is not None else columns))
    lines, stops = [table.head(marks)], []
    for name in families:
        single, rest = ([c for c in some if cells.families[c] == name] for some in (checks, others))
        if known is None and rest:
            lines.append(table.family(name, [c for c in columns if cells.families[c] == name], rest))
            stops.append(tuple(cells.checks[c] for c in rest))
        for n, c in enumerate(single):
            lines.append(table.row(c, busy, first=n == 0 and not (known is None and rest)))
            stops.append((cells.checks[c],))
    if known is not None:
        lines += [Line()] if checks and others else []
        for name in dict.fromkeys(cells.families[c] for c in others):
            lines.append(table.family(name, [c for c in others if cells.families[c] == name]))
    nodes = tuple(cells.nodes[n] for n in order)
    return Turned(lines, 1, tuple(stops), nodes, table.left, table.step, len(others), cursor)


def _found(cells: Cells, order: Sequence[int], check: int) -> bool:
    return any(cells.letter(node, check) in BAD for node in order)


def _differs(cells: Cells, order: Sequence[int], check: int) -> bool:
    """Whether nodes differ, or something was found."""
    letters = {cells.letter(node, check) for node in order}
    return len(letters) > 1 or not letters.isdisjoint(BAD)


class _Table:
    """Where cells stand, and the lines."""

    def __init__(
        self,
        known: Known | None,
        cells: Cells,
        order: Sequence[int],
        checks: Sequence[int],
        cursor: Spot | None,
        width: int,
    ) -> None:
        self.known, self.cells, self.order, self.cursor = known, cells, order, cursor
        names = max(width_of(fmt.plain(cells.nodes[n], 60)) for n in order)
        room = (width - ROOM_LEAST - REFS) // len(order)
        self.step = max(min(names, CELL_MOST, room - 1), CELL_LEAST) + 1
        self.titles = known.titles if known is not None else {}
        title = max((len(self.titles.get(cells.checks[c]) or "") for c in checks), default=0)
        left = min(width - self.step * len(order) - REFS, ROOM_LEAST + min(title, TITLE_MOST))
        self.left = left if left >= ROOM_LEAST + TITLE_LEAST else ROOM_LEAST

    def head(self, marks: Collection[str]) -> Line:
        """The names of the nodes, of long ones the ends."""
        parts: list[str | tuple[str, str]] = [" " * self.left]
        for name in (self.cells.nodes[n] for n in self.order):
            text = ("*" if name in marks else "") + fmt.plain(name, 60)
            text = text if width_of(text) < self.step else text[1 - self.step :]
            here = self.cursor is not None and self.cursor.node == name
            parts += [(fit(text.center(self.step - 1), self.step - 1), "head" if here else "dim"), " "]
        return line(*parts)

    def row(self, c: int, busy: Collection[int], *, first: bool) -> Line:
        """A check. busy: indices of cells that are measured again. first: of its family."""
        cells, check = self.cells, self.cells.checks[c]
        title = fmt.plain(self.titles.get(check) or "", 200) if self.left > ROOM_LEAST else ""
        parts: list[str | tuple[str, str]] = [
            (f" {fit(fmt.plain(cells.families[c], 9) if first else '', 10)}", "label"),
            f"{fit(fmt.plain(check.partition('.')[2] or check, 60), 15)} ",
            (fit(title, self.left - ROOM_LEAST) + " ", "dim"),
        ]
        causes: dict[int, bool] = {}  # by their numbers, whether some node has it rather than waits for it
        for node in self.order:
            letter = "~" if node * len(cells.checks) + c in busy else cells.letter(node, c)
            at = "+cursor" if self.cursor == (check, cells.nodes[node]) else ""
            parts += [self._cell(letter, at), " "]
            known = self.known if letter in BAD or letter == "b" else None
            if known is not None and (item := known.cause_of(check, cells.nodes[node])) is not None:
                causes[item.id] = causes.get(item.id, False) or letter != "b"
        arrow = "->" if causes and not any(causes.values()) else ""
        parts.append((fit(arrow + "".join(f"[{n}]" for n in causes), REFS - 1).rstrip(), "dim"))
        return line(*parts, key=("check", check))

    def family(self, name: str, checks: Sequence[int], stop: Sequence[int] = ()) -> Line:
        """Checks of a family in one line: the worst of them on each node, without colour while some have yet
        to say something. stop: those with which the cursor is on it."""
        label = f" {fit(fmt.plain(name, 9), 10)}"
        count = fit(fmt.number(len(checks), "check"), self.left - width_of(label))
        ids = [self.cells.checks[c] for c in stop]
        parts: list[str | tuple[str, str]] = [
            (label, "label" if self.known is None else "dim"),
            (count, "dim"),
        ]
        for node in self.order:
            letters = bytes(self.cells.row(node)[c] for c in checks)
            letter = worst(letters)
            style = "dim" if b" " in letters and letter in ".-" else CELLS.get(letter, "")
            at = self.cursor is not None and self.cursor.node == self.cells.nodes[node]
            here = at and self.cursor is not None and self.cursor.check in ids
            parts += [(letter.center(self.step - 1), f"{style}+cursor" if here else style), " "]
        return line(*parts, key=("check", ids[0]) if ids else None)

    def _cell(self, letter: str, at: str = "") -> tuple[str, str]:
        return letter.center(self.step - 1), CELLS.get(letter, "") + at
