"""bw.groups on four lab nodes with a real torch: groups as the job makes them, and who slows them."""

from pathlib import Path

import pytest

from netdoctor.lab import Lab
from tests.bandwidth.conftest import Faulty
from tests.bandwidth.test_ranks import ranks
from tests.scan.harness import Scanned, apply_fix, scan

pytestmark = pytest.mark.lab


def run(lab: Lab, folder: Path, python: str, groups: str, *more: str, budget_s: float = 20.0) -> Scanned:
    options = ("--only", "bw.groups", "--groups", groups, "--budget", str(budget_s), "--python", python)
    found = scan(lab, folder, *options, *more)
    assert not ranks(lab)
    return found


@pytest.mark.rates
def test_equal_links_are_silent_and_each_kind_is_measured(even: Lab, folder: Path, torch: str) -> None:
    found = run(even, folder, torch, "tp=2,pp=2,ep=2,etp=1", budget_s=30.0)
    assert (found.code, found.keys) == (0, []), found.summary()
    measures = {m["name"]: m["value"] for m in found.report["measures"]}
    # 200 Mbit/s are 0.025 GB/s; gloo's all-to-all sends one way at a time.
    for kind in ("tp", "pp", "ep"):
        for name in ("slowest", "fastest"):
            assert 0.009 < measures[f"bw.groups.{kind}.{name}"] < 0.03, measures
    assert "bw.groups.dp.slowest" not in measures
    assert "2 groups of 2, all-to-all of" in str(found.report["results"])


@pytest.mark.rates
def test_a_node_that_slows_its_groups_is_named(even: Lab, folder: Path, torch: str) -> None:
    even.break_("node2", "slow-link", rate="60mbit")
    found = run(even, folder, torch, "tp=2", budget_s=30.0)
    assert found.keys == ["groups-slow-node"], found.summary()
    cause = found.cause("groups-slow-node")
    assert cause["node_list"] == ["node2"]
    assert found.code == 0  # a warning
    apply_fix(found, cause)


def test_a_wrong_value_in_a_group_is_found(lab4: Lab, folder: Path, python_with: Faulty) -> None:
    found = run(lab4, folder, python_with("wrong", "all-reduce"), "tp=2")
    assert "collective-wrong-values" in found.keys, found.summary()
    assert found.cause("collective-wrong-values")["node_list"] == ["node2"]
    assert found.code == 1


def test_a_layout_that_does_not_fit_is_not_tested(lab4: Lab, folder: Path, torch: str) -> None:
    found = run(lab4, folder, torch, "tp=8")
    assert "tp=8 does not divide 4 ranks, one per node" in str(found.report)
    assert found.keys == ["bw.groups-unknown"]
