"""Help and palette, which run any action; the looks; the end."""

from collections.abc import Sequence
from dataclasses import replace

from netdoctor.report import describe, fmt, summary
from netdoctor.tui.actions.rerun import run
from netdoctor.tui.actions.table import act, does
from netdoctor.tui.actions.walk import go_to
from netdoctor.tui.dialogs import Choice, Picker, matching
from netdoctor.tui.keys import ACTIONS, BY_ID, MOVES, PURPOSES, Action, purpose_of, spelled
from netdoctor.tui.lines import Line, fit, line, side_by_side, wrap
from netdoctor.tui.query import WORDS
from netdoctor.tui.runner import Request
from netdoctor.tui.stage import Stage, screen_text
from netdoctor.tui.state import mark
from netdoctor.tui.where import Spot

COLUMN, KEYS = 32, 8  # what a column of the help takes, and of it the keys


@does("help")
def help_(stage: Stage) -> None:
    def choices(text: str) -> list[Choice]:
        rows = [(a.id, f"{spelled(a.keys):<10} {a.title}", "") for a in ACTIONS if stage.allowed(a)]
        moves = [("", f"{spelled(keys):<10} {name.replace('-', ' ')}", "move") for name, keys in MOVES]
        letters = [("", f"{letter:<10} {word}", "status") for letter, word in summary.LETTERS.items()]
        filters = [("", f"/{word:<24} {what}", "filter") for word, what in WORDS]
        return matching(text, [*rows, *moves, *letters, *filters])

    title = f"keys of this screen ({stage.where.view}); type to find one, and run it"
    actions = [action for action in ACTIONS if action.keys and stage.allowed(action)]
    picker = Picker(title, choices, overview=lambda width: _columns(actions, width))
    stage.push_screen(picker, lambda chosen: picked(stage, chosen))


def _columns(actions: Sequence[Action], width: int) -> list[Line]:
    """Keys by what they are for, in columns as far as there is room."""
    count = max(width // COLUMN, 1)
    room = width // count - 3
    every: list[Line] = []
    moves = [(spelled(keys[:2]), name.replace("-", " ")) for name, keys in MOVES]
    for purpose in PURPOSES:
        entries = [(spelled(a.keys), a.title) for a in actions if purpose_of(a) == purpose]
        every += [Line()] if every else []
        every.append(line((purpose, "head")))
        for keys, title in [*(moves if purpose == PURPOSES[0] else ()), *entries]:
            first, *more = wrap(title, room - KEYS - 1)
            every.append(line((f"{fit(keys, KEYS)} ", "label"), first))
            every += [line(" " * (KEYS + 1) + piece) for piece in more]
    height = -(-len(every) // count)
    lines = every[:height]
    for n in range(1, count):
        lines = side_by_side(lines, every[n * height : (n + 1) * height], n * (room + 3) - 3, " ")
    return lines


@does("palette")
def palette(stage: Stage) -> None:
    def choices(text: str) -> list[Choice]:
        return offered(stage, text.removeprefix(":"))

    title = "run what?  an action, a node, a check, a cause"
    stage.push_screen(Picker(title, choices), lambda chosen: picked(stage, chosen))


def offered(stage: Stage, text: str) -> list[Choice]:
    """What the palette offers for a text: actions, causes, checks, nodes."""
    cells, known = stage.state.cells, stage.known
    kind, _, rest = text.strip().partition(" ")
    if kind == "q":
        return [("quit", "quit", "q")]
    actions = [(a.id, a.title, spelled(a.keys)) for a in ACTIONS if stage.allowed(a)]
    nodes = [(f"node {n}", f"node {fmt.plain(n, 80)}", "matrix") for n in cells.nodes]
    checks = [(f"check {c}", f"check {fmt.plain(c, 60)}", "sort by it") for c in cells.checks]
    if stage.allowed(BY_ID["rerun"]):
        checks += [(f"run {c}", f"re-run {fmt.plain(c, 60)}", "on all nodes") for c in cells.checks]
    causes = [
        (f"cause {key}", f"{mark(c)} {describe.title(c)}", describe.cause_check(c))
        for key, c in (known.by_key.items() if known is not None else ())
    ]
    if kind in ("node", "check", "cause") and rest:
        return matching(rest, {"node": nodes, "check": checks, "cause": causes}[kind])
    return matching(text, [*actions, *causes, *checks, *nodes])


def picked(stage: Stage, chosen: str | None) -> None:
    """Run what was picked: an action's id, or a place with its key. Nothing else has a meaning."""
    if not chosen:
        return
    if chosen in BY_ID:
        act(stage, chosen)
        return
    kind, _, key = chosen.partition(" ")
    cells = stage.state.cells
    if kind == "cause" and stage.known is not None and key in stage.known.by_key:
        stage.show_view("cause", cause=key)
    elif kind == "node" and key in cells.nodes:
        if stage.small:
            stage.say(stage.why_not(BY_ID["matrix"]))
        else:
            go_to(stage, key)
    elif kind == "check" and key in cells.checks:
        stage.where = replace(stage.where, by=key)
        stage.show_view("matrix")
        if (cursor := stage.where.cursor) is not None:
            stage.point(Spot(key, cursor.node))
    elif kind == "run" and key in cells.checks:
        run(stage, Request(checks=(key,)))


@does("theme")
def theme(stage: Stage) -> None:
    stage.light = not stage.light
    stage.theme = "textual-light" if stage.light else "textual-dark"
    stage.matrix.forget_strips()
    stage.refresh(layout=True)
    stage.draw()


@does("quit")
def quit_(stage: Stage) -> None:
    if stage.state.scanning:
        question = [line(" a scan goes on. Stop it, keep nothing of it, and quit?")]
        stage.ask(question, stage.exit)
    else:
        stage.exit()


@does("quit-leaving")
def quit_leaving(stage: Stage) -> None:
    stage.left_behind = screen_text(stage)
    quit_(stage)
