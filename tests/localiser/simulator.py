"""A cluster that exists on paper: faults go in, pair samples come out, and what the localiser makes of them.

A sample is base x the slowest of everything that the pair meets x exp(noise x gauss). Factors of faults are
drawn between 0.2 and 0.7 of full speed. A path fault is put on a pair of the first rounds: a path that nobody
measures cannot be found by anybody, and three rounds of 64 nodes see 96 of 2016 pairs.
"""

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from netdoctor.facts.localisation import Decision, Kind, PairSample, Round, Side, Suspect
from netdoctor.localise import decode
from netdoctor.measure.schedule import MOST_ROUNDS, first_rounds, follow_up

BASE_GBYTE_S = 23.0
RAILS = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a suspect should look like. factor 0.0: nothing passes."""

    kind: Kind
    nodes: tuple[str, ...] = ()
    side: Side = Side.BOTH
    rail: str | None = None
    leaf: str | None = None
    factor: float = 0.5

    @property
    def name(self) -> tuple[object, ...]:
        ends: object = frozenset(self.nodes) if self.side is not Side.OUT else self.nodes
        narrow = self.kind in (Kind.NODE, Kind.NIC, Kind.PATH)
        return (self.kind, ends if narrow else None, self.side, self.rail, self.leaf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """nodes and leaves as the localiser gets them.

    missing: the share of runs that leave no sample; casual: the share that is slow for that moment only;
    directed: both directions timed apart.
    """

    nodes: tuple[str, ...]
    leaves: Mapping[str, str]
    noise: float = 0.05
    missing: float = 0.0
    casual: float = 0.0
    directed: bool = True
    rails: tuple[str | None, ...] = (None,)
    faults: tuple[Fault, ...] = ()
    expected_gbyte_s: float | None = None

    def factor(self, sender: str, receiver: str, rail: str | None) -> float:
        """Share of full speed from sender to receiver."""
        return min((f.factor for f in self.faults if self._hits(f, sender, receiver, rail)), default=1.0)

    def _hits(self, fault: Fault, sender: str, receiver: str, rail: str | None) -> bool:
        if fault.rail is not None and rail not in (fault.rail, None):
            return False
        ends = (self.leaves.get(sender), self.leaves.get(receiver))
        match fault.kind:
            case Kind.UNIFORM:
                return True
            case Kind.NODE | Kind.NIC:
                node = fault.nodes[0]
                return (sender == node and fault.side is not Side.IN) or (
                    receiver == node and fault.side is not Side.OUT
                )
            case Kind.PATH:
                return (sender, receiver) == fault.nodes or (
                    fault.side is not Side.OUT and (receiver, sender) == fault.nodes
                )
            case Kind.RAIL | Kind.LEAF:
                return fault.leaf is None or fault.leaf in ends
            case Kind.UPLINK:
                return ends[0] != ends[1] and fault.leaf in ends
            case Kind.SPINE:
                return ends[0] != ends[1]

    def measure(self, one: Round, rng: random.Random) -> list[PairSample]:
        """The samples of a round; runs that went missing have none."""
        samples: list[PairSample] = []
        for a, b in one.pairs:
            if rng.random() < self.missing:
                continue
            moment = rng.uniform(0.2, 0.8) if rng.random() < self.casual else 1.0
            for rail in self.rails:
                there, back = self.factor(a, b, rail), self.factor(b, a, rail)
                shares = {"out": there, "in": back} if self.directed else {"both": min(there, back)}
                for direction, share in shares.items():
                    rate = BASE_GBYTE_S * share * moment * math.exp(rng.gauss(0.0, self.noise))
                    samples.append(PairSample(a, b, rate or None, direction, rail, one.number))
        return samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a trial. right: exactly the injected faults, no more, no less. blamed: anybody."""

    faults: tuple[Fault, ...]
    decision: Decision
    rounds: int
    samples: int
    slowest_decode_s: float

    @property
    def right(self) -> bool:
        return {f.name for f in self.faults} == {named(c) for c in self.decision.suspects}

    @property
    def blamed(self) -> bool:
        return bool(self.decision.suspects)


def named(suspect: Suspect) -> tuple[object, ...]:
    return Fault(
        kind=suspect.kind, nodes=suspect.nodes, side=suspect.side, rail=suspect.rail, leaf=suspect.leaf
    ).name


def cluster(hosts: int, **more: object) -> Cluster:
    """Leaves of a quarter of the hosts, 4 to 32."""
    nodes = tuple(f"n{i:04d}" for i in range(hosts))
    size = min(max(hosts // 4, 4), 32)
    return replace(
        Cluster(nodes=nodes, leaves={n: f"leaf{i // size}" for i, n in enumerate(nodes)}),
        **more,  # type: ignore[arg-type]  # passed on as given
    )


def run(
    site: Cluster,
    seed: int,
    *,
    at_most: int = MOST_ROUNDS,
    faults: Callable[[Sequence[Round], random.Random], Sequence[Fault]] | None = None,
) -> Outcome:
    """First rounds, decode, follow-ups until decided. `faults` may depend on the first rounds."""
    rng = random.Random(seed)
    rounds = list(first_rounds(site.nodes, site.leaves, seed=seed))
    if faults is not None:
        injected = faults(rounds, rng)
        if not site.directed:
            injected = [replace(f, side=Side.EITHER) if f.nodes else f for f in injected]
        site = replace(site, faults=tuple(injected))
    samples = [s for one in rounds for s in site.measure(one, rng)]
    expected = None
    if site.expected_gbyte_s is not None:
        expected = {(s.src, s.dst): site.expected_gbyte_s for s in samples}
    slowest_s = 0.0
    while True:
        started = time.process_time()
        decision = decode(samples, nodes=site.nodes, leaves=site.leaves, expected_gbyte_s=expected)
        slowest_s = max(slowest_s, time.process_time() - started)
        more = follow_up(
            decision,
            site.nodes,
            rounds,
            at_most=at_most,
            leaves=site.leaves,
            doubtful=missing(rounds, samples),
        )
        if more is None:
            return Outcome(
                faults=site.faults,
                decision=decision,
                rounds=len(rounds),
                samples=len(samples),
                slowest_decode_s=slowest_s,
            )
        rounds.append(more)
        samples += site.measure(more, rng)
        if expected is not None:
            expected |= {pair: expected[next(iter(expected))] for pair in more.pairs}


def missing(rounds: Iterable[Round], samples: Iterable[PairSample]) -> list[tuple[str, str]]:
    """Pairs that were scheduled and have no sample."""
    seen = {frozenset((s.src, s.dst)) for s in samples}
    return [pair for one in rounds for pair in one.pairs if frozenset(pair) not in seen]


# -- kinds of trouble --------------------------------------------------------------------------------------

Injector = Callable[[Cluster, Sequence[Round], random.Random], list[Fault]]


def _speed(rng: random.Random) -> float:
    return rng.uniform(0.2, 0.7)


def _node(side: Side) -> Injector:
    def inject(site: Cluster, _rounds: Sequence[Round], rng: random.Random) -> list[Fault]:
        return [Fault(kind=Kind.NODE, nodes=(rng.choice(site.nodes),), side=side, factor=_speed(rng))]

    return inject


def _path(side: Side, *, dead: bool = False) -> Injector:
    def inject(_site: Cluster, rounds: Sequence[Round], rng: random.Random) -> list[Fault]:
        a, b = rng.choice([pair for one in rounds for pair in one.pairs])
        ends = (a, b) if rng.random() < 0.5 else (b, a)
        return [Fault(kind=Kind.PATH, nodes=ends, side=side, factor=0.0 if dead else _speed(rng))]

    return inject


def _nic(site: Cluster, _rounds: Sequence[Round], rng: random.Random) -> list[Fault]:
    node, rail = rng.choice(site.nodes), rng.choice(RAILS)
    return [Fault(kind=Kind.NIC, nodes=(node,), rail=rail, factor=_speed(rng))]


def _rail(site: Cluster, _rounds: Sequence[Round], rng: random.Random) -> list[Fault]:
    leaf = site.leaves[rng.choice(site.nodes)]
    return [Fault(kind=Kind.RAIL, leaf=leaf, rail=rng.choice(RAILS), factor=_speed(rng))]


def _uplink(site: Cluster, _rounds: Sequence[Round], rng: random.Random) -> list[Fault]:
    return [Fault(kind=Kind.UPLINK, leaf=site.leaves[rng.choice(site.nodes)], factor=_speed(rng))]


def _two_nodes(site: Cluster, _rounds: Sequence[Round], rng: random.Random) -> list[Fault]:
    return [Fault(kind=Kind.NODE, nodes=(n,), factor=_speed(rng)) for n in rng.sample(site.nodes, 2)]


def _node_and_path(site: Cluster, rounds: Sequence[Round], rng: random.Random) -> list[Fault]:
    # Not a path of the slow node itself: behind a slower node nothing can be seen of it.
    path = _path(Side.BOTH)(site, rounds, rng)[0]
    node = rng.choice([n for n in site.nodes if n not in path.nodes])
    return [path, Fault(kind=Kind.NODE, nodes=(node,), factor=_speed(rng))]


def _uniform(_site: Cluster, _rounds: Sequence[Round], rng: random.Random) -> list[Fault]:
    return [Fault(kind=Kind.UNIFORM, factor=_speed(rng))]


def _nothing(_site: Cluster, _rounds: Sequence[Round], _rng: random.Random) -> list[Fault]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A row of the table: what is injected, and into which kind of cluster."""

    inject: Injector
    rails: bool = False
    expected: bool = False
    casual: float = 0.0
    together: int = 1


TROUBLES: Mapping[str, Trouble] = {
    "slow node": Trouble(inject=_node(Side.BOTH)),
    "slow node, out": Trouble(inject=_node(Side.OUT)),
    "slow node, in": Trouble(inject=_node(Side.IN)),
    "slow path": Trouble(inject=_path(Side.BOTH)),
    "slow path, one way": Trouble(inject=_path(Side.OUT)),
    "dead path": Trouble(inject=_path(Side.BOTH, dead=True)),
    "slow NIC of a node": Trouble(inject=_nic, rails=True),
    "slow rail of a leaf": Trouble(inject=_rail, rails=True),
    "slow uplink of a leaf": Trouble(inject=_uplink),
    "two slow nodes": Trouble(inject=_two_nodes, together=2),
    "slow node + slow path": Trouble(inject=_node_and_path, together=2),
    "uniform slowness": Trouble(inject=_uniform, expected=True),
    "none": Trouble(inject=_nothing, together=0),
    "none, four rails": Trouble(inject=_nothing, rails=True, together=0),
    "none, expectation given": Trouble(inject=_nothing, expected=True, together=0),
    "none, 2 % bad moments": Trouble(inject=_nothing, casual=0.02, together=0),
}


def trial(
    trouble: Trouble, hosts: int, noise: float, seed: int, *, missing: float = 0.0, directed: bool = True
) -> Outcome:
    site = cluster(
        hosts,
        noise=noise,
        missing=missing,
        casual=trouble.casual,
        directed=directed,
        rails=RAILS if trouble.rails else (None,),
        expected_gbyte_s=BASE_GBYTE_S if trouble.expected else None,
    )
    return run(site, seed, faults=lambda rounds, rng: trouble.inject(site, rounds, rng))
