"""The rung that breaks, and the node that it is, on clusters made up at random: with a slow node, one that
does not start, a fabric that is full from some size on, and noise."""

import random
from collections.abc import Sequence

import pytest

from netdoctor.trial.judging import State
from netdoctor.trial.ladder import Ladder, Rung, climb, sizes


def test_sizes() -> None:
    assert [sizes(n) for n in (1, 2, 3, 4, 6, 8)] == [
        [1], [1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 4, 6], [1, 2, 4, 8],
    ]  # fmt: skip


class Cluster:
    """Nodes of which one may be slow or dead over the network, and whose fabric may be full."""

    def __init__(self, count: int, seed: int, *, slow: str = "", dead: str = "", full: int = 0) -> None:
        self.nodes = [f"n{i}" for i in range(count)]
        self.chance = random.Random(seed)
        self.slow, self.dead, self.full = slow, dead, full
        self.runs = 0

    def measure(self, nodes: Sequence[str]) -> Rung:
        self.runs += 1
        rate = 10.0 * self.chance.uniform(0.97, 1.0)
        if self.slow in nodes and len(nodes) > 1:
            rate *= 0.6
        if self.full and len(nodes) >= self.full:
            rate *= 0.5
        if self.dead in nodes and len(nodes) > 1:
            return Rung(nodes=tuple(nodes), state=State.FAILED, ranks=len(nodes))
        return Rung(nodes=tuple(nodes), state=State.STARTED, rate=rate, ranks=len(nodes))

    def climb(self) -> Ladder:
        return climb(self.nodes, self.measure)


@pytest.mark.parametrize("seed", range(40))
def test_a_healthy_cluster_is_climbed(seed: int) -> None:
    cluster = Cluster(1 + seed, seed)
    ladder = cluster.climb()
    assert (ladder.from_nodes, ladder.nodes, ladder.why) == (None, (), "")
    assert len(ladder.rungs[-1].nodes) == 1 + seed
    assert cluster.runs == len(sizes(1 + seed))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("fault", ["slow", "dead"])
def test_the_node_is_named(seed: int, fault: str) -> None:
    chance = random.Random(seed)
    count = chance.randint(3, 64)
    bad = f"n{chance.randrange(2, count)}"
    cluster = Cluster(count, seed, **{fault: bad})
    ladder = cluster.climb()
    assert ladder.nodes == (bad,)
    assert ladder.why.startswith(
        f"{bad} {'is slow' if fault == 'slow' else 'does not start'} together with n0"
    )
    assert cluster.runs <= 2 * len(sizes(count)) + 7


@pytest.mark.parametrize("seed", range(40))
def test_a_fabric_that_is_full_is_no_nodes_fault(seed: int) -> None:
    chance = random.Random(seed)
    full = chance.choice([4, 8, 16])
    ladder = Cluster(32, seed, full=full).climb()
    assert (ladder.from_nodes, ladder.nodes) == (full, ())
    assert ladder.why == (
        f"{full} nodes together are slow, and none of the new ones is so with n0 alone: what they share, as "
        "the fabric"
    )


def test_one_of_two_nodes_cannot_be_told_from_the_other() -> None:
    ladder = Cluster(2, 0, slow="n1").climb()
    assert ladder.from_nodes == 2
    assert ladder.nodes == ("n0", "n1")


@pytest.mark.parametrize("bad", ["n0", "n1"])
@pytest.mark.parametrize("fault", ["slow", "dead"])
def test_a_third_node_tells_the_first_two_apart(bad: str, fault: str) -> None:
    ladder = Cluster(8, 0, **{fault: bad}).climb()
    assert (ladder.from_nodes, ladder.nodes) == (2, (bad,))


def test_a_run_that_is_slow_by_chance_is_made_again() -> None:
    rates = iter([10.0, 5.0, 9.9])

    def measure(nodes: Sequence[str]) -> Rung:
        return Rung(nodes=tuple(nodes), state=State.STARTED, rate=next(rates), ranks=len(nodes))

    assert climb(["a", "b"], measure).from_nodes is None


def test_an_interrupt_ends_the_climb() -> None:
    def measure(nodes: Sequence[str]) -> Rung:
        return Rung(nodes=tuple(nodes), state=State.INTERRUPTED)

    assert climb(["a", "b"], measure).why == "interrupted"
