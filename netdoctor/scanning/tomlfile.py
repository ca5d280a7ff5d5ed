"""TOML files that people write for netdoctor: read with bounds, and mistakes told with their lines."""

import errno
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netdoctor.compat import tomllib
from netdoctor.errors import InputError
from netdoctor.files import open_shared, read_regular, reason
from netdoctor.inventory.nodeset import RANGE_MAX, expand
from netdoctor.text import clean, did_you_mean

SIZE_MAX = 1024 * 1024
DEPTH_MAX = 16
# tomllib keeps each part of a dotted key with all before it: 90 kB of one would take gigabytes.
DOTS_MAX = 32
_RUN = re.compile(r"[^,=\[\]{}\n]+")
# Node names that all ranges of a file stand for.
NAMES_MAX = 10 * RANGE_MAX
_HEADER = re.compile(r"\s*\[(\[?)([^\]#]+)\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_.\s-]|"[^"]*"|'[^']*')+?)\s*=""")

KeyPath = tuple[int, tuple[str, ...]]  # which table of a group from 1, 0 for none; and the words of a key


def load(path: Path, *, found: bool = False) -> tuple[dict[str, Any], list[str]]:
    """(the tables of a file, its lines). found: nobody may have named it. Raises InputError."""
    try:
        data = _trusted(path) if found else read_regular(path, SIZE_MAX)
        if len(data) > SIZE_MAX:
            raise InputError(f"{path}: has more than {SIZE_MAX} bytes")
        text = data.decode("utf-8-sig")
        if any(run.count(".") > DOTS_MAX for run in _RUN.findall(text)):
            raise InputError(f"{path}: has more than {DOTS_MAX} dots in one key or text")
        tables = tomllib.loads(text)
        if _is_deep(tables):
            raise InputError(f"{path}: is nested more than {DEPTH_MAX} deep")
        return tables, text.splitlines()
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start})") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path}: {clean(str(error), 200)}") from None


def _is_deep(tables: dict[str, Any]) -> bool:
    """Whether it is nested deeper than DEPTH_MAX."""
    level: list[Any] = [tables]
    for _ in range(DEPTH_MAX + 1):
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [one for values in inner for one in values if isinstance(one, dict | list)]
    return bool(level)


def _trusted(path: Path) -> bytes:
    """What is in a file that only this user and root could have written or put there. Raises OSError."""
    opened = open_shared(path, found=False)
    with opened.file as file:
        why = f"it belongs to {opened.owner}" if opened.owner else ""
        if not why and opened.mode & stat.S_IWOTH:
            why = f"everybody may write to it (mode {opened.mode:o})"
        if why:
            raise PermissionError(
                errno.EPERM, f"{why}: --suppress FILE takes a copy of yours, --suppress '' goes without"
            )
        return file.read(SIZE_MAX + 1)


def quoted(word: str) -> str:
    """A word of the file, for a message about it."""
    return repr(clean(word, 60))


def hint_for(key: str, known: Sequence[str]) -> str:
    """What may have been meant by a word that nobody knows, as the end of a message."""
    every = f"; there are: {', '.join(known)}" if len(known) < 9 else ""
    return did_you_mean(key.lower(), known, 0.5) or every


class Reader:
    """One file being read. Mistakes are gathered, so that all are told at once."""

    def __init__(self, path: Path, lines: Sequence[str], group: str) -> None:
        """group: what the tables are called of which there may be several, ``[[nodes]]``."""
        self.path = path
        self.lines = _lines_of_keys(lines, group)
        self.wrong: list[tuple[int, str]] = []
        self.room = NAMES_MAX

    def say(self, path: KeyPath, text: str) -> None:
        self.wrong.append((self.line(path), text))

    def unknown(self, key: str, path: KeyPath, known: Sequence[str]) -> None:
        self.say(path, f"nobody knows {quoted(key)}{hint_for(key, known)}")

    def names(self, text: str) -> list[str]:
        """The nodes of a node set, none past what a file may have. Raises ValueError."""
        if self.room < 0:  # which has been told
            return []
        found = expand(text)
        self.room -= len(found)
        if self.room < 0:
            raise ValueError(f"its ranges stand for more than {NAMES_MAX} names in all")
        return found

    def line(self, path: KeyPath) -> int:
        """Where a key stands, else the table that it is in."""
        group, words = path
        while words and (group, words) not in self.lines:
            words = words[:-1]
        return self.lines.get((group, words), 1)


def _lines_of_keys(lines: Sequence[str], group_name: str) -> dict[KeyPath, int]:
    """The line of each key and table."""
    found: dict[KeyPath, int] = {}
    groups = group = 0
    above: tuple[str, ...] = ()
    for number, line in enumerate(lines, 1):
        if header := _HEADER.fullmatch(line):
            above = _words(header[2])
            if header[1] and above == (group_name,):
                groups = group = groups + 1
            elif above[:1] != (group_name,):
                group = 0  # another table behind groups
            above = above[1:] if group else above
            found.setdefault((group, above), number)
        elif key := _KEY.match(line):
            words = (*above, *_words(key[1]))
            for upto in range(1, len(words) + 1):
                found.setdefault((group, words[:upto]), number)
    return found


def _words(key: str) -> tuple[str, ...]:
    """``gpu.vbios."NVIDIA H100"`` as three words; none where it is no key."""
    try:
        table: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    words = []
    while isinstance(table, dict):
        ((word, table),) = table.items()
        words.append(word)
    return tuple(words)
