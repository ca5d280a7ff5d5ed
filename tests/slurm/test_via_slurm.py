"""`scan --via slurm` on the real Slurm of lab nodes, beside the same scan over SSH."""

import dataclasses
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdoctor.report.formats.drain import slurm as commands
from tests.report.build import sample_report
from tests.scan.faults import put
from tests.scan.harness import REPO, Scanned, scan, until
from tests.slurm.conftest import Slurm

QUICK = ("--profile", "quick")
LOG = """\
torch.distributed.DistNetworkError: The client socket has timed out after 15000ms while trying to connect to \
(10.77.0.10, 29500).
"""


def by_slurm(slurm: Slurm, *args: str, inside: bool | str = False, before: str = "") -> Scanned:
    """A scan from the first node, in an allocation of all nodes, or one that asks so, or outside of any."""
    netdoctor = f"netdoctor scan --via slurm -q -o json=/report.json --no-save {' '.join(args)}"
    argv = ["sh", "-c", f"rm -f /report.json; {before} {netdoctor} 2>/stderr; echo exit $?"]
    if inside:
        asks = "--exclusive" if inside is True else inside
        argv = ["salloc", "-Q", f"--nodes={len(slurm.lab.nodes)}", *asks.split(), *argv]
    out = slurm.run(*argv, timeout=150)
    stderr = slurm.run("cat", "/stderr", check=False)
    assert "Traceback" not in stderr, stderr
    text = slurm.run("cat", "/report.json", check=False)
    report: dict[str, Any] = json.loads(text) if text.startswith("{") else {}
    (code,) = re.findall(r"^exit (\d+)$", out, re.MULTILINE)
    return Scanned(int(code), out, report, stderr, Path("/"))


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
    # And what decides a log is measured the same way.
    via.write({"/train.log": LOG}, 0o644, via.first)
    argv = ("netdoctor", "explain", "log", "/train.log", "--scan", "--via", "slurm", "--quiet", "-o", "json")
    said = json.loads(via.run("salloc", "-Q", "--nodes=4", "--exclusive", *argv))
    first = said["causes"][0]
    assert (first["label"], first["confidence"]) == ("firewall_blocked", "certain")
    assert "node1" in " ".join(first["proof"])


def test_a_node_that_slurm_keeps_off_is_named_with_its_reason(via: Slurm) -> None:
    """It is taken out by what `-o slurm` prints of a GPU that has to be replaced."""
    told = sample_report()
    bad = {"key": "gpu-ecc", "title": "node3's GPU | B2", "action": "replace", "node_list": ("node3",)}
    cause = dataclasses.replace(told.causes[0], **bad)  # type: ignore[arg-type]
    matrix = dataclasses.replace(told.matrix, nodes=via.lab.nodes)
    via.run("sh", "-c", commands(dataclasses.replace(told, causes=(cause,), matrix=matrix)))
    found = by_slurm(via, "--partition", "all", *QUICK)
    (seen,) = found.report["causes"]
    assert (seen["key"], seen["node_list"], seen["status"]) == ("slurm-drained", ["node3"], "fail")
    assert "drained: netdoctor gpu-ecc (replace): node3s GPU | B2" in str(seen["seen"])
    assert found.report["healthy_nodes"] == ["node0", "node1", "node2"]


@pytest.mark.weekly
def test_a_small_limit_of_slurmd_alone_and_a_dead_slurmd(via: Slurm, folder: Path) -> None:
    """The first is what only steps have; the second makes Slurm end the whole step, and costs one node."""
    only = ("--only", "host.memlock,slurm.limits", "--timeout", "60")
    for node in ("node1", "node2"):
        via.run("pkill", "-x", "slurmd", node=node)
        until(lambda node=node: not via.run("pgrep", "-x", "slurmd", node=node, check=False), "it ended")  # type: ignore[misc]
    via.run("prlimit", "--memlock=65536:65536", "slurmd", "-N", "node1", node="node1")
    try:
        found = by_slurm(via, "--nodelist", "node[0-3]", *only)
    finally:
        via.run("pkill", "-x", "slurmd", node="node1")
        until(lambda: not via.run("pgrep", "-x", "slurmd", node="node1", check=False), "slurmd ended")
        for node in ("node1", "node2"):
            via.run("slurmd", "-N", node, node=node)
    assert scan(via.lab, folder, "--only", "host.memlock").keys == []
    said = {c["key"]: c for c in found.report["causes"]}
    assert said.keys() == {"slurm-limits", "slurm-step"}, found.summary()
    assert (said["slurm-limits"]["node_list"], said["slurm-limits"]["status"]) == (["node1"], "fail")
    assert "of a step is 64 KiB" in str(said["slurm-limits"]["seen"])
    assert any("slurmd.service.d" in c["shell"] for f in said["slurm-limits"]["fixes"] for c in f["commands"])
    assert (said["slurm-step"]["node_list"], said["slurm-step"]["status"]) == (["node2"], "fail")
    assert "connection failure" in str(said["slurm-step"]["seen"]).lower()
    assert found.report["healthy_nodes"] == ["node0", "node3"]


def cut(slurm: Slurm, node: str, verdict: str) -> None:
    """From now on a node's firewall does that to its connections to where srun and netdoctor listen."""
    rule = f"ip daddr {slurm.lab.address(slurm.first)} tcp dport 20000-65535 tcp flags syn / syn,ack,rst,fin"
    chain = "add table inet way; add chain inet way out { type filter hook output priority 0; }"
    slurm.run("nft", f"{chain}; add rule inet way out {rule} {verdict}", node=node)


@pytest.fixture
def opened(via: Slurm) -> Iterator[Slurm]:
    yield via
    for node in via.lab.nodes:
        via.run("nft", "delete table inet way", node=node, check=False)


WAY = ("--only", "slurm.node,host.memlock")
# srun's own two connections of a task pass, and what the task itself dials does not.
THIRD = "limit rate over 1/day burst 2 packets reject with tcp reset"


@pytest.mark.parametrize(
    ("verdict", "key", "said"),
    [
        ("drop", "slurm-silent", "srun here heard nothing of it for 15 s"),
        (THIRD, "slurm-no-way-back", "Connection refused"),
    ],
)
def test_one_node_that_cannot_call_costs_that_node(opened: Slurm, verdict: str, key: str, said: str) -> None:
    cut(opened, "node2", verdict)
    found = by_slurm(opened, "node[0-3]", *WAY)
    (cause,) = found.report["causes"]
    assert (cause["key"], cause["node_list"], cause["status"]) == (key, ["node2"], "unknown"), found.summary()
    assert said in str(cause["seen"])
    assert found.state == "undecided"
    assert found.report["healthy_nodes"] == ["node0", "node1", "node3"]
    alone(opened)


@pytest.mark.weekly
def test_where_no_node_can_call_it_is_the_way_to_this_machine(opened: Slurm) -> None:
    for node in ("node1", "node2", "node3"):
        cut(opened, node, "drop")
    found = by_slurm(opened, "node[1-3]", *WAY)
    (cause,) = found.report["causes"]
    assert (cause["key"], cause["node_list"], found.state) == ("slurm-silent-here", [], "undecided")
    assert any("sbatch" in c["shell"] for fix in cause["fixes"] for c in fix["commands"])
    alone(opened)


def test_an_interpreter_that_is_not_there(via: Slurm) -> None:
    found = by_slurm(via, "node[0-3]", *WAY, "--python", "/usr/bin/python9")
    (cause,) = found.report["causes"]
    assert cause["key"] == "slurm-interpreter", found.summary()
    assert "python9" in str(cause["seen"])
    alone(via)


HELD_BY_A_STEP = "srun --gres=gpu:2 sleep 100 & until squeue -hs | grep -q sleep; do sleep 0.1; done;"


def test_gpus_are_those_that_slurm_gave(held: Slurm) -> None:
    """Those of other jobs are no fault, those that a step of the same job has are seen, a lost one is one."""
    other = held.submit("#!/bin/sh\nsleep 300\n", "--nodes=2", "--ntasks-per-node=1", "--gres=gpu:1")
    until(lambda: held.job(other)["JobState"] == "RUNNING", "the other job runs")
    share = by_slurm(held, *QUICK, inside="--ntasks-per-node=1 --gres=gpu:1")
    assert (share.state, causes(share)) == ("ready", set()), share.summary()
    assert {target["facts"]["gpus"] for target in share.report["targets"]} == {1}
    held.run("scancel", other)
    until(lambda: not held.run("squeue", "-h").strip(), "it is over")

    every = by_slurm(held, *QUICK, inside="--exclusive --gres=gpu:2", before=HELD_BY_A_STEP)
    assert (every.state, causes(every)) == ("ready", set()), every.summary()
    assert {target["facts"]["gpus"] for target in every.report["targets"]} == {2}

    put(held.lab, ("node1 gpu-missing",))
    lost = by_slurm(held, *QUICK, inside="--exclusive --gres=gpu:2")
    (cause,) = lost.report["causes"]
    assert (cause["key"], cause["node_list"], cause["status"]) == ("gpu-count-fewer", ["node1"], "fail")
    assert "1 GPU, Slurm gave the task 2" in str(cause), lost.summary()


def test_slurms_reason_for_not_giving_nodes_is_told(via: Slurm) -> None:
    via.run("scontrol", "update", "PartitionName=all", "MaxNodes=2")
    try:
        found = by_slurm(via, "node[0-3]", *WAY, "--timeout", "5")
    finally:
        via.run("scontrol", "update", "PartitionName=all", "MaxNodes=UNLIMITED")
    (cause,) = found.report["causes"]
    assert (cause["key"], found.state) == ("slurm-refused", "undecided"), found.summary()
    assert "no allocation within 5 s: the request waited for Partition" in str(cause["seen"])
    alone(via)


def test_names_that_slurm_does_not_know(via: Slurm) -> None:
    """On the command line they are mistakes; in a file of many, a finding about one."""
    nobody = "netdoctor: node[8-9]: Slurm knows no such node"
    for words, said in {
        "-w 'node[1-2],node[8-9]'": f"{nobody}; sinfo -N lists them",
        "-w 'node[1-2],node[8-9]' --partition all": f"{nobody} in partition all; sinfo -N lists them",
        "--partition nope": "netdoctor: --partition nope: ",
        "-w node1 --partition nope": "netdoctor: --partition nope: ",
    }.items():
        found = by_slurm(via, words, *QUICK)
        assert (found.code, found.report) == (2, {}), words
        assert said in found.stderr, found.stderr
    via.write({"/hosts.txt": "node1\nnode9\n"}, 0o644, via.first)
    found = by_slurm(via, "/hosts.txt", *QUICK)
    assert (found.code, causes(found)) == (1, {("slurm-name", ("node9",), "fail")}), found.summary()
    alone(via)


def test_a_node_whose_job_has_just_ended_is_said_to_be_free_soon(via: Slurm) -> None:
    number = via.submit("#!/bin/sh\ntrap '' TERM\nsleep 100 & sleep 100; sleep 100\n", "-w", "node2")
    until(lambda: via.job(number)["JobState"] == "RUNNING", "the job runs")
    via.run("sleep", "1")  # until its shell has said what it ignores
    via.run("scancel", number)
    until(lambda: via.state("node2") == "comp", "its node is cleaned up", 20)
    found = by_slurm(via, "node[1-2]", *QUICK)
    (cause,) = found.report["causes"]
    assert (cause["key"], cause["node_list"], found.state) == ("slurm-busy", ["node2"], "undecided")
    assert "completing: what ran there has ended and is cleaned up; it is free in a moment" in str(cause)
    until(lambda: via.state("node2") == "idle", "it is free", 60)
    alone(via)


@pytest.mark.weekly
def test_a_heterogeneous_job_is_told_what_to_do_instead(via: Slurm) -> None:
    """Its line works: nodes of the lab have no folder in common, so each has its own of that name."""
    said = via.run("salloc", "-Q", "-N1", ":", "-N1", "sh", "-c", "netdoctor scan --via slurm; echo exit $?")
    assert said.splitlines()[-1] == "exit 2", said
    (commands,) = re.findall(r"let tasks write: (.+)", said)
    write, judge = commands.split("; ")
    assert judge == "netdoctor scan --facts FOLDER"
    via.run("salloc", "-Q", "-N1", ":", "-N1", *write.replace("FOLDER", "/tmp/het").split())
    lines = [via.run("sh", "-c", "cat /tmp/het/* 2>/dev/null; true", node=node) for node in via.lab.nodes]
    assert len({json.loads(line)["node"] for line in lines if line}) == 2, lines
    alone(via)


STOPPED = """\
netdoctor scan --via slurm 'node[0-3]' --profile full --no-save >/out 2>&1 &
until squeue -h -n netdoctor -t R | grep -q .; do sleep 0.1; done
kill -%s $!; wait $!; echo exit $?
"""


def test_nothing_is_left_when_it_is_stopped(via: Slurm) -> None:
    for signal, code in (("INT", "130"), ("KILL", "137")):
        out = via.run("bash", "-c", STOPPED % signal, timeout=120)
        assert out.split()[-1] == code, out
        alone(via)


def test_the_lines_of_the_page(via: Slurm) -> None:
    page = (REPO / "docs" / "engines.md").read_text("utf-8")
    section = page.partition("\n## Slurm\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) == 3
    for number, line in enumerate(lines):
        words = [*shlex.split(line), *QUICK, "-q", "--no-save"]
        inside = ["salloc", "-Q", "-N4", "--exclusive"] if number == 0 else []
        assert "READY, exit 0" in via.run(*inside, *words, timeout=120)
