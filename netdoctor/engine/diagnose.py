"""From results to causes: findings that share a reason become one, and symptoms go under what explains them.

Generic over what checks declare (`Cause.key`, `explains=`); no check is named here.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from netdoctor.check import Check
from netdoctor.engine.judge import PROBLEMS, UNMEASURED, Attribution, Judgement, is_about_all
from netdoctor.engine.registry import matches
from netdoctor.facts.base import Why
from netdoctor.model import CLUSTER, CONTROL, Action, Cause, Confidence, Finding, Fix, Status, nodes_of

_CONFIDENCE = (Confidence.CERTAIN, Confidence.LIKELY, Confidence.SUSPECTED)
# A node that is gone, or a scan that ended: whatever could not be told about it has that one reason.
_ENDINGS = tuple(UNMEASURED + why.value for why in (Why.LOST, Why.JUMP, Why.STOPPED))


@dataclass
class Group:
    """Findings that share one cause."""

    key: str
    status: Status
    members: list[tuple[str, Finding]]  # (check id, finding) in check order
    hints: list[Cause]  # of each member
    # (check id, target) of symptoms that went under this cause.
    explained: list[tuple[str, str]] = field(default_factory=list)
    # (check id, node) of cells that are blocked behind it, and whose letter comes from members or symptoms.
    blocked: list[tuple[str, str]] = field(default_factory=list)
    cells: list[tuple[str, str]] = field(default_factory=list)

    @cached_property
    def distinct(self) -> tuple[Cause, ...]:
        """The hints, each once: thousands of pairs may share one object."""
        return tuple({id(hint): hint for hint in self.hints}.values())

    @cached_property
    def culprits(self) -> tuple[str, ...]:
        """Culprits in first-seen order; a node named alone and in a pair counts as the node."""
        culprits = dict.fromkeys(culprit for hint in self.distinct for culprit in hint.culprits)
        alone = {culprit for culprit in culprits if "->" not in culprit}
        return tuple(c for c in culprits if c in alone or alone.isdisjoint(nodes_of(c)))

    @cached_property
    def checks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(check_id for check_id, _ in self.members))

    @cached_property
    def title(self) -> str:
        """The template of the worst finding's hint, first in check order."""
        at = max(range(len(self.members)), key=lambda i: (self.members[i][1].status.rank, -i))
        worst = self.members[at][1]
        if worst.cause is not None:
            return worst.cause.title
        summaries = {f.summary for _, f in self.members}
        return self.hints[at].title + (f" (and {len(summaries) - 1} more)" if len(summaries) > 1 else "")

    @cached_property
    def confidence(self) -> Confidence:
        return min((hint.confidence for hint in self.distinct), key=_CONFIDENCE.index)

    @cached_property
    def action(self) -> Action:
        """The gravest that its findings name; else what its status and its first fix say."""
        if actions := [hint.action for hint in self.distinct if hint.action is not None]:
            return max(actions, key=list(Action).index)
        if self.status is Status.UNKNOWN:
            return Action.RETRY
        if self.status is Status.WARN and not self.fixes:
            return Action.IGNORE
        return Action.REBOOT if self.fixes and self.fixes[0].reboot else Action.RECONFIGURE

    @cached_property
    def fixes(self) -> tuple[Fix, ...]:
        """Fixes of the later, more specific checks first; equal ones once."""
        by_check: dict[str, dict[Fix, None]] = {check_id: {} for check_id in reversed(self.checks)}
        looked: set[tuple[str, int]] = set()
        for (check_id, _), hint in zip(self.members, self.hints, strict=True):
            if (check_id, id(hint)) not in looked:
                looked.add((check_id, id(hint)))
                by_check[check_id].update(dict.fromkeys(hint.fixes))
        return tuple(dict.fromkeys(fix for fixes in by_check.values() for fix in fixes))

    @cached_property
    def fingerprint(self) -> str:
        unmeasured = [self.status.value] if self.status is Status.UNKNOWN else []
        text = "\n".join([self.key, *unmeasured, *sorted(self.culprits)])
        return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class _Item:
    """One finding on its way to a cause."""

    check_id: str
    finding: Finding
    hint: Cause
    group: int  # index of the causes by key


def diagnose(judgement: Judgement) -> list[Group]:
    """Causes, worst first: what stops the launch, what is unknown, then risks; by how much each explains."""
    items = _items(judgement)
    homes = _homes(items, _explains(judgement.checks, items))
    groups: dict[int, Group] = {}
    for item, home in zip(items, homes, strict=True):
        if home is None:
            group = groups.setdefault(
                item.group, Group(key=item.hint.key, status=item.finding.status, members=[], hints=[])
            )
            group.members.append((item.check_id, item.finding))
            group.hints.append(item.hint)
            if item.finding.status.rank > group.status.rank:
                group.status = item.finding.status
    for item, home in zip(items, homes, strict=True):
        if home is not None:
            groups[home].explained.append((item.check_id, item.finding.target))
    for group in groups.values():
        group.explained = list(dict.fromkeys(group.explained))
    _assign_cells(judgement, items, homes, groups)

    order = {Status.FAIL: 0, Status.UNKNOWN: 1, Status.WARN: 2}
    position = {check.id: i for i, check in enumerate(judgement.checks)}
    return sorted(
        groups.values(),
        key=lambda g: (
            order[g.status],
            -(len(g.explained) + len(g.blocked)),
            -len(g.culprits),
            _CONFIDENCE.index(g.confidence),
            position[g.checks[0]],
            g.key,
        ),
    )


def _items(judgement: Judgement) -> list[_Item]:
    """Findings that are trouble, in check order, with the cause that each names.

    What could not be measured never shares a cause with what was: its nodes are not to blame.
    """
    known: dict[tuple[str, bool], int] = {}
    items = []
    # A check that only adds to what others found (not required) comes last: it does not name the cause.
    for check in sorted(judgement.checks, key=lambda check: not check.required):
        for finding in judgement.findings.get(check.id, ()):
            if finding.status in PROBLEMS:
                hint = finding.cause or _default_hint(check, finding)
                group = known.setdefault((hint.key, finding.status is Status.UNKNOWN), len(known))
                items.append(_Item(check.id, finding, hint, group))
    return items


def _default_hint(check: Check, finding: Finding) -> Cause:
    where = "" if finding.target in (CLUSTER, CONTROL) else "{nodes}: "
    return Cause(
        key=check.id if finding.status is Status.FAIL else f"{check.id}-{finding.status.value}",
        title=where + finding.summary.replace("{", "{{").replace("}", "}}"),
        culprits=nodes_of(finding.target) or (finding.target,),
    )


def _explains(checks: Sequence[Check], items: Sequence[_Item]) -> dict[str, dict[str, bool]]:
    """Which checks' failures account for each check's trouble, earliest first; never in a circle.

    True: for all of its trouble; False: for the findings whose hint says that they follow from it. Of checks
    that claim to explain each other, in whatever roundabout way, the earlier in order explains.
    """
    ids = [check.id for check in checks]
    all_of = _explained_whole(tuple((c.id, tuple(c.explains)) for c in checks))
    claims = {check_id: set(effects) for check_id, effects in all_of.items()}
    for check_id, follows in {(item.check_id, item.hint.follows) for item in items if item.hint.follows}:
        for source in follows:
            if source != check_id and source in claims:
                claims[source].add(check_id)
    reach = {check_id: _reachable(check_id, claims) for check_id in ids}
    position = {check_id: i for i, check_id in enumerate(ids)}
    return {
        effect: {
            source: effect in all_of[source]
            for source in ids
            if effect in claims[source]
            and (source not in reach[effect] or position[source] < position[effect])
        }
        for effect in ids
    }


@lru_cache(maxsize=8)
def _explained_whole(checks: tuple[tuple[str, tuple[str, ...]], ...]) -> Mapping[str, frozenset[str]]:
    """By check, those that its patterns name."""
    return {c: frozenset(i for i, _ in checks if i != c and matches(i, patterns)) for c, patterns in checks}


def _reachable(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    visited: set[str] = set()
    todo = [start]
    while todo:
        for following in edges[todo.pop()] - visited:
            visited.add(following)
            todo.append(following)
    return visited


def _homes(items: Sequence[_Item], explains: Mapping[str, Mapping[str, bool]]) -> list[int | None]:
    """For each item the index of the cause that explains it in the end, or None when it stands for itself.

    A finding is explained by a failure of a check that claims to, in another cause, when they share a node.
    What explains may itself be explained: the last in that chain, which stands for itself, is the cause.
    """
    # The first failing item of each check by node and cause. With CLUSTER as node: those that touch every
    # node; with None: all of them, for symptoms of the cluster as a whole.
    failing: dict[tuple[str, str | None], dict[int, int]] = {}
    ended: dict[str | None, int] = {}
    known: set[tuple[str, int]] = set()  # a tie names all nodes in each of its findings, by one hint
    for i, item in enumerate(items):
        if item.finding.status is Status.FAIL:
            if not item.hint.explains or (item.check_id, id(item.hint)) in known:
                continue
            known.add((item.check_id, id(item.hint)))
            for name in (*_culprit_nodes(item), None):
                failing.setdefault((item.check_id, name), {}).setdefault(item.group, i)
        elif item.hint.key in _ENDINGS:
            for name in (*_culprit_nodes(item), None):
                ended.setdefault(name, i)

    failed = {check_id for check_id, _ in failing}

    def source(item: _Item) -> int | None:
        claims = explains.get(item.check_id, {}).items()
        sources = [one for one, always in claims if one in failed and (always or one in item.hint.follows)]
        is_bare = item.finding.status is Status.UNKNOWN and item.finding.cause is None
        if not sources and not (is_bare and ended):
            return None
        involved = _involved(item)
        for check_id in sources:
            for name in involved:
                for group, i in failing.get((check_id, name), {}).items():
                    if group != item.group:
                        return i
        return next((ended[name] for name in involved if name in ended), None) if is_bare else None

    answers: dict[tuple[str, int, int], int | None] = {}

    def source_of(item: _Item) -> int | None:
        """As source(), once for all pairs that share a hint whose culprits alone decide."""
        if item.hint.confidence is not Confidence.CERTAIN or not any(map(nodes_of, item.hint.culprits)):
            return source(item)
        key = (item.check_id, item.group, id(item.hint))
        if key not in answers:
            answers[key] = source(item)
        return answers[key]

    homes: list[int | None] = [None] * len(items)
    sources = [source_of(item) for item in items]
    for i, first in enumerate(sources):
        at = first
        while at is not None:
            homes[i] = items[at].group
            at = sources[at]
        if homes[i] == items[i].group:  # round about and back: it belongs there anyway
            homes[i] = None
    return homes


def _culprit_nodes(item: _Item) -> tuple[str, ...]:
    """Nodes that a finding accounts for, or ``cluster``, ``control``."""
    culprits = [n for culprit in item.hint.culprits for n in (nodes_of(culprit) or (culprit,))]
    return tuple(dict.fromkeys(culprits))


def _involved(item: _Item) -> tuple[str | None, ...]:
    """Where to look for what explains a finding: its culprits when they are certain, else its target too."""
    names = dict.fromkeys(n for n in _culprit_nodes(item) if n not in (CLUSTER, CONTROL))
    if not names or item.hint.confidence is not Confidence.CERTAIN:
        names.update(dict.fromkeys(nodes_of(item.finding.target)))
    if CONTROL in (item.finding.target, *item.hint.culprits) and not names:
        return (CONTROL,)
    return (*names, CLUSTER) if names else (None,)


def _assign_cells(
    judgement: Judgement, items: Sequence[_Item], homes: Sequence[int | None], groups: Mapping[int, Group]
) -> None:
    """Give each cell that is trouble, and each that is blocked behind one, to exactly one cause."""
    every = frozenset(judgement.nodes)
    free = {check_id: every - by_node.keys() for check_id, by_node in judgement.blocked_by.items()}
    owner: dict[tuple[str, str], tuple[int, int]] = {}
    attributions: dict[tuple[str, int], Attribution] = {}
    for item, home in zip(items, homes, strict=True):
        index = item.group if home is None else home
        attribution = attributions.setdefault((item.check_id, index), Attribution(free[item.check_id]))
        is_attributed = attribution.has(item.finding)
        nodes: Iterable[str] = attribution.new_nodes(item.finding)
        if not nodes and not is_attributed and is_about_all(item.finding):
            nodes = judgement.nodes
        for node in nodes:
            cell = (item.check_id, node)
            if cell not in owner or item.finding.status.rank > owner[cell][0]:
                owner[cell] = (item.finding.status.rank, index)
    for (check_id, node), (_, index) in owner.items():
        if judgement.cells[check_id].get(node) in PROBLEMS:
            groups[index].cells.append((check_id, node))
    for check_id, by_node in judgement.blocked_by.items():
        for node, root in by_node.items():
            if (root, node) in owner and node in every:
                groups[owner[root, node][1]].blocked.append((check_id, node))
