"""Gloo's choice of address as torch makes it, against netdoctor's: the same machine, names and variables."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from netdoctor.check import Profile
from netdoctor.engine.gathering import first_groups
from netdoctor.facts.software import Job
from netdoctor.rules.gloo import choose
from netdoctor.rules.variables import effective_env, values
from netdoctor.store import decode
from tests.oracle import machines, spaces
from tests.oracle.machines import Machine
from tests.oracle.nccl import COLLECTORS, PER_MACHINE, Tally, collect
from tests.oracle.spaces import Space

ROOT = Path(__file__).resolve().parents[2]


class Torch:
    """An interpreter with torch, which stays: importing torch takes seconds."""

    def __init__(self, python: str) -> None:
        self.python = python
        self._process = subprocess.Popen(
            [python, "-W", "ignore", "-m", "tests.oracle.gloo_answer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
                "TORCH_CPP_LOG_LEVEL": "ERROR",
            },
        )

    def __str__(self) -> str:
        return f"gloo of {self.python}"

    def ask(self, space: Space, environ: dict[str, str], nccl: str | None = None) -> dict[str, Any]:
        """{"addresses": list or None, "error"} of a process in a space, after it has started `nccl`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        told = {"pid": space.pid, "folder": str(space.folder), "environ": environ, "nccl": nccl}
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        return dict(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End it; not while a space lives that was made after it, whose process holds its input open, too."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def library(python: str) -> Torch:
    return Torch(python)


def cases(seed: int, count: int) -> Iterator[tuple[int, Space, Machine, list[str], dict[str, str]]]:
    """Numbered machines, lines of their hosts files with the own name first, and the job's variables."""
    for first in range(0, count, PER_MACHINE):
        rng = random.Random(f"gloo {seed} {first}")
        made = machines.machine(rng)
        with spaces.space() as space:
            space.batch(made.commands)
            for number in range(first, min(first + PER_MACHINE, count)):
                lines = machines.own_name(rng, made)
                nonlocal_bind = str(int(rng.random() < 0.15))
                space.run(lambda lines=lines, on=nonlocal_bind: _name(lines, on), {})
                job = {}
                if rng.random() < 0.3:
                    job["GLOO_SOCKET_IFNAME"] = machines.gloo_ifname(rng, made)
                yield number, space, made, lines, job


def _name(lines: list[str], nonlocal_bind: str) -> None:
    socket.sethostname(lines[0])
    Path("/etc/hosts").write_text("\n".join(lines[1:]) + "\n")
    for path in ("ipv4/ip_nonlocal_bind", "ipv6/ip_nonlocal_bind"):
        Path(f"/proc/sys/net/{path}").write_text(nonlocal_bind)


def run(interpreters: Sequence[Torch], seed: int, count: int) -> dict[str, Tally]:
    """Ask gloo and netdoctor in `count` cases; what came of it by interpreter."""
    tallies = {str(one): Tally() for one in interpreters}
    for number, space, made, lines, variables in cases(seed, count):
        job = Job(env=variables)
        login = {"PATH": "/usr/bin:/bin", "HOME": "/root"}
        groups = first_groups(COLLECTORS, [], job, Profile.LAUNCH)
        facts = space.run(lambda groups=groups: collect(groups), login)
        fact = {group: decode(group, {"value": facts[group]}) for group in groups}
        devices = choose(fact["net"], fact["resolve"], values(effective_env(fact["env"], job)))
        addresses = [device.address for device in devices]
        ours = None if None in addresses else addresses
        for one in interpreters:
            tally = tallies[str(one)]
            answer = one.ask(space, login | variables)
            tally.cases += 1
            tally.rules[devices[0].rule if devices else "nothing"] += 1
            if ours == answer["addresses"]:
                tally.agree += 1
            else:
                tally.differences.append(
                    f"seed {seed} case {number}: gloo {answer['addresses']} ({answer['error']}),"
                    f" netdoctor {addresses}\n  job {variables}\n  {lines}\n"
                    f"  first that binds {fact['resolve'].first_bindable}\n  " + "\n  ".join(made.commands)
                )
    return tallies
