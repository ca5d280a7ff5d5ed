"""Names of styles to looks, for dark and light backgrounds. The letters already say everything."""

from rich.style import Style

# On a dark background, and on a light one. Bands are reversed, which stays where there is no colour.
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
    "code": ("on #0a0f16", "on #eaeef2"),
    "cursor": ("reverse", "reverse"),
    "line": ("on #2b333d", "on #dbe4ee"),
    "band": ("#c9d1d9 on #21262d", "#24292f on #e1e7ed"),
    "key": ("bold #79c0ff on #21262d", "bold #0550ae on #e1e7ed"),
    "tab": ("bold reverse #1f6feb on #ffffff", "bold reverse #0550ae on #ffffff"),
    "band.good": ("reverse #12482a on #d7f5df", "reverse #c3ecd0 on #0b3d1e"),
    "band.bad": ("reverse #5f1620 on #ffdcd9", "reverse #ffd3d0 on #6b0d16"),
    "band.open": ("reverse #392a5e on #eadcff", "reverse #e6d8fb on #40207a"),
    "band.head": ("reverse #0c3358 on #d6e9ff", "reverse #cfe4fb on #0a3069"),
    "chip.good": ("bold reverse #238636 on #ffffff", "bold reverse #1a7f37 on #ffffff"),
    "chip.bad": ("bold reverse #c62f3a on #ffffff", "bold reverse #b3161f on #ffffff"),
    "chip.open": ("bold reverse #7441c4 on #ffffff", "bold reverse #6f2dbd on #ffffff"),
    "chip.head": ("bold reverse #1f6feb on #ffffff", "bold reverse #0550ae on #ffffff"),
    # Cells of a matrix, by their letters' styles: the letter stays what it is.
    "cell.pass": ("#8fd19e on #16331f", "#1f5a30 on #d5efdc"),
    "cell.warn": ("bold #1c1600 on #d9a93a", "bold #3d2b00 on #f2c94c"),
    "cell.fail": ("bold #ffffff on #a4242f", "bold #ffffff on #c62f3a"),
    "cell.unknown": ("bold #ffffff on #63409e", "bold #ffffff on #7441c4"),
    "cell.blocked": ("#c3ccd8 on #333d4b", "#3b4754 on #c8d1dc"),
    "cell.busy": ("bold #ffffff on #1f5fb0", "bold #ffffff on #0550ae"),
    # Values of pairs, the worst first.
    "heat0": ("bold #ffffff on #a4242f", "bold #ffffff on #c62f3a"),
    "heat1": ("#ffffff on #9a4a12", "#2b1300 on #f2a65a"),
    "heat2": ("#1c1600 on #c79a35", "#3d2b00 on #f5d97e"),
    "heat3": ("#eef6df on #45632a", "#24350f on #cfe3ac"),
    "heat4": ("#d7f5df on #1c5a31", "#0b3d1e on #a9dfb9"),
}
# By whether the background is dark.
LOOKS = {
    dark: {"": Style.null(), **{name: Style.parse(pair[not dark]) for name, pair in _STYLES.items()}}
    for dark in (True, False)
}
