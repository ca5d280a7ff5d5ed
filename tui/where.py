"""Where somebody looks: the screen and what it is about, the cursor, filter, marks, order and modes.

Everything is said by keys that the next report has, too: fingerprints of causes, ids of checks, names of
nodes; never by numbers and never by results. Moves are pure functions from one Where to the next.
"""

from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from netdoctor.tui.state import GROUPS_ABOVE, SORTS, Cells, Known

T = TypeVar("T")

ZOOMS = ("groups", "rows", "overview")
OUTWARD = ("rows", "groups", "overview")
STEPS_KEPT = 50
FILTER_KEPT = 500
_OF_A_CAUSE = ("cause", "evidence")


class Spot(NamedTuple):
    """A cell of the matrix. check: None on the name of the node."""

    check: str | None
    node: str


class Step(NamedTuple):
    """A screen to come back to."""

    view: str
    cause: str | None
    cell: Spot | None
    group: tuple[str, ...]
    sought: str
    line: Hashable  # the key of the line under the cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where somebody looks, and how."""

    view: str = "causes"
    back: tuple[Step, ...] = ()
    cause: str | None = None  # what the screens ``cause`` and ``evidence`` show, by Known.key_of
    cell: Spot | None = None  # whose evidence is shown: without a check, that of the cause on this node
    kind: str = ""  # what the pairs screen shows
    path: str = ""  # over which of the job's paths, '' for the worst of all
    column: str = ""  # a node of the column under the cursor of the pairs, '' for that of the worst
    group: tuple[str, ...] = ()  # the nodes whose pairs are shown one by one
    sought: str = ""  # the filter of this screen, where it is not the matrix
    values: bool = False
    transposed: bool = False
    changes_only: bool = False
    cursor: Spot | None = None  # of the matrix, None before its first picture
    axis: str = ""  # what the rows are, ``checks`` or ``nodes``; '' for what suits the number of nodes
    zoom: str = "rows"
    zoom_chosen: bool = False
    sort: str = SORTS[0]
    by: str | None = None  # the check that rows are sorted by, None for `sort`
    reversed: bool = False
    wide: bool = False
    faults: bool = False
    filter: str = ""  # of the matrix
    before_filter: Spot | None = None  # the cursor when typing began
    colour: str | None = None  # the check that the overview shows, None for the worst
    marks: frozenset[str] = frozenset()
    anchor: str | None = None  # the node marked last
    paused: bool = False  # the picture stands still
    following: bool = False  # the cursor goes to new problems


def fitted(where: Where, cells: Cells, room: int) -> Where:
    """At the zoom that fits into `room` rows, as long as nobody has chosen another."""
    if where.zoom_chosen:
        return where
    return replace(where, zoom="groups" if len(cells.nodes) > min(room, GROUPS_ABOVE) else "rows")


# Screens


def goto(where: Where, view: str, *, left: Hashable = None, keep: bool = True, **fields: Any) -> Where:
    """Another screen. fields: of Where, what it is about. left: the line that the cursor leaves.

    keep: whether Escape comes back here.
    """
    step = Step(where.view, where.cause, where.cell, where.group, where.sought, left)
    back = (*where.back, step)[-STEPS_KEPT:] if keep and view != where.view else where.back
    sought = where.sought if view == where.view else ""
    return replace(where, view=view, back=back, **{"sought": sought, **fields})


def returned(where: Where) -> tuple[Where, Hashable]:
    """The screen before this one, and the line to put the cursor on."""
    if not where.back:
        return replace(where, view="causes"), None
    *rest, step = where.back
    fields = {name: getattr(step, name) for name in ("view", "cause", "cell", "group", "sought")}
    return replace(where, back=tuple(rest), **fields), step.line


def carried(where: Where, before: Cells, now: Cells, known: Known | None, *, everything: bool) -> Where:
    """`where` in another report: what still has a meaning there stays.

    known: None for the matrix of a scan that begins. everything: all was scanned, not some cells of a
    report; then the causes come first.
    """
    if before.nodes != now.nodes:
        marks = where.marks.intersection(now.nodes)
        where = replace(where, marks=marks, zoom_chosen=False)
    if known is None:
        return where
    if everything:
        where = replace(where, view="causes", back=(), cursor=None)  # which goes to the worst cell
    where = replace(
        where,
        back=tuple(s for s in where.back if s.view not in _OF_A_CAUSE or s.cause in (None, *known.by_key)),
    )
    if where.cause is None or where.cause in known.by_key:
        return where
    if where.view in _OF_A_CAUSE:
        where = replace(where, view="causes", back=())
    return replace(where, cause=None)


def lost(before: Where, now: Where) -> bool:
    """Whether the cause that was looked at is gone."""
    return before.view in _OF_A_CAUSE and before.cause is not None and now.cause is None


# The matrix


def zoomed(where: Where, by: int) -> Where:
    """Nearer to single rows (by = -1), or to the overview (1)."""
    index = OUTWARD.index(where.zoom) + by
    return replace(where, zoom=OUTWARD[min(max(index, 0), len(OUTWARD) - 1)], zoom_chosen=True)


def next_zoom(where: Where) -> Where:
    return replace(where, zoom=_after(where.zoom, ZOOMS), zoom_chosen=True)


def swapped(where: Where, now: str) -> Where:
    """With rows for the others. now: what the rows are."""
    return replace(where, axis="nodes" if now == "checks" else "checks", zoom="rows", zoom_chosen=True)


def next_sort(where: Where) -> Where:
    """Rows by the next key; by the one before it if they were sorted by a check."""
    return replace(where, sort=where.sort if where.by is not None else _after(where.sort, SORTS), by=None)


def next_colour(where: Where, checks: Sequence[str]) -> Where:
    """The overview of the next of these checks, or of the worst again."""
    return replace(where, colour=_after(where.colour, [None, *checks]))


def marked(where: Where, nodes: Set[str], at: str) -> Where:
    """With these nodes marked, or unmarked if all were. at: the node under the cursor."""
    marks = where.marks - nodes if nodes <= where.marks else where.marks | nodes
    return replace(where, marks=frozenset(marks), anchor=at)


def marked_too(where: Where, nodes: Set[str], at: str) -> Where:
    return replace(where, marks=where.marks | nodes, anchor=at)


def filtering(where: Where) -> Where:
    """Somebody begins to type a filter."""
    return replace(where, before_filter=where.cursor)


def filter_of(where: Where) -> str:
    """The filter of the screen that is shown."""
    return where.filter if where.view == "matrix" else where.sought


def filtered(where: Where, text: str) -> Where:
    """With another filter on the screen that is shown."""
    if where.view == "matrix":
        return replace(where, filter=text[:FILTER_KEPT])
    return replace(where, sought=text[:FILTER_KEPT])


def filter_left(where: Where, *, keep: bool) -> Where:
    """The filter stays, or goes and leaves the cursor where it was before."""
    if not keep:
        where = replace(filtered(where, ""), cursor=where.before_filter or where.cursor)
    return replace(where, before_filter=None)


def unfiltered(where: Where) -> Where:
    """With every row of the matrix, and every line of other screens."""
    return replace(where, filter="", faults=False, sought="")


# Pairs


def kind_of(where: Where, kinds: Sequence[str]) -> str:
    """Which of these the pairs screen shows, '' when there are none."""
    return where.kind if where.kind in kinds else next(iter(kinds), "")


def next_kind(where: Where, kinds: Sequence[str]) -> Where:
    return replace(where, kind=_after(kind_of(where, kinds), kinds)) if kinds else where


def next_path(where: Where, paths: Sequence[str]) -> Where:
    return replace(where, path=_after(where.path, ["", *paths]))


def _after(one: T, every: Sequence[T]) -> T:
    """The one that comes after `one`, round and round; for something unknown, what comes after the first."""
    index = every.index(one) if one in every else 0
    return every[(index + 1) % len(every)]
