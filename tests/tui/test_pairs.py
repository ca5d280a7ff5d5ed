"""The Pairs screen from literals: which pair is the worst, what is red, what the square says."""

import dataclasses
from collections.abc import Sequence

import pytest

from netdoctor.report.model import MeasureRecord, PairRecord, PathRecord, Report
from netdoctor.tui import pairs
from tests.report.build import sample_report


def report_of(
    check: str, unit: str, values: dict[tuple[str, str], float | None], status: str = "pass"
) -> Report:
    return dataclasses.replace(
        sample_report("ready"),
        pairs=tuple(
            PairRecord(check=check, from_=a, to=b, status=status, class_="ok", value=value, unit=unit)
            for (a, b), value in values.items()
        ),
    )


def heats(report: Report, check: str) -> dict[float, str]:
    """The style of each value on the screen, by the figure that is shown."""
    lines = pairs.page(report, check, 120, values=True)
    return {float(text): style for one in lines for text, style in one.spans if style.startswith("heat")}


@pytest.mark.parametrize(
    ("check", "unit", "values", "red", "green"),
    [
        pytest.param("bw.pair", "GB/s", (46.0, 45.0, 12.0), 12.0, 46.0, id="a slow pair"),
        pytest.param("net.loss", "%", (0.0, 0.0, 3.5), 3.50, 0.00, id="a lossy pair"),
        pytest.param("net.latency", "us", (2.0, 2.5, 90.0), 90.0, 2.00, id="a long way"),
        pytest.param("time.skew", "ms", (0.1, 0.2, -700.0), -700.0, 0.1, id="a clock behind"),
        pytest.param("net.path-mtu", "bytes", (9000.0, 9000.0, 1500.0), 1500.0, 9000.0, id="a small MTU"),
        pytest.param("acme.score", "points", (9.0, 8.0, 1.0), 1.00, 9.00, id="a unit of a plug-in"),
    ],
)
def test_the_most_alarming_value_is_red(
    check: str, unit: str, values: Sequence[float], red: float, green: float
) -> None:
    pairs_of_three = [("alpha", "bravo"), ("bravo", "alpha"), ("alpha", "charlie")]
    report = report_of(check, unit, dict(zip(pairs_of_three, values, strict=True)))
    found = heats(report, check)
    assert found[red] == "heat0"
    assert found[green] == "heat4"


def test_equal_values_are_calm_whatever_they_measure() -> None:
    for check, unit in (("bw.pair", "GB/s"), ("net.loss", "%")):
        assert set(heats(report_of(check, unit, {("a", "b"): 0.0, ("b", "a"): 0.0}), check).values()) == {
            "heat4"
        }


@pytest.mark.parametrize(
    ("check", "unit", "worst"), [("bw.pair", "GB/s", 1.0), ("net.loss", "%", 9.0), ("net.loss", "%", None)]
)
def test_a_group_shows_its_worst_pair(check: str, unit: str, worst: float | None) -> None:
    names = [f"n{i:02}" for i in range(pairs.GROUP_ABOVE + 1)]
    values: dict[tuple[str, str], float | None] = {(a, b): 5.0 for a in names for b in names if a != b}
    values[names[3], names[7]] = worst
    found = pairs.table_of(report_of(check, unit, values), check)
    assert len(found.groups) == 1
    shown = found.worst[0][0]
    assert shown is not None
    assert (shown.from_, shown.to, shown.value) == (names[3], names[7], worst)


@pytest.mark.parametrize(("check", "unit", "first"), [("bw.pair", "GB/s", 1.0), ("net.loss", "%", 9.0)])
def test_the_pairs_of_a_row_begin_with_the_worst(check: str, unit: str, first: float) -> None:
    report = report_of(check, unit, {("a", "b"): 5.0, ("a", "c"): 1.0, ("c", "a"): 9.0})
    lines = pairs.detail(report, check, ("a",), 100)
    assert f"{first:.0f} {unit}" in next(line.text for line in lines if "->" in line.text)


def test_each_path_is_shown_by_itself() -> None:
    ways = tuple(
        PathRecord(path=path, status=status, class_=said, ports=ports)
        for path, status, said, ports in (
            ("eth0", "pass", "open", ()),
            ("eth1", "fail", "filtered", (29500,)),
        )
    )
    pair = PairRecord(
        check="net.ports", from_="a", to="b", status="fail", class_="filtered", path="eth1", paths=ways
    )
    alone = PairRecord(check="net.ports", from_="b", to="a", status="pass", class_="open", path="eth0")
    report = dataclasses.replace(sample_report("ready"), pairs=(pair, alone))
    assert pairs.paths(report, "net.ports") == ["eth0", "eth1"]
    for path, tried, said in (
        ("", ["fail", "pass"], "the worst of 2 paths"),
        ("eth0", ["pass", "pass"], "over eth0"),
        ("eth1", ["fail"], "over eth1"),
        ("gone", ["fail", "pass"], "the worst of 2 paths"),
    ):
        assert [p.status for p in pairs.shown(report, "net.ports", path)] == tried
        assert said in pairs.page(report, "net.ports", 100, path=path)[1].text
        assert said in pairs.detail(report, "net.ports", ("a",), 100, path)[1].text


def test_bars_of_latency_and_of_bandwidth() -> None:
    def styles(name: str, unit: str) -> list[str]:
        items = [
            (f"n{i}", MeasureRecord(name=name, target=f"n{i}", value=value, unit=unit))
            for i, value in enumerate((1.0, 100.0))
        ]
        return [style for one in pairs.bars(items, 80) for _, style in one.spans if style.startswith("heat")]

    assert styles("ssh.speed", "ms") == ["heat4", "heat0"]
    assert styles("bw.allreduce.busbw", "GB/s") == ["heat0", "heat4"]
