"""What is known of causes: one TOML file each under ``knowledge/``, read and checked once.

docs/explain-knowledge.md describes the form for whoever adds a cause.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import structs

from netdoctor.compat import StrEnum, tomllib
from netdoctor.explain.literals import LEAST_LETTERS, alternatives, longest, required_fast

FOLDER = Path(__file__).parent / "knowledge"
CERTAIN = 100


class Role(StrEnum):
    """What a line is in the story of a failure."""

    CAUSE = "cause"  # says itself what is wrong
    SYMPTOM = "symptom"  # where it went wrong, for one of several reasons
    ECHO = "echo"  # what others say of somebody's failure
    CONTEXT = "context"  # no failure: versions, interfaces, what started


class KnowledgeError(ValueError):
    """A knowledge file is not in its form; the message names file, position and what is expected."""


@cache
def _compiled(regex: str) -> re.Pattern[str]:
    """Made when it is first tried: most never are, and all of them take half a second."""
    return re.compile(regex, re.ASCII)


@cache
def _tried_first(regex: str) -> tuple[str, re.Pattern[str]]:
    """A text that every match holds, and the expression, which takes fifty times as long to search for."""
    return longest(regex), _compiled(regex)


class Alternative(NamedTuple):
    """A part of an expression that can match alone."""

    regex: str
    letters: tuple[frozenset[str], ...]  # what a match holds, as literals.required() has it

    def search(self, text: str) -> re.Match[str] | None:
        """Where the text has it."""
        first, regex = _tried_first(self.regex)
        return regex.search(text) if first in text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One line that a library or tool can print."""

    id: str = ""
    label: str = ""  # of the file it stands in, "" in those of shared lines
    regex: str = r"(?!)"
    alternatives: tuple[Alternative, ...] = ()  # that the expression is one of; itself where it has a value
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
    otherwise: bool = False  # it counts where no other pattern knows the line
    follows: bool = False  # where something failed before it, it is an echo of that
    works: bool = False  # it shows that what was tried again before it worked in the end
    subject: bool = False  # what last lines are about; it counts where nothing at all is known of the logs
    # What it admits in place of `admits` where every rank of the logs says it.
    by_all: Mapping[str, int] = field(default_factory=dict)

    def search(self, text: str) -> re.Match[str] | None:
        """Where the line says it."""
        return _compiled(self.regex).search(text)

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
    # Where all of them pass on every node it is ruled out; not what passes by, or what no check sees whole.
    standing: bool = True
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
    try:
        file = msgspec.convert(data, type=_File)
    except msgspec.ValidationError as error:
        raise KnowledgeError(f"{name}: {error}") from None
    label = file.label
    if label and name != f"{label}.toml":
        raise KnowledgeError(f"{name}: the file of {label} is called {label}.toml")
    fields = {key: value for key, value in structs.asdict(file).items() if key != "pattern"}
    if any(value for key, value in fields.items() if key != "standing") and not (
        label and file.title and file.why
    ):
        raise KnowledgeError(f"{name}: label, title and why belong to every cause")
    patterns = [_pattern(row, label, name, number) for number, row in enumerate(file.pattern, 1)]
    return (Known(**{**fields, "why": file.why.strip("\n")}) if label else None), patterns


_Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
_Percents = dict[str, Annotated[int, msgspec.Meta(ge=1, le=CERTAIN)]]


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    """A pattern as it stands in a file: the fields of Pattern. percent: of the file's own label."""

    regex: _Text
    line: _Text
    source: _Text
    id: str = ""
    role: Role = Role.CAUSE
    admits: _Percents = {}
    percent: int | None = None
    supports: _Percents = {}
    against: _Percents = {}
    needs: tuple[str, ...] = ()
    differs: bool = False
    retried: bool = False
    otherwise: bool = False
    follows: bool = False
    works: bool = False
    subject: bool = False
    by_all: _Percents = {}
    rank: int | None = None
    releases: str = ""
    example_of: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """A file: the fields of Known, and patterns."""

    label: str = ""
    title: str = ""
    why: str = ""
    words: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    standing: bool = True
    fix_from: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()
    pattern: list[_Row] = []


def _pattern(row: _Row, label: str, name: str, number: int) -> Pattern:
    fields = structs.asdict(row)
    percent = fields.pop("percent")
    if label and label not in row.admits and row.role in (Role.CAUSE, Role.SYMPTOM):
        fields["admits"] = {**row.admits, label: percent or (CERTAIN if row.role is Role.CAUSE else 30)}
    fields["id"] = row.id or f"{name.removesuffix('.toml')}:{number}"
    where = f"{name}: pattern {number}"
    parts = [row.regex] if "(?P<" in row.regex else alternatives(row.regex)
    known = () if row.subject else tuple(Alternative(part, _letters(where, part)) for part in parts)
    return Pattern(**fields, label=label, alternatives=known)


def _letters(where: str, text: str) -> tuple[frozenset[str], ...]:
    try:
        letters = required_fast(text)
    except re.error as error:
        raise KnowledgeError(f"{where}: regex: {error}") from error
    if not letters:
        raise KnowledgeError(
            f"{where}: every match of {text} must hold {LEAST_LETTERS} fixed letters from g to z in a row"
        )
    return letters


def _complete(causes: Mapping[str, Known], patterns: list[Pattern]) -> None:
    """Whatever is named is there. Raises KnowledgeError."""
    ids = {one.id for one in patterns}
    if len(ids) < len(patterns):
        count = Counter(one.id for one in patterns)
        raise KnowledgeError(f"pattern id {min(i for i in count if count[i] > 1)} is given twice")
    for one in patterns:
        for label in (*one.admits, *one.supports, *one.against, *one.by_all):
            if label not in causes:
                raise KnowledgeError(f"pattern {one.id} names {label}, which has no file")
        for needed in one.needs:
            if needed not in ids:
                raise KnowledgeError(f"pattern {one.id} needs {needed}, which is no pattern's id")
