"""`netdoctor.toml` beside the hosts file: what the owners of a cluster accept and expect."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from netdoctor.check import Check
from netdoctor.engine.assemble.accepted import Suppression
from netdoctor.engine.registry import matches
from netdoctor.errors import InputError
from netdoctor.inventory.nodeset import expand
from netdoctor.inventory.reading import file_exists
from netdoctor.options import OPTIONS, ScanRequest
from netdoctor.scanning.tomlfile import hint_for, load, quoted
from netdoctor.text import clean

NAME = "netdoctor.toml"
MOST = 1000
_KEYS_OF_OPTIONS = tuple(name for name, one in OPTIONS.items() if one.in_settings)
_TABLES = (*_KEYS_OF_OPTIONS, "suppress")
_KEYS = ("check", "cause", "nodes", "reason", "until")
_HEADER = re.compile(r"\s*\[\[\s*suppress\s*\]\]")


def settings_path(request: ScanRequest) -> Path | None:
    """The settings of a request: those it names, or those beside its hosts files, or here; None for none."""
    if request.suppress is not None:
        return request.suppress if request.suppress.name else None
    folders = dict.fromkeys(Path(word).parent for word in request.hosts if file_exists(word))
    found = (folder / NAME for folder in folders or [Path()])
    return next((path for path in found if path.is_file()), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the file says. expect: the file with what is expected of nodes, None where it names none."""

    suppressions: tuple[Suppression, ...] = ()
    expect: Path | None = None


def read(path: Path | None, checks: Collection[Check]) -> Settings:
    """The settings of a file, none of no file. checks: all there are. Raises InputError, a line for each
    mistake."""
    if path is None:
        return Settings()
    tables, lines = load(path)
    return _Reader(path, lines, checks).read(tables)


class _Reader:
    """One file being read. Mistakes are gathered, so that all are told at once."""

    def __init__(self, path: Path, lines: Sequence[str], checks: Collection[Check]) -> None:
        self.path = path
        self.lines = lines
        self.ids = [check.id for check in checks]
        self.wrong: list[str] = []

    def read(self, tables: dict[str, Any]) -> Settings:
        for key in tables:
            if key not in _TABLES:
                self.say(self.line_of(key, 0), f"nobody knows {quoted(key)}{hint_for(key, _TABLES)}")
        listed = tables.get("suppress", [])
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            self.say(self.line_of("suppress", 0), "write each as a table of its own: [[suppress]]")
            listed = []
        if len(listed) > MOST:
            self.say(1, f"has {len(listed)} suppressions, {MOST} are allowed")
        starts = [n for n, line in enumerate(self.lines, 1) if _HEADER.match(line)]
        found = []
        for number, one in enumerate(listed[:MOST]):
            start = starts[number] if len(starts) == len(listed) else 1
            found.append(self.suppression(one, start))
        expect = self.string(tables, "expect", 0)
        if self.wrong:
            raise InputError("\n".join(self.wrong))
        suppressions = tuple(one for one in found if one is not None)
        return Settings(suppressions=suppressions, expect=self.path.parent / expect if expect else None)

    def suppression(self, one: dict[str, Any], start: int) -> Suppression | None:
        before = len(self.wrong)
        for key in one:
            if key not in _KEYS:
                self.say(self.line_of(key, start), f"nobody knows {quoted(key)}{hint_for(key, _KEYS)}")
        checks = self.strings(one, "check", start)
        for pattern in checks:
            if not any(matches(check, (pattern,)) for check in self.ids):
                hint = hint_for(pattern, self.ids)
                self.say(self.line_of("check", start), f"no check is called {quoted(pattern)}{hint}")
        cause, reason = self.string(one, "cause", start), self.string(one, "reason", start)
        if not checks and not cause and "check" not in one:
            self.say(start, 'say what is accepted: check = "gpu.ecc", or cause = the key of one in JSON')
        if not reason and not isinstance(one.get("reason"), bool | int | list):
            self.say(start, 'say why: reason = "..." is required')
        nodes = self.nodes(one, start)
        until = one.get("until")
        if isinstance(until, datetime) or not isinstance(until, date | None):
            self.say(
                self.line_of("until", start), "until is a date without quotes, such as until = 2026-12-31"
            )
        if len(self.wrong) > before:
            return None
        return Suppression(
            check=checks,
            cause=cause,
            nodes=nodes,
            reason=clean(reason or "", 300),
            until=until,
            position=f"{clean(self.path.name, 60)}:{start}",
        )

    def nodes(self, one: dict[str, Any], start: int) -> frozenset[str] | None:
        names: set[str] = set()
        for text in self.strings(one, "nodes", start):
            try:
                names.update(expand(text))
            except ValueError as error:
                self.say(self.line_of("nodes", start), clean(str(error), 200))
        return frozenset(names) if "nodes" in one else None

    def string(self, one: dict[str, Any], key: str, start: int) -> str | None:
        value = one.get(key)
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        self.say(self.line_of(key, start), f'{key} is a text in quotes: {key} = "..."')
        return None

    def strings(self, one: dict[str, Any], key: str, start: int) -> tuple[str, ...]:
        value = one.get(key, [])
        listed = value if isinstance(value, list) else [value]
        if (key in one and not listed) or not all(isinstance(text, str) and text for text in listed):
            self.say(
                self.line_of(key, start), f'{key} is a text in quotes, or a list: {key} = ["...", "..."]'
            )
            return ()
        return tuple(listed)

    def say(self, line: int, text: str) -> None:
        self.wrong.append(f"{self.path}: line {line}: {text}")

    def line_of(self, key: str, start: int) -> int:
        """Where a key of the table that begins in this line stands, else where the table does."""
        pattern = re.compile(rf"""\s*[\["']*\s*{re.escape(key)}\s*["'\]]*\s*(=|\.|\Z|#)""")
        for number, line in self.table(start):
            if pattern.match(line):
                return number
        return max(start, 1)

    def table(self, start: int) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(self.lines[start:], start + 1):
            if start and _HEADER.match(line):
                return
            yield number, line
