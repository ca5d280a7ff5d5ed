"""From screen to screen, and from cause to cause."""

from dataclasses import replace
from functools import partial

from netdoctor.tui import where
from netdoctor.tui.actions.copy import copy_fix, copy_verify
from netdoctor.tui.actions.matrix import end_filter
from netdoctor.tui.actions.shell import edit_input
from netdoctor.tui.actions.table import does
from netdoctor.tui.actions.views import earlier_base
from netdoctor.tui.stage import Stage
from netdoctor.tui.where import Spot


def _screen(stage: Stage, view: str) -> None:
    stage.show_view(view)


for _view in ("causes", "matrix", "pairs"):
    does(_view)(partial(_screen, view=_view))


@does("node")
def node(stage: Stage) -> None:
    item = stage.cause if stage.where.view in ("causes", "cause", "evidence") else None
    if item is not None and item.node_list and item.node_list[0] in stage.state.cells.nodes:
        check = next((c for c in item.checks if c in stage.state.cells.checks), None)
        stage.where = replace(stage.where, cursor=Spot(check, item.node_list[0]))
    stage.show_view("node")


@does("diff")
def diff(stage: Stage) -> None:
    earlier_base(stage)
    stage.show_view("diff")


@does("back")
def back(stage: Stage) -> None:
    look = stage.where
    if stage.main_filter.display:
        end_filter(stage, keep=False)
    elif where.filter_of(look) or (look.view == "matrix" and look.faults):
        stage.where = where.unfiltered(look) if look.view == "matrix" else where.filtered(look, "")
        stage.draw()
    elif look.back or look.view != "causes":
        stage.where, line = where.returned(look)
        stage.draw(top=not look.back, key=line)


@does("open")
def open_(stage: Stage) -> None:
    if stage.bad_input:
        edit_input(stage)
        return
    if stage.where.view == "matrix":
        _open_cell(stage)
        return
    match stage.page.key:
        case ("cause", str(key)):
            stage.show_view("cause", cause=key)
        case ("screen", str(view)):
            stage.show_view(view)
        case ("family", str(family)):
            stage.where = replace(stage.where, filter=family)
            stage.show_view("matrix" if not stage.small else "causes")
        case ("cell", str(check), str(name)):
            _open_result(stage, Spot(check, name))
        case ("pairs", group):
            stage.show_view("pair", group=group)
        case ("fix", _, _):
            copy_fix(stage)
        case ("verify", _):
            copy_verify(stage)
        case ("cause-of", "now", str(key)):
            stage.show_view("cause", cause=key)
        case ("cause-of", _, _):
            stage.say("that cause is in the base report only")
        case ("changed", str(check), str(name)) if name in stage.state.cells.nodes:
            go_to(stage, name, check)


def _open_cell(stage: Stage) -> None:
    known, spot = stage.known, stage.where.cursor
    if not stage.matrix.rows or known is None or spot is None:
        return
    check = stage.matrix.check
    if check is None:
        stage.show_view("node")
        return
    item = known.cause_of(check, spot.node)
    if item is not None and stage.letter(check, spot.node) in "X!?b":
        stage.show_view("cause", cause=known.key_of(item))
        return
    _open_result(stage, Spot(check, spot.node))


def _open_result(stage: Stage, cell: Spot) -> None:
    known = stage.known
    if known is None:
        return
    item = known.cause_of(cell.check or "", cell.node)
    if item is not None and stage.where.view == "node":
        stage.show_view("cause", cause=known.key_of(item))
    elif known.result(cell.check or "", cell.node) is None:
        stage.say(f"{cell.check} on {cell.node}: no more is recorded than its letter")
    else:
        _show_evidence(stage, cell)


def _show_evidence(stage: Stage, cell: Spot) -> None:
    """The evidence of a cell. Its cause, if it has one, is what keys act on."""
    known = stage.known
    found = known.result(cell.check or "", cell.node) if known is not None else None
    item = known.causes.get(found.cause) if known and found and found.cause is not None else None
    stage.show_view("evidence", cell=cell, cause=known.key_of(item) if known and item else None)


@does("evidence")
def evidence(stage: Stage) -> None:
    known, key, view = stage.known, stage.page.key, stage.where.view
    if known is None:
        return
    check, node = stage.check_here, stage.node
    if view == "matrix" and check is not None and node is not None:
        _show_evidence(stage, Spot(check, node))
    elif view == "node" and isinstance(key, tuple) and key[0] == "cell":
        _show_evidence(stage, Spot(key[1], key[2]))
    elif (item := stage.cause) is not None:
        # On the screen of a node, and on its name in the matrix: what was seen there, not on the first node.
        cell = Spot(None, node) if view in ("matrix", "node") and node is not None else None
        stage.show_view("evidence", cell=cell, cause=known.key_of(item))
    else:
        stage.say("no cause under the cursor")


def go_to(stage: Stage, name: str, check: str | None = None) -> None:
    """The matrix with the cursor on a node, and on a check if one is named that is shown."""
    if name not in stage.state.cells.nodes:
        return
    stage.where = where.unfiltered(stage.where)
    stage.show_view("matrix")
    if (cursor := stage.where.cursor) is not None:
        stage.point(Spot(check if check in stage.state.cells.checks else cursor.check, name))


def _other_cause(stage: Stage, by: int) -> None:
    known = stage.known
    if known is None or not known.by_key:
        stage.say("there are no causes")
        return
    keys = list(known.by_key)
    here = stage.cause
    at = known.key_of(here) if here is not None else None
    key = keys[(keys.index(at) + by) % len(keys)] if at in keys else keys[0 if by > 0 else -1]
    if stage.where.view == "causes":
        stage.draw(key=("cause", key))
    elif stage.where.view == "matrix":
        item, cells = known.by_key[key], stage.state.cells
        names = [n for n in item.node_list if n in cells.nodes]
        checks = [c for c in item.checks if c in cells.checks]
        if names:
            cursor = stage.where.cursor
            check = checks[0] if checks else cursor.check if cursor is not None else None
            stage.point(Spot(check, names[0]))
    else:
        stage.show_view("cause", keep=stage.where.view != "cause", cause=key)


does("next-cause")(partial(_other_cause, by=1))
does("previous-cause")(partial(_other_cause, by=-1))
