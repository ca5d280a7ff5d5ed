"""Where the columns of the matrix stand: one per check if they fit, closer if not, or one per family."""

from collections.abc import Sequence
from dataclasses import dataclass

from netdoctor.report import words
from netdoctor.tui.state import Cells

LABEL = 26
GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """One drawn column at `x`. checks: indices into Cells.checks, several for a family."""

    x: int
    checks: tuple[int, ...]
    family: str


@dataclass(frozen=True, slots=True)
class Layout:
    """columns: left to right; heads: the lines above them; width of the whole; label: that of the names."""

    columns: tuple[Column, ...]
    heads: tuple[str, ...]
    width: int
    label: int
    families: bool = False


def plan(
    cells: Cells, columns: Sequence[int] | None, width: int, *, wide: bool = False, families: bool = False
) -> Layout:
    """The roomiest layout that fits in `width`; all checks whatever their width with `wide`."""
    chosen = list(range(len(cells.checks)) if columns is None else columns)
    label = min(LABEL, max(12, width // 3))
    if not families or wide:
        for step in (2, 1):
            found = _checks(cells, chosen, label, step)
            if found.width <= width or (wide and step == 1):
                return found
    return _families(cells, chosen, label)


def _by_family(cells: Cells, chosen: Sequence[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for column in chosen:
        found.setdefault(cells.families[column], []).append(column)
    return found


def _checks(cells: Cells, chosen: Sequence[int], label: int, step: int) -> Layout:
    x = label + 8
    columns: list[Column] = []
    top, first, second = " " * x, " " * x, " " * x
    gap = GAP if step == 2 else 1
    for family, members in _by_family(cells, chosen).items():
        name = words.plain(family, 20)
        room = max(len(members) * step - (step - 1), min(len(name), 4))
        top += name[:room].ljust(room, "-") + " " * gap
        for n, (member, code) in enumerate(zip(members, codes(cells, members), strict=True)):
            columns.append(Column(x + n * step, (member,), family))
            pad = " " * (step - 1) if n < len(members) - 1 else ""
            first += code[0] + pad
            second += code[1] + pad
        x += room + gap
        first, second = first.ljust(x), second.ljust(x)
    return Layout(tuple(columns), (top, first, second), x, label)


def codes(cells: Cells, members: Sequence[int]) -> list[str]:
    """Two letters for each check of a family, different within it as long as there are letters for that."""
    used: set[str] = set()
    found = []
    for member in members:
        name = words.plain(cells.checks[member].partition(".")[2] or cells.checks[member], 60)
        letters = [c for c in name.lower() if c.isascii() and c.isalnum()] or ["?"]
        parts = [p for p in name.lower().replace(".", "-").split("-") if p[:1].isascii() and p[:1].isalnum()]
        wanted = [parts[0][0] + parts[1][0]] if len(parts) > 1 else []
        wanted += [letters[0] + other for other in letters[1:]]
        wanted += [letters[0] + digit for digit in "123456789"] + [letters[0] + " "]
        code = next((w for w in wanted if w not in used), letters[0] + letters[-1])
        used.add(code)
        found.append(code)
    return found


def _families(cells: Cells, chosen: Sequence[int], label: int) -> Layout:
    x = label + 8
    columns, top = [], " " * x
    for family, members in _by_family(cells, chosen).items():
        name = words.plain(family, 8) or "?"
        columns.append(Column(x, tuple(members), family))
        top += name + " " * GAP
        x += len(name) + GAP
    return Layout(tuple(columns), ("", top, ""), x, label, families=True)
