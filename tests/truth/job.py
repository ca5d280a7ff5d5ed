"""Starts a torchrun job on lab nodes, as their users would get it, and says how it went."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netdoctor.compat import Self
from netdoctor.lab import Lab
from netdoctor.lab import node as nodes
from netdoctor.lab.system import NODE_ENV

PROGRAM = Path(__file__).with_name("torchruns.py")
PORT = 29500
LIMIT_S = 20.0
_LIMIT = re.compile(r"^(Max open files|Max locked memory) +(\d+|unlimited) +(\d+|unlimited) ", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One torchrun per node. rdzv: ``c10d`` or ``static``. master: name or address; the first node without.

    env: of the job, beside what a login session gives.
    """

    rdzv: str = "c10d"
    master: str = ""
    port: int = PORT
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """started: every rank had its sums in time. why: the words of the node that failed first. said: the end
    of each node's log."""

    started: bool
    seconds: float
    why: str = ""
    said: Mapping[str, str] = field(default_factory=dict)


def session(lab: Lab, node: str) -> tuple[dict[str, str], dict[str, list[int]]]:
    """(environment, limits) that a login gives; plain ones where nobody can log in."""
    argv = ["ssh", "-F", str(lab.ssh_config), "-o", "ConnectTimeout=5", node]
    try:
        said = subprocess.run(
            [*argv, "echo; env -0; cat /proc/self/limits"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=True,
        ).stdout  # fmt: skip
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return dict(NODE_ENV), {}
    *pairs, rest = said.split("\n", 1)[-1].split("\0")
    env = {name.rpartition("\n")[2]: value for name, _, value in (pair.partition("=") for pair in pairs)}
    found = {
        name: [-1 if value == "unlimited" else int(value) for value in values]
        for name, *values in _LIMIT.findall(rest)
    }
    return env, found


def entry(lab: Lab, node: str) -> int:
    """The process whose namespaces logins end in: that of a container, where one has the SSH port."""
    own = nodes.pid(lab.state, node)
    if not lab.state.active(node, "container"):
        return own
    net = os.readlink(f"/proc/{own}/ns/net")
    return next(pid for pid in lab.pids(node) if os.readlink(f"/proc/{pid}/ns/net") != net)


class Launcher:
    """Keeps one process that has imported torch, and so starts a job in a moment."""

    def __init__(self, python: str) -> None:
        self.process = subprocess.Popen(
            [python, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={"PATH": os.environ.get("PATH", os.defpath), "OMP_NUM_THREADS": "1"},
        )
        self.torch = str(self._answer()["torch"])

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args} ended: does it have torch?")
        return dict(json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)

    def run(self, lab: Lab, job: Job, limit_s: float = LIMIT_S) -> Outcome:
        """Start the job on every node of the lab, and end it when its outcome is known."""
        with ThreadPoolExecutor() as pool:
            sessions = list(pool.map(lambda node: session(lab, node), lab.nodes))
        told = []
        for rank, (node, (env, limits)) in enumerate(zip(lab.nodes, sessions, strict=True)):
            told.append(
                {
                    "name": node,
                    "pid": entry(lab, node),
                    "env": {**env, "OMP_NUM_THREADS": "1", **job.env},
                    "limits": limits,
                    "args": arguments(job, rank, lab.nodes),
                }
            )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"nodes": told, "limit_s": limit_s}) + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        codes = answer["codes"]
        bad = [node for node, code in codes.items() if code]
        why = ""
        if bad:
            why = f"{bad[0]}: {_told(answer['said'][bad[0]])}"
        elif len(codes) < len(lab.nodes):
            why = f"hangs: {len(lab.nodes) - len(codes)} nodes not done in {limit_s:g} s"
        return Outcome(started=not why, seconds=float(answer["seconds"]), why=why, said=answer["said"])


def arguments(job: Job, rank: int, names: Sequence[str]) -> list[str]:
    """Of torchrun on the node that is number `rank`."""
    master = job.master or names[0]
    common = [f"--nnodes={len(names)}", "--nproc-per-node=1", "--max-restarts=0"]
    if job.rdzv == "static":
        return [*common, f"--node-rank={rank}", f"--master-addr={master}", f"--master-port={job.port}"]
    return [*common, "--rdzv-backend=c10d", f"--rdzv-endpoint={master}:{job.port}", "--rdzv-id=truth"]


def _told(said: str) -> str:
    """The line that says most: the last one that names an error."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\w+(Error|Exception|Failure)\b.*:", line)]
    return (errors or lines or ["said nothing"])[-1][:160]


def python() -> str:
    """The interpreter with torch that the caller names."""
    name = os.environ.get("NETDOCTOR_TEST_TORCH_PYTHON")
    if not name:
        sys.exit("NETDOCTOR_TEST_TORCH_PYTHON names an interpreter with torch, outside /tmp and homes")
    return name
