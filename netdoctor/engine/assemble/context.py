"""What a report says about its run beside the results: how to reach the nodes by hand, how to scan again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from netdoctor.engine.assemble.accepted import Suppression
from netdoctor.report.model import Note, Part, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """How a person reaches a node by hand, for the commands of fixes.

    ssh: argv of the client with the options of this scan, e.g. ``("ssh", "-F", "lab/ssh_config")``.
    destination[node]: arguments after that, e.g. ``("-p", "44222", "ml@gpu7")``.
    """

    ssh: tuple[str, ...] = ("ssh",)
    destination: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the report says about the run beside its results.

    root_here: whoever pastes commands on this machine is root already, and needs no sudo for them.
    require: families of checks in which a gap leaves the verdict open; strict: all of them. part: what was
    looked at, None for everything. suppressions: what is accepted, on the day that is today.
    verify_all_nodes: no node can be looked at by itself.
    """

    run: Run
    fail_on: str = "fail"
    strict: bool = False
    require: tuple[str, ...] = ()
    part: Part | None = None
    remote: Remote = field(default_factory=Remote)
    root_here: bool = False
    version: str = ""
    plugins: tuple[dict[str, str], ...] = ()
    notes: tuple[Note, ...] = ()
    verify_prefix: tuple[str, ...] = ("netdoctor", "scan", "--last")
    verify_all_nodes: bool = False
    keep_facts: bool = True
    interrupted_code: int = 130
    suppressions: tuple[Suppression, ...] = ()
    today: date = field(default_factory=lambda: datetime.now(UTC).date())
