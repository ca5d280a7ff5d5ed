"""Lab faults and the one cause that each is: what a case expects, and how it is held to that.

Faults of different nodes are independent, so several cases share a scan: every one of them is still one cause
with its own words, its own fix and its own verify command. That they do not mix is a claim of its own.

Each is healed by its own first fix, pasted as it is shown (`tests/scan/paste.py`). NOT_PASTED has those that
cannot be, with the reason: there the lab takes the fault back, and the verify command is held to its word.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from netdoctor.lab import Lab
from tests.scan.harness import PART, Scanned, apply_fix, netdoctor, scan, verify
from tests.scan.paste import prove, take_back

JOB_FILE = "job.env"
# Every case, in the order in which the modules of tests are read.
CASES: list["Case"] = []
OF_OTHERS = "whoever runs the network has to act, outside of the nodes"
LOGIN = "the login session gets the variable from a file that is the person's to find"
HARDWARE = "what is broken is hardware that the lab pretends; no command of a node mends it"
# Faults whose own fix cannot heal them in the lab, and why.
NOT_PASTED: dict[str, str] = {
    "fabric-drop": OF_OTHERS,
    "fabric-acl": OF_OTHERS,
    "mtu-blackhole": OF_OTHERS,
    "clock": "one clock for all nodes, that of the machine; the lab bends what programs see of it",
    "container": "whoever starts the container gives it another network",
    "frozen": "nothing but a reset ends it",
    "not-ssh": "which of the two programs is to have the port is a person's choice",
    "sshd-down": "a node of the lab has no systemd",
    "ssh-full": "a node of the lab has no systemd that reloads its sshd",
    "no-python": "a node of the lab has no way to a package; test_interpreters names another one",
    "old-python": "an interpreter is named in the hosts file, as test_interpreters does",
    "slow-link": "what a link is worth is for whoever runs the network",
    "slow-pair": OF_OTHERS,
    "loss": OF_OTHERS,
    "slow-shell": "what the start-up files do is the user's own; no verdict",
    "shell-noise": "no trouble, and so no fix",
    "hca-missing": HARDWARE,
    "hca-no-device": HARDWARE,
    "hca-down": HARDWARE,
    "hca-init": HARDWARE,
    "hca-rate": HARDWARE,
    "hca-fw": HARDWARE,
    "hca-gid": HARDWARE,
    "hca-pcie": HARDWARE,
    "hca-numa": HARDWARE,
    "hca-errors": HARDWARE,
    "hca-file": HARDWARE,
    "if-flap": HARDWARE,
    "gpu-missing": HARDWARE,
    "gpu-lost": HARDWARE,
    "gpu-mismatch": HARDWARE,
    "gpu-no-driver": HARDWARE,
    "gpu-driver": HARDWARE,
    "gpu-ecc": HARDWARE,
    "gpu-throttle": HARDWARE,
    "gpu-xid": HARDWARE,
    "gpu-fabric": HARDWARE,
    "gpu-no-peermem": HARDWARE,
    "gpu-mode": HARDWARE,
    "gpu-nvlink": HARDWARE,
    "gpu-pcie": HARDWARE,
}
# Verify commands that were green on a lab without a fault: what the lab takes back, it takes back whole
# (tests/lab), so the same command says the same again.
GREEN: set[tuple[Path, str]] = set()


@dataclass(frozen=True, kw_only=True)
class Case:
    """Faults as `netdoctor lab break` takes them, and the one cause that a scan names.

    check: the check that names it. said: words of the title or of what was seen. fix: words of the first
    fix. hidden: results that went under the cause. job: variables of the job, in its environment file.
    look: the first fix only looks; its commands run, whatever they find. excuse: why this one is not
    healed by its own fix, where others of the fault are.
    """

    faults: tuple[str, ...]
    key: str
    check: str
    status: str = "fail"
    nodes: tuple[str, ...] = ("node2",)
    confidence: str = "certain"
    said: str = ""
    fix: str = ""
    hidden: frozenset[str] = frozenset()
    look: bool = False
    excuse: str = ""
    args: tuple[str, ...] = ()
    job: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """The lab's names of its faults."""
        return {text.split(" ")[1] for text in self.faults}

    @property
    def excused(self) -> str:
        """Why its fix is not pasted; empty where it is."""
        return self.excuse or next((NOT_PASTED[name] for name in self.names if name in NOT_PASTED), "")


def case(faults: str | tuple[str, ...], key: str, check: str, *, id: str = "", **more: Any) -> Any:
    """A Case as a pytest parameter, named after its faults."""
    every = (faults,) if isinstance(faults, str) else faults
    CASES.append(Case(faults=every, key=key, check=check, **more))
    return pytest.param(CASES[-1], id=id or " + ".join(every) or key)


def put(lab: Lab, faults: tuple[str, ...]) -> None:
    """Break nodes: ``node2 hca-rate rate=10 Gb/sec (4X SDR)``, a value reaching to the next name=."""
    for text in faults:
        node, fault, *rest = text.split(" ")
        params: dict[str, str] = {}
        for word in rest:
            name, equals, value = word.partition("=")
            if equals:
                params[name] = value
            else:
                params[next(reversed(params))] += " " + word
        lab.break_(node, fault, **params)


def found(scanned: Scanned) -> dict[str, tuple[str, ...]]:
    """Keys of the causes, and the nodes each names."""
    return {cause["key"]: tuple(cause["node_list"]) for cause in scanned.report["causes"]}


def together(cases: Iterable[Any], size: int = 3) -> list[Any]:
    """Groups of up to `size` cases as pytest parameters, each case on a node of its own.

    Alone stays what needs the whole lab: cases of several nodes, and those with variables of the job.
    """
    groups: list[list[Any]] = []
    for param in cases:
        one: Case = param.values[0]
        for group in groups if one.nodes == ("node2",) and not one.job else []:
            others: list[Case] = [p.values[0] for p in group]
            like = others[0].nodes == one.nodes and others[0].args == one.args and not others[0].job
            if like and len(group) < size and all(other.key != one.key for other in others):
                group.append(param)
                break
        else:
            groups.append([param])
    return [
        pytest.param(
            tuple(_moved(p.values[0], f"node{i}") for i, p in enumerate(group, 1))
            if len(group) > 1
            else (group[0].values[0],),
            id=" and ".join(str(p.id) for p in group),
        )
        for group in groups
    ]


def _moved(one: Case, node: str) -> Case:
    """The case, on another node than node2."""

    def renamed(text: str) -> str:
        return re.sub(r"\bnode2\b", node, text)

    return replace(
        one,
        faults=tuple(map(renamed, one.faults)),
        nodes=(node,),
        said=renamed(one.said),
        fix=renamed(one.fix),
    )


def hold(lab: Lab, folder: Path, *cases: Case, args: Sequence[str] = ()) -> Scanned:
    """Break, scan, compare with what the cases expect, heal, and run the verify commands."""
    put(lab, tuple(fault for one in cases for fault in one.faults))
    words = [*args, *cases[0].args]
    env_file = None
    if any(one.job for one in cases):
        env_file = write_job(folder, {name: value for one in cases for name, value in one.job.items()})
        words += ["--env-file", JOB_FILE]
    scanned = scan(lab, folder, *words)
    causes = judge(scanned, *cases)
    for one, cause in zip(cases, causes, strict=True):
        if one.look:
            apply_fix(scanned, cause)
    # Printed fixes first: what the lab takes back afterwards must not hide one that does not heal.
    for one, cause in zip(cases, causes, strict=True):
        if not one.excused:
            prove(lab, scanned, cause, env_file)
            take_back(lab, scanned, cause)
    lab.heal()
    for one, cause in zip(cases, causes, strict=True):
        if one.excused:
            green(lab, scanned, cause, one)
    return scanned


def judge(scanned: Scanned, *cases: Case) -> list[dict[str, Any]]:
    """The cause of each case, after it was held to what the case expects."""
    fails = any(one.status == "fail" for one in cases)
    good = "ready" if scanned.report["verdict"]["part"] is None else "partial_pass"
    assert (scanned.state, scanned.code) == (("not_ready", 1) if fails else (good, 0)), scanned.summary()
    assert found(scanned) == {one.key: one.nodes for one in cases}, scanned.summary()
    return [_judged(scanned, one) for one in cases]


def _judged(scanned: Scanned, one: Case) -> dict[str, Any]:
    cause = scanned.cause(one.key)
    assert cause["status"] == one.status
    assert cause["confidence"] == one.confidence
    assert one.check in cause["checks"], cause["checks"]
    assert cause["fixes"], f"{one.key} has no fix"
    text = " ".join([cause["title"], *cause["seen"]])
    assert one.said in text, text
    first = cause["fixes"][0]
    assert one.fix in " ".join([first["text"], *(c["shell"] for c in first["commands"])]), first
    assert one.hidden <= {explained["check"] for explained in cause["explains"]}, cause["explains"]
    return cause


def green(lab: Lab, scanned: Scanned, cause: dict[str, Any], one: Case) -> None:
    """The verify command, as printed, is green on a lab without the fault."""
    plain = (lab.hosts_file, cause["verify"]["shell"])
    if plain in GREEN and not one.job:
        return
    done = verify(scanned, cause)
    after = json.loads((scanned.folder / PART).read_text("utf-8"))
    left = {c["key"] for c in after["causes"]}
    assert (done.returncode, left) == (0, set()), f"{cause['verify']['shell']}\n{done.stdout}{done.stderr}"
    if not one.job:
        GREEN.add(plain)


def write_job(folder: Path, variables: dict[str, str]) -> Path:
    path = folder / JOB_FILE
    path.write_text("".join(f"export {name}={value}\n" for name, value in variables.items()))
    return path


__all__ = ["CASES", "Case", "case", "found", "hold", "judge", "netdoctor", "put", "together", "write_job"]
