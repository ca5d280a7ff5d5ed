"""Rounds are disjoint, cover what they promise, and follow-ups ask for what is still tied."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdoctor.facts.localisation import Decision, Kind, Round, Suspect, Undecided
from netdoctor.facts.net import PortMatrix, PortProbe
from netdoctor.measure.bandwidth import connected
from netdoctor.measure.schedule import circle, first_rounds, follow_up
from tests.counting import steps
from tests.plans import plans

NODES = [f"n{i}" for i in range(16)]
LEAVES = {n: f"leaf{i // 4}" for i, n in enumerate(NODES)}


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8, 33])
def test_a_whole_tournament_meets_every_pair_once(count: int) -> None:
    nodes = [f"n{i}" for i in range(count)]
    pairs = [frozenset(p) for one in first_rounds(nodes, rounds=count) for p in one.pairs]
    assert len(pairs) == len(set(pairs)) == count * (count - 1) // 2


def test_the_circle_turns() -> None:
    assert circle("abcd", 0) == [("a", "d"), ("b", "c")]
    assert circle("abc", 0) == [("b", "c")]


@given(
    count=st.integers(0, 40),
    leaf=st.integers(1, 12),
    rounds=st.integers(1, 7),
    seed=st.integers(0, 99),
    hinted=st.booleans(),
)
def test_rounds_are_disjoint_and_never_repeat_a_pair(
    count: int, leaf: int, rounds: int, seed: int, hinted: bool
) -> None:
    nodes = [f"n{i}" for i in range(count)]
    leaves = {n: str(i // leaf) for i, n in enumerate(nodes)} if hinted else None
    plan = first_rounds(nodes, leaves, seed=seed, rounds=rounds)
    assert plan == first_rounds(nodes, leaves, seed=seed, rounds=rounds)
    assert len(plan) <= rounds
    seen: set[frozenset[str]] = set()
    for one in plan:
        busy = [n for pair in one.pairs for n in pair]
        assert len(busy) == len(set(busy))
        assert sorted([*busy, *one.idle]) == sorted(nodes)
        pairs = {frozenset(p) for p in one.pairs}
        assert not pairs & seen
        seen |= pairs


def test_another_seed_gives_another_plan() -> None:
    assert first_rounds(NODES, seed=1) != first_rounds(NODES, seed=2)


def test_rounds_alternate_between_and_inside_leaves() -> None:
    for seed in range(20):
        across, inside, again = first_rounds(NODES, LEAVES, seed=seed)
        assert all(LEAVES[a] != LEAVES[b] for one in (across, again) for a, b in one.pairs)
        assert all(LEAVES[a] == LEAVES[b] for a, b in inside.pairs)
        assert (across.purpose, inside.purpose) == ("cross_leaf", "same_leaf")
        assert len(across.pairs) == len(inside.pairs) == 8


def test_a_leaf_meets_several_leaves_in_one_round() -> None:
    lonely = 0
    for seed in range(20):
        one = first_rounds(NODES, LEAVES, seed=seed)[0]
        met = {
            LEAVES[b] if LEAVES[a] == "leaf0" else LEAVES[a]
            for a, b in one.pairs
            if "leaf0" in (LEAVES[a], LEAVES[b])
        }
        lonely += len(met) == 1
    assert lonely <= 2


@pytest.mark.parametrize("leaves", [{}, dict.fromkeys(NODES, "one"), {n: n for n in NODES}])
def test_a_hint_that_arranges_nothing_is_left_alone(leaves: dict[str, str]) -> None:
    assert {one.purpose for one in first_rounds(NODES, leaves)} == {"cover"}


def suspect(kind: Kind, *nodes: str, confidence: float = 0.5) -> Suspect:
    return Suspect(kind=kind, nodes=nodes, confidence=confidence)


def tie(*between: Suspect, pair: tuple[str, str] | None) -> Undecided:
    return Undecided(between=between, pair=pair)


def test_nothing_follows_a_decision_that_is_certain() -> None:
    sure = Decision(suspects=(suspect(Kind.NODE, "n1", confidence=0.999),))
    assert follow_up(sure, NODES, first_rounds(NODES)) is None
    assert follow_up(Decision(), NODES, first_rounds(NODES)) is None


def test_suspects_meet_good_partners_that_are_new_to_them() -> None:
    done = first_rounds(NODES, seed=3)
    met = {frozenset(p) for one in done for p in one.pairs}
    good = tuple(NODES[4:])
    decision = Decision(
        undecided=(tie(suspect(Kind.NODE, "n0"), suspect(Kind.NODE, "n1"), pair=("n0", "n9")),),
        exonerated=good,
    )
    more = follow_up(decision, NODES, done)
    assert more is not None
    assert more.number == 3
    assert len(more.pairs) == 2
    for node, partner in more.pairs:
        assert node in ("n0", "n1")
        assert partner in good
        assert frozenset((node, partner)) not in met


def test_a_path_is_measured_again_as_it_is() -> None:
    decision = Decision(suspects=(suspect(Kind.PATH, "n2", "n5", confidence=0.95),), exonerated=tuple(NODES))
    more = follow_up(decision, NODES, first_rounds(NODES))
    assert more is not None
    assert more.pairs == (("n2", "n5"),)
    assert set(more.idle) == set(NODES) - {"n2", "n5"}


def test_a_tie_that_no_pair_settles_costs_no_round() -> None:
    decision = Decision(undecided=(tie(suspect(Kind.NODE, "n0"), suspect(Kind.NODE, "n1"), pair=None),))
    assert follow_up(decision, NODES, first_rounds(NODES)) is None


def test_the_budget_of_rounds_ends_it() -> None:
    decision = Decision(undecided=(tie(suspect(Kind.NODE, "n0"), pair=("n0", "n1")),), exonerated=("n1",))
    done = first_rounds(NODES, rounds=6)
    assert follow_up(decision, NODES, done) is None
    assert follow_up(decision, NODES, done, at_most=7) is not None


def test_missing_pairs_are_tried_once_more() -> None:
    done = list(first_rounds(NODES))
    lost = done[0].pairs[0]
    more = follow_up(Decision(), NODES, done, doubtful=[lost])
    assert more is not None
    assert more.pairs == (lost,)
    assert follow_up(Decision(), NODES, [*done, more], doubtful=[lost]) is None


def test_unmeasured_nodes_are_not_asked_for_ever() -> None:
    decision = Decision(unmeasured=("n0",), exonerated=tuple(NODES[1:]))
    done: list[Round] = list(first_rounds(NODES))
    for _ in range(2):
        more = follow_up(decision, NODES, done, at_most=99)
        assert more is not None
        assert "n0" in more.pairs[0]
        done.append(more)
    assert follow_up(decision, NODES, done, at_most=99) is None


def test_a_node_that_is_gone_is_not_scheduled() -> None:
    decision = Decision(undecided=(tie(suspect(Kind.PATH, "n0", "n1"), pair=("n0", "n1")),))
    assert follow_up(decision, NODES[1:], first_rounds(NODES)) is None


class Name(str):
    """A node's name that counts how often it is compared: what a list does when it looks for one."""

    __slots__ = ()
    __hash__ = str.__hash__
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        Name.compared += 1
        return str.__lt__(self, other)


def work(count: int) -> dict[str, int]:
    found = {}
    for name, step in plans(count, Name).items():
        before = Name.compared
        found[name] = steps(step) + Name.compared - before
    return found


@pytest.mark.thorough
def test_planning_grows_with_the_nodes_and_no_faster() -> None:
    few, many = work(64), work(128)
    grown = {name: many[name] / few[name] for name in few}
    # Twice as long for twice as many, four times where all are looked at for each; sorting lies between.
    assert max(grown.values()) < 2.6, grown


@given(
    count=st.integers(0, 9),
    shut=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30),
)
def test_those_that_reach_each_other_are_left_and_the_worst_goes_first(
    count: int, shut: list[tuple[int, int]]
) -> None:
    nodes = [f"n{i}" for i in range(count)]
    bad = {(f"n{a}", f"n{b}") for a, b in shut}
    probes = tuple(
        PortProbe(src=a, dst=b, address="", port=1, purpose="ephemeral", outcome="filtered") for a, b in bad
    )
    left = list(nodes)
    while trouble := {
        n: t for n in left if (t := sum((n == a) + (n == b) for a, b in bad if a in left and b in left))
    }:
        left.remove(max(trouble, key=lambda n: (trouble[n], left.index(n))))
    assert connected(nodes, PortMatrix(probes=probes, possible=len(nodes) ** 2)) == left
