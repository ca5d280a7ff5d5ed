from hypothesis import assume, given
from hypothesis import strategies as st

from netdoctor.checks._shared.matrix import Cell, Kind, decode

from ..build import names


def cells(count: int, bad: set[Cell]) -> dict[Cell, bool]:
    return {(a, b): (a, b) in bad for a in names(count) for b in names(count) if a != b}


def blocked(count: int, into: set[str], out: set[str]) -> set[Cell]:
    every = cells(count, set())
    return {(src, dst) for src, dst in every if src in out or dst in into}


def said(found: dict[Cell, bool]) -> list[tuple[str, tuple[str, ...]]]:
    return [(fault.kind.value, fault.nodes) for fault in decode(found)]


def test_a_healthy_matrix_has_no_fault() -> None:
    assert decode(cells(4, set())) == ()
    assert decode({}) == ()


def test_a_column_is_the_target_and_a_row_the_source() -> None:
    assert said(cells(4, blocked(4, {"n3"}, set()))) == [("in", ("n3",))]
    assert said(cells(4, blocked(4, set(), {"n3"}))) == [("out", ("n3",))]
    assert said(cells(4, blocked(4, {"n3"}, {"n3"}))) == [("node", ("n3",))]


def test_several_bad_nodes_among_four() -> None:
    assert said(cells(4, blocked(4, {"n1", "n3"}, set()))) == [("in", ("n1",)), ("in", ("n3",))]
    assert said(cells(4, blocked(4, {"n1"}, {"n3"}))) == [("in", ("n1",)), ("out", ("n3",))]
    assert said(cells(4, blocked(4, {"n1", "n2", "n3"}, set()))) == [
        ("in", ("n1",)), ("in", ("n2",)), ("in", ("n3",)),
    ]  # fmt: skip


def test_two_nodes_stay_undecided() -> None:
    assert said(cells(2, {("n1", "n2")})) == [("path", ("n1", "n2"))]
    assert said(cells(2, {("n1", "n2"), ("n2", "n1")})) == [("all", ("n1", "n2"))]
    assert said({("n1", "n2"): True}) == [("path", ("n1", "n2"))], "the only pair that was tried"


def test_one_bad_pair_is_a_path() -> None:
    assert said(cells(4, {("n1", "n2")})) == [("path", ("n1", "n2"))]


def test_some_bad_pairs_of_one_node_are_no_split() -> None:
    tried = {("n1", "n2"): True, ("n1", "n3"): True, ("n1", "n4"): True, ("n1", "n5"): False}
    assert said(tried) == [("out", ("n1",))]


def test_of_senders_and_receivers_that_may_be_bad_the_fewest_are_named() -> None:
    """Three that send to five, where nobody else was tried, rather than the five."""
    tried = {"n1": ("n4", "n5", "n6", "n7", "n8"), "n2": ("n4", "n5", "n6"), "n3": ("n7", "n8")}
    bad = {(src, dst): True for src, targets in tried.items() for dst in targets}
    good = dict.fromkeys((("n4", "n1"), ("n5", "n2"), ("n6", "n3")), False)
    assert said(bad | good) == [("out", ("n1",)), ("out", ("n2",)), ("out", ("n3",))]


def test_everything_bad_is_the_network() -> None:
    every = set(cells(4, set()))
    assert said(cells(4, every)) == [("all", ("n1", "n2", "n3", "n4"))]


def test_two_halves_that_do_not_meet() -> None:
    small = {"n1", "n2"}
    bad = {c for c in cells(5, set()) if (c[0] in small) != (c[1] in small)}
    assert said(cells(5, bad)) == [("split", ("n1", "n2"))]
    bad = {c for c in cells(4, set()) if (c[0] in small) != (c[1] in small)}
    assert said(cells(4, bad)) == [("split", ())]


def test_part_of_a_column_is_still_the_target() -> None:
    (fault,) = decode(cells(6, {("n1", "n4"), ("n2", "n4"), ("n3", "n4")}))
    assert (fault.kind, fault.nodes, fault.partial) == (Kind.IN, ("n4",), True)


def test_a_filter_over_some_nodes_is_at_these_nodes() -> None:
    behind = {"n2", "n3", "n5"}
    bad = {(a, b) for a, b in cells(8, set()) if b in behind and a not in behind}
    faults = decode(cells(8, bad))
    assert [(fault.kind, fault.nodes, fault.partial) for fault in faults] == [
        (Kind.IN, (node,), True) for node in sorted(behind)
    ]
    assert set().union(*(fault.cells for fault in faults)) == bad
    # As many on one side as on the other: nobody can tell whose it is.
    even = {(a, b) for a, b in cells(8, set()) if a < "n5" <= b}
    assert {fault.kind for fault in decode(cells(8, even))} == {Kind.PATH}


def test_a_fault_and_a_bad_path_elsewhere() -> None:
    bad = blocked(5, {"n2"}, set()) | {("n4", "n5")}
    assert said(cells(5, bad)) == [("in", ("n2",)), ("path", ("n4", "n5"))]


def test_pairs_that_were_not_tried_count_for_nothing() -> None:
    tried = {c: bad for c, bad in cells(6, blocked(6, {"n3"}, set())).items() if c[0] in ("n1", "n2")}
    assert said(tried) == [("in", ("n3",))]


@given(st.data())
def test_random_faults_decode_to_their_culprits(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 12))
    every = names(count)
    into = set(data.draw(st.lists(st.sampled_from(every), max_size=count, unique=True)))
    out = set(data.draw(st.lists(st.sampled_from(every), max_size=count, unique=True)))
    bad = blocked(count, into, out)
    faults = decode(cells(count, bad))
    # whatever is said accounts for exactly what was seen
    assert {cell for fault in faults for cell in fault.cells} == bad
    # more than one node that works both ways pins every fault down: each node has a pair of its own with them
    good = [node for node in every if node not in into | out]
    assume(len(good) >= 2)
    assert {f.nodes[0] for f in faults if f.kind in (Kind.IN, Kind.NODE)} == into
    assert {f.nodes[0] for f in faults if f.kind in (Kind.OUT, Kind.NODE)} == out
    assert all(f.kind in (Kind.IN, Kind.OUT, Kind.NODE) for f in faults)


@given(st.integers(2, 8), st.data())
def test_any_matrix_is_accounted_for(count: int, data: st.DataObject) -> None:
    every = sorted(cells(count, set()))
    bad = set(data.draw(st.lists(st.sampled_from(every), unique=True)))
    assert {cell for fault in decode(cells(count, bad)) for cell in fault.cells} == bad
