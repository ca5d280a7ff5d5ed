"""What changed between two reports: worse, better, moved, and who came and went. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdoctor.report import bands
from netdoctor.report.model import Cause, Report, TrialRecord
from netdoctor.report.summary import LETTERS

# Badness in which "worse" and "better" are meant; skip and blocked say nothing about the node.
_BAD = {"pass": 0, "warn": 1, "unknown": 2, "fail": 3}
HALVED = 0.5
_STATES = {"ready": 0, "undecided": 1, "not_ready": 2}


@dataclass(frozen=True, slots=True)
class Change:
    """Nodes on which a check has another status now."""

    check: str
    before: str
    now: str
    nodes: tuple[str, ...]
    summary: str = ""  # what is said now, or was said before


@dataclass(frozen=True, slots=True)
class Moved:
    """A measure, or the value of a pair, that left its noise band."""

    name: str
    target: str
    before: float  # the middle of the band
    now: float
    unit: str
    band: float = 0.0  # half of it
    runs: int = 1  # how many it was learnt from

    @property
    def ratio(self) -> float:
        return (self.now - self.before) / abs(self.before) if self.before else 0.0

    @property
    def is_worse(self) -> bool:
        """Whether bandwidth fell or loss grew.

        Against one earlier run bandwidth has to fall by half: what a busy machine had then, or has now, is in
        neither report. Times prove nothing at all for the same reason.
        """
        if self.unit in bands.RATES:
            return self.now < self.before and (self.runs > 1 or self.ratio <= -HALVED)
        return self.unit == "%" and self.now > self.before


@dataclass(frozen=True, slots=True)
class FactChange:
    fact: str
    before: str
    now: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrialChange:
    """What `netdoctor try` said of the job, then and now. before: None where it was not tried."""

    before: TrialRecord | None
    now: TrialRecord

    @property
    def is_same_job(self) -> bool:
        """Whether both tried one command, and on as many nodes."""
        before, now = self.before, self.now
        return before is not None and (before.command, before.nodes) == (now.command, now.nodes)

    @property
    def ratio(self) -> float:
        """How much faster the steps of as many ranks are now: -0.5 for half, 0 where that cannot be said."""
        before, now = self.before, self.now
        if before is None or not self.is_same_job or before.world_size != now.world_size:
            return 0.0
        return now.steps_per_s / before.steps_per_s - 1.0 if before.steps_per_s and now.steps_per_s else 0.0

    @property
    def trend(self) -> str:
        """``worse``: it started and does not any more, is half as fast as one earlier run, or its ladder
        breaks on fewer nodes. ``better``: the reverse, at any rate. "" for neither: what was not decided
        proves nothing."""
        if self.before is None or not self.is_same_job:
            return ""
        states = (self.before.state, self.now.state)
        if states != ("started", "started"):
            return {("started", "failed"): "worse", ("failed", "started"): "better"}.get(states, "")
        was, is_ = _breaks_at(self.before), _breaks_at(self.now)
        if is_ < was or self.ratio <= -HALVED:
            return "worse"
        return "better" if is_ > was or self.ratio > 0 else ""


def _breaks_at(trial: TrialRecord) -> float:
    """From how many nodes on a job is slow or broken; infinity where its ladder holds, or was not climbed."""
    nodes = trial.ladder.from_nodes if trial.ladder is not None else None
    return math.inf if nodes is None else nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """What changed. Causes go by their fingerprints."""

    new: tuple[Cause, ...] = ()
    healed: tuple[
        Cause, ...
    ] = ()  # of the older report, where the checks pass now on all nodes that are left
    same: tuple[Cause, ...] = ()
    # Of the older one, neither healed nor there: not examined, or in trouble for another reason.
    open: tuple[Cause, ...] = ()
    verdict_worse: bool = False  # the verdict is further from READY
    worse: tuple[Change, ...] = ()
    better: tuple[Change, ...] = ()
    other: tuple[Change, ...] = ()
    moved: tuple[Moved, ...] = ()
    facts: tuple[FactChange, ...] = ()
    nodes_added: tuple[str, ...] = ()
    nodes_removed: tuple[str, ...] = ()
    checks_added: tuple[str, ...] = ()
    checks_removed: tuple[str, ...] = ()
    trial: TrialChange | None = None  # None where it came to the same, and where neither tried a job

    @property
    def empty(self) -> bool:
        return not any(getattr(self, name) for name in self.__slots__ if name != "same")

    @property
    def is_worse(self) -> bool:
        """Whether anything is worse than it was: what `netdoctor diff` ends with 1 for."""
        return bool(self.new or self.worse or self.verdict_worse or any(m.is_worse for m in self.moved)) or (
            self.trial is not None and self.trial.trend == "worse"
        )


def diff(before: Report, now: Report, further: Sequence[Report] = ()) -> Diff:
    """The changes from `before` to `now`. Nodes and checks that only one of them has are not compared.

    further: runs older than `before` of the same baseline. What any of them knew is not new, and together
    they say how much values scatter.
    """
    # What was accepted then is not new when its time is over, and what is accepted now is not healed.
    old = before.fingerprints.union(*(run.fingerprints for run in further))
    current = now.fingerprints
    worse, better, other = _cells(before, now)
    absent = [c for c in before.causes if c.fingerprint not in current]
    healed = tuple(c for c in absent if is_healed(c, now))
    states = [_STATES.get(report.verdict.state) for report in (before, now)]
    return Diff(
        new=tuple(c for c in now.causes if c.fingerprint not in old),
        healed=healed,
        same=tuple(c for c in now.causes if c.fingerprint in old),
        open=tuple(c for c in absent if c not in healed),
        verdict_worse=None not in states and states[0] < states[1],  # type: ignore[operator]  # no None in it
        worse=worse,
        better=better,
        other=other,
        moved=_moved(before, now, further),
        facts=_facts(before, now),
        nodes_added=_only(now.matrix.nodes, before.matrix.nodes),
        nodes_removed=_only(before.matrix.nodes, now.matrix.nodes),
        checks_added=_only(now.matrix.checks, before.matrix.checks),
        checks_removed=_only(before.matrix.checks, now.matrix.checks),
        trial=_trial(before.trial, now.trial),
    )


def _trial(before: TrialRecord | None, now: TrialRecord | None) -> TrialChange | None:
    """How the job fares now. A report whose job was not tried says nothing of it."""
    if now is None or before == now:
        return None
    found = TrialChange(before, now)
    if before is None or not found.is_same_job:
        return found
    sides = [(t.state, t.steps_per_s is None, _breaks_at(t)) for t in (before, now)]
    return None if sides[0] == sides[1] and abs(found.ratio) <= bands.DEFAULTS["GB/s"][0] else found


def _only(these: tuple[str, ...], those: tuple[str, ...]) -> tuple[str, ...]:
    other = set(those)
    return tuple(name for name in these if name not in other)


def _cells(before: Report, now: Report) -> tuple[tuple[Change, ...], tuple[Change, ...], tuple[Change, ...]]:
    rows = dict(zip(before.matrix.checks, before.matrix.cells, strict=True))
    columns = {node: i for i, node in enumerate(before.matrix.nodes)}
    shared = [(j, columns[node], node) for j, node in enumerate(now.matrix.nodes) if node in columns]
    summaries = {(r.check, r.target): r.summary for r in now.results}
    summaries_before = {(r.check, r.target): r.summary for r in before.results}
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
        text = (
            summaries.get((check, nodes[0])) if _BAD.get(is_, 0) else summaries_before.get((check, nodes[0]))
        )
        change = Change(check, was, is_, tuple(nodes), text or "")
        if was in _BAD and is_ in _BAD:
            (worse if _BAD[is_] > _BAD[was] else better).append(change)
        else:
            other.append(change)
    return tuple(worse), tuple(better), tuple(other)


def is_healed(cause: Cause, now: Report) -> bool:
    """Whether a cause that `now` does not have is put right: its checks ran, and pass where it was.

    Those behind the leading one may be skipped: some look only where there is something to explain, as at a
    firewall. A cause whose nodes have all left is not put right.
    """
    rows = dict(zip(now.matrix.checks, now.matrix.cells, strict=True))
    columns = [n for n, node in enumerate(now.matrix.nodes) if node in cause.node_list or not cause.node_list]
    return bool(columns and cause.checks) and all(
        check in rows and all(rows[check][n] in (".-" if number else ".") for n in columns)
        for number, check in enumerate(cause.checks)
    )


def _moved(before: Report, now: Report, further: Sequence[Report]) -> tuple[Moved, ...]:
    old = bands.values(before)
    learnt = bands.learn([before, *further]) if further else {}
    moved = []
    for key, one in bands.values(now).items():
        was = old.get(key)
        band = learnt.get(key) or (bands.Band(was.value, bands.default(was)) if was is not None else None)
        if band is None or was is None or was.unit != one.unit:
            continue
        half = max(band.half, one.error + was.error)
        if abs(one.value - band.middle) > half:
            moved.append(Moved(*key, band.middle, one.value, one.unit, half, band.runs))
    return tuple(sorted(moved, key=lambda m: -abs(m.ratio)))


def _facts(before: Report, now: Report) -> tuple[FactChange, ...]:
    old: dict[str, Mapping[str, Any]] = {target.id: target.facts for target in before.targets}
    groups: dict[tuple[str, str, str], list[str]] = {}
    for target in now.targets:
        known = old.get(target.id)
        if not known or not target.facts:  # nothing was told of it then, or now
            continue
        for name, was in known.items():
            value = target.facts.get(name, "none")
            if was != value:
                groups.setdefault((name, str(was), str(value)), []).append(target.id)
    return tuple(FactChange(name, was, is_, tuple(nodes)) for (name, was, is_), nodes in groups.items())
