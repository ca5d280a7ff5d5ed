"""The matrix: what it shows, in which order, and the rows that are marked. Pairs: how they are drawn."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from netdoctor.tui import where
from netdoctor.tui.actions.table import does
from netdoctor.tui.query import WORDS
from netdoctor.tui.rows import next_trouble
from netdoctor.tui.stage import Stage
from netdoctor.tui.where import Where


def _look(stage: Stage, move: Callable[[Where], Where]) -> None:
    stage.where = move(stage.where)
    stage.draw()


def _toggle(field: str) -> Callable[[Where], Where]:
    def move(look: Where) -> Where:
        changed: dict[str, Any] = {field: not getattr(look, field)}
        return replace(look, **changed)

    return move


# Actions that do no more than look at the matrix or at pairs in another way.
MOVES: dict[str, Callable[[Where], Where]] = {
    "zoom": where.next_zoom,
    "zoom-in": lambda look: where.zoomed(look, -1),
    "zoom-out": lambda look: where.zoomed(look, 1),
    "sort": where.next_sort,
    "reverse": _toggle("reversed"),
    "wide": _toggle("wide"),
    "values": _toggle("values"),
}
for _name, _move in MOVES.items():
    does(_name)(partial(_look, move=_move))


@does("transpose")
def transpose(stage: Stage) -> None:
    if stage.where.view == "pairs":
        _look(stage, _toggle("transposed"))
    elif not stage.few:
        stage.say("there are too many nodes for a column each")
    else:
        _look(stage, lambda look: where.swapped(look, "checks" if stage.turned is not None else "nodes"))


@does("faults")
def faults(stage: Stage) -> None:
    _look(stage, _toggle("changes_only" if stage.where.view == "diff" else "faults"))


@does("filter")
def filter_(stage: Stage) -> None:
    box = stage.main_filter
    stage.where = where.filtering(stage.where)
    on_matrix = stage.where.view == "matrix"
    forms = "  ".join(word.split()[0] for word, _ in WORDS) if on_matrix else "words of a line  !without"
    box.display = True
    box.value = where.filter_of(stage.where)
    box.placeholder = forms
    stage.set_focus(box)
    stage.say("the list narrows while you type: enter keeps it so, esc clears the filter")


def end_filter(stage: Stage, *, keep: bool) -> None:
    """The filter is typed: it stays, or goes."""
    stage.main_filter.display = False
    stage.where = where.filter_left(stage.where, keep=keep)
    stage.status = ""
    stage.set_focus(None)
    stage.draw()


@does("sort-check")
def sort_check(stage: Stage) -> None:
    by = next(iter(stage.matrix.checks), None)
    _look(stage, lambda look: replace(look, by=by))


@does("colour")
def colour(stage: Stage) -> None:
    if stage.where.zoom != "overview":
        stage.say("tab changes what the overview shows; z zooms there")
        return
    _look(stage, lambda look: where.next_colour(look, stage.matrix.telling))


def _problem(stage: Stage, by: int) -> None:
    """The next row with trouble, or the next row at all when a filter has chosen the rows."""
    rows, cursor = stage.matrix.rows, stage.where.cursor
    if not rows or cursor is None:
        return
    spot = next_trouble(rows, stage.state.cells, cursor, by, any_row=bool(stage.where.filter))
    if spot is None:
        stage.say("no node has trouble")
    else:
        stage.point(spot)


does("next-problem")(partial(_problem, by=1))
does("previous-problem")(partial(_problem, by=-1))


@does("mark")
def mark(stage: Stage) -> None:
    if stage.node is not None:
        stage.where = where.marked(stage.where, frozenset(stage.matrix.members), stage.node)
    stage.matrix.set_marks(stage.where.marks, stage.state.busy)
    stage.point(stage.matrix.near("right" if stage.where.zoom == "overview" else "down"))
    stage.draw_bars()


@does("mark-range")
def mark_range(stage: Stage) -> None:
    if stage.node is not None:
        between = stage.matrix.between(stage.where.anchor, stage.node)
        stage.where = where.marked_too(stage.where, between, stage.node)
    stage.draw()
