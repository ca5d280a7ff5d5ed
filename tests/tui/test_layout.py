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
from tests.tui.harness import application, drive, rich_report

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
