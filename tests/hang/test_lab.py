"""`explain hang` on lab nodes: real gloo jobs, seeded hangs, and a job that is well."""

import json
import os
import random
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
from tests.scan.harness import netdoctor

pytestmark = pytest.mark.lab
__all__ = ["torch"]
PY_SPY = "NETDOCTOR_TEST_PY_SPY"
SEEDS = int(os.environ.get("NETDOCTOR_TEST_HANGS", "1"))
PER_NODE = int(os.environ.get("NETDOCTOR_TEST_HANG_RANKS", "1"))
HANGS = ("sleep", "stopped", "mismatch", "loader", "lock", "dead", "link")


@pytest.fixture
def script() -> Iterator[Path]:
    """The job's program, where nodes see it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        path = Path(folder, "train.py")
        path.write_bytes(Path(__file__).with_name("job.py").read_bytes())
        yield path


@pytest.fixture(params=["py-spy", "proc"])
def stacks(request: pytest.FixtureRequest, lab4: Lab) -> Iterator[bool]:
    """Whether nodes have py-spy."""
    program = os.environ.get(PY_SPY, "")
    if request.param == "proc":
        yield False
        return
    if not program:
        pytest.skip(f"{PY_SPY} names no py-spy")
    for node in lab4.nodes:
        nodes.write(lab4.state, node, {"/usr/local/bin/py-spy": Path(program).read_bytes()}, 0o755)
    yield True
    for node in lab4.nodes:
        lab4.run(node, ["rm", "-f", "/usr/local/bin/py-spy"], check=True)


@contextmanager
def running(lab: Lab, python: str, script: Path, *words: str, per_node: int = PER_NODE) -> Iterator[None]:
    """The job, until all ranks have made two steps or, where one never joins, have started."""
    world = per_node * len(lab.nodes)
    port = random.randrange(20000, 30000)
    log = script.with_name("out.log")
    started: list[subprocess.Popen[bytes]] = []
    with log.open("wb") as out:
        try:
            for rank in range(world):
                node = lab.nodes[rank // per_node]
                env = {
                    "RANK": rank,
                    "WORLD_SIZE": world,
                    "LOCAL_RANK": rank % per_node,
                    "LOCAL_WORLD_SIZE": per_node,
                    "MASTER_ADDR": lab.address(lab.nodes[0]),
                    "MASTER_PORT": port,
                    "GLOO_SOCKET_IFNAME": "eth0",
                    "TMPDIR": script.parent,  # what ranks that are killed leave goes with it
                }
                words_ = [f"{name}={value}" for name, value in env.items()]
                argv = ["env", *words_, python, str(script), *words]
                started.append(lab_popen(lab, node, argv, out))
            until = time.monotonic() + 240 + 6 * world  # two cores start 64 ranks in minutes
            joins = not words or (words[0] != "dead" and words[-1] != "0")
            while log.read_bytes().count(b"steps" if joins else b"begins") < world:
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.2)
            time.sleep(4)
            yield
        finally:
            for one in started:
                with suppress(psutil.NoSuchProcess):
                    for child in psutil.Process(one.pid).children(recursive=True):
                        child.kill()
                one.kill()
                one.wait()


def lab_popen(lab: Lab, node: str, argv: list[str], out: Any) -> "subprocess.Popen[bytes]":
    argv = [str(system.tool("nsenter")), *nodes.enter(lab.state, node, argv)[1:]]
    env = dict(system.NODE_ENV)
    return subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)


def explained(lab: Lab, folder: Path, *options: str) -> tuple[int, dict[str, Any], float]:
    began = time.monotonic()
    words = ["explain", "hang", str(lab.hosts_file), "--ssh-config", str(lab.ssh_config), "--quiet", *options]
    done = netdoctor(*words, "-o", "json", cwd=folder, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), time.monotonic() - began


@pytest.mark.parametrize(
    "what",
    [pytest.param(one, marks=pytest.mark.weekly if one != "loader" else ()) for one in HANGS],
)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_rank_that_holds_others_up_is_named(
    lab4: Lab, folder: Path, torch: str, script: Path, stacks: bool, what: str, seed: int
) -> None:
    chance = random.Random(f"{what} {seed}")
    world = PER_NODE * len(lab4.nodes)
    rank = chance.randrange(1 if what in ("dead", "sleep") else 0, world)
    node = lab4.nodes[rank // PER_NODE]
    step = str(chance.choice([3, 5, 8]))
    words = () if what == "link" else (what, str(rank), step)
    with running(lab4, torch, script, *words):
        if what == "link":
            lab4.break_(node, "fabric-acl", ports="10000-65535")
            time.sleep(6)
        code, found, seconds = explained(lab4, folder)
        # While one sender alone has noticed, either end may be the one: it says both, and nobody else.
        for _ in range(3):
            if what == "link" and len(found["nodes_at_fault"]) > 1:
                assert node in found["nodes_at_fault"], found
                time.sleep(6)
                code, found, seconds = explained(lab4, folder)
    print(f"{what} {rank} {seconds:.1f} s: {found['headline']}")
    assert seconds < 30
    blamed = found["ranks_at_fault"]
    if what == "mismatch" and not stacks:  # all wait alike: nobody is blamed
        assert (code, blamed) == (3, []), found
        return
    assert code == 0, found
    assert found["nodes_at_fault"] == [node], found
    assert rank in blamed, found
    if what != "link":
        assert blamed == [rank], found


def test_a_job_that_is_well_moves_and_nobody_is_blamed(
    lab4: Lab, folder: Path, torch: str, script: Path, stacks: bool
) -> None:
    with running(lab4, torch, script):
        for _ in range(3):
            code, found, _ = explained(lab4, folder)
            assert (code, found["moves"], found["ranks_at_fault"]) == (3, True, []), found
