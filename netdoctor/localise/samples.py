"""Samples in columns, and how far each is from what is healthy."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from netdoctor.facts.localisation import PairSample
from netdoctor.localise.noise import LEAST_NOISE, scale

# The log of a rate that is nothing at all stands this far below the healthy one: a thousandth.
DEAD = -math.log(1000)

# Directions timed apart or together; one rail or all: what shares a base.
Class = tuple[bool, bool]


@dataclass(slots=True)
class Data:
    """Samples in columns. A run is one pair in one round; a class is what shares a base."""

    names: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    leaf: list[int] = field(default_factory=list)  # of each node, -1 unknown
    leaf_names: list[str] = field(default_factory=list)
    rails: list[str] = field(default_factory=list)
    y: list[float] = field(default_factory=list)  # log GB/s; -inf: nothing passed
    u: list[int] = field(default_factory=list)  # sender
    v: list[int] = field(default_factory=list)  # receiver
    directed: list[bool] = field(default_factory=list)
    rail: list[int] = field(default_factory=list)
    cls: list[Class] = field(default_factory=list)
    at_least: list[bool] = field(default_factory=list)  # a floor: says nothing when it is low
    expected: list[float] = field(default_factory=list)  # log expected, inf where there is none
    run: list[int] = field(default_factory=list)
    runs: list[list[int]] = field(default_factory=list)
    base: dict[Class, float] = field(default_factory=dict)
    excuse: list[float] = field(default_factory=list)  # how far below the base it is expected, 0 or less
    d: list[float] = field(default_factory=list)  # y less what is healthy there
    least_noise: float = LEAST_NOISE

    def by_node(self) -> list[list[float]]:
        """Distances of the samples that each node took part in; floors say nothing."""
        distances: list[list[float]] = [[] for _ in self.names]
        for s, d in enumerate(self.d):
            if not self.at_least[s]:
                distances[self.u[s]].append(d)
                distances[self.v[s]].append(d)
        return distances


def read(
    samples: Iterable[PairSample],
    leaves: Mapping[str, str],
    expected: Mapping[tuple[str, str], float],
    of_each_rail: bool = False,
) -> Data:
    data = Data()
    leaf_index: dict[str, int] = {}
    rail_index: dict[str, int] = {}
    run_index: dict[tuple[int, int, int], int] = {}

    def node(name: str) -> int:
        number = data.index.setdefault(name, len(data.index))
        if number == len(data.leaf):
            leaf = leaves.get(name)
            data.leaf.append(-1 if leaf is None else leaf_index.setdefault(leaf, len(leaf_index)))
        return number

    for one in samples:
        value = one.value_gbyte_s
        if one.src == one.dst or (value is not None and not (math.isfinite(value) and value >= 0.0)):
            continue
        a, b = node(one.src), node(one.dst)
        u, v = (b, a) if one.direction == "in" else (a, b)
        directed = one.direction in ("out", "in")
        rail = -1 if one.rail is None else rail_index.setdefault(one.rail, len(rail_index))
        run = run_index.setdefault((min(a, b), max(a, b), one.round), len(run_index))
        rate = expected.get((one.src, one.dst), expected.get((one.dst, one.src)))
        data.run.append(run)
        data.y.append(math.log(value) if value else -math.inf)
        data.u.append(u)
        data.v.append(v)
        data.directed.append(directed)
        data.at_least.append(one.at_least)
        data.rail.append(rail)
        data.cls.append((directed, rail >= 0))
        data.expected.append(math.log(rate) if rate and math.isfinite(rate) and rate > 0 else math.inf)
    data.names, data.leaf_names, data.rails = list(data.index), list(leaf_index), list(rail_index)
    data.runs = [[] for _ in run_index]
    for s, run in enumerate(data.run):
        data.runs[run].append(s)
    # An expectation for all rails of a pair together says nothing about one of them.
    for s, rail in enumerate(data.rail):
        if rail >= 0 and not of_each_rail:
            data.expected[s] = math.inf
    return data


def framed(data: Data, bases: Mapping[Class, float]) -> tuple[Data, float]:
    """The data with each sample's distance from these bases, and the noise scale."""
    base = dict(bases)
    for y, c in zip(data.y, data.cls, strict=True):
        # A whole class of floors, or where nothing passed: its best will do.
        if c not in bases:
            base[c] = max(base.get(c, y), y)
    base = {c: b if b > -math.inf else 0.0 for c, b in base.items()}
    above = [
        y - base[c] for y, c, f in zip(data.y, data.cls, data.at_least, strict=True) if y > base[c] and not f
    ]
    # What pairs at the base are expected to reach; slower hardware is allowed to be slower by as much.
    level = [w for y, c, w in zip(data.y, data.cls, data.expected, strict=True) if y >= base[c] - 0.1]
    typical = median(level) if level else math.inf
    excuse = [min(w - typical, 0.0) if w < math.inf and typical < math.inf else 0.0 for w in data.expected]
    d = [max(y - base[c] - e, DEAD) for y, c, e in zip(data.y, data.cls, excuse, strict=True)]
    return replace(data, base=base, excuse=excuse, d=d), max(scale(above), data.least_noise)
