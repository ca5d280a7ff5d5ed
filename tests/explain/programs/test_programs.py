"""Programs that really failed by their own fault: the program is named, and the cluster is not blamed."""

import json
from pathlib import Path
from typing import Any

import pytest

from netdoctor.explain.engine import explain_text
from netdoctor.explain.model import Confidence, Explanation
from tests.explain.programs import failing, well

RECORDED: list[dict[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("recorded.jsonl").read_text("utf-8").splitlines()
]
WELL: list[dict[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("well.jsonl").read_text("utf-8").splitlines()
]
# What is of the program's node, files or environment, named by its own label.
OWN = {
    "program_failed", "software_missing", "file_damaged", "native_crash", "loss_not_finite",
    "gpu_oom_one_rank",
}  # fmt: skip
OTHER = {
    "missing_file": {"shared_filesystem_missing"},  # nothing tells it from one that a mount would bring
    "memory": {"host_oom_killed"},
    "broken_pool": {"host_oom_killed"},  # the pool says that its process ended, and not why
}


def first(explanation: Explanation) -> str:
    return explanation.reasons[0].known.label if explanation.reasons else ""


@pytest.fixture(scope="module")
def explained() -> dict[str, Explanation]:
    return {one["name"]: explain_text({"log": one["log"]}) for one in RECORDED}


def test_each_program_is_recorded_and_failed() -> None:
    assert [one["name"] for one in RECORDED] == [name for group in failing.GROUPS.values() for name in group]
    assert len(RECORDED) >= 60
    assert all(one["exit"] not in ("", "0") for one in RECORDED)


def test_the_program_is_named_first(explained: dict[str, Explanation]) -> None:
    wrong = {
        name: first(found) for name, found in explained.items() if first(found) not in OTHER.get(name, OWN)
    }
    assert not wrong


def test_the_cluster_is_not_blamed(explained: dict[str, Explanation]) -> None:
    blamed = {
        name: reason.known.label
        for name, found in explained.items()
        for reason in found.reasons
        if reason.confidence is Confidence.CERTAIN and reason.known.label not in OTHER.get(name, OWN)
    }
    assert not blamed


def test_programs_that_end_well_are_all_recorded() -> None:
    assert [one["name"] for one in WELL] == [name for group in well.GROUPS.values() for name in group]
    assert all(one["exit"] == "0" for one in WELL)


# What they handled is called likely: nothing in these logs tells that the program meant to go on.
LIKELY = {"resumed", "no_free_port", "memory_is_tried"}


@pytest.mark.parametrize("one", WELL, ids=lambda one: str(one["name"]))
def test_a_job_that_ended_well_is_not_the_clusters_trouble(one: dict[str, Any]) -> None:
    reasons = [r for r in explain_text({"log": one["log"]}).reasons if r.known.label not in OWN]
    assert not any(reason.confidence is Confidence.CERTAIN for reason in reasons)
    if one["name"] not in LIKELY:
        assert not any(reason.confidence is Confidence.LIKELY for reason in reasons)
