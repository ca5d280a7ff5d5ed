"""Groups as Megatron-LM makes them, and what is made of their rates on random clusters."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from netdoctor.facts.bandwidth import GroupRate, SizeRow
from netdoctor.localise.groups import NAMES, Blame, Slow, judge, layout, local_numbers, parse

RECORDED = (Path(__file__).parent / "megatron_groups.jsonl").read_text().splitlines()


@pytest.mark.parametrize("line", RECORDED)
def test_the_groups_are_those_of_megatron(line: str) -> None:
    one = json.loads(line)
    found = layout(one["world"], {name: one[name] for name in NAMES if name in one})
    for kind, groups in one["groups"].items():
        ours = found[kind].groups(one["world"]) if kind in found else []
        theirs = [tuple(group) for group in groups if len(group) > 1]
        assert sorted(ours) == sorted(theirs), kind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not one of tp=N"),
        ("tp=0", "'tp=0' is not one of"),
        ("tp=2,pp", "'pp' is not one of"),
        ("sp=2", "'sp=2' is not one of"),
        ("tp=2,tp=2", "tp is given twice"),
        ("tp=99999", "'tp=99999' is not one of"),
    ],
)
def test_a_layout_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("world", "text", "message"),
    [
        (6, "tp=4", "tp=4 does not divide 6 ranks"),
        (8, "tp=2,pp=3", "tp=2 x pp=3 does not divide 8 ranks"),
        (8, "tp=2,ep=8", "ep=8 does not divide 8 ranks"),
        (8, "tp=2,dp=2", "dp=2 does not fit: 8 ranks leave dp=4"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(world: int, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layout(world, parse(text))


def row(rate: float) -> SizeRow:
    return SizeRow(
        size_bytes=1 << 20, median_s=1, least_s=1, most_s=1, batches=10, iterations=1,
        algbw_gbyte_s=rate, busbw_gbyte_s=rate,
    )  # fmt: skip


class Cluster:
    """Random nodes and a random layout; a group has the rate of its slowest link, which wavers."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.each = chance.choice([1, 1, 2, 4, 8])
        self.nodes = [f"n{i:02d}" for i in range(chance.choice([4, 6, 8, 16]))]
        self.world = [node for node in self.nodes for _ in range(self.each)]
        self.kinds = self.divide()

    def divide(self) -> dict[str, list[tuple[int, ...]]]:
        while True:
            sizes = {name: self.chance.choice([1, 2, 2, 4]) for name in ("tp", "pp", "ep")}
            try:
                kinds = layout(len(self.world), sizes)
            except ValueError:
                continue
            return {kind: division.groups(len(self.world)) for kind, division in kinds.items()}

    def spans(self, ranks: tuple[int, ...]) -> bool:
        return len({self.world[rank] for rank in ranks}) > 1

    def rates(self, slow: Callable[[tuple[int, ...]], bool]) -> list[GroupRate]:
        found = []
        for kind, groups in self.kinds.items():
            for ranks in groups:
                healthy = (10.0 if self.spans(ranks) else 100.0) * (0.5 if slow(ranks) else 1.0)
                once, again = (healthy * self.chance.gauss(1, 0.03) for _ in range(2))
                found.append(GroupRate(kind=kind, ranks=ranks, row=row(once), again_gbyte_s=again))
        return found

    def judge(self, slow: Callable[[tuple[int, ...]], bool]) -> Slow | None:
        return judge(self.rates(slow), self.world)


def test_a_healthy_cluster_is_silent() -> None:
    wrong = [seed for seed in range(1000) if Cluster(seed).judge(lambda ranks: False) is not None]
    assert len(wrong) <= 1, wrong


def test_a_node_with_a_slow_link_is_named() -> None:
    asked = named = 0
    for seed in range(400):
        cluster = Cluster(seed)
        node = cluster.chance.choice(cluster.nodes)

        def slow(ranks: tuple[int, ...], node: str = node, cluster: Cluster = cluster) -> bool:
            return cluster.spans(ranks) and any(cluster.world[rank] == node for rank in ranks)

        spanning = [ranks for groups in cluster.kinds.values() for ranks in groups if cluster.spans(ranks)]
        bad = [set(map(cluster.world.__getitem__, ranks)) for ranks in spanning if slow(ranks)]
        well = set().union(*(map(cluster.world.__getitem__, r) for r in spanning if not slow(r)))
        # Where all groups have the node, or two nodes are always together, rates cannot tell.
        if not well or len(bad) < 2 or len(set.intersection(*bad) - well) != 1:
            continue
        asked += 1
        found = cluster.judge(slow)
        assert found is None or found.blame is not Blame.NODE or found.nodes == (node,)
        named += found is not None and found.nodes == (node,)
    assert asked > 60
    assert named >= 0.97 * asked, (named, asked)


def test_a_rail_is_named_where_its_groups_alone_are_slow() -> None:
    named = 0
    for seed in range(200):
        cluster = Cluster(seed)
        cluster.each = cluster.chance.choice([2, 4, 8])
        cluster.world = [node for node in cluster.nodes for _ in range(cluster.each)]
        kinds = layout(len(cluster.world), {"tp": cluster.each})
        cluster.kinds = {kind: one.groups(len(cluster.world)) for kind, one in kinds.items()}
        rail, local = cluster.chance.randrange(cluster.each), local_numbers(cluster.world)
        found = cluster.judge(
            lambda ranks, cluster=cluster, rail=rail, local=local: (  # type: ignore[misc]
                cluster.spans(ranks) and all(local[rank] == rail for rank in ranks)
            )
        )
        named += found is not None and (found.blame, found.rail) == (Blame.RAIL, rail)
    assert named >= 196


def test_both_ends_of_a_slow_path_are_named() -> None:
    cluster = Cluster(1)
    cluster.nodes = cluster.world = [f"n{i}" for i in range(8)]
    cluster.kinds = {kind: one.groups(8) for kind, one in layout(8, {"tp": 2}).items()}
    found = cluster.judge(lambda ranks: ranks == (2, 3))
    assert found is not None
    assert (found.blame, found.nodes) == (Blame.GROUP, ("n2", "n3"))
    assert found.peers == pytest.approx(10, rel=0.1)


def test_a_node_whose_own_groups_are_slow_is_named() -> None:
    cluster = Cluster(1)
    cluster.nodes = [f"n{i}" for i in range(4)]
    cluster.world = [node for node in cluster.nodes for _ in range(8)]
    cluster.kinds = {kind: one.groups(32) for kind, one in layout(32, {"tp": 8}).items()}
    found = cluster.judge(lambda ranks: {cluster.world[rank] for rank in ranks} == {"n2"})
    assert found is not None
    assert (found.blame, found.nodes) == (Blame.NODE, ("n2",))


def test_a_group_that_was_slow_once_is_none() -> None:
    rates = [
        GroupRate(kind="tp", ranks=(2 * i, 2 * i + 1), row=row(5.0 if i == 1 else 10.0), again_gbyte_s=10.0)
        for i in range(4)
    ]
    assert judge(rates, [f"n{i}" for i in range(8)]) is None
    assert judge([GroupRate(kind="tp", ranks=(0, 1), row=row(1.0))], ["a", "b"]) is None
