"""What a regular expression cannot match without: letters that a log is searched for before it is tried.

Log and expression are folded alike: what remains are the ASCII letters from g to z in lower case. Numbers,
addresses and hashes are gone whether decimal or hexadecimal: ``errno: (\\d+) - Address already in use`` is
``rrnorsslryinus``, whatever the number.
"""

import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

_NEW = sys.version_info >= (3, 11)
_parser: Any = importlib.import_module("re._parser" if _NEW else "sre_parse")
_constants: Any = importlib.import_module("re._constants" if _NEW else "sre_constants")

_UPPER = bytes(range(ord("A"), ord("Z") + 1))
FOLD = bytes.maketrans(_UPPER, _UPPER.lower())
_LETTERS = b"ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ"
# Line ends stay: a block of lines is folded at once.
DROP = bytes(b for b in range(256) if b not in _LETTERS and b != ord("\n"))

_WORDS = (
    *("rank", "ranks", "node", "worker", "workers", "host", "process", "group", "local", "global", "device"),
    *("python", "torch", "train", "step", "loss", "user", "time", "share", "shared", "memory", "checkpoint"),
    *("not", "NCCL INFO", "ssh", "store", "network", "connection", "address", "port", "using", "size"),
)
_SILENT_CLASSES = {_constants.CATEGORY_DIGIT, _constants.CATEGORY_SPACE}
_REPEATS = {_constants.MAX_REPEAT, _constants.MIN_REPEAT, getattr(_constants, "POSSESSIVE_REPEAT", None)}


def fold(text: str) -> str:
    """What is left of a text."""
    return text.encode("utf-8", "replace").translate(FOLD, DROP).decode()


_COMMON = frozenset(map(fold, _WORDS))


def required(regex: str) -> frozenset[str]:
    """Folded texts of which every match has at least one; empty where there is nothing to search for."""
    return _best(_parser.parse(regex, re.ASCII))


def _best(items: Iterable[Any]) -> frozenset[str]:
    found: list[frozenset[str]] = []
    run = ""
    for item in _flat(items):
        if isinstance(item, str):
            run += item
            continue
        found.append(frozenset([run]))
        run = ""
        if item is not None:
            found.append(item)
    found.append(frozenset([run]))
    return max(found, key=lambda one: min(map(_worth, one), default=0))


def _worth(letters: str) -> float:
    """How much a text narrows a log down; words that every line of a healthy job may hold do little."""
    return min(len(letters), 2.5 + len(letters) / 100) if letters in _COMMON else len(letters)


def _flat(items: Iterable[Any]) -> Iterator[str | frozenset[str] | None]:
    """Letters that follow each other; None where anything may stand; sets where one of several does."""
    for op, argument in items:
        if op is _constants.LITERAL:
            yield fold(chr(argument))
        elif op in (_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT):
            continue
        elif op is _constants.IN:
            letters = _letters(argument)
            if letters != {""}:
                yield letters.pop() if len(letters) == 1 else None
        elif op is _constants.SUBPATTERN:
            yield from _flat(argument[-1])
        elif op in _REPEATS:
            yield from _repeated(argument[0], argument[2])
        elif op is _constants.BRANCH:
            branches = [_best(branch) for branch in argument[1]]
            usable = all(branch and "" not in branch for branch in branches)
            yield frozenset().union(*branches) if usable else None
        else:  # any character, a back reference
            yield None


def _repeated(least: int, items: Any) -> Iterator[str | frozenset[str] | None]:
    parts = list(_flat(items))
    if all(part == "" for part in parts):
        return  # blanks, digits, signs: nothing of them is left in a folded line
    yield None
    if least:
        yield _best(items)


def _letters(choices: Iterable[Any]) -> set[str]:
    """What a class leaves of a character that it matches; more than one where that is unknown."""
    left: set[str] = set()
    for op, argument in choices:
        if op is _constants.LITERAL:
            left.add(fold(chr(argument)))
        elif op is _constants.RANGE and argument[1] - argument[0] < 64:
            left.update(fold(chr(code)) for code in range(argument[0], argument[1] + 1))
        elif op is _constants.CATEGORY and argument in _SILENT_CLASSES:
            left.add("")
        else:
            return {"", "?"}
    return left


def nested(regex: str) -> bool:
    """Whether a repetition without a bound holds another one, so that a match may take exponential time."""
    return _nested(_parser.parse(regex, re.ASCII), inside=False)


def _nested(items: Iterable[Any], inside: bool) -> bool:
    for op, argument in items:
        if op in _REPEATS:
            unbounded = argument[1] is _constants.MAXREPEAT
            if (inside and argument[1] > 1) or _nested(argument[2], inside or unbounded):
                return True
        elif op is _constants.SUBPATTERN:
            if _nested(argument[-1], inside):
                return True
        elif op is _constants.BRANCH:
            if any(_nested(branch, inside) for branch in argument[1]):
                return True
        elif op in (_constants.ASSERT, _constants.ASSERT_NOT) and _nested(argument[1], inside):
            return True
    return False
