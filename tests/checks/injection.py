"""No word of a node stands bare in a command: calls of checks are made again with hostile text.

`watch()` puts a wrapper in front of each check, before tests import it. Where a call prints a command, it is
made again once for each text in its facts, followed by what ends a quotation, a line and a command. Wherever
that reaches a command it has to stand in single quotes.
"""

import copy
import importlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import wraps
from itertools import islice
from types import FunctionType
from typing import Any

from netdoctor.engine.registry import load_builtin
from netdoctor.model import Cause, Finding

Place = tuple[str, ...]

# The first mark would end quotes that were put around without looking.
HOSTILE = "Q'Q;Q$(Q)`Q`\nQ".replace("Q", "QZQ")
MARK = re.compile("QZQ")
# What was tried, over all tests of this process: check, cause, field.
_TRIED: set[tuple[str, str, Place]] = set()


def bare(shell: str) -> bool:
    """Whether some of the hostile text stands in `shell` outside of single quotes and comments."""
    marks = {match.start() for match in MARK.finditer(shell)}
    quote, at = "", 0
    while at < len(shell):
        letter = shell[at]
        if at in marks and quote not in ("'", "#"):
            return True
        if quote == "#":
            quote = "" if letter == "\n" else quote
        elif quote:
            at += letter == "\\" and quote == '"'
            quote = "" if letter == quote else quote
        elif letter in "'\"" or (letter == "#" and (at == 0 or shell[at - 1] in " \t\n;")):
            quote = letter
        else:
            at += letter == "\\"
        at += 1
    return False


def shells(findings: Iterable[Finding]) -> Iterator[tuple[str, str]]:
    """Every command of the findings: the key of its cause, and what a shell gets."""
    for finding in findings:
        for fix in finding.cause.fixes if finding.cause else ():
            for command in (*fix.commands, *fix.undo):
                yield finding.cause.key if finding.cause else "", command.shell


def texts(value: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Every text in facts, and in which field. Entries of one list, and those of all nodes, are alike."""
    if isinstance(value, str) and not isinstance(value, Enum):
        yield place, value
    elif isinstance(value, Cause):
        return  # our own words, in a conclusion
    elif is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            yield from texts(getattr(value, one.name), (*place, one.name))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from texts(key, (*place, "key"))
            yield from texts(inner, place)
    elif isinstance(value, Collection) and not isinstance(value, bytes):
        for inner in islice(value, 8):
            yield from texts(inner, place)


def spoiled(value: Any, text: str, hostile: str) -> Any:
    """A copy of facts with `hostile` wherever they have `text`, in keys too: they stay true to each other."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return hostile if value == text else value
    if isinstance(value, Mapping):
        pairs = value.items()
        return {spoiled(key, text, hostile): spoiled(inner, text, hostile) for key, inner in pairs}
    if isinstance(value, (tuple, list, frozenset)):
        return type(value)(spoiled(one, text, hostile) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        again = copy.copy(value)
        for one in fields(value):
            object.__setattr__(again, one.name, spoiled(getattr(value, one.name), text, hostile))
        return again
    return value


def attack(check: Callable[..., Any], named: Mapping[str, Any], causes: Collection[str]) -> None:
    """Make a call again with hostile text in each field. AssertionError: a command has it bare.

    named: the arguments by name. causes: of the findings that came with commands.
    """
    for argument, facts in named.items():
        for place, text in texts(facts, (argument,)):
            new = {(check.__name__, cause, place) for cause in causes}
            if not text or new <= _TRIED:
                continue
            _TRIED.update(new)
            spoil = {name: spoiled(value, text, text + HOSTILE) for name, value in named.items()}
            with suppress(LookupError):  # conclusions that a test hands over, and which no longer fit
                for key, shell in shells(check(**spoil)):
                    where = ".".join(place)
                    assert not bare(shell), f"{check.__name__}, {key}: {where} stands bare in {shell!r}"


def watched(check: FunctionType) -> Callable[..., Any]:
    names = check.__code__.co_varnames[: check.__code__.co_argcount + check.__code__.co_kwonlyargcount]

    @wraps(check)
    def call(*values: Any, **named: Any) -> list[Finding]:
        findings = list(check(*values, **named))
        if causes := {key for key, _ in shells(findings)}:
            attack(check, {**dict(zip(names, values, strict=False)), **named}, causes)
        return findings

    return call


def watch() -> None:
    """Put the wrapper in front of every check. The registry keeps the checks as they are."""
    for one in load_builtin().values():
        module = importlib.import_module(one.origin)
        setattr(module, one.function.__name__, watched(getattr(module, one.function.__name__)))
