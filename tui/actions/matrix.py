"""The matrix: what it shows, in which order, and the rows that are marked."""

from collections.abc import Callable
from dataclasses import replace

from netdoctor.tui import where
from netdoctor.tui.actions.table import does
from netdoctor.tui.query import WORDS
from netdoctor.tui.rows import next_trouble
from netdoctor.tui.stage import Stage
from netdoctor.tui.where import Where


def _look(stage: Stage, move: Callable[[Where], Where]) -> None:
    stage.where = move(stage.where)
    stage.draw()


@does("faults")
def faults(stage: Stage) -> None:
    if stage.where.view == "diff":
        _look(stage, lambda look: replace(look, changes_only=not look.changes_only))
    else:
        _look(stage, lambda look: replace(look, faults=not look.faults))


@does("filter")
def filter_(stage: Stage) -> None:
    box = stage.main_filter
    stage.where = where.filtering(stage.where)
    on_matrix = stage.where.view == "matrix"
    forms = "  ".join(word.split()[0] for word, _ in WORDS) if on_matrix else "words of a line  !without"
    box.display = True
    box.value = where.filter_of(stage.where)
    box.placeholder = forms
    box.focus()
    stage.say("the list narrows while you type: enter keeps it so, esc clears the filter")


def end_filter(stage: Stage, *, keep: bool) -> None:
    """The filter is typed: it stays, or goes."""
    stage.main_filter.display = False
    stage.where = where.filter_left(stage.where, keep=keep)
    stage.said = ""
    stage.set_focus(None)
    stage.draw()


@does("zoom")
def zoom(stage: Stage) -> None:
    _look(stage, where.next_zoom)


@does("zoom-in")
def zoom_in(stage: Stage) -> None:
    _look(stage, lambda look: where.zoomed(look, -1))


@does("zoom-out")
def zoom_out(stage: Stage) -> None:
    _look(stage, lambda look: where.zoomed(look, 1))


@does("sort")
def sort(stage: Stage) -> None:
    _look(stage, where.next_sort)


@does("sort-check")
def sort_check(stage: Stage) -> None:
    by = next(iter(stage.matrix.checks), None)
    _look(stage, lambda look: replace(look, by=by))


@does("reverse")
def reverse(stage: Stage) -> None:
    _look(stage, lambda look: replace(look, reversed=not look.reversed))


@does("wide")
def wide(stage: Stage) -> None:
    _look(stage, lambda look: replace(look, wide=not look.wide))


@does("colour")
def colour(stage: Stage) -> None:
    if stage.where.zoom != "overview":
        stage.say("tab changes what the overview shows; z zooms there")
        return
    _look(stage, lambda look: where.next_colour(look, stage.matrix.telling))


@does("next-problem")
def next_problem(stage: Stage) -> None:
    _problem(stage, 1)


@does("previous-problem")
def previous_problem(stage: Stage) -> None:
    _problem(stage, -1)


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


@does("mark")
def mark(stage: Stage) -> None:
    if stage.node is not None:
        stage.where = where.marked(stage.where, frozenset(stage.matrix.members), stage.node)
    stage.matrix.set_marks(stage.where.marks, stage.state.busy)
    stage.point(stage.matrix.near(*((1, 0) if stage.where.zoom == "overview" else (0, 1))))
    stage.draw_bars()


@does("mark-range")
def mark_range(stage: Stage) -> None:
    if stage.node is not None:
        between = stage.matrix.between(stage.where.anchor, stage.node)
        stage.where = where.marked_too(stage.where, between, stage.node)
    stage.matrix.set_marks(stage.where.marks, stage.state.busy)
    stage.draw_bars()
