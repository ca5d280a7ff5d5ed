"""Where the columns of the matrix stand: one per check if they fit, closer if not, or one per family."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from netdoctor.report import fmt
from netdoctor.tui.state import Cells

LEAST = (26, 14)  # what names get at least, where they are that long; the second where all else fails
GAP = 2
COUNT = 6  # of a group's nodes, behind their names


@dataclass(frozen=True, slots=True)
class Column:
    """One drawn column."""

    x: int
    checks: tuple[int, ...]  # indices into Cells.checks, several for a family
    family: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything in the matrix stands."""

    columns: tuple[Column, ...]  # left to right
    heads: tuple[str, ...]  # the lines above the columns
    width: int  # of all of it
    label: int  # width of the names, with what stands before them
    families: bool = False
    step: int = 1  # columns that a cell takes


def plan(
    cells: Cells,
    columns: Sequence[int] | None,
    width: int,
    *,
    names: int,
    counted: bool = False,
    wide: bool = False,
    families: bool = False,
) -> Layout:
    """The roomiest layout that fits in `width`; all checks whatever their width with `wide`.

    names: the width of the longest name. counted: whether a number stands behind each.
    """
    chosen = list(range(len(cells.checks)) if columns is None else columns)
    after = (COUNT if counted else 0) + 2
    ways: list[Callable[[int], Layout]] = []
    if not families or wide:
        ways += [lambda x: _checks(cells, chosen, x, 2), lambda x: _checks(cells, chosen, x, 1)]
    if not wide:
        ways += [lambda x: _families(cells, chosen, x, GAP), lambda x: _families(cells, chosen, x, 1)]
    # Names come whole if they can, then as far as there is room.
    for least in (names, *(min(names, few) for few in LEAST)):
        for way in ways:
            found = way(0)
            label = min(names + 2, width - found.width - after)
            if label >= least + 2:
                return replace(way(label + after), label=label)
    label = min(names + 2, LEAST[0])
    return replace(ways[-1](label + after), label=label)


def _by_family(cells: Cells, chosen: Sequence[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for column in chosen:
        found.setdefault(cells.families[column], []).append(column)
    return found


def _checks(cells: Cells, chosen: Sequence[int], x: int, step: int) -> Layout:
    columns: list[Column] = []
    top, first, second = " " * x, " " * x, " " * x
    gap = GAP if step == 2 else 1
    for family, members in _by_family(cells, chosen).items():
        name = fmt.plain(family, 20)
        room = max(len(members) * step - (step - 1), min(len(name), 4))
        top += name[:room].ljust(room, "-") + " " * gap
        for n, (member, code) in enumerate(zip(members, codes(cells, members), strict=True)):
            columns.append(Column(x + n * step, (member,), family))
            pad = " " * (step - 1) if n < len(members) - 1 else ""
            first += code[0] + pad
            second += code[1] + pad
        x += room + gap
        first, second = first.ljust(x), second.ljust(x)
    return Layout(tuple(columns), (top, first, second), x - gap, 0, step=step)


def codes(cells: Cells, members: Sequence[int]) -> list[str]:
    """Two letters for each check of a family, different within it as long as there are letters for that."""
    used: set[str] = set()
    found = []
    for member in members:
        name = fmt.plain(cells.checks[member].partition(".")[2] or cells.checks[member], 60)
        letters = [c for c in name.lower() if c.isascii() and c.isalnum()] or ["?"]
        parts = [p for p in name.lower().replace(".", "-").split("-") if p[:1].isascii() and p[:1].isalnum()]
        candidates = [parts[0][0] + parts[1][0]] if len(parts) > 1 else []
        candidates += [letters[0] + other for other in letters[1:]]
        candidates += [letters[0] + digit for digit in "123456789"] + [letters[0] + " "]
        code = next((w for w in candidates if w not in used), letters[0] + letters[-1])
        used.add(code)
        found.append(code)
    return found


def _families(cells: Cells, chosen: Sequence[int], x: int, gap: int) -> Layout:
    columns, top = [], " " * x
    for family, members in _by_family(cells, chosen).items():
        name = fmt.plain(family, 8) or "?"
        columns.append(Column(x, tuple(members), family))
        top += name + " " * gap
        x += len(name) + gap
    return Layout(tuple(columns), ("", top, ""), x - gap, 0, families=True)
