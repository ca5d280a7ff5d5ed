"""`scan --via slurm` on the real Slurm of lab nodes, beside the same scan over SSH."""

import json
from pathlib import Path
from typing import Any

from tests.scan.faults import put
from tests.scan.harness import Scanned, scan, until
from tests.slurm.conftest import Slurm

QUICK = ("--profile", "quick")


def by_slurm(slurm: Slurm, *args: str, inside: bool = False) -> Scanned:
    """A scan from the first node, in an allocation of all nodes or outside of any."""
    netdoctor = f"netdoctor scan --via slurm -q -o json=/report.json --no-save {' '.join(args)}"
    argv = ["sh", "-c", f"rm -f /report.json; {netdoctor} 2>/stderr; echo exit $?"]
    if inside:
        argv = ["salloc", "-Q", f"--nodes={len(slurm.lab.nodes)}", "--exclusive", *argv]
    out = slurm.run(*argv, timeout=150)
    stderr = slurm.run("cat", "/stderr", check=False)
    assert "Traceback" not in stderr, stderr
    text = slurm.run("cat", "/report.json", check=False)
    report: dict[str, Any] = json.loads(text) if text.startswith("{") else {}
    return Scanned(int(out.split()[-1]), out, report, stderr, Path("/"))


def causes(scanned: Scanned) -> set[tuple[str, tuple[str, ...], str]]:
    return {(c["key"], tuple(c["node_list"]), c["status"]) for c in scanned.report["causes"]}


def alone(slurm: Slurm) -> None:
    """Nothing of ours is left: no job, no step, no listener, no agent."""
    until(lambda: not slurm.run("squeue", "-h").strip(), "no job is left", 20)
    for node in slurm.lab.nodes:
        until(lambda node=node: not _ours(slurm, node), f"nothing of ours is left on {node}", 20)  # type: ignore[misc]


def _ours(slurm: Slurm, node: str) -> str:
    ours = "netdoctor scan|ndagent_loader|^srun|^salloc|slurmstepd"
    return slurm.run("pgrep", "-fa", ours, node=node, check=False)


def test_says_of_healthy_nodes_what_a_scan_over_ssh_says(via: Slurm, folder: Path) -> None:
    names = ",".join(via.lab.nodes)
    ssh = scan(via.lab, folder)
    outside, inside = by_slurm(via, names), by_slurm(via, inside=True)
    assert ssh.state == outside.state == inside.state == "ready", outside.summary()
    assert causes(ssh) == causes(outside) == causes(inside) == set()
    checks = {c for c in ssh.report["matrix"]["checks"] if not c.startswith("ssh.")}
    assert {c for c in outside.report["matrix"]["checks"] if not c.startswith("slurm.")} == checks
    alone(via)


def test_finds_what_a_scan_over_ssh_finds(via: Slurm, folder: Path) -> None:
    put(via.lab, ("node1 drop ports=20000-44000", "node2 gpu-lost", "node3 torch"))
    ssh, slurm = scan(via.lab, folder), by_slurm(via, inside=True)
    assert ssh.state == slurm.state == "not_ready", slurm.summary()
    assert causes(slurm) == causes(ssh)
    assert {node for _, nodes, _ in causes(ssh) for node in nodes} == {"node1", "node2", "node3"}


def test_a_node_that_slurm_keeps_off_is_named_with_its_reason(via: Slurm) -> None:
    why = "bad dimm | B2"
    via.run("scontrol", "update", "NodeName=node3", "State=DRAIN", f"Reason={why}")
    found = by_slurm(via, "--partition", "all", *QUICK)
    (cause,) = found.report["causes"]
    assert (cause["key"], cause["node_list"], cause["status"]) == ("slurm-drained", ["node3"], "fail")
    assert f"drained: {why}" in str(cause["seen"])
    assert found.report["healthy_nodes"] == ["node0", "node1", "node2"]
