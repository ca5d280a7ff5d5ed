"""Hypotheses: who can be behind slow samples, and which samples each would hold back."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from netdoctor.facts.localisation import Kind, Side
from netdoctor.localise.samples import Data

RARITY = {
    Kind.NODE: math.log(100),
    Kind.NIC: math.log(200),
    Kind.PATH: math.log(1000),
    Kind.RAIL: math.log(300),
    Kind.LEAF: math.log(200),
    Kind.UPLINK: math.log(200),
    Kind.SPINE: math.log(300),
}
LOCAL = (Kind.NODE, Kind.NIC, Kind.PATH)
WIDE = (Kind.RAIL, Kind.LEAF, Kind.UPLINK, Kind.SPINE)


class Hypothesis(NamedTuple):
    """A hypothesis: nodes and leaves by number (-1: none), rails by number."""

    kind: Kind
    a: int = -1
    b: int = -1
    side: Side = Side.BOTH
    rail: int = -1

    @property
    def entity(self) -> tuple[object, ...]:
        """Who it is, whichever side of it is slow."""
        return (self.kind, min(self.a, self.b), max(self.a, self.b), self.rail)


# Samples that a hypothesis covers, by run.
Cover = dict[int, list[int]]
Consider = Callable[[Hypothesis, Iterable[int]], None]


def hypotheses(data: Data, below: float) -> dict[Hypothesis, Cover]:
    """Every hypothesis of which at least half the samples are slow, that is, further down than `below`."""
    low = [s for s, d in enumerate(data.d) if d < below and not data.at_least[s]]
    slow = frozenset(low)
    found: dict[Hypothesis, Cover] = {}

    def consider(hypothesis: Hypothesis, pool: Iterable[int]) -> None:
        # Search.fit wants the middle one of them to be slow, so fewer than half can never do.
        narrowed = (
            hypothesis.kind in LOCAL or hypothesis.side is not Side.BOTH or hypothesis.kind is Kind.SPINE
        )
        covered = list(_covered(data, hypothesis, pool) if narrowed else pool)
        telling = sum(1 for s in covered if not data.at_least[s])
        if not telling or 2 * sum(1 for s in covered if s in slow) < telling:
            return
        by_run = found[hypothesis] = {}
        for s in covered:
            by_run.setdefault(data.run[s], []).append(s)

    if low:
        _local(data, low, consider)
        _wide(data, low, consider)
    return found


def rarity(hypothesis: Hypothesis, nodes: int) -> float:
    """-log of the prior among so many nodes."""
    cost = RARITY[hypothesis.kind]
    if hypothesis.kind is Kind.NODE:
        cost = max(cost, math.log(nodes))
    if hypothesis.side in (Side.OUT, Side.IN):
        cost += math.log(2)
    if hypothesis.kind is Kind.PATH and hypothesis.rail >= 0:
        cost += math.log(5)
    if hypothesis.kind is Kind.RAIL and hypothesis.a < 0:
        cost += math.log(2)
    return cost


def _local(data: Data, low: Sequence[int], consider: Consider) -> None:
    """Nodes, NICs and paths of slow samples, each side of them that the samples tell apart."""
    touch: list[list[int]] = [[] for _ in data.names]
    pairs: dict[tuple[int, int], list[int]] = {}
    is_directed = [False] * len(data.names)
    for s, (u, v) in enumerate(zip(data.u, data.v, strict=True)):
        touch[u].append(s)
        touch[v].append(s)
        pairs.setdefault((min(u, v), max(u, v)), []).append(s)
        if data.directed[s]:
            is_directed[u] = is_directed[v] = True
    candidates: dict[Hypothesis, None] = {}
    for s in low:
        u, v, r = data.u[s], data.v[s], data.rail[s]
        rails = (-1, r) if len(data.rails) > 1 and r >= 0 else (-1,)
        for rail in rails:
            for node, direction in ((u, Side.OUT), (v, Side.IN)):
                kind = Kind.NODE if rail < 0 else Kind.NIC
                if not is_directed[node]:
                    candidates[Hypothesis(kind, node, -1, Side.EITHER, rail)] = None
                    continue
                candidates[Hypothesis(kind, node, -1, Side.BOTH, rail)] = None
                for side in (direction,) if data.directed[s] else (Side.OUT, Side.IN):
                    candidates[Hypothesis(kind, node, -1, side, rail)] = None
            a, b = min(u, v), max(u, v)
            if not any(data.directed[t] for t in pairs[a, b]):
                candidates[Hypothesis(Kind.PATH, a, b, Side.EITHER, rail)] = None
            else:
                candidates[Hypothesis(Kind.PATH, a, b, Side.BOTH, rail)] = None
                if data.directed[s]:
                    candidates[Hypothesis(Kind.PATH, u, v, Side.OUT, rail)] = None
    for hypothesis in candidates:
        a, b = min(hypothesis.a, hypothesis.b), max(hypothesis.a, hypothesis.b)
        consider(hypothesis, touch[hypothesis.a] if hypothesis.b < 0 else pairs[a, b])


def _wide(data: Data, low: Sequence[int], consider: Consider) -> None:
    """Leaves, their uplinks, what lies between them, and rails."""
    everything = range(len(data.y))
    several_rails = len(data.rails) > 1
    leaves: dict[int, None] = {}
    rails: dict[int, None] = {}
    for s in low:
        leaves[data.leaf[data.u[s]]] = None
        leaves[data.leaf[data.v[s]]] = None
        rails[data.rail[s]] = None
    leaves.pop(-1, None)
    rails.pop(-1, None)
    members: dict[int, int] = {}
    for leaf in data.leaf:
        members[leaf] = members.get(leaf, 0) + 1
    by_leaf: dict[int, list[int]] = {leaf: [] for leaf in leaves}
    for s in everything:
        a, b = data.leaf[data.u[s]], data.leaf[data.v[s]]
        if a in by_leaf:
            by_leaf[a].append(s)
        if b != a and b in by_leaf:
            by_leaf[b].append(s)
    known = sum(1 for leaf in members if leaf >= 0)
    for leaf, pool in by_leaf.items():
        if members[leaf] < 2 or known < 2:
            continue
        crossing = [s for s in pool if -1 != data.leaf[data.u[s]] != data.leaf[data.v[s]] != -1]
        consider(Hypothesis(Kind.LEAF, leaf), pool)
        for side in (Side.BOTH, Side.OUT, Side.IN):
            consider(Hypothesis(Kind.UPLINK, leaf, -1, side), crossing)
        if several_rails:
            _rails(data, leaf, pool, rails, consider)
    if known > 2 and 4 * len(low) > len(everything):
        consider(Hypothesis(Kind.SPINE), everything)
    if several_rails:
        _rails(data, -1, everything, rails, consider)


def _rails(data: Data, leaf: int, pool: Iterable[int], rails: Iterable[int], consider: Consider) -> None:
    carried: dict[int, list[int]] = {}
    for s in pool:
        carried.setdefault(data.rail[s], []).append(s)
    together = carried.get(-1, [])
    for rail in rails:
        consider(Hypothesis(Kind.RAIL, leaf, -1, Side.BOTH, rail), carried.get(rail, []) + together)


def _covered(data: Data, hypothesis: Hypothesis, pool: Iterable[int]) -> Iterator[int]:
    kind, a, _, side, rail = hypothesis
    for s in pool:
        # A sample over all rails together is held back by its slowest.
        if rail >= 0 and data.rail[s] not in (rail, -1):
            continue
        u, v = data.u[s], data.v[s]
        if kind in (Kind.SPINE, Kind.UPLINK):
            if data.leaf[u] == data.leaf[v] or min(data.leaf[u], data.leaf[v]) < 0:
                continue
            u, v = data.leaf[u], data.leaf[v]
        if side is Side.OUT and data.directed[s] and u != a:
            continue
        if side is Side.IN and data.directed[s] and v != a:
            continue
        yield s
