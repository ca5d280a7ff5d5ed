"""What a report says about its run beside the results: how to reach the nodes by hand, how to scan again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

from netdoctor.check import Check
from netdoctor.compat import UTC
from netdoctor.engine.assemble.accepted import Suppression
from netdoctor.report.model import Note, Part, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """How a person reaches a node by hand, for the commands of fixes."""

    # The client with the options of this scan: ``("ssh", "-F", "lab/ssh_config")``.
    ssh: tuple[str, ...] = ("ssh",)
    # What follows it, by node: ``("-p", "44222", "ml@gpu7")``.
    destination: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the report says about the run beside its results."""

    run: Run
    fail_on: str = "fail"
    strict: bool = False  # `require` of all families
    require: tuple[str, ...] = ()  # families of checks in which a gap leaves the verdict open
    part: Part | None = None  # what was looked at, None for everything
    of_profile_full: tuple[Check, ...] = ()  # what profile full would have run; empty with --only
    remote: Remote = field(default_factory=Remote)
    root_here: bool = False  # whoever pastes commands on this machine is root already, and needs no sudo
    version: str = ""
    plugins: tuple[dict[str, str], ...] = ()
    notes: tuple[Note, ...] = ()
    verify_prefix: tuple[str, ...] = ("netdoctor", "scan", "--last")
    verify_all_nodes: bool = False  # no node can be looked at by itself
    keep_facts: bool = True
    interrupted_code: int = 130
    suppressions: tuple[Suppression, ...] = ()  # what is accepted, on the day that is today
    today: date = field(default_factory=lambda: datetime.now(UTC).date())
