"""From an outcome to the report: how the scan was made, and how its nodes are reached by hand."""

import math
import os
import platform
import shlex
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from netdoctor import __version__
from netdoctor.compat import UTC
from netdoctor.engine.assemble.report import Context, Remote, build, check_records
from netdoctor.engine.gathering import AUTO
from netdoctor.engine.run import Outcome
from netdoctor.facts.base import Missing
from netdoctor.facts.host import MEET
from netdoctor.facts.software import CALLING, PYTHON_PLACES, Job
from netdoctor.files import keep_traceback
from netdoctor.inventory import Target
from netdoctor.inventory.nodeset import fold
from netdoctor.options import OPTIONS, ScanRequest
from netdoctor.report import LAST, baselines, repeats
from netdoctor.report.model import Counts, Note, Phase, Report, Run, TargetRecord, Tool, Verdict
from netdoctor.report.moved import last_argv
from netdoctor.rules import profiles
from netdoctor.scanning.plan import Plan, of_profile_full
from netdoctor.scanning.record import keep_request
from netdoctor.store import Store
from netdoctor.text import clean

SETTINGS = "ssh: "
_DEFAULTS = ScanRequest()
REMARK_PREFIXES = {"slurm": "slurm: ", MEET: "meet: "}
FROM_SHELL = "taken from this shell for the job: "
TAKEN_AT_MOST = 12
# With StrictHostKeyChecking off there is one about every host.
REMARKS_AT_MOST = 10


def opening(plan: Plan) -> Report:
    """What is known of a scan before anybody is contacted; its run goes on in `assemble`."""
    run = Run(
        id=uuid.uuid4().hex,
        started=rfc3339(time.time()),
        finished="",
        duration_ms=0,
        complete=False,
        ended_by="",
        profile=plan.request.profile,
        selected=plan.request.only or ("*",),
        skipped=plan.request.skip,
        hosts_source={
            "format": plan.inventory.format,
            "path": plan.inventory.source,
            **({"job": plan.run} if plan.run else {}),
        },
        control_host={"name": platform.node(), "python": platform.python_version()},
        ssh_command=ssh_command(plan.request),
        replay=keep_request(plan.request, plan.inventory.targets),
    )
    return Report(
        tool=Tool(version=__version__, plugins=_plugins(plan)),
        run=run,
        verdict=Verdict(state="undecided", exit_code=3, fail_on=plan.request.fail_on, counts=Counts()),
        targets=tuple(
            TargetRecord(
                id=t.id,
                address=None,
                port=t.port or 22,
                user=t.user or "",
                reached=False,
                order=t.order,
                slots=t.slots,
                line=t.line,
            )
            for t in plan.targets
        ),
        checks=check_records(plan.checks),
    )


def assemble(
    plan: Plan, outcome: Outcome, took_s: float, *, interrupted_code: int = 130, begun: Report | None = None
) -> Report:
    """The report of a scan that has ended just now. took_s: by a clock that nobody sets.

    interrupted_code: the exit code if an interrupt ended it. begun: what `opening` said of it.
    """
    request = plan.request
    finished = time.time()
    run = replace(
        (begun or opening(plan)).run,
        # What files say was measured when they were written, however often it is judged.
        started=rfc3339(min(finished - took_s, plan.began or math.inf)),
        finished=rfc3339(finished),
        duration_ms=round(took_s * 1000),
        complete=outcome.ended_by == "end",
        ended_by=outcome.ended_by,
        phases=tuple(Phase(name=name, duration_ms=round(s * 1000)) for name, s in outcome.phases),
    )
    context = context_of(
        request,
        plan.targets,
        run=run,
        suppressions=plan.suppressions,
        part=plan.part,
        of_profile_full=of_profile_full(plan.known, request),
        plugins=_plugins(plan),
        notes=tuple(_notes(plan, outcome)),
        interrupted_code=interrupted_code,
    )
    report = held_against(plan, build(outcome, context))
    if request.save is None or request.save.name != LAST.name:
        return report
    return replace(report, notes=(*report.notes, *repeats.notes(report, repeats.records(request.save))))


def context_of(request: ScanRequest, targets: Sequence[Target], run: Run, **more: Any) -> Context:
    """What a report says beside its results, by its request. more: other fields of a Context."""
    context = Context(
        run=run,
        fail_on=request.fail_on,
        strict=request.strict,
        require=request.require,
        remote=remote(request, targets),
        root_here=os.geteuid() == 0,
        version=__version__,
        verify_prefix=verify_prefix(request),
        verify_all_nodes=request.via == MEET,  # all tasks of the job are started again
    )
    return replace(context, **more)


def held_against(plan: Plan, report: Report) -> Report:
    """The report with its causes marked by the runs of --baseline, where there is one."""
    baseline = plan.request.baseline
    return baselines.marked(report, baseline.name, plan.earlier) if baseline and plan.earlier else report


def _plugins(plan: Plan) -> tuple[dict[str, str], ...]:
    return tuple({"name": p.name, "version": p.version} for p in plan.known.plugins if not p.error)


def _notes(plan: Plan, outcome: Outcome) -> list[Note]:
    notes = [Note(level="info", text=text) for text in plan.inventory.notes]
    notes += [
        Note(level="warn", text=f"plug-in {p.name} is left out: {p.error}")
        for p in plan.known.plugins
        if p.error
    ]
    notes += [*_from_shell(plan.job), *python_notes(plan, outcome), *hardware_remarks(outcome.store)]
    notes += remark_notes(plan.transport.notes, REMARK_PREFIXES.get(plan.request.via, SETTINGS))
    if outcome.judgement.tracebacks and (path := keep_traceback("\n".join(outcome.judgement.tracebacks))):
        notes.append(Note(level="warn", text=f"part of netdoctor itself crashed; tracebacks: {path}"))
    return notes


def hardware_remarks(store: Store) -> list[Note]:
    """What all nodes have less of than systems of their kind normally do."""
    expected = store.cluster_fact("wanted")
    found = profiles.remarks(
        store.present("gpu", store.node.get("gpu", ())),
        store.present("rdma", store.node.get("rdma", ())),
        store.present("host", store.node.get("host", ())),
        None if isinstance(expected, Missing) else expected,
    )
    return [Note(level="info", text=text) for text in found]


def _from_shell(job: Job) -> list[Note]:
    """Which variables are the job's only because this shell has them. Not where to look for a Python."""
    names = [n for n, where in sorted(job.env_from.items()) if where == CALLING and n not in PYTHON_PLACES]
    more = f" and {len(names) - TAKEN_AT_MOST} more" if len(names) > TAKEN_AT_MOST else ""
    text = f"{FROM_SHELL}{', '.join(names[:TAKEN_AT_MOST])}{more}"
    return [Note(level="info", text=text)] if names else []


def python_notes(plan: Plan, outcome: Outcome) -> list[Note]:
    """Which interpreters were taken where that was left to us."""
    asking = [target.id for target in plan.targets if target.python == AUTO]
    found = outcome.store.present("software", asking)
    by_path: dict[str, list[str]] = {}
    for node, software in found.items():
        by_path.setdefault(f"{software.executable}{'' if software.torch else ' (no torch)'}", []).append(node)
    parts = [f"{path} on {fold(nodes, 60)}" if len(by_path) > 1 else path for path, nodes in by_path.items()]
    notes = [Note(level="info", text=f"--python auto took {', '.join(parts)}")] if parts else []
    left_out = {
        other.python: f"--python auto left out {clean(other.python, 200)} on {node}: "
        f"{clean(other.distrust, 200)}; --python PATH takes it all the same"
        for node, software in found.items()
        for other in software.others
        if other.distrust
    }
    return [*notes, *(Note(level="warn", text=text) for text in list(left_out.values())[:REMARKS_AT_MOST])]


def remark_notes(remarks: Sequence[str], prefix: str = SETTINGS) -> list[Note]:
    """What the transport has to say about the user's settings, or of its nodes, as notes."""
    texts = [f"{prefix}{remark}" for remark in remarks[:REMARKS_AT_MOST]]
    if len(remarks) > REMARKS_AT_MOST:
        texts.append(f"{prefix}{len(remarks) - REMARKS_AT_MOST} more remarks like these")
    return [Note(level="warn", text=text) for text in texts]


def rfc3339(stamp: float) -> str:
    """A time in seconds since the epoch as reports write it, in UTC."""
    return datetime.fromtimestamp(stamp, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def remote(request: ScanRequest, targets: Sequence[Target]) -> Remote:
    """How the nodes are logged in to by hand."""
    return Remote(ssh=ssh_argv(request), destination={t.id: destination(t, request) for t in targets})


def ssh_argv(request: ScanRequest) -> tuple[str, ...]:
    """The ssh client with the options of this scan that hold for every node, as a person would type it."""
    argv = ["ssh"]
    pairs = (("-F", request.ssh_config), ("-i", request.ssh_key), ("-J", request.jump))
    for flag, value in pairs:
        if value is not None:
            argv += [flag, str(value)]
    if request.known_hosts is not None:
        argv += ["-o", f"UserKnownHostsFile={request.known_hosts}"]
    return tuple(argv)


def ssh_command(request: ScanRequest) -> str:
    """The client with all of its options, for a node that has no user or port of its own."""
    pairs = (("-l", request.ssh_user), ("-p", request.ssh_port))
    for_all = [word for flag, value in pairs if value is not None for word in (flag, str(value))]
    return shlex.join([*ssh_argv(request), *for_all])


def destination(target: Target, request: ScanRequest) -> tuple[str, ...]:
    """What follows the ssh client to get to a node: ``-p``, port, ``user@host``.

    A node's own user and port win over those for all; ssh itself would take ``-l`` and the first ``-p``.
    """
    user, number = target.user or request.ssh_user, target.port or request.ssh_port
    port = ("-p", str(number)) if number else ()
    return (*port, f"{user}@{target.host}" if user else target.host)


def verify_prefix(request: ScanRequest) -> tuple[str, ...]:
    """What to type to look again: --last where a report is saved, else the same hosts and options."""
    report = request.save or request.source
    argv = [*last_argv(report)] if report is not None else ["netdoctor", "scan", *request.hosts]
    if request.save is None:
        argv += [word for name in OPTIONS for word in repeated(request, name)]
        return tuple(argv)
    return (*argv, *repeated(request, "checks_dir"))


def repeated(request: ScanRequest, name: str) -> list[str]:
    """The words by which a command says an option as this request has it; none for its default."""
    option, value = OPTIONS[name], getattr(request, name)
    if option.not_repeated or value == getattr(_DEFAULTS, name) or value is None:
        return []
    # --facts and --meet stand for their way to the nodes.
    return option.argv(value) if not option.choices or value in option.choices else []
