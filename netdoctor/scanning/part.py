"""Part of a report, measured again: some of its checks on some of its nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from netdoctor.check import LOGINS, Check
from netdoctor.engine import registry
from netdoctor.engine.run import Outcome
from netdoctor.errors import InputError
from netdoctor.facts.software import Job
from netdoctor.measure.declare import EXPERIMENTS
from netdoctor.options import Group, of_group
from netdoctor.report.kept import as_facts as facts_kept
from netdoctor.report.model import Report
from netdoctor.scanning import jobenv
from netdoctor.scanning.merging import every_check, merged
from netdoctor.scanning.plan import Plan, prepare, select
from netdoctor.scanning.record import kept_request

# Of a check or an experiment, the worst first.
COSTS = ("loads-gpu", "writes-file", "opens-port", "read-only")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPlan:
    """Part of a report, to be measured again."""

    report: Report
    plan: Plan
    checks: tuple[str, ...]  # ids of those that run, on `nodes`
    nodes: tuple[str, ...]
    every: tuple[Check, ...]  # the checks of the report, which are judged again

    def assemble(self, outcome: Outcome) -> Report:
        """The report with what was measured again in it."""
        return merged(self.report, self.plan, outcome, self.every, self.checks)


def plan_part(
    report: Report,
    given: Mapping[str, Any],
    source: Path | None,
    *,
    checks: Sequence[str] | None,
    nodes: Sequence[str] | None,
) -> PartPlan:
    """A plan for some checks of a report on some of its nodes, None for all of them. Contacts nobody.

    given, source: as for `kept_request`. What the checks wait for, and what waits for them, comes along. The
    job is that of the report, whatever this shell's environment holds now, unless another one is given.
    Raises InputError.
    """
    request = kept_request(report, given, source)
    known = registry.load(folders=request.checks_dir)
    every = every_check(report, known)
    chosen = _chosen(report, every, checks, nodes)
    judged = tuple(n for n in report.matrix.nodes if nodes is None or n in set(nodes))
    # With `only` a check of any profile runs when it is named.
    part = replace(request, only=chosen, skip=(), node=None)
    plan = prepare(part, known=known, judged=judged, job=_job_then(report, given))
    return PartPlan(report=report, plan=plan, checks=chosen, nodes=judged, every=tuple(every))


def _chosen(
    report: Report, every: Sequence[Check], checks: Sequence[str] | None, nodes: Sequence[str] | None
) -> tuple[str, ...]:
    selected = widened(report, every, checks, nodes)
    chosen = tuple(c.id for c in every if selected is None or c.id in selected)
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

    As for `plan_part`; of the whole scan again where neither checks nor nodes are named. Raises InputError.
    """
    request = kept_request(report, given)
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
    job = facts_kept(report.facts).cluster_fact("job")
    if given.keys() & of_group(Group.JOB) or not isinstance(job, Job):
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
    position = {node: i for i, node in enumerate(report.matrix.nodes)}
    here = [position[n] for n in nodes or report.matrix.nodes if n in position]
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
