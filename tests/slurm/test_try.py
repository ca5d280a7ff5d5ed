"""`try --via slurm` in a real allocation: tasks start the job, and nothing of it is left."""

import shutil
from pathlib import Path

from tests.scan.harness import until
from tests.slurm.conftest import Slurm

STAND_IN = Path(__file__).parents[1] / "trial" / "stand_in"


def tried(slurm: Slurm, what: str = "", scan: str = "--no-scan") -> str:
    """What a trial of a job in an allocation of all nodes prints, and its exit code behind it."""
    job = slurm.site / "stand_in"
    shutil.copytree(STAND_IN, job, dirs_exist_ok=True)
    options = f"--via slurm {scan} -p quick --nproc 1 --for 4 -q --chdir /"
    line = f"netdoctor try {options} -- python3 {job}/job.py {what}; echo exit $?"
    line = f"cd /root && rm -rf .netdoctor; {line}"
    nodes = f"--nodes={len(slurm.lab.nodes)}"
    return slurm.run("salloc", "-Q", nodes, "--exclusive", "sh", "-c", line, timeout=150)


def alone(slurm: Slurm) -> None:
    until(lambda: not slurm.run("squeue", "-h").strip(), "no job is left", 20)
    for node in slurm.lab.nodes:
        found = slurm.run(
            "sh", "-c", "pgrep -fa stand_in/job.py; ls -d /tmp/netdoctor-try-*", node=node, check=False
        )
        assert "job.py" not in found.replace("pgrep -fa stand_in/job.py", "")
        assert "No such file" in found


def test_a_job_in_an_allocation_is_started(via: Slurm) -> None:
    out = tried(via)
    assert "STARTED   all 4 ranks joined" in out, out
    assert "exit 0" in out
    alone(via)


def test_after_the_scan_of_the_same_allocation(via: Slurm) -> None:
    out = tried(via, scan="--anyway")
    assert "STARTED   all 4 ranks joined" in out, out
    alone(via)


def test_a_rank_that_is_killed_there_is_named(via: Slurm) -> None:
    out = tried(via, "killed 2 3")
    assert "FAILED    node2: its process was killed by SIGKILL" in out, out
    assert "exit 1" in out
    alone(via)
