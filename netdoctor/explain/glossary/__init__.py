"""Words that people meet in launch scripts and logs, as data: one TOML file a group, read when asked for.

`known()` is everything; `find("--nproc_per_node")` is what a word means. Other rooms may read name, kind,
program, type and allowed values of a Word.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from netdoctor.compat import tomllib

KINDS = ("variable", "option", "program", "error code", "term", "verdict")
# What a value has to look like; `switch` is 0 or 1, `endpoint` HOST:PORT, `index` counts from 0.
TYPES = (
    "",
    *("bytes", "cidr", "count", "devices", "endpoint", "hcas", "host", "index", "integer", "interfaces"),
    *("milliseconds", "minutes", "path", "paths", "port", "seconds", "switch"),
)
CODES = "codes.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One entry."""

    name: str  # as it is written: ``NCCL_DEBUG``, ``--nnodes``, ``docker --gpus``, ``Xid 79``
    kind: str  # one of KINDS
    group: str  # the heading it is listed under
    what: str  # one sentence
    source: str  # where this is known from
    program: str = ""  # of an option, whose it is
    also: tuple[str, ...] = ()  # other ways to write it; one that ends in ``_`` is a prefix of variables
    by: str = ""  # who sets it
    default: str = ""
    values: str = ""
    allowed: tuple[str, ...] = ()  # every value that is understood; empty where there is no such list
    type: str = ""  # one of TYPES
    wrong: tuple[str, ...] = ()  # what goes wrong with it
    do: str = ""  # about an error code
    checks: tuple[str, ...] = ()  # ids of those that decide
    see: tuple[str, ...] = ()  # names of other words


@cache
def entries() -> tuple[Word, ...]:
    """All entries, in the order of their files. Raises ValueError where one is written wrongly."""
    found: list[Word] = []
    for file in sorted(files(__package__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            data = tomllib.loads(file.read_text(encoding="utf-8"))
            found += _codes(data) if file.name == CODES else _entries(data, file.name)
    return tuple(found)


def _entries(data: Mapping[str, Any], file: str) -> Iterator[Word]:
    shared = data["_"]
    for name, row in data.items():
        if name == "_":
            continue
        fields = {**shared, **row}
        fields["what"] = fields.pop("is", "")
        lists = {
            key: tuple(fields[key]) for key in ("also", "allowed", "wrong", "checks", "see") if key in fields
        }
        try:
            yield Word(**{**fields, **lists, "name": name})
        except TypeError as error:
            raise ValueError(f"{file}: [{name}]: {error}") from None


def _codes(data: Mapping[str, Any]) -> Iterator[Word]:
    for family in data.values():
        for number, symbol, what, do, *checks in family["rows"]:
            ways = tuple(form.format(number) for form in family["as"])
            yield Word(
                name=f"{ways[0]} {symbol}".rstrip(),
                kind="error code",
                group=family["group"],
                what=what,
                source=family["source"],
                also=(*((symbol,) if symbol else ()), *ways, str(number)),
                do=do,
                checks=tuple(checks[0]) if checks else (),
            )


# --- looking up ------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """A word as it is compared: ``--nproc_per_node``, ``NPROC-PER-NODE`` and ``nproc per node`` are one."""
    text = re.sub(r"(?:^|(?<=\s))-(?=\d)", "minus ", text.lower())
    return re.sub(r"[\s_\-=:()]+", " ", text).strip()


@cache
def _index() -> dict[str, tuple[Word, ...]]:
    index: dict[str, dict[str, Word]] = {}
    for word in entries():
        ways = {word.name, *word.also}
        if word.kind == "option":  # without its program, too
            ways.add(word.name.rpartition(" ")[2])
        for way in ways:
            index.setdefault(plain(way), {})[word.name] = word
    return {key: tuple(words.values()) for key, words in index.items()}


def find(text: str) -> tuple[Word, ...]:
    """What `text` may mean: the entry of that very name, else all of which it is a name, else the prefix.

    ``NAME=value`` is NAME. Empty where nothing is known.
    """
    for tried in (text, text.partition("=")[0]):
        found = _index().get(plain(tried), ())
        spelled = tuple(word for word in found if tried == word.name or tried in word.also)
        if found:
            return spelled if len(spelled) == 1 else tuple(sorted(found, key=_rarely_meant))
    upper = text.partition("=")[0].upper().replace("-", "_")
    starts = [
        word
        for word in entries()
        for way in (word.name, *word.also)
        if way.endswith("_") and upper.startswith(way)
    ]
    return tuple(starts[:1])


def _rarely_meant(word: Word) -> bool:
    """Whoever types a bare number has most often an exit code before them."""
    return not word.name.startswith(("exit code ", "signal "))


def spellings() -> Iterable[str]:
    """Every way to write every word, for guesses at what was meant and for completion."""
    for word in entries():
        yield word.name
        yield from word.also
