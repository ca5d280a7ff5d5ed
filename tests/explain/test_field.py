"""The shares of published failures: every row with its proof."""

from typing import Any

import pytest

from netdoctor.engine.registry import load_builtin
from netdoctor.explain.engine import explain_text
from scripts.field import PAGE, page, share, tables

ROWS = [row for table in tables() for row in table["rows"]]


def test_the_page_is_what_the_script_writes() -> None:
    assert PAGE.read_text("utf-8") == page()


@pytest.mark.parametrize("row", [row for row in ROWS if "log" in row], ids=lambda row: row["class"])
def test_a_line_of_the_class_leads_to_its_cause(row: dict[str, Any]) -> None:
    explanation = explain_text({"log": row["log"]})
    assert explanation.reasons[0].known.label == row["label"]
    first = explanation.ranks.first
    assert "rank" not in row or (first is not None and first.rank == row["rank"])


def test_every_check_is_in_the_catalogue() -> None:
    assert {row["scan"] for row in ROWS if "scan" in row} <= load_builtin().keys()


def test_what_is_half_says_when() -> None:
    assert all(row.get("note") for row in ROWS if any(key.startswith("half") for key in row))


def test_the_tables_are_whole_and_the_shares_are_reached() -> None:
    stepfun, bytedance, llama = (table["rows"] for table in tables())
    assert sum(row["count"] for row in stepfun) == 310
    assert sum(row["count"] for row in llama) == 419
    assert sum(row["count"] for row in bytedance) == pytest.approx(100, abs=0.5)
    assert share(bytedance, "log") >= 0.8
    assert share(stepfun, "scan") >= 0.75
