import pytest

from netdoctor.checks._shared.majority import majority


@pytest.mark.parametrize(
    ("values", "usual", "odd"),
    [
        pytest.param({}, None, set(), id="no nodes"),
        pytest.param({"a": 1}, 1, set(), id="one node"),
        pytest.param({"a": 1, "b": 1}, 1, set(), id="equal"),
        pytest.param({"a": 1, "b": 2}, None, {"a", "b"}, id="two nodes tie"),
        pytest.param({"a": 1, "b": 2, "c": 1}, 1, {"b"}, id="one odd"),
        pytest.param({"a": 1, "b": 1, "c": 2, "d": 3}, 1, {"c", "d"}, id="commonest of three"),
        pytest.param({"a": 1, "b": 2, "c": 1, "d": 2}, None, set("abcd"), id="halves tie"),
    ],
)
def test_names_the_odd_ones(values: dict[str, int], usual: int | None, odd: set[str]) -> None:
    found = majority(values)
    assert found.value == usual
    assert set(found.minority) == odd
    assert found.tie == (usual is None and len(values) > 1)


def test_none_can_be_what_most_have() -> None:
    found = majority({"a": None, "b": None, "c": 1})
    assert found.minority == {"c": 1}
    assert not found.equal
