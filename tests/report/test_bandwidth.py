"""Rates of pairs, and a ladder, as reports draw them."""

import dataclasses
import re

import pytest

from netdoctor.report.formats import html
from netdoctor.report.formats.bandwidth import ladder, matrix
from netdoctor.report.formats.text import render
from netdoctor.report.model import MeasureRecord, PairRecord, Report
from tests.report.build import sample_report


def report(values: dict[tuple[int, int], tuple[float | None, str]], nodes: int = 3) -> Report:
    names = sample_report(nodes=nodes).matrix.nodes
    pairs = tuple(
        PairRecord(
            check="bw.tcp",
            from_=names[a],
            to=names[b],
            status=status,
            class_="ok",
            value=value,
            unit="Gbit/s",
        )
        for (a, b), (value, status) in values.items()
    )
    return dataclasses.replace(sample_report(nodes=nodes), pairs=pairs)


def full(nodes: int) -> dict[tuple[int, int], tuple[float | None, str]]:
    return {(a, b): (94.1, "pass") for a in range(nodes) for b in range(nodes) if a != b}


def test_rows_send_to_columns() -> None:
    values = full(3) | {(0, 2): (0.0583, "fail"), (2, 0): (61.0, "warn"), (1, 0): (None, "fail")}
    del values[2, 1]
    assert matrix(report(values), "bw.tcp", 80) == [
        "  bw.tcp Gbit/s    0     1      2",
        "  0 gpu-a01        =  94.1  0.058X",
        "  1 gpu-a02        0X    =   94.1",
        "  2 gpu-a03     61.0!           =",
        "  rows send to columns; X under half the usual, ! slow; blank not measured",
    ]


def test_a_whole_and_healthy_matrix_explains_no_marks() -> None:
    assert matrix(report(full(3)), "bw.tcp", 80)[-1] == "  rows send to columns"


def test_paths_are_named_where_there_are_several() -> None:
    values = full(3) | {(0, 2): (0.0583, "fail"), (1, 2): (0.05, "fail")}
    whole = report(values)
    pairs = tuple(
        dataclasses.replace(p, path="eth0" if p.status == "pass" else "eth1 (10.2.0.0/24: NCCL)")
        for p in whole.pairs
    )
    assert matrix(dataclasses.replace(whole, pairs=pairs), "bw.tcp", 80)[-2:] == [
        "  over eth0",
        "  over eth1 (10.2.0.0/24: NCCL): gpu-a[01-02] -> gpu-a03",
    ]


def test_more_pairs_than_columns_are_summed_up() -> None:
    values = full(24) | {(3, 17): (1.5, "fail")}
    lines = matrix(report(values, 24), "bw.tcp", 80)
    assert lines[0] == "  bw.tcp Gbit/s: 552 directed pairs, median 94.1, slowest"
    assert lines[1].split() == ["1.50X", "gpu-a04", "->", "gpu-a18"]
    assert len(lines) == 4


def test_a_matrix_is_drawn_as_long_as_it_fits() -> None:
    whole = report(full(3) | {(0, 2): (61.0, "warn")})
    *table, _legend = matrix(whole, "bw.tcp", 200)
    width = max(map(len, table))
    assert matrix(whole, "bw.tcp", width)[:-1] == table
    assert "slowest" in matrix(whole, "bw.tcp", width - 1)[0]


def test_without_pairs_there_is_nothing() -> None:
    assert matrix(report({}), "bw.tcp", 80) == []
    assert matrix(report(full(3)), "bw.pair", 80) == []


@pytest.mark.parametrize("width", [40, 80, 200])
def test_names_of_strangers_stay_on_their_line(width: int) -> None:
    wild = "\x1b[2J\u202e" + "x" * 300
    one = PairRecord(
        check="bw.tcp", from_=wild, to="n2", status="pass", class_="ok", value=1.0, unit="\x1b]0;x\x07"
    )
    lines = matrix(dataclasses.replace(report({}), pairs=(one,)), "bw.tcp", width)
    assert lines
    assert all(line.isprintable() for line in lines)


def test_the_text_report_shows_them_in_a_full_run() -> None:
    shown = dataclasses.replace(report(full(3)), run=dataclasses.replace(report({}).run, profile="full"))
    assert "rows send to columns" in render(shown, width=80)


def climbed(*rates: float) -> Report:
    measures = [
        MeasureRecord(name=f"bw.ladder.{name}.{2 << rung}", target="cluster", value=value, unit=unit)
        for rung, rate in enumerate(rates)
        for name, value, unit in (("rate", rate, "GB/s"), ("step", 50.0, "ms"))
    ]
    return dataclasses.replace(sample_report(), measures=tuple(measures[::-1]))


def test_a_ladder_has_bars_where_there_is_room() -> None:
    lines = ladder(climbed(12.0, 11.7, 5.85, 0.0), 120)
    assert [len(line) - len(line.rstrip("#")) for line in lines] == [0, 40, 39, 20, 0]
    assert [line.split()[2:6] for line in lines[1:]][:3] == [
        ["12.0", "50.0", "ms", "#" * 40],
        ["11.7", "98%", "50.0", "ms"],
        ["5.85", "50%", "50.0", "ms"],
    ]
    assert not any("#" in line for line in ladder(climbed(12.0, 11.7), 40))
    assert ladder(sample_report(), 80) == []


@pytest.mark.parametrize(("slow", "colours"), [(True, ["rate", "rate f"]), (False, ["rate", "rate"])])
def test_the_page_has_them_and_the_slow_one_in_its_colour(slow: bool, colours: list[str]) -> None:
    report = climbed(12.0, 5.0)
    cause = dataclasses.replace(report.causes[0], checks=("bw.ladder",))
    report = dataclasses.replace(report, causes=(cause,) if slow else ())
    shown = html.render(report)
    section = shown[shown.index("Training on more and more nodes</h2>") :].partition("</section>")[0]
    assert re.findall(r'class="(rate[ f]*)"', section) == colours
    assert "2 nodes" in render(report, verbosity=1)
