"""Two faults at once: the causes are those of each alone."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations

from netdoctor.engine.diagnose import Group
from netdoctor.model import Status
from tests import machines
from tests.metamorphic.faults import FAULTS
from tests.metamorphic.world import Judgement, World, broken, difference, judgement_of


def ask_all() -> None:
    """Ask the machines that have two faults of their own: 20 s, once for each state of the code."""
    asked = [
        (kind, pair) for kind in machines.names() for pair in combinations(machines.load(kind).faults, 2)
    ]
    machines.ready(broken(kind, pair) for kind, pair in asked)
    _READY.update((kind, *pair) for kind, pair in asked)


_READY: set[tuple[str, ...]] = set()


def is_ready(kind: str, *faults: str) -> bool:
    """Whether the machine with these faults needs not be asked any more."""
    own = tuple(sorted((f for f in faults if f not in FAULTS), key=machines.load(kind).faults.index))
    return len(own) < 2 or (kind, *own) in _READY


def world(kind: str, count: int, one: int, a: str, two: int, b: str) -> World:
    own = machines.load(kind).faults
    if one == two and {a, b} <= set(own):
        a, b = sorted((a, b), key=own.index)
    return World(kind, count, {one: (a, b)} if one == two else {one: (a,), two: (b,)})


@cache
def alone(kind: str, count: int, number: int, fault: str) -> Judgement:
    return judgement_of(World(kind, count, {number: (fault,)}))


def hold(kind: str, count: int, one: int, a: str, two: int, b: str) -> None:
    """Raises AssertionError where the causes are not the union, with what differs."""
    if "refuses_login" in (a, b) and one == two:  # of a node that lets nobody in nothing else is known
        return
    if {a, b} <= {"peer_unknown", "peer_wrong"} and one == two:  # one name is wrong or unknown
        return
    between = {"drops_in", "drops_out", "rejects_in"}
    if {a, b} <= between and one == two:  # what lets nothing in and nothing out is one thing: isolated
        return
    singles = [alone(kind, count, number, fault) for number, fault in ((one, a), (two, b))]
    union_is(singles, judgement_of(world(kind, count, one, a, two, b)))


def union_is(singles: Sequence[Judgement], found: Judgement) -> None:
    """Raises AssertionError where the causes found are not those of each alone, with what differs."""
    union: dict[tuple[str, str], frozenset[str]] = {}
    for single in singles:
        for group in single.groups:
            if not _blocked(group, found):
                key = group.key, group.status.value
                union[key] = union.get(key, frozenset()) | frozenset(group.culprits)
    assert not (more := difference(union, found.causes)), more


def _blocked(group: Group, found: Judgement) -> bool:
    """Whether what named this cause could not be judged behind the other fault."""
    return all(
        found.cells[check].get(node) is Status.BLOCKED for check in group.checks for node in group.culprits
    )
