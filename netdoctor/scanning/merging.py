"""What was measured again of a report goes into it, beside what was not."""

import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from netdoctor import store
from netdoctor.check import Check
from netdoctor.engine import registry
from netdoctor.engine.assemble.report import build
from netdoctor.engine.gathering import all_paths
from netdoctor.engine.registry import Registry
from netdoctor.engine.run import Outcome, judge_facts
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.software import PYTHON_PLACES, Job
from netdoctor.inventory.nodeset import fold
from netdoctor.options import OPTIONS
from netdoctor.report import LAST, fmt, summary
from netdoctor.report.kept import as_facts as facts_kept
from netdoctor.report.model import Note, Report
from netdoctor.scanning.plan import Plan, of_profile_full, part
from netdoctor.scanning.record import facts_of, keep_request, kept_request
from netdoctor.scanning.reporting import (
    FROM_SHELL,
    REMARK_PREFIXES,
    SETTINGS,
    context_of,
    held_against,
    remark_notes,
    rfc3339,
)
from netdoctor.store import Store

RERUN = "run again "
NOTES_AT_MOST = 20
# What a request says of reaching nodes, and of itself.
_HOW = (*(name for name, one in OPTIONS.items() if one.reaches), *("checks_dir", "environ", "format", "save"))


def merged(
    report: Report,
    plan: Plan,
    outcome: Outcome,
    every: Sequence[Check],
    checks: Sequence[str],
    moved: Collection[str] = (),
) -> Report:
    """The report with the outcome of a later scan of some of it, judged as a whole.

    every: the checks that the report has then. checks: ids of those that ran. moved: nodes that are listed
    differently now, of which only what was measured now holds.
    """
    request, targets = plan.request, plan.inventory.targets
    nodes = [t.id for t in targets if t.id in {*report.matrix.nodes, *outcome.judgement.nodes}]
    facts = _facts(report, outcome, [target.id for target in targets], moved)
    again = judge_facts(facts, every, nodes, report.run.ended_by)
    now = rfc3339(time.time())
    count = fmt.number(len(outcome.judgement.nodes), "node")
    what = ", ".join(checks) if len(checks) <= 6 else f"{len(checks)} checks"
    remarks = remark_notes(plan.transport.notes, REMARK_PREFIXES.get(request.via, SETTINGS))
    notes = list(dict.fromkeys([*notes_with(report, FROM_SHELL), *notes_with(report, SETTINGS), *remarks]))
    notes += [*not_judged(report, plan.known), *notes_with(report, RERUN)]
    notes.append(Note(level="info", text=f"{RERUN}{now}: {what} on {count}"))
    ids, before = [check.id for check in every], report.verdict.part
    context = context_of(
        request,
        targets,
        part=part(plan.known, request, ids, len(nodes), len(targets), before=True) if before else None,
        of_profile_full=of_profile_full(plan.known, request),
        run=replace(report.run, finished=now, replay=keep_request(request, targets)),
        suppressions=plan.suppressions,
        version=report.tool.version,
        plugins=report.tool.plugins,
        notes=tuple(notes),
    )
    return held_against(plan, build(again, context))


def _facts(report: Report, outcome: Outcome, nodes: Sequence[str], moved: Collection[str]) -> Store:
    """The newer facts where there are any; what was worked out of all nodes' facts is worked out anew.

    A part of the nodes has fewer paths than the job, and what was tried on the others would count for none.
    """
    before = facts_of(report)
    for group, by_node in before.node.items():
        for node in by_node.keys() & set(moved) if group != "node" else ():
            by_node[node] = Missing(Why.FAILED, "not scanned again since the node is listed differently")
    facts = store.merge(before, outcome.store)
    job = facts.cluster_fact("job")
    if isinstance(job, Job) and not isinstance(facts.cluster_fact("paths"), Missing):
        try:
            facts.cluster["paths"] = all_paths(facts, nodes, job)
        except Exception as error:  # what nodes said; a scan goes on as well
            facts.cluster["paths"] = Missing(Why.FAILED, f"the job's paths: {type(error).__name__}: {error}")
    return facts


def into(report: Report, plan: Plan, outcome: Outcome, scanned: Report) -> tuple[Report, Report | None]:
    """(what is shown of a scan, what is saved): where it looked at a part of `report`, that with it inside.

    report: the saved one that the scan was asked for by. Where the part does not fit to the rest of it, it
    stays as it is, and nothing is saved. scanned: the scan's own report; it gets a note on where it went.
    """
    saved_to = plan.request.save
    ran, judged = {check.id for check in plan.checks}, set(outcome.judgement.nodes)
    all_of_it = ran >= set(report.matrix.checks) and judged >= set(report.matrix.nodes)
    if saved_to is None or plan.part is None or all_of_it:
        return scanned, scanned
    why = _why_not(report, plan, outcome)
    if why:
        text = f"{saved_to} stays as it was, without this: {why}; {_again(plan)} looks at everything again"
        return _noted(scanned, text), None
    union = registry.ordered({c.id: c for c in [*every_check(report, plan.known), *plan.checks]}.values())
    # How to judge was said for this part alone; how to log in holds from now on.
    reaching = {name: getattr(plan.request, name) for name in _HOW}
    then = replace(kept_request(report, reaching, plan.request.source), hosts=plan.request.hosts)
    ids = [check.id for check in plan.checks]
    moved = _moved(report, plan)
    complete = merged(report, replace(plan, request=then), outcome, union, ids, moved)
    says = f"{summary.verdict(complete)}, {complete.verdict.headline}"
    return _noted(scanned, f"{saved_to} has this beside the rest: {says}"), complete


def _noted(report: Report, text: str) -> Report:
    return replace(report, notes=(*report.notes, Note(level="info", text=text)))


def _again(plan: Plan) -> str:
    save = plan.request.save
    return "netdoctor scan --last" if save in (None, LAST) else "the same command without --only, --node"


def _why_not(report: Report, plan: Plan, outcome: Outcome) -> str:
    """Why what was measured now cannot stand beside the report's facts; nothing where it can."""
    options = keep_request(plan.request, plan.inventory.targets)
    moved = _moved(report, plan) - set(outcome.judgement.nodes)
    unknown = {check for check in report.matrix.checks if check not in plan.known.checks}
    if outcome.ended_by != "end":
        return "the scan was stopped"
    if not report.facts:
        return "it holds no facts"
    if listed_as(report.run.replay).keys() != listed_as(options).keys():
        return "other nodes are listed now"
    if moved:
        return f"listed differently now: {fold(sorted(moved), fmt.FOLD_LIMIT)}"
    if options["options"].get("python") != report.run.replay.get("options", {}).get("python"):
        return "--python is another one"
    if other := other_job(facts_kept(report.facts).cluster_fact("job"), plan.job):
        return f"the job is another one now ({other})"
    return f"nobody knows {', '.join(sorted(unknown))} here" if unknown else ""


def _moved(report: Report, plan: Plan) -> set[str]:
    """The nodes that are listed in another way than they were."""
    before, now = listed_as(report.run.replay), listed_as(keep_request(plan.request, plan.inventory.targets))
    return {node for node in before if now.get(node) != before[node]}


def listed_as(replay: object) -> dict[str, tuple[object, ...]]:
    """How each node is reached and asked, by its id, from Run.replay."""
    listed = replay.get("targets") if isinstance(replay, dict) else None
    keys = ("host", "port", "user", "python", "slots", "gpus", "rank", "leaf", "rail")
    known = [t for t in listed if isinstance(t, dict)] if isinstance(listed, list | tuple) else []
    return {str(t.get("id")): tuple(t.get(key) for key in keys) for t in known}


def other_job(then: object, now: Job) -> str:
    """What differs between two jobs, in few words; nothing where they are one."""
    if not isinstance(then, Job):
        return ""
    names = then.env.keys() | now.env.keys()
    other = [n for n in sorted(names) if n not in PYTHON_PLACES and then.env.get(n) != now.env.get(n)]
    fields = ("master_addr", "master_port", "packages", "requested", "paths", "launcher", "backend", "image")
    other += [name for name in fields if getattr(then, name) != getattr(now, name)]
    return ", ".join(dict.fromkeys(other))


def every_check(report: Report, known: Registry) -> list[Check]:
    """The checks of a report, as far as they are known here."""
    return registry.ordered(known.checks[c] for c in report.matrix.checks if c in known.checks)


def not_judged(report: Report, known: Registry) -> list[Note]:
    missed = [check for check in report.matrix.checks if check not in known.checks]
    text = f"not judged again, because nobody knows them here: {', '.join(missed)} (see --checks-dir)"
    return [Note(level="warn", text=text)] if missed else []


def notes_with(report: Report, prefix: str) -> list[Note]:
    """Notes that still hold, or tell what was done."""
    return [note for note in report.notes if note.text.startswith(prefix)][-NOTES_AT_MOST:]
