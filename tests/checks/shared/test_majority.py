import pytest

from netdoctor.checks._shared.majority import majority
from netdoctor.model import CERTAIN, LIKELY


@pytest.mark.parametrize(
    ("values", "usual", "odd"),
    [
        pytest.param({}, None, set(), id="no nodes"),
        pytest.param({"a": 1}, 1, set(), id="one node"),
        pytest.param({"a": 1, "b": 1}, 1, set(), id="equal"),
        pytest.param({"a": 1, "b": 2}, None, {"a", "b"}, id="two nodes tie"),
        pytest.param({"a": 1, "b": 2, "c": 1}, 1, {"b"}, id="one odd"),
        pytest.param({"a": 1, "b": 1, "c": 2, "d": 3}, None, set("abcd"), id="half is not most"),
        pytest.param({"a": 1, "b": 1, "c": 2, "d": 3, "e": 1}, 1, {"c", "d"}, id="commonest of three"),
        pytest.param({"a": 1, "b": 2, "c": 1, "d": 2}, None, set("abcd"), id="halves tie"),
    ],
)
def test_names_the_odd_ones(values: dict[str, int], usual: int | None, odd: set[str]) -> None:
    found = majority(values)
    assert found.value == usual
    assert set(found.minority) == odd
    assert found.is_split == (usual is None and len(values) > 1) == bool(found.words)
    assert found.confidence is (LIKELY if found.is_split else CERTAIN)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((1, 1), "and with two nodes there is no majority"),
        ((3, 3), "and as many nodes have one as the other (3 each)"),
        ((3, 2, 2, 2, 1), "5 values and no majority"),
        ((2, 2, 1), "3 values and no majority"),
        ((3, 2), ""),
        ((4,), ""),
    ],
)
def test_two_nodes_a_tie_and_a_plurality_have_words_of_their_own(counts: tuple[int, ...], words: str) -> None:
    values = {f"n{value}-{i}": value for value, count in enumerate(counts) for i in range(count)}
    assert majority(values).words == words


def test_none_can_be_what_most_have() -> None:
    found = majority({"a": None, "b": None, "c": 1})
    assert found.minority == {"c": 1}
    assert (found.equal, found.is_split) == (False, False)
