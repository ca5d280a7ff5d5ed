"""What changed between two reports."""

import dataclasses
import json
import random

import pytest

from netdoctor.report import bands, changes
from netdoctor.report.diff import diff, is_healed
from netdoctor.report.model import Matrix, MeasureRecord, PairRecord, Report
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
    change, gone = diff(before, now).facts
    assert (gone.fact, gone.now, gone.nodes) == ("gpu_model", "none", ("gpu-a01",))
    assert (change.fact, change.before, change.now, change.nodes) == ("gpus", "8", "7", ("gpu-a01",))


def test_what_was_not_looked_at_again_is_not_healed() -> None:
    bad = sample_report()
    part = dataclasses.replace(
        bad,
        causes=(),
        matrix=Matrix(checks=("time.skew",), nodes=bad.matrix.nodes, cells=("....",)),
    )
    found = diff(bad, part)
    assert [c.id for c in found.healed] == [3]
    assert [c.id for c in found.open] == [1, 2]
    assert not found.is_worse
    held = "".join("b" if n == 1 else "." for n in range(4))
    assert not is_healed(
        bad.causes[2], dataclasses.replace(part, matrix=dataclasses.replace(part.matrix, cells=(held,)))
    )
    gone = Matrix(checks=("time.skew",), nodes=("gpu-a01",), cells=(".",))
    assert not is_healed(bad.causes[2], dataclasses.replace(part, matrix=gone))


@pytest.mark.parametrize(
    ("ports", "firewall", "healed"),
    [
        ("....", "----", True), ("....", "....", True), ("....", "--!-", False), ("....", "--?-", False),
        ("....", "--b-", False), ("--.-", "----", True), ("..-.", "----", False), ("..-.", "....", False),
        ("....", None, False), (None, "....", False),
    ],
)  # fmt: skip
def test_a_check_that_only_explained_may_be_skipped_afterwards(
    ports: str | None, firewall: str | None, healed: bool
) -> None:
    """As net.firewall, which has nothing to look at where nothing is dropped any more."""
    good = sample_report("ready")
    dropped = dataclasses.replace(
        sample_report().causes[0], checks=("net.ports", "net.firewall"), node_list=("gpu-a03",)
    )
    rows = {check: cells for check, cells in (("net.ports", ports), ("net.firewall", firewall)) if cells}
    matrix = Matrix(checks=tuple(rows), nodes=good.matrix.nodes, cells=tuple(rows.values()))
    assert is_healed(dropped, dataclasses.replace(good, matrix=matrix)) == healed


def rated(*rates: float, unit: str = "GB/s", state: str = "ready") -> Report:
    """A report with the rate of some pairs."""
    pairs = tuple(
        PairRecord(check="bw.pair", from_=f"n{n}", to="m", status="pass", class_="ok", value=rate, unit=unit)
        for n, rate in enumerate(rates)
    )
    return dataclasses.replace(sample_report(state), pairs=pairs, measures=())


@pytest.mark.parametrize(
    ("unit", "before", "now", "moved", "worse"),
    [
        pytest.param("GB/s", 40.0, 33.0, False, False, id="a rate scatters by a fifth"),
        pytest.param("GB/s", 40.0, 31.0, True, False, id="a rate fell, as in a busy minute"),
        pytest.param("GB/s", 40.0, 20.0, True, True, id="a rate halved"),
        pytest.param("GB/s", 40.0, 49.0, True, False, id="a rate rose"),
        pytest.param("%", 0.0, 0.4, False, False, id="loss within its bound"),
        pytest.param("%", 0.0, 0.5, False, False, id="loss at its bound"),
        pytest.param("%", 0.0, 0.6, True, True, id="loss grew"),
        pytest.param("ms", 10.0, 14.0, False, False, id="a time scatters"),
        pytest.param("ms", 10.0, 40.0, True, False, id="a time grew, which proves nothing"),
        pytest.param("bytes", 9000.0, 1500.0, True, False, id="what is counted does not scatter"),
        pytest.param("bytes", 9000.0, 9000.0, False, False, id="what is counted stayed"),
    ],
)
def test_one_run_has_a_default_band(unit: str, before: float, now: float, moved: bool, worse: bool) -> None:
    found = diff(rated(before, unit=unit), rated(now, unit=unit))
    assert (bool(found.moved), found.is_worse) == (moved, worse)


def test_several_runs_learn_the_band() -> None:
    quiet = [rated(40.0, 41.0), rated(40.2, 40.8), rated(39.8, 41.2)]
    found = diff(quiet[0], rated(37.0, 41.0), quiet[1:])
    (moved,) = found.moved
    assert found.is_worse
    assert (moved.target, moved.before, moved.runs) == ("n0 -> m", 40.0, 3)
    assert 0.03 * 40 <= moved.band < 3
    loud = [rated(40.0, 41.0), rated(34.0, 36.0), rated(46.0, 47.0)]
    assert not diff(loud[0], rated(30.0, 41.0), loud[1:]).moved
    assert diff(loud[0], rated(7.0, 41.0), loud[1:]).is_worse
    # A pair that scatters among quiet ones keeps at least what it has shown.
    one = [rated(40.0, *[41.0] * 20), rated(30.0, *[41.0] * 20), rated(44.0, *[41.0] * 20)]
    assert not diff(one[0], rated(30.5, *[41.0] * 20), one[1:]).moved


def test_bands_rarely_cry_wolf_and_see_what_fell() -> None:
    """40 clusters of 30 pairs that scatter by 5 %, three runs each: a fourth like them, and one at 70 %."""
    chance = random.Random(7)

    def run(share: float = 1.0) -> Report:
        rates = [chance.gauss(40.0, 2.0) for _ in range(30)]
        return rated(rates[0] * share, *rates[1:])

    alarms = seen = 0
    for _ in range(40):
        known = [run(), run(), run()]
        alarms += bool(diff(known[0], run(), known[1:]).moved)
        seen += any(m.target == "n0 -> m" for m in diff(known[0], run(0.7), known[1:]).moved)
    assert alarms <= 3
    assert seen >= 36


@pytest.mark.parametrize(("share", "free", "known"), [
    (0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 3, 3.182), (0.995, 4, 4.604), (0.9995, 10, 4.587),
])  # fmt: skip
def test_students_quantile(share: float, free: int, known: float) -> None:
    assert bands.student(share, free) == pytest.approx(known, rel=0.01)


def test_the_noise_of_rates_is_a_share_and_of_times_a_time() -> None:
    learnt = [bands.Band(40.0, 2.0, 3), bands.Band(20.0, 2.0, 3), bands.Band(10.0, 2.0, 3)]
    assert bands.noise(learnt, "GB/s") == "10%"
    assert bands.noise(learnt, "ms") == "2 ms"


def test_a_verdict_further_from_ready_is_worse() -> None:
    ready, open_ = sample_report("ready"), sample_report("ready")
    open_ = dataclasses.replace(open_, verdict=dataclasses.replace(open_.verdict, state="undecided"))
    assert diff(ready, open_).is_worse
    assert not diff(open_, ready).is_worse


def told(before: Report, now: Report, runs: int = 1) -> list[str]:
    names = ("old.json", "new.json")
    shown = changes.text(diff(before, now), before, now, runs=runs, names=names, width=100)
    return shown.splitlines()


def test_what_changed_on_nodes_comes_before_what_broke_there() -> None:
    good, bad = sample_report("ready"), sample_report()
    targets = (dataclasses.replace(good.targets[0], facts={"gpus": 7}), *bad.targets[1:])
    lines = told(good, dataclasses.replace(bad, targets=targets))
    labels = [line.split()[0] for line in lines[3:-2] if line and not line.startswith(" ")]
    assert labels == ["FACTS", "WORSE"]
    assert "WORSE    [new]     FAIL    net.ports" in "\n".join(lines)
    assert "verdict   READY -> NOT READY" in "\n".join(lines)
    # A cell that its cause tells of is not told twice.
    assert not [line for line in lines if "pass -> fail" in line]
    assert lines[-1] == "worse, exit 1"
    back = told(bad, good)
    assert [line.split()[0] for line in back if "[fixed]" in line][:1] == ["BETTER"]
    assert back[-1] == "not worse, exit 0"
    assert "nothing changed" in "".join(told(good, good))


@pytest.mark.parametrize(("runs", "end"), [(1, "profile full"), (3, "profile full, newest of 3 runs")])
def test_the_older_side_says_how_many_runs_it_has(runs: int, end: str) -> None:
    assert told(sample_report(), sample_report(), runs)[0].endswith(f"NOT READY   {end}")


@pytest.mark.parametrize(("changed", "more"), [(20, []), (23, ["and 3 more: -o json"])])
def test_changes_neither_better_nor_worse_are_counted_from_the_21st_on(changed: int, more: list[str]) -> None:
    before = dataclasses.replace(sample_report("ready"), measures=())
    cells = tuple("bbbb" if n < changed else row for n, row in enumerate(before.matrix.cells))
    now = dataclasses.replace(before, matrix=dataclasses.replace(before.matrix, cells=cells))
    lines = told(before, now)
    assert sum("pass -> blocked" in line for line in lines) == 20
    assert [line.strip() for line in lines if "more" in line] == more


def test_the_band_of_a_value_says_what_it_is_learnt_from() -> None:
    runs, now = [rated(40.0), rated(41.0), rated(39.0)], rated(5.0)
    assert "by default)" in "\n".join(told(runs[0], now))
    found = diff(runs[0], now, runs[1:])
    shown = changes.text(found, runs[0], now, names=("old", "new.json"), width=100)
    assert "of 3 runs)" in shown


def test_json_has_all_of_it_and_many_values_are_one_line() -> None:
    before, now = rated(*[40.0] * 6), rated(*[20.0] * 6, state="not_ready")
    data = json.loads(changes.as_json(diff(before, now), before, now, names=("a", "b")))
    assert (data["schema"], data["exit_code"], data["worse"]) == ("netdoctor.diff/1", 1, True)
    assert [c["key"] for c in data["causes"]["new"]] == ["firewall-inbound", "ifname-missing", "clock-skew"]
    assert len(data["moved"]) == 6
    assert data["moved"][0]["ratio"] == -0.5
    assert {c["kind"] for c in data["changes"]} == {"worse", "other"}
    moved = [line for line in told(before, now) if "  moved  " in line]
    assert len(moved) == 2
    assert "5 more, less than that: n[" in moved[1]
