"""State as a fold over events, and what is selected from it."""

import dataclasses
import random

from netdoctor.tui import events as ev
from netdoctor.tui.state import (
    Known,
    State,
    arranged,
    by_family,
    cells_of,
    fold,
    grouped,
    left_s,
    natural,
    not_green,
    opened,
    slow,
    uniform,
    worst,
)
from tests.report.build import sample_report
from tests.tui.harness import NOON, began, rich_report


def test_a_report_is_turned_round_without_loss() -> None:
    report = sample_report(nodes=7)
    cells = opened(report).cells
    for check, letters in zip(report.matrix.checks, report.matrix.cells, strict=True):
        column = cells.checks.index(check)
        assert "".join(cells.letter(row, column) for row in range(7)) == letters


def test_families_stand_together_whatever_the_order_of_checks() -> None:
    report = sample_report(nodes=3)
    order = list(range(len(report.matrix.checks)))
    random.Random(1).shuffle(order)
    matrix = dataclasses.replace(
        report.matrix,
        checks=tuple(report.matrix.checks[i] for i in order),
        cells=tuple(report.matrix.cells[i] for i in order),
    )
    cells = cells_of(dataclasses.replace(report, matrix=matrix), {c.id: c.family for c in report.checks})
    runs = [f for i, f in enumerate(cells.families) if i == 0 or cells.families[i - 1] != f]
    assert len(runs) == len(set(runs))
    assert sorted(cells.cells) == sorted(opened(report).cells.cells)


def test_a_stream_of_cells_becomes_the_matrix() -> None:
    report = sample_report(nodes=5)
    wanted = opened(report).cells
    stream: list[ev.Event] = [began(report)]
    places = [(r, c) for r in range(5) for c in range(len(wanted.checks))]
    random.Random(2).shuffle(places)
    stream += [(r, c, wanted.letter(r, c)) for r, c in places]
    at_once = fold(State(), stream)
    assert at_once.cells.cells == wanted.cells
    bit_by_bit = State()
    for event in stream:
        bit_by_bit = fold(bit_by_bit, [event])
    assert bit_by_bit == at_once
    assert at_once.scanning
    assert at_once.report is None


def test_cells_outside_the_matrix_change_nothing() -> None:
    state = fold(State(), [began(sample_report(nodes=2))])
    wild: list[ev.Event] = [(9, 0, "X"), (0, 999, "X"), (-1, 0, "X"), (0, -1, "X")]
    assert fold(state, wild).cells == state.cells


def test_phases_follow_each_other_and_count() -> None:
    state = fold(
        State(),
        [
            began(sample_report(nodes=4)),
            ev.Phase(NOON + 1, "connect", 0, 4),
            ev.Phase(NOON + 2, "connect", 1, 4),
            ev.NodeDone(NOON + 2, "gpu-a01"),
        ],
    )
    assert [(p.name, p.done, p.ended) for p in state.phases] == [("connect", 1, None)]
    assert left_s(state) == ("about", 3.0)
    assert left_s(fold(state, [ev.Phase(NOON + 3, "tcp", 1, 5)])) is None  # too few to tell by
    state = fold(state, [ev.Phase(NOON + 4, "connect", 4, 4), ev.Phase(NOON + 5, "ports", 0, 4)])
    assert [(p.name, p.ended) for p in state.phases] == [("connect", NOON + 4), ("ports", None)]
    assert left_s(state) is None


def test_experiments_with_a_budget_count_down() -> None:
    events: list[ev.Event] = [began(sample_report(nodes=4)), ev.Phase(NOON, "tcp", 0, 4, 8.0)]
    state = fold(State(), events)
    assert left_s(state) == ("at most", 8.0)
    assert left_s(dataclasses.replace(state, now=NOON + 3)) == ("at most", 5.0)
    assert left_s(dataclasses.replace(state, now=NOON + 9)) is None
    assert left_s(fold(state, [ev.Phase(NOON + 2, "tcp", 4, 4)])) is None


def test_slow_nodes_are_those_that_most_left_behind() -> None:
    report = sample_report(nodes=4)
    done = [ev.NodeDone(NOON + 1, f"gpu-a0{n}") for n in (1, 2, 3)]
    state = fold(State(), [began(report), *done])
    assert slow(state) is None
    state = fold(state, [ev.Phase(NOON + 9, "connect", 3, 4)])
    assert slow(state) == (9.0, 1.0, ("gpu-a04",))


def test_trouble_of_a_node_is_news() -> None:
    state = fold(State(), [began(sample_report(nodes=2)), ev.NodeDone(NOON, "gpu-a01", "refused")])
    assert state.news == ("gpu-a01 refused",)
    assert state.troubled == ("gpu-a01",)


def test_a_partial_run_keeps_old_letters_and_marks_what_is_under_way() -> None:
    report = sample_report(nodes=4)
    before = opened(report)
    part = ev.Began(NOON, ("gpu-a03",), (("net.ports", "net"),), partial=True)
    state = fold(before, [part])
    row, column = 2, before.cells.checks.index("net.ports")
    assert state.busy == {row * len(before.cells.checks) + column}
    assert state.cells == before.cells
    assert state.report is report
    assert not fold(state, [(row, column, ".")]).busy
    assert not fold(state, [ev.Failed(NOON, "no")]).busy


def test_an_end_brings_the_report_and_a_new_stamp() -> None:
    report = sample_report(nodes=4)
    state = fold(State(), [began(report), ev.Ended(NOON, report, "not saved")])
    assert state.report is report
    assert not state.scanning
    assert state.message == "not saved"
    assert state.stamp == 2


def test_equal_rows_are_one_group_in_the_order_of_the_worst() -> None:
    cells = opened(sample_report(nodes=1000)).cells
    groups = grouped(cells, arranged(cells))
    assert [len(g.members) for g in groups] == [1, 32, 8, 1, 958]
    assert worst(groups[0].letters) == "X"
    assert sum(len(g.members) for g in groups) == 1000


def test_groups_of_some_columns_only() -> None:
    cells = opened(sample_report(nodes=1000)).cells
    column = cells.checks.index("net.ports")
    assert [len(g.members) for g in grouped(cells, range(1000), [column])] == [999, 1]


def test_orders() -> None:
    cells = opened(sample_report(nodes=4)).cells
    assert [cells.nodes[r][-1] for r in arranged(cells)] == ["3", "4", "2", "1"]
    assert arranged(cells, sort="listed") == [0, 1, 2, 3]
    assert arranged(cells, sort="listed", reverse=True) == [3, 2, 1, 0]
    ports = cells.checks.index("net.ports")
    assert arranged(cells, sort="check", by=ports)[0] == 2


def test_names_sort_as_people_count() -> None:
    assert sorted(["n10", "n2", "n1x", "a"], key=natural) == ["a", "n1x", "n2", "n10"]


def test_columns_that_say_the_same_everywhere() -> None:
    cells = opened(sample_report(nodes=4)).cells
    dull = uniform(cells)
    assert cells.checks.index("nccl.smoke") in dull
    assert cells.checks.index("net.ports") not in dull


def test_what_is_not_green() -> None:
    checks, nodes = not_green(opened(sample_report("ready", nodes=4)).cells)
    assert (checks, nodes) == ((), ())
    checks, nodes = not_green(opened(sample_report(nodes=4)).cells)
    assert "net.ports" in checks
    assert "ssh.login" not in checks


def test_causes_of_cells_and_nodes() -> None:
    known = Known(rich_report())
    cause = known.cause_of("net.ports", "gpu-a03")
    assert cause is not None
    assert cause.id == 1
    assert known.cause_of("ssh.login", "gpu-a01") is None
    assert [c.id for c in known.causes_of("gpu-a04")] == [2, 1]  # its own before what holds it up


def test_by_family_keeps_the_first_order() -> None:
    assert by_family([("a.1", "a"), ("b.1", "b"), ("a.2", "a")]) == [("a.1", "a"), ("a.2", "a"), ("b.1", "b")]


def test_numbers_of_causes_last_as_long_as_the_session() -> None:
    first = rich_report()
    one, two, three = first.causes
    fewer = dataclasses.replace(two, id=1, fingerprint="sha256:other", node_list=two.node_list[:1])
    back = dataclasses.replace(one, id=2)
    new = dataclasses.replace(three, id=3, key="another", fingerprint="sha256:new")
    state = opened(first)
    state = opened(dataclasses.replace(first, causes=(fewer, new)), state)
    assert [c.id for c in state.report.causes] == [2, 4]  # of fewer nodes, and never seen
    state = opened(dataclasses.replace(first, causes=(fewer, back, new)), state)
    assert [c.id for c in state.report.causes] == [2, 1, 4]  # back again
    assert opened(first).report is first


def test_results_and_families_follow_the_numbers_of_their_causes() -> None:
    first = rich_report()
    turned = {1: 3, 2: 2, 3: 1}
    causes = tuple(dataclasses.replace(c, id=turned[c.id]) for c in first.causes)
    results = tuple(dataclasses.replace(r, cause=turned.get(r.cause)) for r in first.results)
    rows = tuple(dataclasses.replace(f, causes=tuple(turned[n] for n in f.causes)) for f in first.families)
    again = dataclasses.replace(first, causes=causes, results=results, families=rows)
    shown = opened(again, opened(first)).report
    assert (shown.causes, shown.results, shown.families) == (first.causes, first.results, first.families)
