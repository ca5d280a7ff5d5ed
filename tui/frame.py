"""What stands around a view: tabs above, the legend and the keys below; and what stands in place of one."""

from collections.abc import Callable, Mapping, Sequence

from netdoctor.report import fmt
from netdoctor.tui.keys import ACTIONS, BY_ID, FOOTERS, Action
from netdoctor.tui.lines import Line, fit, line, wrap
from netdoctor.tui.rows import Rows, sort_of
from netdoctor.tui.state import State
from netdoctor.tui.where import Where

SMALLEST = (60, 16)
SCREENS = (
    ("1", "Causes", "causes"),
    ("2", "Matrix", "matrix"),
    ("3", "Pairs", "pairs"),
    ("4", "Node", "node"),
    ("5", "Diff", "diff"),
)
TAB_OF = {"cause": "causes", "evidence": "causes", "pair": "pairs"}
KEY = ". pass  ! warn  X fail  b blocked  - skip  ? unknown "

# Lines, and where a click on them runs an action: (line, from column, to column, action).
Zones = list[tuple[int, int, int, str]]


def tabs(state: State, where: Where, rows: Rows, width: int) -> tuple[list[Line], Zones]:
    """The screens, the one that is shown in capitals; beside them how the matrix is filtered and sorted."""
    parts: list[str | tuple[str, str]] = [" "]
    zones = []
    x = 1
    for key, name, view in SCREENS:
        on = TAB_OF.get(where.view, where.view) == view
        text = f" {key} {name.upper() if on else name} "
        parts.append((text, "tab" if on else ""))
        if view == "causes" and state.report is not None and (causes := state.report.causes):
            count = f"{len(causes)} "
            parts.append((count, causes[0].status if causes[0].status in ("fail", "warn") else "unknown"))
            text += count
        zones.append((0, x, x + len(text), view))
        x += len(text)
    sought = f"filter: {fmt.plain(where.sought, 30)} " if where.sought else ""
    right = _matrix_modes(state, where, rows) if where.view == "matrix" else sought
    room = max(width - x, 0)
    parts.append((fit(right, room) if len(right) > room else right.rjust(room), "dim"))
    return [line(*parts, fill="band")], zones


def _matrix_modes(state: State, where: Where, rows: Rows) -> str:
    arrow = ", reversed" if where.reversed else ""
    hits = f" ({len(rows.order)} of {len(state.cells.nodes)})" if where.filter else ""
    faults = "faults " if where.faults else ""
    filter_text = fmt.plain(where.filter, 30) or ("none" if not faults else "")
    marks = f"{len(where.marks)} marked   " if where.marks else ""
    return f"{marks}sort: {sort_of(state, where)}{arrow}   filter: {faults}{filter_text}{hits} "


def footer(
    view: str, allowed: Callable[[Action], bool], width: int, hints: Mapping[str, str]
) -> tuple[list[Line], Zones]:
    """The keys that do something here, as many as there is room for; help and quit always.

    view: a key of FOOTERS; while a filter is typed no letter is a key. hints: what to call actions, by their
    ids, that have another name under the cursor.
    """
    typing = view == "filter"
    live = [a for a in ACTIONS if a.needs == "scan" and a.hint and allowed(a) and not typing]
    offered = [*live, *(BY_ID[name] for name in FOOTERS.get(view, ()) if allowed(BY_ID[name]))]
    last = [] if typing else [BY_ID["help"], BY_ID["quit"]]
    room = width - 1 - sum(len(a.hint) + 2 for a in last)
    hinted = []
    for action in offered:
        hint = hints.get(action.id, action.hint)
        room -= len(hint) + 2
        if room < 0:
            break
        hinted.append((action.id, hint))
    parts: list[str | tuple[str, str]] = [" "]
    zones, x = [], 1
    for name, hint in [*hinted, *((action.id, action.hint) for action in last)]:
        zones.append((0, x, x + len(hint), name))
        key, _, word = hint.partition(" ")
        parts += [(key, "key"), f" {word}  "]
        x += len(hint) + 2
    return [line(*parts, fill="band")], zones


def legend(state: State, where: Where, rows: Rows, width: int) -> Line:
    """The zoom of the matrix, and what its letters mean."""
    zoom = f" zoom: {where.zoom}"
    if where.zoom == "groups":
        zoom += f", {fmt.number(len(rows), 'row')}"
    if where.zoom == "overview":
        by = where.colour if where.colour in state.cells.checks else None
        zoom += f": {fmt.plain('worst' if by is None else by, 40)}"
    key = f"~ running  {KEY}" if state.scanning else KEY
    room = width - len(key)
    return line((fit(zoom, room), "dim"), (key, "dim")) if room > 10 else line((key, "dim"))


def tiny(state: State, width: int, height: int) -> list[Line]:
    """What a window says that is too small for anything else."""
    report = state.report
    causes = f", {fmt.number(len(report.causes), 'cause')}" if report and report.causes else ""
    text = (
        f"netdoctor: {state.verdict}{causes}. Window {width}x{height} is too small for the view; "
        f"{SMALLEST[0]}x{SMALLEST[1]} needed. q quits."
    )
    return [line(piece) for piece in wrap(text, max(width - 3, 10))]


def no_report(state: State, keys: Sequence[str], width: int) -> list[Line]:
    """Before the first report: that hosts are read or nodes reached, or why there is no report and what can
    be done."""
    if state.scanning or not state.message:
        known = bool(state.cells.nodes)
        text = (
            "this comes when the scan ends; 2 shows what nodes say so far"
            if known
            else "reading the hosts ..."
        )
        return [Line(), line(f"   {text}")]
    first, *rest = state.message.split("\n")
    lines = [Line(), line("   ", (fit(fmt.plain(first, 400), width - 6).rstrip(), "fail"))]
    lines += [line("     ", piece) for text in rest[:100] for piece in wrap(fmt.plain(text, 400), width - 8)]
    lines += [Line(), line(("   nothing was contacted; exit would be 2", "dim"))]
    return [*lines, Line(), *(line((f"   {key}", "dim")) for key in keys)]
