"""Runs checks over facts: prerequisites, missing facts, passes and exceptions each get exactly one status."""

import contextlib
import math
import sys
import time
import traceback
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from netdoctor.check import DERIVED_FACTS, LOGINS, Check, Parameter
from netdoctor.engine.plugins import FOREIGN_CHECK_S, bounded, is_ours, valid
from netdoctor.errors import DeadlineReached
from netdoctor.facts.base import Missing, Why
from netdoctor.model import (
    CLUSTER,
    CONTROL,
    CauseHint,
    Confidence,
    Finding,
    Status,
    nodes_of,
)
from netdoctor.store import Store

# A pair check over 1,000 nodes and 64 peers has 64,000 things to say at the very worst.
FINDINGS_AT_MOST = 200_000


@dataclass(slots=True)
class Judgement:
    """What the checks said.

    cells[check id][node] is the status of every check on every node, complete by construction.
    findings[check id] are all findings, also those that end as one result.
    reasons[check id][node] says why a cell is `skip`; gaps[check id][node] is there where the check could
    have judged all the same, and says in few words why it did not.
    blocked_by[check id][node] is the check whose failure made this one pointless there.
    pairs[check id][``a->b``][path] is the worst that was said of a directed pair there, also of one that
    nobody asked about; without the check where that gave no judgement, because it could not run or does not
    apply. path: as in Finding.
    stopped: what ended the judging, or the wait for a plug-in's check: ``interrupt``, ``deadline`` or None.
    tracebacks: one text per check that crashed, its first line names the check and the nodes.
    """

    nodes: tuple[str, ...]
    checks: tuple[Check, ...]
    cells: dict[str, dict[str, Status]] = field(default_factory=dict)
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    blocked_by: dict[str, dict[str, str]] = field(default_factory=dict)
    pairs: dict[str, dict[str, dict[str, Status]]] = field(default_factory=dict)
    reasons: dict[str, dict[str, str]] = field(default_factory=dict)
    gaps: dict[str, dict[str, str]] = field(default_factory=dict)
    durations_ms: dict[str, float] = field(default_factory=dict)
    tracebacks: list[str] = field(default_factory=list)
    stopped: str | None = None


def judge(
    checks: Sequence[Check],
    nodes: Sequence[str],
    store: Store,
    judged: Iterable[str] | None = None,
    ends: float = math.inf,
) -> Judgement:
    """Run checks in the order given (prerequisites first) over the facts in `store`.

    `judged` restricts which nodes get statuses; checks over all nodes still see every node's facts.
    One exception in a check is `unknown` for that check alone. ends: when no check is asked any more, on the
    clock of time.monotonic(); what was not judged by then is `unknown`, and the judgement stopped.
    """
    wanted = set(nodes if judged is None else judged)
    result = Judgement(nodes=tuple(n for n in nodes if n in wanted), checks=tuple(checks))
    run = _Run(nodes=tuple(nodes), known=frozenset(nodes), store=store, result=result, ends=ends)
    # A plug-in that prints must not write into a report on stdout.
    ours = all(is_ours(check) for check in checks)
    with contextlib.nullcontext() if ours else contextlib.redirect_stdout(sys.stderr):
        for check in checks:
            started = time.perf_counter()
            _run_check(check, run)
            result.durations_ms[check.id] = (time.perf_counter() - started) * 1000
    if judged is not None:
        _restrict(result, set(result.nodes))
    return result


@dataclass(frozen=True, slots=True)
class _Run:
    """What every check of one judgement shares. known: all node ids, for telling targets from nonsense.

    ends: as of judge(). derived: what has been derived from the facts so far, by type.
    """

    nodes: tuple[str, ...]
    known: frozenset[str]
    store: Store
    result: Judgement
    ends: float
    derived: dict[type, Any] = field(default_factory=dict)


def _restrict(result: Judgement, shown: set[str]) -> None:
    """Keep what concerns the shown nodes: their cells, and findings that do not blame others alone."""
    by_check: list[dict[str, dict[str, Any]]] = [
        result.cells, result.blocked_by, result.reasons, result.gaps,
    ]  # fmt: skip
    for tables in by_check:
        for by_node in tables.values():
            for node in [n for n in by_node if n not in shown]:
                del by_node[node]
    for check_id, findings in result.findings.items():
        result.findings[check_id] = [f for f in findings if _concerns(f, shown)]


def _concerns(finding: Finding, shown: set[str]) -> bool:
    own = nodes_of(finding.target)
    if own and not shown & set(own):
        return False
    if len(own) == 1 or finding.cause is None or finding.cause.confidence is Confidence.SUSPECTED:
        return True
    # A pair whose trouble is known to be the other end's: that node was not asked about.
    culprits = {n for culprit in finding.cause.culprits for n in nodes_of(culprit)}
    return not culprits or bool(culprits & shown)


def _run_check(check: Check, run: _Run) -> None:
    result = run.result
    cells: dict[str, Status] = {}
    findings: list[Finding] = []
    result.cells[check.id] = cells
    result.findings[check.id] = findings
    blocked = _blocked(check, run.nodes, result)
    result.blocked_by[check.id] = blocked
    for node in blocked:
        cells[node] = Status.BLOCKED

    usable: list[str] = []
    for node in run.nodes:
        if node in blocked:
            continue
        missing = _missing(check, node, run.store)
        if missing is None:
            usable.append(node)
        else:
            _put_missing(check, node, missing, cells, findings, result)
    if not usable:
        return

    calls = [[node] for node in usable] if check.scope == "node" else [usable]
    free = set(run.nodes) - set(blocked)
    trouble: list[tuple[list[str], BaseException]] = []
    for nodes, answer in zip(calls, _answers(check, calls, run), strict=True):
        if isinstance(answer, BaseException):
            trouble.append((nodes, answer))
        else:
            _settle(check, nodes, free, answer, cells, result)
            findings.extend(answer)
    for finding in findings:
        # Others' facts may tell trouble of a node whose own are missing, or whose turn is over.
        for node in blamed_nodes(finding, free) if finding.status in _TROUBLE else ():
            if finding.status.rank > cells.get(node, Status.SKIP).rank:
                cells[node] = finding.status
    if trouble:
        _put_trouble(check, trouble, cells, findings, result)
    elif not any(finding.target == CLUSTER and finding.status is Status.SKIP for finding in findings):
        result.pairs[check.id] = _worst_by_pair(findings)


def _worst_by_pair(findings: Iterable[Finding]) -> dict[str, dict[str, Status]]:
    worst: dict[str, dict[str, Status]] = {}
    for finding in findings:
        about = finding.pairs or ((finding.target,) if "->" in finding.target else ())
        for name in about:
            known = worst.setdefault(name, {})
            if finding.path not in known or finding.status.rank > known[finding.path].rank:
                known[finding.path] = finding.status
    return worst


def _blocked(check: Check, nodes: Sequence[str], result: Judgement) -> dict[str, str]:
    blocked: dict[str, str] = {}
    for before in _prerequisites(check):
        cells = result.cells.get(before, {})
        roots = result.blocked_by.get(before, {})
        for node in nodes:
            status = cells.get(node)
            # An unknown login leaves nothing to look at either; other unknowns do not hold anything up.
            held = status in (Status.FAIL, Status.BLOCKED) or (before in LOGINS and status is Status.UNKNOWN)
            if held and node not in blocked:
                blocked[node] = roots.get(node, before)
    return blocked


def _prerequisites(check: Check) -> tuple[str, ...]:
    """What the check names, and a login for whatever was asked of the node.

    Without it `--only rdma.rate` on a node that nobody can log in to would call the same trouble a second
    thing, because rdma.rate waits for rdma.port, and that one alone for the login.
    """
    asks = any(p.info.origin in ("agent", "measure") for p in check.needs)
    logins = LOGINS if asks and check.id not in LOGINS else ()
    return tuple(dict.fromkeys((*logins, *check.after)))


def _missing(check: Check, node: str, store: Store) -> Missing | None:
    """Why this check cannot judge this node, or None when every fact it needs is there."""
    worst: Missing | None = None
    for parameter in check.needs:
        if parameter.optional:
            continue
        value = _lookup(parameter, node, store)
        if not isinstance(value, Missing):
            continue
        if not value.why.is_skip:
            return value
        # What does not apply is no gap, whatever else was not collected.
        if worst is None or worst.why is not Why.NOT_APPLICABLE:
            worst = value
    return worst


def _lookup(parameter: Parameter, node: str, store: Store) -> Any:
    if parameter.info.scope == "cluster":
        return store.part(parameter.info.group, node)
    return store.get(parameter.info.group, node)


def _put_missing(
    check: Check,
    node: str,
    missing: Missing,
    cells: dict[str, Status],
    findings: list[Finding],
    result: Judgement,
) -> None:
    if missing.why.is_skip:
        cells[node] = Status.SKIP
        result.reasons.setdefault(check.id, {})[node] = missing.detail
        if missing.why is not Why.NOT_APPLICABLE:
            result.gaps.setdefault(check.id, {})[node] = missing.detail.partition(": ")[0]
        return
    cells[node] = Status.UNKNOWN
    findings.append(
        Finding(
            target=node,
            status=Status.UNKNOWN,
            summary=missing.detail or missing.why.value.replace("_", " "),
            cause=CauseHint(
                key=f"{UNMEASURED}{missing.why.value.replace('_', '-')}",
                title=_UNMEASURED[missing.why],
                culprits=(node,),
                confidence=Confidence.CERTAIN,
            ),
        )
    )


UNMEASURED = "unmeasured-"  # keys of causes that say why a fact is missing
_UNMEASURED = {
    Why.NO_PERMISSION: "netdoctor was not allowed to look at everything on {nodes}",
    Why.TIMED_OUT: "{nodes} did not answer some questions in time",
    Why.UNPARSABLE: "netdoctor could not read some answers from {nodes}",
    Why.FAILED: "netdoctor could not measure everything on {nodes}",
    Why.LOST: "netdoctor lost its connection to {nodes}",
    Why.JUMP: "netdoctor lost the jump host on the way to {nodes}",
    Why.STOPPED: "the scan ended before {nodes} {was} fully examined",
    Why.NOT_APPLICABLE: "does not apply to {nodes}",
    Why.NOT_COLLECTED: "not collected on {nodes}",
    Why.NOT_EXAMINED: "not examined on {nodes}",
}


def _answers(
    check: Check, calls: Sequence[Sequence[str]], run: _Run
) -> list[tuple[Finding, ...] | BaseException]:
    """What the check says for each of `calls`, or what it raised.

    A plug-in's check runs in a thread of its own, so that one that hangs is left behind after a while.
    What it leaves unanswered is a TimeoutError, or the interrupt that ended the waiting.
    """
    answers: list[tuple[Finding, ...] | BaseException] = []

    def work() -> None:
        for nodes in calls:
            if time.monotonic() >= run.ends:
                run.result.stopped = run.result.stopped or "deadline"
                answers.append(DeadlineReached())
                continue
            try:
                answers.append(_ask(check, nodes, run))
            except (KeyboardInterrupt, DeadlineReached) as error:
                if ours:  # they are meant for the scan, which judges again
                    raise
                answers.append(RuntimeError(f"raised {type(error).__name__}"))
            except BaseException as error:  # SystemExit too: one check's defect must not end the scan
                answers.append(error)

    ours = is_ours(check)
    if ours:
        work()
        return answers
    late: BaseException
    try:
        late = TimeoutError(f"no answer within {FOREIGN_CHECK_S:g} s")
        bounded(work, FOREIGN_CHECK_S)
    except KeyboardInterrupt as error:
        run.result.stopped, late = "interrupt", error
    except DeadlineReached as error:
        run.result.stopped, late = run.result.stopped or "deadline", error
    except RuntimeError as error:  # this machine starts no more threads
        late = error
    done = answers[: len(calls)]  # a copy: the thread may still be running
    return done + [late] * (len(calls) - len(done))


def _ask(check: Check, nodes: Sequence[str], run: _Run) -> tuple[Finding, ...]:
    arguments = _arguments(check.parameters, nodes, run)
    trusted: dict[int, CauseHint] = {}
    said = [
        valid(finding, nodes[0] if check.scope == "node" else CLUSTER, run.known, trusted)
        for finding in islice(check.function(**arguments), FINDINGS_AT_MOST + 1)
    ]
    if len(said) > FINDINGS_AT_MOST:
        raise OverflowError(f"more than {FINDINGS_AT_MOST} findings")
    return tuple(said)


def _arguments(parameters: Sequence[Parameter], nodes: Sequence[str], run: _Run) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for parameter in parameters:
        value: Any
        if parameter.info.origin == "derived":
            value = _derived(parameter.fact, run)
        elif parameter.all_nodes:
            value = run.store.present(parameter.info.group, nodes)
            if not value and parameter.optional:
                value = None
        elif parameter.info.scope == "cluster":
            value = run.store.whole(parameter.info.group)
        else:
            value = run.store.get(parameter.info.group, nodes[0])
        arguments[parameter.name] = None if isinstance(value, Missing) else value
    return arguments


def _derived(fact: type, run: _Run) -> Any:
    """What checks derive from facts of all nodes, worked out for the first that asks and kept for the others.

    None where a fact that it needs is missing altogether; the check's own needs then say why.
    """
    if fact not in run.derived:
        rule = DERIVED_FACTS[fact]
        arguments = _arguments(rule.parameters, run.nodes, run)
        gap = any(arguments[p.name] is None and not p.optional for p in rule.parameters)
        run.derived[fact] = None if gap else rule.function(**arguments)
    return run.derived[fact]


def _put_trouble(
    check: Check,
    trouble: Sequence[tuple[Sequence[str], BaseException]],
    cells: dict[str, Status],
    findings: list[Finding],
    result: Judgement,
) -> None:
    """Make `unknown` of a check that crashed, hung or was stopped: one cause that blames no node."""
    owner = "netdoctor's own check" if is_ours(check) else "the plug-in's check"
    crashed = [item for item in trouble if not isinstance(item[1], KeyboardInterrupt | DeadlineReached)]
    if crashed:
        names = [node for nodes, _ in crashed for node in nodes]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        text = "".join(traceback.format_exception(crashed[0][1]))
        result.tracebacks.append(f"check {check.id} crashed on {', '.join(names[:3])}{more}\n{text}")
    for nodes, error in trouble:
        key, title = f"check-crashed-{check.id}", f"{owner} {check.id} crashed; the nodes are not to blame"
        summary = f"check {check.id} ended with {type(error).__name__}: {_text_of(error)}"
        if isinstance(error, KeyboardInterrupt | DeadlineReached):
            key, title = f"{UNMEASURED}stopped", _UNMEASURED[Why.STOPPED]
            summary = f"check {check.id} was stopped before it had judged"
        elif isinstance(error, TimeoutError):
            key, title = f"check-hung-{check.id}", f"{owner} {check.id} hung; the nodes are not to blame"
            summary = f"check {check.id} gave {_text_of(error)}"
        stopped = key.startswith(UNMEASURED)
        for node in nodes:
            cells[node] = Status.UNKNOWN
        findings.append(
            Finding(
                target=nodes[0] if check.scope == "node" else CLUSTER,
                status=Status.UNKNOWN,
                summary=summary,
                cause=CauseHint(key=key, title=title, culprits=tuple(nodes) if stopped else (CONTROL,)),
            )
        )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)[:400]
    except Exception:  # a plug-in's __str__
        return "(its message could not be read)"


def _settle(
    check: Check,
    nodes: Sequence[str],
    free: Set[str],
    said: Sequence[Finding],
    cells: dict[str, Status],
    result: Judgement,
) -> None:
    """Give each node of a finished check its one status: the worst that was said about it, else a pass.

    What is said of a node itself outranks what is said of the cluster, unless that is worse. free: all nodes
    that are not blocked.
    """
    own: dict[str, Finding] = {}
    whole: Finding | None = None
    for finding in said:
        blamed = blamed_nodes(finding, free)
        for node in blamed:
            if node not in own or finding.status.rank > own[node].status.rank:
                own[node] = finding
        if (
            not blamed
            and is_about_all(finding)
            and (whole is None or _outranks(finding.status, whole.status))
        ):
            whole = finding
    for node in nodes:
        worst = own.get(node) or whole
        if worst is None:
            cells[node] = Status.PASS
            continue
        if whole is not None and whole.status in _TROUBLE and whole.status.rank > worst.status.rank:
            worst = whole
        cells[node] = worst.status
        if worst.status is Status.SKIP:
            result.reasons.setdefault(check.id, {})[node] = worst.summary
        if worst.status in (Status.SKIP, Status.PASS) and worst.gap is not None:
            result.gaps.setdefault(check.id, {})[node] = worst.gap


_TROUBLE = (Status.WARN, Status.UNKNOWN, Status.FAIL)


def _outranks(status: Status, before: Status) -> bool:
    # "does not apply" for the cluster outranks a pass, but no trouble.
    order = (Status.PASS, Status.SKIP, Status.WARN, Status.UNKNOWN, Status.FAIL)
    return order.index(status) > order.index(before)


def is_about_all(finding: Finding) -> bool:
    """It names no node: of the cluster it holds for every node, of the control host only an unknown does."""
    culprits = finding.cause.culprits if finding.cause is not None else (finding.target,)
    if nodes_of(finding.target) or any(nodes_of(culprit) for culprit in culprits):
        return False
    return finding.status is Status.UNKNOWN or (finding.target == CLUSTER and set(culprits) != {CONTROL})


def blamed_nodes(finding: Finding, inside: Set[str]) -> list[str]:
    """Nodes whose cell a finding colours: its own node, or the culprits of a pair or cluster finding.

    When none of the culprits was judged here (its own cell is blocked), the ends of the pair carry it: no
    trouble is without a cell.
    """
    own = nodes_of(finding.target)
    culprits: dict[str, None] = {}
    if len(own) != 1 and finding.cause is not None:
        for culprit in finding.cause.culprits:
            culprits.update(dict.fromkeys(nodes_of(culprit)))
    return [n for n in culprits if n in inside] or [n for n in own if n in inside]


def count(cells: Mapping[str, Mapping[str, Status]]) -> dict[Status, int]:
    """Cells by status, every status present."""
    counts = dict.fromkeys(Status, 0)
    for row in cells.values():
        for status in row.values():
            counts[status] += 1
    return counts


def is_open(judgement: Judgement, check: Check, node: str, families: Container[str]) -> bool:
    """Whether this cell leaves the verdict open: an unknown of a required check does, and in `families` any
    unknown and any gap."""
    if judgement.cells[check.id].get(node) is Status.UNKNOWN:
        return check.required or check.family in families
    return check.family in families and node in judgement.gaps.get(check.id, {})


def ready_nodes(
    judgement: Judgement, families: Container[str] = ()
) -> tuple[list[str], list[str], list[str]]:
    """(healthy, unhealthy, undecided): no trouble; a fail or blocked; no fail, but something left open.

    families: as of is_open().
    """
    healthy: list[str] = []
    unhealthy: list[str] = []
    undecided: list[str] = []
    for node in judgement.nodes:
        statuses = {judgement.cells[check.id].get(node, Status.SKIP) for check in judgement.checks}
        left_open = any(is_open(judgement, check, node, families) for check in judgement.checks)
        if left_open and Status.FAIL not in statuses:
            undecided.append(node)
        elif statuses & {Status.FAIL, Status.BLOCKED}:
            unhealthy.append(node)
        else:
            healthy.append(node)
    return healthy, unhealthy, undecided
