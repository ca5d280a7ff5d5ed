"""Trials of real launchers on lab nodes: torchrun and accelerate with gloo, jobs inside Slurm and Ray."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from tests.bandwidth.conftest import torch_python
from tests.trial.test_lab import Tried, is_clean, job, trial

pytestmark = pytest.mark.lab
__all__ = ["job"]

TRAIN = """\
import os, sys
import torch, torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(100000):
    if sys.argv[1:] == ["killed"] and dist.get_rank() == 1 and step == 3:
        os.kill(os.getpid(), 9)
    if sys.argv[1:] == ["shapes"] and dist.get_rank() == 2 and step == 3:
        model.module(torch.randn(8, 63))
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def train(job: Path) -> Path:
    _, why = torch_python()
    if why:
        pytest.skip(why)
    path = job.with_name("train.py")
    path.write_text(TRAIN)
    # The stand-in lies beside it.
    real = job.parent.parent / "real"
    real.mkdir(exist_ok=True)
    shutil.copy(path, real / "train.py")
    return real / "train.py"


def torchrun(lab: Lab, folder: Path, train: Path, *words: str, seconds: int = 40) -> Tried:
    python, _ = torch_python()
    options = ["--no-scan", "--python", python, "--for", str(seconds), "--steps", "20"]
    return Tried(lab, folder, *options, "--", "torchrun", str(train), *words)


@pytest.mark.weekly
def test_torchrun_without_a_word_about_nodes(lab: Lab, folder: Path, train: Path) -> None:
    tried = torchrun(lab, folder, train, seconds=90).wait()
    assert (tried.code, tried.found["state"]) == (0, "started"), tried.text
    assert tried.found["world_size"] == 4
    assert re.search(r"next +netdoctor plan \S+ --launcher torchrun --script ", tried.text)
    assert is_clean(lab, train)


@pytest.mark.weekly
def test_torchrun_whose_script_fails_on_one_rank(lab: Lab, folder: Path, train: Path) -> None:
    tried = torchrun(lab, folder, train, "shapes", seconds=90).wait()
    assert (tried.code, tried.found["state"]) == (1, "failed"), tried.text
    assert tried.found["nodes_at_fault"] == ["node2"], tried.text
    first = tried.found["causes"][0]
    assert "program itself failed" in first["title"], tried.text
    assert is_clean(lab, train)


@pytest.mark.weekly
def test_torchrun_whose_rank_is_killed(lab: Lab, folder: Path, train: Path) -> None:
    tried = torchrun(lab, folder, train, "killed", seconds=90).wait()
    assert (tried.code, tried.found["state"]) == (1, "failed"), tried.text
    assert tried.found["nodes_at_fault"] == ["node1"], tried.text
    assert is_clean(lab, train)


def test_torchrun_behind_a_firewall_names_the_node(lab: Lab, folder: Path, train: Path) -> None:
    lab.break_("node2", "drop")
    tried = torchrun(lab, folder, train, seconds=45).wait()
    assert (tried.code, tried.found["state"]) == (1, "failed"), tried.text
    assert ["node2"] in [cause["nodes"] for cause in tried.found["causes"]], tried.text
    assert is_clean(lab, train, 20)


@pytest.mark.weekly
def test_each_node_for_itself_is_not_started(lab: Lab, folder: Path, train: Path) -> None:
    python, _ = torch_python()
    options = ["--no-scan", "--python", python, "--for", "90"]
    words = ["torchrun", "--standalone", "--nproc-per-node", "1", str(train)]
    tried = Tried(lab, folder, *options, "--steps", "5", "--", *words).wait()
    assert (tried.code, tried.found["state"]) == (1, "failed"), tried.text
    assert tried.found["headline"] == "no single group: node[0-3] have a rank 0 each"


def launcher(variable: str, name: str, module: str) -> tuple[Path, Path]:
    """(the folder of an installed launcher, its program); skips where it cannot be imported."""
    place = Path(os.environ.get(variable, ""))
    if not (place / name).is_dir():
        pytest.skip(f"{variable} names no folder with {name}")
    python, _ = torch_python()
    asked = [python, "-c", f"import {module}"]
    done = subprocess.run(asked, env={"PYTHONPATH": place}, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{name} cannot be imported there: {done.stderr.strip().splitlines()[-1]}")
    return place, place / "bin" / name


def launched(lab: Lab, folder: Path, place: Path, *words: str) -> Tried:
    """A launcher's trial on two nodes."""
    python, _ = torch_python()
    (folder / "env").write_text(f"PYTHONPATH={place}\n")
    options = ["--no-scan", "--python", python, "--for", "90", "--steps", "5", "--env-file", "env"]
    hosts = folder / "hosts"
    hosts.write_text("".join(lab.hosts_file.read_text().splitlines(keepends=True)[:2]))
    return Tried(lab, folder, *options, "--", *words, hosts=hosts).wait()


def test_accelerate(lab: Lab, folder: Path, train: Path) -> None:
    place, program = launcher("NETDOCTOR_TEST_ACCELERATE", "accelerate", "accelerate.commands.launch")
    tried = launched(lab, folder, place, str(program), "launch", str(train))
    assert (tried.code, tried.found["state"], tried.found["world_size"]) == (0, "started", 2), tried.text
    assert is_clean(lab, train)


@pytest.mark.weekly
@pytest.mark.parametrize("way", ["pdsh", "no_ssh"])
def test_deepspeed(lab: Lab, folder: Path, train: Path, way: str) -> None:
    """Its own launcher: by pdsh from the first node, or started on each node."""
    place, program = launcher("NETDOCTOR_TEST_DEEPSPEED", "deepspeed", "deepspeed.launcher.runner")
    if way == "pdsh" and shutil.which("pdsh") is None:
        pytest.skip("no pdsh")
    hostfile = train.with_name("hostfile")
    hostfile.write_text("node0 slots=1\nnode1 slots=1\n")
    words = [
        str(program),
        "--hostfile",
        str(hostfile),
        "--master_addr",
        "{master}",
        "--master_port",
        "{port}",
    ]
    words += ["--no_ssh", "--node_rank", "{rank}"] if way == "no_ssh" else []
    tried = launched(lab, folder, place, *words, str(train))
    assert (tried.code, tried.found["state"], tried.found["world_size"]) == (0, "started", 2), tried.text
    assert {rank["node"] for rank in tried.found["ranks"]} == {"node0", "node1"}
    assert is_clean(lab, train)


@pytest.mark.weekly
def test_random_runs_are_started_only_where_they_did(lab: Lab, folder: Path, job: Path) -> None:
    """A few of them here; NETDOCTOR_TEST_TRIALS says how many."""
    import random

    for seed in range(int(os.environ.get("NETDOCTOR_TEST_TRIALS", "6"))):
        chance = random.Random(seed)
        what = chance.choice(["", "raise", "killed", "exit", "leave", "alone", "stepless", "deaf", "daemon"])
        when = chance.choice(["start", "joined", "1", "7"]) if what else "never"
        if what == "alone":
            when = "start"
        words = f"{what} {chance.randrange(4)} {when}" if what else ""
        tried = trial(lab, folder, job, words, seconds=chance.choice([2, 3])).wait()
        starts = what in ("", "deaf", "daemon")
        assert (tried.found["state"] == "started") is starts, (seed, words, tried.text)
        assert is_clean(lab, job)
