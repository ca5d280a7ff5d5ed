"""The rows of the matrix: which nodes, in which order, alike ones together; and which cell is next."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from netdoctor.tui import query
from netdoctor.tui.state import (
    BAD,
    RANK,
    Cells,
    Group,
    Known,
    State,
    arranged,
    columns_of,
    grouped,
    letters_of,
    worst,
)
from netdoctor.tui.where import Spot, Where


@dataclass(frozen=True)
class Rows:
    """Rows from top to bottom: of one node each, in this order, or of nodes that say the same."""

    order: Sequence[int] = ()  # indices of nodes
    groups: Sequence[Group] | None = None
    columns: tuple[int, ...] | None = None  # indices of checks, None for all of them
    empty: str = ""  # the text where there are no rows

    def __len__(self) -> int:
        return len(self.order) if self.groups is None else len(self.groups)

    @cached_property
    def line_of(self) -> dict[int, int]:
        """The row in which a node stands, without those that are filtered away."""
        if self.groups is None:
            return {node: line for line, node in enumerate(self.order)}
        return {node: line for line, group in enumerate(self.groups) for node in group.members}

    def members(self, line: int) -> tuple[int, ...]:
        return (self.order[line],) if self.groups is None else self.groups[line].members


def rows_of(state: State, known: Known | None, where: Where) -> Rows:
    """The rows that filter, faults, order and zoom ask for."""
    cells = state.cells
    chosen = query.choose(where.filter, cells, known)
    rows: Sequence[int] = range(len(cells.nodes)) if chosen.rows is None else chosen.rows
    if where.faults:
        rows = [row for row in rows if worst(letters_of(cells, row, chosen.columns)) in BAD]
    sort = sort_of(state, where)
    if sort == "check" and where.by is not None:
        order = arranged(cells, rows, sort=sort, by=cells.checks.index(where.by), reverse=where.reversed)
    elif where.zoom == "overview" or state.live:
        order = arranged(cells, rows, sort=sort)
    else:
        order = arranged(cells, rows, chosen.columns, sort=sort, reverse=where.reversed)
    empty = ""
    if where.filter:
        empty = f"0 of {len(cells.nodes)} nodes; Esc clears the filter"
    elif where.faults:
        empty = f"0 of {len(cells.nodes)} nodes have trouble; f shows all"
    groups = grouped(cells, order, chosen.columns) if where.zoom == "groups" else None
    return Rows(order, groups, chosen.columns, empty)


def sort_of(state: State, where: Where) -> str:
    """One of SORTS, or ``check``. Rows keep their places in the overview, and while letters come in."""
    if state.live:
        return "listed"
    if where.by in state.cells.checks:
        return "check"
    return "listed" if where.zoom == "overview" else where.sort


def worst_check(cells: Cells, node: int, columns: Sequence[int] | None) -> int | None:
    """The first of these checks that says the worst of a node, None of no checks."""
    letters = cells.row(node)
    return max(columns_of(cells, columns), key=lambda c: RANK.get(chr(letters[c]), 0), default=None)


def landed(cursor: Spot | None, cells: Cells, rows: Rows) -> Spot | None:
    """Where the cursor is in these rows: on its node, else on the first; at first on the worst cell there."""
    if not rows:
        return cursor
    on_node = cursor is not None and cursor.node in cells.nodes
    if cursor is not None and on_node and cells.nodes.index(cursor.node) in rows.line_of:
        return cursor
    node = rows.members(0)[0]
    if cursor is not None:
        return Spot(cursor.check, cells.nodes[node])
    any_bad = any(chr(letter) in BAD for letter in set(cells.cells))
    check = worst_check(cells, node, None) if any_bad else next(iter(columns_of(cells, rows.columns)), None)
    return Spot(None if check is None else cells.checks[check], cells.nodes[node])


def next_trouble(rows: Rows, cells: Cells, cursor: Spot, by: int, *, any_row: bool) -> Spot | None:
    """The next row (by = 1, or the one before) with trouble, on its worst check; None when there is none.

    any_row: every row will do, as those do that a filter has chosen.
    """
    known = cursor.node in cells.nodes
    here = rows.line_of.get(cells.nodes.index(cursor.node), 0) if known else 0
    for step in range(1, len(rows) + 1):
        node = rows.members((here + by * step) % len(rows))[0]
        check = worst_check(cells, node, rows.columns)
        bad = check is not None and cells.letter(node, check) in BAD
        if bad and check is not None:
            return Spot(cells.checks[check], cells.nodes[node])
        if any_row:
            return Spot(cursor.check, cells.nodes[node])
    return None
