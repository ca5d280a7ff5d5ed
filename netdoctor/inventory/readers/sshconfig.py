"""Aliases of an ssh config. What an alias stands for is ssh's to know: every host goes through the config.

Source: ssh_config(5), Host, Match and Include.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from netdoctor.inventory.errors import Problems
from netdoctor.inventory.names import host_fault
from netdoctor.inventory.readers.base import Source
from netdoctor.inventory.reading import content_lines, decode, read_file

DEFAULT = "~/.ssh/config"
DEPTH_MAX, FILES_MAX = 16, 512
_LINE = re.compile(r"(?P<key>[A-Za-z]+)(?:[ \t]*=[ \t]*|[ \t]+)(?P<rest>.*)")
# Whom the default config is for: a file elsewhere has to be named to scan, too.
_FOUND_BY_SSH = (DEFAULT, "/etc/ssh/ssh_config")


def read(source: Source) -> None:
    """The names of Host lines that stand for one host each; patterns, negations and Match are for others."""
    lines = [(line.number, line.text) for line in source.lines]
    found: dict[str, None] = {}
    patterns = 0
    for number, words in _hosts(lines):
        for alias in words:
            if alias in found or _is_pattern(alias):
                patterns += _is_pattern(alias)
                continue
            found[alias] = None
            source.host(alias, number)
    if any(text.lower().startswith("include") for _, text in lines):
        source.note("Include is not followed here; --from-ssh-config GLOB follows it")
    if patterns and not found:
        source.refuse(None, "", "its Host lines are patterns only, which stand for no host")
    known = {os.path.realpath(os.path.expanduser(name)) for name in _FOUND_BY_SSH}
    if source.path and os.path.realpath(source.path) not in known:
        source.note(f"addresses, ports and users stay in it: scan with --ssh-config {source.path}")


def aliases(pattern: str, path: str | None = None) -> list[str]:
    """The aliases of the user's config, or of `path`, that match a glob, Includes followed.

    Raises InventoryError where a file cannot be read, or nothing matches.
    """
    problems = Problems()
    file = path or DEFAULT
    every = list(dict.fromkeys(_all(os.path.expanduser(file), problems, 0, [])))
    problems.raise_any()
    found = [alias for alias in every if fnmatchcase(alias, pattern)]
    if not found:
        listed = ", ".join(every[:5]) or "none that stands for one host"
        problems.add(file, None, pattern, "matches no alias", f"there are: {listed}")
    for alias in found:
        if fault := host_fault(alias):
            problems.add(file, None, alias, fault.message, fault.hint)
    problems.raise_any()
    return found


def _all(path: str, problems: Problems, depth: int, files: list[str]) -> Iterator[str]:
    if depth > DEPTH_MAX or len(files) >= FILES_MAX:
        problems.add(path, None, "", "Include of too many files, or too deep")
        return
    files.append(path)
    content = read_file(path, problems)
    text = None if content is None else decode(content, path, problems)
    for line in content_lines(text or "", path, problems):
        found = _LINE.fullmatch(line.text)
        if found is None:
            continue
        if found["key"].lower() == "include":
            for word in _words(found["rest"]):
                full = os.path.join(os.path.expanduser("~/.ssh"), os.path.expanduser(word))
                for name in sorted(glob.glob(full))[:FILES_MAX]:
                    yield from _all(name, problems, depth + 1, files)
        elif found["key"].lower() == "host":
            yield from (word for word in _words(found["rest"]) if not _is_pattern(word))


def _hosts(lines: list[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    for number, text in lines:
        found = _LINE.fullmatch(text)
        if found and found["key"].lower() == "host":
            yield number, _words(found["rest"])


def _words(text: str) -> list[str]:
    """Words, of which those in quotes may hold blanks."""
    return [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|([^\s"]+)', text)]


def _is_pattern(word: str) -> bool:
    return any(char in word for char in "*?!")
