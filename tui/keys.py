"""Every action once: its id, keys, title, and where it works. Keys, help and palette read this."""

from dataclasses import dataclass

VIEWS = ("causes", "cause", "evidence", "matrix", "pairs", "pair", "node", "diff")
# Screens with a cause under the cursor, and those that show its evidence besides.
_CAUSES = ("causes", "cause", "matrix", "node")
_EVIDENCE = ("causes", "cause", "evidence", "matrix", "node")
_PAIRS = ("pairs", "pair")


@dataclass(frozen=True, slots=True)
class Action:
    """Something that a key or a click does.

    needs: ``report``, ``runner`` (something that can scan), ``idle`` (and does not), ``scan`` (one goes on),
    ``input`` (the host list could not be used), ``paths`` (pairs of several).
    """

    id: str  # stable, for key maps
    keys: tuple[str, ...]  # as Textual spells them
    title: str
    hint: str = ""  # the word in the footer, '' for none
    views: tuple[str, ...] = VIEWS  # where it works
    needs: str = ""


ACTIONS: tuple[Action, ...] = (
    Action("open", ("enter", "d"), "open what is under the cursor", "enter open"),
    Action("back", ("escape",), "clear the filter; back", "esc back"),
    Action(
        "next-problem",
        ("n",),
        "next problem, or next hit of the filter",
        "n/N problem",
        ("matrix",),
        "report",
    ),
    Action("previous-problem", ("N",), "previous problem, or hit", "", ("matrix",), "report"),
    Action("next-cause", ("right_square_bracket",), "next cause", "] next", needs="report"),
    Action("previous-cause", ("left_square_bracket",), "previous cause", needs="report"),
    Action("copy-fix", ("y",), "copy the fix of this cause", "y copy fix", _EVIDENCE, "report"),
    Action("copy-diff", ("y",), "copy the changes as Markdown", "y copy", ("diff",), "report"),
    Action(
        "copy-all", ("Y",), "copy the cause as Markdown, with all its fixes", "Y all", _EVIDENCE, "report"
    ),
    Action(
        "copy-verify",
        ("v",),
        "copy the command that proves the fix",
        "v verify",
        ("causes", "cause"),
        "report",
    ),
    Action("copy-names", ("c",), "copy the folded names of the nodes", "", _CAUSES, "report"),
    Action("evidence", ("e",), "evidence: what was observed, and where", "e evidence", _CAUSES, "report"),
    Action("rerun", ("r",), "run this again", "r re-run", needs="idle"),
    Action("rerun-bad", ("R",), "run everything again that is not green", needs="idle"),
    Action("rerun-all", ("ctrl+r",), "run everything again", needs="idle"),
    Action(
        "faults", ("f",), "only nodes with trouble; in the diff only changes", "f faults", ("matrix", "diff")
    ),
    Action("filter", ("slash",), "filter: nodes and checks of the matrix, lines elsewhere", "/ filter"),
    Action("zoom", ("z",), "zoom: groups, rows, overview", "z zoom", ("matrix",)),
    Action("zoom-in", ("plus", "equals_sign"), "zoom in: towards single rows", "", ("matrix",)),
    Action("zoom-out", ("minus",), "zoom out: towards the overview", "", ("matrix",)),
    Action("sort", ("o",), "sort by the next key: worst, listed, name", "", ("matrix",)),
    Action(
        "sort-check",
        (),
        "sort by the check under the cursor; a click on its head does that, too",
        "",
        ("matrix",),
    ),
    Action("reverse", ("O",), "reverse the order", "", ("matrix",)),
    Action(
        "wide",
        ("a", "w"),
        "all checks, those too that are alike or say nothing here; all rows of the overview",
        "a all",
        ("matrix", "node"),
    ),
    Action("mark", ("space",), "mark the nodes of this row", "", ("matrix",)),
    Action("mark-range", ("v",), "mark from the last marked row to here", "", ("matrix",)),
    Action("colour", ("tab",), "overview: show one check instead of the worst", "", ("matrix",)),
    Action("next-pairs", ("tab",), "pairs of the next check, or the next measure", "tab check", ("pairs",)),
    Action("next-path", ("o",), "pairs over the next path, or the worst of all", "o path", _PAIRS, "paths"),
    Action("values", ("v",), "values instead of statuses, as a heat map", "v values", ("pairs",)),
    Action("transpose", ("t",), "exchange rows and columns", "t transpose", ("pairs", "matrix")),
    Action(
        "format", ("tab",), "read a host list that cannot be used as another format", "", ("causes",), "input"
    ),
    Action("base", ("b",), "compare with another report", "b base", ("diff",)),
    Action("causes", ("1",), "screen: causes"),
    Action("matrix", ("2",), "screen: matrix"),
    Action("pairs", ("3",), "screen: pairs and measures"),
    Action("node", ("4",), "screen: the node under the cursor"),
    Action("diff", ("5", "6"), "screen: changes since another report", needs="report"),
    Action(
        "shell",
        ("s",),
        "shell on the node under the cursor (ssh with the same settings)",
        "s shell",
        ("matrix", "node", "cause"),
        "runner",
    ),
    Action(
        "export",
        ("E",),
        "write the fixes to a file, or to stdout when it is a pipe",
        "E export",
        needs="report",
    ),
    Action("save", ("ctrl+s",), "save the report to another file", needs="report"),
    Action("pause", ("p",), "hold the picture; the scan goes on", "p hold", needs="scan"),
    Action("stop", ("x",), "stop the scan and keep what is known", "x stop", needs="scan"),
    Action("follow", ("F",), "let the cursor follow new problems", "F follow", ("matrix",), "scan"),
    Action("palette", ("colon", "ctrl+p"), "run any action by name; node, check or cause by name"),
    Action("help", ("question_mark",), "the keys of this screen", "? keys"),
    Action("theme", ("T",), "dark or light background"),
    Action("quit", ("q",), "quit", "q quit"),
    Action("quit-leaving", ("Q",), "quit and leave the screen in the terminal"),
)
BY_ID = {action.id: action for action in ACTIONS}

PURPOSES = ("move", "look", "copy and write", "run", "netdoctor")
_MOVING = ("open", "back", "next-problem", "previous-problem", "next-cause", "previous-cause")
_RUNNING = ("rerun", "rerun-bad", "rerun-all", "pause", "stop", "follow", "shell", "format")
_ITSELF = ("palette", "help", "theme", "quit", "quit-leaving")


def purpose_of(action: Action) -> str:
    """What an action is for, one of PURPOSES; most look at something in another way."""
    if action.id.startswith("copy") or action.id in ("export", "save"):
        return PURPOSES[2]
    ids = ((_MOVING, 0), (_RUNNING, 3), (_ITSELF, 4))
    return PURPOSES[next((n for names, n in ids if action.id in names), 1)]


# What the last line of each screen offers, as far as there is room; all of it is in the help.
FOOTERS: dict[str, tuple[str, ...]] = {
    "causes": ("open", "copy-fix", "rerun", "filter", "evidence", "copy-all", "copy-verify", "export"),
    "cause": (
        *("copy-fix", "copy-all", "copy-verify", "evidence", "rerun", "shell", "filter", "next-cause"),
        *("back", "export"),
    ),
    "evidence": ("back", "copy-fix", "rerun", "filter", "next-cause", "export"),
    "matrix": (
        *("open", "next-problem", "copy-fix", "rerun", "filter", "wide", "zoom", "transpose"),
        *("faults", "evidence", "shell"),
    ),
    "pairs": ("next-pairs", "next-path", "values", "transpose", "open", "filter", "rerun", "back"),
    "pair": ("back", "next-path", "filter", "rerun"),
    "node": ("open", "wide", "evidence", "copy-fix", "rerun", "filter", "shell", "back"),
    # What is no screen of its own: a host list that cannot be used, nothing yet, a filter that is typed.
    "input": ("open", "format", "rerun-bad"),
    "waiting": (),
    "filter": ("open", "back"),
    "diff": ("base", "copy-diff", "faults", "open", "filter", "back"),
}

# What keys are called where they do something that has another name.
HINTS: dict[str, dict[str, str]] = {
    "input": {"open": "enter edit", "format": "tab format", "rerun-bad": "R read again"},
    "filter": {"open": "enter keep", "back": "esc clear"},
}

# Ways to move; they work on every screen.
MOVES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("up", ("up", "k")),
    ("down", ("down", "j")),
    ("left", ("left", "h")),
    ("right", ("right", "l")),
    ("top", ("g", "home", "less_than_sign")),
    ("bottom", ("G", "end", "greater_than_sign")),
    ("page-up", ("pageup", "ctrl+b", "ctrl+u")),
    ("page-down", ("pagedown", "ctrl+f", "ctrl+d")),
)
_NAMES = {
    "right_square_bracket": "]", "left_square_bracket": "[", "slash": "/", "plus": "+", "minus": "-",
    "equals_sign": "=", "colon": ":", "question_mark": "?", "escape": "esc", "less_than_sign": "<",
    "greater_than_sign": ">", "pageup": "PgUp", "pagedown": "PgDn",
}  # fmt: skip


def spelled(keys: tuple[str, ...]) -> str:
    """Keys as people write them."""
    return " ".join(
        _NAMES.get(key, f"Ctrl-{key[5:].upper()}" if key.startswith("ctrl+") else key) for key in keys
    )
