"""From solutions of the search to suspects with confidence, and to ties with the pair that settles them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from netdoctor.facts.localisation import Decision, Kind, PairSample, Side, Suspect, Undecided
from netdoctor.localise.hypotheses import LOCAL, WIDE, Hypothesis
from netdoctor.localise.noise import LEAST_NOISE
from netdoctor.localise.samples import Data, read
from netdoctor.localise.search import FAR, Search, searches

# An expectation derived from hardware is right within some ten per cent, see measure/expectation.py.
UNIFORM_BELOW = 0.8
# Below 90 % of its peers a node is worth a word (NVIDIA/nccl-tests gates at 0.9, ClusterKit at 0.93).
LEAST_EFFECT = 0.9
DECIDED = 0.75
# A path rests on visits of one pair, and what disturbs it now may last into the next round: certain from here
# on.
SURE_RUNS = 3
# So many hypotheses of one tie are listed.
LISTED = 4


def decode(
    samples: Iterable[PairSample],
    *,
    nodes: Sequence[str] = (),
    leaves: Mapping[str, str] | None = None,
    expected_gbyte_s: Mapping[tuple[str, str], float] | None = None,
    of_each_rail: bool = False,
    least_effect: float = LEAST_EFFECT,
    least_noise: float = LEAST_NOISE,
) -> Decision:
    """The suspects behind slow samples, with confidence, and what is still tied.

    nodes: those that should have been measured; ones without a sample are listed as unmeasured. leaves: node
    to leaf, for nodes where it is known. expected_gbyte_s: per pair, in either order; pairs may be missing,
    and are then judged by their peers alone; of all rails together, or of_each_rail. least_noise: relative
    width of the noise, where more is known of it than the samples show. Samples with a rate that is not a
    number, negative, or of a node with itself are ignored. No sample at all gives an empty decision, which is
    not a clean bill of health: see `unmeasured`.
    """
    data = read(samples, leaves or {}, expected_gbyte_s or {}, of_each_rail)
    data.least_noise = max(least_noise, LEAST_NOISE)
    listed = list(dict.fromkeys([*nodes, *data.names]))
    unmeasured = tuple(n for n in listed if n not in data.index)
    possible = len(listed) * (len(listed) - 1) // 2
    if not data.y:
        return Decision(unmeasured=unmeasured, pairs_possible=possible)
    return _report(searches(data, least_effect), unmeasured, possible)


@dataclass(frozen=True, slots=True)
class _Partners:
    """Nodes and pairs by number."""

    good: set[int]  # exonerated nodes
    met: set[tuple[int, int]]  # pairs measured, the lower number first


def _report(searches: Sequence[Search], unmeasured: tuple[str, ...], possible: int) -> Decision:
    search = searches[0]
    data = search.data
    rivals = [(other.total() - search.total(), other) for other in searches[1:]]
    exonerated = _exonerated(search)
    met = {(min(u, v), max(u, v)) for u, v in zip(data.u, data.v, strict=True)}
    partners = _Partners({data.index[n] for n in exonerated}, met)
    found = [_weighed(search, one, f, rivals, partners) for one, (f, _) in list(search.now.chosen.items())]
    suspects = [one for one in found if isinstance(one, Suspect)]
    ties = [one for one in found if isinstance(one, Undecided)]
    for gap, other in rivals:
        if gap < 5.0:
            ties += _of_rival(search, other, partners)
    ties += _moments(search, partners, ties)
    free = [
        s
        for s in range(len(data.y))
        if search.now.mu[s] == 0.0 and data.y[s] > -math.inf and not data.at_least[s]
    ]
    ratios = [data.y[s] - data.expected[s] for s in free if data.expected[s] < math.inf]
    ratio = math.exp(median(ratios)) if ratios else None
    uniform = _uniform(data, ratio) if 2 * len(ratios) >= len(free) else None
    if isinstance(uniform, Suspect):
        suspects.append(uniform)
    elif uniform is not None:
        ties.append(uniform)
    return Decision(
        suspects=tuple(sorted(_merged(suspects), key=lambda c: (c.factor, -c.confidence))),
        undecided=tuple(_distinct(ties)),
        exonerated=exonerated,
        unclear=_unclear(search, {*exonerated, *(n for tie in ties for c in tie.between for n in c.nodes)}),
        unmeasured=unmeasured,
        healthy_gbyte_s=math.exp(median(data.y[s] for s in free)) if free else None,
        expected_ratio=ratio,
        noise=search.sigma,
        pairs_measured=len(met),
        pairs_possible=possible,
    )


def _weighed(
    search: Search,
    hypothesis: Hypothesis,
    f: float,
    rivals: Sequence[tuple[float, Search]],
    partners: _Partners,
) -> Suspect | Undecided:
    """A hypothesis of the best solution against what else could stand in its place."""
    # Which side of it is slow is another question than whether it is.
    found = [
        (cost, other)
        for cost, other in search.alternatives(hypothesis)
        if other is None or other.entity != hypothesis.entity
    ]
    # And whoever takes the noise for wider may not see it at all.
    found += [
        (gap, None)
        for gap, other in rivals
        if gap < FAR and hypothesis.entity not in {s.entity for s in other.now.chosen}
    ]
    weight = 1.0 + sum(math.exp(-max(cost, 0.0)) for cost, _ in found)
    confidence = 1.0 / weight
    if hypothesis.kind is Kind.PATH and len(search.cover[hypothesis]) < SURE_RUNS:
        confidence = min(confidence, 0.98)
    suspect = _suspect(search, hypothesis, f, confidence)
    if confidence >= DECIDED:
        return suspect
    near = [(cost, other) for cost, other in found if other is not None and cost < 3.0]
    others = [_suspect(search, o, None, math.exp(-max(cost, 0.0)) / weight) for cost, o in near]
    nothing = any(other is None and cost < 3.0 for cost, other in found)
    between = (suspect, *others[: LISTED - 1])
    return _tie(search, [hypothesis, *(other for _, other in near)], between, nothing, partners)


def _tie(
    search: Search,
    rivals: Sequence[Hypothesis],
    between: tuple[Suspect, ...],
    nothing: bool,
    partners: _Partners,
) -> Undecided:
    pair, reason = _settling(search, rivals, nothing, partners)
    return Undecided(between=between, maybe_passing=nothing, pair=pair, reason=reason)


def _suspect(search: Search, hypothesis: Hypothesis, f: float | None, confidence: float) -> Suspect:
    data, cover = search.data, search.cover[hypothesis]
    if f is None:
        fitted = search.fit(hypothesis)
        ds = sorted(data.d[s] for covered in cover.values() for s in covered)
        f = fitted[0] if fitted else ds[len(ds) // 2]
    slow = [s for covered in cover.values() for s in covered if search.now.mu[s] >= f - 1e-9]
    slow = [s for s in slow if data.d[s] < f + 3.0 * search.sigma] or slow
    rates = [math.exp(data.y[s]) for s in slow]
    healthy = [math.exp(data.base[data.cls[s]] + data.excuse[s]) for s in slow]
    ends = {n for s in slow for n in (data.u[s], data.v[s])}
    leaf = (
        hypothesis.a if hypothesis.kind in (Kind.LEAF, Kind.UPLINK, Kind.RAIL) and hypothesis.a >= 0 else None
    )
    nodes: tuple[int, ...]
    if hypothesis.kind in (Kind.NODE, Kind.NIC):
        nodes = (hypothesis.a,)
    elif hypothesis.kind is Kind.PATH:
        nodes = (hypothesis.a, hypothesis.b)
    else:
        nodes = tuple(sorted(n for n in ends if leaf is None or data.leaf[n] == leaf))
    groups: dict[int, list[str]] = {}
    if hypothesis.kind is Kind.SPINE:
        for n, name in enumerate(data.names):
            if data.leaf[n] >= 0:
                groups.setdefault(data.leaf[n], []).append(name)
    rate = median(rates) if rates else None
    return Suspect(
        kind=hypothesis.kind,
        nodes=tuple(data.names[n] for n in nodes),
        side=hypothesis.side,
        rail=data.rails[hypothesis.rail] if hypothesis.rail >= 0 else None,
        leaf=data.leaf_names[leaf] if leaf is not None else None,
        factor=0.0 if not rate else math.exp(f),
        value_gbyte_s=rate or None,
        healthy_gbyte_s=median(healthy) if healthy else None,
        confidence=confidence,
        runs=len({data.run[s] for s in slow}),
        partners=len(ends - set(nodes)),
        groups=tuple(tuple(members) for members in groups.values()),
    )


# TCP acknowledges every second segment at the latest (RFC 9293 section 3.8.6.3): 66 bytes for 2 x 1,514 on
# Ethernet. So a direction whose acknowledgements squeeze through a slow one is some 46 times faster than it,
# and more where the receiver merges segments; two faults of their own rarely lie so far apart.
ECHO = 20.0


def _merged(suspects: Sequence[Suspect]) -> list[Suspect]:
    """A node that is slow both out and in, at different speeds, is one suspect; so is a path."""
    merged: dict[tuple[object, ...], Suspect] = {}
    for one in suspects:
        ends = tuple(sorted(one.nodes)) if one.kind is Kind.PATH else one.nodes
        key = (one.kind, ends if one.kind in LOCAL else one.leaf, one.rail)
        other = merged.get(key)
        if other is None:
            merged[key] = one
            continue
        worse, milder = sorted((one, other), key=lambda suspect: suspect.factor)
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


def _exonerated(search: Search) -> tuple[str, ...]:
    """Nodes that nothing chosen is about, and that one run at full speed in every sample clears."""
    data = search.data
    accused = {n for s in search.now.chosen if s.kind in LOCAL for n in (s.a, s.b)}
    fine: dict[int, None] = {}
    limit = -max(3.0 * search.sigma, -search.most)
    for run in data.runs:
        if all(data.d[s] > limit for s in run):
            fine[data.u[run[0]]] = None
            fine[data.v[run[0]]] = None
    return tuple(name for i, name in enumerate(data.names) if i in fine and i not in accused)


def _unclear(search: Search, settled: set[str]) -> tuple[str, ...]:
    """Nodes that nobody accuses and nothing clears: somebody else explains every slow run of theirs."""
    data, chosen = search.data, search.now.chosen
    accused = {n for s in chosen if s.kind in LOCAL for n in (s.a, s.b)}
    accused |= {n for n, leaf in enumerate(data.leaf) for s in chosen if s.kind in WIDE and s.a in (leaf, -1)}
    return tuple(name for i, name in enumerate(data.names) if name not in settled and i not in accused)


def _moments(search: Search, partners: _Partners, known: Sequence[Undecided]) -> list[Undecided]:
    """Slow runs that are taken for a bad moment although a fault is not far behind."""
    # Pairs that are in a tie already are examined because of it.
    examined = {tuple(sorted(c.nodes)) for tie in known for c in tie.between}
    behind: list[tuple[float, int, Hypothesis]] = []
    for i, hypothesis in enumerate(search.cover):
        if hypothesis in search.now.chosen or hypothesis.kind not in LOCAL:
            continue
        saved = search.gain(hypothesis)[0]
        if saved > (-9.0 if any(search.is_moment(run) for run in search.cover[hypothesis]) else -5.0):
            behind.append((-saved, i, hypothesis))
    behind.sort()
    explained: set[int] = set()
    ties: list[Undecided] = []
    for _, _, hypothesis in behind:
        runs = search.cover[hypothesis].keys()
        if not explained.isdisjoint(runs):
            continue
        explained.update(runs)
        rivals = [hypothesis] + [
            s for _, _, s in behind if s != hypothesis and not search.cover[s].keys().isdisjoint(runs)
        ]
        between = tuple(_suspect(search, s, None, 0.0) for s in rivals[:LISTED])
        if tuple(sorted(between[0].nodes)) not in examined:
            ties.append(_tie(search, rivals, between, True, partners))
    return ties


def _of_rival(search: Search, rival: Search, partners: _Partners) -> list[Undecided]:
    """Suspects of a solution that is hardly dearer, and that this one takes for noise."""
    known = {s.entity for s in search.now.chosen}
    return [
        _tie(rival, [hypothesis], (_suspect(rival, hypothesis, f, 0.0),), True, partners)
        for hypothesis, (f, _) in rival.now.chosen.items()
        if hypothesis.kind in LOCAL and hypothesis.entity not in known
    ]


def _settling(
    search: Search, rivals: Sequence[Hypothesis], nothing: bool, partners: _Partners
) -> tuple[tuple[str, str] | None, str]:
    """The pair on whose outcome the first two rivals disagree, with a partner that is known to be good."""
    data, good, met = search.data, partners.good, partners.met

    def covers(hypothesis: Hypothesis, a: int, b: int) -> bool:
        if hypothesis.kind is Kind.PATH:
            return {hypothesis.a, hypothesis.b} == {a, b}
        if hypothesis.kind in (Kind.NODE, Kind.NIC):
            return hypothesis.a in (a, b)
        inside = (data.leaf[a] == hypothesis.a) + (data.leaf[b] == hypothesis.a)
        if hypothesis.kind is Kind.UPLINK:
            return inside == 1
        if hypothesis.kind is Kind.SPINE:
            return data.leaf[a] != data.leaf[b]
        return inside > 0 or hypothesis.a < 0

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
    """One entry per set of hypotheses."""
    known: dict[frozenset[tuple[object, ...]], Undecided] = {}
    for tie in ties:
        known.setdefault(frozenset((c.kind, c.nodes, c.rail, c.leaf) for c in tie.between), tie)
    return list(known.values())


def _uniform(data: Data, ratio: float | None) -> Suspect | Undecided | None:
    """Everybody slow against the expectation. Two nodes have no peers, so with them nobody can be named."""
    if ratio is None or ratio >= UNIFORM_BELOW:
        return None
    # The expectation is soft: 5 % either way on a logarithmic scale.
    confidence = 1.0 / (1.0 + math.exp((math.log(ratio) - math.log(UNIFORM_BELOW)) / 0.05))
    everybody = Suspect(
        kind=Kind.UNIFORM,
        nodes=tuple(data.names),
        factor=ratio,
        value_gbyte_s=math.exp(median(y for y in data.y if y > -math.inf)),
        healthy_gbyte_s=math.exp(median(w for w in data.expected if w < math.inf)),
        confidence=confidence,
        runs=len(data.runs),
        partners=len(data.names),
    )
    if len(data.names) > 2:
        return everybody
    a, b = data.names
    third = confidence / 3.0
    between = (
        replace(everybody, kind=Kind.NODE, nodes=(a,), confidence=third),
        replace(everybody, kind=Kind.NODE, nodes=(b,), confidence=third),
        replace(everybody, kind=Kind.PATH, nodes=(a, b), confidence=third),
    )
    return Undecided(between=between, reason="two nodes have no third one to be compared with")
