"""The facts of a saved report, judged now. Contacts nobody."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from netdoctor.check import Check, Profile
from netdoctor.engine import registry
from netdoctor.engine.assemble.report import build
from netdoctor.engine.registry import Registry
from netdoctor.engine.run import judge_facts
from netdoctor.errors import InputError
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.expected import Expectations
from netdoctor.facts.software import Job
from netdoctor.inventory import Inventory, Target, restrict
from netdoctor.options import OPTIONS, ScanRequest
from netdoctor.report import LAST, baseline, baselines
from netdoctor.report.foreign import disowned
from netdoctor.report.model import Report
from netdoctor.scanning import expecting, settings
from netdoctor.scanning.merging import RERUN, not_judged, notes_with
from netdoctor.scanning.plan import of_profile_full, part, select
from netdoctor.scanning.record import facts_of, kept_request
from netdoctor.scanning.reporting import (
    FROM_SHELL,
    SETTINGS,
    context_of,
    hardware_remarks,
    repeated,
    ssh_command,
)
from netdoctor.store import Store

# Options of the job that facts are judged by. What else is said of it, nodes would have to answer.
JUDGED_BY = ("launcher", "image", "backend", "master_port")


def judge_saved(report: Report, given: Mapping[str, Any], source: Path) -> Report:
    """The report of a saved report's facts, judged now as it was judged then. Contacts nobody.

    given: fields of a ScanRequest that are to be others than then. source: the report's file.
    Raises InputError.
    """
    if not report.facts:
        raise InputError(f"{source}: holds no facts; use {LAST}, or save with --json-detail all")
    request = _as_made(report, given, source)
    known = registry.load(folders=request.checks_dir)  # plug-ins know what their facts are
    facts = facts_of(report)
    listed = facts.node.get("node", {})
    targets = request.targets or tuple(Target(id=node, host=node) for node in listed)
    checks = _judged_then(report, known, select(known, request), given)
    if "node" in given:
        inventory = Inventory(targets=targets, format="last", source=str(source))
        judged = restrict(inventory, given["node"])
    else:
        judged = tuple(node for node in report.matrix.nodes if node in listed) or tuple(listed)
    settings_file = settings.settings_path(request) if request.suppress is not None else None
    suppressions = settings.read(settings_file, known.checks.values()).suppressions
    _say_of_job(facts, report, given, source)
    if "expect" in given:  # else what was expected then, which is among the facts
        path = given["expect"]
        expected = expecting.read(path, known.checks.values(), targets) if path.name else Expectations()
        facts.cluster["wanted"] = expected
    if "baseline" in given:
        rates = baseline.read(given["baseline"], list(listed))
        if rates is not None:
            facts.cluster["baseline"] = rates
    outcome = judge_facts(facts, checks, judged, ended_by=report.run.ended_by)
    ids = [check.id for check in checks]
    # The options that were typed now, as the command that verifies a fix says them again.
    now = [word for name in OPTIONS if name in given for word in repeated(request, name)]
    context = context_of(
        request,
        targets,
        part=part(known, request, ids, len(outcome.judgement.nodes), len(targets)),
        of_profile_full=of_profile_full(known, request),
        run=replace(
            report.run,
            profile=request.profile,
            selected=request.only or ("*",),
            skipped=request.skip,
            ssh_command=ssh_command(request),
        ),
        suppressions=suppressions,
        notes=(
            *(n for prefix in (FROM_SHELL, SETTINGS, RERUN) for n in notes_with(report, prefix)),
            *not_judged(report, known),
            *hardware_remarks(facts),
        ),
        verify_prefix=("netdoctor", "scan", "--facts", str(source), *now),
        verify_all_nodes=False,
        interrupted_code=3,  # that scan was interrupted, this command was not: undecided
    )
    again_judged = build(outcome, context)
    if "baseline" in given:
        path = given["baseline"]
        again_judged = baselines.marked(again_judged, path.name, baselines.runs(path))
    return disowned(again_judged, report.run.foreign) if report.run.foreign else again_judged


def _say_of_job(facts: Store, report: Report, given: Mapping[str, Any], source: Path) -> None:
    """Put what is said of the job now into the facts. Raises InputError where only nodes could answer."""
    for name in given.keys() & OPTIONS.keys():
        option, then = OPTIONS[name], report.run.replay.get("options", {})
        if option.asks_nodes and option.to_report(given[name]) != then.get(name):
            raise InputError(
                f"{option.flag} is a question to the nodes, and --facts {source} contacts nobody; scan "
                "again, or leave it out"
            )
    job = facts.cluster_fact("job")
    options = {name: given[name] for name in JUDGED_BY if name in given}
    if not isinstance(job, Job) or all(getattr(job, name) == value for name, value in options.items()):
        return
    facts.cluster["job"] = replace(job, **options)
    for name in ("launcher", "image"):
        if name in options and options[name] != getattr(job, name):
            # What a launcher needs, and whether an image is there, nodes are asked for by name.
            text = f"that scan was not asked about {OPTIONS[name].flag} {options[name]}; scan again"
            facts.node["launch"] = dict.fromkeys(facts.node.get("node", {}), Missing(Why.FAILED, text))


def _as_made(report: Report, given: Mapping[str, Any], source: Path) -> ScanRequest:
    """The request by which a report was judged: with the checks it shows, whatever --last would ask for."""
    run = report.run
    if run.profile not in list(Profile):
        raise InputError(f"{source}: no profile is called {run.profile!r}")
    fields = {
        "profile": run.profile,
        "only": () if run.selected == ("*",) else run.selected,
        "skip": () if "only" in given else run.skipped,
        **given,
    }
    try:
        return kept_request(report, fields, source)
    except InputError:
        # Facts are facts. Only the commands that are printed do not know how to log in.
        return ScanRequest(**{"fail_on": report.verdict.fail_on, **fields, "source": source})


def _judged_then(
    report: Report, known: Registry, checks: Sequence[Check], given: Mapping[str, Any]
) -> list[Check]:
    """The checks, and unless others are asked for now all that the report shows: no trouble gets lost."""
    ids = {check.id for check in checks}
    if not given.keys() & {"profile", "only", "skip"}:
        ids.update(report.matrix.checks)
    return registry.ordered(known.checks[check] for check in ids if check in known.checks)
