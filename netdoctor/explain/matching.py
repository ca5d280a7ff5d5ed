"""Which lines of a block are known, without looking at most of them.

A block is folded to its letters (literals.py). Lines that then are equal are of one kind, and a kind is
looked at once: which patterns' letters does it hold? Only lines of a kind with any are tried against
expressions. For logs that repeat themselves the time is that of folding. Kinds are forgotten when many.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from netdoctor.explain.foreign import english
from netdoctor.explain.knowledge import Pattern
from netdoctor.explain.lines import ESCAPES, message
from netdoctor.explain.literals import DROP, FOLD, fold

# What a line that reports an error holds, as it stands, and folded.
FAILURE = re.compile(
    r"(?<![a-z])(?:[A-Z]\w*)?(?:Error|ERROR|error|Exception|FATAL|[Ff]atal|[Ff]ailed|FAILED|[Ff]ailure|WARN"
    r"|[Tt]imed out|[Tt]imeout|refused|[Uu]nreachable|[Cc]annot|[Cc]ould not|[Uu]nable to|[Mm]ismatch"
    r"|[Dd]enied|[Nn]o such|[Kk]illed|[Aa]borted|SIG[A-Z]{3,5})(?![a-z])",
    re.ASCII,
)
_FAILURE_LETTERS = tuple(
    map(
        fold,
        (
            *("rror", "exception", "fatal err", "failure", "nccl warn", "timed out", "timeout", "cannot"),
            *("connection refused", "unreachable", "could not", "unable to", "mismatch", "no such", "signal"),
            *("permission denied", "not found", "was killed"),
        ),
    )
)
# Letters of a pattern that the first look at a kind goes by.
START = 7
KINDS_MAX = 40_000
KIND_LETTERS_MAX = 600  # longer ones are not kept
LINE_SHOWN = 16_384  # of either end of one line, for expressions


class Found(NamedTuple):
    """A line worth a look."""

    number: int  # from 1
    text: str
    patterns: tuple[
        tuple[Pattern, str], ...
    ]  # that match, with the value; none of a line that looks like an error


class Matcher:
    """Finds the lines of one log after the other that patterns know. often: lines of a kind looked at in a
    log."""

    def __init__(self, patterns: Sequence[Pattern], often: int = 400) -> None:
        self._patterns = tuple(patterns)
        self._finder = _finder(tuple(pattern.letters for pattern in patterns))
        self._often = often
        self._dull: set[bytes] = set()
        self._known: dict[bytes, tuple[int, ...]] = {}
        self._counts: dict[bytes, int] = {}
        self._tired: set[bytes] = set()

    def restart(self) -> None:
        """Another log begins."""
        self._counts.clear()
        self._tired.clear()

    def block(self, data: bytes, number: int) -> Iterator[Found]:
        """What is found in whole lines, the first of which has this number."""
        if b"\x1b" in data:
            data = ESCAPES.sub(b"", data)
        known = english(data)
        # What is behind a return was written over a progress bar: a line of its own, of the same number.
        kinds = known.replace(b"\r", b"\n").translate(FOLD, DROP).split(b"\n")
        self._forget()
        unique = set(kinds)
        fresh = unique - self._dull - self._known.keys()
        if fresh:
            self._learn(fresh)
        hot = (self._known.keys() & unique) - self._tired
        if not hot:
            return
        numbers, lines = _pieces(data, number)
        read_as = lines if known is data else known.replace(b"\r", b"\n").split(b"\n")
        for index, kind in enumerate(kinds):
            if kind in hot:
                times = self._counts[kind] = self._counts.get(kind, 0) + 1
                if times >= self._often or not self._known[kind]:
                    self._tired.add(kind)
                    hot.discard(kind)
                found = self._tried(lines[index], read_as[index], numbers[index], self._known[kind])
                if found is not None:
                    first = lines[bisect_left(numbers, numbers[index])]
                    yield found if first is lines[index] else _behind(first, found)

    def _forget(self) -> None:
        if len(self._dull) > KINDS_MAX:
            self._dull.clear()
        if len(self._known) > KINDS_MAX:
            self._known.clear()
            self.restart()

    def _tried(self, line: bytes, read_as: bytes, number: int, candidates: Iterable[int]) -> Found | None:
        text = _ends_of(line)
        english_text = text if line is read_as else _ends_of(read_as)
        matched = []
        for index in candidates:
            pattern = self._patterns[index]
            match = pattern.search(english_text)
            if match is not None:
                matched.append((pattern, _value(match) if pattern.differs else ""))
        return Found(number, text, tuple(matched)) if matched or FAILURE.search(english_text) else None

    def _learn(self, fresh: set[bytes]) -> None:
        for kind in fresh:
            if self._finder.suspect(kind):
                self._known[kind] = self._finder.candidates(kind)
        self._dull.update(kind for kind in fresh - self._known.keys() if len(kind) <= KIND_LETTERS_MAX)


def _pieces(data: bytes, number: int) -> tuple[Sequence[int], list[bytes]]:
    """The parts of lines that returns end, too, and of which line each is."""
    lines = data.split(b"\n")
    if b"\r" not in data:
        return range(number, number + len(lines)), lines
    parts = [line.split(b"\r") for line in lines]
    return [at for at, of_one in enumerate(parts, number) for _ in of_one], [p for ps in parts for p in ps]


def _behind(first: bytes, found: Found) -> Found:
    """With what a launcher put in front of the line that it is a later part of."""
    head = _ends_of(first[:LINE_SHOWN])
    prefix = head[: len(head) - len(message(head))]
    return found if found.text.startswith(prefix) else found._replace(text=prefix + found.text)


def _ends_of(line: bytes) -> str:
    if len(line) > 2 * LINE_SHOWN:
        line = line[:LINE_SHOWN] + b" " + line[-LINE_SHOWN:]
    return line.decode("utf-8", "replace")


def _value(match: re.Match[str]) -> str:
    value: str | None = match.groupdict().get("value")
    return (match[0] if value is None else value)[:200]


class _Finder:
    """Which patterns a kind may belong to, by the letters of each; made once for all logs of a run."""

    def __init__(self, letters: Sequence[frozenset[str]]) -> None:
        by_letters: dict[bytes, list[int]] = {}
        for index, one in enumerate(letters):
            for text in one:
                by_letters.setdefault(text.encode(), []).append(index)
        self._by_letters = by_letters
        tree = _tree([*(one.decode() for one in by_letters), *_FAILURE_LETTERS])
        self.suspect = re.compile(tree).search
        # Wherever one begins, though others lie across it.
        self._starts = re.compile(b"(?=(" + tree + b"))").findall
        self._behind: dict[bytes, list[tuple[bytes, list[int]]]] = {}

    def candidates(self, kind: bytes) -> tuple[int, ...]:
        """The numbers of the patterns."""
        found: set[int] = set()
        for start in set(self._starts(kind)):
            behind = self._behind.get(start)
            if behind is None:
                behind = [one for one in self._by_letters.items() if one[0].startswith(start)]
                self._behind[start] = behind
            for letters, numbers in behind:
                if letters in kind:
                    found.update(numbers)
        return tuple(sorted(found))


@lru_cache(4)
def _finder(letters: tuple[frozenset[str], ...]) -> _Finder:
    return _Finder(letters)


def _tree(letters: Iterable[str]) -> bytes:
    """An expression for the beginnings of all these: much faster than to look for one after the other."""
    tree: dict[str, Any] = {}
    for one in sorted({text[:START] for text in letters}):
        at = tree
        for letter in one:
            if "" in at:
                break  # a shorter one is found there already
            at = at.setdefault(letter, {})
        else:
            at.clear()
            at[""] = True
    return _spelled(tree).encode()


def _spelled(tree: Mapping[str, Any]) -> str:
    branches = [letter + _spelled(below) for letter, below in sorted(tree.items()) if letter]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})" if branches else ""
