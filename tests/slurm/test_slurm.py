"""docs/launch/slurm.md and slurm-prolog.md, as they stand there, on a Slurm of lab nodes."""

import re

import pytest

from tests.bandwidth.conftest import torch_python
from tests.scan.faults import put
from tests.scan.harness import REPO, until
from tests.slurm.conftest import Slurm

# What a rank says in the end: the sum of all ranks, each with its rank plus one.
TRAIN = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
sums = torch.full((1000,), float(dist.get_rank() + 1))
dist.all_reduce(sums)
said = f"rank {dist.get_rank()} of {dist.get_world_size()} on {os.uname().nodename}: {sums[0]:g}\\n"
os.write(1, said.encode())
dist.destroy_process_group()
"""


def blocks(page: str, kind: str = "sh") -> list[str]:
    text = (REPO / "docs" / "launch" / page).read_text("utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


TASK = "#!/bin/sh\necho task on $SLURMD_NODENAME\n"
PLANNED, GATED, SPARE, ALONE = blocks("slurm.md")


def test_the_planned_batch_file_completes_an_all_reduce(slurm: Slurm) -> None:
    python, why = torch_python()
    if why:
        pytest.skip(why)
    slurm.write({"/opt/train.py": TRAIN})
    scan, plan, submit = PLANNED.splitlines()
    # Two processes on one node and one on the other, by the interpreter that has torch.
    scan = scan.replace("'node[1-2]'", f"/hosts.txt --python {python}")
    slurm.write({"/hosts.txt": "node1 slots=2\nnode2 slots=1\n"}, 0o644, slurm.first)
    plan, submit = plan.replace(" --nproc 1", ""), submit.replace("sbatch", "sbatch --output=/job-%j.out")
    said = slurm.run("bash", "-c", f"mkdir /planned && cd /planned && {scan} && {plan} && {submit}")
    found = re.search(r"Submitted batch job (\d+)", said)
    assert found, said
    code, out = slurm.ended(found[1])
    assert code == "0:0", out
    ranks = sorted(line for line in out.splitlines() if line.startswith("rank "))
    assert [line.partition(" on ")[0] for line in ranks] == [f"rank {n} of 3" for n in range(3)], out
    assert all(line.endswith(": 6") for line in ranks), out
    assert {line.split()[5] for line in ranks} == {"node1:", "node2:"}, out


def tasks(out: str) -> list[str]:
    return sorted(re.findall(r"^task on (.*)$", out, re.MULTILINE))


def test_gate_in_a_batch_file(slurm: Slurm) -> None:
    """On healthy nodes, and with a node that has a full disk: refused, without it, and found by itself."""
    address = slurm.lab.address("node0")
    code, out = slurm.ended(slurm.submit(GATED))
    assert (code, tasks(out)) == ("0:0", [f"node{n} finds {address}" for n in range(3)]), out
    put(slurm.lab, ("node2 full-disk",))
    code, out = slurm.ended(slurm.submit(GATED))
    assert (code, tasks(out)) == ("75:0", []), out
    assert "FAIL host.disk /tmp is full on node2" in out
    assert out.splitlines()[-1] == "not on these nodes"
    code, out = slurm.ended(slurm.submit(SPARE))
    assert (code, tasks(out)) == ("0:0", ["node0", "node1"]), out
    code, out = slurm.ended(slurm.submit(ALONE))
    assert (code, tasks(out)) == ("75:0", []), out


def test_prolog_and_health_check(slurm: Slurm) -> None:
    """The broken node is drained and mended, and a netdoctor that breaks drains nobody."""
    prolog, _, health, look, resume = blocks("slurm-prolog.md")
    before, _, regular = blocks("slurm-prolog.md", "conf")
    slurm.write({"/etc/slurm/netdoctor-prolog": prolog, "/etc/slurm/netdoctor-health": health})
    slurm.write({"/usr/local/sbin/netdoctor-resume": resume})
    slurm.reconfigure(before)
    put(slurm.lab, ("node2 full-disk",))
    job = slurm.submit(TASK, "--nodes=1", "--nodelist=node2")
    until(lambda: slurm.state("node2").startswith("drain"), "node2 is drained by the prolog")
    assert "Prolog error" in slurm.run("sh", "-c", look)
    # Back in the queue, it would start some time later; on a node whose netdoctor is no program.
    until(lambda: slurm.job(job)["JobState"] == "PENDING", "the job is back in the queue")
    slurm.write({"/usr/local/bin/netdoctor": "#!/bin/sh\nexit 1\n"}, 0o755, "node1")
    slurm.run("scontrol", "update", f"JobId={job}", "ReqNodeList=node1", "StartTime=now")
    code, out = slurm.ended(job)
    assert (code, tasks(out)) == ("0:0", ["node1"]), out

    slurm.lab.heal()
    slurm.run("netdoctor-resume", node="node2")
    code, out = slurm.ended(slurm.submit(TASK, "--nodes=1", "--nodelist=node2"))
    assert (code, tasks(out)) == ("0:0", ["node2"]), out

    put(slurm.lab, ("node2 full-disk",))
    slurm.reconfigure(regular.replace("HealthCheckInterval=300", "HealthCheckInterval=2"))
    until(lambda: slurm.state("node2").startswith("drain"), "node2 is drained by the health check")
    assert (
        slurm.run("sinfo", "-h", "-R", "-o", "%E %n")
        == "netdoctor: host.disk /tmp is full on localhost node2\n"
    )
    assert slurm.state("node1") == "idle"


def test_epilog(slurm: Slurm) -> None:
    """What a job leaves behind drains its node, and not the job; a test resumes it, once that is gone."""
    epilog, resume = blocks("slurm-prolog.md")[1], blocks("slurm-prolog.md")[-1]
    slurm.write({"/etc/slurm/netdoctor-epilog": epilog, "/usr/local/sbin/netdoctor-resume": resume})
    slurm.reconfigure(blocks("slurm-prolog.md", "conf")[1])
    job = slurm.submit("#!/bin/sh\nsleep 20\n", "--nodes=1", "--nodelist=node2")
    until(lambda: slurm.job(job)["JobState"] == "RUNNING", "the job runs")
    put(slurm.lab, ("node2 full-disk",))
    assert slurm.ended(job)[0] == "0:0"
    until(lambda: slurm.state("node2").startswith("drain"), "node2 is drained by the epilog")
    assert "Epilog error" in slurm.run("sinfo", "--list-reasons")
    assert "stays drained: exit 1" in slurm.run("netdoctor-resume", node="node2", check=False)
    assert slurm.state("node2").startswith("drain")
    slurm.lab.heal()
    slurm.run("netdoctor-resume", node="node2")
    until(lambda: slurm.state("node2") == "idle", "node2 is back")


def test_the_planned_srun_gives_each_task_its_rank(slurm: Slurm) -> None:
    """Listed in another order than Slurm's, whose first node is the one that all are told."""
    said = "$RANK of $WORLD_SIZE, $LOCAL_RANK on $(hostname), master $MASTER_ADDR $1"
    say = f"sh -c 'echo \"SAID {said}\"' sh '$(id)'"
    argv = ["netdoctor", "plan", "node2,node1", "--launcher", "srun", "--nproc", "2", "--script", say]
    slurm.write({"/srun.sh": slurm.run(*argv)}, 0o755, slurm.first)
    out = slurm.run("bash", "/srun.sh", timeout=120)
    told = sorted(re.findall("^SAID (.*)$", out, re.MULTILINE))
    where = ("node1", "node1", "node2", "node2")
    wanted = [f"{n} of 4, {n % 2} on {node}, master node1 $(id)" for n, node in enumerate(where)]
    assert told == wanted, out
