"""The matrix turned: a row per check and a column per node, where nodes are few enough to be named.

Checks that differ between nodes, or that found something, have a row each; of the others a line per family
says that they are alike. Lines for a given width; the cursor is a check and a node.
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
    checks: tuple[str, ...]  # rows from top to bottom
    nodes: tuple[str, ...]  # columns from left to right
    left: int  # where the first cell begins
    step: int
    folded: int  # how many checks have no row of their own

    def near(self, cursor: Spot, way: str, page: int) -> Spot:
        """The next cell that way, a name in MOVES; the last one where there is none."""
        row = self.checks.index(cursor.check) if cursor.check in self.checks else 0
        column = self.nodes.index(cursor.node) if cursor.node in self.nodes else 0
        every = len(self.checks)
        down = {"up": -1, "down": 1, "top": -every, "bottom": every, "page-up": -page, "page-down": page}
        row = min(max(row + down.get(way, 0), 0), every - 1)
        column = min(max(column + {"left": -1, "right": 1}.get(way, 0), 0), len(self.nodes) - 1)
        return Spot(self.checks[row], self.nodes[column])

    def node_at(self, x: int) -> str | None:
        """The node whose column is drawn there."""
        n = (x - 1 - self.left) // self.step
        return self.nodes[n] if 0 <= n < len(self.nodes) else None


def fits(cells: Cells, width: int) -> bool:
    """Whether all nodes have a column beside the names of the checks."""
    least = max((min(width_of(name), CELL_LEAST) for name in cells.nodes), default=0) + 1
    return 0 < len(cells.nodes) <= NODES_MOST and ROOM_LEAST + least * len(cells.nodes) + REFS <= width


def room(cells: Cells, title: int = 0) -> int:
    """Columns that the names and all nodes take, with as many for what a check says."""
    step = max(min(max(map(width_of, cells.nodes), default=0), CELL_MOST), CELL_LEAST) + 1
    return ROOM_LEAST + title + step * len(cells.nodes) + REFS


def page(
    known: Known,
    cells: Cells,
    rows: Rows,
    cursor: Spot | None,
    width: int,
    *,
    marks: Collection[str] = (),
    busy: Collection[int] = (),
    every: bool = False,
) -> Turned:
    """Checks down and nodes across. every: those that are the same on all nodes have a row, too."""
    if not rows:
        return Turned([line("  ", rows.empty)], 0, (), (), 0, 1, 0)
    order = rows.order
    columns = columns_of(cells, rows.columns)
    checks = [c for c in columns if every or rows.columns is not None or _differs(cells, order, c)]
    others = [c for c in columns if c not in set(checks)]
    table = _Table(known, cells, order, checks, cursor, width)
    lines = [table.head(marks)]
    family = ""
    for c in checks:
        lines.append(table.row(c, busy, first=cells.families[c] != family))
        family = cells.families[c]
    lines += [Line()] if checks and others else []
    for name in dict.fromkeys(cells.families[c] for c in others):
        lines.append(table.family(name, [c for c in others if cells.families[c] == name]))
    nodes = tuple(cells.nodes[n] for n in order)
    return Turned(
        lines, 1, tuple(cells.checks[c] for c in checks), nodes, table.left, table.step, len(others)
    )


def _differs(cells: Cells, order: Sequence[int], check: int) -> bool:
    """Whether nodes differ, or something was found."""
    letters = {cells.letter(node, check) for node in order}
    return len(letters) > 1 or not letters.isdisjoint(BAD)


class _Table:
    """Where cells stand, and the lines."""

    def __init__(
        self,
        known: Known,
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
        title = max((len(known.titles.get(cells.checks[c]) or "") for c in checks), default=0)
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
        title = fmt.plain(self.known.titles.get(check) or "", 200) if self.left > ROOM_LEAST else ""
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
            item = self.known.cause_of(check, cells.nodes[node]) if letter in BAD or letter == "b" else None
            if item is not None:
                causes[item.id] = causes.get(item.id, False) or letter != "b"
        arrow = "->" if causes and not any(causes.values()) else ""
        parts.append((fit(arrow + "".join(f"[{n}]" for n in causes), REFS - 1).rstrip(), "dim"))
        return line(*parts, key=("check", check))

    def family(self, name: str, checks: Sequence[int]) -> Line:
        """Checks of a family that say the same of every node, in one line."""
        label = f" {fit(fmt.plain(name, 9), 10)}{fmt.number(len(checks), 'check')}"
        parts: list[str | tuple[str, str]] = [(fit(label, self.left), "dim")]
        for node in self.order:
            parts += [self._cell(worst(bytes(self.cells.row(node)[c] for c in checks))), " "]
        return line(*parts)

    def _cell(self, letter: str, at: str = "") -> tuple[str, str]:
        return letter.center(self.step - 1), CELLS.get(letter, "") + at
