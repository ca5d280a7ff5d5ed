"""What a fault of the lab is, and what several kinds need. Each is real, and `heal` takes it back.

Most faults are a function of the state: the file, rule set or link setting they touch is rendered
again from all faults in force, so that two faults on one file do not undo each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from netdoctor.lab import node as nodes
from netdoctor.lab import processes
from netdoctor.lab.processes import Process
from netdoctor.lab.service import Site
from netdoctor.lab.state import Active
from netdoctor.lab.system import LabError

Work = Callable[[Site, Active], object]
Files = dict[str, str | bytes | None]  # texts of files by path; None removes one


@dataclass(frozen=True)
class Fault:
    """One way to break a node."""

    name: str
    summary: str
    # What `break` prints: {node}, parameters and what `undo` holds are filled in; {values}: all of them.
    text: str
    apply: Work
    # None: `apply` heals it, once this fault is no longer among those in force.
    heal: Work | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    # The parameters that make two of a kind different faults; without any a second one replaces the first.
    key: tuple[str, ...] = ()
    free: bool = False  # any parameter is allowed, as names of variables
    needs: str = ""
    loopback: bool = False

    def complete(self, given: Mapping[str, str]) -> dict[str, str]:
        """The parameters with defaults filled in; `LabError` names the one it does not know."""
        unknown = [name for name in given if name not in self.params]
        if unknown and not self.free:
            known = ", ".join(f"{k}={v}" for k, v in self.params.items()) or "none"
            raise LabError(f"{self.name} has no parameter {unknown[0]!r}; it takes {known}")
        if self.free and not given:
            raise LabError(f"{self.name} needs at least one NAME=value")
        return {**self.params, **given}

    def take_back(self, site: Site, active: Active) -> None:
        (self.heal or self.apply)(site, active)

    def message(self, active: Active) -> list[str]:
        """What was done, one line each."""
        values = " ".join(f"{name}={value}" for name, value in active.params.items())
        words = {**active.params, **active.undo, "node": active.node, "values": values}
        return [line.format_map(words) for line in self.text.split("\n")]


def require(active: Active, name: str, pattern: str, rule: str) -> str:
    """The value of a parameter; `LabError` with the rule where it does not match the pattern."""
    value = active.params[name]
    if not re.fullmatch(pattern, value):
        raise LabError(f"{name}={value!r}{rule}")
    return value


def at_node(work: Callable[[Site, str], None]) -> Work:
    """A fault that only has files or a server of its node made again, from all faults in force."""
    return lambda site, active: work(site, active.node)


def refresh(site: Site, active: Active) -> None:
    nodes.refresh(site.state, active.node)


def node_pid(site: Site, node: str) -> int | None:
    return None if site.state.loopback else nodes.pid(site.state, node)


def keep(site: Site, active: Active, process: Process) -> None:
    active.undo["pid"], active.undo["started"] = process.pid, process.started
    if site.state.loopback:
        site.state.extra.append(process)


def end_guest(site: Site, active: Active) -> None:
    """End the process that the fault left on the node."""
    if "pid" in active.undo:
        process = Process(active.undo["pid"], active.undo["started"])
        processes.kill([process])
        processes.wait_gone([process])
        site.state.extra = [p for p in site.state.extra if p != process]
