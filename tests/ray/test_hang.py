"""`explain hang --via ray`: a job on Ray's nodes that hangs."""

import json
import sys
from pathlib import Path

import pytest

from tests.bandwidth.conftest import torch
from tests.hang.test_lab import running, script
from tests.ray.conftest import Ray

__all__ = ["script", "torch"]


@pytest.mark.weekly
def test_the_rank_that_holds_others_up_is_named(ray: Ray, torch: str, script: Path) -> None:
    head = ray.lab.nodes[0]
    python = str(Path(sys._base_executable).resolve())  # type: ignore[attr-defined]
    with running(ray.lab, torch, script, "sleep", "2", "5"):
        words = ["explain", "hang", "--via", "ray", "--no-scan", "--quiet", "-o", "json"]
        done = ray.run(head, python, "-m", "netdoctor", *words)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert (found["ranks_at_fault"], found["nodes_at_fault"]) == ([2], ["node2"]), found
