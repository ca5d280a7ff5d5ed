"""Runs checks over facts: prerequisites, missing facts, passes and exceptions each get exactly one status."""

import contextlib
import math
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, islice
from types import MappingProxyType
from typing import Any

from netdoctor.check import DERIVED_FACTS, LOGINS, Check, Parameter
from netdoctor.engine.plugins import FOREIGN_CHECK_S, bounded, is_ours, valid
from netdoctor.errors import DeadlineReached
from netdoctor.facts.base import FactInfo, Missing, Why
from netdoctor.facts.expected import Expectations, RecordedExpectations
from netdoctor.memo import keeping
from netdoctor.model import (
    CLUSTER,
    CONFIG,
    CONTROL,
    CauseHint,
    Confidence,
    Finding,
    Status,
    nodes_of,
)
from netdoctor.store import NOT_COLLECTED, Store

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


@keeping()
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
    typed = store.cluster_fact("wanted")
    if isinstance(typed, Expectations) and not isinstance(typed, RecordedExpectations):
        store = Store(
            node=store.node, cluster={**store.cluster, "wanted": RecordedExpectations(wishes=typed.wishes)}
        )
    run = _Run(nodes=tuple(nodes), known=frozenset(nodes), store=store, result=result, ends=ends)
    # A plug-in that prints must not write into a report on stdout.
    ours = all(is_ours(check) for check in checks)
    with contextlib.nullcontext() if ours else contextlib.redirect_stdout(sys.stderr):
        for check in checks:
            started = time.perf_counter()
            _run_check(check, run)
            if check.expects:
                _put_unseen(check, run)
            result.durations_ms[check.id] = (time.perf_counter() - started) * 1000
    if judged is not None:
        _restrict(result, set(result.nodes))
    return result


@dataclass(frozen=True, slots=True)
class _Run:
    """What every check of one judgement shares. known: all node ids, for telling targets from nonsense.

    ends: as of judge(). derived: what has been derived from the facts so far, by type. held, absent,
    tables: what was found out so far of a check or a fact, see held_by(), without() and facts_of().
    """

    nodes: tuple[str, ...]
    known: frozenset[str]
    store: Store
    result: Judgement
    ends: float
    derived: dict[type, Any] = field(default_factory=dict)
    held: dict[str, dict[str, str]] = field(default_factory=dict)
    absent: dict[str, dict[str, Missing]] = field(default_factory=dict)
    tables: dict[tuple[str, tuple[str, ...]], Mapping[str, Any]] = field(default_factory=dict)

    def held_by(self, check_id: str) -> dict[str, str]:
        """Nodes on which whatever waits for this check is blocked, with the check whose failure it is."""
        if check_id not in self.held:
            roots = self.result.blocked_by.get(check_id, {})
            # An unknown login leaves nothing to look at either; other unknowns do not hold anything up.
            login = (Status.UNKNOWN,) if check_id in LOGINS else ()
            stop = (Status.FAIL, Status.BLOCKED, *login)
            cells = self.result.cells.get(check_id, {})
            found = self.nodes if any(status in stop for status in set(cells.values())) else ()
            self.held[check_id] = {n: roots.get(n, check_id) for n in found if cells.get(n) in stop}
        return self.held[check_id]

    def without(self, info: FactInfo) -> dict[str, Missing]:
        """Nodes that lack this fact, with the reason."""
        if info.group not in self.absent:
            whole = self.store.cluster_fact(info.group) if info.scope == "cluster" else None
            own = self.store.node.get(info.group, {})
            default = whole if info.scope == "cluster" else NOT_COLLECTED
            if isinstance(whole, Missing):
                found = dict.fromkeys(self.nodes, whole)
            else:
                got = ((node, own.get(node, default)) for node in self.nodes)
                found = {node: one for node, one in got if isinstance(one, Missing)}
            self.absent[info.group] = found
        return self.absent[info.group]

    def facts_of(self, group: str, nodes: Sequence[str]) -> Mapping[str, Any]:
        """The fact of each of these nodes that has it: one object for all checks, so that what is worked out
        of it can be kept."""
        key = (group, tuple(nodes))
        if key not in self.tables:
            self.tables[key] = MappingProxyType(self.store.present(group, nodes))
        return self.tables[key]


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
    blocked: dict[str, str] = {}
    for before in _prerequisites(check):
        for node, root in run.held_by(before).items():
            blocked.setdefault(node, root)
    result.blocked_by[check.id] = blocked
    cells.update(dict.fromkeys(blocked, Status.BLOCKED))
    missing = _missing(check, run)
    if missing:
        left = {node: missing[node] for node in run.nodes if node in missing and node not in blocked}
        _put_missing(check, left, cells, findings, result)
    usable: Sequence[str] = run.nodes
    if missing or blocked:
        out = missing.keys() | blocked.keys()
        usable = [node for node in run.nodes if node not in out]
    if not usable:
        return

    calls: list[Sequence[str]] = [[node] for node in usable] if check.scope == "node" else [usable]
    free = set(run.nodes) - set(blocked)
    trouble: list[tuple[Sequence[str], BaseException]] = []
    for nodes, answer in zip(calls, _answers(check, calls, run), strict=True):
        if isinstance(answer, BaseException):
            trouble.append((nodes, answer))
        elif not answer and check.scope == "node":
            cells[nodes[0]] = Status.PASS
        elif check.scope == "node" and len(answer) == 1 and _is_plain(answer[0], nodes[0]):
            _put(nodes, answer[0], check, cells, result)
            findings.append(answer[0])
        else:
            _settle(check, nodes, free, answer, cells, result)
            findings.extend(answer)
    blame = Blame(free)
    for finding in findings:
        # Others' facts may tell trouble of a node whose own are missing, or whose turn is over.
        for node in blame.anew(finding) if finding.status in _TROUBLE else ():
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


def _prerequisites(check: Check) -> tuple[str, ...]:
    """What the check names, and a login for whatever was asked of the node.

    Without it `--only rdma.rate` on a node that nobody can log in to would call the same trouble a second
    thing, because rdma.rate waits for rdma.port, and that one alone for the login.
    """
    asks = any(p.info.origin in ("agent", "measure") for p in check.needs)
    logins = LOGINS if asks and check.id not in LOGINS else ()
    return tuple(dict.fromkeys((*logins, *check.after)))


def _missing(check: Check, run: _Run) -> dict[str, Missing]:
    """Why this check cannot judge nodes; those that have every fact which it needs are left out."""
    worst: dict[str, Missing] = {}
    for parameter in check.needs:
        for node, value in run.without(parameter.info).items() if not parameter.optional else ():
            before = worst.get(node)
            if before is None or _weight(value.why) > _weight(before.why):
                worst[node] = value
    return worst


def _weight(why: Why) -> int:
    """Which of two reasons counts. What does not apply is no gap, whatever nobody looked at or got to."""
    if why is Why.NOT_APPLICABLE:
        return 2
    if why is Why.STOPPED:
        return 1
    return 0 if why.is_skip else 3


def _put_missing(
    check: Check,
    missing: Mapping[str, Missing],
    cells: dict[str, Status],
    findings: list[Finding],
    result: Judgement,
) -> None:
    reasons: dict[str, str] = {}
    gaps: dict[str, str] = {}
    for node, one in missing.items():
        if one.why.is_skip:
            cells[node] = Status.SKIP
            reasons[node] = one.detail
            if one.why is not Why.NOT_APPLICABLE:
                gaps[node] = one.detail.partition(": ")[0]
            continue
        cells[node] = Status.UNKNOWN
        findings.append(
            Finding(
                target=node,
                status=Status.UNKNOWN,
                summary=one.detail or one.why.value.replace("_", " "),
                cause=CauseHint(
                    key=f"{UNMEASURED}{one.why.value.replace('_', '-')}",
                    title=_UNMEASURED[one.why],
                    culprits=(node,),
                    confidence=Confidence.CERTAIN,
                ),
            )
        )
    if reasons:
        result.reasons[check.id] = reasons
    if gaps:
        result.gaps[check.id] = gaps


def _put_unseen(check: Check, run: _Run) -> None:
    """Make `unknown` of a node where something was expected by the user, and the check did not compare it."""
    typed = run.store.cluster_fact("wanted")
    if not isinstance(typed, RecordedExpectations):
        return
    cells, reasons = run.result.cells[check.id], run.result.reasons.get(check.id, {})
    free = [node for node in run.nodes if cells.get(node) is not Status.BLOCKED]
    for node, wish in typed.not_compared(check.expects, free):
        why = f": {reasons[node]}" if node in reasons else ""
        run.result.findings[check.id].append(
            Finding(
                target=node,
                status=Status.UNKNOWN,
                summary=f"{wish.name} {wish.text} is expected by {wish.place}, "
                f"and could not be compared{why}",
                expected=wish.text,
                expected_from=CONFIG,
                cause=CauseHint(
                    key="expected-unseen",
                    title="what is expected of {nodes} could not be compared",
                    culprits=(node,),
                ),
            )
        )
        if Status.UNKNOWN.rank > cells.get(node, Status.SKIP).rank:
            cells[node] = Status.UNKNOWN


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
    arguments = _arguments_for(check, run)

    def work() -> None:
        for nodes in calls:
            if time.monotonic() >= run.ends:
                run.result.stopped = run.result.stopped or "deadline"
                answers.append(DeadlineReached())
                continue
            try:
                answers.append(_ask(check, nodes, arguments(nodes), run))
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


def _ask(check: Check, nodes: Sequence[str], arguments: Mapping[str, Any], run: _Run) -> tuple[Finding, ...]:
    said = list(islice(check.function(**arguments), FINDINGS_AT_MOST + 1))
    if not said:
        return ()
    if len(said) > FINDINGS_AT_MOST:
        raise OverflowError(f"more than {FINDINGS_AT_MOST} findings")
    trusted: dict[int, CauseHint] = {}
    here = nodes[0] if check.scope == "node" else CLUSTER
    return tuple([valid(finding, here, run.known, trusted) for finding in said])


def _arguments_for(check: Check, run: _Run) -> Callable[[Sequence[str]], dict[str, Any]]:
    """What makes the arguments for the nodes of one call."""
    if check.scope != "node":
        return lambda nodes: _arguments(check.parameters, nodes, run)
    of_node = [p for p in check.parameters if p.info.scope == "node" and not p.all_nodes]
    tables = [(p.name, run.store.node.get(p.info.group, {})) for p in of_node]
    shared = [p for p in check.parameters if p not in of_node]
    alike: dict[str, Any] = {}

    def arguments(nodes: Sequence[str]) -> dict[str, Any]:
        (node,) = nodes
        if shared and not alike:
            alike.update(_arguments(shared, nodes, run))
        found = alike.copy()
        for name, table in tables:
            value = table.get(node)
            found[name] = None if isinstance(value, Missing) else value
        return found

    return arguments


def _arguments(parameters: Sequence[Parameter], nodes: Sequence[str], run: _Run) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for parameter in parameters:
        value: Any
        if parameter.info.origin == "derived":
            value = _derived(parameter.fact, run)
        elif parameter.all_nodes:
            value = run.facts_of(parameter.info.group, nodes)
            if not value and parameter.optional:
                value = None
        elif parameter.info.scope == "cluster":
            value = run.store.cluster_fact(parameter.info.group)
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
    blame = Blame(free)
    for finding in said:
        blamed = blame.anew(finding)
        for node in blamed:
            if node not in own or finding.status.rank > own[node].status.rank:
                own[node] = finding
        if (
            not blamed
            and not blame.known(finding)
            and is_about_all(finding)
            and (whole is None or _outranks(finding.status, whole.status))
        ):
            whole = finding
    if whole is not None and whole.status in _TROUBLE:
        rank = whole.status.rank
        own = {node: finding for node, finding in own.items() if finding.status.rank >= rank}
    cells.update(dict.fromkeys(nodes, Status.PASS))
    if whole is not None:
        _put([node for node in nodes if node not in own], whole, check, cells, result)
    inside = nodes if len(nodes) == 1 else set(nodes)
    for node, finding in own.items():
        if node not in inside:
            continue
        if finding.status is Status.SKIP or finding.gap is not None:
            _put((node,), finding, check, cells, result)
        else:
            cells[node] = finding.status


def _is_plain(finding: Finding, node: str) -> bool:
    """Whether it says something of this node and of nobody else, as nearly all that is said does."""
    return finding.target == node and finding.cause is None


def _put(
    nodes: Sequence[str], worst: Finding, check: Check, cells: dict[str, Status], result: Judgement
) -> None:
    for node in nodes:
        cells[node] = worst.status
    if worst.status is Status.SKIP:
        result.reasons.setdefault(check.id, {}).update(dict.fromkeys(nodes, worst.summary))
    if worst.status in (Status.SKIP, Status.PASS) and worst.gap is not None:
        result.gaps.setdefault(check.id, {}).update(dict.fromkeys(nodes, worst.gap))


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
    if len(own) == 1:
        return [finding.target] if finding.target in inside else []
    culprits: dict[str, None] = {}
    if finding.cause is not None:
        for culprit in finding.cause.culprits:
            culprits.update(dict.fromkeys(nodes_of(culprit)))
    return [n for n in culprits if n in inside] or [n for n in own if n in inside]


class Blame:
    """blamed_nodes() of many findings: what thousands of pairs say of the same culprits is said once."""

    def __init__(self, inside: Set[str]) -> None:
        self._inside = inside
        self._done: dict[tuple[int, Status], CauseHint] = {}

    def known(self, finding: Finding) -> bool:
        """Whether a finding of this status with this very hint has coloured its culprits."""
        return finding.cause is not None and (id(finding.cause), finding.status) in self._done

    def anew(self, finding: Finding) -> list[str]:
        """The nodes that it colours, and no earlier one of its status and with its hint has coloured."""
        if len(nodes_of(finding.target)) == 1:
            return [finding.target] if finding.target in self._inside else []
        if finding.cause is None:
            return blamed_nodes(finding, self._inside)
        if self.known(finding):
            return []
        found = blamed_nodes(finding, self._inside)
        # Where no culprit is inside, the ends of each pair carry it.
        if found and not self._inside.isdisjoint(_culprit_nodes(finding.cause)):
            self._done[id(finding.cause), finding.status] = finding.cause
        return found


def _culprit_nodes(hint: CauseHint) -> Iterator[str]:
    return (node for culprit in hint.culprits for node in nodes_of(culprit))


def count(cells: Mapping[str, Mapping[str, Status]]) -> dict[Status, int]:
    """Cells by status, every status present."""
    found = Counter(chain.from_iterable(row.values() for row in cells.values()))
    return {status: found[status] for status in Status}


def left_open(judgement: Judgement, families: Container[str]) -> set[str]:
    """Nodes with a cell that leaves the verdict open: an unknown of a required check does, and in `families`
    any unknown and any gap."""
    found: set[str] = set()
    for check in judgement.checks:
        cells, asked = judgement.cells[check.id], check.family in families
        if (check.required or asked) and Status.UNKNOWN in cells.values():
            found.update(node for node, status in cells.items() if status is Status.UNKNOWN)
        if asked:
            found.update(judgement.gaps.get(check.id, ()))
    return found


def ready_nodes(
    judgement: Judgement, families: Container[str] = ()
) -> tuple[list[str], list[str], list[str]]:
    """(healthy, unhealthy, undecided): no trouble; a fail or blocked; no fail, but something left open.

    families: as of left_open().
    """
    failed: set[str] = set()
    stopped: set[str] = set()
    for check in judgement.checks:
        cells = judgement.cells[check.id]
        for status, nodes in ((Status.FAIL, failed), (Status.BLOCKED, stopped)):
            if status in cells.values():
                nodes.update(node for node, one in cells.items() if one is status)
    undecided = left_open(judgement, families) - failed
    unhealthy = (failed | stopped) - undecided
    return (
        [node for node in judgement.nodes if node not in undecided and node not in unhealthy],
        [node for node in judgement.nodes if node in unhealthy],
        [node for node in judgement.nodes if node in undecided],
    )
