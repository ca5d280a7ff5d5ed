"""Trials on lab nodes over SSH, of jobs that really meet over TCP: the result, and that nothing is left."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdoctor.lab import Lab
from tests.scan.harness import environment

pytestmark = pytest.mark.lab
STAND_IN = Path(__file__).with_name("stand_in")
CLEAN_S = 20.0
# More of what is random.
MANY = "NETDOCTOR_TEST_TRIALS" in os.environ


@pytest.fixture(scope="module")
def job() -> Iterator[Path]:
    """The program, where nodes see it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(STAND_IN, Path(folder, "job"))
        yield Path(folder, "job", "job.py")


class Tried:
    """A trial that is running, or has ended."""

    def __init__(self, lab: Lab, folder: Path, *words: str, hosts: Path | None = None) -> None:
        self.lab, self.folder = lab, folder
        options = ["--ssh-config", str(lab.ssh_config), "--nproc", "1", "--chdir", "/var/tmp", "-p", "quick"]
        separator = words.index("--")
        argv = [sys.executable, "-m", "netdoctor", "try", *options, *words[:separator]]
        self.process = subprocess.Popen(
            [*argv, str(hosts or lab.hosts_file), "-o", "json=out.json", *words[separator:]],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.text = self.errors = ""

    def wait(self) -> "Tried":
        self.text, self.errors = self.process.communicate(timeout=120)
        assert "Traceback" not in self.errors
        return self

    @property
    def found(self) -> dict[str, Any]:
        path = self.folder / "out.json"
        assert path.exists(), self.errors
        return dict(json.loads(path.read_text()))

    @property
    def code(self) -> int:
        return int(self.process.returncode)

    def until_it_begins(self) -> None:
        """Wait until it logs in: before that an interrupt is Python's own affair."""
        while not list(self.folder.glob(".netdoctor/try/*")) and self.process.poll() is None:
            time.sleep(0.02)

    def until(self, text: str) -> None:
        """Wait until stderr says it."""
        assert self.process.stderr is not None
        while text not in (line := self.process.stderr.readline()):
            assert line, f"it ended before it printed {text!r}"


def trial(lab: Lab, folder: Path, job: Path, what: str = "", *options: str, seconds: int = 4) -> Tried:
    words = ["--no-scan", "--for", str(seconds), *options, "--", "python3", str(job), *what.split()]
    return Tried(lab, folder, *words)


def left(lab: Lab, job: Path) -> list[str]:
    """What is left of jobs: processes, and folders on nodes."""
    found = subprocess.run(["pgrep", "-af", str(job.parent)], capture_output=True, text=True, check=False)
    lines = found.stdout.splitlines()
    for node in lab.nodes:
        found = lab.run(
            node,
            ["sh", "-c", "ls -d /tmp/netdoctor-try-* 2>/dev/null; :"],
            check=True,
            capture_output=True,
            text=True,
        )
        lines += [f"{node}: {line}" for line in found.stdout.split()]
    return lines


def is_clean(lab: Lab, job: Path, within_s: float = 0.0) -> bool:
    until = time.monotonic() + within_s
    while (rest := left(lab, job)) and time.monotonic() < until:
        time.sleep(0.2)
    assert not rest
    return True


def test_a_healthy_job_is_started_and_gone(lab: Lab, folder: Path, job: Path) -> None:
    tried = trial(lab, folder, job).wait()
    assert (tried.code, tried.found["state"], tried.found["world_size"]) == (0, "started", 4)
    assert tried.text.startswith("STARTED   all 4 ranks joined, first step after ")
    assert "no process is left" in tried.text
    assert {rank["node"] for rank in tried.found["ranks"]} == set(lab.nodes)
    assert is_clean(lab, job)


SITUATIONS = {
    "raise 1 start": (1, "failed", ["node1", "ValueError: the data are not what they should be"]),
    "raise 2 joined": (1, "failed", ["node2", "ValueError: the data are not what they should be"]),
    "raise 0 5": (1, "failed", ["node0", "ValueError"]),
    "killed 3 joined": (1, "failed", ["node3: its process was killed by SIGKILL"]),
    "killed 1 4": (1, "failed", ["node1: its process was killed by SIGKILL"]),
    "exit 2 3": (1, "failed", ["node2: its process ended with code 3"]),
    "leave 1 3": (1, "failed", ["node1: its process ended with code 0", "the others went on"]),
    "hang 2 start": (1, "failed", ["no rank has joined", "nothing has called it on node2"]),
    "stopped 3 start": (1, "failed", ["no rank has joined", "on node3"]),
    "alone 1 start": (1, "failed", ["no single group: node[0-1] have a rank 0 each"]),
    "stepless 0 x": (3, "undecided", ["all 4 ranks joined, and no step was seen"]),
    "flood 0 3": (0, "started", ["left out of the logs"]),
    "deaf 1 start": (0, "started", ["no process is left"]),
    "daemon 1 start": (0, "started", ["no process is left"]),
    "orphan 2 joined": (0, "started", ["no process is left"]),
}


# Other situations and the random runs cover most of these.
WEEKLY = (
    "raise 2 joined",
    "raise 0 5",
    "killed 1 4",
    "exit 2 3",
    "stopped 3 start",
    "alone 1 start",
    "orphan 2 joined",
)


@pytest.mark.parametrize(
    "what", [pytest.param(one, marks=pytest.mark.weekly if one in WEEKLY else ()) for one in SITUATIONS]
)
def test_situations(lab: Lab, folder: Path, job: Path, what: str) -> None:
    code, state, texts = SITUATIONS[what]
    tried = trial(lab, folder, job, what).wait()
    text = " ".join(tried.text.split())
    assert (tried.code, tried.found["state"]) == (code, state), tried.text
    for one in texts:
        assert one in text, tried.text
    assert is_clean(lab, job)


def test_a_rank_that_hangs_in_a_step_is_named_with_its_line(lab: Lab, folder: Path, job: Path) -> None:
    tried = trial(lab, folder, job, "hang 2 5", seconds=5).wait()
    assert (tried.code, tried.found["state"]) == (1, "failed"), tried.text
    assert re.search(r"rank 2 on node2: in does \(job.py:\d+\)", tried.text)
    assert "3 ranks on node[0-1,3]: in barrier, <module> (job.py:" in tried.text
    assert is_clean(lab, job)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nosuch-command"], "the command could not be used: No such file or directory"),
        (["sh", "-c", "exit 0"], "it ended with code 0, and no rank was seen to join a group"),
        (["sh", "-c", "exit 7"], "its process ended with code 7"),
    ],
)
def test_commands_that_are_no_job(lab: Lab, folder: Path, job: Path, words: list[str], text: str) -> None:
    tried = Tried(lab, folder, "--no-scan", "--for", "3", "--", *words).wait()
    assert text in tried.text
    assert tried.code == (3 if words[-1] == "exit 0" else 1)


def test_a_folder_that_a_node_lacks(lab: Lab, folder: Path) -> None:
    tried = Tried(lab, folder, "--no-scan", "--chdir", "/nowhere", "--", "true").wait()
    assert tried.code == 1
    assert "there is no folder /nowhere" in tried.text


def test_a_dead_node_is_named_and_nothing_starts(lab: Lab, folder: Path, job: Path) -> None:
    lab.break_("node2", "sshd-down")
    tried = trial(lab, folder, job).wait()
    assert (tried.code, tried.found["nodes_at_fault"]) == (1, ["node2"])
    assert not tried.found["ranks"]
    assert tried.found["causes"][0]["nodes"] == ["node2"]


@pytest.mark.weekly
def test_a_node_that_freezes_is_named_and_the_rest_is_ended(lab: Lab, folder: Path, job: Path) -> None:
    tried = trial(lab, folder, job, seconds=60)
    tried.until("step")
    lab.break_("node1", "frozen")
    tried.wait()
    assert (tried.code, tried.found["nodes_at_fault"]) == (1, ["node1"])
    lab.heal()
    assert is_clean(lab, job, CLEAN_S)


def test_not_ready_is_not_started_but_anyway(lab: Lab, folder: Path, job: Path) -> None:
    lab.break_("node3", "sshd-down")
    refused = Tried(lab, folder, "--for", "3", "--", "python3", str(job)).wait()
    assert refused.code == 1
    assert "the nodes are NOT READY" in refused.errors
    assert "--anyway starts it all the same" in refused.errors
    assert not (folder / "out.json").exists()


def test_a_scan_that_is_young_stands_for_one(lab: Lab, folder: Path, job: Path) -> None:
    words = ["--for", "2", "--", "python3", str(job)]
    first, second = Tried(lab, folder, *words).wait(), Tried(lab, folder, *words).wait()
    assert (first.code, second.code) == (0, 0)
    assert len(list((folder / ".netdoctor" / "try").glob("*.json"))) == 2


def is_whole(folder: Path) -> bool:
    """Whether there are logs and results, and nothing half-written."""
    assert {path.name for path in folder.iterdir()} <= {".netdoctor", "out.json"}
    assert all(path.suffix in (".log", ".json", ".jsonl") for path in folder.rglob("*") if path.is_file())
    return True


INTERRUPTED = ["", "", "deaf 1 start", "daemon 0 start", "orphan 2 joined", "flood 0 3", "raise 1 20"]


@pytest.mark.parametrize("seed", range(20 if MANY else 2))
def test_ctrl_c_at_any_moment_leaves_nothing(lab: Lab, folder: Path, job: Path, seed: int) -> None:
    chance = random.Random(seed)
    what = chance.choice(INTERRUPTED)
    tried = trial(lab, folder, job, what, seconds=60)
    tried.until_it_begins()
    time.sleep(chance.uniform(0, 6))
    tried.process.send_signal(signal.SIGINT)
    tried.wait()
    # 1: it had failed before.
    assert tried.code == 130 or (tried.code == 1 and what.startswith("raise")), tried.errors
    assert is_whole(folder)
    assert is_clean(lab, job, CLEAN_S)


@pytest.mark.parametrize("seed", range(8 if MANY else 1))
def test_a_second_ctrl_c_leaves_nothing_either(lab: Lab, folder: Path, job: Path, seed: int) -> None:
    chance = random.Random(seed)
    tried = trial(lab, folder, job, chance.choice(["deaf 1 start", "daemon 0 start"]), seconds=60)
    tried.until_it_begins()
    time.sleep(chance.uniform(0, 5))
    tried.process.send_signal(signal.SIGINT)
    time.sleep(chance.uniform(0, 1.5))
    tried.process.send_signal(signal.SIGINT)
    began = time.monotonic()
    tried.wait()
    assert tried.code == 130, tried.errors
    assert time.monotonic() - began < 5
    assert is_whole(folder)
    assert is_clean(lab, job, CLEAN_S)


def test_a_control_process_that_is_killed_leaves_nothing(lab: Lab, folder: Path, job: Path) -> None:
    tried = trial(lab, folder, job, "deaf 1 start", seconds=60)
    tried.until("step")
    tried.process.kill()
    tried.process.communicate(timeout=20)
    assert is_clean(lab, job, CLEAN_S)


def test_an_agent_that_is_killed_leaves_nothing(lab: Lab, folder: Path, job: Path) -> None:
    tried = trial(lab, folder, job, "deaf 1 start", seconds=60)
    tried.until("step")
    lab.run("node1", ["pkill", "-KILL", "-f", "ndagent_loader"], check=True)
    tried.wait()
    assert (tried.code, tried.found["nodes_at_fault"]) == (1, ["node1"])
    assert is_clean(lab, job, CLEAN_S)


def test_a_disk_that_fills_up_here_ends_the_logs_alone(lab: Lab, folder: Path, job: Path) -> None:
    small = folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], check=True)
    try:
        tried = trial(lab, folder, job, "flood 0 3", "--logs", str(small / "logs")).wait()
    finally:
        subprocess.run(["umount", small], check=True)
    assert (tried.code, tried.found["state"]) == (0, "started")
    assert "the logs are not whole" in tried.text


def test_a_disk_that_is_full_here_is_said_and_the_job_ends(lab: Lab, folder: Path, job: Path) -> None:
    small = folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], check=True)
    try:
        tried = trial(lab, small, job, "flood 0 3").wait()
        left_here = [path.name for path in small.rglob("*") if path.suffix not in (".log", ".json", "")]
    finally:
        subprocess.run(["umount", small], check=True)
    assert tried.code == 0, tried.errors
    assert "No space left on device" in tried.errors
    assert not left_here
    assert is_clean(lab, job)


def test_steps_end_it_before_its_time(lab: Lab, folder: Path, job: Path) -> None:
    tried = trial(lab, folder, job, "", "--steps", "10", seconds=60).wait()
    assert (tried.code, tried.found["ended_by"]) == (0, "steps")
    assert tried.found["seconds"] < 30


def test_without_a_probe_nothing_is_put_into_the_job(lab: Lab, folder: Path, job: Path) -> None:
    tried = trial(lab, folder, job, "", "--no-probe", seconds=2).wait()
    assert (tried.code, tried.found["state"]) == (3, "undecided")
    assert not tried.found["ranks"]


def climbed(lab: Lab, folder: Path, job: Path, what: str = "") -> dict[str, Any]:
    tried = trial(lab, folder, job, what, "--ladder", "--steps", "40", seconds=20).wait()
    assert tried.code == 0, tried.text
    assert is_clean(lab, job)
    return dict(tried.found["ladder"])


@pytest.mark.rates
def test_the_ladder_of_healthy_nodes(lab: Lab, folder: Path, job: Path) -> None:
    ladder = climbed(lab, folder, job)
    assert [len(rung["nodes"]) for rung in ladder["rungs"]] == [1, 2, 4]
    assert ladder["from_nodes"] is None


@pytest.mark.rates
@pytest.mark.parametrize(
    ("what", "from_nodes"), [("slow node1", 2), pytest.param("slow node3", 4, marks=pytest.mark.weekly)]
)
def test_the_ladder_names_the_slow_node(
    lab: Lab, folder: Path, job: Path, what: str, from_nodes: int
) -> None:
    ladder = climbed(lab, folder, job, what)
    assert (ladder["from_nodes"], ladder["nodes_at_fault"]) == (from_nodes, [what.split()[1]])


@pytest.mark.weekly
@pytest.mark.rates
def test_the_ladder_blames_no_node_for_what_all_share(lab: Lab, folder: Path, job: Path) -> None:
    ladder = climbed(lab, folder, job, "crowd 4")
    assert (ladder["from_nodes"], ladder["nodes_at_fault"]) == (4, [])
    # The result lies beside the logs of all rungs, and not among them.
    (result,) = (folder / ".netdoctor" / "try").glob("*.json")
    logs = result.with_suffix("")
    assert not list(logs.rglob("*.json"))
    assert len(list(logs.iterdir())) >= 3


def test_the_report_of_the_nodes_keeps_it_and_diff_tells_it(lab: Lab, folder: Path, job: Path) -> None:
    """The same command twice: it starts, then one of its ranks raises."""
    script, what = job.with_name("run.sh"), job.with_name("what")
    script.write_text(f"exec python3 {job} $(cat {what})\n")
    words = ("--anyway", "--start", "process", "--for", "3", "--", "sh", str(script))
    what.write_text("")
    assert Tried(lab, folder, *words).wait().code == 0
    what.write_text("raise 1 start")
    failed = Tried(lab, folder, *words).wait()
    assert failed.code == 1, failed.text
    report = json.loads((folder / ".netdoctor" / "last.json").read_text())
    assert (report["trial"]["state"], report["trial"]["nodes_at_fault"]) == ("failed", ["node1"])
    argv = [sys.executable, "-m", "netdoctor", "diff", "--width", "120"]
    diff = subprocess.run(argv, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert diff.returncode == 1, diff.stdout + diff.stderr
    assert "WORSE    trial     STARTED -> FAILED   node1: " in diff.stdout
    assert is_clean(lab, job)
