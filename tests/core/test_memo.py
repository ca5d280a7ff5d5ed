"""What pure functions answered is remembered of the very same objects, and of nothing else."""

import gc
from typing import Any

import pytest

from netdoctor import memo


def asked(decorate: Any) -> tuple[Any, list[Any]]:
    """A function that doubles a list's or a mapping's length, and what it was really asked."""
    calls: list[Any] = []

    def twice(one: Any, *more: Any, **named: Any) -> int:
        calls.append(one)
        return 2 * len(one)

    return decorate(twice), calls


def test_equal_objects_are_not_the_same() -> None:
    twice, calls = asked(memo.by_identity)
    one, other = [1, 2], [1, 2]
    assert [twice(one), twice(one), twice(other)] == [4, 4, 4]
    assert [call is one for call in calls] == [True, False]


def test_texts_and_names_of_arguments_count_by_value() -> None:
    twice, calls = asked(memo.by_identity)
    one = [1]
    for _ in range(2):
        twice(one, "ab", None), twice(one, None, "ab"), twice(one, most=1), twice(one, most=2), twice(one, 1)
    assert len(calls) == 5


def test_an_address_is_not_taken_for_what_was_there_before(monkeypatch: Any) -> None:
    monkeypatch.setattr(memo, "OF_NODES", 3)
    twice, _ = asked(memo.by_identity)
    # Each list is gone at once, and the next one may lie where it lay.
    assert all(twice([0] * i) == 2 * i for i in range(50))


def test_mappings_by_what_is_in_them(monkeypatch: Any) -> None:
    monkeypatch.setattr(memo, "OF_ALL", 2)
    twice, calls = asked(memo.by_members)
    a, b = [1], [1]
    assert twice({"n1": a, "n2": b}) == twice({"n1": a, "n2": b}) == 4
    assert len(calls) == 1
    twice({"n1": b, "n2": a}), twice({"n1": a})
    assert len(calls) == 3
    twice({"n1": a, "n2": b})  # of three, two are kept
    assert len(calls) == 4


def test_garbage_is_looked_for_again_after_what_is_kept_was_made() -> None:
    @memo.keeping()
    def making(deep: bool) -> bool:
        if deep:
            assert not making(deep=False)
            assert not gc.isenabled()
            raise ValueError("in the middle")
        return gc.isenabled()

    assert gc.isenabled()
    with pytest.raises(ValueError, match="in the middle"):
        making(deep=True)
    assert gc.isenabled()
