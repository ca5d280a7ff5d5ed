"""Where the columns of the matrix stand, at widths that people have."""

import dataclasses

import pytest

from netdoctor.tui.app import NetdoctorApp
from netdoctor.tui.layout import COUNT, plan
from netdoctor.tui.lines import width_of
from netdoctor.tui.nodes import groups
from netdoctor.tui.stage import screen_text
from netdoctor.tui.state import Cells, Known, opened
from netdoctor.tui.where import Where, fitted, next_zoom
from tests.report.build import sample_report
from tests.tui.harness import Step, application, drive, rich_report

FAMILIES = {
    "ssh": 2,
    "gloo": 1,
    "gpu": 7,
    "host": 7,
    "nccl": 4,
    "net": 8,
    "rdma": 4,
    "rdzv": 3,
    "sw": 5,
    "time": 2,
}


def cells(nodes: int = 6, families: dict[str, int] = FAMILIES) -> Cells:
    checks = [(f"{family}.c{n}", family) for family, count in families.items() for n in range(count)]
    names = tuple(f"node{n}" for n in range(nodes))
    return Cells(names, tuple(c for c, _ in checks), tuple(f for _, f in checks), b"." * nodes * len(checks))


def test_short_names_leave_their_room_to_the_columns() -> None:
    found = plan(cells(), None, 80, names=5, families=True)
    assert found.families
    assert found.label == 5 + 2
    assert found.width <= 80
    assert all(family in found.heads[1] for family in FAMILIES)
    assert not plan(cells(), None, 80, names=5).families  # every check fits, too


@pytest.mark.parametrize("names", [5, 26, 60])
@pytest.mark.parametrize("counted", [False, True])
def test_names_are_cut_before_columns_are(names: int, counted: bool) -> None:
    found = plan(cells(), None, 80, names=names, counted=counted, families=True)
    assert found.width <= 80
    assert len(found.columns) == len(FAMILIES)
    assert found.columns[0].x == found.label + 2 + (COUNT if counted else 0)
    assert found.label >= 2 + min(names, 14)


@pytest.mark.pilot
def test_columns_that_cannot_be_seen_are_counted_at_the_edge() -> None:
    pictures: list[str] = []

    def look(app: NetdoctorApp, pilot: object) -> None:
        pictures.append(screen_text(app)[3].strip("| "))

    report = sample_report()
    more = tuple(f"acme.c{n}" for n in range(60))
    matrix = dataclasses.replace(
        report.matrix, checks=report.matrix.checks + more, cells=report.matrix.cells + ("....",) * 60
    )
    app = application(dataclasses.replace(report, matrix=matrix))
    drive(app, (80, 24), "2", "t", "w", *["left"] * 20, look, *["right"] * 101, look)
    assert pictures[0].endswith("more>")
    assert pictures[1].startswith("<")
    assert "more>" not in pictures[1]


def test_rows_that_do_not_fit_are_groups_until_somebody_chooses() -> None:
    assert [fitted(Where(), cells(n), room).zoom for n, room in ((6, 11), (32, 11), (32, 40), (64, 80))] == [
        "rows", "groups", "rows", "groups",
    ]  # fmt: skip
    chosen = next_zoom(fitted(Where(), cells(32), 11))
    assert fitted(chosen, cells(32), 40).zoom == chosen.zoom == "rows"
    assert fitted(chosen, cells(32), 11).zoom == "rows"


@pytest.mark.parametrize("width", [80, 100, 109, 110, 120, 139, 140, 200])
def test_every_node_has_its_column_in_sight_where_checks_are_rows(width: int) -> None:
    def look(app: NetdoctorApp, pilot: object) -> None:
        if app.turned is not None:
            shown.append(len(app.turned.nodes))
            assert max(width_of(one.text) for one in app.page.lines) <= app.room
            assert all(f"{n:02}" in app.page.lines[0].text for n in range(1, shown[-1] + 1))

    shown: list[int] = []
    for nodes in (2, 3, 9, 12, 17, 20, 21):
        drive(application(rich_report(nodes)), (width, 30), "2", look, "a", look)
    assert shown[:4] == [2, 2, 3, 3]
    assert 21 not in shown


def test_nodes_without_a_cause_are_no_greener_than_their_worst_result() -> None:
    report = sample_report("undecided", nodes=4)
    known = Known(dataclasses.replace(report, causes=()))
    lines = [one.text.split() for one in groups(known, opened(report).cells, 60)]
    assert lines == [
        ["?", "1", "without", "a", "cause,", "UNKNOWN"],
        [".", "3", "without", "a", "cause,", "ok"],
    ]
    found = groups(Known(report), opened(report).cells, 60)
    assert [one.text.split()[:3] for one in found if "[1]" in one.text] == [["?", "1", "[1]"]]
    assert found[-1].text.split()[:2] == [".", "3"]


def overview(nodes: int, *steps: Step, size: tuple[int, int] = (100, 30)) -> tuple[list[str], NetdoctorApp]:
    app = application(rich_report(nodes))
    return drive(app, size, "2", "minus", *steps), app


def test_rows_of_the_overview_with_nothing_wrong_are_one_line_where_not_all_fit() -> None:
    lines, _ = overview(10_000)
    assert [line.split(":")[0].split()[-3:] for line in lines if "no trouble" in line] == [
        ["gpu-a00141", "490", "nodes"],
        ["gpu-a00771", "9230", "nodes"],
    ]
    first = next(n for n, line in enumerate(lines) if "gpu-a00001" in line)
    assert "X" in lines[first]
    assert "gpu-a00071" in lines[first + 1]  # a warning in it
    assert "!" in lines[first + 1]
    whole, _ = overview(10_000, "a")
    assert not any("no trouble" in line for line in whole)
    assert sum(line.count(".") >= 69 for line in whole) > 15
    few, _ = overview(1000)  # which has a line for each row
    assert not any("no trouble" in line for line in few)
    assert sum("gpu-a" in line for line in few) >= 13


def test_what_nobody_measured_is_not_folded_as_nothing_wrong() -> None:
    report = rich_report(10_000, "ready")
    names = report.matrix.nodes
    for letter in "?-b":
        cells = tuple(row[:5000] + letter + row[5001:] for row in report.matrix.cells)
        changed = dataclasses.replace(report, matrix=dataclasses.replace(report.matrix, cells=cells))
        lines = drive(application(changed), (100, 30), "2", "minus")
        assert len([line for line in lines if "nothing" in line]) == 2
        assert any(names[4970] in line and letter in line for line in lines)


def test_the_cursor_goes_over_folded_rows_and_is_never_lost() -> None:
    seen: list[tuple[str, bool]] = []

    def look(app: NetdoctorApp, pilot: object) -> None:
        line = app.matrix._line_with(app.matrix.line)
        first, last = app.matrix._overview_lines[line]
        seen.append((str(app.node), last - first > app.matrix._across()))
        assert first <= app.matrix.line < last

    down: list[Step] = ["down", look]
    steps = ["g", look, *down, *down, "up", look, *down, "left", look, "down", "right", look, "a", look]
    overview(10_000, *steps)
    assert seen == [
        ("gpu-a00001", False), ("gpu-a00071", False), ("gpu-a00141", True), ("gpu-a00071", False),
        ("gpu-a00141", True), ("gpu-a00140", False), ("gpu-a00631", False), ("gpu-a00631", False),
    ]  # fmt: skip
