import pytest

from netdoctor.checks.time.skew import time_skew
from netdoctor.facts.clock import skews
from netdoctor.model import Confidence, Finding, Status

from ..build import cause, causes, clock, clocks, found, time_facts


def judge(*offsets_s: float) -> list[Finding]:
    return list(time_skew(clocks(*offsets_s), None))


def test_small_differences_pass_with_the_worst_value() -> None:
    (finding,) = judge(0.0001, -0.0002, 0.05)
    assert finding.status is Status.PASS
    assert finding.summary.startswith("worst skew 49.9 ms +/- 1.0 ms (n3)")


def test_every_clock_has_its_skew() -> None:
    """Against the median of those that agree, also where one is far off."""
    found, tie = skews(clocks(0.0, 3.0, 0.002, -0.001))
    assert not tie
    assert {node: round(off, 4) for node, (off, _) in found.items()} == {
        "n1": 0.0, "n2": 3.0, "n3": 0.002, "n4": -0.001,
    }  # fmt: skip
    assert [error for _, error in found.values()] == pytest.approx([0.001] * 4)


def test_one_node_is_skipped() -> None:
    assert judge(7.0)[0].status is Status.SKIP


def test_the_control_hosts_clock_does_not_matter() -> None:
    assert judge(3600.0, 3600.01, 3599.99)[0].status is Status.PASS


@pytest.mark.parametrize(("off", "status"), [(2.4, Status.WARN), (-7.0, Status.FAIL), (400.0, Status.FAIL)])
def test_the_odd_clock_is_named(off: float, status: Status) -> None:
    findings = judge(0.0, off, 0.0, 0.001)
    assert causes(findings) == {"clock-skew": {"n2"}}
    assert set(found(findings, status)) == {"n2"}
    assert cause(findings, "clock-skew").confidence is Confidence.CERTAIN
    assert ("ahead" if off > 0 else "behind") in findings[0].summary


def test_two_of_four_ahead_is_a_tie() -> None:
    findings = judge(0.0, 0.0, 7.0, 7.0)
    assert causes(findings) == {"clock-skew": {"n1", "n2", "n3", "n4"}}
    assert cause(findings, "clock-skew").confidence is Confidence.SUSPECTED


def test_two_nodes_stay_undecided() -> None:
    findings = judge(0.0, 7.0)
    assert causes(findings) == {"clock-skew": {"n1", "n2"}}
    assert cause(findings, "clock-skew").settle_by


def test_several_odd_clocks_among_many() -> None:
    findings = judge(0.0, 7.0, 0.0, -9.0, 0.0)
    assert causes(findings) == {"clock-skew": {"n2", "n4"}}


def test_an_error_bound_that_is_too_wide_proves_nothing() -> None:
    facts = {**clocks(0.0, 0.0, 0.0), "n4": clock(2.0, error_s=1.5)}
    findings = list(time_skew(facts, None))
    assert found(findings)["n4"].status is Status.UNKNOWN
    assert causes(findings) == {}


def test_a_jump_during_the_scan_warns() -> None:
    facts = {**clocks(0.0, 0.0), "n3": clock(0.0, jumped_s=-3.0)}
    assert causes(time_skew(facts, None)) == {"clock-jumped": {"n3"}}


def test_the_fix_fits_the_daemon() -> None:
    facts = {"n2": time_facts(daemons=("systemd-timesyncd",))}
    hint = cause(time_skew(clocks(0.0, 7.0, 0.0), facts), "clock-skew")
    assert "systemd-timesyncd" in hint.fixes[0].commands[0].shell
