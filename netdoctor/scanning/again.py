"""Saved facts judged again, and parts of a report measured again."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from netdoctor import __version__
from netdoctor.check import LOGINS, Check, Profile
from netdoctor.engine import registry
from netdoctor.engine.assemble.context import Context
from netdoctor.engine.assemble.report import build
from netdoctor.engine.registry import Registry
from netdoctor.engine.run import Outcome
from netdoctor.engine.run import rejudge as judge_again
from netdoctor.errors import InputError
from netdoctor.facts.software import Job
from netdoctor.facts.wanted import Wanted
from netdoctor.inventory import Inventory, Target, restrict
from netdoctor.measure.declare import EXPERIMENTS
from netdoctor.report import LAST, baseline, baselines
from netdoctor.report.foreign import disowned
from netdoctor.report.kept import of as facts_kept
from netdoctor.report.model import Report
from netdoctor.scanning import expecting, jobenv, settings
from netdoctor.scanning.merging import RERUN, every_check, kept, merged, not_judged
from netdoctor.scanning.plan import Plan, part, prepare, select
from netdoctor.scanning.record import facts_of, replay
from netdoctor.scanning.reporting import (
    SETTINGS,
    TAKEN,
    folders,
    remote,
    ssh_command,
    usual_hardware,
)
from netdoctor.scanning.request import ScanRequest

# Of a check or an experiment, the worst first.
COSTS = ("loads-gpu", "writes-file", "opens-port", "read-only")


def rejudge(report: Report, given: Mapping[str, Any], source: Path) -> Report:
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
    settings_file = settings.place(request) if request.suppress is not None else None
    suppressions = settings.read(settings_file, known.checks.values()).suppressions
    again: tuple[str, ...] = ()
    if "expect" in given:  # else what was expected then, which is among the facts
        path = given["expect"]
        wanted = expecting.read(path, known.checks.values(), targets) if path.name else Wanted()
        facts.cluster["wanted"] = wanted
        again = ("--expect", str(path))
    if "baseline" in given:
        rates = baseline.read(given["baseline"], list(listed))
        if rates is not None:
            facts.cluster["baseline"] = rates
        again = (*again, "--baseline", str(given["baseline"]))
    outcome = judge_again(facts, checks, judged, ended_by=report.run.ended_by)
    ids = [check.id for check in checks]
    context = Context(
        part=part(known, request, ids, len(outcome.judgement.nodes), len(targets)),
        run=replace(
            report.run,
            profile=request.profile,
            selected=request.only or ("*",),
            skipped=request.skip,
            ssh_command=ssh_command(request),
        ),
        fail_on=request.fail_on,
        strict=request.strict,
        require=request.require,
        suppressions=suppressions,
        remote=remote(request, targets),
        root_here=os.geteuid() == 0,
        version=__version__,
        notes=(
            *(n for prefix in (TAKEN, SETTINGS, RERUN) for n in kept(report, prefix)),
            *not_judged(report, known),
            *usual_hardware(facts),
        ),
        verify_prefix=("netdoctor", "scan", "--facts", str(source), *again, *folders(request.checks_dir)),
        interrupted_code=3,  # that scan was interrupted, this command was not: undecided
    )
    again_judged = build(outcome, context)
    if "baseline" in given:
        path = given["baseline"]
        again_judged = baselines.marked(again_judged, path.name, baselines.runs(path))
    return disowned(again_judged, report.run.foreign) if report.run.foreign else again_judged


def _as_made(report: Report, given: Mapping[str, Any], source: Path) -> ScanRequest:
    """The request by which a report was judged: with the checks it shows, whatever --last would ask for."""
    run = report.run
    if run.profile not in list(Profile):
        raise InputError(f"{source}: no profile is called {run.profile!r}")
    made = {
        "profile": run.profile,
        "only": () if run.selected == ("*",) else run.selected,
        "skip": () if "only" in given else run.skipped,
        **given,
    }
    try:
        return replay(report, made, source)
    except InputError:
        # Facts are facts. Only the commands that are printed do not know how to log in.
        return ScanRequest(**{"fail_on": report.verdict.fail_on, **made, "source": source})


def _judged_then(
    report: Report, known: Registry, checks: Sequence[Check], given: Mapping[str, Any]
) -> list[Check]:
    """The checks, and unless others are asked for now all that the report shows: no trouble gets lost."""
    ids = {check.id for check in checks}
    if not given.keys() & {"profile", "only", "skip"}:
        ids.update(report.matrix.checks)
    return registry.ordered(known.checks[check] for check in ids if check in known.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """Part of a report, to be measured again.

    checks: ids of those that run, on `nodes`. every: the checks of the report, which are judged again.
    """

    report: Report
    plan: Plan
    checks: tuple[str, ...]
    nodes: tuple[str, ...]
    every: tuple[Check, ...]

    def assemble(self, outcome: Outcome) -> Report:
        """The report with what was measured again in it."""
        return merged(self.report, self.plan, outcome, self.every, self.checks)


def rerun(
    report: Report,
    given: Mapping[str, Any],
    source: Path | None,
    *,
    checks: Sequence[str] | None,
    nodes: Sequence[str] | None,
) -> Rerun:
    """A plan for some checks of a report on some of its nodes, None for all of them. Contacts nobody.

    given, source: as for `replay`. What the checks wait for, and what waits for them, comes along. The job is
    that of the report, whatever this shell's environment holds now, unless another one is given.
    Raises InputError.
    """
    request = replay(report, given, source)
    known = registry.load(folders=request.checks_dir)
    every = every_check(report, known)
    chosen = _chosen(report, every, checks, nodes)
    judged = tuple(n for n in report.matrix.nodes if nodes is None or n in set(nodes))
    # With `only` a check of any profile runs when it is named.
    part = replace(request, only=chosen, skip=(), node=None)
    plan = prepare(part, known=known, judged=judged, job=_job_then(report, given))
    return Rerun(report=report, plan=plan, checks=chosen, nodes=judged, every=tuple(every))


def _chosen(
    report: Report, every: Sequence[Check], checks: Sequence[str] | None, nodes: Sequence[str] | None
) -> tuple[str, ...]:
    wanted = widened(report, every, checks, nodes)
    chosen = tuple(c.id for c in every if wanted is None or c.id in wanted)
    if not chosen:
        raise InputError("nothing is left to run: none of these checks is known here; see --checks-dir")
    return chosen


def costs(
    report: Report,
    given: Mapping[str, Any],
    *,
    checks: Sequence[str] | None = None,
    nodes: Sequence[str] | None = None,
) -> dict[str, str]:
    """Check.cost of each check that would run, with what its experiments cost.

    As for `rerun`; of the whole scan again where neither checks nor nodes are named. Raises InputError.
    """
    request = replay(report, given)
    known = registry.load(folders=request.checks_dir)
    if checks is None and nodes is None:
        return {check.id: _cost(check) for check in select(known, request)}
    every = every_check(report, known)
    return {check: _cost(known.checks[check]) for check in _chosen(report, every, checks, nodes)}


def _cost(check: Check) -> str:
    makers = {group: one for one in EXPERIMENTS.values() for group in one.groups}
    groups = [p.info.group for p in check.needs if p.info.group in makers]
    found = {check.cost, *(makers[group].cost for group in groups)}
    return next((cost for cost in COSTS if cost in found), check.cost)


def _job_then(report: Report, given: Mapping[str, Any]) -> Job | None:
    """The job that a report's facts tell of; None where there is none, or another one is given now."""
    job = facts_kept(report.facts).whole("job")
    asked = {"env_file", "master_port", "packages", "requirements", "path", "launcher", "backend", "image"}
    said = given.keys() & asked
    if said or not isinstance(job, Job):
        return None
    return jobenv.checked(job)


def widened(
    report: Report, every: Sequence[Check], checks: Sequence[str] | None, nodes: Sequence[str] | None
) -> frozenset[str] | None:
    """The checks to run again: with what they wait for and is not green, and what waits for them.

    None for all of them.
    """
    if checks is None:
        return None
    place = {node: i for i, node in enumerate(report.matrix.nodes)}
    here = [place[n] for n in nodes or report.matrix.nodes if n in place]
    rows = dict(zip(report.matrix.checks, report.matrix.cells, strict=True))
    by_id = {check.id: check for check in every}

    def shows(check: str, letters: str) -> bool:
        row = rows.get(check, "")
        return any(row[n] in letters for n in here) if row else False

    chosen = {c for c in checks if c in by_id}
    todo = list(chosen)
    while todo:
        check = by_id[todo.pop()]
        before = {a for a in check.after if a in by_id and shows(a, "X?b")}
        behind = {c.id for c in every if check.id in c.after and shows(c.id, "b")}
        if check.id in LOGINS:  # everything waits for a login, also where that is not said
            behind |= {c.id for c in every if shows(c.id, "b")}
        new = (before | behind) - chosen
        chosen |= new
        todo += new
    return frozenset(chosen)
