"""Texts that an expression has to work hardest for: each of its repetitions, many times over, then no end.

Read from the expression itself (`re`'s own parser), so that none is forgotten.
"""

import ast
from collections.abc import Iterator
from typing import Any

try:
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse as parser  # type: ignore[no-redef]

# An expression without a bound of its own up to here is pumped.
MANY = 20
END = "\x01"
OF_CATEGORY = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "w"}


def texts(pattern: str, length: int) -> Iterator[str]:
    """Texts of about `length` characters."""
    tree = parser.parse(pattern)
    whole = _sample(tree)
    for unit in {whole, whole[:-1]} - {""}:
        yield unit * (length // len(unit)) + END
    for prefix, unit in dict.fromkeys(_repetitions(tree)):
        yield prefix + unit * (length // len(unit)) + END
        yield (prefix + unit) * (length // len(prefix + unit)) + END


def _repetitions(tree: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """(what stands before, one round) of each repetition without a small bound."""
    for op, value in tree:
        name = str(op)
        if name.endswith("_REPEAT"):
            if value[1] > MANY and (unit := _sample(value[2])):
                yield prefix, unit
            yield from _repetitions(value[2], prefix)
        elif name == "SUBPATTERN":
            yield from _repetitions(value[3], prefix)
        elif name == "BRANCH":
            for branch in value[1]:
                yield from _repetitions(branch, prefix)
        prefix += _piece(name, value)


def _sample(tree: Any) -> str:
    """A text that may match."""
    return "".join(_piece(str(op), value) for op, value in tree)


def _piece(name: str, value: Any) -> str:
    match name:
        case "LITERAL":
            return chr(value)
        case "NOT_LITERAL":
            return "q" if value != ord("q") else "z"
        case "ANY":
            return "x"
        case "IN":
            return _of_set(value)
        case "BRANCH":
            return _sample(value[1][0])
        case "SUBPATTERN":
            return _sample(value[3])
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _sample(value[2]) * max(value[0], min(value[1], 1))
        case _:
            return ""


def _of_set(members: Any) -> str:
    """A character of a set; of one that excludes, what most leave."""
    op, value = members[0]
    match str(op):
        case "NEGATE":
            excluded = "".join(chr(v) for o, v in members[1:] if str(o) == "LITERAL")
            return next(c for c in "x1 -:q" if c not in excluded)
        case "LITERAL":
            return chr(value)
        case "RANGE":
            return chr(value[0])
        case _:
            return OF_CATEGORY.get(str(value), "-")


def expressions(source: str) -> Iterator[tuple[str, bool]]:
    """(expression, whether it is only tried at one place) of each literal in a module's source."""
    tree = ast.parse(source)
    methods: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            methods.setdefault(node.value.id, set()).add(node.attr)
    names = {
        id(node.value): node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re"), attr=method),
                args=[ast.Constant(value=str() | bytes() as text), *_],
            ):
                used = methods.get(names.get(id(node), ""), {"search"}) if method == "compile" else {method}
                yield (
                    text if isinstance(text, str) else text.decode("latin-1"),
                    used <= {"match", "fullmatch"},
                )
