"""NCCL's choice of interface as libnccl makes it, against netdoctor's: the same machine, the same variables.

A case is a random machine and a setting. libnccl is loaded in a child of its own in the machine's
namespaces, told to make an id, and the line in which its bootstrap says what it uses is read. netdoctor
collects with its own agent's collectors there, and judges with its own rules.
"""

from __future__ import annotations

import ctypes
import os
import random
import re
import resource
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netdoctor.agent.facts import env as facts_env
from netdoctor.agent.facts import nccl_answer as facts_nccl_answer
from netdoctor.agent.facts import net as facts_net
from netdoctor.agent.facts import resolve as facts_resolve
from netdoctor.agent.main import MEMORY_CAP_BYTES
from netdoctor.check import Profile
from netdoctor.engine.gathering import first_groups
from netdoctor.facts.net import NetFacts, ResolveFacts
from netdoctor.facts.software import EnvFacts, Job, NcclAnswer
from netdoctor.rules.nccl import Choice, choose, corrected
from netdoctor.rules.variables import effective_env, values
from netdoctor.rules.versions import Version
from netdoctor.store import decode
from tests.oracle import machines, spaces
from tests.oracle.machines import Machine, Question
from tests.oracle.spaces import Space

PER_MACHINE = 10  # settings tried on each machine
COLLECTORS = {"net": facts_net, "env": facts_env, "resolve": facts_resolve}
_USING = re.compile(r"Bootstrap ?: Using +(.*?)(?:%[^<]*)?<\d+>")


@dataclass(frozen=True)
class Library:
    """A libnccl. version: as ncclGetVersion says."""

    path: str
    version: Version

    def __str__(self) -> str:
        return ".".join(map(str, self.version))


@dataclass
class Tally:
    """What became of the cases of one release. asked: those that rules alone do not tell."""

    cases: int = 0
    agree: int = 0
    asked: int = 0
    differences: list[str] = field(default_factory=list)
    rules: Counter[str] = field(default_factory=Counter)


def library(folder: str) -> Library:
    """The libnccl below a directory that a wheel was installed in. Raises ValueError where there is none."""
    found = sorted(Path(folder).glob("**/libnccl.so.2"))
    if not found:
        raise ValueError(f"no libnccl.so.2 below {folder}")
    path = str(found[0])
    return Library(path, tuple(spaces.forked(lambda: _version(path))))


def _version(path: str) -> list[int]:
    number = ctypes.c_int()
    ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
    return [number.value // 10000, number.value // 100 % 100, number.value % 100]


def ask(path: str) -> dict[str, Any]:
    """What libnccl says here and now: {"rc", "said": "eth0:10.0.0.1" or None, "error"}."""
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="ALL")
    os.environ.pop("NCCL_DEBUG_FILE", None)
    reads, writes = os.pipe()
    os.dup2(writes, 1)
    loaded = ctypes.CDLL(path)
    out = ctypes.create_string_buffer(128)
    rc = loaded.ncclGetUniqueId(out)
    ctypes.CDLL(None).fflush(None)
    loaded.ncclGetLastError.restype = ctypes.c_char_p
    error = (loaded.ncclGetLastError(None) or b"").decode(errors="replace")
    os.set_blocking(reads, False)
    text = os.read(reads, 1 << 16).decode(errors="replace") if _has(reads) else ""
    said = _USING.search(text)
    return {"rc": rc, "said": said[1] if said and rc == 0 else None, "error": error, "id": out.raw[:40].hex()}


def _has(handle: int) -> bool:
    import select

    return bool(select.select([handle], [], [], 0)[0])


def collect(groups: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What netdoctor's agent finds here: {group: plain fact}."""
    return {group: COLLECTORS[group].collect(args) for group, args in groups.items()}


def predict(facts: dict[str, Any], job: Job, version: Version, answer: NcclAnswer | None = None) -> Choice:
    """NCCL's choice by netdoctor's rules, and by NCCL's answer where that is given."""
    net: NetFacts = decode("net", {"value": facts["net"]})
    env: EnvFacts = decode("env", {"value": facts["env"]})
    resolve: ResolveFacts = decode("resolve", {"value": facts["resolve"]})
    known = values(effective_env(env, job, version))
    return corrected(choose(net, known, version, resolve), answer, net, known)


def ask_as_the_agent(path: str) -> dict[str, Any]:
    """What netdoctor's agent would be told here, under its memory limit."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_CAP_BYTES, MEMORY_CAP_BYTES))
    return facts_nccl_answer.ask(path, facts_nccl_answer.environment({}, dict(os.environ)))


def cases(seed: int, count: int) -> Iterator[tuple[int, Space, Machine, Question]]:
    """Numbered machines and settings; each machine serves several settings."""
    for first in range(0, count, PER_MACHINE):
        rng = random.Random(f"{seed} {first}")
        made = machines.machine(rng)
        with spaces.space() as space:
            space.batch(made.commands)
            _furnish(space)
            for number in range(first, min(first + PER_MACHINE, count)):
                question = machines.question(rng, made)
                _write(space, question)
                yield number, space, made, question


def _furnish(space: Space) -> None:
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in machines.HOSTS.items())]
    (space.etc / "hosts").write_text("\n".join(lines) + "\n")
    users = Path("/etc/passwd").read_text()
    users = re.sub(r"^root:.*$", "root:x:0:0:root:/etc/pw:/bin/sh", users, flags=re.M)
    (space.etc / "passwd").write_text(users)


def _write(space: Space, question: Question) -> None:
    """NCCL's files, written inside: an overlay does not see what is changed below it."""

    def write() -> None:
        for name in ("nccl.conf", "home/.nccl.conf", "pw/.nccl.conf", "mine.conf"):
            path = Path("/etc") / name
            path.parent.mkdir(exist_ok=True)
            path.unlink(missing_ok=True)
            if name in question.files:
                path.write_bytes(question.files[name].encode())

    space.run(write, {})


def run(libraries: Sequence[Library], seed: int, count: int) -> dict[str, Tally]:
    """Ask every library and netdoctor in `count` cases; what came of it by release."""
    tallies = {str(one): Tally() for one in libraries}
    for number, space, made, question in cases(seed, count):
        job = Job(env=question.job)
        groups = first_groups(COLLECTORS, [], job, Profile.LAUNCH)
        facts = space.run(lambda groups=groups: collect(groups), question.login)
        for one in libraries:
            tally = tallies[str(one)]
            answer = space.run(lambda path=one.path: ask(path), question.environ)
            choice = predict(facts, job, one.version)
            if choice.untold:  # a name that only the node knows to look up: a scan asks, too
                tally.asked += 1
                said = space.run(lambda path=one.path: ask_as_the_agent(path), question.environ)
                choice = predict(facts, job, one.version, NcclAnswer(**said))
            row = choice.row
            ours = f"{row.ifname}:{row.address}" if row else None
            tally.cases += 1
            tally.rules[choice.rule] += 1
            if ours == answer["said"] and not choice.untold:
                tally.agree += 1
            else:
                tally.differences.append(_told(seed, number, made, question, answer, ours, choice))
    return tallies


def _told(
    seed: int,
    number: int,
    made: Machine,
    question: Question,
    answer: dict[str, Any],
    ours: object,
    choice: Choice,
) -> str:
    shown = "\n  ".join(made.commands)
    return (
        f"seed {seed} case {number}: NCCL {answer['said']} (rc {answer['rc']}, {answer['error']!r}),"
        f" netdoctor {ours} by {choice.rule} {choice.untold}\n"
        f"  login {question.login}\n  job {question.job}\n"
        f"  files {question.files}\n  {shown}"
    )
