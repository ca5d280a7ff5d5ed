"""What changed between two reports."""

import dataclasses

from netdoctor.report.diff import diff
from netdoctor.report.model import MeasureRecord, PairRecord
from tests.report.build import sample_report


def test_a_report_has_not_changed_since_itself() -> None:
    report = sample_report()
    found = diff(report, report)
    assert found.empty
    assert len(found.same) == 3


def test_new_trouble_and_back() -> None:
    good, bad = sample_report("ready"), sample_report()
    found = diff(good, bad)
    assert [c.id for c in found.new] == [1, 2, 3]
    assert {(c.check, c.before, c.now) for c in found.worse} == {
        ("net.ports", "pass", "fail"), ("nccl.ifname", "pass", "fail"), ("time.skew", "pass", "warn"),
    }  # fmt: skip
    assert {c.check for c in found.other} == {"nccl.smoke", "bw.pair", "bw.rail", "bw.allreduce"}
    back = diff(bad, good)
    assert [c.id for c in back.healed] == [1, 2, 3]
    assert {c.check for c in back.better} == {c.check for c in found.worse}
    assert not back.worse


def test_hosts_that_come_and_go_are_no_changes_of_results() -> None:
    found = diff(sample_report("ready", nodes=4), sample_report("ready", nodes=5))
    assert found.nodes_added == ("gpu-a05",)
    assert not found.worse
    assert diff(sample_report("ready", nodes=5), sample_report("ready", nodes=4)).nodes_removed == (
        "gpu-a05",
    )


def test_values_move_only_beyond_their_band() -> None:
    def report(value: float, error: float | None = None, rate: float = 40.0):  # type: ignore[no-untyped-def]
        return dataclasses.replace(
            sample_report("ready"),
            measures=(MeasureRecord(name="m", target="t", value=value, unit="GB/s", error=error),),
            pairs=(
                PairRecord(
                    check="bw.pair", from_="a", to="b", status="pass", class_="ok", value=rate, unit="GB/s"
                ),
            ),
        )

    assert not diff(report(40.0), report(41.0)).moved
    assert diff(report(40.0), report(30.0)).moved[0].ratio == -0.25
    assert not diff(report(40.0, 6.0), report(30.0, 6.0)).moved
    assert diff(report(1.0, rate=40.0), report(1.0, rate=20.0)).moved[0].target == "a -> b"
    assert diff(report(0.0), report(1.0)).moved[0].ratio == 0.0


def test_facts_that_changed() -> None:
    before = sample_report("ready")
    first = dataclasses.replace(before.targets[0], facts={"gpus": 7})
    now = dataclasses.replace(before, targets=(first, *before.targets[1:]))
    (change,) = diff(before, now).facts
    assert (change.fact, change.before, change.now, change.nodes) == ("gpus", "8", "7", ("gpu-a01",))
