"""What is known of causes: one TOML file each under ``knowledge/``, read and checked once.

docs/explain-knowledge.md describes the form for whoever adds a cause.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from netdoctor.explain.literals import required

FOLDER = Path(__file__).parent / "knowledge"
CERTAIN = 100
LEAST_LETTERS = 3


class Role(StrEnum):
    """What a line is in the story of a failure."""

    CAUSE = "cause"  # says itself what is wrong
    SYMPTOM = "symptom"  # where it went wrong, for one of several reasons
    ECHO = "echo"  # what others say of somebody's failure
    CONTEXT = "context"  # no failure: versions, interfaces, what started


class KnowledgeError(ValueError):
    """A knowledge file is not in its form; the message names file, place and what is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One line that a library or tool can print."""

    id: str = ""
    label: str = ""  # of the file it stands in, "" in those of shared lines
    regex: re.Pattern[str] = re.compile(r"(?!)")
    letters: frozenset[str] = frozenset()
    role: Role = Role.CONTEXT
    # Label to how likely it is, in percent, of this line alone; 100 where the line admits nothing else.
    admits: Mapping[str, int] = field(default_factory=dict)
    # Percent by which the line raises or lowers a cause that others admit; 100 against rules it out.
    supports: Mapping[str, int] = field(default_factory=dict)
    against: Mapping[str, int] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # ids of patterns without which it says nothing
    differs: bool = False  # it counts once the group ``value`` has two values
    # The program tries again: it counts only where something failed in the end, or it is the last in the log.
    retried: bool = False
    rank: int | None = None  # it counts only where this rank says it
    line: str = ""  # a real one
    source: str = ""  # project and file
    releases: str = ""  # where it is printed so
    example_of: str = ""  # the report that is the only reason why it is here


# What a line is that looks like an error and is not known.
UNKNOWN = Pattern()


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One cause."""

    label: str
    title: str
    why: str
    words: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()  # which decide, the best first
    causes: tuple[str, ...] = ()  # the keys that they find it by
    fix_from: tuple[str, ...] = ()  # the checks whose manual has the rest of the fix
    fix: tuple[str, ...] = ()  # what no check has


@dataclass(frozen=True, slots=True)
class Knowledge:
    """All causes by label, and all patterns."""

    causes: Mapping[str, Known]
    patterns: tuple[Pattern, ...] = field(repr=False)

    def without(self, report: str) -> "Knowledge":
        """What would be known had nobody seen this report."""
        return Knowledge(self.causes, tuple(one for one in self.patterns if one.example_of != report))


@cache
def load(folder: Path = FOLDER) -> Knowledge:
    """Everything under a folder. Raises KnowledgeError."""
    causes: dict[str, Known] = {}
    patterns: list[Pattern] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            data = tomllib.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise KnowledgeError(f"{path.name}: {error}") from error
        known, found = read(data, path.name)
        if known is not None:
            causes[known.label] = known
        patterns += found
    _complete(causes, patterns)
    return Knowledge(causes, tuple(patterns))


def read(data: dict[str, Any], name: str) -> tuple[Known | None, list[Pattern]]:
    """One file's content; no cause where it has no label, as the files of shared lines."""
    label = data.get("label", "")
    if label and name != f"{label}.toml":
        raise KnowledgeError(f"{name}: the file of {label} is called {label}.toml")
    _keys(name, data, {*_TEXTS, *_LISTS, "pattern"} if label else {"pattern"})
    known = None
    if label:
        fields: dict[str, Any] = {key: _text(name, data, key) for key in _TEXTS}
        fields |= {key: _list(name, data, key) for key in _LISTS}
        known = Known(**fields)
    return known, list(_patterns(data.get("pattern", []), label, name))


_TEXTS = ("label", "title", "why")
_LISTS = ("words", "checks", "causes", "fix_from", "fix")
_PATTERN_TEXTS = ("id", "regex", "line", "source", "releases", "role", "example_of")
_PATTERN_TABLES = ("admits", "supports", "against")
_PATTERN_OTHERS = ("needs", "differs", "retried", "rank", "percent")


def _patterns(tables: Any, label: str, name: str) -> Iterator[Pattern]:
    for number, table in enumerate(tables, 1):
        where = f"{name}: pattern {number}"
        _keys(where, table, {*_PATTERN_TEXTS, *_PATTERN_TABLES, *_PATTERN_OTHERS})
        role = _role(where, table.get("role", "cause"))
        admits = _table(where, table, "admits")
        if label and label not in admits and role in (Role.CAUSE, Role.SYMPTOM):
            admits[label] = int(table.get("percent", CERTAIN if role is Role.CAUSE else 30))
        regex, letters = _regex(where, _text(where, table, "regex"))
        yield Pattern(
            id=table.get("id", f"{name.removesuffix('.toml')}:{number}"),
            label=label,
            regex=regex,
            letters=letters,
            role=role,
            admits=admits,
            supports=_table(where, table, "supports"),
            against=_table(where, table, "against"),
            needs=_list(where, table, "needs"),
            differs=bool(table.get("differs", False)),
            retried=bool(table.get("retried", False)),
            rank=table.get("rank"),
            line=_text(where, table, "line"),
            source=_text(where, table, "source"),
            releases=table.get("releases", ""),
            example_of=table.get("example_of", ""),
        )


def _regex(where: str, text: str) -> tuple[re.Pattern[str], frozenset[str]]:
    try:
        regex, letters = re.compile(text, re.ASCII), required(text)
    except re.error as error:
        raise KnowledgeError(f"{where}: regex: {error}") from error
    if min(map(len, letters), default=0) < LEAST_LETTERS:
        raise KnowledgeError(
            f"{where}: every match of the regex must hold {LEAST_LETTERS} fixed letters from g to z in a row"
        )
    return regex, letters


def _role(where: str, text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise KnowledgeError(f"{where}: role is one of {', '.join(Role)}, not {text!r}") from None


def _keys(where: str, table: Mapping[str, Any], allowed: set[str]) -> None:
    strange = sorted(table.keys() - allowed)
    if strange:
        raise KnowledgeError(
            f"{where}: {strange[0]!r} is no key here; there are: {', '.join(sorted(allowed))}"
        )


def _text(where: str, table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise KnowledgeError(f"{where}: {key} is a text, and needed")
    return value.strip("\n")


def _list(where: str, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise KnowledgeError(f"{where}: {key} is a list of texts")
    return tuple(value)


def _table(where: str, table: Mapping[str, Any], key: str) -> dict[str, int]:
    value = table.get(key, {})
    if not isinstance(value, dict) or not all(
        isinstance(v, int) and 0 < v <= CERTAIN for v in value.values()
    ):
        raise KnowledgeError(f"{where}: {key} is a table of labels and percentages from 1 to 100")
    return dict(value)


def _complete(causes: Mapping[str, Known], patterns: list[Pattern]) -> None:
    """Whatever is named is there. Raises KnowledgeError."""
    ids = {one.id for one in patterns}
    if len(ids) < len(patterns):
        count = Counter(one.id for one in patterns)
        raise KnowledgeError(f"pattern id {min(i for i in count if count[i] > 1)} is given twice")
    for one in patterns:
        for label in (*one.admits, *one.supports, *one.against):
            if label not in causes:
                raise KnowledgeError(f"pattern {one.id} names {label}, which has no file")
        for needed in one.needs:
            if needed not in ids:
                raise KnowledgeError(f"pattern {one.id} needs {needed}, which is no pattern's id")
