"""From results to causes: findings that share a reason become one, and symptoms go under what explains them.

Generic over what checks declare (`CauseHint.key`, `explains=`); no check is named here.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from netdoctor.check import Check
from netdoctor.judge import Judgement
from netdoctor.model import CLUSTER, CONTROL, CauseHint, Confidence, Finding, Fix, Status, nodes_of
from netdoctor.registry import matches

_TROUBLE = (Status.FAIL, Status.UNKNOWN, Status.WARN)


@dataclass(slots=True)
class Group:
    """Findings that share one cause. members: (check id, finding) in check order."""

    key: str
    status: Status
    members: list[tuple[str, Finding]] = field(default_factory=list)
    explained: list[tuple[str, str]] = field(default_factory=list)
    held: list[tuple[str, str]] = field(default_factory=list)
    hints: list[CauseHint] = field(default_factory=list)

    @property
    def culprits(self) -> tuple[str, ...]:
        """Culprits in first-seen order; a node named alone and in a pair counts as the node."""
        seen: dict[str, None] = {}
        for hint in self.hints:
            for culprit in hint.culprits:
                seen.setdefault(culprit)
        return tuple(seen)

    @property
    def checks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(check_id for check_id, _ in self.members))

    @property
    def title(self) -> str:
        """The template of the worst finding's hint, first in check order."""
        worst = max(self.members, key=lambda m: m[1].status.rank)[1]
        return (worst.cause or self.hints[0]).title

    @property
    def confidence(self) -> Confidence:
        order = [Confidence.CERTAIN, Confidence.LIKELY, Confidence.SUSPECTED]
        return min((hint.confidence for hint in self.hints), key=order.index)

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """Fixes of the later, more specific checks first; equal ones once."""
        seen: dict[Fix, None] = {}
        for check_id in reversed(self.checks):
            for member, finding in self.members:
                if member == check_id and finding.cause is not None:
                    for fix in finding.cause.fixes:
                        seen.setdefault(fix)
        return tuple(seen)

    @property
    def fingerprint(self) -> str:
        text = "\n".join([self.key, *sorted(self.culprits)])
        return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def diagnose(judgement: Judgement) -> list[Group]:
    """Causes, worst first: what stops the launch, then what is unknown, then risks; by how much each explains."""
    by_id = {check.id: check for check in judgement.checks}
    groups = _group(judgement)
    groups = _absorb(groups, by_id)
    for group in groups:
        group.held = _held(group, judgement)
    order = {Status.FAIL: 0, Status.UNKNOWN: 1, Status.WARN: 2}
    confidence = [Confidence.CERTAIN, Confidence.LIKELY, Confidence.SUSPECTED]
    groups.sort(
        key=lambda g: (
            order[g.status],
            -(len(g.explained) + len(g.held)),
            -len(g.culprits),
            confidence.index(g.confidence),
            list(by_id).index(g.checks[0]),
            g.key,
        )
    )
    return groups


def _group(judgement: Judgement) -> list[Group]:
    groups: dict[str, Group] = {}
    # A check that only adds to what others found (not required) comes last: it does not name the cause.
    for check in sorted(judgement.checks, key=lambda check: not check.required):
        for finding in judgement.findings.get(check.id, ()):
            if finding.status not in _TROUBLE:
                continue
            hint = finding.cause or _default_hint(check, finding)
            group = groups.setdefault(hint.key, Group(key=hint.key, status=finding.status))
            group.members.append((check.id, finding))
            group.hints.append(hint)
            if finding.status.rank > group.status.rank:
                group.status = finding.status
    return list(groups.values())


def _default_hint(check: Check, finding: Finding) -> CauseHint:
    where = "" if finding.target in (CLUSTER, CONTROL) else "{nodes}: "
    return CauseHint(
        key=check.id,
        title=where + finding.summary.replace("{", "{{").replace("}", "}}"),
        culprits=nodes_of(finding.target) or (finding.target,),
    )


def _absorb(groups: list[Group], by_id: dict[str, Check]) -> list[Group]:
    """Move findings that another cause accounts for under it; a cause that loses all its findings is gone.

    A cause explains a finding when it is a failure of a check whose `explains` matches, and they share a node.
    """
    order = {check_id: i for i, check_id in enumerate(by_id)}
    groups = sorted(groups, key=lambda g: min(order[c] for c in g.checks))
    scopes = [_scope(group) for group in groups]
    moved: dict[int, list[tuple[int, str, Finding]]] = {}
    for j, group in enumerate(groups):
        for check_id, finding in group.members:
            i = _explainer(groups, scopes, by_id, j, check_id, finding)
            if i is not None:
                moved.setdefault(j, []).append((i, check_id, finding))
    gone = {j: moved[j][0][0] for j in moved if len(moved[j]) == len(groups[j].members)}
    for j in sorted(gone):
        if _in_circle(j, gone):  # two causes that claim to explain each other: the earlier check's stands
            del gone[j]
            del moved[j]
    for j, items in moved.items():
        taken = {id(finding) for _, _, finding in items}
        for i, check_id, finding in items:
            groups[_root(i, gone)].explained.append((check_id, finding.target))
        keep = [
            (member, hint)
            for member, hint in zip(groups[j].members, groups[j].hints, strict=True)
            if id(member[1]) not in taken
        ]
        if keep:
            groups[j].members = [member for member, _ in keep]
            groups[j].hints = [hint for _, hint in keep]
            groups[j].status = max((m[1].status for m in groups[j].members), key=lambda s: s.rank)
    return [group for j, group in enumerate(groups) if j not in gone]


def _scope(group: Group) -> set[str]:
    """Nodes that a cause can account for; ``cluster`` stands for all."""
    names: set[str] = set()
    for culprit in group.culprits:
        names.update(nodes_of(culprit) or (culprit,))
    return names


def _explainer(
    groups: Sequence[Group],
    scopes: Sequence[set[str]],
    by_id: dict[str, Check],
    j: int,
    check_id: str,
    finding: Finding,
) -> int | None:
    involved = set(nodes_of(finding.target))
    if finding.cause is not None:
        for culprit in finding.cause.culprits:
            involved.update(nodes_of(culprit))
    for i, group in enumerate(groups):
        if i == j or group.status is not Status.FAIL:
            continue
        if not (CLUSTER in scopes[i] or scopes[i] & involved):
            continue
        for other_id, other in group.members:
            if (
                other.status is Status.FAIL
                and other_id != check_id
                and matches(check_id, by_id[other_id].explains)
            ):
                return i
    return None


def _in_circle(j: int, gone: dict[int, int]) -> bool:
    seen: set[int] = set()
    i = gone[j]
    while i in gone and i not in seen and i != j:
        seen.add(i)
        i = gone[i]
    return i == j


def _root(i: int, gone: dict[int, int]) -> int:
    seen: set[int] = set()
    while i in gone and i not in seen:
        seen.add(i)
        i = gone[i]
    return i


def _held(group: Group, judgement: Judgement) -> list[tuple[str, str]]:
    """(check, node) cells that are blocked because of a check of this cause on one of its nodes."""
    checks = {*group.checks, *(check_id for check_id, _ in group.explained)}
    scope = _scope(group)
    held = []
    for check_id, by_node in judgement.blocked_by.items():
        for node, root in by_node.items():
            if root in checks and (node in scope or CLUSTER in scope) and node in judgement.nodes:
                held.append((check_id, node))
    return held
