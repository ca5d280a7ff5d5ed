"""Names of styles to looks, for dark and light backgrounds. The letters already say everything."""

from rich.style import Style

_DARK = {
    "pass": "#7d9a82",
    "warn": "bold #e5c07b",
    "fail": "bold #ff7b72",
    "unknown": "bold #d2a8ff",
    "blocked": "#7f8ea3",
    "skip": "#6e7681",
    "busy": "bold #79c0ff",
    "good": "bold #7ee787",
    "bad": "bold #ff7b72",
    "open": "bold #d2a8ff",
    "head": "bold",
    "label": "#79c0ff",
    "dim": "#8b949e",
    "rule": "#484f58",
    "command": "#a5d6ff",
    "cursor": "reverse",
    "line": "on #21262d",
    "tab": "reverse bold",
    "heat0": "bold #ff7b72",
    "heat1": "#f0883e",
    "heat2": "#e5c07b",
    "heat3": "#9bb87a",
    "heat4": "#7ee787",
}
_LIGHT = {
    "pass": "#3f6b4a",
    "warn": "bold #8a5a00",
    "fail": "bold #b3161f",
    "unknown": "bold #6f2dbd",
    "blocked": "#57606a",
    "skip": "#6e7781",
    "busy": "bold #0550ae",
    "good": "bold #116329",
    "bad": "bold #b3161f",
    "open": "bold #6f2dbd",
    "head": "bold",
    "label": "#0550ae",
    "dim": "#57606a",
    "rule": "#afb8c1",
    "command": "#0a3069",
    "cursor": "reverse",
    "line": "on #dfe5ec",
    "tab": "reverse bold",
    "heat0": "bold #b3161f",
    "heat1": "#a04100",
    "heat2": "#8a5a00",
    "heat3": "#4d6b1f",
    "heat4": "#116329",
}
LOOKS = {
    True: {name: Style.parse(text) for name, text in _DARK.items()},
    False: {name: Style.parse(text) for name, text in _LIGHT.items()},
}
LOOKS[True][""] = LOOKS[False][""] = Style.null()
