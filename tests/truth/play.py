"""Plays situations on labs: break, scan, start the job, heal; and holds the verdict against the outcome."""

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from netdoctor.compat import Self
from netdoctor.lab import Lab, up
from tests.scan.faults import JOB_FILE, put
from tests.scan.harness import netdoctor
from tests.truth.job import LIMIT_S, PORT, Job, Launcher, Outcome
from tests.truth.situations import Situation

BAD = "FALSE READY"


@dataclass(frozen=True, kw_only=True)
class Played:
    """The verdict, the causes that were named, what the job did, and whether the gate had let it start."""

    state: str
    gated: bool | None  # None where the gate was not asked
    keys: tuple[str, ...]
    outcome: Outcome


def held(situation: Situation, played: Played) -> str:
    """How the verdict stands against the outcome, in a word or two."""
    started = played.outcome.started
    if played.gated and not started and not situation.why:
        return BAD
    if played.state == "undecided":
        return "undecided"
    if (played.state == "ready") == started:
        return "agrees"
    if situation.why:
        return "on purpose"
    return "false alarm" if started else BAD


class Stage:
    """A lab of each topology, brought up when it is first asked for, and a launcher."""

    def __init__(self, python: str, subnet: str, limit_s: float = LIMIT_S) -> None:
        self.launcher = Launcher(python)
        self.subnet = subnet
        self.limit_s = limit_s
        self.folder = tempfile.TemporaryDirectory()
        self.labs: dict[str, Lab] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for lab in self.labs.values():
            lab.down()
        self.launcher.__exit__()
        self.folder.cleanup()

    def lab(self, kind: str) -> Lab:
        if kind not in self.labs:
            first, second, third = self.subnet.split(".")
            where = "192.168" if kind == "high" else f"{first}.{second}"
            subnet = f"{where}.{int(third) + 2 * len(self.labs)}"
            self.labs[kind] = up(
                4, state_dir=Path(self.folder.name, kind), subnet=subnet, data_net=kind == "two"
            )
        return self.labs[kind]

    def play(self, situation: Situation) -> Played:
        lab = self.lab(situation.lab)
        try:
            return play(lab, self.launcher, situation, Path(self.folder.name), self.limit_s)
        finally:
            lab.heal()


def play(
    lab: Lab, launcher: Launcher, situation: Situation, folder: Path, limit_s: float, gate: bool = True
) -> Played:
    """Break the lab, scan it, ask the gate and start the job; the lab is left broken."""
    job = replace(situation.job, master=_named(situation.job.master, lab))
    put(lab, tuple(_named(fault, lab) for fault in situation.faults))
    (folder / JOB_FILE).write_text("".join(f"{k}={v}\n" for k, v in _variables(job).items()))
    args = ["--launcher", "torchrun", *(["--master-port", str(job.port)] if job.port != PORT else [])]
    if _variables(job):
        args += ["--env-file", JOB_FILE]
    found = folder / "found.json"
    netdoctor(
        "scan", "--ssh-config", str(lab.ssh_config), str(lab.hosts_file), *args, "--no-save",
        "-o", f"json={found}", cwd=folder,
    )  # fmt: skip
    report = json.loads(found.read_text("utf-8"))
    words = (
        "gate",
        "--ssh-config",
        str(lab.ssh_config),
        str(lab.hosts_file),
        *args,
        "--no-save",
        "--",
        "true",
    )
    gated = netdoctor(*words, cwd=folder).returncode == 0 if gate else None  # with its default profile
    return Played(
        state=report["verdict"]["state"],
        gated=gated,
        keys=tuple(f"{cause['status']} {cause['key']}" for cause in report["causes"]),
        outcome=launcher.run(lab, job, limit_s),
    )


def _variables(job: Job) -> dict[str, str]:
    """What the scan is told of the job, beside its port."""
    return {**({"MASTER_ADDR": job.master} if job.master else {}), **job.env}


def _named(text: str, lab: Lab) -> str:
    """The text with the lab's networks in it."""
    first = lab.nodes[0]
    nets = [lab.state.address(first, net).rpartition(".")[0] for net in range(1 + lab.state.data_net)]
    return text.replace("{net}", nets[0]).replace("{data}", nets[-1])
