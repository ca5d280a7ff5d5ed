"""Directed pairs as a table with its reading, one by one, and as a scale; measures as bars."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from netdoctor.errors import InputError
from netdoctor.report import fmt
from netdoctor.report.kept import pair_checks, pairs_of
from netdoctor.report.model import MeasureRecord, PairRecord, Report
from netdoctor.tui.lines import LETTER_OF, Line, fit, line, status_span
from netdoctor.tui.state import RANK

GROUP_ABOVE = 40
# Rows and columns. Of more the worst are drawn, and all others share the last.
GROUPS_MAX = 120
# Units of loss and of time: more of them is worse. Of rates and sizes less is, and of what a plug-in counts.
MORE_IS_WORSE = frozenset(["%", "ns", "us", "ms", "s"])
# Letters of classes; anything else is shown by its first letter.
_CLASSES = {
    "open": ".",
    "ok": ".",
    "in_use": "i",
    "no_route": "u",
    "black_hole": "h",
    "error": "?",
    "small": "s",
}


@dataclass(frozen=True, slots=True)
class Table:
    """The pairs of a check as a square of groups of nodes."""

    check: str
    groups: tuple[tuple[str, ...], ...]  # nodes drawn as one row and one column
    worst: tuple[tuple[PairRecord | None, ...], ...]  # worst[a][b]: the worst pair from group a to group b
    rest: bool = False  # the last group holds all other nodes, whatever their faults
    good: frozenset[tuple[int, int]] = frozenset()  # cells in which some pair is good

    def is_bad(self, a: int, b: int) -> bool:
        """Whether the pairs of a cell are bad; all of them where the nodes have different faults."""
        pair, last = self.worst[a][b], len(self.groups) - 1
        spared = self.rest and last in (a, b) and (a, b) in self.good
        return pair is not None and pair.status in _BAD and not spared


def kinds(report: Report) -> list[str]:
    """What the Pairs screen can show: checks with pairs, then measures with several values."""
    checks = pair_checks(report)
    return checks + [f"measure {name}" for name in curves(report)]


def letter(pair: PairRecord) -> str:
    if pair.class_ in _CLASSES:
        return _CLASSES[pair.class_]
    if pair.status == "pass":
        return "."
    first = pair.class_[:1].lower()
    return first if first.isascii() and first.isalpha() else LETTER_OF.get(pair.status, "?")


_BAD = ("fail", "warn")


@lru_cache(4)
def table(report_id: int, check: str, pairs: tuple[PairRecord, ...], nodes: tuple[str, ...]) -> Table:
    """The pairs of a check as a square. Over GROUP_ABOVE nodes those with equal trouble share a row."""
    found = {name for p in pairs for name in (p.from_, p.to)}
    listed = [n for n in nodes if n in found] + sorted(found - set(nodes))
    groups: list[tuple[str, ...]] = [(name,) for name in listed]
    if len(listed) > GROUP_ABOVE:
        faults: dict[str, set[tuple[str, str, str]]] = {name: set() for name in listed}
        for p in pairs:
            if p.status != "pass":
                faults[p.from_].add(("to", p.to, p.class_))
                faults[p.to].add(("from", p.from_, p.class_))
        by_faults: dict[frozenset[tuple[str, str, str]], list[str]] = {}
        for name in listed:
            by_faults.setdefault(frozenset(faults[name]), []).append(name)
        groups = [tuple(names) for names in by_faults.values()]
    rest = len(groups) > GROUPS_MAX
    if rest:
        worst = set(sorted(groups, key=lambda names: -len(faults[names[0]]))[: GROUPS_MAX - 1])
        others = tuple(name for names in groups if names not in worst for name in names)
        groups = [*(names for names in groups if names in worst), others]
    index = {name: i for i, names in enumerate(groups) for name in names}
    square: list[list[PairRecord | None]] = [[None] * len(groups) for _ in groups]
    good = set()
    for p in pairs:
        a, b = index[p.from_], index[p.to]
        if p.status not in _BAD:
            good.add((a, b))
        known = square[a][b]
        if known is None or rank(p) > rank(known):
            square[a][b] = p
    return Table(check, tuple(groups), tuple(tuple(row) for row in square), rest, frozenset(good))


def alarm(value: float, unit: str | None) -> float:
    """How alarming a value is beside others of its unit: slower links, more loss, clocks further off."""
    return abs(value) if unit in MORE_IS_WORSE else -value


def rank(pair: PairRecord) -> tuple[int, float]:
    """How bad a pair is: its status, then its value."""
    # Of two that say the same, the slower or lossier one is the worse; one without a value, worse still.
    value = math.inf if pair.value is None else alarm(pair.value, pair.unit)
    return RANK.get(LETTER_OF.get(pair.status, "?"), 0), value


def paths(report: Report, check: str) -> list[str]:
    """The names of the paths on which pairs of a check were tried; none where there is no choice."""
    found = dict.fromkeys(one.path for p in pairs_of_check(report, check) for one in p.paths)
    return list(found)


def pairs_on(report: Report, check: str, path: str = "") -> tuple[PairRecord, ...]:
    """The pairs of a check on one path; the worst of each where it names none of theirs."""
    found = pairs_of_check(report, check)
    if path not in paths(report, check):
        return found
    return tuple(
        replace(
            p, status=one.status, class_=one.class_, ports=one.ports, value=one.value, path=path, paths=()
        )
        for p in found
        for one in p.paths or (p,)
        if one.path == path
    )


def pairs_of_check(report: Report, check: str) -> tuple[PairRecord, ...]:
    """The pairs of a check; none where the file of the report is damaged, as `damage` says."""
    try:
        return pairs_of(report, check)
    except InputError:
        return ()


def damage(report: Report, check: str) -> str:
    """Why the pairs of a check cannot be shown, if they cannot."""
    try:
        pairs_of(report, check)
    except InputError as error:
        return fmt.plain(str(error), 300)
    return ""


def table_of(report: Report, check: str, path: str = "") -> Table:
    return table(id(report), check, pairs_on(report, check, path), report.matrix.nodes)


def reading(found: Table, transpose: bool = False) -> list[str]:
    """What the square says in sentences: rows and columns that fail as a whole, else single pairs."""
    size = len(found.groups)
    bad = [[found.is_bad(a, b) for b in range(size)] for a in range(size)]
    tried = [[p is not None for p in row] for row in found.worst]
    out, into = [], []
    for a in range(size - found.rest):
        others = [b for b in range(size) if b != a]
        row = [b for b in others if tried[a][b]]
        column = [b for b in others if tried[b][a]]
        if len(row) > 1 and all(bad[a][b] for b in row):  # one pair is no pattern
            out.append(a)
        if len(column) > 1 and all(bad[b][a] for b in column):
            into.append(a)
    if size > 2 and len(out) == size:
        return ["every direction fails: one cause that all nodes share, or a closed network between them"]
    closed = found.check == "net.ports"  # others are tried where ports are open: something passes there
    across, down = ("column", "row") if transpose else ("row", "column")
    lines = []
    for a in sorted(set(out) | set(into)):
        name = fmt.fold(found.groups[a], 50)
        if a in out and a in into:
            what = "reaches nobody and nobody reaches it" if closed else "is in every pair that is not good"
            lines.append(f"row and column: {name} {what}")
        elif a in into:
            what = f"nobody reaches {name}; look at what {name} lets in"
            lines.append(f"{down} pattern: {what if closed else f'every pair to {name} is not good'}")
        else:
            what = f"{name} reaches nobody; look at what {name} sends, or its routes"
            lines.append(f"{across} pattern: {what if closed else f'every pair from {name} is not good'}")
    explained = set(out), set(into)
    single = [
        (a, b)
        for a in range(size)
        for b in range(size)
        if bad[a][b] and a not in explained[0] and b not in explained[1]
    ]
    lines += [
        f"only {fmt.fold(found.groups[a], 40)} -> {fmt.fold(found.groups[b], 40)}" for a, b in single[:4]
    ]
    if len(single) > 4:
        lines.append(f"and {len(single) - 4} more single pairs")
    if not lines and any(p is not None and p.status in _BAD for row in found.worst for p in row):
        return ["pairs that are not good, in no pattern"]
    return lines or ["no pair fails"]


def way(report: Report, check: str, path: str, width: int) -> list[Line]:
    """Which path of several is shown, and how to see the next."""
    every = paths(report, check)
    if not every:
        return []
    where = f"over {fmt.plain(path, 80)}" if path in every else f"the worst of {len(every)} paths"
    return [line(f" {fit(where, width - 22).rstrip()}", ("   o shows the next path", "dim"))]


@dataclass(frozen=True, slots=True)
class Scale:
    """The range of some values, and of how alarming they are."""

    low: float
    high: float
    calmest: float
    worst: float

    @classmethod
    def of_values(cls, values: Iterable[tuple[float | None, str | None]]) -> "Scale | None":
        """The scale of (value, unit) pairs, None when there is no value."""
        known = [(value, alarm(value, unit)) for value, unit in values if value is not None]
        if not known:
            return None
        plain, alarms = zip(*known, strict=True)
        return cls(min(plain), max(plain), min(alarms), max(alarms))

    def heat(self, value: float, unit: str | None) -> str:
        """The style of a value: five steps, heat0 for the most alarming; all alike are calm."""
        span = self.worst - self.calmest
        if span <= 1e-9 * max(abs(self.worst), abs(self.calmest), 1.0):
            return "heat4"
        return f"heat{min(int(5 * (self.worst - alarm(value, unit)) / span), 4)}"


def class_text(pair: PairRecord) -> str:
    return fmt.plain(pair.class_.replace("_", " "), 20)


def figures(pair: PairRecord, path: str, gap: str) -> str:
    """The value of a pair, its ports and the path, as far as there are any, each behind a gap."""
    parts = []
    if pair.value is not None:
        parts.append(f"{fmt.figure(pair.value)} {fmt.plain(pair.unit or '', 20)}")
    if pair.ports:
        parts.append(f"ports {', '.join(map(str, pair.ports[:12]))}")
    if path:
        parts.append(f"over {fmt.plain(path, 80)}")
    return "".join(gap + part for part in parts)


def detail(report: Report, check: str, group: Sequence[str], width: int, path: str = "") -> list[Line]:
    """Every pair of a row: out and in, what is not good first. path: as of pairs_on()."""
    names = set(group)
    found = [p for p in pairs_on(report, check, path) if p.from_ in names or p.to in names]
    found.sort(key=lambda p: (*(-part for part in rank(p)), p.from_, p.to))
    head = line(f" {fmt.plain(check, 60)}: {fmt.fold(tuple(group), 60)}")
    lines = [head, *way(report, check, path, width), Line()]
    for p in found[:500]:
        over = p.path if p.paths else ""
        lines.append(
            line(
                status_span(p.status, f" {letter(p)} "),
                fit(f"{fmt.plain(p.from_, 60)} -> {fmt.plain(p.to, 60)}", 40),
                fit(f"  {class_text(p)}{figures(p, over, '  ')}", width - 46).rstrip(),
                key=("pair", p.from_, p.to),
            )
        )
    if len(found) > 500:
        lines.append(line((f" and {len(found) - 500} more", "dim")))
    return lines


# Measures

_SIZE = re.compile(r"[.@ /]?(\d{1,15})\s*(B|KiB|MiB|GiB|kB|KB|MB|GB)?$")
_UNITS = {None: 1, "B": 1, "KiB": 2**10, "kB": 10**3, "KB": 10**3, "MiB": 2**20, "MB": 10**6, "GiB": 2**30}
_UNITS["GB"] = 10**9


def size_of(name: str) -> tuple[str, int | None]:
    """(name without the size it ends in, size in bytes), as in ``bw.allreduce.busbw.64MiB``."""
    found = _SIZE.search(name, max(len(name) - 40, 0))
    if found is None or found.start() == 0:
        return name, None
    return name[: found.start()], int(found[1]) * _UNITS[found[2]]


def curves(report: Report) -> dict[str, list[tuple[str, MeasureRecord]]]:
    """Measures worth a plot, by name: (label of the bar, measure). By size where the name ends in one."""
    return _curves(report.measures)


@lru_cache(2)  # asked for with every key that is pressed
def _curves(measures: tuple[MeasureRecord, ...]) -> dict[str, list[tuple[str, MeasureRecord]]]:
    found: dict[str, list[tuple[str, int | None, MeasureRecord]]] = {}
    for measure in measures:
        name, size = size_of(measure.name)
        target = size_of(measure.target)[1] if "@" in measure.target else None
        found.setdefault(name, []).append((measure.target, size if size is not None else target, measure))
    plots: dict[str, list[tuple[str, MeasureRecord]]] = {}
    for name, items in found.items():
        if len(items) < 2:
            continue
        sized = all(size is not None for _, size, _ in items)
        if sized:
            items.sort(key=lambda item: (item[0], item[1] or 0))
        targets = {target for target, _, _ in items}
        plots[name] = [
            (
                f"{_size(name, size)}{f'  {fmt.plain(target, 40)}' if len(targets) > 1 else ''}"
                if sized and size is not None
                else fmt.plain(target, 60),
                measure,
            )
            for target, size, measure in items
        ]
    return plots


def _size(name: str, size: int) -> str:
    """A size as people read it: of a ladder it is a number of nodes."""
    return f"{size} nodes" if name.startswith("bw.ladder.") else _bytes(size)


def _bytes(size: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} B"


def bars(items: Sequence[tuple[str, MeasureRecord]], width: int) -> list[Line]:
    """One bar per value, on a common scale, with the value and its error in figures."""
    if not items:
        return [line(("   nothing was measured", "dim"))]
    most = max(abs(m.value) for _, m in items) or 1.0
    scale = Scale.of_values((m.value, m.unit) for _, m in items)
    left = min(max(len(label) for label, _ in items) + 2, 30)
    room = max(width - left - 28, 8)
    lines = []
    for label, m in items[:1000]:
        full = round(room * abs(m.value) / most)
        error = f" +/- {fmt.figure(m.error)}" if m.error is not None else ""
        lines.append(
            line(
                f"  {fit(label, left)}",
                ("#" * full, scale.heat(m.value, m.unit) if scale else ""),
                " " * (room - full),
                f"  {m.value:.4g}{error} {fmt.plain(m.unit, 12)}",
                key=("measure", m.name, m.target),
            )
        )
    return lines
