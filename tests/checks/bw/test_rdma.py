from dataclasses import replace
from itertools import permutations
from typing import Any

from netdoctor.checks.bw._suspects import rdma_suspects
from netdoctor.checks.bw.rdma import bw_rdma
from netdoctor.facts.bandwidth import PairRate, RdmaLatency, RdmaRates
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import Finding, Status

from ..build import causes, names, said
from ..build_hw import rdma

RAILS = ("mlx5_0:1", "mlx5_1:1")


def measured(count: int = 4, slow: dict[tuple[str, str], float] | None = None, **changes: Any) -> RdmaRates:
    """All pairs in both directions; slow: (node, rail) to the GB/s that it reaches at most."""
    nodes = names(count)
    rates = []
    for number, (a, b) in enumerate(permutations(nodes, 2)):
        for rail in RAILS:
            rate = min([48.0, *((slow or {}).get((node, rail), 48.0) for node in (a, b))])
            rates.append(PairRate(src=a, dst=b, round=number // 4, gbyte_s=rate, rail=rail))
    found = RdmaRates(
        rates=tuple(rates), nodes=tuple(nodes), seconds=2, rounds=3, planned=3,
        latencies=(RdmaLatency(src="n1", dst="n2", rail=RAILS[0], us=1.9),),
        expected_gbyte_s=dict.fromkeys(nodes, 48.0),
        limited_by=dict.fromkeys(nodes, "mlx5_0:1 at 400 Gbit/s"),
    )  # fmt: skip
    return replace(found, **changes)


def judged(rates: RdmaRates, nodes: dict[str, RdmaFacts] | None = None) -> list[Finding]:
    nodes = nodes if nodes is not None else {n: rdma() for n in names(4)}
    return said(bw_rdma(rates, rdma_suspects(rates, None), nodes))


def test_healthy_pairs_are_told_in_a_line() -> None:
    (finding,) = judged(measured())
    assert finding.status is Status.PASS
    assert finding.summary == (
        "slowest pair 384 Gbit/s, median 384 Gbit/s, 6 of 6 pairs in 3 rounds; latency 1.9 us, "
        "1.9 us from n1 to n2 over mlx5_0:1; rails mlx5_0:1 and mlx5_1:1"
    )


def test_a_slow_rail_a_dead_one_and_everything_slow() -> None:
    for value, status in ((36.0, Status.WARN), (12.0, Status.FAIL), (0.0, Status.FAIL)):
        found = [f for f in judged(measured(slow={("n3", RAILS[1]): value})) if f.status is not Status.PASS]
        assert [(f.status, f.target) for f in found] == [(status, "n3")]
        assert list(causes(found)) == ["slow-nic-both"]
    everywhere = {(node, rail): 12.0 for node in names(4) for rail in RAILS}
    found = [f for f in judged(measured(slow=everywhere)) if f.status is not Status.PASS]
    assert [f.cause.key for f in found if f.cause] == ["slow-uniform"]
    assert found[0].expected == "384 Gbit/s, limited by mlx5_0:1 at 400 Gbit/s"


def test_what_was_not_measured() -> None:
    nothing = RdmaRates()
    assert [f.summary for f in judged(nothing, {"n1": rdma(), "n2": RdmaFacts()})] == [
        "fewer than two nodes have HCAs"
    ]
    assert [f.summary for f in judged(nothing)] == [
        "no two nodes with an active HCA port can reach each other"
    ]
    (finding,) = judged(RdmaRates(failed_nodes={"n2": "lost"}))
    assert (finding.target, finding.status) == ("n2", Status.UNKNOWN)
    (finding,) = judged(RdmaRates(without=tuple(names(4))))
    assert (finding.status, finding.gap) == (Status.SKIP, "no perftest")
    some = judged(measured(without=("n9",), failed_nodes={"n8": "lost"}))
    assert [(f.target, f.status) for f in some][:2] == [("n9", Status.SKIP), ("n8", Status.UNKNOWN)]


def test_a_program_that_failed_is_unknown_and_not_the_way_s_fault() -> None:
    troubles = {"n1->n2 mlx5_0:1": "exit status 1: Couldn't listen to port 18515"}
    first, *_ = judged(measured(troubles=troubles))
    assert (first.status, first.target) == (Status.UNKNOWN, "n1->n2")
    # One that gave up is a rate of 0, and told once.
    dead = measured(slow={("n1", RAILS[0]): 0.0}, troubles=troubles)
    assert Status.UNKNOWN not in {f.status for f in judged(dead)}
