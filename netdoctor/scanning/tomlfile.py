"""TOML files that people write for netdoctor: read with bounds, and mistakes told with their lines."""

import difflib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netdoctor.errors import InputError
from netdoctor.files import read_regular
from netdoctor.text import clean

SIZE_MAX = 1024 * 1024
_HEADER = re.compile(r"\s*\[(\[?)([^\]#]+)\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_.\s-]|"[^"]*"|'[^']*')+?)\s*=""")

KeyPath = tuple[int, tuple[str, ...]]  # which table of a group from 1, 0 for none; and the words of a key


def load(path: Path) -> tuple[dict[str, Any], list[str]]:
    """(the tables of a file, its lines). Raises InputError."""
    try:
        data = read_regular(path, SIZE_MAX)
        if len(data) > SIZE_MAX:
            raise InputError(f"{path}: has more than {SIZE_MAX} bytes")
        text = data.decode("utf-8-sig")
        return tomllib.loads(text), text.splitlines()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start})") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path}: {clean(str(error), 200)}") from None


def quoted(word: str) -> str:
    """A word of the file, for a message about it."""
    return repr(clean(word, 60))


def hint_for(key: str, known: Sequence[str]) -> str:
    """What may have been meant by a word that nobody knows, as the end of a message."""
    close = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are: {', '.join(known)}" if len(known) < 9 else ""


class Reader:
    """One file being read. Mistakes are gathered, so that all are told at once."""

    def __init__(self, path: Path, lines: Sequence[str], group: str) -> None:
        """group: what the tables are called of which there may be several, ``[[nodes]]``."""
        self.path = path
        self.lines = _lines_of_keys(lines, group)
        self.wrong: list[tuple[int, str]] = []

    def say(self, path: KeyPath, text: str) -> None:
        self.wrong.append((self.line(path), text))

    def unknown(self, key: str, path: KeyPath, known: Sequence[str]) -> None:
        self.say(path, f"nobody knows {quoted(key)}{hint_for(key, known)}")

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
