"""Runs checks over facts: prerequisites, missing facts, passes and exceptions each get exactly one status."""

import contextlib
import math
import sys
import time
import traceback
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
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
from netdoctor.model import CLUSTER, CONFIG, CONTROL, Cause, Confidence, Finding, Status, nodes_of, unknown
from netdoctor.store import Store

# A pair check over 1,000 nodes and 64 peers has 64,000 things to say at the very worst.
FINDINGS_AT_MOST = 200_000
PROBLEMS = (Status.FAIL, Status.UNKNOWN, Status.WARN)


@dataclass(slots=True)
class Judgement:
    """What the checks said."""

    nodes: tuple[str, ...]
    checks: tuple[Check, ...]
    # cells[check id][node]: the status of every check on every node, complete by construction.
    cells: dict[str, dict[str, Status]] = field(default_factory=dict)
    # All findings of a check, also those that end as one result.
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    # blocked_by[check id][node]: the check whose failure made this one pointless there.
    blocked_by: dict[str, dict[str, str]] = field(default_factory=dict)
    # pairs[check id][``a->b``][path, as in Finding]: the worst that was said of a directed pair there, also
    # of one that nobody asked about; without a check that gave no judgement.
    pairs: dict[str, dict[str, dict[str, Status]]] = field(default_factory=dict)
    # reasons[check id][node]: why a cell is `skip`. gaps: where the check could have judged all the same, in
    # few words why it did not.
    reasons: dict[str, dict[str, str]] = field(default_factory=dict)
    gaps: dict[str, dict[str, str]] = field(default_factory=dict)
    durations_ms: dict[str, float] = field(default_factory=dict)
    # One text a check that crashed; its first line names the check and the nodes.
    tracebacks: list[str] = field(default_factory=list)
    # What ended the judging, or the wait for a plug-in's check: ``interrupt``, ``deadline`` or None.
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
    selected = set(nodes if judged is None else judged)
    result = Judgement(nodes=tuple(n for n in nodes if n in selected), checks=tuple(checks))
    expected = store.cluster_fact("wanted")
    if isinstance(expected, Expectations) and not isinstance(expected, RecordedExpectations):
        store = Store(
            node=store.node, cluster={**store.cluster, "wanted": RecordedExpectations(wishes=expected.wishes)}
        )
    run = _Run(nodes=tuple(nodes), known=frozenset(nodes), store=store, result=result, ends=ends)
    # A plug-in that prints must not write into a report on stdout.
    ours = all(is_ours(check) for check in checks)
    with contextlib.nullcontext() if ours else contextlib.redirect_stdout(sys.stderr):
        for check in checks:
            started = time.perf_counter()
            _CheckRun(check, run).judge()
            result.durations_ms[check.id] = (time.perf_counter() - started) * 1000
    if judged is not None:
        _restrict(result, set(result.nodes))
    return result


@dataclass(frozen=True, slots=True)
class _Run:
    """What every check of one judgement shares, and what was found out so far of a check or a fact."""

    nodes: tuple[str, ...]
    known: frozenset[str]  # all node ids, for telling targets from nonsense
    store: Store
    result: Judgement
    ends: float  # as of judge()
    derived: dict[type, Any] = field(default_factory=dict)
    blocking: dict[str, dict[str, str]] = field(default_factory=dict)
    absent: dict[str, dict[str, Missing]] = field(default_factory=dict)
    tables: dict[tuple[str, tuple[str, ...]], Mapping[str, Any]] = field(default_factory=dict)

    def blocked_by(self, check_id: str) -> dict[str, str]:
        """Nodes on which whatever waits for this check is blocked, with the check whose failure it is."""
        if check_id not in self.blocking:
            roots = self.result.blocked_by.get(check_id, {})
            # An unknown login leaves nothing to look at either; other unknowns do not block anything.
            login = (Status.UNKNOWN,) if check_id in LOGINS else ()
            stop = (Status.FAIL, Status.BLOCKED, *login)
            cells = self.result.cells.get(check_id, {})
            self.blocking[check_id] = {n: roots.get(n, check_id) for n in self.nodes if cells.get(n) in stop}
        return self.blocking[check_id]

    def without(self, info: FactInfo) -> dict[str, Missing]:
        """Nodes that lack this fact, with the reason."""
        if info.group not in self.absent:
            part = self.store.part if info.scope == "cluster" else self.store.get
            facts = ((node, part(info.group, node)) for node in self.nodes)
            self.absent[info.group] = {node: one for node, one in facts if isinstance(one, Missing)}
        return self.absent[info.group]

    def facts_of(self, group: str, nodes: Sequence[str]) -> Mapping[str, Any]:
        """The fact of each of these nodes that has it: one object for all checks, so that what is worked out
        of it can be kept."""
        key = (group, tuple(nodes))
        if key not in self.tables:
            self.tables[key] = MappingProxyType(self.store.present(group, nodes))
        return self.tables[key]


def _restrict(result: Judgement, selected: set[str]) -> None:
    """Keep what concerns the selected nodes: their cells, and findings that do not blame others alone."""
    by_check: list[dict[str, dict[str, Any]]] = [
        result.cells, result.blocked_by, result.reasons, result.gaps,
    ]  # fmt: skip
    for tables in by_check:
        for by_node in tables.values():
            for node in [n for n in by_node if n not in selected]:
                del by_node[node]
    for check_id, findings in result.findings.items():
        result.findings[check_id] = [f for f in findings if _concerns(f, selected)]


def _concerns(finding: Finding, selected: set[str]) -> bool:
    ends = nodes_of(finding.target)
    if ends and not selected & set(ends):
        return False
    if len(ends) == 1 or finding.cause is None or finding.cause.confidence is Confidence.SUSPECTED:
        return True
    # A pair whose problem is known to be the other end's: that node was not selected.
    culprits = set(_culprit_nodes(finding.cause))
    return not culprits or bool(culprits & selected)


class _CheckRun:
    """One check on its way through a judgement: what is blocked, what is missing, what it answers.

    The rows of the judgement that belong to the check are filled in place.
    """

    def __init__(self, check: Check, run: _Run) -> None:
        self.check, self.run, self.result = check, run, run.result
        self.cells: dict[str, Status] = {}
        self.findings: list[Finding] = []
        self.blocked: dict[str, str] = {}  # node: the check whose failure blocks it
        self.result.cells[check.id] = self.cells
        self.result.findings[check.id] = self.findings
        self.result.blocked_by[check.id] = self.blocked

    def judge(self) -> None:
        for before in _prerequisites(self.check):
            for node, root in self.run.blocked_by(before).items():
                self.blocked.setdefault(node, root)
        self.cells.update(dict.fromkeys(self.blocked, Status.BLOCKED))
        missing = _missing(self.check, self.run)
        for node in self.run.nodes if missing else ():
            if node in missing and node not in self.blocked:
                self.put_missing(node, missing[node])
        if usable := [n for n in self.run.nodes if n not in missing and n not in self.blocked]:
            self.ask(usable)
        if self.check.expects:
            self.put_not_compared()

    def ask(self, usable: Sequence[str]) -> None:
        """Call the check for these nodes, and give each of them its status."""
        calls = [[node] for node in usable] if self.check.scope == "node" else [usable]
        free = set(self.run.nodes) - set(self.blocked)
        failures: list[tuple[Sequence[str], BaseException]] = []
        for nodes, answer in zip(calls, _answers(self.check, calls, self.run), strict=True):
            if isinstance(answer, BaseException):
                failures.append((nodes, answer))
            else:
                self.resolve(nodes, free, answer)
                self.findings.extend(answer)
        attribution = Attribution(free)
        for finding in self.findings:
            # Others' facts may tell of a problem of a node whose own are missing, or whose turn is over.
            for node in attribution.new_nodes(finding) if finding.status in PROBLEMS else ():
                if finding.status.rank > self.cells.get(node, Status.SKIP).rank:
                    self.cells[node] = finding.status
        if failures:
            self.put_failures(failures)
        elif not any(one.target == CLUSTER and one.status is Status.SKIP for one in self.findings):
            self.result.pairs[self.check.id] = _worst_by_pair(self.findings)

    def resolve(self, nodes: Sequence[str], free: Set[str], answer: Sequence[Finding]) -> None:
        """Give each node its one status: the worst that was said about it, else a pass.

        What is said of a node itself outranks what is said of the cluster, unless that is worse. free: all
        nodes that are not blocked.
        """
        self.cells.update(dict.fromkeys(nodes, Status.PASS))
        if not answer:
            return
        by_node: dict[str, Finding] = {}
        of_all: Finding | None = None
        attribution = Attribution(free)
        for finding in answer:
            attributed = attribution.new_nodes(finding)
            for node in attributed:
                if node not in by_node or finding.status.rank > by_node[node].status.rank:
                    by_node[node] = finding
            if (
                not attributed
                and not attribution.has(finding)
                and is_about_all(finding)
                and (of_all is None or _outranks(finding.status, of_all.status))
            ):
                of_all = finding
        if of_all is not None:
            rank = of_all.status.rank if of_all.status in PROBLEMS else 0
            by_node = {node: one for node, one in by_node.items() if one.status.rank >= rank}
            self.put([node for node in nodes if node not in by_node], of_all)
        judged = set(nodes)
        for node, finding in by_node.items():
            if node in judged:
                self.put([node], finding)

    def put(self, nodes: Sequence[str], worst: Finding) -> None:
        self.cells.update(dict.fromkeys(nodes, worst.status))
        if worst.status is Status.SKIP:
            self.result.reasons.setdefault(self.check.id, {}).update(dict.fromkeys(nodes, worst.summary))
        if worst.status in (Status.SKIP, Status.PASS) and worst.gap is not None:
            self.result.gaps.setdefault(self.check.id, {}).update(dict.fromkeys(nodes, worst.gap))

    def put_missing(self, node: str, missing: Missing) -> None:
        """Make `skip` or `unknown` of a node that lacks a fact."""
        text, why = missing.detail, missing.why
        if why.is_skip:
            self.cells[node] = Status.SKIP
            self.result.reasons.setdefault(self.check.id, {})[node] = text
            if why is not Why.NOT_APPLICABLE:
                self.result.gaps.setdefault(self.check.id, {})[node] = text.partition(": ")[0]
            return
        self.cells[node] = Status.UNKNOWN
        key = f"{UNMEASURED}{why.value.replace('_', '-')}"
        hint = Cause(key=key, title=_UNMEASURED[why], culprits=(node,))
        self.findings.append(unknown(node, text or why.value.replace("_", " "), cause=hint))

    def put_not_compared(self) -> None:
        """Make `unknown` of a node where the user expects something, and the check did not compare it."""
        expected = self.run.store.cluster_fact("wanted")
        if not isinstance(expected, RecordedExpectations):
            return
        reasons = self.result.reasons.get(self.check.id, {})
        free = [node for node in self.run.nodes if self.cells.get(node) is not Status.BLOCKED]
        for node, one in expected.not_compared(self.check.expects, free):
            why = f": {reasons[node]}" if node in reasons else ""
            title = "what is expected of {nodes} could not be compared"
            self.findings.append(
                unknown(
                    node,
                    f"{one.name} {one.text} is expected by {one.place}, and could not be compared{why}",
                    expected=one.text,
                    expected_from=CONFIG,
                    cause=Cause(key="expected-unseen", title=title, culprits=(node,)),
                )
            )
            if Status.UNKNOWN.rank > self.cells.get(node, Status.SKIP).rank:
                self.cells[node] = Status.UNKNOWN

    def put_failures(self, failures: Sequence[tuple[Sequence[str], BaseException]]) -> None:
        """Make `unknown` of a check that crashed, hung or was stopped: one cause that blames no node."""
        name = self.check.id
        owner = "netdoctor's own check" if is_ours(self.check) else "the plug-in's check"
        crashed = [item for item in failures if not isinstance(item[1], KeyboardInterrupt | DeadlineReached)]
        if crashed:
            names = [node for nodes, _ in crashed for node in nodes]
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            text = "".join(traceback.format_exception(crashed[0][1]))
            self.result.tracebacks.append(f"check {name} crashed on {', '.join(names[:3])}{more}\n{text}")
        for nodes, error in failures:
            culprits: Sequence[str] = (CONTROL,)
            if isinstance(error, KeyboardInterrupt | DeadlineReached):
                key, title, culprits = f"{UNMEASURED}stopped", _UNMEASURED[Why.STOPPED], nodes
                summary = f"check {name} was stopped before it had judged"
            elif isinstance(error, TimeoutError):
                key, title = f"check-hung-{name}", f"{owner} {name} hung; this is not a fault of the nodes"
                summary = f"check {name} gave {_text_of(error)}"
            else:
                key, title = (
                    f"check-crashed-{name}",
                    f"{owner} {name} crashed; this is not a fault of the nodes",
                )
                summary = f"check {name} ended with {type(error).__name__}: {_text_of(error)}"
            self.cells.update(dict.fromkeys(nodes, Status.UNKNOWN))
            target = nodes[0] if self.check.scope == "node" else CLUSTER
            hint = Cause(key=key, title=title, culprits=tuple(culprits))
            self.findings.append(unknown(target, summary, cause=hint))


def _worst_by_pair(findings: Iterable[Finding]) -> dict[str, dict[str, Status]]:
    worst: dict[str, dict[str, Status]] = {}
    for finding in findings:
        for name in finding.pairs or ((finding.target,) if "->" in finding.target else ()):
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


UNMEASURED = "unmeasured-"  # keys of causes that say why a fact is missing
_UNMEASURED = {
    Why.NO_PERMISSION: "netdoctor was not allowed to read everything on {nodes}",
    Why.TIMED_OUT: "{nodes} did not answer some questions in time",
    Why.UNPARSABLE: "netdoctor could not read some answers from {nodes}",
    Why.FAILED: "netdoctor could not measure everything on {nodes}",
    Why.LOST: "netdoctor lost its connection to {nodes}",
    Why.JUMP: "netdoctor lost the jump host on the way to {nodes}",
    Why.STOPPED: "the scan ended before {nodes} {was} fully tested",
    Why.NOT_APPLICABLE: "does not apply to {nodes}",
    Why.NOT_COLLECTED: "not collected on {nodes}",
    Why.NOT_EXAMINED: "not tested on {nodes}",
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
    findings = list(islice(check.function(**arguments), FINDINGS_AT_MOST + 1))
    if len(findings) > FINDINGS_AT_MOST:
        raise OverflowError(f"more than {FINDINGS_AT_MOST} findings")
    trusted: dict[int, Cause] = {}
    here = nodes[0] if check.scope == "node" else CLUSTER
    return tuple([valid(finding, here, run.known, trusted) for finding in findings])


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


def _text_of(error: BaseException) -> str:
    try:
        return str(error)[:400]
    except Exception:  # a plug-in's __str__
        return "(its message could not be read)"


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


class Attribution:
    """Whose cell findings colour: their own node, or the culprits of a pair or cluster finding.

    What thousands of pairs say of the same culprits, by one hint, is said once.
    """

    def __init__(self, inside: Set[str]) -> None:
        self._inside = inside
        self._done: dict[tuple[int, Status], Cause] = {}

    def has(self, finding: Finding) -> bool:
        """Whether a finding of this status with this very hint has coloured its culprits."""
        return (id(finding.cause), finding.status) in self._done

    def new_nodes(self, finding: Finding) -> list[str]:
        """The nodes that it colours, and no earlier one of its status and with its hint has coloured.

        When none of the culprits was judged here (its own cell is blocked), the ends of the pair carry it: no
        problem is without a cell.
        """
        ends = nodes_of(finding.target)
        if len(ends) != 1 and self.has(finding):
            return []
        hint = finding.cause if len(ends) != 1 else None
        culprits = dict.fromkeys(_culprit_nodes(hint)) if hint is not None else ()
        if hint is not None and not self._inside.isdisjoint(culprits):
            self._done[id(hint), finding.status] = hint
            return [node for node in culprits if node in self._inside]
        return [node for node in ends if node in self._inside]


def _culprit_nodes(hint: Cause) -> Iterator[str]:
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
        cells, is_required = judgement.cells[check.id], check.family in families
        if (check.required or is_required) and Status.UNKNOWN in cells.values():
            found.update(node for node, status in cells.items() if status is Status.UNKNOWN)
        if is_required:
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
