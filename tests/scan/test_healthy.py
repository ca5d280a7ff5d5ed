"""A healthy lab is silent: READY, exit 0, nothing unknown, nothing to warn of."""

from collections.abc import Callable
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from tests.scan.harness import Scanned, scan


def quiet(scanned: Scanned) -> None:
    """READY, and not a word of what only is so because a lab stands on one machine."""
    assert (scanned.state, scanned.code) == ("ready", 0), scanned.summary()
    nodes = scanned.report["matrix"]["nodes"]
    assert scanned.report["causes"] == [], scanned.summary()
    counts = scanned.report["verdict"]["counts"]
    bad = ("warn", "unknown", "fail", "blocked")
    assert [counts[status] for status in bad] == [0, 0, 0, 0], scanned.summary()
    assert scanned.report["healthy_nodes"] == nodes
    assert scanned.report["run"]["complete"]


def test_four_plain_nodes(lab4: Lab, folder: Path) -> None:
    scanned = scan(lab4, folder)
    quiet(scanned)
    # Checks without anything to look at here (no GPU, no HCA) are no gap; a torch could have been there.
    software, rates = scanned.report["verdict"]["gaps"]
    assert (software["checks"], rates["checks"]) == (["sw.torch"], ["bw.allreduce"])
    assert software["reason"] == rates["reason"]
    words = f"not tested the job's Python, the all-reduce ({software['reason']})"
    assert words in " ".join(scanned.text.split())
    assert scanned.cell("net.ports", "node0") == "."
    assert scanned.cell("gpu.visible", "node0") == scanned.cell("rdma.hca", "node0") == "-"
    assert [target["reached"] for target in scanned.report["targets"]] == [True] * 4
    assert "lab on one machine" in scanned.text


def test_four_nodes_with_a_data_network(two_networks: Lab, folder: Path) -> None:
    quiet(scan(two_networks, folder))


def test_a_job_over_the_data_network(two_networks: Lab, folder: Path) -> None:
    scanned = scan(two_networks, folder, NCCL_SOCKET_IFNAME="eth1", GLOO_SOCKET_IFNAME="eth1")
    quiet(scanned)


def test_four_nodes_with_hcas_and_gpus(hw_lab: Lab, folder: Path) -> None:
    scanned = scan(hw_lab, folder, "--require", "gpu,rdma,nccl,net")
    quiet(scanned)
    for check in ("gpu.visible", "gpu.count", "rdma.hca", "rdma.port", "nccl.ib-hca"):
        assert scanned.cell(check, "node3") == ".", scanned.summary()
    assert "simulated: GPUs, HCAs" in scanned.text


@pytest.mark.parametrize("count", [1, 2, 8])
def test_other_sizes(make_lab: Callable[..., Lab], folder: Path, count: int) -> None:
    lab = make_lab(count)
    try:
        scanned = scan(lab, folder)
        quiet(scanned)
        pairs = {(p["from"], p["to"]) for p in scanned.report["pairs"] if p["check"] == "net.ports"}
        assert len(pairs) == count * (count - 1)
    finally:
        lab.down()
