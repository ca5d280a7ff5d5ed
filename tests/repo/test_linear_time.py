"""Expressions over foreign text take a time that grows with the text and not with its square.

Each expression of lint, explain and its knowledge is pumped, short and seven times as long: what is linear
takes seven times as long then, and what grows with the square fifty times.
"""

import re
import time
from pathlib import Path

import pytest

from netdoctor.explain.knowledge import load
from tests.repo.pumped import expressions, texts

ROOT = Path(__file__).parents[2]
SHORT, LONG = 2_400, 16_800
# Below, a text of SHORT is not worth a second look: a square of it takes three milliseconds and more.
QUICK_S = 0.0004
GROWTH = 16.0
TRIES = 3


def growth(compiled: re.Pattern[str], at_start: bool, texts: tuple[str, str]) -> float:
    """How much longer the longer text takes; 0 where the short one takes no time."""
    times = []
    for text in texts:
        started = time.process_time()
        (compiled.match if at_start else compiled.search)(text)
        times.append(time.process_time() - started)
        if times[0] < QUICK_S:
            return 0.0
    return times[1] / times[0]


def worst(pattern: str, at_start: bool) -> tuple[float, str]:
    """(growth, beginning of the text) of the text whose time grows most; tried again before it counts."""
    compiled = re.compile(pattern, re.ASCII)
    found = (0.0, "")
    for pair in zip(texts(pattern, SHORT), texts(pattern, LONG), strict=True):
        if growth(compiled, at_start, pair) > GROWTH:
            found = max(found, (min(growth(compiled, at_start, pair) for _ in range(TRIES)), pair[0][:60]))
    return found


def slow(found: list[tuple[str, bool]]) -> list[str]:
    rows = [(pattern, *worst(pattern, at_start)) for pattern, at_start in dict.fromkeys(found)]
    return [f"{x:.0f} times: {pattern[:120]!r} on {text!r}" for pattern, x, text in rows if x > GROWTH]


@pytest.mark.parametrize("room", ["lint", "explain"])
def test_expressions_of_a_room(room: str) -> None:
    sources = sorted((ROOT / "netdoctor" / room).rglob("*.py"))
    found = [one for path in sources for one in expressions(path.read_text("utf-8"))]
    assert len(found) > 40
    assert slow(found) == []


def test_expressions_of_what_explain_knows() -> None:
    found = [(one.regex, False) for one in load().patterns]
    assert len(found) > 300
    assert slow(found) == []


def test_a_square_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.repo.test_linear_time.LONG", 5_600)
    monkeypatch.setattr("tests.repo.test_linear_time.SHORT", 800)
    assert slow([(r"a+b", False), (r"\s+$", False)])
    assert not slow([(r"a{1,50}b", False), (r"\s*\w+", True)])
