"""bw.tcp, bw.pair and bw.allreduce from literals."""

from dataclasses import replace
from typing import Any

import pytest

from netdoctor.checks.bw._suspects import PairSuspects, TcpSuspects
from netdoctor.checks.bw.allreduce import bw_allreduce
from netdoctor.checks.bw.pair import bw_pair
from netdoctor.checks.bw.tcp import bw_tcp
from netdoctor.facts.bandwidth import (
    NO_GPU,
    AllReduce,
    Baseline,
    BaselineRate,
    NcclTaken,
    PairRate,
    PairRates,
    RankTrouble,
    Session,
    SizeRow,
    TcpRate,
    TcpRates,
)
from netdoctor.facts.localisation import Decision, Kind, Side, Suspect, Undecided
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import Job
from netdoctor.model import Action, Confidence, ExpectedFrom, Finding, Status

from .. import build_hw
from ..build import env, host, job, names, net, second

NODES = names(4)
MIB = 1024**2
GIB = 1024**3


def nets() -> dict[str, Any]:
    return {n: net(i) for i, n in enumerate(NODES, start=1)}


def hosts() -> dict[str, Any]:
    return {n: host(i) for i, n in enumerate(NODES, start=1)}


def tcp(**changes: Any) -> TcpRates:
    rates = tuple(
        TcpRate(src=a, dst=b, round=0, gbyte_s=1.0, seconds=1.0) for a in NODES for b in NODES if a != b
    )
    return replace(TcpRates(rates=rates, nodes=tuple(NODES), streams=4, rounds=3, planned=3), **changes)


def judge_tcp(facts: TcpRates, decision: Decision, baseline: Baseline | None = None) -> list[Finding]:
    return list(bw_tcp(facts, TcpSuspects(decision), job(4), nets(), baseline))


def judge_pairs(facts: PairRates, decision: Decision, baseline: Baseline | None = None) -> list[Finding]:
    return list(bw_pair(facts, PairSuspects(decision), job(4), nets(), baseline))


def said(findings: list[Finding]) -> dict[str, Finding]:
    """Trouble by target."""
    return {f.target: f for f in findings if f.status in (Status.WARN, Status.FAIL, Status.UNKNOWN)}


def suspect(kind: Kind, *nodes: str, **changes: Any) -> Suspect:
    defaults: dict[str, Any] = {
        "factor": 0.25,
        "value_gbyte_s": 0.25,
        "healthy_gbyte_s": 1.0,
        "confidence": 0.995,
        "runs": 3,
        "partners": 3,
    }
    return Suspect(kind=kind, nodes=nodes, **{**defaults, **changes})


def judge(*suspects: Suspect, undecided: tuple[Undecided, ...] = ()) -> list[Finding]:
    decision = Decision(
        suspects=suspects, undecided=undecided, healthy_gbyte_s=1.0, pairs_measured=6, pairs_possible=6
    )
    return judge_tcp(tcp(), decision)


def test_tcp_is_silent_on_a_healthy_cluster() -> None:
    findings = judge()
    assert [f.status for f in findings] == [Status.PASS]
    assert findings[0].measures is not None
    assert findings[0].measures["bw.tcp.slowest"].value == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("side", "words"), [(Side.OUT, "sends"), (Side.IN, "receives"), (Side.BOTH, "both directions")]
)
def test_tcp_names_a_node_and_its_direction(side: Side, words: str) -> None:
    found = said(judge(suspect(Kind.NODE, "n2", side=side)))
    assert set(found) == {"n2"}
    assert found["n2"].status is Status.FAIL  # a quarter of what the peers reach
    assert found["n2"].expected_from is ExpectedFrom.PEERS
    assert words in found["n2"].summary
    cause = found["n2"].cause
    assert cause is not None
    assert cause.key == f"slow-node-{side.value}"
    assert cause.confidence is Confidence.CERTAIN
    (command,) = cause.fixes[0].commands
    assert (command.run_on, command.shell.split(" |")[0]) == ("n2", "ethtool eth0")
    assert cause.action is Action.DRAIN


def test_more_than_half_is_a_warning() -> None:
    assert said(judge(suspect(Kind.NODE, "n2", factor=0.7)))["n2"].status is Status.WARN


def test_a_dead_path_is_named_as_one() -> None:
    found = said(judge(suspect(Kind.PATH, "n1", "n3", side=Side.OUT, factor=0.0, value_gbyte_s=None)))
    assert set(found) == {"n1->n3"}
    assert "nothing passes" in found["n1->n3"].summary
    assert found["n1->n3"].cause is not None
    assert found["n1->n3"].cause.action is None, "no node is to blame"


def test_a_path_slow_both_ways_is_one_cause() -> None:
    found = said(judge(suspect(Kind.PATH, "n1", "n3")))
    assert set(found) == {"n1->n3", "n3->n1"}
    assert len({f.cause for f in found.values()}) == 1


def test_undecided_says_which_pair_settles_it() -> None:
    tie = Undecided(
        between=(suspect(Kind.NODE, "n1", confidence=0.5), suspect(Kind.PATH, "n1", "n2", confidence=0.5)),
        pair=("n1", "n3"),
    )
    (finding,) = said(judge(undecided=(tie,))).values()
    assert finding.cause is not None
    assert finding.cause.confidence is Confidence.SUSPECTED
    assert finding.cause.settle_by == "netdoctor scan --last --only bw.tcp --node n1,n3"


@pytest.mark.parametrize("other", ["n2", "n3"])
def test_a_path_that_is_blamed_one_way_and_suspected_the_other_is_one_cause(other: str) -> None:
    tie = Undecided(
        between=(suspect(Kind.PATH, "n1", other, side=Side.IN, confidence=0.6),), pair=("n1", "n4")
    )
    findings = said(judge(suspect(Kind.PATH, "n1", "n2", side=Side.OUT), undecided=(tie,)))
    keys = [finding.cause.key for finding in findings.values() if finding.cause]
    assert keys == ["slow-path", "slow-path" if other == "n2" else "slow-undecided-path"]
    assert [f.status for f in findings.values()] == [Status.FAIL, Status.WARN]


@pytest.mark.parametrize(
    ("side", "passing", "factor", "explained"),
    [
        pytest.param(Side.OUT, True, 0.2, True, id="a moment on the way to it"),
        pytest.param(Side.IN, True, 0.2, False, id="the way back, which it does not hold back"),
        pytest.param(Side.BOTH, True, 0.2, False, id="both ways"),
        pytest.param(Side.OUT, False, 0.2, False, id="no moment"),
        pytest.param(Side.OUT, True, 0.0, False, id="nothing passed"),
    ],
)
def test_what_a_slow_node_holds_back_anyway_is_no_second_cause(
    side: Side, passing: bool, factor: float, explained: bool
) -> None:
    path = suspect(Kind.PATH, "n2", "n1", side=side, confidence=0.0, factor=factor)
    tie = Undecided(between=(path,), maybe_passing=passing, pair=("n2", "n3"))
    findings = said(judge(suspect(Kind.NODE, "n1", side=Side.IN), undecided=(tie,)))
    keys = {finding.cause.key for finding in findings.values() if finding.cause}
    assert keys == {"slow-node-in"} | (set() if explained else {"slow-undecided-path"})
    # It is told of the pair all the same.
    assert {f.status for f in findings.values()} == {Status.FAIL, Status.WARN}


@pytest.mark.parametrize(("factor", "is_trouble"), [(0.8, False), (0.5, False), (0.49, True)])
def test_a_moment_is_a_finding_below_half_of_what_is_usual(factor: float, is_trouble: bool) -> None:
    one = suspect(Kind.NODE, "n1", factor=factor)
    found = judge(undecided=(Undecided(between=(one,), maybe_passing=True, pair=("n1", "n3")),))
    assert bool(said(found)) is is_trouble
    settles = "to decide it: netdoctor scan --last --only bw.tcp --node n1,n3"
    assert any(settles in one.summary for one in found) is not is_trouble


def test_uniform_slowness_is_held_against_the_hardware() -> None:
    decision = Decision(
        suspects=(suspect(Kind.UNIFORM, *NODES),), healthy_gbyte_s=0.25, pairs_measured=6, pairs_possible=6
    )
    rates = tcp(expected_gbyte_s=dict.fromkeys(NODES, 1.1), limited_by=dict.fromkeys(NODES, "link of eth0"))
    (finding,) = said(judge_tcp(rates, decision)).values()
    assert finding.expected_from is ExpectedFrom.DERIVED
    assert "link of eth0" in (finding.expected or "")


def test_a_node_that_could_not_be_measured_is_unknown() -> None:
    findings = judge_tcp(TcpRates(failed_nodes={"n1": "no answer"}), Decision())
    assert said(findings)["n1"].status is Status.UNKNOWN


def test_a_node_that_met_nobody_is_unknown() -> None:
    """Its ports are closed, say, in a way that stops no launch."""
    rates = tuple(r for r in tcp().rates if "n4" not in (r.src, r.dst))
    found = said(judge_tcp(tcp(rates=rates), HEALTHY))
    assert {target: one.status for target, one in found.items()} == {"n4": Status.UNKNOWN}
    alone = said(judge_tcp(TcpRates(failed_nodes={"n1": "no answer"}), Decision()))
    assert {target: one.status for target, one in alone.items()} == dict.fromkeys(NODES, Status.UNKNOWN)


# --- all-reduce -----------------------------------------------------------------------------------


def row(size: int, busbw: float, **changes: Any) -> SizeRow:
    took = size / (busbw / 1.5) / 1e9
    defaults: dict[str, Any] = {
        "median_s": took,
        "least_s": took * 0.99,
        "most_s": took * 1.01,
        "batches": 5,
        "iterations": 4,
        "algbw_gbyte_s": busbw / 1.5,
        "busbw_gbyte_s": busbw,
    }
    return SizeRow(size_bytes=size, **{**defaults, **changes})


def reduced(*rows: SizeRow, **changes: Any) -> AllReduce:
    session = Session(backend="nccl", ranks=tuple(NODES), port=29500)
    return replace(AllReduce(session=session, rows=rows), **changes)


def test_all_reduce_tells_its_figures() -> None:
    (finding,) = bw_allreduce(reduced(row(MIB, 4.0), row(GIB, 40.0)), hosts())
    assert finding.status is Status.PASS
    assert finding.measures is not None
    assert finding.measures["bw.allreduce.busbw"].value == 40.0
    assert finding.measures[f"bw.allreduce.busbw.{MIB}"].value == 4.0
    assert finding.measures[f"bw.allreduce.algbw.{GIB}"].value == pytest.approx(40.0 / 1.5)


def test_what_ran_on_processors_instead_of_gpus_is_a_gap() -> None:
    instead = "torch for ROCm ran gloo on processors"
    session = replace(reduced().session, backend="gloo", instead=instead)
    (finding,) = bw_allreduce(reduced(row(GIB, 2.0), session=session), hosts())
    assert (finding.status, finding.gap) == (Status.PASS, instead)


@pytest.mark.parametrize(("busbw", "status"), [(42.0, Status.PASS), (35.0, Status.WARN), (10.0, Status.FAIL)])
def test_all_reduce_against_the_hardware(busbw: float, status: Status) -> None:
    facts = reduced(
        row(GIB, busbw),
        expected_busbw_gbyte_s=45.0,
        floor_busbw_gbyte_s=40.0,
        bound_busbw_gbyte_s=50.0,
        limited_by="1 HCA ports of 400 Gbit/s",
    )
    findings = list(bw_allreduce(facts, hosts()))
    assert max(findings, key=lambda f: f.status.rank).status is status
    for finding in said(findings).values():
        assert finding.expected_from is ExpectedFrom.DERIVED
        assert "400 Gbit/s" in (finding.expected or "")


def test_small_sizes_are_not_held_against_a_link() -> None:
    facts = reduced(row(64 * 1024, 0.1), expected_busbw_gbyte_s=45.0, floor_busbw_gbyte_s=40.0)
    assert not said(list(bw_allreduce(facts, hosts())))


def test_unknown_hardware_is_measured_and_not_judged() -> None:
    assert not said(list(bw_allreduce(reduced(row(GIB, 0.5)), hosts())))


def test_wrong_sums_fail_whatever_the_speed() -> None:
    facts = reduced(row(GIB, 400.0, wrong={"n3": 12}, first_wrong="rank 2, [7, 1.0, 10.0]"))
    found = said(list(bw_allreduce(facts, hosts())))
    assert found["n3"].status is Status.FAIL
    assert found["n3"].cause is not None
    assert found["n3"].cause.key == "allreduce-wrong-sums"


def trouble(node: str, what: str, first: bool = True) -> RankTrouble:
    return RankTrouble(node=node, rank=1, what=what, detail="said so", during="ready", first=first)


@pytest.mark.parametrize(
    ("what", "status"),
    [
        ("killed", Status.FAIL),
        ("frozen", Status.FAIL),
        ("import", Status.FAIL),
        ("store", Status.FAIL),
        ("files", Status.FAIL),
        ("silent", Status.UNKNOWN),
        ("stuck", Status.UNKNOWN),  # alive, and too slow for a limit of ours
    ],
)
def test_a_rank_that_failed_is_named_and_the_others_are_not_green(what: str, status: Status) -> None:
    session = Session(ranks=tuple(NODES), trouble=(trouble("n2", what), trouble("n1", "error", first=False)))
    findings = list(bw_allreduce(AllReduce(session=session), hosts()))
    found = said(findings)
    assert set(found) == {"n2"}
    assert found["n2"].status is status
    assert {f.target for f in findings if f.status is Status.SKIP} == {"n1", "n3", "n4"}
    # What a rank said that went down with it stands beside.
    assert [(line.where, line.output) for line in found["n2"].evidence] == [
        ("n2", "said so"),
        ("n1", "said so"),
    ]


def test_an_all_reduce_without_a_row_is_unknown() -> None:
    """Neither skipped nor green: nothing was measured, and nothing went wrong that anybody could name."""
    findings = list(bw_allreduce(reduced(), hosts()))
    assert {f.target: f.status for f in findings} == dict.fromkeys(NODES, Status.UNKNOWN)
    findings = list(bw_allreduce(reduced(unread={"n1": "rank 0 reports 0 sizes"}), hosts()))
    assert {f.target: f.status for f in findings} == dict.fromkeys(NODES, Status.UNKNOWN)
    assert all("rank 0 reports 0 sizes" in f.summary for f in findings)


def test_a_rank_whose_sums_nobody_read_is_unknown() -> None:
    facts = reduced(row(GIB, 40.0), unread={"n3": "rank 2 reports 0 sizes of 1"})
    findings = list(bw_allreduce(facts, hosts()))
    assert {target: one.status for target, one in said(findings).items()} == {"n3": Status.UNKNOWN}
    assert findings[-1].status is Status.PASS


def test_a_node_without_a_rank_is_unknown() -> None:
    session = Session(backend="nccl", ranks=("n1", "n2", "n3"), port=29500)
    found = said(list(bw_allreduce(AllReduce(session=session, rows=(row(GIB, 40.0),)), hosts())))
    assert {target: one.status for target, one in found.items()} == {"n4": Status.UNKNOWN}


def test_gpus_in_use_are_left_alone_and_said() -> None:
    session = Session(
        backend="nccl",
        ranks=("n1", "n2", "n3"),
        left_out={"n4": "GPUs in use: python (pid 7, ada)"},
    )
    findings = list(bw_allreduce(AllReduce(session=session, rows=(row(GIB, 40.0),)), hosts()))
    (skipped,) = (f for f in findings if f.status is Status.SKIP)
    assert skipped.target == "n4"
    assert "ada" in skipped.summary
    assert skipped.gap == "GPUs in use"


def test_a_node_without_a_gpu_leaves_no_gap_in_a_job_of_gpus() -> None:
    session = Session(backend="nccl", ranks=("n1", "n2", "n3"), left_out={"n4": NO_GPU})
    findings = list(bw_allreduce(AllReduce(session=session, rows=(row(GIB, 40.0),)), hosts()))
    (skipped,) = (f for f in findings if f.status is Status.SKIP)
    assert (skipped.target, skipped.gap) == ("n4", None)


def test_a_node_slow_among_its_own_gpus() -> None:
    solo = {n: (row(GIB, 100.0 if n == "n3" else 400.0),) for n in NODES}
    found = said(list(bw_allreduce(reduced(row(GIB, 40.0), solo=solo), hosts())))
    assert set(found) == {"n3"}
    assert found["n3"].expected_from is ExpectedFrom.PEERS
    # Of two peers the median is between them; one that measured no large size is no peer.
    few = {n: (row(GIB, rate),) for n, rate in zip(NODES, (400.0, 350.0, 100.0), strict=False)}
    assert set(said(list(bw_allreduce(reduced(row(GIB, 40.0), solo=few), hosts())))) == {"n3"}
    some = solo | {"n3": (row(GIB, 300.0),), "n4": (row(MIB, 1.0),), "n5": (row(MIB, 1.0),)}
    assert set(said(list(bw_allreduce(reduced(row(GIB, 40.0), solo=some), hosts())))) == {"n3"}


@pytest.mark.parametrize("rows", [(), (row(MIB, 1.0),)], ids=["no size", "a small size"])
def test_a_node_without_a_large_size_among_its_own_gpus_is_not_compared(rows: tuple[SizeRow, ...]) -> None:
    solo = {n: (row(GIB, 400.0),) for n in NODES} | {"n3": rows}
    assert not said(list(bw_allreduce(reduced(row(GIB, 40.0), solo=solo), hosts())))


@pytest.mark.parametrize(("busbw", "status"), [(100.0, None), (50.0, Status.WARN), (49.0, Status.FAIL)])
def test_a_node_below_half_of_what_its_own_gpus_should_reach_fails(
    busbw: float, status: Status | None
) -> None:
    solo = {"n3": (row(GIB, busbw),)}
    facts = reduced(row(GIB, 40.0), solo=solo, solo_floor_gbyte_s={"n3": 100.0})
    found = {target: one.status for target, one in said(list(bw_allreduce(facts, hosts()))).items()}
    assert found == ({"n3": status} if status else {})


# --- pairs ----------------------------------------------------------------------------------------


def test_pairs_name_the_slow_rail() -> None:
    slow = suspect(Kind.NIC, "n2", rail="gpu1", side=Side.BOTH)
    rates = tuple(PairRate(src="n1", dst=n, round=0, gbyte_s=20.0, rail="gpu1") for n in NODES[1:])
    facts = PairRates(
        session=Session(backend="nccl", ranks=tuple(NODES)),
        rates=rates,
        rounds=3,
    )
    decision = Decision(suspects=(slow,), healthy_gbyte_s=45.0, pairs_measured=3, pairs_possible=6)
    found = said(judge_pairs(facts, decision))
    assert set(found) == {"n2"}
    assert found["n2"].cause is not None
    assert "Rail gpu1" in found["n2"].cause.title


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("unread", [{}, {"n2": "rank 1 gave no readable rate"}])
def test_pairs_of_which_none_can_be_read_are_unknown(unread: dict[str, str], count: int) -> None:
    session = Session(backend="gloo", ranks=tuple(NODES[:count]))
    found = said(judge_pairs(PairRates(session=session, unread=unread), Decision()))
    assert {target: one.status for target, one in found.items()} == dict.fromkeys(NODES, Status.UNKNOWN)


# --- an earlier report ----------------------------------------------------------------------------

HEALTHY = Decision(healthy_gbyte_s=1.0, pairs_measured=6, pairs_possible=6)


def before(gbyte_s: float, **changes: Any) -> Baseline:
    """All directed pairs at the same rate."""
    rates = tuple(BaselineRate(src=a, dst=b, gbyte_s=gbyte_s) for a in NODES for b in NODES if a != b)
    return replace(Baseline(source="good.json", finished="2026-11-19T08:00:00Z", tcp=rates), **changes)


def since(rates: dict[tuple[str, str], float], baseline: Baseline, decision: Decision = HEALTHY) -> Any:
    """Trouble by target; all pairs at 1 GB/s but for `rates`."""
    now = tuple(replace(r, gbyte_s=rates.get((r.src, r.dst), r.gbyte_s)) for r in tcp().rates)
    return said(judge_tcp(tcp(rates=now), decision, baseline))


@pytest.mark.parametrize("was", [1.0, 0.5, 1.05])
def test_as_fast_as_before_is_silent(was: float) -> None:
    assert not since({}, before(was))


def test_a_single_pair_may_scatter() -> None:
    assert not since({("n1", "n2"): 0.85}, before(1.0))


def test_all_pairs_slower_than_before_although_they_are_alike() -> None:
    (finding,) = since({}, before(1.3)).values()
    assert finding.expected_from is ExpectedFrom.BASELINE
    assert finding.status is Status.WARN
    assert finding.expected == "median 10 Gbit/s, good.json of 2026-11-19"
    assert "77 % of the baseline" in finding.summary
    assert since({}, before(3.0))["cluster"].status is Status.FAIL


def test_a_pair_slower_than_before_that_nobody_is_blamed_for() -> None:
    found = since({("n1", "n2"): 0.6}, before(1.0))
    assert set(found) == {"n1->n2"}
    assert found["n1->n2"].expected_from is ExpectedFrom.BASELINE
    assert found["n1->n2"].cause.key == "slower-than-baseline"


def test_a_node_all_of_whose_pairs_fell() -> None:
    low = {(a, b): 0.7 for a in NODES for b in NODES if "n2" in (a, b)}
    found = since(low, before(1.0))
    assert found["n2"].cause.culprits == ("n2",)


def test_who_is_blamed_already_is_not_blamed_twice_and_the_baseline_stands_beside() -> None:
    decision = replace(HEALTHY, suspects=(suspect(Kind.NODE, "n2", side=Side.OUT),))
    low = {("n2", other): 0.25 for other in NODES if other != "n2"}
    found = since(low, before(1.1), decision)
    assert set(found) == {"n2"}
    assert found["n2"].expected == "8.0 Gbit/s, the peers' median; 8.8 Gbit/s in the baseline"
    assert found["n2"].expected_from is ExpectedFrom.PEERS


def test_a_rate_that_the_cpu_set_is_not_held_against_the_baseline() -> None:
    rates = tuple(replace(r, busy=0.9) for r in tcp().rates)
    assert not said(judge_tcp(tcp(rates=rates), HEALTHY, before(3.0)))


def test_two_nodes_are_compared_too() -> None:
    rates = tuple(r for r in tcp().rates if {r.src, r.dst} == {"n1", "n2"})
    two = {n: nets()[n] for n in ("n1", "n2")}
    found = said(list(bw_tcp(tcp(rates=rates), TcpSuspects(HEALTHY), job(4), two, before(2.5))))
    assert set(found) == {"n1->n2", "n2->n1"}


def test_pairs_of_torch_against_the_baseline() -> None:
    rates = tuple(PairRate(src=r.src, dst=r.dst, round=0, gbyte_s=20.0) for r in tcp().rates)
    facts = PairRates(session=Session(backend="nccl"), rates=rates, rounds=3)
    baseline = replace(before(1.0), tcp=(), pairs=before(40.0).tcp)
    (finding,) = said(judge_pairs(facts, HEALTHY, baseline)).values()
    assert finding.expected == "median 40.0 GB/s, good.json of 2026-11-19"


@pytest.mark.parametrize(
    ("backend", "given_by", "ifname", "gap"),
    [
        ("nccl", "netdoctor", "eth0,eth1", None),
        ("nccl", "job", "eth", None),  # by a prefix, as NCCL itself reads it
        ("gloo", "netdoctor", "eth0", "not over eth1 (10.1.0.0/24: NCCL): gloo ran over eth0"),
        ("gloo", "job", "eth1", None),
    ],
)
def test_a_path_that_torch_did_not_send_over_is_a_gap(
    backend: str, given_by: str, ifname: str, gap: str | None
) -> None:
    session = Session(
        backend=backend, ranks=tuple(NODES), given_by=given_by, ifname=dict.fromkeys(NODES, ifname)
    )
    ran = AllReduce(session=session, rows=(row(GIB, 40.0),))
    passed = [list(bw_allreduce(ran, hosts(), paths=second(4)))[-1]]
    rates = tuple(PairRate(src=r.src, dst=r.dst, round=0, gbyte_s=20.0) for r in tcp().rates)
    facts = PairRates(session=session, rates=rates)
    passed.append(list(bw_pair(facts, PairSuspects(HEALTHY), job(4), nets(), paths=second(4)))[-1])
    assert [(one.status, one.gap) for one in passed] == [(Status.PASS, gap)] * 2
    assert not gap or gap in passed[0].summary


@pytest.mark.parametrize(("busbw", "status"), [(41.0, Status.PASS), (21.0, Status.WARN), (10.0, Status.FAIL)])
def test_all_reduce_against_the_baseline(busbw: float, status: Status) -> None:
    baseline = before(1.0, busbw_gbyte_s=((MIB, 4.0), (GIB, 42.0)), ranks=4)
    findings = list(bw_allreduce(reduced(row(GIB, busbw), row(4 * GIB, busbw)), hosts(), baseline))
    assert max(findings, key=lambda f: f.status.rank).status is status
    for finding in said(findings).values():
        assert finding.expected_from is ExpectedFrom.BASELINE
        assert finding.expected == "42.0 GB/s in good.json of 2026-11-19"


def test_the_report_says_which_expectation_fired() -> None:
    baseline = before(1.0, busbw_gbyte_s=((GIB, 36.0),), ranks=4)
    facts = reduced(row(GIB, 35.0), expected_busbw_gbyte_s=45.0, floor_busbw_gbyte_s=40.0, limited_by="NICs")
    (finding,) = said(list(bw_allreduce(facts, hosts(), baseline))).values()
    assert finding.expected_from is ExpectedFrom.DERIVED
    assert finding.expected == (
        "45.0 GB/s, at least 40.0 GB/s; limited by NICs; 36.0 GB/s in good.json of 2026-11-19"
    )


def test_other_ranks_are_not_compared() -> None:
    baseline = before(1.0, busbw_gbyte_s=((GIB, 400.0),), ranks=32)
    (finding,) = bw_allreduce(reduced(row(GIB, 40.0)), hosts(), baseline)
    assert finding.status is Status.PASS
    assert "not compared" in finding.summary


@pytest.mark.parametrize("busy", [0.9, 0.1])
def test_pairs_of_a_blamed_node_say_nothing_of_the_others(busy: float) -> None:
    """Healthy pairs that the CPU limits drop out, so that the blamed node's would be all that is left."""
    decision = replace(HEALTHY, suspects=(suspect(Kind.NODE, "n3"),))
    rates = tuple(
        replace(r, gbyte_s=0.1, busy=0.1) if "n3" in (r.src, r.dst) else replace(r, gbyte_s=2.0, busy=busy)
        for r in tcp().rates
    )
    found = said(judge_tcp(tcp(rates=rates), decision, before(2.0)))
    assert set(found) == {"n3"}
    assert found["n3"].expected_from is ExpectedFrom.PEERS


IB = NcclTaken(networks=("IB",), via=("NET/IB/GDRDMA", "P2P"), links=("NVL",))
SOCKET = NcclTaken(networks=("Socket",), via=("NET/Socket", "P2P"), links=("PIX",))


@pytest.mark.parametrize(
    ("taken", "ranks", "words"),
    [
        (IB, ("n1", "n1", "n2", "n2"), "NCCL used RDMA (IB and GPUDirect) between nodes, NVLink inside"),
        (SOCKET, ("n1", "n1", "n2", "n2"), "NCCL used TCP (Socket) between nodes, PCIe inside"),
        (IB, ("n1", "n2"), "NCCL used RDMA (IB and GPUDirect) between nodes"),
        (IB, ("n1", "n1"), "NCCL used NVLink inside"),
    ],
)
def test_the_summary_says_what_nccl_took(taken: NcclTaken, ranks: tuple[str, ...], words: str) -> None:
    session = Session(backend="nccl", ranks=ranks)
    facts = AllReduce(session=session, rows=(row(GIB, 40.0),), taken=dict.fromkeys(ranks, taken))
    assert f"; {words}" in next(f for f in bw_allreduce(facts, hosts()) if f.status is Status.PASS).summary


@pytest.mark.parametrize(
    ("taken", "given", "named"),
    [
        (SOCKET, Job(), {"n1", "n2"}),
        (IB, Job(), set()),
        (NcclTaken(), Job(), set()),
        (SOCKET, Job(env={"NCCL_IB_DISABLE": "1"}), set()),
        (SOCKET, Job(env={"NCCL_NET": "Socket"}), set()),
    ],
)
def test_tcp_where_there_are_hcas_is_named(taken: NcclTaken, given: Job, named: set[str]) -> None:
    session = Session(backend="nccl", ranks=("n1", "n2"))
    facts = AllReduce(session=session, rows=(row(GIB, 40.0),), taken={"n1": taken, "n2": taken})
    envs, two = dict.fromkeys(("n1", "n2"), env()), {"n1": host(1), "n2": host(2)}
    found = said(list(bw_allreduce(facts, two, rdma=build_hw.rdmas(2), envs=envs, job=given)))
    assert set(found) == named
    for finding in found.values():
        assert finding.cause is not None
        assert (finding.cause.key, finding.status) == ("nccl-took-tcp", Status.FAIL)
        assert "mlx5_0:1" in finding.summary
    assert not said(list(bw_allreduce(facts, two, rdma={n: RdmaFacts() for n in two})))


def test_the_summary_says_how_much_was_compared() -> None:
    findings = judge_tcp(tcp(), HEALTHY, before(1.0))
    assert "12 of 12 directed pairs compared with good.json of 2026-11-19" in findings[-1].summary
    busy = tuple(replace(r, busy=0.9 if r.src == "n1" else 0.1) for r in tcp().rates)
    findings = judge_tcp(tcp(rates=busy), HEALTHY, before(1.0))
    assert "9 of 12 directed pairs compared with good.json of 2026-11-19, 3 limited" in findings[-1].summary
    findings = judge_tcp(tcp(), HEALTHY, before(1.0, tcp=()))
    assert "has none of these pairs" in findings[-1].summary


def test_another_backend_is_not_compared() -> None:
    rates = tuple(PairRate(src=r.src, dst=r.dst, round=0, gbyte_s=0.9) for r in tcp().rates)
    session = Session(backend="gloo", ranks=tuple(NODES))
    facts = PairRates(session=session, rates=rates, rounds=3)
    baseline = before(1.0, pairs=before(40.0).tcp, busbw_gbyte_s=((GIB, 42.0),), ranks=4, backend="nccl")
    (finding,) = judge_pairs(facts, HEALTHY, baseline)
    assert finding.status is Status.PASS
    assert "was measured with nccl" in finding.summary
    slow = replace(reduced(row(GIB, 0.9)), session=session)
    (finding,) = bw_allreduce(slow, hosts(), baseline)
    assert finding.status is Status.PASS
    assert "not compared" in finding.summary


@pytest.mark.parametrize(
    ("one", "held"),
    [
        (suspect(Kind.UPLINK, "n1", "n2", leaf="a"), {"n1>n3", "n2>n3", "n3>n1", "n3>n2"}),
        (suspect(Kind.UPLINK, "n1", "n2", leaf="a", side=Side.OUT), {"n1>n3", "n2>n3"}),
        (suspect(Kind.UPLINK, "n1", "n2", leaf="a", side=Side.IN), {"n3>n1", "n3>n2"}),
        (suspect(Kind.LEAF, "n3", leaf="b"), {"n1>n3", "n2>n3", "n3>n1", "n3>n2"}),
        (suspect(Kind.RAIL, "n3", leaf="b", rail="r"), {"n1>n3", "n2>n3", "n3>n1", "n3>n2"}),
        (suspect(Kind.SPINE, "n1", "n2", "n3", groups=(("n1", "n2"), ("n3",))),
         {"n1>n3", "n2>n3", "n3>n1", "n3>n2"}),
        (suspect(Kind.NODE, "n1", side=Side.OUT), {"n1>n2", "n1>n3"}),
        (suspect(Kind.PATH, "n1", "n2", side=Side.IN), {"n2>n1"}),
        (suspect(Kind.UNIFORM, "n1", "n2", "n3"), {"n1>n2", "n1>n3", "n2>n1", "n2>n3", "n3>n1", "n3>n2"}),
    ],
)  # fmt: skip
def test_which_ways_a_culprit_holds_back(one: Suspect, held: set[str]) -> None:
    three = ("n1", "n2", "n3")
    assert {f"{a}>{b}" for a in three for b in three if a != b and one.holds_back(a, b)} == held


def test_a_slow_node_on_a_further_path_is_named_with_it() -> None:
    slow = Decision(suspects=(suspect(Kind.NODE, "n2", side=Side.BOTH),), healthy_gbyte_s=1.0)
    facts = tcp(further={"2": tcp()})
    findings = list(bw_tcp(facts, TcpSuspects(Decision(), {"2": slow}), job(4), nets(), None, second(4)))
    assert set(said(findings)) == {"n2"}
    finding = said(findings)["n2"]
    assert finding.cause is not None
    assert finding.cause.key == "slow-node-both-net2"
    assert "over eth1 (10.1.0.0/24: NCCL)" in finding.cause.title
    assert "over eth1 (10.1.0.0/24: NCCL): slowest pair" in findings[-1].summary
    twice = list(bw_tcp(facts, TcpSuspects(slow, {"2": slow}), job(4), nets(), None, second(4)))
    assert {one.cause.key for one in twice if one.cause} == {"slow-node-both"}, "one cause for all paths"
