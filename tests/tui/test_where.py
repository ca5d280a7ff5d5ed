"""Where somebody looks, moved without a screen; and the rows that follow from it."""

from dataclasses import replace

import pytest

from netdoctor.report.model import Report
from netdoctor.tui import where
from netdoctor.tui.rows import Rows, landed, next_trouble, rows_of, sort_of, worst_check
from netdoctor.tui.state import Known, State, fold, opened
from netdoctor.tui.where import Spot, Where
from tests.tui.harness import began, rich_report

REPORT = rich_report()
STATE = opened(REPORT)
CELLS = STATE.cells
FIRST, SECOND, THIRD = (cause.fingerprint for cause in REPORT.causes)


def renumbered(report: Report, gone: str = "") -> Report:
    """The same report with other numbers for its causes, and one of them healed."""
    causes = [c for c in reversed(report.causes) if c.fingerprint != gone]
    return replace(report, causes=tuple(replace(c, id=n) for n, c in enumerate(causes, 7)))


def carried(look: Where, after: Report, *, everything: bool = False) -> Where:
    return where.carried(look, CELLS, opened(after).cells, Known(after), everything=everything)


# Screens


def test_back_returns_to_what_each_screen_was_about() -> None:
    look = where.goto(Where(), "cause", cause=FIRST, left=("cause", FIRST))
    look = where.goto(look, "node", left=None)
    look = where.goto(look, "cause", cause=SECOND, left=("cell", "a", "n"))
    look, line = where.returned(look)
    assert (look.view, line) == ("node", ("cell", "a", "n"))
    look, _ = where.returned(look)
    assert (look.view, look.cause) == ("cause", FIRST)
    look, line = where.returned(look)
    assert (look.view, look.back, line) == ("causes", (), ("cause", FIRST))
    assert where.returned(replace(look, view="diff"))[0].view == "causes"


def test_only_other_screens_are_steps_and_not_endlessly_many() -> None:
    assert where.goto(Where(), "causes").back == ()
    assert where.goto(Where(), "pairs", keep=False).back == ()
    look = Where()
    for n in range(200):
        look = where.goto(look, ("matrix", "causes")[n % 2])
    assert len(look.back) == where.STEPS_KEPT


def test_a_cause_is_found_again_under_another_number() -> None:
    look = Where(view="evidence", cause=SECOND)
    after = renumbered(REPORT)
    assert carried(look, after) == look
    assert Known(after).by_key[SECOND].title == Known(REPORT).by_key[SECOND].title


def test_a_cause_that_is_gone_leads_to_the_causes() -> None:
    look = where.goto(Where(), "cause", cause=FIRST)
    now = carried(look, renumbered(REPORT, gone=FIRST))
    assert (now.view, now.cause, now.back) == ("causes", None, ())
    assert where.lost(look, now)
    assert not where.lost(look, carried(look, renumbered(REPORT)))


def test_screens_of_a_cause_that_is_gone_are_not_returned_to() -> None:
    look = where.goto(where.goto(Where(), "cause", cause=FIRST), "matrix", cause=SECOND)
    now = carried(look, renumbered(REPORT, gone=FIRST))
    assert now.view == "matrix"
    assert [step.view for step in now.back] == ["causes"]


def test_after_a_scan_of_everything_the_causes_come_first() -> None:
    look = where.goto(where.goto(Where(), "matrix"), "cause", cause=FIRST)
    now = carried(look, REPORT, everything=True)
    assert (now.view, now.back, now.cause) == ("causes", (), FIRST)


def test_two_causes_of_one_fingerprint_are_told_apart() -> None:
    twins = replace(REPORT, causes=tuple(replace(c, fingerprint="same") for c in REPORT.causes))
    known = Known(twins)
    assert [known.cause_at(known.key_of(c)) for c in twins.causes] == list(twins.causes)
    assert known.cause_at(None) is None
    assert known.cause_at("other") is None


# The matrix


def other_nodes(report: Report) -> Report:
    """A report in which the second node is gone and the others stand in another order, behind a new one."""
    names = tuple(n for n in reversed(report.matrix.nodes) if n != report.matrix.nodes[1])
    rows = [row[::-1][:2] + row[0] for row in report.matrix.cells]
    matrix = replace(report.matrix, nodes=("new", *names), cells=tuple("." + row for row in rows))
    return replace(report, matrix=matrix)


def other_checks(report: Report, *without: str) -> Report:
    """A report with a new first check and without some of the others."""
    rows = dict(zip(report.matrix.checks, report.matrix.cells, strict=True))
    for check in without:
        del rows[check]
    rows = {"acme.first": "." * len(report.matrix.nodes), **rows}
    return replace(report, matrix=replace(report.matrix, checks=tuple(rows), cells=tuple(rows.values())))


def test_marks_stay_on_their_nodes() -> None:
    names = REPORT.matrix.nodes
    look = replace(Where(), marks=frozenset(names[:3]), anchor=names[2])
    assert carried(look, other_nodes(REPORT)).marks == {names[0], names[2]}
    assert carried(look, REPORT) == look


def test_sort_and_colour_stay_on_their_checks() -> None:
    look = replace(Where(), by="time.skew", colour="net.ports", zoom="overview")
    state = opened(other_checks(REPORT))
    rows = rows_of(state, None, carried(look, other_checks(REPORT)))
    assert state.cells.nodes[rows.order[0]] == "gpu-a02"  # the one with the skew
    without = other_checks(REPORT, "time.skew")
    assert sort_of(opened(without), look) == "listed"
    assert rows_of(opened(without), None, look).order == [0, 1, 2, 3]
    assert sort_of(STATE, look) == "check"  # and back when the check is


def test_zooms_go_in_and_out_and_round() -> None:
    look = Where(zoom="groups")
    assert [where.zoomed(look, by).zoom for by in (-1, 1)] == ["rows", "overview"]
    assert where.zoomed(Where(zoom="rows"), -1).zoom == "rows"
    assert where.zoomed(Where(zoom="overview"), 1).zoom == "overview"
    assert [where.next_zoom(Where(zoom=zoom)).zoom for zoom in where.ZOOMS] == ["rows", "overview", "groups"]


def test_sorts_follow_each_other_and_a_check_gives_way_to_the_last() -> None:
    look = Where()
    assert [(look := where.next_sort(look)).sort for _ in range(3)] == ["listed", "name", "worst"]
    look = where.next_sort(Where(sort="name", by="net.ports"))
    assert (look.sort, look.by) == ("name", None)


def test_colours_go_round_and_begin_again_at_what_is_not_there() -> None:
    look = Where()
    assert [(look := where.next_colour(look, ("a", "b"))).colour for _ in range(4)] == ["a", "b", None, "a"]
    assert where.next_colour(Where(colour="gone"), ("a",)).colour == "a"


def test_marking_twice_unmarks() -> None:
    look = where.marked(Where(), {"a", "b"}, "a")
    assert (look.marks, look.anchor) == ({"a", "b"}, "a")
    assert where.marked(look, {"b", "c"}, "c").marks == {"a", "b", "c"}
    assert where.marked(look, {"b"}, "b").marks == {"a"}
    assert where.marked_too(look, {"b", "c"}, "c").marks == {"a", "b", "c"}


def test_a_filter_that_is_left_gives_the_cursor_back() -> None:
    there, here = Spot("a.b", "n1"), Spot("a.b", "n2")
    look = replace(where.filtered(where.filtering(Where(view="matrix", cursor=there)), "n2"), cursor=here)
    left = where.filter_left(look, keep=False)
    assert (left.filter, left.cursor, left.before_filter) == ("", there, None)
    kept = where.filter_left(look, keep=True)
    assert (kept.filter, kept.cursor, kept.before_filter) == ("n2", here, None)
    assert len(where.filtered(look, "x" * 9999).filter) == where.FILTER_KEPT
    assert where.unfiltered(replace(look, faults=True)).filter == ""


def test_each_screen_has_a_filter_of_its_own_and_finds_it_again() -> None:
    look = where.filtered(where.filtered(Where(view="matrix"), "fail"), "net.*")
    look = where.goto(where.filtered(where.goto(look, "causes"), "mtu"), "cause", cause=FIRST)
    assert (where.filter_of(look), look.filter) == ("", "net.*")
    look, _ = where.returned(look)
    assert where.filter_of(look) == "mtu"
    look, _ = where.returned(where.filter_left(look, keep=False))
    assert where.filter_of(look) == "net.*"


def test_kinds_of_pairs_go_round_and_fall_back_to_the_first() -> None:
    kinds = ["net.ports", "bw.pair"]
    assert where.kind_of(Where(), kinds) == "net.ports"
    assert where.kind_of(Where(kind="gone"), kinds) == "net.ports"
    assert where.next_kind(Where(), kinds).kind == "bw.pair"
    assert where.next_kind(Where(kind="bw.pair"), kinds).kind == "net.ports"
    assert where.next_kind(Where(), []).kind == ""


# Rows


def names(rows: Rows) -> list[str]:
    return [CELLS.nodes[node][-2:] for node in rows.order]


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        pytest.param(Where(), ["03", "04", "02", "01"], id="worst first"),
        pytest.param(Where(reversed=True), ["01", "02", "04", "03"], id="reversed"),
        pytest.param(Where(sort="listed"), ["01", "02", "03", "04"], id="listed"),
        pytest.param(Where(by="time.skew"), ["02", "01", "03", "04"], id="by a check"),
        pytest.param(
            Where(by="time.skew", reversed=True), ["04", "03", "01", "02"], id="by a check, reversed"
        ),
        pytest.param(Where(zoom="overview", reversed=True), ["01", "02", "03", "04"], id="overview"),
        pytest.param(Where(filter="fail"), ["03", "04"], id="filter"),
        pytest.param(Where(faults=True), ["03", "04", "02"], id="faults"),
        pytest.param(Where(faults=True, filter="net.*"), ["03"], id="faults in some checks"),
        pytest.param(Where(zoom="groups"), ["03", "04", "02", "01"], id="groups"),
    ],
)
def test_rows(look: Where, expected: list[str]) -> None:
    rows = rows_of(STATE, Known(REPORT), look)
    assert names(rows) == expected
    assert (rows.groups is not None) == (look.zoom == "groups")
    assert [rows.members(line)[0] for line in range(len(rows))] == list(rows.order)
    assert all(node in rows.members(line) for node, line in rows.line_of.items())


def test_rows_keep_their_places_while_letters_come_in() -> None:
    live = replace(STATE, scanning=True)
    look = Where(by="time.skew", reversed=True)
    assert names(rows_of(live, None, look)) == ["01", "02", "03", "04"]
    assert sort_of(live, look) == "listed"
    assert sort_of(replace(live, partial=True), look) == "check"


@pytest.mark.parametrize(
    ("look", "text"),
    [
        (Where(filter="zebra"), "0 of 4 nodes; Esc clears the filter"),
        (Where(faults=True, filter="zebra"), "0 of 4 nodes; Esc clears the filter"),
        (Where(faults=True), "0 of 4 nodes have trouble; f shows all"),
        (Where(), ""),
    ],
)
def test_what_is_said_without_rows(look: Where, text: str) -> None:
    assert rows_of(STATE, None, look).empty == text


def test_the_cursor_lands_on_the_worst_cell_and_stays_where_it_was_put() -> None:
    rows = rows_of(STATE, None, Where())
    assert landed(None, CELLS, rows) == Spot("net.ports", "gpu-a03")
    put = Spot("time.skew", "gpu-a01")
    assert landed(put, CELLS, rows) == put
    assert landed(Spot(None, "gpu-a01"), CELLS, rows) == Spot(None, "gpu-a01")
    hidden = rows_of(STATE, None, Where(filter="a02"))
    assert landed(put, CELLS, hidden) == Spot("time.skew", "gpu-a02")
    assert landed(Spot("time.skew", "gone"), CELLS, rows) == Spot("time.skew", "gpu-a03")
    assert landed(put, CELLS, Rows()) == put
    assert landed(None, CELLS, Rows()) is None


def test_the_cursor_lands_on_the_first_check_of_a_matrix_without_trouble() -> None:
    empty = fold(State(), [began(REPORT)])
    assert landed(None, empty.cells, rows_of(empty, None, Where())) == Spot("ssh.login", "gpu-a01")


def test_the_next_trouble_is_on_the_worst_check_of_the_next_row() -> None:
    rows = rows_of(STATE, None, Where())

    def find(node: str, by: int, any_row: bool = False) -> Spot | None:
        return next_trouble(rows, CELLS, Spot(None, node), by, any_row=any_row)

    assert find("gpu-a03", 1) == Spot("nccl.ifname", "gpu-a04")
    assert find("gpu-a03", -1) == Spot("time.skew", "gpu-a02")  # gpu-a01 has only what waits
    assert find("gpu-a02", 1, any_row=True) == Spot(None, "gpu-a01")
    green = replace(CELLS, cells=b"." * len(CELLS.cells))
    assert next_trouble(rows, green, Spot(None, "gpu-a01"), 1, any_row=False) is None
    assert next_trouble(Rows(), CELLS, Spot(None, "gpu-a01"), 1, any_row=True) is None


def test_the_worst_of_some_checks() -> None:
    node = CELLS.nodes.index("gpu-a03")
    ssh, ports = CELLS.checks.index("ssh.login"), CELLS.checks.index("net.ports")
    assert worst_check(CELLS, node, None) == ports
    assert worst_check(CELLS, node, [ssh]) == ssh
    assert worst_check(CELLS, node, []) is None
