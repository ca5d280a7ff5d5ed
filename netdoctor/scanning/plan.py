"""From a request to a plan: everything that a scan needs, before anything is contacted."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from netdoctor.check import Check, Profile
from netdoctor.engine import registry
from netdoctor.engine.assemble.accepted import Suppression
from netdoctor.engine.assemble.scope import part_of
from netdoctor.engine.registry import Registry
from netdoctor.engine.run import Listener, Options, Scan
from netdoctor.errors import InputError
from netdoctor.facts.bandwidth import Baseline
from netdoctor.facts.expected import Expectations
from netdoctor.facts.host import FILED
from netdoctor.facts.software import Job
from netdoctor.inventory import Inventory, Target, load, restrict
from netdoctor.inventory.reading import file_exists
from netdoctor.options import FILE, OPTIONS, ScanRequest
from netdoctor.report import baseline, baselines
from netdoctor.report.model import Part, Report
from netdoctor.report.places import keep_apart
from netdoctor.scanning import expecting, filing, jobenv, packages, settings, via
from netdoctor.scanning.via import make_transport
from netdoctor.transport.base import Transport

# Of a time for the whole run that has passed already: enough to begin, and to say what is missing.
LEAST_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What will run."""

    request: ScanRequest
    known: Registry
    checks: Sequence[Check]
    inventory: Inventory
    targets: tuple[Target, ...]  # who is contacted
    judged: tuple[str, ...] | None  # node ids that get statuses, None for all of them
    job: Job
    transport: Transport
    baseline: Baseline | None = None  # the rates of --baseline
    earlier: tuple[Report, ...] = ()  # its runs, the newest first
    suppressions: tuple[Suppression, ...] = ()  # what is accepted
    expected: Expectations | None = None  # what the user expects of nodes
    run: str = ""  # of tasks that wrote files, as of Pool; so is began
    began: float | None = None
    waited_s: float = 0.0  # how long making this took, as where tasks were waited for

    @property
    def left_s(self) -> float | None:
        """What is left of the time for the whole run; None where it has no bound."""
        deadline = self.request.deadline
        return None if deadline is None else max(deadline - self.waited_s, LEAST_S)

    @property
    def part(self) -> Part | None:
        """What will be looked at, None for everything that the profile has on all nodes that are listed."""
        listed = len(self.inventory.targets)
        judged = listed if self.judged is None else len(self.judged)
        return part(self.known, self.request, [check.id for check in self.checks], judged, listed)

    def scan(self, listener: Listener = lambda progress: None) -> Scan:
        """The scan, which runs on this plan's transport."""
        options = Options(
            profile=Profile(self.request.profile),
            timeout_s=self.request.timeout,
            judged=self.judged,
            budget_s=self.request.budget,
            deadline_s=self.left_s,
            baseline=self.baseline,
            alone=self.request.via == FILED,
            expected=self.expected,
        )
        return Scan(self.targets, self.checks, self.job, options, listener)


def prepare(
    request: ScanRequest,
    *,
    known: Registry | None = None,
    judged: tuple[str, ...] | None = None,
    job: Job | None = None,
    profile_alone: str | None = None,
    on_transport: Callable[[Transport], None] = lambda transport: None,
) -> Plan:
    """Read hosts, checks and the job's environment, and make the transport. Raises InputError.

    known: the checks there are, where they are loaded already. judged: node ids, instead of request.node.
    job: instead of what the request says of it. profile_alone: instead of the request's profile where one
    node alone is listed. on_transport: gets the transport before any wait.
    """
    started = time.monotonic()
    known = known or registry.load(folders=request.checks_dir)
    settings_file = settings.settings_path(request)
    own_settings = settings.read(settings_file, known.checks.values())
    request = replace(request, suppress=settings_file, expect=expect_file(request, own_settings))
    if request.save is not None:
        keep_apart([(f"--save {request.save}", request.save)], reads(request))
    select(known, request)  # raises before anything waits for tasks
    filed = filing.filed(request) if request.via == FILED else None
    transport = filed.transport if filed else make_transport(request)
    on_transport(transport)
    inventory = filed.inventory if filed else inventory_of(request, transport)
    if profile_alone is not None and len(inventory.targets) == 1:
        request = replace(request, profile=profile_alone)
    checks = select(known, request)
    if judged is None and request.node:
        judged = restrict(inventory, request.node)
    expectations = None
    if request.expect is not None:
        expectations = expecting.read(request.expect, known.checks.values(), inventory.targets)
        inventory = replace(inventory, notes=(*inventory.notes, *expecting.unused(expectations)))
    nodes = [target.id for target in inventory.targets]
    if job is None:
        requirements = packages.read_requirements(request.packages, request.requirements)
        tasks = filed.job if filed else {}
        remarks = jobenv.environ_remarks(tasks, request.environ) if request.env_file is None else ()
        inventory = replace(inventory, notes=(*inventory.notes, *remarks, *requirements.notes))
        job = jobenv.job(request, nodes, requirements, tasks)
    if request.via == "slurm" and not job.session_limits:  # a replayed job has those of then
        job = replace(job, session_limits=jobenv.session_limits())
    return Plan(
        request=request,
        known=known,
        checks=checks,
        inventory=inventory,
        targets=_contacted(inventory.targets, checks, judged),
        judged=judged,
        job=job,
        transport=transport,
        baseline=None if request.baseline is None else baseline.read(request.baseline, nodes),
        suppressions=own_settings.suppressions,
        expected=expectations,
        run=filed.run if filed else "",
        began=filed.began if filed else None,
        waited_s=time.monotonic() - started,
        earlier=tuple(baselines.runs(request.baseline)) if request.baseline is not None else (),
    )


def expect_file(request: ScanRequest, own_settings: settings.Settings) -> Path | None:
    """The file with what is expected: the one that is asked for, else the one that netdoctor.toml names."""
    if request.expect is not None:
        return request.expect if request.expect.name else None
    return own_settings.expect


def reads(request: ScanRequest) -> list[tuple[str, Path]]:
    """The files that a scan reads, each with what it is called on the command line.

    Not the report that it was asked for by, which the new one replaces.
    """
    found = [(word, Path(word)) for word in request.hosts if file_exists(word)]
    for one in OPTIONS.values():
        path = getattr(request, one.name)
        if one.rule is FILE and not one.many and one.name != "save" and path is not None:
            found.append((f"{one.flag} {path}", path))
    found += [(f"--facts {word}", Path(word)) for word in request.facts if Path(word).is_file()]
    if request.suppress is None and (settings_file := settings.settings_path(request)) is not None:
        found.append((str(settings_file), settings_file))
    defaults = ((request.ssh_config, "~/.ssh/config"), (request.known_hosts, "~/.ssh/known_hosts"))
    found += [(name, Path(os.path.expanduser(name))) for option, name in defaults if option is None]
    return found


def select(known: Registry, request: ScanRequest) -> list[Check]:
    """The checks that a request asks for, in their order.

    Raises InputError for a glob that matches none, and for a family in `require` that has no check.
    """
    try:
        registry.need_families(known.checks, request.require)
        also = _also(known, request)
        return registry.select(
            known.checks, Profile(request.profile), request.only, request.skip, request.via, also
        )
    except InputError as error:
        if request.source is None:
            raise
        raise InputError(f"{error}\n{request.source} may ask for it; name its --checks-dir again") from None


def _also(known: Registry, request: ScanRequest) -> tuple[str, ...]:
    by_option = (
        ("net.reach", request.reach),
        ("path.same", request.path),
        ("fs.shared", request.path or request.expect),
        ("fs.write", request.write_test),
        ("fs.rate", request.rate_test),
        ("bw.groups", request.groups),
    )
    return (*request.also, *(check for check, value in by_option if value and check in known.checks))


def part(
    known: Registry, request: ScanRequest, checks: Sequence[str], nodes: int, listed: int, **more: bool
) -> Part | None:
    """How much of what the request's profile has `checks` on so many nodes are. more: as for `part_of`."""
    also = _also(known, request)
    every = registry.select(known.checks, Profile(request.profile), via=request.via, also=also)
    return part_of(checks, [check.id for check in every], nodes, listed, **more)


def of_profile_full(known: Registry, request: ScanRequest) -> tuple[Check, ...]:
    """What profile full would run for the request, whatever --skip says; nothing with --only."""
    if request.only:
        return ()
    also = _also(known, request)
    return tuple(registry.select(known.checks, Profile.FULL, via=request.via, also=also))


def inventory_of(request: ScanRequest, transport: Transport) -> Inventory:
    """The nodes, each with the interpreter that is used there. transport: of the request."""
    if request.local:
        if request.via != "ssh":
            raise InputError(f"--local examines this machine; leave --via {request.via} out")
        if request.hosts:
            raise InputError("--local examines this machine; leave the host list out")
        here = Target(id="localhost", host="localhost", source="--local")
        inventory = Inventory(targets=(here,), format="local", source="--local")
    elif request.targets is not None:
        source = str(request.source or "")
        inventory = Inventory(targets=request.targets, format="last", source=source)
    elif not request.hosts and (found := via.nodes(request, transport)) is not None:
        inventory = found
    elif not request.hosts:
        raise InputError("no hosts: name a hosts file, hosts, or --last (see netdoctor scan -h)")
    else:
        inventory = load(request.hosts, environ=request.environ, format=request.format)
    targets = inventory.targets
    if request.python is not None:
        targets = tuple(t if t.python else replace(t, python=request.python) for t in targets)
    return replace(inventory, targets=targets, notes=(*inventory.notes, *request.remarks))


def _contacted(
    targets: tuple[Target, ...], checks: Sequence[Check], judged: tuple[str, ...] | None
) -> tuple[Target, ...]:
    """All targets when a check compares nodes (its peers are needed), else only the judged ones."""
    if judged is None or any(check.scope == "cluster" for check in checks):
        return targets
    selected = set(judged)
    return tuple(t for t in targets if t.id in selected)
