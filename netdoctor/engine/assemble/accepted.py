"""Problems that somebody has accepted: no cause of the verdict, and never unsaid. Pure.

What is accepted is what was measured. What could not be measured cannot be, and what waits for an accepted
problem was not examined: both leave the verdict open. See docs/verdict.md.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from netdoctor.check import Check
from netdoctor.engine.diagnose import Group
from netdoctor.engine.judge import Judgement, is_about_all
from netdoctor.engine.registry import matches
from netdoctor.model import Cause, Finding, Status, nodes_of
from netdoctor.report.model import Note, Suppressed

_ACCEPTABLE, _UNKNOWN = (Status.FAIL, Status.WARN), Status.UNKNOWN
Cell = tuple[str, str]
"""A check and what it spoke of: a node, a pair, the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """One `[[suppress]]`: at least a check or a cause."""

    check: tuple[str, ...] = ()  # globs
    cause: str | None = None  # its key
    nodes: frozenset[str] | None = None  # None for everywhere
    reason: str
    until: date | None = None  # the last day on which it holds, None for no end
    position: str  # its file and line, for people

    def covers(self, key: str, check_id: str, hint: Cause) -> bool:
        """Whether it speaks of a finding of this check that belongs to the cause `key`."""
        if self.cause is not None and self.cause != key:
            return False
        if self.check and not matches(check_id, self.check):
            return False
        return self.nodes is None or (bool(hint.culprits) and _nodes([hint]) <= self.nodes)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A cause, or the part of one, that a suppression accepts."""

    by: Suppression
    group: Group

    @property
    def words(self) -> str:
        """``accepted until 2026-12-31: the reason``."""
        return f"accepted{f' until {self.by.until}' if self.by.until else ''}: {self.by.reason}"


def accept(
    groups: Sequence[Group], suppressions: Sequence[Suppression], today: date, judgement: Judgement
) -> tuple[list[Group], list[Accepted], list[Note]]:
    """(causes that are left, what is accepted, what the suppressions have to be told of)."""
    left, accepted, notes = list(groups), [], []
    for one in suppressions:
        if one.until is not None and one.until < today:
            text = f"{one.position}: ended {one.until}, so it is not applied any more"
            notes.append(Note(level="warn", text=text))
            continue
        reasons: list[str] = []
        found = False
        for number, group in reversed(list(enumerate(left))):
            members = zip(group.members, group.hints, strict=True)
            inside = [one.covers(group.key, check, hint) for (check, _), hint in members]
            if not any(inside):
                continue
            part, rest, why = _split(group, inside, one)
            if part is None:
                reasons.append(f"{one.position}: not applied to {group.key}: {why}")
                continue
            found = True
            accepted.append(Accepted(one, part))
            left[number : number + 1] = [rest] if rest is not None else []
        notes += [Note(level="warn", text=text) for text in reasons]
        if not found and not reasons and _looked(one, judgement):
            notes.append(
                Note(level="info", text=f"{one.position}: matches nothing that was found; it can be removed")
            )
    return left, accepted, notes


def _looked(one: Suppression, judgement: Judgement) -> bool:
    """Whether this scan examined what a suppression is about."""
    checks = not one.check or any(matches(check.id, one.check) for check in judgement.checks)
    return checks and (one.nodes is None or one.nodes <= set(judgement.nodes))


def _split(group: Group, inside: Sequence[bool], one: Suppression) -> tuple[Group | None, Group | None, str]:
    """(the part of a cause that is accepted, what is left of it, why nothing is)."""
    if group.status is Status.UNKNOWN:
        return None, None, "what could not be measured cannot be accepted"
    members = list(zip(group.members, group.hints, strict=True))
    ours = [member for member, is_in in zip(members, inside, strict=True) if is_in]
    others = [member for member, is_in in zip(members, inside, strict=True) if not is_in]
    nodes, rest = _nodes(h for _, h in ours), _nodes(h for _, h in others)
    if others and nodes & rest:
        more = ", ".join(dict.fromkeys(check for (check, _), _ in others))
        return (
            None,
            None,
            f"{more} found it on the same nodes, but is not named; cause = {group.key!r} accepts all",
        )
    symptoms = [cell for cell in group.explained if not others or _is_about(cell, nodes)]
    unnamed = dict.fromkeys(check for check, _ in symptoms if not matches(check, one.check))
    if unnamed:
        return None, None, f"it has consequences in {', '.join(unnamed)}, which it does not name"
    if not others:
        return group, None, ""
    return _part(group, ours, nodes, True), _part(group, others, nodes, False), ""


def _part(
    group: Group, members: Sequence[tuple[tuple[str, Finding], Cause]], nodes: Collection[str], ours: bool
) -> Group:
    def select(cells: Sequence[Cell]) -> list[Cell]:
        return [cell for cell in cells if _is_about(cell, nodes) is ours]

    return Group(
        key=group.key,
        status=max((finding.status for (_, finding), _ in members), key=lambda status: status.rank),
        members=[member for member, _ in members],
        hints=[hint for _, hint in members],
        explained=select(group.explained),
        blocked=select(group.blocked),
        cells=select(group.cells),
    )


def _nodes(hints: Iterable[Cause]) -> set[str]:
    """The nodes, or else ``cluster`` or ``control``, that hints blame."""
    return {node for hint in hints for culprit in hint.culprits for node in nodes_of(culprit) or (culprit,)}


def _is_about(cell: Cell, nodes: Collection[str]) -> bool:
    return set(nodes_of(cell[1]) or (cell[1],)) <= set(nodes)


def cleared(judgement: Judgement, left: Sequence[Group], accepted: Sequence[Accepted]) -> Judgement:
    """The judgement in which what is accepted is a skip with the reason, where nothing else is wrong."""
    if not accepted:
        return judgement
    still = {cell for group in left for cell in _touched(group)}
    # What is unknown has no cell of its own where a failure was worse, of the whole cluster or of a node, and
    # where one that is accepted explains it, it is no cause that is left, either.
    open_ = [(check, f) for check, found in judgement.findings.items() for f in found if f.status is _UNKNOWN]
    unmeasured = {check for check, f in open_ if is_open(f)}
    unsure = {(check, node) for check, f in open_ for node in nodes_of(f.target)}
    cells = {check: dict(by_node) for check, by_node in judgement.cells.items()}
    reasons = {check: dict(by_node) for check, by_node in judgement.reasons.items()}
    for one in accepted:
        for check, node in one.group.cells:
            if (check, node) in still or cells[check].get(node) not in _ACCEPTABLE:
                continue
            if check in unmeasured or (check, node) in unsure:
                cells[check][node] = Status.UNKNOWN
            else:
                cells[check][node] = Status.SKIP
                reasons.setdefault(check, {})[node] = one.words
    return replace(judgement, cells=cells, reasons=reasons)


def is_open(finding: Finding) -> bool:
    """Whether it leaves every node open."""
    return finding.status is Status.UNKNOWN and is_about_all(finding)


def _touched(group: Group) -> set[Cell]:
    """Every check and node that a cause has a part in."""
    members = zip(group.members, group.hints, strict=True)
    members_of = {(check, node) for (check, f), hint in members for node in (f.target, *_nodes([hint]))}
    return members_of | set(group.explained) | set(group.cells)


def reasons(left: Sequence[Group], accepted: Sequence[Accepted]) -> Mapping[Cell, str]:
    """What is said of each result that is accepted, beside the cells: of pairs and of the cluster."""
    still = {cell for group in left for cell in _touched(group)}
    return {
        (check, finding.target): one.words
        for one in accepted
        for check, finding in one.group.members
        if (check, finding.target) not in still
    }


def holds_open(check: Check, families: Collection[str]) -> bool:
    """Whether what waits for an accepted problem leaves the verdict open."""
    return check.required or check.family in families


def headline(suppressed: Sequence[Suppressed]) -> str:
    """``1 known problem accepted until 2026-12-31``, of several the nearest end; nothing for none."""
    if not suppressed:
        return ""
    ends = sorted(one.until for one in suppressed if one.until is not None)
    many = len(suppressed) > 1
    until = f"{', the first' if many else ''} until {ends[0]}" if ends else ""
    return f"{len(suppressed)} known problem{'s' if many else ''} accepted{until}"
