"""Bandwidths out of an earlier report."""

import dataclasses
import math
from pathlib import Path

import pytest

from netdoctor.errors import InputError
from netdoctor.facts.bandwidth import BaselineRate
from netdoctor.report.baseline import baseline, read
from netdoctor.report.model import MeasureRecord, PairRecord, PathRecord, Report
from netdoctor.report.redact import redact
from netdoctor.report.save import save
from tests.report.build import sample_report


def pair(check: str, value: float | None, unit: str) -> PairRecord:
    return PairRecord(check=check, from_="a", to="b", status="pass", class_="ok", value=value, unit=unit)


def measure(name: str, value: float, unit: str = "GB/s") -> MeasureRecord:
    return MeasureRecord(name=name, target="cluster", value=value, unit=unit)


def report(*rows: PairRecord | MeasureRecord) -> Report:
    return dataclasses.replace(
        sample_report(nodes=4),
        pairs=tuple(r for r in rows if isinstance(r, PairRecord)),
        measures=tuple(r for r in rows if isinstance(r, MeasureRecord)),
    )


def test_figures_come_out_in_one_unit(tmp_path: Path) -> None:
    rows = (
        pair("bw.tcp", 8.0, "Gbit/s"),
        pair("bw.pair", 3.0, "GB/s"),
        pair("net.loss", 2.0, "%"),
        measure("bw.allreduce.busbw", 7.0),
        measure("bw.allreduce.busbw.4096", 0.5),
        measure("bw.allreduce.busbw.1048576", 7.0),
        measure("bw.allreduce.algbw.4096", 0.4),
        measure("bw.allreduce.ranks", 4, "gloo ranks"),
    )
    path = tmp_path / "good.json"
    save(report(*rows), path)
    found = read(path, ["a", "b"])
    assert found.source == "good.json"
    assert found.tcp == (BaselineRate(src="a", dst="b", gbyte_s=1.0),)
    assert found.pairs == (BaselineRate(src="a", dst="b", gbyte_s=3.0),)
    assert found.busbw_gbyte_s == ((4096, 0.5), (1048576, 7.0))
    assert (found.ranks, found.backend) == (4, "gloo")


def test_of_several_paths_the_main_one_counts() -> None:
    ways = tuple(
        PathRecord(path=path, status=status, class_="x", value=value)
        for path, status, value in (("eth0", "pass", 8.0), ("eth1", "fail", 1.0))
    )
    slow = dataclasses.replace(pair("bw.tcp", 1.0, "Gbit/s"), path="eth1", paths=ways)
    assert baseline(report(slow), "x", ["a", "b"]).tcp == (BaselineRate(src="a", dst="b", gbyte_s=1.0),)


def test_pairs_of_other_nodes_are_left_out() -> None:
    assert baseline(report(pair("bw.tcp", 8.0, "Gbit/s")), "x", ["a", "c"]).tcp == ()


@pytest.mark.parametrize("value", [0.0, -4.0, 1e300, math.inf, math.nan])
def test_what_is_no_count_of_ranks_is_left_out(value: float) -> None:
    assert baseline(report(measure("bw.allreduce.ranks", value, "gloo ranks")), "x", "ab").ranks is None


def test_a_redacted_report_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shown.json"
    save(redact(report(pair("bw.tcp", 8.0, "Gbit/s"))), path)
    with pytest.raises(InputError, match="redacted"):
        read(path, "ab")


@pytest.mark.parametrize("value", [None, 0.0, -1.0, math.inf, math.nan])
def test_what_is_no_rate_is_left_out(value: float | None) -> None:
    assert not baseline(report(pair("bw.tcp", value, "Gbit/s")), "x", "ab").tcp


@pytest.mark.parametrize("row", [pair("bw.tcp", 8.0, "Gbit/s"), measure("bw.allreduce.busbw.4096", 0.5)])
def test_rates_of_either_kind_make_a_baseline(row: PairRecord | MeasureRecord, tmp_path: Path) -> None:
    save(report(row), tmp_path / "good.json")
    found = read(tmp_path / "good.json", "ab")
    assert found is not None
    assert len(found.tcp) + len(found.busbw_gbyte_s) == 1


def test_a_report_without_bandwidth_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "quick.json"
    save(report(), path)
    with pytest.raises(InputError, match="holds no bandwidth; make one with"):
        read(path, "ab")


def test_a_file_that_is_no_report_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match=r"x\.json"):
        read(tmp_path / "x.json", "ab")
