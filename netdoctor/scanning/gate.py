"""Whether a job may start by a report, on which nodes, and whether a saved report still holds. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from netdoctor import __version__
from netdoctor.check import Profile
from netdoctor.compat import instant
from netdoctor.facts.software import Job
from netdoctor.inventory.nodeset import fold
from netdoctor.options import Group, of_group
from netdoctor.report import describe, summary
from netdoctor.report.kept import as_facts as facts_kept
from netdoctor.report.model import Report
from netdoctor.scanning.merging import listed_as, other_job
from netdoctor.scanning.plan import Plan
from netdoctor.scanning.record import keep_request
from netdoctor.text import clean

# Without --min-nodes: what is left has to be so much of what was listed.
LEAST_SHARE = 0.8
# Causes that are netdoctor's own: engine/judge.py.
OWN_TROUBLE = ("check-crashed-", "check-hung-")
# Options that change how long a scan takes or where it goes, and not what it looks at.
NO_MATTER = {"profile", *of_group(Group.BOUNDS)}
FOLD_LIMIT = 60


class Act(Enum):
    START = "start"
    REFUSE = "refuse"
    EXCLUDE = "exclude"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What may start though it is not READY."""

    on_undecided: bool = False
    on_crash: bool = False
    exclude_bad: bool = False
    min_nodes: int | None = None  # None for four fifths of what was listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a job starts."""

    act: Act
    code: int = 0  # where nothing starts
    nodes: tuple[str, ...] = ()  # who takes part; with EXCLUDE who is to be looked at alone
    why: str = ""  # in few words, for stderr


def decide(report: Report, rules: Rules) -> Decision:
    """What the report lets happen. Whatever is not known to be good refuses."""
    verdict = report.verdict
    start = Decision(
        act=Act.START, nodes=tuple(listed_as(report.run.replay)), why=summary.verdict_in_scope(report)
    )
    warned = " with warnings (--fail-on warn)" if verdict.exit_code == 4 else ""
    refuse = Decision(act=Act.REFUSE, code=verdict.exit_code or 5, why=f"{summary.verdict(report)}{warned}")
    if report.run.ended_by == "interrupt":
        return Decision(act=Act.REFUSE, code=verdict.exit_code or 130, why="interrupted")
    if verdict.fail_on == "never" or verdict.state in ("ready", "partial_pass"):
        return start if verdict.exit_code == 0 else refuse
    if verdict.state == "undecided":
        if rules.on_undecided or (rules.on_crash and _crashed(report)):
            return start
        return _without(report, rules) if rules.exclude_bad and report.undecided_nodes else refuse
    return _without(report, rules) if rules.exclude_bad and verdict.state == "not_ready" else refuse


def _crashed(report: Report) -> bool:
    """Whether all that is open is open because netdoctor itself broke."""
    missed = any(gap.family in report.verdict.required for gap in report.verdict.gaps)
    problems = [cause for cause in report.causes if cause.status != "warn"]
    ours = all(cause.status == "unknown" and cause.key.startswith(OWN_TROUBLE) for cause in problems)
    return report.run.complete and bool(problems) and ours and not missed and not report.suppressed


def _without(report: Report, rules: Rules) -> Decision:
    """The good nodes, to be looked at by themselves: among them other things may hold than among all."""

    def refuse(why: str) -> Decision:
        text = f"{summary.verdict(report)}, and no node can be left out: {why}"
        return Decision(act=Act.REFUSE, code=report.verdict.exit_code or 5, why=text)

    if report.verdict.part is not None or not report.run.complete:
        return refuse("only a part was looked at")
    for cause in report.causes:
        if cause.status == "fail" and not cause.node_list:
            return refuse(f"this is not a single node's: {describe.title(cause)}")
    good = set(report.healthy_nodes) | (set(report.undecided_nodes) if rules.on_undecided else set())
    listed = list(listed_as(report.run.replay))
    left = tuple(node for node in listed if node in good)
    if len(left) == len(listed):
        return refuse("no node is known to be at fault")
    least = math.ceil(len(listed) * LEAST_SHARE) if rules.min_nodes is None else rules.min_nodes
    if len(left) < max(least, 1):
        bad = fold([node for node in listed if node not in good], FOLD_LIMIT)
        return refuse(f"without {bad} {len(left)} of {len(listed)} are left, and --min-nodes is {least}")
    code = report.verdict.exit_code or 5
    return Decision(act=Act.EXCLUDE, code=code, nodes=left, why=summary.verdict(report))


def stale(report: Report, plan: Plan, *, now: float, max_age_s: float, touched: Mapping[str, float]) -> str:
    """Why a saved report does not answer what the scan that is planned would; empty where it does.

    now: seconds since the epoch. touched: the files that the scan reads, and when each was changed last.
    """
    run, request = report.run, plan.request
    if report.tool.version != __version__:
        return "another release of netdoctor made it"
    if why := not_ours_now(report, now=now, max_age_s=max_age_s):
        return why
    began = _seconds(run.started)
    changed = sorted(name for name, when in touched.items() if when >= began)
    if changed:
        return f"{changed[0]} has changed since"
    requested, its = keep_request(request, plan.inventory.targets), run.replay
    if list(listed_as(requested).items()) != list(listed_as(its).items()):
        return "it is of other hosts, or they are reached in another way"
    nodes = plan.judged or [target.id for target in plan.inventory.targets]
    checks = {check.id for check in plan.checks}
    if not set(nodes) <= set(report.matrix.nodes) or not checks <= set(report.matrix.checks):
        return "it looked at less"
    if run.profile not in list(Profile) or not Profile(run.profile).includes(Profile(request.profile)):
        return f"its profile was {clean(run.profile, 20)}"
    options = [_matter(one.get("options")) for one in (requested, its)]
    for name in sorted({**options[0], **options[1]}):
        if options[0].get(name) != options[1].get(name):
            return f"--{name.replace('_', '-')} was another one"
    then = facts_kept(report.facts).cluster_fact("job") if report.facts else None
    if not isinstance(then, Job):
        return "it does not say what the job was"
    differs = other_job(then, plan.job)
    return f"the job is another one now ({differs})" if differs else ""


def not_ours_now(report: Report, *, now: float, max_age_s: float) -> str:
    """Why a saved report says nothing of the nodes as they are now; empty where it may."""
    run = report.run
    if run.foreign is not None or run.redacted:
        return "it is not our own" if run.foreign is not None else "it is redacted"
    if not run.complete or run.ended_by != "end":
        return "that scan was cut short"
    # When the scan began: some of it was measured then, also where a part was looked at again later.
    age = now - _seconds(run.started)
    if not 0 <= age <= max_age_s:
        return "it is too old" if age > max_age_s else "its time lies in the future"
    return ""


def _seconds(stamp: str) -> float:
    try:
        return instant(stamp).timestamp()
    except (ValueError, OverflowError):
        return -math.inf


def _matter(options: Any) -> dict[str, Any]:
    """What an option that stands for nothing, an empty list or False, says is what its absence says."""
    given = options if isinstance(options, dict) else {}
    return {clean(k, 40): v for k, v in given.items() if k not in NO_MATTER and v}
