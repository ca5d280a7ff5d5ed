"""`explain hang` on lab nodes: real gloo jobs, seeded hangs, and jobs that are well."""

import fcntl
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from netdoctor.lab import Lab, system
from netdoctor.lab import node as nodes
from tests.bandwidth.conftest import torch
from tests.scan.harness import netdoctor, until

pytestmark = pytest.mark.lab
__all__ = ["torch"]
PY_SPY = "NETDOCTOR_TEST_PY_SPY"
SEEDS = int(os.environ.get("NETDOCTOR_TEST_HANGS", "2"))
PER_NODE = int(os.environ.get("NETDOCTOR_TEST_HANG_RANKS", "1"))
# From these a rank comes back, so that one job is enough for many.
HANGS = ("sleep", "stopped", "loader", "lock", "link")
START_S = 240.0  # torch is imported by all ranks at once


@pytest.fixture(params=["py-spy", "proc"])
def stacks(request: pytest.FixtureRequest, lab4: Lab) -> Iterator[bool]:
    """Whether nodes have py-spy."""
    if request.param == "proc":
        yield False
        return
    program = os.environ.get(PY_SPY)
    if not program:
        pytest.skip(f"{PY_SPY} names no py-spy")
    for node in lab4.nodes:
        nodes.write(lab4.state, node, {"/usr/local/bin/py-spy": Path(program).read_bytes()}, 0o755)
    yield True
    for node in lab4.nodes:
        lab4.run(node, ["rm", "-f", "/usr/local/bin/py-spy"], check=True)


class Job:
    """Ranks on all nodes of a lab, and the folder that they and the test share."""

    def __init__(self, lab: Lab, python: str, folder: Path, *words: str) -> None:
        self.folder, self.world = folder, PER_NODE * len(lab.nodes)
        (folder / "train.py").write_bytes(Path(__file__).with_name("job.py").read_bytes())
        port = random.randrange(20000, 30000)
        self.ranks = []
        with (folder / "out.log").open("wb") as out:
            for rank in range(self.world):
                node = lab.nodes[rank // PER_NODE]
                env = {
                    "RANK": rank,
                    "WORLD_SIZE": self.world,
                    "LOCAL_RANK": rank % PER_NODE,
                    "LOCAL_WORLD_SIZE": PER_NODE,
                    "MASTER_ADDR": lab.address(lab.nodes[0]),
                    "MASTER_PORT": port,
                    "GLOO_SOCKET_IFNAME": "eth0",
                }
                pairs = [f"{name}={value}" for name, value in env.items()]
                argv = ["env", *pairs, python, str(folder / "train.py"), str(folder), *words]
                argv = [str(system.tool("nsenter")), *nodes.enter(lab.state, node, argv)[1:]]
                streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
                self.ranks.append(subprocess.Popen(argv, env=dict(system.NODE_ENV), **streams))

    def steps(self) -> int:
        """How many the slowest rank has made."""
        return min(int(self._text(f"steps-{rank}") or 0) for rank in range(self.world))

    def _text(self, name: str) -> str:
        try:
            return (self.folder / name).read_text()
        except OSError:
            return ""

    def has_begun(self) -> bool:
        return all((self.folder / f"begins-{rank}").exists() for rank in range(self.world))

    def goes_on(self) -> None:
        """Wait for steps. Raises AssertionError where none are made."""
        least = self.steps() + 2
        until(lambda: self.steps() >= least, f"steps: {self._text('out.log')[-2000:]}", START_S)

    def signal(self, rank: int, number: int) -> None:
        for child in psutil.Process(self.ranks[rank].pid).children() or [
            psutil.Process(self.ranks[rank].pid)
        ]:
            child.send_signal(number)

    def end(self) -> None:
        for one in self.ranks:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(one.pid).children(recursive=True):
                    child.kill()
            one.kill()
            one.wait()


@contextmanager
def running(lab: Lab, python: str, *words: str) -> Iterator[Job]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        os.chmod(name, 0o755)
        job = Job(lab, python, Path(name), *words)
        try:
            until(job.has_begun, "all ranks have begun", START_S)
            yield job
        finally:
            job.end()


@contextmanager
def hanging(lab: Lab, job: Job, what: str, rank: int) -> Iterator[None]:
    """One rank hangs, and goes on afterwards."""
    node, file = lab.nodes[rank // PER_NODE], job.folder / "hang"
    if what == "stopped":
        job.signal(rank, signal.SIGSTOP)
        yield
        job.signal(rank, signal.SIGCONT)
    elif what == "link":
        lab.break_(node, "fabric-acl", ports="10000-65535")
        yield
        lab.heal(node)
    else:
        with (job.folder / "new").open("w") as new:
            fcntl.flock(new, fcntl.LOCK_EX)
            new.write(f"{what} {rank}")
            new.flush()
            os.rename(new.name, file)
            yield
            file.unlink()


def explained(lab: Lab, folder: Path, *options: str) -> tuple[int, dict[str, Any], float]:
    began = time.monotonic()
    words = ["explain", "hang", str(lab.hosts_file), "--ssh-config", str(lab.ssh_config), "--quiet", *options]
    done = netdoctor(*words, "-o", "json", cwd=folder, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), time.monotonic() - began


def test_seeded_hangs_of_one_job(lab4: Lab, folder: Path, torch: str, stacks: bool) -> None:
    """Nobody is blamed while the job is well; the rank that hangs is named with its node each time."""
    with running(lab4, torch) as job:
        job.goes_on()
        code, found, _ = explained(lab4, folder, "--no-scan")
        assert (code, found["moves"], found["ranks_at_fault"]) == (3, True, []), found
        for seed in range(SEEDS):
            chance = random.Random(seed)
            for what in HANGS:
                rank = chance.randrange(job.world)
                node = lab4.nodes[rank // PER_NODE]
                with hanging(lab4, job, what, rank):
                    time.sleep(chance.choice([4, 6]))
                    code, found, seconds = explained(lab4, folder, "--no-scan")
                    print(
                        f"{what} {rank} {seconds:.1f} s: {found['confidence']}: {found['headline']}",
                        flush=True,
                    )
                assert (code, found["nodes_at_fault"]) == (0, [node]), found
                on_node = [one["rank"] for one in found["ranks"] if one["node"] == node]
                assert found["ranks_at_fault"] == (on_node if what == "link" else [rank]), found
                job.goes_on()


@pytest.mark.parametrize("what", ["dead", "late", "mismatch"])
def test_hangs_from_which_nobody_comes_back(
    lab4: Lab, folder: Path, torch: str, stacks: bool, what: str
) -> None:
    rank = random.Random(what).randrange(1, PER_NODE * len(lab4.nodes))
    with running(lab4, torch, what, str(rank)) as job:
        if what == "mismatch":
            until(lambda: job.steps() >= 4, "it hangs", START_S)
        time.sleep(4)
        code, found, seconds = explained(lab4, folder)
    print(f"{what} {rank} {seconds:.1f} s: {found['confidence']}: {found['headline']}", flush=True)
    if what == "mismatch" and not stacks:  # all wait alike, for all that the kernel knows
        assert (code, found["ranks_at_fault"]) == (3, []), found
        return
    assert (code, found["ranks_at_fault"]) == (0, [rank]), found
    assert found["nodes_at_fault"] == [lab4.nodes[rank // PER_NODE]], found
