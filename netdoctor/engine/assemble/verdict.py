"""The verdict of a scan: its state, its exit code, and a headline."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from netdoctor.check import LOGINS
from netdoctor.engine.assemble import accepted, scope
from netdoctor.engine.assemble.context import Context
from netdoctor.engine.diagnose import Group
from netdoctor.engine.judge import Judgement, count, left_open
from netdoctor.engine.run import Outcome
from netdoctor.model import Status
from netdoctor.report import summary
from netdoctor.report.fmt import number
from netdoctor.report.model import Counts, Suppressed, Verdict


def counts_of(judgement: Judgement) -> Counts:
    by_status = count(judgement.cells)
    return Counts(
        pass_=by_status[Status.PASS],
        warn=by_status[Status.WARN],
        fail=by_status[Status.FAIL],
        blocked=by_status[Status.BLOCKED],
        skip=by_status[Status.SKIP],
        unknown=by_status[Status.UNKNOWN],
    )


def verdict_of(
    groups: Sequence[Group],
    outcome: Outcome,
    context: Context,
    suppressed: Sequence[Suppressed] = (),
    blocked: Collection[tuple[str, str]] = (),
) -> Verdict:
    """The state and exit code of design sections 3 and 4. Bad input and broken runs never get here.

    outcome: with what is accepted as skipped. blocked: check and node of what was not run behind that.
    """
    judgement = outcome.judgement
    counts = counts_of(judgement)
    # Causes and cells agree, but for a cause on the control host alone, which has no cell. Both are asked: a
    # defect in either must not turn a verdict green.
    statuses = {group.status for group in groups}
    required, gaps = scope.required(judgement, context), scope.gaps(judgement, context)
    waiting = {check for check, _ in blocked}
    open_question = (
        outcome.ended_by != "end"
        or any(gap.family in required for gap in gaps)
        or not left_open(judgement, required).isdisjoint(judgement.nodes)
        or any(accepted.holds_open(c, required) for c in judgement.checks if c.id in waiting)
        # What was asked for and could not be looked at is no pass of it.
        or bool(context.part and gaps and not _judged(judgement))
    )
    fails = Status.FAIL in statuses or counts.fail > 0
    good = "ready" if context.part is None else "partial_pass"
    if outcome.ended_by == "interrupt":
        code = context.interrupted_code
    elif context.fail_on == "never":
        code = 0
    elif fails:
        code = 1
    elif open_question:
        code = 3
    elif context.fail_on == "warn" and (Status.WARN in statuses or counts.warn > 0):
        code = 4
    else:
        code = 0
    verdict = Verdict(
        state="not_ready" if fails else "undecided" if open_question else good,
        exit_code=code,
        fail_on=context.fail_on,
        counts=counts,
        gaps=gaps,
        required=tuple(sorted(required)),
        part=context.part,
        not_tested=scope.not_tested(judgement, context, outcome.store),
        absent=scope.absent(judgement, outcome.store),
    )
    text = _headline(verdict, groups, outcome, suppressed, len(blocked))
    limits = summary.limits(verdict, context.run.profile) if not fails else ""
    untested = summary.gaps(verdict.gaps, len(judgement.nodes))
    return replace(verdict, headline="; ".join(filter(None, [text, limits, untested])))


def _judged(judgement: Judgement) -> bool:
    """Whether anything beside the logins, which come with every scan, was judged to be well or nearly so."""
    cells = (c for check, c in judgement.cells.items() if check not in LOGINS)
    return any(status in (Status.PASS, Status.WARN) for by_node in cells for status in by_node.values())


def _headline(
    verdict: Verdict,
    groups: Sequence[Group],
    outcome: Outcome,
    suppressed: Sequence[Suppressed],
    blocked: int,
) -> str:
    judgement, part = outcome.judgement, verdict.part
    by_status = Counter(group.status for group in groups)
    parts = []
    if outcome.ended_by != "end":
        word = "interrupted" if outcome.ended_by == "interrupt" else "stopped by the deadline"
        parts.append(f"{word} before everything was measured")
    logins = {status for login in LOGINS for status in judgement.cells.get(login, {}).values()}
    if logins == {Status.FAIL}:
        n = len(judgement.nodes)
        how = "logged in to" if LOGINS[0] in judgement.cells else "reached"
        parts.append(f"none of {n} nodes can be {how}" if n > 1 else f"the node cannot be {how}")
    elif n := by_status[Status.FAIL]:
        parts.append(f"{number(n, 'problem')} stop{'' if n > 1 else 's'} the launch")
    if n := by_status[Status.UNKNOWN]:
        parts.append(f"{number(n, 'question')} could not be answered")
    if n := by_status[Status.WARN]:
        parts.append(summary.risks_text(n, parts))
    passes = f"{verdict.counts.pass_} pass, {verdict.counts.skip} skip"
    if verdict.state == "ready" and not parts:
        checks = sum(Status.PASS in by_node.values() for by_node in judgement.cells.values())
        parts.append(summary.checks_pass(checks, len(judgement.nodes)))
    if verdict.state == "undecided" and not by_status[Status.FAIL]:
        parts.insert(0, "no problem proven")
    if suppressed:
        waits = f" (blocks {number(blocked, 'result')})" if blocked else ""
        parts.insert(0, f"{accepted.headline(suppressed)}{waits}")
    if missed := [gap for gap in verdict.gaps if gap.family in verdict.required]:
        parts.append(f"required but not tested: {scope.gap_names(missed)}")
    text, looked_at = ", ".join(parts), ""
    if part is not None:
        looked_at = summary.part_text(part)
        if verdict.state == "partial_pass":
            one_word = "passes" if part.checks == 1 else "pass"
            text = f"{looked_at}: {text or (passes if verdict.counts.skip else one_word)}"
            looked_at = ""
        else:
            looked_at = f"looked at {looked_at}"
    return "; ".join(filter(None, [text, looked_at]))
