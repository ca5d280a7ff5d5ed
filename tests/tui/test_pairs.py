"""The Pairs screen from literals: which pair is the worst, what is red, what the square says."""

import dataclasses
from collections.abc import Sequence

import pytest

from netdoctor.report.model import MeasureRecord, PairRecord, PathRecord, Report
from netdoctor.tui import pairs, square
from tests.report.build import sample_report
from tests.tui.harness import rich_report


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
    lines = square.page(report, check, 120, values=True).lines
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
        assert [p.status for p in pairs.pairs_on(report, "net.ports", path)] == tried
        assert said in square.page(report, "net.ports", 100, path=path).lines[1].text
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


def test_rungs_of_a_ladder_are_numbers_of_nodes() -> None:
    rungs = [
        MeasureRecord(name=f"bw.ladder.rate.{n}", target="cluster", value=1.0, unit="GB/s") for n in (16, 2)
    ]
    report = dataclasses.replace(sample_report("ready"), measures=tuple(rungs))
    assert [label for label, _ in pairs.curves(report)["bw.ladder.rate"]] == ["2 nodes", "16 nodes"]


def of_32(bad: str, status: str = "fail", value: float | None = None) -> Report:
    names = [f"node{n}" for n in range(32)]
    pairs_ = tuple(
        PairRecord(
            check="net.ports" if value is None else "net.path-mtu", from_=a, to=b,
            status=status if b == bad else "pass", class_="filtered" if b == bad else "open",
            value=None if value is None else value - 96 * (b == bad), unit=None if value is None else "bytes",
            ports=(29500,),
        )
        for a in names for b in names if a != b
    )  # fmt: skip
    ready = sample_report("ready", nodes=32)
    matrix = dataclasses.replace(ready.matrix, nodes=tuple(names))
    return dataclasses.replace(ready, pairs=pairs_, matrix=matrix)


def test_32_nodes_fit_into_80_columns_with_heads_and_the_pair_under_the_cursor() -> None:
    found = square.page(of_32("node17"), "net.ports", 78, row="node3")
    tens, units = (one.text for one in found.lines[1:3])
    assert units.split() == [str(n % 10) for n in range(32)]
    assert tens.split() == [str(n // 10) for n in range(10, 32)]
    for n, one in enumerate(found.lines[3:35]):
        assert len(one.text) <= 78
        assert one.text.split() == [
            f"node{n}",
            *("=" if n == m else "f" if m == 17 else "." for m in range(32)),
        ]
        assert one.text.index(f"node{n}") < tens.index("1")
    assert found.heads == 3
    legend, pair, said = (one.text.rstrip() for one in found.below)
    assert legend == " . open   f filtered   = itself   blank not measured"
    assert pair == " pair     node3 -> node17   filtered   ports 29500"  # of no column, the worst of the row
    assert said == " reading  column pattern: nobody reaches node17; look at what node17 lets in"
    turned = square.page(of_32("node17"), "net.ports", 78, row="node17", column="node5", transpose=True)
    assert [one.text.rstrip() for one in turned.below[1:]] == [
        " pair     node5 -> node17   filtered   ports 29500",
        " reading  row pattern: nobody reaches node17; look at what node17 lets in",
    ]


def test_values_are_whole_have_their_unit_and_say_which_columns_do_not_fit() -> None:
    report = of_32("node17", "warn", 1500.0)
    first = square.page(report, "net.path-mtu", 78, values=True, row="node0", column="node0")
    assert "net.path-mtu in bytes" in first.lines[0].text
    assert first.lines[0].text.rstrip().endswith("20 more>")
    assert first.lines[1].text.split() == [*map(str, range(12)), "worst"]
    assert "1500" in first.lines[2].text.split()
    there = square.page(report, "net.path-mtu", 78, values=True, row="node0", column="node17")
    assert "<11 more   9 more>" in there.lines[0].text
    assert ("1404", "heat0+cursor") in there.lines[2].spans
    assert there.below[2].text == " reading  column pattern: every pair to node17 is not good"
    assert square.moved(report, "net.path-mtu", "", "node0", "node17", 1) == "node18"
    assert square.moved(report, "net.path-mtu", "", "node0", "", -1) == "node16"
    assert square.moved(report, "net.path-mtu", "", "node0", "node31", 5) == "node31"


def test_many_nodes_that_are_all_different_are_some_rows_and_the_rest() -> None:
    """A sample of peers, as above 64 nodes: the first nodes drop what comes, one is in good pairs too."""
    nodes = [f"n{i:03}" for i in range(400)]
    shut, odd = set(nodes[:90]), nodes[399]
    found = tuple(
        PairRecord(
            check="net.ports", from_=a, to=b, status="pass" if ok else "fail",
            class_="open" if ok else "filtered",
        )
        for i, a in enumerate(nodes)
        for step in (1, 7, 31, 60)
        for b in [nodes[(i + step) % len(nodes)]]
        for ok in [b not in shut and not (b == odd and step == 7)]
    )  # fmt: skip
    report = dataclasses.replace(sample_report("ready"), pairs=found)
    table = pairs.table_of(report, "net.ports")
    assert table.rest
    assert len(table.groups) == len(table.worst) == pairs.GROUPS_MAX
    assert sorted(name for group in table.groups for name in group) == nodes
    assert shut <= {name for group in table.groups[:-1] for name in group}
    said = " ".join(pairs.reading(table))
    # Those whose own peers are all shut reach nobody either.
    assert all(f"nobody reaches {n};" in said or f"{n} reaches nobody and nobody" in said for n in shut)
    assert f"nobody reaches {odd}" not in said
    drawn = square.page(report, "net.ports", 100).lines
    assert len(drawn) < 2 * pairs.GROUPS_MAX
    assert "other nodes" in " ".join(one.text for one in drawn)
    good = dataclasses.replace(report, pairs=tuple(dataclasses.replace(p, status="pass") for p in found))
    assert pairs.reading(pairs.table_of(good, "net.ports")) == ["no pair fails"]


def test_margins_have_the_worst_of_each_row_and_column() -> None:
    report = rich_report(4)
    drawn = square.page(report, "net.ports", 60, row="gpu-a01").lines
    assert drawn[1].text.split() == ["01", "02", "03", "04", "worst"]
    assert [one.text.split()[-1] for one in drawn[2:6]] == ["f", "f", ".", "f"]  # as a source
    assert drawn[6].text.split() == ["worst", ".", ".", "f", "."]  # as a destination
    assert drawn[6].key is None
    turned = square.page(report, "net.ports", 60, transpose=True).lines
    assert [one.text.split()[-1] for one in turned[2:6]] == [".", ".", "f", "."]
    assert turned[6].text.split() == ["worst", "f", "f", ".", "f"]
    rates = square.page(report, "bw.pair", 78, values=True).lines
    assert [one.text.split()[-1] for one in rates[2:6]] == ["38.60", "43.00", "39.90", "36.80"]
    assert rates[6].text.split() == ["worst", "36.80", "36.80", "36.80", "39.90"]
    assert {style for text, style in rates[6].spans if text.strip() == "36.80"} == {"heat0"}


def test_names_are_whole_and_trouble_is_in_words_where_there_is_room() -> None:
    report = rich_report(4)
    drawn = square.page(report, "net.ports", 96, row="gpu-a01", column="gpu-a03").lines
    assert drawn[1].text.split() == ["gpu-a01", "gpu-a02", "gpu-a03", "gpu-a04", "worst"]
    assert drawn[2].text.split() == ["gpu-a01", "=", ".", "X", "filtered", ".", "X", "filtered"]
    assert drawn[6].text.split() == ["worst", ".", ".", "X", "filtered", "."]
    middle = drawn[1].text.index("gpu-a01") + 3
    assert {one.text[middle - 1 : middle + 2].strip() for one in drawn[2:7]} == {"=", "."}
    assert [text.strip() for text, style in drawn[2].spans if style.endswith("+cursor")] == ["X filtered"]
    assert all(len(one.text) <= 96 for one in drawn)


def test_the_worst_of_a_row_is_in_sight_though_its_column_is_not() -> None:
    found = square.page(
        of_32("node31", "warn", 1500.0), "net.path-mtu", 78, values=True, row="node0", column="node0"
    )
    assert found.lines[1].text.split()[-2:] == ["11", "worst"]
    assert [one.text.split()[-1] for one in found.lines[2:34]] == ["1404"] * 31 + ["1500"]
    assert all(len(one.text) <= 78 for one in found.lines)
    two = dataclasses.replace(
        rich_report(4),
        pairs=tuple(p for p in rich_report(4).pairs if {p.from_, p.to} <= {"gpu-a01", "gpu-a03"}),
    )
    assert not any("worst" in one.text for one in square.page(two, "net.ports", 78).lines)  # it would repeat
