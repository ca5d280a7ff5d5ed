"""What changed since another report: in lines, and beside each other where there is room."""

import dataclasses

from netdoctor.report.diff import FactChange, Moved, diff
from netdoctor.report.model import Report
from netdoctor.tui import compare
from netdoctor.tui.compare import BESIDE_FROM
from tests.report.build import sample_report
from tests.tui.harness import application, drive, rich_report


def drawn(width: int, *, before: Report | None = None, now: Report | None = None) -> list[str]:
    app = application(now or rich_report(state="ready"))
    app.base, app.base_name = before or rich_report(), "yesterday.json"
    return [line.strip("| ") for line in drive(app, (width, 40), "5")]


def test_what_was_and_what_is_stand_beside_each_other_from_110_columns_on() -> None:
    lines = drawn(110)
    head = next(line for line in lines if line.startswith("before"))
    assert "now 2026" in head
    cause = next(line for line in lines if "gpu-a04 has no" in line)
    assert cause.split()[-2:] == ["FAIL", "fixed"]
    changed = next(line for line in lines if "nccl.ifname" in line)
    assert changed.split("gpu-a04")[1].split() == ["FAIL:", "no", "interface", "eth0", "ok"]
    narrow = drawn(109)
    assert not any(line.startswith("before") for line in narrow)
    assert any("fail -> pass" in line for line in narrow)


def test_the_first_lines_count() -> None:
    assert any(line.startswith("fixed 3   new 0   still 0   worse 0   better 3") for line in drawn(80))
    assert any(
        "fixed 0   new 3" in line for line in drawn(120, before=sample_report("ready"), now=rich_report())
    )


def test_only_what_the_checks_prove_is_fixed() -> None:
    """A cause that is not found again, without its checks having passed, is not green."""
    before, now = rich_report(), rich_report(state="ready")
    checks = now.matrix.checks
    cells = tuple(
        "?" * 4 if c == "net.ports" else row for c, row in zip(checks, now.matrix.cells, strict=True)
    )
    now = dataclasses.replace(now, matrix=dataclasses.replace(now.matrix, cells=cells))
    lines = compare.page(diff(before, now), before, now, 130)
    first = next(one for one in lines if "drops connections that come" in one.text)
    assert first.spans[-1] == (first.spans[-1][0], "unknown")
    assert first.spans[-1][0].strip() == "not found again"


def test_values_and_facts_have_both_columns_and_nothing_is_cut() -> None:
    before, now = rich_report(), rich_report(state="ready")
    found = dataclasses.replace(
        diff(before, now),
        moved=(Moved("bw.pair", "gpu-a01->gpu-a02", 46.1, 39.8, "GB/s"),),
        facts=(FactChange("kernel", "5.15.0-113-generic " * 3, "5.15.0-119", ("gpu-a04",)),),
    )
    for width in (BESIDE_FROM, 120, 196):
        lines = [one.text for one in compare.page(found, before, now, width)]
        assert all(len(text) <= width for text in lines)
        assert not any(".." in text for text in lines)
        moved = next(text for text in lines if "bw.pair  gpu-a01->gpu-a02" in text)
        assert moved.index("46.1") < moved.index("39.8 GB/s  -14%")
        assert "".join(lines).count("5.15.0-113-generic") == 3
