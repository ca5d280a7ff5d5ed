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
TITLE_LEAST, TITLE = 24, 36  # for what a check says, or nothing


@dataclass(frozen=True, slots=True)
class Turned:
    """The screen, and where on it the cursor can be."""

    lines: list[Line]
    heads: int  # of the lines, those that stay in sight
    checks: tuple[str, ...]  # rows from top to bottom
    nodes: tuple[str, ...]  # columns from left to right
    left: int  # where the first cell begins
    step: int
    alike: int  # how many checks have no row of their own

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


def room(cells: Cells) -> int:
    """Columns that the names and all nodes take, without titles of checks."""
    step = min(max((width_of(name) for name in cells.nodes), default=0), CELL_MOST) + 1
    return ROOM_LEAST + TITLE + step * len(cells.nodes) + REFS + 4


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
    """Checks down and nodes across. every: those that are alike on all nodes have a row, too."""
    if not rows:
        return Turned([line("  ", rows.empty)], 0, (), (), 0, 1, 0)
    order = sorted(rows.order)
    nodes = tuple(cells.nodes[n] for n in order)
    columns = columns_of(cells, rows.columns)
    told = [c for c in columns if every or rows.columns is not None or _tells(cells, order, c)]
    names = [fmt.plain(name, 60) for name in nodes]
    longest = max(map(width_of, names), default=0)
    step = min(max(longest, CELL_LEAST), CELL_MOST) + 1
    while step > CELL_LEAST + 1 and ROOM_LEAST + step * len(nodes) + REFS > width:
        step -= 1
    longest = max((len(known.titles.get(cells.checks[c]) or "") for c in told), default=0)
    left = min(width - step * len(nodes) - REFS, ROOM_LEAST + min(longest, TITLE + 20))
    left = left if left >= ROOM_LEAST + TITLE_LEAST else ROOM_LEAST

    def cell(node: int, letter: str, check: int | None) -> tuple[str, str]:
        at = (
            cursor is not None
            and check is not None
            and cursor == Spot(cells.checks[check], cells.nodes[node])
        )
        text = (letter if letter != "." or check is None else ".").center(step - 1)
        return text, CELLS.get(letter, "") + ("+cursor" if at else "")

    head: list[str | tuple[str, str]] = [" " * left]
    for name, text in zip(nodes, names, strict=True):
        shown = f"*{text}" if name in marks else text
        shown = shown if width_of(shown) < step else shown[-(step - 1) :]
        head += [
            (fit(shown.center(step - 1), step - 1), "head" if cursor and cursor.node == name else "dim"),
            " ",
        ]
    lines = [line(*head)]
    family = ""
    for c in told:
        check = cells.checks[c]
        first = cells.families[c] if cells.families[c] != family else ""
        family = cells.families[c]
        name = check.partition(".")[2] or check
        title = fmt.plain(known.titles.get(check) or "", 200)
        label = f" {fit(fmt.plain(first, 9), 10)}"
        parts: list[str | tuple[str, str]] = [(label, "label"), f"{fit(fmt.plain(name, 60), 15)} "]
        parts.append((fit(title if left > ROOM_LEAST else "", left - 28) + " ", "dim"))
        causes: dict[int, bool] = {}  # by their numbers, whether some node has it rather than waits for it
        for node in order:
            letter = "~" if node * len(cells.checks) + c in busy else cells.letter(node, c)
            parts += [cell(node, letter, c), " "]
            item = known.cause_of(check, cells.nodes[node]) if letter in BAD or letter == "b" else None
            if item is not None:
                causes[item.id] = causes.get(item.id, False) or letter != "b"
        waits = "->" if causes and not any(causes.values()) else ""
        parts.append((fit(waits + "".join(f"[{n}]" for n in causes), REFS - 1).rstrip(), "dim"))
        lines.append(line(*parts, key=("check", check)))
    alike = [c for c in columns if c not in set(told)]
    if alike:
        lines += [Line()] if told else []
        for name in dict.fromkeys(cells.families[c] for c in alike):
            mine = [c for c in alike if cells.families[c] == name]
            label = f" {fit(fmt.plain(name, 9), 10)}{fmt.number(len(mine), 'check')}"
            parts = [(fit(label, left), "dim")]
            for node in order:
                parts += [cell(node, worst(bytes(cells.row(node)[c] for c in mine)), None), " "]
            lines.append(line(*parts))
    checks = tuple(cells.checks[c] for c in told)
    return Turned(lines, 1, checks, nodes, left, step, len(alike))


def _tells(cells: Cells, order: Sequence[int], check: int) -> bool:
    """Whether nodes differ, or something was found."""
    letters = {cells.letter(node, check) for node in order}
    return len(letters) > 1 or not letters.isdisjoint(BAD)
