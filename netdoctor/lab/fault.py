"""What a fault of the lab is, and what several kinds need. Each is real; `heal` takes back what `apply` did.

Most faults are a function of the state: the file, rule set or link setting they touch is rendered
again from all faults in force, so that two faults on one file do not undo each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from netdoctor.lab import node as nodes
from netdoctor.lab import processes
from netdoctor.lab.processes import Process
from netdoctor.lab.service import Site
from netdoctor.lab.state import Active
from netdoctor.lab.system import LabError


@dataclass(frozen=True)
class Fault:
    """One way to break a node.

    `key` names the parameters that make two of the same kind different faults; without it a
    second one replaces the first. `free` allows any parameter, as names of variables.
    """

    name: str
    summary: str
    apply: Callable[[Site, Active], list[str]]
    heal: Callable[[Site, Active], None]
    params: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    free: bool = False
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


def node_pid(site: Site, node: str) -> int | None:
    return None if site.state.loopback else nodes.pid(site.state, node)


def keep(site: Site, active: Active, process: Process) -> None:
    active.undo["pid"], active.undo["started"] = process.pid, process.started
    if site.state.loopback:
        site.state.extra.append(process)


def end_guest(site: Site, active: Active) -> None:
    if "pid" in active.undo:
        process = Process(active.undo["pid"], active.undo["started"])
        processes.kill([process])
        processes.wait_gone([process])
        site.state.extra = [p for p in site.state.extra if p != process]
