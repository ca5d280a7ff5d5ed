"""The rung that is slow, and what it is, on clusters made up at random."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from netdoctor.facts.bandwidth import LadderRun
from netdoctor.localise.ladder import Blame, Climb, climb, sizes


def test_sizes() -> None:
    assert [sizes(n) for n in (1, 2, 3, 4, 6, 8)] == [[], [2], [2, 3], [2, 4], [2, 4, 6], [2, 4, 8]]


@dataclass
class Cluster:
    """slow: nodes that are slow, each with its share; path: a pair that is slow alone; full: how many nodes
    what all share carries; runs: so many may be measured."""

    count: int
    chance: random.Random
    slow: dict[str, float] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    full: float = 1e9
    runs: int = 1000
    measured: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def nodes(self) -> list[str]:
        return [f"n{i}" for i in range(self.count)]

    def measure(self, nodes: Sequence[str]) -> LadderRun | None:
        if len(self.measured) >= self.runs:
            return None
        self.measured.append(tuple(nodes))
        rate = min([1.0, *(self.slow.get(node, 1.0) for node in nodes)])
        if {*self.path} <= {*nodes} and self.path:
            rate = min(rate, 0.5)
        rate = min(rate, self.full / len(nodes))
        if len(nodes) == 3:
            rate *= self.chance.uniform(0.96, 1.0)
        rate *= self.chance.lognormvariate(0, 0.02)
        return LadderRun(
            nodes=tuple(nodes), step_s=1 / rate, least_s=1 / rate, gbyte_s=rate * 0.98, best_gbyte_s=rate
        )

    def climb(self) -> Climb:
        return climb(self.nodes, self.measure)


def of(seed: int, least: int = 2) -> Cluster:
    chance = random.Random(seed)
    return Cluster(count=chance.randint(least, 64), chance=chance)


@pytest.mark.parametrize("seed", range(200))
def test_a_healthy_cluster_is_climbed(seed: int) -> None:
    cluster = of(seed)
    found = cluster.climb()
    assert (found.blame, found.from_nodes, found.nodes) == (Blame.NOTHING, 0, ())
    assert [len(run.nodes) for run in found.rungs] == sizes(cluster.count)


@pytest.mark.parametrize("seed", range(200))
def test_a_slow_node_is_named(seed: int) -> None:
    cluster = of(seed, 3)
    bad = cluster.chance.choice(cluster.nodes)
    cluster.slow = {bad: cluster.chance.uniform(0.1, 0.75)}
    found = cluster.climb()
    assert (found.blame, found.nodes) == (Blame.NODE, (bad,))
    size = next(s for s in sizes(cluster.count) if bad in cluster.nodes[:s])
    # What stands for the rung below the first may be slow itself.
    assert found.from_nodes == (2 if bad in cluster.nodes[: min(cluster.count, 4)] else size)
    assert len(cluster.measured) <= 6 * len(sizes(cluster.count)) + 8


@pytest.mark.parametrize("seed", range(100))
def test_what_all_share_is_no_node_s_fault(seed: int) -> None:
    chance = random.Random(seed)
    full = chance.choice([4, 8, 16])
    cluster = Cluster(count=32, chance=chance, full=chance.uniform(0.63, 0.8) * full)
    found = cluster.climb()
    assert (found.blame, found.from_nodes, found.nodes) == (Blame.SHARED, full, ())


def test_one_fast_step_does_not_make_a_rung_fast() -> None:
    """A fabric that limits what passes lets some of it through at once: one step of many is fast."""

    class Bursty(Cluster):
        def measure(self, nodes: Sequence[str]) -> LadderRun | None:
            run = super().measure(nodes)
            return replace(run, best_gbyte_s=1.0) if run is not None else None

    for seed in range(50):
        found = Bursty(count=8, chance=random.Random(seed), full=2.0).climb()
        assert (found.blame, found.from_nodes) == (Blame.SHARED, 4)


@pytest.mark.parametrize("seed", range(100))
def test_a_slow_path_is_no_node_s_fault(seed: int) -> None:
    cluster = of(seed, 4)
    a, b = cluster.path = tuple(cluster.chance.sample(cluster.nodes, 2))
    found = cluster.climb()
    assert found.blame in (Blame.PATH, Blame.SHARED)
    assert found.blame is Blame.SHARED or {a, b} <= {*found.nodes}


def test_of_two_nodes_nothing_is_compared() -> None:
    found = Cluster(count=2, chance=random.Random(0), slow={"n1": 0.2}).climb()
    assert (found.blame, len(found.rungs)) == (Blame.NOTHING, 1)


def test_time_that_is_over_leaves_it_open() -> None:
    for runs in range(12):
        cluster = Cluster(count=16, chance=random.Random(1), slow={"n13": 0.3}, runs=runs)
        found = cluster.climb()
        assert found.blame in (Blame.OPEN, Blame.NODE)
        assert len(found.rungs) + len(found.searched) == min(runs, len(cluster.measured))
    whole = Cluster(count=16, chance=random.Random(1), slow={"n13": 0.3})
    assert whole.climb().nodes == ("n13",)


def test_a_recorded_climb_is_judged_by_climbing_it_again() -> None:
    cluster = Cluster(count=16, chance=random.Random(3), slow={"n9": 0.5})
    runs: list[LadderRun] = []

    def measure(nodes: tuple[str, ...]) -> LadderRun | None:
        run = cluster.measure(nodes)
        if run is not None:
            runs.append(run)
        return run

    first = climb(cluster.nodes, measure)
    rest = iter(runs)
    assert climb(cluster.nodes, lambda nodes: next(rest, None)) == first
