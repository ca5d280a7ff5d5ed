"""Who holds slow pairs back: node, NIC, path, rail, leaf, or nobody. Pure: samples in, hypotheses out.

Model. A transfer runs at the speed of its slowest part, so with logarithms

    log rate(sample) = log base + excuse(pair) + min(0, f of each culprit that covers it) + noise

`base` is what pairs reach that nothing holds back, `f` one unknown factor per culprit, noise has the width
sigma. A node covers all samples that it takes part in (or those that leave, or enter it), a NIC those of one
rail, a path those between two nodes, a leaf's uplink those that cross it, and so on. Faults only make things
slower, so both unknowns are read where faults do not reach: `base` is the mode below each node's best sample
(a node's best is slow only if the node is), sigma comes from the deviations above it (median absolute
deviation). An expectation never accuses a node that keeps up with its peers: it excuses a pair of slower
hardware, by as much as the pair is expected below those that run at the base, and tells whether all of them
together are slow.

Cost. A set of culprits costs, in nats,

    sum over runs of min(misfit, bad moment) + sum over culprits of (rarity + price of a free factor)

A run is one pair in one round. Its misfit is z^2 / 2 per sample. A slow run may also be a bad moment (CASUAL:
1 in 50, or as often as seen, at the price of a factor of its own), however many samples it has: one run never
tells a path from a moment, a second one does. A run that is too fast for a culprit can hardly be explained
(WONDER): nothing makes a slow link fast for a while, so one good run exonerates more than one bad run
accuses. Rarity is -log of the prior (a node in a hundred, a given path in a thousand, ...), so that one node
is preferred to three paths and one leaf to eight nodes. The price of a free factor is the usual one,
log(range / width of the estimate).

Search. Greedy: take the hypothesis that lowers the cost most, until none does; then each culprit in turn is
taken out and the best substitute, or nothing, put in its place, until the set is stable. Hypotheses arise
from slow samples only, so a node that nobody measured cannot be blamed. Base and sigma are then read again
from the samples that no culprit covers, and once from all of them together: wide noise without culprits may
be the cheaper story.

Confidence. For each culprit the best cost without it (with each substitute, with nothing, with a greedy mix)
gives its probability, 1 / sum(exp(-difference)). Below 0.75 it is not reported as a culprit but as undecided
between it and the substitutes, with the pair whose outcome tells the first two apart.
"""

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

from netdoctor.facts.localisation import (
    Certainty,
    Culprit,
    Decision,
    Kind,
    PairSample,
    Round,
    Side,
    Undecided,
)

__all__ = [
    "Certainty",
    "Culprit",
    "Decision",
    "Kind",
    "PairSample",
    "Round",
    "Side",
    "Undecided",
    "decode",
]

# The log of a rate that is nothing at all stands this far below the healthy one: a thousandth.
DEAD = -math.log(1000)
CASUAL = -math.log(0.02)
WONDER = 12.0
# Two per cent: repeated transfers over an idle fabric scatter by about as much (nccl-tests, default 20
# iterations).
LEAST_NOISE = 0.02
# What to assume while there are few samples: gloo pairs in the lab scatter by 5 % on shaped links. FEW: the
# weight of that assumption, in samples.
USUAL_NOISE = 0.05
FEW = 4.0
# Nodes that differ by more than this when all is well are not taken for healthy (standard deviation).
MOST_SPREAD = 0.1
# Below 90 % of its peers a node is worth a word (NVIDIA/nccl-tests gates at 0.9, ClusterKit at 0.93).
LEAST_EFFECT = 0.9
# An expectation derived from hardware is right within some ten per cent, see expectation.py.
UNIFORM_BELOW = 0.8
DECIDED = 0.75
# A path rests on visits of one pair, and what disturbs it now may last into the next round: certain from here
# on.
SURE_RUNS = 3
# So many suspects of one tie are listed.
NAMED = 4
# Alternatives that are e^-7 as likely change no confidence that is printed.
FAR = 7.0

RARITY = {
    Kind.NODE: math.log(100),
    Kind.NIC: math.log(200),
    Kind.PATH: math.log(1000),
    Kind.RAIL: math.log(300),
    Kind.LEAF: math.log(200),
    Kind.UPLINK: math.log(200),
    Kind.SPINE: math.log(300),
}
# Directions timed apart or together; one rail or all: what shares a base.
Class = tuple[bool, bool]
LOCAL = (Kind.NODE, Kind.NIC, Kind.PATH)
WIDE = (Kind.RAIL, Kind.LEAF, Kind.UPLINK, Kind.SPINE)


class Suspect(NamedTuple):
    """A hypothesis: nodes and leaves by number (-1: none), rails by number."""

    kind: Kind
    a: int = -1
    b: int = -1
    side: Side = Side.BOTH
    rail: int = -1


def decode(
    samples: Iterable[PairSample],
    *,
    nodes: Sequence[str] = (),
    leaves: Mapping[str, str] | None = None,
    expected_gbyte_s: Mapping[tuple[str, str], float] | None = None,
    least_effect: float = LEAST_EFFECT,
    least_noise: float = LEAST_NOISE,
) -> Decision:
    """The culprits behind slow samples, with confidence, and what is still tied.

    nodes: those that should have been measured; ones without a sample are listed as unmeasured. leaves: node
    to leaf, for nodes where it is known. expected_gbyte_s: per pair, in either order; pairs may be missing,
    and are then judged by their peers alone. least_noise: relative width of the noise, where more is known of
    it than the samples show. Samples with a rate that is not a number, negative, or of a node
    with itself are ignored. No sample at all gives an empty decision, which is not a clean bill of health:
    see `unmeasured`.
    """
    data = _read(samples, leaves or {}, expected_gbyte_s or {})
    data.least_noise = max(least_noise, LEAST_NOISE)
    listed = list(dict.fromkeys([*nodes, *data.names]))
    unmeasured = tuple(n for n in listed if n not in data.index)
    possible = len(listed) * (len(listed) - 1) // 2
    if not data.y:
        return Decision(unmeasured=unmeasured, pairs_possible=possible)
    return _report(_searches(data, least_effect), unmeasured, possible)


@dataclass(slots=True)
class _Data:
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
    wanted: list[float] = field(default_factory=list)  # log expected, inf where there is none
    run: list[int] = field(default_factory=list)
    runs: list[list[int]] = field(default_factory=list)
    base: dict[Class, float] = field(default_factory=dict)
    excuse: list[float] = field(default_factory=list)  # how far below the base it is expected, 0 or less
    d: list[float] = field(default_factory=list)  # y less what is healthy there
    least_noise: float = LEAST_NOISE


def _read(
    samples: Iterable[PairSample],
    leaves: Mapping[str, str],
    expected: Mapping[tuple[str, str], float],
) -> _Data:
    data = _Data()
    leaf_index: dict[str, int] = {}
    rail_index: dict[str, int] = {}
    run_index: dict[tuple[int, int, int], int] = {}

    def node(name: str) -> int:
        if name not in data.index:
            data.index[name] = len(data.names)
            data.names.append(name)
            leaf = leaves.get(name)
            if leaf is not None and leaf not in leaf_index:
                leaf_index[leaf] = len(leaf_index)
                data.leaf_names.append(leaf)
            data.leaf.append(-1 if leaf is None else leaf_index[leaf])
        return data.index[name]

    for one in samples:
        value = one.value_gbyte_s
        if one.src == one.dst or (value is not None and not (math.isfinite(value) and value >= 0.0)):
            continue
        a, b = node(one.src), node(one.dst)
        u, v = (b, a) if one.direction == "in" else (a, b)
        directed = one.direction in ("out", "in")
        rail = -1
        if one.rail is not None:
            if one.rail not in rail_index:
                rail_index[one.rail] = len(rail_index)
                data.rails.append(one.rail)
            rail = rail_index[one.rail]
        key = (min(a, b), max(a, b), one.round)
        if key not in run_index:
            run_index[key] = len(run_index)
            data.runs.append([])
        run = run_index[key]
        wanted = expected.get((one.src, one.dst), expected.get((one.dst, one.src)))
        data.runs[run].append(len(data.y))
        data.run.append(run)
        data.y.append(math.log(value) if value else -math.inf)
        data.u.append(u)
        data.v.append(v)
        data.directed.append(directed)
        data.at_least.append(one.at_least)
        data.rail.append(rail)
        data.cls.append((directed, rail >= 0))
        data.wanted.append(math.log(wanted) if wanted and math.isfinite(wanted) and wanted > 0 else math.inf)
    # An expectation for a pair is for all its rails together, so it says nothing about one of them.
    for s, rail in enumerate(data.rail):
        if rail >= 0:
            data.wanted[s] = math.inf
    return data


def _framed(data: _Data, bases: Mapping[Class, float]) -> tuple[_Data, float]:
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
    level = [w for y, c, w in zip(data.y, data.cls, data.wanted, strict=True) if y >= base[c] - 0.1]
    usual = median(level) if level else math.inf
    excuse = [min(w - usual, 0.0) if w < math.inf and usual < math.inf else 0.0 for w in data.wanted]
    d = [max(y - base[c] - e, DEAD) for y, c, e in zip(data.y, data.cls, excuse, strict=True)]
    return replace(data, base=base, excuse=excuse, d=d), max(_scale(above), data.least_noise)


def _spread(data: _Data, noise: float) -> float:
    """How much healthy nodes differ from each other beyond noise, on a logarithmic scale.

    From the medians of the nodes' samples, and only those above the middle: faults pull the others down.
    """
    mine: list[list[float]] = [[] for _ in data.names]
    for s, d in enumerate(data.d):
        if data.at_least[s]:
            continue
        mine[data.u[s]].append(d)
        mine[data.v[s]].append(d)
    middles = sorted(sorted(ds)[len(ds) // 2] for ds in mine if ds)
    if not middles:
        return 0.0
    centre = middles[len(middles) // 2]
    seen = _scale([m - centre for m in middles if m > centre])
    count = median(len(ds) for ds in mine if ds)
    # The variance of the median of n normal samples is pi / 2n of theirs.
    beyond = math.sqrt(max(seen**2 - math.pi / 2.0 * noise**2 / count, 0.0))
    # A pair shows the slower of two, so that medians of nodes lie closer together than nodes do: simulated,
    # by 0.6.
    return min(beyond / 0.6, MOST_SPREAD)


def _edge(ys: Sequence[float]) -> float:
    """The lowest rate above the widest gap, with at least a quarter of the samples above it."""
    ends = range(1, len(ys) - max(len(ys) // 4, 1) + 1)
    return ys[max(ends, key=lambda i: ys[i] - ys[i - 1])] if len(ys) > 1 else ys[0]


def _start(data: _Data, members: Sequence[int]) -> float:
    """Upper third of the nodes' best samples: healthy, unless more than two thirds of the nodes are slow."""
    best: dict[int, float] = {}
    for s in members:
        y = data.y[s]
        for node in (data.u[s], data.v[s]):
            if y > best.get(node, -math.inf):
                best[node] = y
    return sorted(best.values())[int(0.7 * (len(best) - 1))]


def _mode(ys: Sequence[float], start: float) -> float:
    """The middle of the crowd around `start`: the median of what is near, moved until it stays."""
    width = 0.25
    centre = start
    for _ in range(8):
        for _ in range(20):
            low, high = bisect_left(ys, centre - width), bisect_right(ys, centre + width)
            if low == high:
                return centre
            moved = (ys[(low + high - 1) // 2] + ys[(low + high) // 2]) / 2.0
            if abs(moved - centre) < 1e-4:
                break
            centre = moved
        scale = _scale([y - centre for y in ys[bisect_right(ys, centre) :]])
        if 3.0 * scale <= width:
            break
        width = 3.0 * scale
    return centre


def _scale(above: Sequence[float]) -> float:
    """Standard deviation from the deviations on the side that faults leave alone.

    1.4826 times the median absolute deviation, then the root mean square with outliers cut at three of those:
    the median alone is half as precise, which matters for a dozen samples. Few samples are drawn to
    USUAL_NOISE.
    """
    if not above:
        return 0.0
    cut = 3.0 * 1.4826 * median(above)
    total = math.fsum(min(x, cut) ** 2 for x in above)
    return math.sqrt((total + FEW * USUAL_NOISE**2) / (len(above) + FEW))


class _Search:
    """The state of a search: chosen suspects, what they predict, and what each run costs."""

    def __init__(self, data: _Data, noise: tuple[float, float], casual: float, least_effect: float) -> None:
        self.data = data
        self.above, self.sigma = noise
        self.spread = _spread(data, self.sigma)
        self.casual = casual
        # A moment slows the samples of a run together. While culprits are looked for it is priced per sample,
        # or one moment would hide that the same two NICs are slow in every run of a node: either alone saves
        # nothing.
        self.together = False
        self.most = math.log(least_effect)
        self.mu = [0.0] * len(data.y)
        self.chosen: dict[Suspect, float] = {}
        self.price: dict[Suspect, float] = {}
        self.cover: dict[Suspect, dict[int, list[int]]] = {}  # run -> samples
        self.at_run: dict[int, list[Suspect]] = {}
        self.wide: list[Suspect] = []
        self.cost = [self._run_cost(run, None, 0.0) for run in range(len(data.runs))]
        self._suspects()

    # -- costs ---------------------------------------------------------------------------------------------

    def _run_cost(self, run: int, covered: list[int] | None, f: float) -> float:
        """The cost of one run, were the samples in `covered` held back to `f` as well."""
        data, mu, sigma, above = self.data, self.mu, self.sigma, self.above
        floor = data.at_least
        total = 0.0
        low: list[float] = []
        for s in data.runs[run]:
            m = mu[s]
            if covered is not None and f < m and s in covered:
                m = f
            z = data.d[s] - m
            if z > 0.0:
                # What a culprit holds back wavers about its own level both ways.
                width = above if m == 0.0 else sigma
                total += min(z * z / (2.0 * width * width), WONDER)
                continue
            if floor[s]:
                continue
            z /= sigma
            if z < -2.0:
                low.append(z)
            else:
                total += z * z / 2.0
        return total + self._low_cost(low) if low else total

    def _low_cost(self, low: list[float]) -> float:
        """Slow samples of one run: noise, or a bad moment that slowed some of them down by one factor."""
        plain = sum(z * z for z in low) / 2.0
        centre = sorted(low)[len(low) // 2]
        if not self.together:
            price = self.casual + self._factor_price(1)
            return math.fsum(min(z * z / 2.0, price) for z in low)
        moment = sum(min(z * z, (z - centre) ** 2) for z in low) / 2.0
        return min(plain, self.casual + self._factor_price(len(low)) + moment)

    def is_moment(self, run: int) -> bool:
        """Whether a bad moment explains this run better than noise does."""
        data = self.data
        zs = [(data.d[s] - self.mu[s]) / self.sigma for s in data.runs[run] if not data.at_least[s]]
        low = [z for z in zs if z < -2.0]
        return bool(low) and self._low_cost(low) < sum(z * z for z in low) / 2.0 - 1e-9

    def bad_moments(self) -> float:
        """-log of the share of runs that were bad moments, drawn to CASUAL while there are few runs.

        A pair counts once: that it is slow again is what tells a fault from moments, not a sign of more of
        them.
        """
        runs = len(self.data.runs)
        first = (self.data.runs[run][0] for run in range(runs) if self.is_moment(run))
        count = len({frozenset((self.data.u[s], self.data.v[s])) for s in first})
        return min(-math.log((count + 1.0) / (runs + 50.0)), CASUAL)

    def _factor_price(self, count: int) -> float:
        """log(range / width) of a factor that `count` samples estimate."""
        return max(math.log(-DEAD * math.sqrt(count) / (2.5 * self.sigma)), 0.5)

    def total(self) -> float:
        """Cost in nats, up to a constant of the samples; narrower noise is denser."""
        # Samples at DEAD were cut there, and their fit says nothing about noise; nor do floors.
        count = sum(d > DEAD and not f for d, f in zip(self.data.d, self.data.at_least, strict=True))
        density = count * math.log((self.above + self.sigma) / 2.0)
        # A run that is no bad moment costs the surprise that it is none, the dearer the more there are.
        quiet = -len(self.data.runs) * math.log1p(-math.exp(-self.casual))
        # Noise far wider than usual, or far wider below than above, is a bold claim as well.
        bold = math.log(self.sigma / USUAL_NOISE) ** 2 / 4.5 + math.log(self.sigma / self.above) ** 2 / 2.0
        return math.fsum(self.cost) + math.fsum(self.price.values()) + density + quiet + bold

    # -- hypotheses ----------------------------------------------------------------------------------------

    def _suspects(self) -> None:
        """Every hypothesis for which at least half of what it covers is slow."""
        data = self.data
        touch: list[list[int]] = [[] for _ in data.names]
        pairs: dict[tuple[int, int], list[int]] = {}
        told = [False] * len(data.names)
        low: list[int] = []
        threshold = min(-2.0 * self.sigma, self.most)
        for s, d in enumerate(data.d):
            u, v = data.u[s], data.v[s]
            touch[u].append(s)
            touch[v].append(s)
            pairs.setdefault((min(u, v), max(u, v)), []).append(s)
            if data.directed[s]:
                told[u] = told[v] = True
            if d < threshold and not data.at_least[s]:
                low.append(s)
        if not low:
            return
        wanted: dict[Suspect, None] = {}
        several_rails = len(data.rails) > 1
        for s in low:
            u, v, r = data.u[s], data.v[s], data.rail[s]
            rails = (-1, r) if several_rails and r >= 0 else (-1,)
            for rail in rails:
                for node, mine in ((u, Side.OUT), (v, Side.IN)):
                    kind = Kind.NODE if rail < 0 else Kind.NIC
                    if not told[node]:
                        wanted[Suspect(kind, node, -1, Side.EITHER, rail)] = None
                        continue
                    wanted[Suspect(kind, node, -1, Side.BOTH, rail)] = None
                    for side in (mine,) if data.directed[s] else (Side.OUT, Side.IN):
                        wanted[Suspect(kind, node, -1, side, rail)] = None
                a, b = min(u, v), max(u, v)
                if not any(data.directed[t] for t in pairs[a, b]):
                    wanted[Suspect(Kind.PATH, a, b, Side.EITHER, rail)] = None
                else:
                    wanted[Suspect(Kind.PATH, a, b, Side.BOTH, rail)] = None
                    if data.directed[s]:
                        wanted[Suspect(Kind.PATH, u, v, Side.OUT, rail)] = None
        slow = dict.fromkeys(low)
        for suspect in wanted:
            pool = pairs[min(suspect.a, suspect.b), max(suspect.a, suspect.b)] if suspect.b >= 0 else None
            self._consider(suspect, touch[suspect.a] if pool is None else pool, slow)
        self._wide_suspects(slow, several_rails)

    def _wide_suspects(self, slow: Mapping[int, None], several_rails: bool) -> None:
        data = self.data
        everything = range(len(data.y))
        leaves: dict[int, None] = {}
        rails: dict[int, None] = {}
        for s in slow:
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
            self._consider(Suspect(Kind.LEAF, leaf), pool, slow)
            for side in (Side.BOTH, Side.OUT, Side.IN):
                self._consider(Suspect(Kind.UPLINK, leaf, -1, side), crossing, slow)
            if several_rails:
                self._rails_of(leaf, pool, rails, slow)
        if known > 2 and 4 * len(slow) > len(everything):
            self._consider(Suspect(Kind.SPINE), everything, slow)
        if several_rails:
            self._rails_of(-1, everything, rails, slow)

    def _rails_of(
        self, leaf: int, pool: Iterable[int], rails: Iterable[int], slow: Mapping[int, None]
    ) -> None:
        carried: dict[int, list[int]] = {}
        for s in pool:
            carried.setdefault(self.data.rail[s], []).append(s)
        together = carried.get(-1, [])
        for rail in rails:
            self._consider(
                Suspect(Kind.RAIL, leaf, -1, Side.BOTH, rail), carried.get(rail, []) + together, slow
            )

    def _consider(self, suspect: Suspect, pool: Iterable[int], slow: Mapping[int, None]) -> None:
        # fit() wants the middle one of them to be slow, so fewer than half can never do.
        narrowed = suspect.kind in LOCAL or suspect.side is not Side.BOTH or suspect.kind is Kind.SPINE
        covered = list(self._covered(suspect, pool) if narrowed else pool)
        telling = sum(1 for s in covered if not self.data.at_least[s])
        if not telling or 2 * sum(1 for s in covered if s in slow) < telling:
            return
        by_run: dict[int, list[int]] = {}
        for s in covered:
            by_run.setdefault(self.data.run[s], []).append(s)
        self.cover[suspect] = by_run
        if suspect.kind in LOCAL:
            for run in by_run:
                self.at_run.setdefault(run, []).append(suspect)
        else:
            self.wide.append(suspect)

    def _covered(self, suspect: Suspect, pool: Iterable[int]) -> Iterator[int]:
        data = self.data
        kind, a, _, side, rail = suspect
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

    def rarity(self, suspect: Suspect) -> float:
        cost = RARITY[suspect.kind]
        if suspect.kind is Kind.NODE:
            cost = max(cost, math.log(len(self.data.names)))
        if suspect.side in (Side.OUT, Side.IN):
            cost += math.log(2)
        if suspect.kind is Kind.PATH and suspect.rail >= 0:
            cost += math.log(5)
        if suspect.kind is Kind.RAIL and suspect.a < 0:
            cost += math.log(2)
        return cost

    # -- moves ---------------------------------------------------------------------------------------------

    def fit(self, suspect: Suspect) -> tuple[float, int] | None:
        """The factor that suits the samples which nobody else explains, and how many those are."""
        d, mu, margin = self.data.d, self.mu, 3.0 * self.sigma
        open_ = sorted(
            d[s]
            for covered in self.cover[suspect].values()
            for s in covered
            if (mu[s] == 0.0 or d[s] < mu[s] - margin) and not self.data.at_least[s]
        )
        if not open_:
            return None
        middle = open_[len(open_) // 2]
        if middle > self.most:
            return None
        near = [x for x in open_ if abs(x - middle) <= 1.5 * margin]
        f = math.fsum(near) / len(near)
        return (f, len(near)) if f <= self.most else None

    def gain(self, suspect: Suspect) -> tuple[float, float, float]:
        """How much the cost falls, the factor, and the price included."""
        fitted = self.fit(suspect)
        if fitted is None:
            return -math.inf, 0.0, 0.0
        f, count = fitted
        price = self.rarity(suspect) + self._factor_price(count)
        saved = 0.0
        for run, covered in self.cover[suspect].items():
            saved += self.cost[run] - self._run_cost(run, covered, f)
        return round(min(saved, self._ordinary(suspect, f)) - price, 9), f, price

    def _ordinary(self, suspect: Suspect, f: float) -> float:
        """What it costs to call a node that runs at `f` an ordinary one, given how much nodes differ here."""
        if suspect.kind not in (Kind.NODE, Kind.NIC) or self.spread == 0.0:
            return math.inf
        return f * f / (2.0 * self.spread**2)

    def add(self, suspect: Suspect, f: float, price: float) -> None:
        self.chosen[suspect] = f
        self.price[suspect] = price
        for run, covered in self.cover[suspect].items():
            for s in covered:
                self.mu[s] = min(self.mu[s], f)
            self.cost[run] = self._run_cost(run, None, 0.0)

    def remove(self, suspect: Suspect) -> None:
        del self.chosen[suspect], self.price[suspect]
        for run, covered in self.cover[suspect].items():
            others = [
                (f, mine)
                for other, f in self.chosen.items()
                if (mine := self.cover[other].get(run)) is not None
            ]
            for s in covered:
                self.mu[s] = min((f for f, mine in others if s in mine), default=0.0)
            self.cost[run] = self._run_cost(run, None, 0.0)

    def near(self, suspect: Suspect) -> dict[Suspect, None]:
        """Every hypothesis that shares a run with this one, itself included."""
        runs = self.cover[suspect]
        found: dict[Suspect, None] = {}
        if suspect.kind in LOCAL:
            for run in runs:
                found.update(dict.fromkeys(self.at_run.get(run, ())))
            found.update(dict.fromkeys(w for w in self.wide if not self.cover[w].keys().isdisjoint(runs)))
            return found
        # A wide one is weighed against other wide ones, and against the local ones that explain most of it.
        found.update(dict.fromkeys(self.wide))
        for run in list(runs)[:200]:
            found.update(dict.fromkeys(self.at_run.get(run, ())))
        return found

    def greedy(self, pool: Iterable[Suspect], at_most: int) -> int:
        """Add the best of `pool` until none helps; how many were added."""
        allowed = dict.fromkeys(pool)
        order = {suspect: i for i, suspect in enumerate(allowed)}
        version = dict.fromkeys(allowed, 0)
        heap: list[tuple[float, int, int, Suspect]] = []

        def push(suspect: Suspect) -> None:
            saved = self.gain(suspect)[0]
            if saved > 0.0:
                heapq.heappush(heap, (-saved, order[suspect], version[suspect], suspect))

        for suspect in allowed:
            if suspect not in self.chosen:
                push(suspect)
        added = 0
        stale: set[Suspect] = set()
        while heap and added < at_most:
            _, _, seen, suspect = heapq.heappop(heap)
            if seen != version[suspect] or suspect in self.chosen:
                continue
            if suspect in stale:
                stale.discard(suspect)
                version[suspect] += 1
                push(suspect)
                continue
            saved, f, price = self.gain(suspect)
            if saved <= 0.0:
                continue
            self.add(suspect, f, price)
            added += 1
            for other in self.near(suspect):
                if other in self.chosen or other not in allowed:
                    continue
                if other.kind in LOCAL:
                    version[other] += 1
                    push(other)
                else:
                    stale.add(other)  # weighed again when its turn comes
        return added

    def solve(self) -> None:
        most = len(self.data.names) + 8
        self.greedy(self.cover, most)
        self.together = True
        self.cost = [self._run_cost(run, None, 0.0) for run in range(len(self.data.runs))]
        for _ in range(4):
            if not self._polish():
                break
        self.greedy(self.cover, most)

    def _polish(self) -> bool:
        """Refit each culprit, and put something better or nothing in its place; whether that changed
        anything."""
        changed = False
        for suspect in list(self.chosen):
            if suspect not in self.chosen:
                continue
            self.remove(suspect)
            best: tuple[float, Suspect, float, float] | None = None
            for other in self.near(suspect):
                if other in self.chosen:
                    continue
                saved, f, price = self.gain(other)
                if saved > 0.0 and (
                    best is None or saved > best[0] + 1e-6 or (saved > best[0] - 1e-6 and other == suspect)
                ):
                    best = (saved, other, f, price)
            if best is None:
                changed = True
            else:
                changed |= best[1] != suspect
                self.add(*best[1:])
        return changed

    def alternatives(self, suspect: Suspect) -> list[tuple[float, Suspect | None]]:
        """What else could stand in its place: (cost above the present one, substitute or None for
        nothing)."""
        now = self.total()
        kept = dict(self.chosen), dict(self.price)
        self.remove(suspect)
        without = self.total()
        ordinary = self._ordinary(suspect, kept[0][suspect]) - kept[1][suspect]
        found: list[tuple[float, Suspect | None]] = [(min(without - now, ordinary), None)]
        for other in self.near(suspect):
            if other != suspect and other not in self.chosen:
                saved = self.gain(other)[0]
                if without - saved - now < FAR:
                    found.append((without - saved - now, other))
        # Several smaller ones together.
        before = set(self.chosen)
        if self.greedy((o for o in self.near(suspect) if o != suspect and o.kind in LOCAL), 8) > 1:
            mixed = [s for s in self.chosen if s not in before]
            found.append((self.total() - now, mixed[0]))
            for one in mixed:
                self.remove(one)
        self.add(suspect, kept[0][suspect], kept[1][suspect])
        # The order of dictionaries is the order of reporting.
        self.chosen = {s: self.chosen[s] for s in kept[0]}
        self.price = {s: self.price[s] for s in kept[1]}
        return sorted(found, key=lambda pair: pair[0])


def _searches(data: _Data, least_effect: float) -> list[_Search]:
    """A few solutions that differ in what they take for healthy, the cheapest first.

    First the crowd below the nodes' best samples; then what the culprits of that leave uncovered; then the
    middle of everything, with a noise that covers it (on a noisy network a handful of culprits explains any
    few samples); then what lies above the widest gap, with the noise seen there.
    """

    def solved(bases: Mapping[Class, float], casual: float, healthy: Sequence[int] | None = None) -> _Search:
        """`healthy`: the samples whose deviations below the base are noise; None: as much as above it."""
        framed, above = _framed(data, bases)
        below = (
            _scale([-framed.d[s] for s in healthy if DEAD < framed.d[s] < 0.0])
            if healthy is not None
            else 0.0
        )
        search = _Search(framed, (above, max(above, below)), casual, least_effect)
        search.solve()
        return search

    members: dict[Class, list[int]] = {}
    for s, cls in enumerate(data.cls):
        if data.y[s] > -math.inf and not data.at_least[s]:
            members.setdefault(cls, []).append(s)
    crowd = {c: _mode(sorted(data.y[s] for s in mine), _start(data, mine)) for c, mine in members.items()}
    best = solved(crowd, CASUAL)
    casual = best.bad_moments()
    if not best.chosen and casual == CASUAL:
        return [best]
    everything = [s for mine in members.values() for s in mine]
    middle = {c: median(data.y[s] for s in mine) for c, mine in members.items()}
    found = [best, *(solved(bases, casual, everything) for bases in (crowd, middle))]
    edges = {c: _edge(sorted(data.y[s] for s in mine)) for c, mine in members.items()}
    upper = [s for s in everything if data.y[s] >= edges[data.cls[s]]]
    above = {c: median(data.y[s] for s in upper if data.cls[s] == c) for c in members}
    found.append(solved(above, casual, upper))
    found.sort(key=_Search.total)
    best = found[0]
    for _ in range(2):
        free = [s for s in everything if best.mu[s] == 0.0]
        bases = {
            c: median([data.y[s] for s in free if data.cls[s] == c] or [best.data.base[c]]) for c in members
        }
        again = solved(bases, best.bad_moments(), free)
        if again.total() >= best.total() - 1.0:
            break
        best = again
        found.insert(0, again)
    return found


def _report(searches: Sequence[_Search], unmeasured: tuple[str, ...], possible: int) -> Decision:
    search = searches[0]
    data = search.data
    rivals = [(other.total() - search.total(), other) for other in searches[1:]]
    culprits: list[Culprit] = []
    ties: list[Undecided] = []
    exonerated = _exonerated(data, search)
    good = {data.index[n] for n in exonerated}
    met = {(min(u, v), max(u, v)) for u, v in zip(data.u, data.v, strict=True)}
    for suspect, f in list(search.chosen.items()):
        # Which side of it is slow is another question than whether it is.
        found = [
            (cost, other)
            for cost, other in search.alternatives(suspect)
            if other is None or _entity(other) != _entity(suspect)
        ]
        # And whoever takes the noise for wider may not see it at all.
        found += [
            (gap, None)
            for gap, other in rivals
            if gap < FAR and _entity(suspect) not in {_entity(s) for s in other.chosen}
        ]
        weight = 1.0 + sum(math.exp(-max(cost, 0.0)) for cost, _ in found)
        confidence = 1.0 / weight
        if suspect.kind is Kind.PATH and len(search.cover[suspect]) < SURE_RUNS:
            confidence = min(confidence, 0.98)
        mine = _culprit(data, search, suspect, f, confidence)
        if confidence >= DECIDED:
            culprits.append(mine)
            continue
        others = [
            _culprit(data, search, other, None, math.exp(-max(cost, 0.0)) / weight)
            for cost, other in found
            if other is not None and cost < 3.0
        ]
        nothing = any(other is None and cost < 3.0 for cost, other in found)
        named = [suspect, *(other for cost, other in found if other is not None and cost < 3.0)]
        pair, reason = _settling(data, search, named, nothing, good, met)
        ties.append(
            Undecided(between=(mine, *others[: NAMED - 1]), maybe_passing=nothing, pair=pair, reason=reason)
        )
    for gap, other in rivals:
        if gap < 5.0:
            ties += _seen_otherwise(search, other, good, met)
    ties += _moments(data, search, good, met, ties)
    free = [
        s
        for s in range(len(data.y))
        if search.mu[s] == 0.0 and data.y[s] > -math.inf and not data.at_least[s]
    ]
    ratios = [data.y[s] - data.wanted[s] for s in free if data.wanted[s] < math.inf]
    ratio = math.exp(median(ratios)) if ratios else None
    whole = _uniform(data, ratio, len(ratios), len(free))
    if isinstance(whole, Culprit):
        culprits.append(whole)
    elif whole is not None:
        ties.append(whole)
    return Decision(
        culprits=tuple(sorted(_merged(culprits), key=lambda c: (c.factor, -c.confidence))),
        undecided=tuple(_distinct(ties)),
        exonerated=exonerated,
        unclear=_unclear(
            data, search, {*exonerated, *(n for tie in ties for c in tie.between for n in c.nodes)}
        ),
        unmeasured=unmeasured,
        healthy_gbyte_s=math.exp(median(data.y[s] for s in free)) if free else None,
        expected_ratio=ratio,
        noise=search.sigma,
        pairs_measured=len(met),
        pairs_possible=possible,
    )


def _entity(suspect: Suspect) -> tuple[object, ...]:
    return (suspect.kind, min(suspect.a, suspect.b), max(suspect.a, suspect.b), suspect.rail)


def _culprit(data: _Data, search: _Search, suspect: Suspect, f: float | None, confidence: float) -> Culprit:
    cover = search.cover[suspect]
    if f is None:
        fitted = search.fit(suspect)
        ds = sorted(data.d[s] for covered in cover.values() for s in covered)
        f = fitted[0] if fitted else ds[len(ds) // 2]
    held = [s for covered in cover.values() for s in covered if search.mu[s] >= f - 1e-9]
    held = [s for s in held if data.d[s] < f + 3.0 * search.sigma] or held
    rates = [math.exp(data.y[s]) for s in held]
    healthy = [math.exp(data.base[data.cls[s]] + data.excuse[s]) for s in held]
    ends = {n for s in held for n in (data.u[s], data.v[s])}
    leaf = suspect.a if suspect.kind in (Kind.LEAF, Kind.UPLINK, Kind.RAIL) and suspect.a >= 0 else None
    nodes: tuple[int, ...]
    if suspect.kind in (Kind.NODE, Kind.NIC):
        nodes = (suspect.a,)
    elif suspect.kind is Kind.PATH:
        nodes = (suspect.a, suspect.b)
    else:
        nodes = tuple(sorted(n for n in ends if leaf is None or data.leaf[n] == leaf))
    groups: dict[int, list[str]] = {}
    if suspect.kind is Kind.SPINE:
        for n, name in enumerate(data.names):
            if data.leaf[n] >= 0:
                groups.setdefault(data.leaf[n], []).append(name)
    rate = median(rates) if rates else None
    return Culprit(
        kind=suspect.kind,
        nodes=tuple(data.names[n] for n in nodes),
        side=suspect.side,
        rail=data.rails[suspect.rail] if suspect.rail >= 0 else None,
        leaf=data.leaf_names[leaf] if leaf is not None else None,
        factor=0.0 if not rate else math.exp(f),
        value_gbyte_s=rate or None,
        healthy_gbyte_s=median(healthy) if healthy else None,
        confidence=confidence,
        runs=len({data.run[s] for s in held}),
        partners=len(ends - set(nodes)),
        groups=tuple(tuple(members) for members in groups.values()),
    )


# TCP acknowledges every second segment at the latest (RFC 9293 section 3.8.6.3): 66 bytes for 2 x 1,514 on
# Ethernet. So a direction whose acknowledgements squeeze through a slow one is some 46 times faster than it,
# and more where the receiver merges segments; two faults of their own rarely lie so far apart.
ECHO = 20.0


def _merged(culprits: Sequence[Culprit]) -> list[Culprit]:
    """A node that is slow both out and in, at different speeds, is one culprit; so is a path."""
    merged: dict[tuple[object, ...], Culprit] = {}
    for one in culprits:
        ends = tuple(sorted(one.nodes)) if one.kind is Kind.PATH else one.nodes
        key = (one.kind, ends if one.kind in LOCAL else one.leaf, one.rail)
        other = merged.get(key)
        if other is None:
            merged[key] = one
            continue
        worse, milder = sorted((one, other), key=lambda culprit: culprit.factor)
        same = one.side == other.side and one.nodes == other.nodes
        if not same and 0 < worse.factor * ECHO <= milder.factor:
            merged[key] = worse  # the other direction waits for acknowledgements that travel this one
            continue
        merged[key] = replace(
            worse,
            side=worse.side if same else Side.BOTH,
            confidence=min(one.confidence, other.confidence),
            runs=max(one.runs, other.runs),
            partners=max(one.partners, other.partners),
        )
    return list(merged.values())


def _exonerated(data: _Data, search: _Search) -> tuple[str, ...]:
    """Nodes that nothing chosen is about, and that one run at full speed in every sample clears."""
    accused = {n for s in search.chosen if s.kind in LOCAL for n in (s.a, s.b)}
    fine: dict[int, None] = {}
    limit = -max(3.0 * search.sigma, -search.most)
    for run in data.runs:
        if all(data.d[s] > limit for s in run):
            fine[data.u[run[0]]] = None
            fine[data.v[run[0]]] = None
    return tuple(name for i, name in enumerate(data.names) if i in fine and i not in accused)


def _unclear(data: _Data, search: _Search, settled: set[str]) -> tuple[str, ...]:
    """Nodes that nobody accuses and nothing clears: somebody else explains every slow run of theirs."""
    accused = {n for s in search.chosen if s.kind in (Kind.NODE, Kind.NIC, Kind.PATH) for n in (s.a, s.b)}
    accused |= {
        n for n, leaf in enumerate(data.leaf) for s in search.chosen if s.kind in WIDE and s.a in (leaf, -1)
    }
    return tuple(name for i, name in enumerate(data.names) if name not in settled and i not in accused)


def _moments(
    data: _Data,
    search: _Search,
    good: set[int],
    met: set[tuple[int, int]],
    known: Sequence[Undecided],
) -> list[Undecided]:
    """Slow runs that are taken for a bad moment although a fault is not far behind."""
    # Pairs that are in a tie already are examined because of it.
    seen = {tuple(sorted(c.nodes)) for tie in known for c in tie.between}
    behind: list[tuple[float, int, Suspect]] = []
    for i, suspect in enumerate(search.cover):
        if suspect in search.chosen or suspect.kind not in LOCAL:
            continue
        saved = search.gain(suspect)[0]
        if saved > (-9.0 if any(search.is_moment(run) for run in search.cover[suspect]) else -5.0):
            behind.append((-saved, i, suspect))
    behind.sort()
    taken: set[int] = set()
    ties: list[Undecided] = []
    for _, _, suspect in behind:
        runs = search.cover[suspect].keys()
        if not taken.isdisjoint(runs):
            continue
        taken.update(runs)
        rivals = [suspect] + [
            s for _, _, s in behind if s != suspect and not search.cover[s].keys().isdisjoint(runs)
        ]
        names = tuple(_culprit(data, search, s, None, 0.0) for s in rivals[:NAMED])
        if tuple(sorted(names[0].nodes)) in seen:
            continue
        pair, reason = _settling(data, search, rivals, True, good, met)
        ties.append(Undecided(between=names, maybe_passing=True, pair=pair, reason=reason))
    return ties


def _seen_otherwise(
    search: _Search, rival: _Search, good: set[int], met: set[tuple[int, int]]
) -> list[Undecided]:
    """Culprits of a solution that is hardly dearer, and that this one takes for noise."""
    known = {_entity(s) for s in search.chosen}
    ties: list[Undecided] = []
    for suspect, f in rival.chosen.items():
        if suspect.kind in LOCAL and _entity(suspect) not in known:
            pair, reason = _settling(rival.data, rival, [suspect], True, good, met)
            culprit = _culprit(rival.data, rival, suspect, f, 0.0)
            ties.append(Undecided(between=(culprit,), maybe_passing=True, pair=pair, reason=reason))
    return ties


def _settling(
    data: _Data,
    search: _Search,
    rivals: Sequence[Suspect],
    nothing: bool,
    good: set[int],
    met: set[tuple[int, int]],
) -> tuple[tuple[str, str] | None, str]:
    """The pair on whose outcome the first two rivals disagree, with a partner that is known to be good."""

    def covers(suspect: Suspect, a: int, b: int) -> bool:
        if suspect.kind is Kind.PATH:
            return {suspect.a, suspect.b} == {a, b}
        if suspect.kind in (Kind.NODE, Kind.NIC):
            return suspect.a in (a, b)
        inside = (data.leaf[a] == suspect.a) + (data.leaf[b] == suspect.a)
        if suspect.kind is Kind.UPLINK:
            return inside == 1
        if suspect.kind is Kind.SPINE:
            return data.leaf[a] != data.leaf[b]
        return inside > 0 or suspect.a < 0

    first = rivals[0]
    second = next((r for r in rivals[1:] if (r.a, r.b) != (first.a, first.b) or r.kind != first.kind), None)
    ends = list(dict.fromkeys(n for r in rivals[:2] if r.kind in LOCAL for n in (r.a, r.b) if n >= 0))
    accused = {n for r in rivals if r.kind in LOCAL for n in (r.a, r.b)}
    if not ends:
        everyone = range(len(data.names))
        ends = ([n for n in everyone if data.leaf[n] == first.a] or list(everyone))[:8]
    options: list[tuple[bool, bool, int, int]] = []
    for a in ends:
        for b in [*ends, *sorted(good - accused)[:64], *range(min(len(data.names), 64))]:
            if a != b:
                options.append((b not in good or b in accused, (min(a, b), max(a, b)) in met, a, b))
    options.sort(key=lambda option: option[:2])
    for _, _, a, b in options:
        one = covers(first, a, b)
        if one if second is None else one != covers(second, a, b):
            return (data.names[a], data.names[b]), ""
    if nothing:
        for _, _, a, b in options:
            if covers(first, a, b):
                return (data.names[a], data.names[b]), ""
    return None, f"no pair among {len(data.names)} measured nodes tells them apart"


def _distinct(ties: Sequence[Undecided]) -> list[Undecided]:
    """One entry per set of suspects."""
    seen: dict[frozenset[tuple[object, ...]], Undecided] = {}
    for tie in ties:
        seen.setdefault(frozenset((c.kind, c.nodes, c.rail, c.leaf) for c in tie.between), tie)
    return list(seen.values())


def _uniform(data: _Data, ratio: float | None, told: int, free: int) -> Culprit | Undecided | None:
    """Everybody slow against the expectation. Two nodes have no peers, so with them nobody can be named."""
    if ratio is None or ratio >= UNIFORM_BELOW or 2 * told < free:
        return None
    # The expectation is soft: 5 % either way on a logarithmic scale.
    confidence = 1.0 / (1.0 + math.exp((math.log(ratio) - math.log(UNIFORM_BELOW)) / 0.05))
    whole = Culprit(
        kind=Kind.UNIFORM,
        nodes=tuple(data.names),
        factor=ratio,
        value_gbyte_s=math.exp(median(y for y in data.y if y > -math.inf)),
        healthy_gbyte_s=math.exp(median(w for w in data.wanted if w < math.inf)),
        confidence=confidence,
        runs=len(data.runs),
        partners=len(data.names),
    )
    if len(data.names) > 2:
        return whole
    a, b = data.names
    third = confidence / 3.0
    between = (
        replace(whole, kind=Kind.NODE, nodes=(a,), confidence=third),
        replace(whole, kind=Kind.NODE, nodes=(b,), confidence=third),
        replace(whole, kind=Kind.PATH, nodes=(a, b), confidence=third),
    )
    return Undecided(between=between, reason="two nodes have no third one to be compared with")
