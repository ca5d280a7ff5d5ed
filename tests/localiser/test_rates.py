"""From measured rates to a decision: rates that a machine's CPU set, expectations of nodes, old reports."""

import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from netdoctor.facts.bandwidth import PairRate, PairRates, Session, TcpRate, TcpRates
from netdoctor.facts.localisation import Kind
from netdoctor.localise import decide, network_rates

NODES = ("n1", "n2", "n3", "n4")


@pytest.mark.parametrize(
    ("moments", "wanted"),
    [
        # a lab on two cores: alone a pair has them all, and one pair is behind a slow way
        ([[(4.0, 0.9), (0.007, 0.0)], [(2.0, 0.9), (2.1, 0.9)]], [2.1, 0.007, 2.1, 2.1]),
        # three at once, and one alone
        ([[(1.0, 0.9), (1.1, 0.8), (1.0, 0.9)], [(3.3, 0.9)]], [1.05, 1.05, 1.05, 1.05]),
        # a slow link keeps its machine waiting for a core: far below who ran beside it, it is the network's
        ([[(2.0, 0.9), (0.5, 0.75)], [(2.1, 0.9), (2.0, 0.9)]], [2.0, 0.5, 2.0, 2.0]),
        # ...and alone it should have been faster than those that shared the cores
        ([[(2.0, 0.9), (2.0, 0.9)], [(2.0, 0.9), (2.0, 0.9)], [(0.5, 0.75)]], [2.0] * 4 + [0.5]),
        # nothing below the fastest way that the network allowed
        ([[(2.0, 0.9), (4.0, 0.5), (None, 0.0)]], [4.0, 4.0, None]),
        ([[(2.0, 0.1), (1.0, 0.2)]], [2.0, 1.0]),
        # ...but one stroke of luck makes no rule
        (
            [[(2.0, 0.9), (2.0, 0.9), (2.1, 0.5), (2.0, 0.5), (1.9, 0.5), (60.0, 0.5)]],
            [2.1, 2.1, 2.1, 2.0, 1.9, 60.0],
        ),
        ([], []),
    ],
)
def test_what_a_cpu_set_counts_as_usual(
    moments: list[list[tuple[float | None, float]]], wanted: list[float | None]
) -> None:
    rates = [
        TcpRate(src=f"a{place}", dst=f"b{place}", round=number, gbyte_s=gbyte_s, busy=busy)
        for number, moment in enumerate(moments)
        for place, (gbyte_s, busy) in enumerate(moment)
    ]
    assert network_rates(rates).values == pytest.approx(tuple(wanted))


def test_levelled_rates_leave_their_noise_behind() -> None:
    rates = [
        TcpRate(src="a", dst=f"b{i}", round=i, gbyte_s=v, busy=0.9) for i, v in enumerate((1.0, 1.1, 0.9))
    ]
    assert network_rates(rates).noise == pytest.approx(1.4826 * math.log(1.1))
    assert network_rates([replace(r, busy=0.0) for r in rates]).noise == 0.0


def measured(slow: str = "", gbyte_s: float = 1.0, **changes: Any) -> TcpRates:
    """Every direction once, what touches `slow` at a quarter."""
    pairs = [(a, b) for a in NODES for b in NODES if a != b]
    rates = tuple(
        TcpRate(src=a, dst=b, round=i, gbyte_s=gbyte_s / 4 if slow in (a, b) else gbyte_s)
        for i, (a, b) in enumerate(pairs)
    )
    return TcpRates(rates=rates, nodes=NODES, **changes)


def test_a_slow_node_is_decided_on_from_rates_alone() -> None:
    assert decide(measured(), {}).clean
    (one,) = decide(measured("n3"), {}).suspects
    assert (one.kind, one.nodes) == (Kind.NODE, ("n3",))


def test_who_took_part_without_a_rate_is_unmeasured() -> None:
    found = decide(replace(measured(), nodes=(*NODES, "n5")), {})
    assert found.unmeasured == ("n5",)
    assert (found.pairs_measured, found.pairs_possible) == (6, 10)


def test_a_pair_is_expected_to_reach_what_its_lesser_end_does() -> None:
    own = dict.fromkeys(NODES, 1.0)
    assert not decide(measured(gbyte_s=0.9, expected_gbyte_s=own), {}).suspects
    (one,) = decide(measured(gbyte_s=0.4, expected_gbyte_s=own), {}).suspects
    assert one.kind is Kind.UNIFORM
    # A node whose own link is slower keeps up with what it has.
    assert decide(measured("n3", expected_gbyte_s=own | {"n3": 0.25}), {}).clean


def test_the_ranks_of_a_session_took_part() -> None:
    rates = tuple(PairRate(src=r.src, dst=r.dst, round=r.round, gbyte_s=1.0) for r in measured().rates)
    session = Session(backend="gloo", ranks=("n1", "n1", *NODES[1:], "n5"))
    found = decide(PairRates(session=session, rates=rates), {})
    assert found.unmeasured == ("n5",)


def test_facts_of_an_older_release_with_a_decision_in_them_are_read() -> None:
    kept = msgspec.to_builtins(measured("n3"))
    del kept["nodes"]
    kept["decision"] = {"culprits": [{"kind": "path", "nodes": ["n1", "n2"]}], "healthy_gbyte_s": 9.0}
    (one,) = decide(msgspec.convert(kept, TcpRates), {}).suspects
    assert one.nodes == ("n3",)
