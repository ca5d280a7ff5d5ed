"""The filter language."""

import pytest

from netdoctor.tui.query import choose, fuzzy
from netdoctor.tui.state import Known, opened
from tests.hostile import HOSTILE
from tests.tui.harness import rich_report

REPORT = rich_report()
CELLS = opened(REPORT).cells
KNOWN = Known(REPORT)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        pytest.param("gpu-a01", ["01"], id="name"),
        pytest.param("a01 a02", ["01", "02"], id="names add up"),
        pytest.param("gpu-a[02-03]", ["02", "03"], id="range"),
        pytest.param("*a03", ["03"], id="wildcard"),
        pytest.param("fail", ["03", "04"], id="status"),
        pytest.param("fail warn", ["02", "03", "04"], id="statuses add up"),
        pytest.param("fail !a03", ["04"], id="without a name"),
        pytest.param("!fail", ["01", "02"], id="without a status"),
        pytest.param("fail nccl.*", ["04"], id="status in some checks"),
        pytest.param("[2]", ["04"], id="cause"),
        pytest.param("![1]", ["01", "02", "04"], id="not of a cause"),
        pytest.param("torch!=2.6.0", ["02"], id="fact differs"),
        pytest.param("torch<2.6", ["02"], id="fact less"),
        pytest.param("gpus>=8", ["01", "02", "03", "04"], id="fact at least"),
        pytest.param("nofact=1", [], id="unknown fact"),
        pytest.param("~g4", ["04"], id="fuzzy"),
        pytest.param("zebra", [], id="nothing"),
        pytest.param("", None, id="empty"),
        pytest.param("net.*", None, id="checks only"),
    ],
)
def test_rows(text: str, nodes: list[str] | None) -> None:
    rows = choose(text, CELLS, KNOWN).rows
    assert (None if rows is None else [CELLS.nodes[r][-2:] for r in rows]) == nodes


@pytest.mark.parametrize(
    ("text", "checks"),
    [
        ("net.ports", ["net.ports"]),
        ("nccl.* !nccl.smoke", ["nccl.ifname", "nccl.part0", "nccl.part1", "nccl.part2", "nccl.part3"]),
        ("time", ["time.sync", "time.skew"]),
        ("gpu-a01", None),
    ],
)
def test_columns(text: str, checks: list[str] | None) -> None:
    columns = choose(text, CELLS, KNOWN).columns
    assert (None if columns is None else [CELLS.checks[c] for c in columns]) == checks


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_whatever_is_typed_chooses_from_what_is_there_and_its_negation_the_rest(text: str) -> None:
    every = set(range(len(CELLS.nodes)))
    for typed, known in ((text, KNOWN), (f"!{text}", None)):
        chosen = choose(typed, CELLS, known)
        assert set(chosen.rows or ()) <= every
        assert set(chosen.columns or ()) <= set(range(len(CELLS.checks)))
    word = text.split()
    if len(word) == 1 and not text.startswith("!"):
        with_it, without = choose(word[0], CELLS, KNOWN), choose(f"!{word[0]}", CELLS, KNOWN)
        assert with_it.columns is not None or set(with_it.rows or ()) ^ set(without.rows or ()) == every


def test_fuzzy_prefers_letters_that_stand_together() -> None:
    close, apart = fuzzy("ab", "ab"), fuzzy("ab", "axxb")
    assert close is not None
    assert apart is not None
    assert close < apart
    assert fuzzy("ba", "ab") is None
