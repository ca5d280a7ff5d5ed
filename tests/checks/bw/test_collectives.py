"""bw.collectives from literals: what is measured, who is blamed for wrong values, what was not offered."""

from dataclasses import replace
from typing import Any

import pytest

from netdoctor.checks.bw.collectives import bw_collectives
from netdoctor.facts.bandwidth import Collectives, RankFault, RankTrouble, Session, SizeRow
from netdoctor.measure.load.collectives import NAMES, busbw_factor
from netdoctor.model import Finding, Status

from ..build import host, names

NODES = names(4)
MIB = 1024**2


def row(size: int = 64 * MIB, **changes: Any) -> SizeRow:
    defaults: dict[str, Any] = {"median_s": 0.01, "least_s": 0.009, "most_s": 0.011, "batches": 5}
    rates = {"iterations": 4, "algbw_gbyte_s": size / 0.01 / 1e9, "busbw_gbyte_s": size / 0.02 / 1e9}
    return SizeRow(size_bytes=size, **{**defaults, **rates, **changes})


def measured(**changes: Any) -> Collectives:
    session = Session(backend="gloo", ranks=tuple(NODES), port=29500, torch="2.0.1")
    rows = {name: (row(8), row()) for name in NAMES}
    return replace(Collectives(session=session, rows=rows), **changes)


def judge(facts: Collectives) -> list[Finding]:
    return list(bw_collectives(facts, {node: host(i) for i, node in enumerate(NODES, start=1)}))


def test_a_healthy_cluster_is_silent_and_has_measures_of_every_collective() -> None:
    (finding,) = judge(measured())
    assert (finding.status, finding.gap) == (Status.PASS, None)
    assert finding.measures is not None
    for name in NAMES:
        latency = finding.measures[f"bw.collectives.{name}.latency.8"]
        assert (latency.value, latency.unit) == (pytest.approx(10_000.0), "us")
        assert finding.measures[f"bw.collectives.{name}.busbw.{64 * MIB}"].value == 64 * MIB / 0.02 / 1e9
        assert f"bw.collectives.{name}.busbw.8" not in finding.measures


def bytes_out(name: str, n: int, size: int) -> float:
    """Bytes that leave the busiest rank when the collective runs as a ring, or straight to whom they are for,
    counted message by message."""
    piece = size // n
    if name in ("broadcast", "send-recv"):
        return size  # all of it, once
    passes = 2 if name == "all-reduce" else 1
    return sum(piece for _ in range(passes) for other in range(n) if other != 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [2, 3, 4, 8, 64])
def test_busbw_is_what_a_link_carries(name: str, n: int) -> None:
    size, seconds = n * 1000, 0.25
    algbw = size / seconds
    assert algbw * busbw_factor(name, n) == pytest.approx(bytes_out(name, n, size) / seconds)


@pytest.mark.parametrize(
    ("wrong", "wrong_from", "blamed", "key"),
    [
        pytest.param(dict.fromkeys(NODES, 5), {}, NODES, "collective-wrong-values", id="a sum, everywhere"),
        pytest.param({"n2": 5}, {}, ["n2"], "collective-wrong-values", id="a sum, on one"),
        pytest.param(
            {"n2": 5},
            {"n2": ("n1", "n3")},
            ["n2"],
            "collective-wrong-values",
            id="one finds what two sent wrong",
        ),
        pytest.param(
            {"n1": 5, "n4": 5},
            {"n1": ("n3",), "n4": ("n3",)},
            ["n3"],
            "collective-wrong-sender",
            id="two find what one sent wrong",
        ),
        pytest.param(
            {"n4": 5}, {"n4": ("n3",)}, ["n3", "n4"], "collective-wrong-between", id="one pair, either end"
        ),
        pytest.param(
            {"n1": 5, "n4": 5},
            {"n1": ("n3",), "n4": ("n2",)},
            ["n1", "n4"],
            "collective-wrong-values",
            id="no sender in common",
        ),
        pytest.param(
            {"n3": 5}, {"n3": ("n3",)}, ["n3"], "collective-wrong-values", id="what it sent to itself"
        ),
    ],
)
def test_wrong_values_name_who_can_be_named(
    wrong: dict[str, int], wrong_from: dict[str, tuple[str, ...]], blamed: list[str], key: str
) -> None:
    bad = row(wrong=wrong, wrong_from=wrong_from, first_wrong="rank 1, [0, 3.0, 4.0]")
    findings = judge(measured(rows={"all-gather": (row(8), bad)}))
    failures = [one for one in findings if one.status is Status.FAIL]
    assert sorted(one.target for one in failures) == blamed
    assert {one.cause.key for one in failures if one.cause} == {key}
    assert all("all-gather" in one.summary and "64 MiB" in one.summary for one in failures)


def test_what_the_backend_does_not_offer_is_a_gap_and_never_measured() -> None:
    rows = {name: (row(8), row()) for name in NAMES if name != "reduce-scatter"}
    refused = {"reduce-scatter": "ProcessGroupGloo does not support reduce_scatter"}
    (finding,) = judge(measured(rows=rows, refused=refused))
    assert finding.gap == "reduce-scatter is not offered by gloo of torch 2.0.1"
    assert not any("reduce-scatter" in name for name in finding.measures or {})
    (*others, none) = judge(measured(rows={}, refused=refused))
    assert {one.status for one in (*others, none)} == {Status.UNKNOWN}


def test_a_collective_that_fails_names_the_rank_and_leaves_the_rest_open() -> None:
    trouble = RankTrouble(
        node="n2", rank=1, what=RankFault.ERROR, detail="RuntimeError: no", during="all-gather"
    )
    session = replace(measured().session, trouble=(trouble,))
    findings = judge(measured(session=session, failed="all-gather", rows={"all-reduce": (row(8), row())}))
    (failure,) = [one for one in findings if one.status is Status.FAIL]
    assert failure.target == "n2"
    assert "all-gather" in failure.summary
    assert "RuntimeError: no" in failure.summary
    (left,) = [one for one in findings if one.target == "cluster"]
    assert left.status is Status.UNKNOWN
    assert f"bw.collectives.all-reduce.busbw.{64 * MIB}" in (left.measures or {})
    assert not [one for one in findings if one.status is Status.PASS]


def test_nothing_measured_is_unknown() -> None:
    assert {one.status for one in judge(measured(rows={}))} == {Status.UNKNOWN}
    empty = measured(rows=dict.fromkeys(NAMES, ()), unread={"n1": "rank 0 reports 0 sizes"})
    assert Status.PASS not in {one.status for one in judge(empty)}


def test_one_rank_has_nobody_to_exchange_with() -> None:
    alone = replace(measured().session, ranks=("n1",))
    assert Status.PASS not in {one.status for one in judge(Collectives(session=alone))}
