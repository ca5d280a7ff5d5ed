"""Runs checks over facts: prerequisites, missing facts, passes, and exceptions, each to exactly one status."""

import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from netdoctor.check import Check, Parameter
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


@dataclass(slots=True)
class Judgement:
    """What the checks said.

    cells[check id][node] is the status of every check on every node, complete by construction.
    findings[check id] are all findings, also those that end as one result.
    blocked_by[check id][node] is the check whose failure made this one pointless there.
    """

    nodes: tuple[str, ...]
    checks: tuple[Check, ...]
    cells: dict[str, dict[str, Status]] = field(default_factory=dict)
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    blocked_by: dict[str, dict[str, str]] = field(default_factory=dict)
    reasons: dict[str, dict[str, str]] = field(default_factory=dict)
    durations_ms: dict[str, float] = field(default_factory=dict)
    tracebacks: list[str] = field(default_factory=list)


def judge(
    checks: Sequence[Check], nodes: Sequence[str], store: Store, judged: Iterable[str] | None = None
) -> Judgement:
    """Run checks in the order given (prerequisites first) over the facts in `store`.

    `judged` restricts which nodes get statuses; checks over all nodes still see every node's facts.
    One exception in a check is `unknown` for that check alone.
    """
    wanted = set(nodes if judged is None else judged)
    shown = tuple(n for n in nodes if n in wanted)
    result = Judgement(nodes=shown, checks=tuple(checks))
    for check in checks:
        started = time.perf_counter()
        _run_check(check, tuple(nodes), store, result)
        result.durations_ms[check.id] = (time.perf_counter() - started) * 1000
    if judged is not None:
        _restrict(result, set(shown))
    return result


def _restrict(result: Judgement, shown: set[str]) -> None:
    for cells in result.cells.values():
        for node in [n for n in cells if n not in shown]:
            del cells[node]
    for check_id, findings in result.findings.items():
        result.findings[check_id] = [
            f for f in findings if not nodes_of(f.target) or shown & set(nodes_of(f.target))
        ]


def _run_check(check: Check, nodes: tuple[str, ...], store: Store, result: Judgement) -> None:
    cells: dict[str, Status] = {}
    findings: list[Finding] = []
    result.cells[check.id] = cells
    result.findings[check.id] = findings
    blocked = _blocked(check, nodes, result)
    result.blocked_by[check.id] = blocked
    for node in blocked:
        cells[node] = Status.BLOCKED
    open_nodes = [n for n in nodes if n not in blocked]

    usable: list[str] = []
    for node in open_nodes:
        missing = _missing(check, node, store)
        if missing is None:
            usable.append(node)
        else:
            _put_missing(check, node, missing, cells, findings, result)

    if check.scope == "node":
        for node in usable:
            _call(check, [node], store, cells, findings, result)
    elif usable:
        _call(check, usable, store, cells, findings, result)


def _blocked(check: Check, nodes: Sequence[str], result: Judgement) -> dict[str, str]:
    blocked: dict[str, str] = {}
    for before in check.after:
        cells = result.cells.get(before, {})
        for node in nodes:
            status = cells.get(node)
            # An unknown login leaves nothing to look at either; other unknowns do not hold anything up.
            held = status in (Status.FAIL, Status.BLOCKED) or (
                before == "ssh.login" and status is Status.UNKNOWN
            )
            if held and node not in blocked:
                blocked[node] = result.blocked_by.get(before, {}).get(node, before)
    return blocked


def _missing(check: Check, node: str, store: Store) -> Missing | None:
    """Why this check cannot judge this node, or None when every fact it needs is there."""
    worst: Missing | None = None
    for parameter in check.parameters:
        if parameter.optional:
            continue
        value = _lookup(parameter, node, store)
        if isinstance(value, Missing) and (worst is None or worst.why.is_skip):
            worst = value
    return worst


def _lookup(parameter: Parameter, node: str, store: Store) -> Any:
    if parameter.info.scope == "cluster":
        return store.whole(parameter.info.group)
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
        return
    cells[node] = Status.UNKNOWN
    findings.append(
        Finding(
            target=node,
            status=Status.UNKNOWN,
            summary=missing.detail or missing.why.value.replace("_", " "),
            cause=CauseHint(
                key=f"unmeasured-{missing.why.value.replace('_', '-')}",
                title=_UNMEASURED[missing.why],
                culprits=(node,),
                confidence=Confidence.CERTAIN,
            ),
        )
    )


_UNMEASURED = {
    Why.NO_PERMISSION: "netdoctor was not allowed to look at everything on {nodes}",
    Why.TIMED_OUT: "{nodes} did not answer some questions in time",
    Why.UNPARSABLE: "netdoctor could not read some answers from {nodes}",
    Why.FAILED: "netdoctor could not measure everything on {nodes}",
    Why.LOST: "netdoctor lost its connection to {nodes}",
    Why.NOT_APPLICABLE: "does not apply to {nodes}",
    Why.NOT_COLLECTED: "not collected on {nodes}",
}


def _call(
    check: Check,
    nodes: Sequence[str],
    store: Store,
    cells: dict[str, Status],
    findings: list[Finding],
    result: Judgement,
) -> None:
    arguments: dict[str, Any] = {}
    for parameter in check.parameters:
        value: Any
        if parameter.all_nodes:
            value = store.present(parameter.info.group, nodes)
            if not value and parameter.optional:
                value = None
        else:
            value = _lookup(parameter, nodes[0], store)
        arguments[parameter.name] = None if isinstance(value, Missing) else value
    try:
        said = [_valid(check, finding) for finding in check.function(**arguments)]
    except Exception as error:  # noqa: BLE001  one check's defect must not end the scan
        result.tracebacks.append(f"{check.id} on {', '.join(nodes[:5])}\n{traceback.format_exc()}")
        text = f"check {check.id} ended with {type(error).__name__}: {error}"
        hint = CauseHint(
            key=f"check-crashed-{check.id}",
            title=f"netdoctor's own check {check.id} crashed; the nodes are not to blame",
            culprits=(CONTROL,),
        )
        for node in nodes:
            cells[node] = Status.UNKNOWN
        target = nodes[0] if check.scope == "node" else CLUSTER
        findings.append(Finding(target=target, status=Status.UNKNOWN, summary=text, cause=hint))
        return
    _settle(check, nodes, said, cells, result)
    findings.extend(said)


def _valid(check: Check, finding: Finding) -> Finding:
    if not isinstance(finding, Finding):
        raise TypeError(f"yielded {type(finding).__name__} instead of a finding")
    if finding.status is Status.BLOCKED:
        return replace(finding, status=Status.UNKNOWN)  # only the engine knows what is blocked
    return finding


def _settle(
    check: Check,
    nodes: Sequence[str],
    said: Sequence[Finding],
    cells: dict[str, Status],
    result: Judgement,
) -> None:
    """Give each node of a finished check its one status: the worst that was said about it, else a pass."""
    inside = set(nodes)
    default = Status.PASS
    for finding in said:
        if finding.target == CLUSTER and not finding.cause:
            default = finding.status if finding.status.rank > default.rank else default
            if finding.status is Status.SKIP:
                default = Status.SKIP
                for node in nodes:
                    result.reasons.setdefault(check.id, {})[node] = finding.summary
    for node in nodes:
        cells[node] = default
    for finding in said:
        for node in _blamed(finding):
            if node in inside and (
                finding.status.rank > cells[node].rank or cells[node] in (Status.PASS, Status.SKIP)
            ):
                cells[node] = finding.status
                if finding.status is Status.SKIP:
                    result.reasons.setdefault(check.id, {})[node] = finding.summary


def _blamed(finding: Finding) -> Iterable[str]:
    """Nodes whose cell a finding colours: its own node, or the culprits of a pair or cluster finding."""
    own = nodes_of(finding.target)
    if len(own) == 1 or finding.cause is None:
        return own
    culprits: dict[str, None] = {}
    for culprit in finding.cause.culprits:
        for node in nodes_of(culprit):
            culprits.setdefault(node)
    return culprits or own


def count(cells: Mapping[str, Mapping[str, Status]]) -> dict[Status, int]:
    """Cells by status, every status present."""
    counts = dict.fromkeys(Status, 0)
    for row in cells.values():
        for status in row.values():
            counts[status] += 1
    return counts
