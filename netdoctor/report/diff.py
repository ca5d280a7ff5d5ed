"""What changed between two reports: worse, better, moved, and who came and went. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from netdoctor.report.model import Cause, Report
from netdoctor.report.words import LETTERS

# Badness in which "worse" and "better" are meant; skip and blocked say nothing about the node.
_BAD = {"pass": 0, "warn": 1, "unknown": 2, "fail": 3}
MOVED_BY = 0.05


@dataclass(frozen=True, slots=True)
class Change:
    """Nodes on which a check has another status now. summary: what is said now, or was said before."""

    check: str
    before: str
    now: str
    nodes: tuple[str, ...]
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """A measure, or the value of a pair, that differs by more than MOVED_BY."""

    name: str
    target: str
    before: float
    now: float
    unit: str

    @property
    def ratio(self) -> float:
        return (self.now - self.before) / abs(self.before) if self.before else 0.0


@dataclass(frozen=True, slots=True)
class FactChange:
    fact: str
    before: str
    now: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """new, healed, same: causes by their fingerprints, those of the newer report but for `healed`."""

    new: tuple[Cause, ...] = ()
    healed: tuple[Cause, ...] = ()
    same: tuple[Cause, ...] = ()
    worse: tuple[Change, ...] = ()
    better: tuple[Change, ...] = ()
    other: tuple[Change, ...] = ()
    moved: tuple[Moved, ...] = ()
    facts: tuple[FactChange, ...] = ()
    nodes_added: tuple[str, ...] = ()
    nodes_removed: tuple[str, ...] = ()
    checks_added: tuple[str, ...] = ()
    checks_removed: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return not any(getattr(self, name) for name in self.__slots__ if name != "same")


def diff(before: Report, now: Report) -> Diff:
    """The changes from `before` to `now`. Nodes and checks that only one of them has are not compared."""
    old = {cause.fingerprint for cause in before.causes}
    current = {cause.fingerprint for cause in now.causes}
    worse, better, other = _cells(before, now)
    return Diff(
        new=tuple(c for c in now.causes if c.fingerprint not in old),
        healed=tuple(c for c in before.causes if c.fingerprint not in current),
        same=tuple(c for c in now.causes if c.fingerprint in old),
        worse=worse,
        better=better,
        other=other,
        moved=_moved(before, now),
        facts=_facts(before, now),
        nodes_added=_only(now.matrix.nodes, before.matrix.nodes),
        nodes_removed=_only(before.matrix.nodes, now.matrix.nodes),
        checks_added=_only(now.matrix.checks, before.matrix.checks),
        checks_removed=_only(before.matrix.checks, now.matrix.checks),
    )


def _only(these: tuple[str, ...], those: tuple[str, ...]) -> tuple[str, ...]:
    other = set(those)
    return tuple(name for name in these if name not in other)


def _cells(before: Report, now: Report) -> tuple[tuple[Change, ...], tuple[Change, ...], tuple[Change, ...]]:
    rows = dict(zip(before.matrix.checks, before.matrix.cells, strict=True))
    places = {node: i for i, node in enumerate(before.matrix.nodes)}
    shared = [(j, places[node], node) for j, node in enumerate(now.matrix.nodes) if node in places]
    said = {(r.check, r.target): r.summary for r in now.results}
    said_before = {(r.check, r.target): r.summary for r in before.results}
    groups: dict[tuple[str, str, str], list[str]] = {}
    for check, cells in zip(now.matrix.checks, now.matrix.cells, strict=True):
        if check not in rows or (cells == rows[check] and now.matrix.nodes == before.matrix.nodes):
            continue
        for j, i, node in shared:
            if cells[j] != rows[check][i]:
                groups.setdefault((check, LETTERS[rows[check][i]], LETTERS[cells[j]]), []).append(node)
    worse: list[Change] = []
    better: list[Change] = []
    other: list[Change] = []
    for (check, was, is_), nodes in groups.items():
        text = said.get((check, nodes[0])) if _BAD.get(is_, 0) else said_before.get((check, nodes[0]))
        change = Change(check, was, is_, tuple(nodes), text or "")
        if was in _BAD and is_ in _BAD:
            (worse if _BAD[is_] > _BAD[was] else better).append(change)
        else:
            other.append(change)
    return tuple(worse), tuple(better), tuple(other)


def _values(report: Report) -> dict[tuple[str, str], tuple[float, str, float]]:
    """Value, unit and error of every measure and rated pair."""
    found = {(m.name, m.target): (m.value, m.unit, m.error or 0.0) for m in report.measures}
    for p in report.pairs:
        if p.value is not None:
            found[p.check, f"{p.from_} -> {p.to}"] = (p.value, p.unit or "", 0.0)
    return found


def _moved(before: Report, now: Report) -> tuple[Moved, ...]:
    old = _values(before)
    moved = []
    for (name, target), (value, unit, error) in _values(now).items():
        if (name, target) not in old:
            continue
        was, old_unit, old_error = old[name, target]
        band = max(abs(was) * MOVED_BY, error + old_error)
        if unit == old_unit and abs(value - was) > band:
            moved.append(Moved(name, target, was, value, unit))
    return tuple(sorted(moved, key=lambda m: -abs(m.ratio)))


def _facts(before: Report, now: Report) -> tuple[FactChange, ...]:
    old: dict[str, Mapping[str, Any]] = {target.id: target.facts for target in before.targets}
    groups: dict[tuple[str, str, str], list[str]] = {}
    for target in now.targets:
        for name, value in target.facts.items():
            was = old.get(target.id, {}).get(name)
            if was is not None and was != value:
                groups.setdefault((name, str(was), str(value)), []).append(target.id)
    return tuple(FactChange(name, was, is_, tuple(nodes)) for (name, was, is_), nodes in groups.items())
