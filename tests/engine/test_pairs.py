"""Directed pairs of a report: each has the status that its check gave it, and none is green unjudged."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdoctor.check import REGISTERED, Check
from netdoctor.engine.assemble.report import Context, build
from netdoctor.engine.judge import judge
from netdoctor.engine.registry import load_builtin
from netdoctor.engine.run import Outcome
from netdoctor.facts.bandwidth import (
    Baseline,
    BaselineRate,
    LossMatrix,
    LossProbe,
    PairRate,
    PairRates,
    TcpRate,
    TcpRates,
)
from netdoctor.facts.bandwidth import Session as Ranks
from netdoctor.facts.net import PortMatrix
from netdoctor.model import CLUSTER, Finding, fail, pair, skip, warn
from netdoctor.report.model import PairRecord, Run
from netdoctor.store import Store
from tests.checks import build as healthy
from tests.core.fake import login, make, saying, store_of

RUN = Run(id="x", started="", finished="", duration_ms=1, complete=True, ended_by="end", profile="full")
Ends = tuple[str, str]


def real(check_id: str) -> Check:
    load_builtin()
    return REGISTERED[check_id]


def cluster(count: int = 4, **whole: Any) -> Store:
    """Nodes that are well, with the run's facts by group."""
    store = store_of(count)
    for i in range(1, count + 1):
        store.put("net", healthy.name(i), healthy.net(i))
    store.cluster.update({"job": healthy.job(count), **whole})
    return store


def records(store: Store, *checks: Check, judged: list[str] | None = None) -> dict[Ends, PairRecord]:
    """Pairs by their ends, of one check."""
    judgement = judge([login(), *checks], list(store.node["node"]), store, judged)
    report = build(Outcome(store=store, judgement=judgement), Context(run=RUN))
    return {(p.from_, p.to): p for p in report.pairs}


def bad(found: Mapping[Ends, PairRecord]) -> dict[Ends, str]:
    return {ends: p.status for ends, p in found.items() if p.status != "pass"}


def every(count: int = 4) -> list[Ends]:
    return [(a, b) for a in healthy.names(count) for b in healthy.names(count) if a != b]


# --- ports and path MTU ---------------------------------------------------------------------------


def test_pairs_that_could_not_be_tried_are_unknown() -> None:
    ports = healthy.matrix(3, {("n1", "n2"): "error", ("n1", "n3"): "filtered", ("n2", "n1"): "odd"})
    mtus = healthy.path_mtus(3, {("n1", "n2"): {"outcome": "error"}})
    store = cluster(3, ports=ports, path_mtu=mtus)
    assert bad(records(store, real("net.ports"))) == {
        ("n1", "n2"): "unknown",
        ("n2", "n1"): "unknown",
        ("n1", "n3"): "fail",
    }
    assert bad(records(store, real("net.path-mtu"))) == {("n1", "n2"): "unknown"}


@pytest.mark.parametrize(("outcome", "status"), [("small", "warn"), ("black_hole", "fail")])
def test_a_path_mtu_is_as_bad_as_its_check_says(outcome: str, status: str) -> None:
    probe = {"outcome": outcome, "dev_mtu": 1500, "largest_ok": 1400}
    found = records(cluster(path_mtu=healthy.path_mtus(4, {("n1", "n2"): probe})), real("net.path-mtu"))
    assert bad(found) == {("n1", "n2"): status}
    assert found["n1", "n2"].class_ == outcome


def test_a_rendezvous_port_closed_where_rank_0_is_not_is_a_warning() -> None:
    closed = healthy.inbound(4, "n3")
    found = records(cluster(ports=healthy.matrix(4, bad_rdzv=closed)), real("net.ports"))
    assert bad(found) == dict.fromkeys(closed, "warn")
    here = healthy.inbound(4, "n1")
    found = records(cluster(ports=healthy.matrix(4, bad_rdzv=here)), real("net.ports"))
    assert bad(found) == dict.fromkeys(here, "fail")


OUTCOMES = ["open", "open", "open", "in_use", "error", "refused", "no_route", "rejected", "filtered", "odd"]


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 5), st.randoms(use_true_random=False))
@pytest.mark.thorough
def test_no_bad_port_and_no_bad_path_ends_green(count: int, rng: random.Random) -> None:
    matrix = healthy.matrix(count)
    ports = replace(matrix, probes=tuple(replace(p, outcome=rng.choice(OUTCOMES)) for p in matrix.probes))
    sizes = ["ok", "ok", "small", "black_hole", "no_answer", "error", "odd"]
    mtus = healthy.path_mtus(count, {ends: {"outcome": rng.choice(sizes)} for ends in every(count)})
    store = cluster(count, ports=ports, path_mtu=mtus)
    for found in (records(store, real("net.ports")), records(store, real("net.path-mtu"))):
        for one in found.values():
            fine = one.class_ in ("open", "in_use", "ok")
            assert (one.status == "pass") == fine, one


# --- loss -----------------------------------------------------------------------------------------


def losses(lossy: Mapping[Ends, int], count: int = 4) -> LossMatrix:
    """250 packets over each pair, of which so many got lost on the way there."""
    return LossMatrix(
        probes=tuple(
            LossProbe(
                src=a,
                dst=b,
                address="10.0.0.1",
                sent=250,
                arrived=250 - lossy.get((a, b), 0),
                answered=250 - lossy.get((a, b), 0),
            )
            for a, b in every(count)
        )
    )


def test_pairs_that_lose_packets_are_as_bad_as_their_check_says() -> None:
    into = {(a, "n2"): 12 for a in ("n1", "n3", "n4")}
    found = records(cluster(loss=losses(into)), real("net.loss"))
    assert bad(found) == dict.fromkeys(into, "warn")
    assert found["n1", "n2"].value == pytest.approx(4.8)
    # What the check takes for the background of a healthy network.
    assert not bad(records(cluster(loss=losses({("n1", "n2"): 1})), real("net.loss")))


# --- rates ----------------------------------------------------------------------------------------


def tcp(rates: Mapping[Ends, float | None], count: int = 4, turns: int = 2) -> TcpRates:
    """1 GB/s everywhere but for `rates`; both directions of a pair share a round, and meet so many times."""
    return TcpRates(
        rates=tuple(
            TcpRate(src=a, dst=b, round=turn, gbyte_s=rates.get((a, b), 1.0 + 0.001 * i))
            for turn in range(turns)
            for i, (a, b) in enumerate(every(count))
        ),
        nodes=tuple(healthy.names(count)),
    )


@pytest.mark.parametrize(("rate", "status"), [(0.25, "fail"), (0.7, "warn"), (None, "fail")])
def test_a_slow_node_s_pairs_have_its_status(rate: float | None, status: str) -> None:
    out = {("n3", b): rate for b in ("n1", "n2", "n4")}
    found = records(cluster(tcp_rates=tcp(out)), real("bw.tcp"))
    assert bad(found) == dict.fromkeys(out, status)
    assert {found[ends].class_ for ends in out} == {"dead" if rate is None else "slow"}
    assert {found[ends].class_ for ends in found if ends not in out} == {"ok"}


def test_torch_pairs_have_the_status_of_their_node() -> None:
    rates = tuple(
        PairRate(src=a, dst=b, round=i, gbyte_s=0.1 if b == "n2" else 1.0, rail=rail)
        for rail in ("gpu0", "gpu1")
        for i, (a, b) in enumerate(every())
    )
    ranks = Ranks(backend="nccl", ranks=tuple(n for n in healthy.names(4) for _ in range(2)))
    found = records(cluster(pair_rates=PairRates(session=ranks, rates=rates)), real("bw.pair"))
    assert bad(found) == {(a, "n2"): "fail" for a in ("n1", "n3", "n4")}


def test_what_is_undecided_is_a_warning_on_the_pairs_that_are_slow_either_way() -> None:
    slow = dict.fromkeys([("n1", "n2"), ("n2", "n1")], 0.2)
    found = records(cluster(tcp_rates=tcp(slow, turns=1)), real("bw.tcp"))
    assert bad(found) == dict.fromkeys(slow, "warn")


def test_a_pair_over_which_nothing_passed_is_never_green() -> None:
    """Although a good run before it clears everybody."""
    facts = tcp({})
    last = replace(facts.rates[-1], gbyte_s=None, round=2)
    found = records(cluster(tcp_rates=replace(facts, rates=(*facts.rates, last))), real("bw.tcp"))
    assert found[last.src, last.dst].status != "pass"
    assert found[last.src, last.dst].class_ == "dead"


def test_a_pair_slower_than_in_the_baseline_is_shown_as_such() -> None:
    then = tuple(
        BaselineRate(src=a, dst=b, gbyte_s=1.5 if (a, b) == ("n1", "n2") else 1.0) for a, b in every()
    )
    store = cluster(tcp_rates=tcp({}), baseline=Baseline(source="good.json", finished="2026-11-19", tcp=then))
    assert bad(records(store, real("bw.tcp"))) == {("n1", "n2"): "warn"}


def beside(probe: Any) -> Any:
    """A probe of the second path."""
    return replace(probe, address=f"10.1.0.{probe.dst[1:]}")


def test_of_several_paths_the_worst_speaks_once() -> None:
    small = {("n1", "n2"): {"outcome": "small", "dev_mtu": 1500, "largest_ok": 1400}}
    mtus = (*healthy.path_mtus(4).probes, *map(beside, healthy.path_mtus(4, small).probes))
    lost = (*losses({}).probes, *map(beside, losses({("n1", "n2"): 20}).probes))
    slow = {("n3", b): 0.1 for b in ("n1", "n2", "n4")}
    store = cluster(
        paths=healthy.second(4),
        path_mtu=replace(healthy.path_mtus(4), probes=mtus),
        loss=LossMatrix(probes=lost),
        tcp_rates=replace(tcp({}), further={"2": tcp(slow)}),
    )
    for check, ends, value in (
        ("net.path-mtu", ("n1", "n2"), 1400),
        ("net.loss", ("n1", "n2"), 8.0),
        ("bw.tcp", ("n3", "n1"), 0.8),
    ):
        judgement = judge([login(), real(check)], list(store.node["node"]), store)
        found = build(Outcome(store=store, judgement=judgement), Context(run=RUN)).pairs
        assert len(found) == 12, check
        by_ends = {(p.from_, p.to): p for p in found}
        assert by_ends[ends].value == value
        assert by_ends[ends].path == "eth1 (10.1.0.0/24: NCCL)"
        assert [(one.path[:4], one.status == "pass") for one in by_ends[ends].paths] == [
            ("eth0", True),
            ("eth1", False),
        ]
        assert by_ends["n1", "n4"].status == "pass"
    assert (by_ends["n1", "n4"].value or 0) > 7, "healthy: the main path's rate"
    assert by_ends["n1", "n4"].path == "eth0"


def test_a_pair_in_trouble_on_all_its_paths_is_green_on_none() -> None:
    slow = tcp({("n3", b): 0.1 for b in ("n1", "n2", "n4")})
    hole = {
        (a, b): {"outcome": "black_hole", "dev_mtu": 9000, "largest_ok": 1400}
        for a, b in every()
        if b == "n2"
    }
    mtus = healthy.path_mtus(4, hole).probes
    lost = losses({(a, "n2"): 12 for a in ("n1", "n3", "n4")}).probes
    store = cluster(
        paths=healthy.second(4),
        path_mtu=replace(healthy.path_mtus(4), probes=(*mtus, *map(beside, mtus))),
        loss=LossMatrix(probes=(*lost, *map(beside, lost))),
        tcp_rates=replace(slow, further={"2": slow}),
    )
    for check, ends in (("net.path-mtu", ("n1", "n2")), ("net.loss", ("n1", "n2")), ("bw.tcp", ("n3", "n1"))):
        judgement = judge([login(), real(check)], list(store.node["node"]), store)
        report = build(Outcome(store=store, judgement=judgement), Context(run=RUN))
        one = next(p for p in report.pairs if (p.from_, p.to) == ends)
        assert [path.status for path in one.paths] == [one.status, one.status] != ["pass", "pass"], check
        assert one.path == "eth0", "of equals the first"
        assert len(report.causes) == 1, "one cause for both paths"


# --- a check that gave no judgement ---------------------------------------------------------------


def test_pairs_of_a_check_that_crashed_are_unknown() -> None:
    def net_ports(ports: PortMatrix) -> Iterator[Finding]:
        """Fine."""
        raise ValueError("x")
        yield

    assert set(bad(records(cluster(ports=healthy.matrix(4)), make(net_ports))).values()) == {"unknown"}


def test_pairs_of_a_check_that_is_blocked_everywhere_are_blocked() -> None:
    before = saying("net.interface", *(fail(n, "down") for n in healthy.names(4)))
    found = records(cluster(ports=healthy.matrix(4)), before, real("net.ports"))
    assert set(bad(found).values()) == {"blocked"}
    assert len(bad(found)) == 12


def test_pairs_of_a_check_that_does_not_apply_are_not_green() -> None:
    """Of two nodes one is blocked, so that the check sees one alone."""
    before = saying("net.interface", fail("n2", "down"))
    found = records(
        cluster(2, ports=healthy.matrix(2, {("n1", "n2"): "filtered"})), before, real("net.ports")
    )
    assert bad(found) == {("n1", "n2"): "blocked", ("n2", "n1"): "blocked"}
    only = records(cluster(2, ports=healthy.matrix(2)), saying("net.ports", skip("one node", CLUSTER)))
    assert set(bad(only).values()) == {"unknown"}


def test_who_was_not_asked_about_keeps_the_status_of_its_pairs() -> None:
    store = cluster(ports=healthy.matrix(4, healthy.inbound(4, "n3")))
    found = records(store, real("net.ports"), judged=["n1"])
    assert bad(found) == dict.fromkeys(healthy.inbound(4, "n3"), "fail")


def test_the_worst_that_was_said_of_a_pair_counts() -> None:
    ends = pair("n1", "n2")
    said = (warn(ends, "x"), fail("n1", "y", pairs=(ends,)), warn("n2", "z", pairs=(ends, pair("n2", "n1"))))
    found = records(cluster(ports=healthy.matrix(4)), saying("net.ports", *said))
    assert bad(found) == {("n1", "n2"): "fail", ("n2", "n1"): "warn"}
