"""`netdoctor.toml` beside the hosts file: what the owners of a cluster accept and expect."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from netdoctor.check import Check
from netdoctor.engine.assemble.accepted import Suppression
from netdoctor.engine.registry import matches
from netdoctor.errors import InputError
from netdoctor.inventory.reading import file_exists
from netdoctor.options import OPTIONS, ScanRequest
from netdoctor.scanning.tomlfile import Reader, hint_for, load, quoted
from netdoctor.text import clean

NAME = "netdoctor.toml"
MOST = 1000
_KEYS_OF_OPTIONS = tuple(name for name, one in OPTIONS.items() if one.in_settings)
_TABLES = (*_KEYS_OF_OPTIONS, "suppress")
_KEYS = ("check", "cause", "nodes", "reason", "until")


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
    mistake, and where it is called as what is found by itself and a stranger could have written it."""
    if path is None:
        return Settings()
    tables, lines = load(path, found=path.name == NAME)
    return _Reader(path, lines, checks).read(tables)


class _Reader(Reader):
    def __init__(self, path: Path, lines: Sequence[str], checks: Collection[Check]) -> None:
        super().__init__(path, lines, "suppress")
        self.ids = [check.id for check in checks]

    def read(self, tables: dict[str, Any]) -> Settings:
        for key in tables:
            if key not in _TABLES:
                self.unknown(key, (0, (key,)), _TABLES)
        listed = tables.get("suppress", [])
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            self.say((0, ("suppress",)), "write each as a table of its own: [[suppress]]")
            listed = []
        if len(listed) > MOST:
            self.say((0, ()), f"has {len(listed)} suppressions, {MOST} are allowed")
        found = [self.suppression(one, number) for number, one in enumerate(listed[:MOST], 1)]
        expect = self.string(tables, "expect", 0)
        if self.wrong:
            raise InputError("\n".join(f"{self.path}: line {line}: {text}" for line, text in self.wrong))
        suppressions = tuple(one for one in found if one is not None)
        return Settings(suppressions=suppressions, expect=self.path.parent / expect if expect else None)

    def suppression(self, one: dict[str, Any], number: int) -> Suppression | None:
        before = len(self.wrong)
        for key in one:
            if key not in _KEYS:
                self.unknown(key, (number, (key,)), _KEYS)
        checks = self.strings(one, "check", number)
        for pattern in checks:
            if not any(matches(check, (pattern,)) for check in self.ids):
                hint = hint_for(pattern, self.ids)
                self.say((number, ("check",)), f"no check is called {quoted(pattern)}{hint}")
        cause, reason = self.string(one, "cause", number), self.string(one, "reason", number)
        if not checks and not cause and "check" not in one:
            self.say(
                (number, ()), 'say what is accepted: check = "gpu.ecc", or cause = the key of one in JSON'
            )
        if not reason and not isinstance(one.get("reason"), bool | int | list):
            self.say((number, ()), 'say why: reason = "..." is required')
        nodes = self.nodes(one, number)
        until = one.get("until")
        if isinstance(until, datetime) or not isinstance(until, date | None):
            self.say((number, ("until",)), "until is a date without quotes, such as until = 2026-12-31")
        if len(self.wrong) > before:
            return None
        return Suppression(
            check=checks,
            cause=cause,
            nodes=nodes,
            reason=clean(reason or "", 300),
            until=until,
            position=f"{clean(self.path.name, 60)}:{self.line((number, ()))}",
        )

    def nodes(self, one: dict[str, Any], number: int) -> frozenset[str] | None:
        names: set[str] = set()
        for text in self.strings(one, "nodes", number):
            try:
                names.update(self.names(text))
            except ValueError as error:
                self.say((number, ("nodes",)), clean(str(error), 200))
        return frozenset(names) if "nodes" in one else None

    def string(self, one: dict[str, Any], key: str, number: int) -> str | None:
        value = one.get(key)
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        self.say((number, (key,)), f'{key} is a text in quotes: {key} = "..."')
        return None

    def strings(self, one: dict[str, Any], key: str, number: int) -> tuple[str, ...]:
        value = one.get(key, [])
        listed = value if isinstance(value, list) else [value]
        if (key in one and not listed) or not all(isinstance(text, str) and text for text in listed):
            self.say((number, (key,)), f'{key} is a text in quotes, or a list: {key} = ["...", "..."]')
            return ()
        return tuple(listed)
