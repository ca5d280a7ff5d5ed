"""Clusters with faults, and what netdoctor says of them, in a form in which two verdicts can be compared.

A World is made again for each change: recorded machines (tests/data/machines), and faults by node. What a
machine answers with several of its faults is asked of the collectors once for each set, in a fork.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from netdoctor.check import Check
from netdoctor.engine.assemble.context import Context
from netdoctor.engine.assemble.verdict import verdict_of
from netdoctor.engine.diagnose import Group, diagnose
from netdoctor.engine.gathering import addresses, all_paths
from netdoctor.engine.judge import Judgement, judge
from netdoctor.engine.registry import load_builtin, ordered
from netdoctor.engine.run import Outcome
from netdoctor.model import Status
from netdoctor.report.model import Run
from netdoctor.store import Store
from tests import machines
from tests.checks import build
from tests.machines import Machine
from tests.metamorphic.faults import FAULTS

PART = "+"
RUN = Run(
    id="m", started="2026-01-01T00:00:00Z", finished="2026-01-01T00:00:01Z", duration_ms=1000, complete=True,
    ended_by="end", profile="launch",
)  # fmt: skip


@cache
def checks() -> tuple[Check, ...]:
    return tuple(one for one in ordered(load_builtin().values()) if one.via in (None, "ssh"))


@dataclass(frozen=True, slots=True)
class World:
    """count nodes of one kind of machine; faults: names, by the node's number from 1."""

    kind: str
    count: int
    faults: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()  # of each node, where they are not all of one

    def store(self) -> Store:
        """All facts of it. What faults of the network do is done last, to what is between the nodes."""
        store = machines.fleet([self._member(number) for number in range(1, self.count + 1)])
        for number, names in sorted(self.faults.items()):
            for name in names:
                if name in FAULTS:
                    FAULTS[name].put(store, number, self.count)
        derive(store, build.names(self.count))
        return store

    def _member(self, number: int) -> Machine:
        kind = self.kinds[number - 1] if self.kinds else self.kind
        return broken(kind, tuple(n for n in self.faults.get(number, ()) if n not in FAULTS))

    def __str__(self) -> str:
        faults = ", ".join(f"n{number}: {' + '.join(names)}" for number, names in self.faults.items())
        return f"{self.count} {'+'.join(self.kinds) or self.kind} ({faults or 'healthy'})"


def derive(store: Store, nodes: Sequence[str]) -> None:
    """What follows from the facts of all nodes, as a scan works it out after the first answers."""
    job = store.cluster["job"]
    store.cluster["job"] = job = replace(job, data_addresses=addresses(store, nodes, job))
    store.cluster["paths"] = all_paths(store, nodes, job)


@cache
def broken(kind: str, faults: tuple[str, ...]) -> Machine:
    """A machine with these of its own faults."""
    machine = machines.load(kind)
    spec = machine.spec
    for fault in faults:
        spec = machines.merged(spec, machine.spec["broken"][fault])
    return Machine(kind, spec, PART.join(faults))


def known_faults(kind: str) -> tuple[str, ...]:
    """All that can be put on a node of this kind: the machine's own, and those of every machine."""
    return (*machines.load(kind).faults, *FAULTS)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was said of a cluster. causes: (key, status) to nodes; cells: check to node to status."""

    state: str
    code: int
    causes: Mapping[tuple[str, str], frozenset[str]]
    cells: Mapping[str, Mapping[str, Status]]
    judgement: Judgement
    groups: Sequence[Group]

    @property
    def titles(self) -> list[str]:
        return [f"{g.status} {g.key} of {', '.join(g.culprits)}: {g.title}" for g in self.groups]


def judged(store: Store, nodes: Sequence[str]) -> Judgement:
    judgement = judge(checks(), nodes, store)
    assert judgement.tracebacks == [], judgement.tracebacks[0]
    groups = diagnose(judgement)
    outcome = Outcome(store=store, judgement=judgement)
    verdict = verdict_of(groups, outcome, Context(run=RUN))
    causes: dict[tuple[str, str], frozenset[str]] = {}
    for group in groups:
        at = group.key, group.status.value
        causes[at] = causes.get(at, frozenset()) | frozenset(group.culprits)
    return Judgement(verdict.state, verdict.exit_code, causes, judgement.cells, judgement, groups)


def judgement_of(world: World) -> Judgement:
    return judged(world.store(), build.names(world.count))


def difference(expected: Mapping[Any, Any], found: Mapping[Any, Any]) -> str:
    """The lines in which two mappings differ; empty where they do not."""

    def lines(one: Mapping[Any, Any], sign: str, other: Mapping[Any, Any]) -> Iterable[str]:
        for key, value in one.items():
            if other.get(key) != value:
                yield f"{sign} {key}: {sorted(value) if isinstance(value, frozenset) else value}"

    return "\n".join([*lines(expected, "-", found), *lines(found, "+", expected)])
