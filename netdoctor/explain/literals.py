"""What a regular expression cannot match without: letters that a log is searched for before it is tried.

Log and expression are folded alike: what remains are the ASCII letters from g to z in lower case. Numbers,
addresses and hashes are gone whether decimal or hexadecimal: ``errno: (\\d+) - Address already in use`` is
``rrnorsslryinus``, whatever the number.
"""

import hashlib
import importlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

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


@cache
def _folded(code: int) -> str:
    return fold(chr(code))


_COMMON = frozenset(map(fold, _WORDS))


class _Part(NamedTuple):
    """What is left of a part of an expression: it is one of these texts (exact), or holds one of them."""

    texts: frozenset[str]
    exact: bool


_ANYTHING = _Part(frozenset(), False)
_NOTHING = frozenset([""])
LEAST_LETTERS = 3  # shorter texts are in every other line
LETTERS_MAX = 4  # that a class may leave of a character; more count as any
TEXTS_MAX = 48  # that an exact part may be; more are searched for part by part


def required(regex: str) -> tuple[frozenset[str], ...]:
    """Sets of folded texts; every match has at least one of each set. The set that tells most comes first;
    none has a text of less than LEAST_LETTERS."""
    sets = dict.fromkeys(_shortest(one) for one in _needed(_flat(_parser.parse(regex, re.ASCII))))
    return tuple(
        sorted((one for one in sets if min(map(len, one)) >= LEAST_LETTERS), key=_worth_of_any, reverse=True)
    )


# Escapes, classes, groups and bars of an expression.
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()|]", re.DOTALL)


def alternatives(regex: str) -> list[str]:
    """What an expression is one of, as expressions of their own: each is only tried where its letters are.

    >>> alternatives(r"(?i)port (?:a|b)|(?:in|out) of [|)]")
    ['(?i)port (?:a|b)', '(?i)(?:in|out) of [|)]']
    """
    flags = "(?i)" if regex.startswith("(?i)") else ""
    found, depth, start = [], 0, len(flags)
    for token in _TOKEN.finditer(regex, start):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if token[0] == "|" and not depth:
            found.append(flags + regex[start : token.start()])
            start = token.end()
    return [*found, flags + regex[start:]]


def longest(regex: str) -> str:
    """The longest text that every match holds as it stands. "" where that is short, or where the
    expression takes capitals and small letters alike.

    >>> longest(r"(?<!x)Signal (?:9|15) \\(SIG\\w+\\) received")
    ') received'
    """
    tree = _parser.parse(regex, re.ASCII)
    runs = [""]

    def read(items: Iterable[Any]) -> None:
        for op, argument in items:
            if op is _constants.LITERAL:
                runs[-1] += chr(argument)
            elif op is _constants.SUBPATTERN and not argument[1]:  # without flags of its own
                read(argument[-1])
            elif op not in (_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT):
                runs.append("")

    read(tree)
    found = max(runs, key=len)
    return found if len(found) >= LEAST_LETTERS and not tree.state.flags & re.IGNORECASE else ""


def required_fast(regex: str) -> tuple[frozenset[str], ...]:
    """What `required` gives, looked up where it was worked out before: all patterns take half a second.

    scripts/gen_docs.py writes the table; one that is not in it costs time and nothing else.
    """
    return _letters_table().get(key_of(regex)) or required(regex)


def key_of(regex: str) -> str:
    """What the table knows an expression by."""
    return hashlib.blake2b(regex.encode(), digest_size=8).hexdigest()


@cache
def _letters_table() -> dict[str, tuple[frozenset[str], ...]]:
    text = Path(__file__).with_name("data").joinpath("letters.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, tuple[frozenset[str], ...]])


def _shortest(texts: frozenset[str]) -> frozenset[str]:
    """Without those that hold another one."""
    return frozenset(one for one in texts if not any(other != one and other in one for other in texts))


def _needed(parts: Iterable[_Part]) -> list[frozenset[str]]:
    found: list[frozenset[str]] = []
    run = _NOTHING
    for part in parts:
        if not part.exact:
            found += (run, part.texts) if part.texts else (run,)
            run = _NOTHING
        elif (longer := _joined(run, part.texts)) is not None:
            run = longer
        else:
            found.append(run)
            run = part.texts
    return [*found, run]


def _best(parts: Iterable[_Part]) -> frozenset[str]:
    return max(_needed(parts), key=_worth_of_any)


def _worth_of_any(texts: frozenset[str]) -> float:
    return min(map(_worth, texts))


def _joined(first: frozenset[str], then: frozenset[str]) -> frozenset[str] | None:
    """All of both in a row; None for too many."""
    if then == _NOTHING:
        return first
    if len(first) * len(then) > TEXTS_MAX:
        return None
    return frozenset(one + other for one in first for other in then)


def _worth(letters: str) -> float:
    """How much a text narrows a log down; words that every line of a healthy job may hold do little."""
    return min(len(letters), 2.5 + len(letters) / 100) if letters in _COMMON else len(letters)


def _flat(items: Iterable[Any]) -> Iterator[_Part]:
    for is_literal, some in groupby(items, key=_is_literal):
        if is_literal:
            yield _Part(frozenset([fold("".join(map(chr, (code for _, code in some))))]), True)
        else:
            yield from _parts(some)


def _is_literal(item: tuple[Any, Any]) -> bool:
    return item[0] is _constants.LITERAL


def _parts(items: Iterable[Any]) -> Iterator[_Part]:
    for op, argument in items:
        if op in (_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT):
            continue
        elif op is _constants.IN:
            letters = _letters(argument)
            yield _Part(letters, True) if letters else _ANYTHING
        elif op is _constants.SUBPATTERN:
            yield from _flat(argument[-1])
        elif op in _REPEATS:
            yield from _repeated(*argument)
        elif op is _constants.BRANCH:
            yield _one_of([list(_flat(branch)) for branch in argument[1]])
        else:  # any character, a back reference
            yield _ANYTHING


def _one_of(branches: Sequence[list[_Part]]) -> _Part:
    exact = [_exact_texts(branch) for branch in branches]
    texts = frozenset().union(*(one for one in exact if one))
    if None not in exact and len(texts) <= TEXTS_MAX:
        return _Part(texts, True)
    best = [_best(branch) for branch in branches]
    usable = all(one and "" not in one for one in best)
    return _Part(frozenset().union(*best), False) if usable else _ANYTHING


def _exact_texts(parts: Iterable[_Part]) -> frozenset[str] | None:
    """All texts of parts in a row; None where they are not known, or are many."""
    run: frozenset[str] | None = _NOTHING
    for part in parts:
        run = _joined(run, part.texts) if part.exact and run is not None else None
    return run


def _repeated(least: int, most: int, items: Any) -> Iterator[_Part]:
    parts = list(_flat(items))
    exact = _exact_texts(parts)
    if exact == _NOTHING:
        return  # blanks, digits, signs: nothing of them is left in a folded line
    if exact is not None and most == 1:
        yield _Part(exact if least else exact | _NOTHING, True)
        return
    yield _ANYTHING
    if least:
        yield _Part(_best(parts), False)
        yield _ANYTHING


def _letters(choices: Iterable[Any]) -> frozenset[str]:
    """What a class leaves of a character that it matches; empty where that is unknown, or one of many."""
    left: set[str] = set()
    for op, argument in choices:
        if op is _constants.LITERAL:
            left.add(_folded(argument))
        elif op is _constants.RANGE and argument[1] - argument[0] < 64:
            left.update(_folded(code) for code in range(argument[0], argument[1] + 1))
        elif op is _constants.CATEGORY and argument in _SILENT_CLASSES:
            left.add("")
        else:
            return frozenset()
    return frozenset(left if len(left) <= LETTERS_MAX else ())
