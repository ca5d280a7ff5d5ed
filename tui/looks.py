"""Names of styles to looks, for dark and light backgrounds. The letters already say everything."""

from rich.style import Style

# On a dark background, and on a light one.
_STYLES = {
    "pass": ("#7d9a82", "#3f6b4a"),
    "warn": ("bold #e5c07b", "bold #8a5a00"),
    "fail": ("bold #ff7b72", "bold #b3161f"),
    "unknown": ("bold #d2a8ff", "bold #6f2dbd"),
    "blocked": ("#7f8ea3", "#57606a"),
    "skip": ("#6e7681", "#6e7781"),
    "busy": ("bold #79c0ff", "bold #0550ae"),
    "good": ("bold #7ee787", "bold #116329"),
    "bad": ("bold #ff7b72", "bold #b3161f"),
    "open": ("bold #d2a8ff", "bold #6f2dbd"),
    "head": ("bold", "bold"),
    "label": ("#79c0ff", "#0550ae"),
    "dim": ("#8b949e", "#57606a"),
    "rule": ("#484f58", "#afb8c1"),
    "command": ("#a5d6ff", "#0a3069"),
    "cursor": ("reverse", "reverse"),
    "line": ("on #21262d", "on #dfe5ec"),
    "tab": ("reverse bold", "reverse bold"),
    "heat0": ("bold #ff7b72", "bold #b3161f"),
    "heat1": ("#f0883e", "#a04100"),
    "heat2": ("#e5c07b", "#8a5a00"),
    "heat3": ("#9bb87a", "#4d6b1f"),
    "heat4": ("#7ee787", "#116329"),
}
# By whether the background is dark.
LOOKS = {
    dark: {"": Style.null(), **{name: Style.parse(pair[not dark]) for name, pair in _STYLES.items()}}
    for dark in (True, False)
}
