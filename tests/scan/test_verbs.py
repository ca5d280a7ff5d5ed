"""bw.rdma on lab nodes: our side is the real one, the program that measures is a stand-in for perftest."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdoctor.agent.operations import verbs as op_verbs
from netdoctor.lab import Lab, load
from netdoctor.lab import node as nodes
from tests.scan.faults import found
from tests.scan.harness import scan

STAND_IN = Path(__file__).with_name("ib_write_bw.py").read_text()
PROGRAMS = ("/usr/local/bin/ib_write_bw", "/usr/local/bin/ib_write_lat")
ONLY = ("--profile", "full", "--only", "bw.rdma")


@pytest.fixture
def verbs_lab(hw_lab: Lab) -> Iterator[Lab]:
    """Nodes that have the program, and say of their two HCAs what it is to print."""
    for node in hw_lab.nodes:
        say(hw_lab, node, "mlx5_0=385.4\nmlx5_1=385.1\n")
        state = load(hw_lab.state_dir).state
        nodes.write(state, node, dict.fromkeys(PROGRAMS, STAND_IN), mode=0o755)
    yield hw_lab
    for node in hw_lab.nodes:
        nodes.write(load(hw_lab.state_dir).state, node, {**dict.fromkeys(PROGRAMS), "/etc/lab-verbs": None})


def say(lab: Lab, node: str, rates: str) -> None:
    nodes.write(load(lab.state_dir).state, node, {"/etc/lab-verbs": rates})


def test_a_rail_and_nobody_else_is_named(verbs_lab: Lab, tmp_path: Path) -> None:
    say(verbs_lab, "node2", "mlx5_0=385.4\nmlx5_1=96.2\n")
    scanned = scan(verbs_lab, tmp_path, *ONLY)
    assert found(scanned) == {"slow-nic-both": ("node2",)}, scanned.summary()
    cause = scanned.cause("slow-nic-both")
    assert cause["title"] == "Rail mlx5_1:1 of node2 is slow"
    assert "96 Gbit/s, 25 % of 385 Gbit/s" in " ".join(cause["seen"])
    assert "latency 1.9 us" in json.dumps(scanned.report)
    # Nothing of it is left.
    left = verbs_lab.run("node2", ["pgrep", "-f", "ib_write"], capture_output=True, text=True)
    assert left.stdout == ""


def test_a_rail_that_gives_up_and_a_node_without_the_program(verbs_lab: Lab, tmp_path: Path) -> None:
    say(verbs_lab, "node1", "mlx5_0=dead\nmlx5_1=385.1\n")
    nodes.write(load(verbs_lab.state_dir).state, "node3", dict.fromkeys(PROGRAMS))
    scanned = scan(verbs_lab, tmp_path, *ONLY)
    assert list(found(scanned).values()) == [("node1",)], scanned.summary()
    assert "dead" in scanned.report["causes"][0]["title"]
    assert scanned.cell("bw.rdma", "node3") == "-"


@pytest.mark.skipif(shutil.which("ib_write_bw") is None, reason="perftest is not installed")
def test_perftest_takes_our_command_lines() -> None:
    """It gets as far as to look for the device; of options that it does not know it prints how it is used."""
    rail = {"device": "mlx5_77", "ib_port": 1, "tcp_port": 18515, "address": "127.0.0.1"}
    for test in op_verbs.PROGRAMS:
        for client in (False, True):
            argv = op_verbs.command({"test": test, "seconds": 2}, rail, client)
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=20, env=dict(os.environ), check=False
            )
            assert "Unable to find the Infiniband/RoCE device" in done.stdout + done.stderr, (argv, done)
