"""Which lines of a block are known, without looking at most of them.

A block is folded to its letters (literals.py). Lines that then are equal are of one kind, and a kind is
looked at once: which patterns' letters does it hold? Only lines of a kind with any are tried against
expressions. For logs that repeat themselves the time is that of folding. Kinds are forgotten when many.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from netdoctor.explain.knowledge import Pattern
from netdoctor.explain.lines import ESCAPES, troubled
from netdoctor.explain.literals import DROP, FOLD

KINDS_MAX = 40_000
KIND_LETTERS_MAX = 600  # longer ones are not kept
LINE_SHOWN = 16_384  # of one line, for expressions


class Found(NamedTuple):
    """A line worth a look. number: from 1. patterns: that match; none where it only reads like trouble."""

    number: int
    text: str
    patterns: tuple[tuple[Pattern, str], ...]


class Matcher:
    """Finds the lines of one log after the other that patterns know. often: lines of a kind looked at, each
    log anew."""

    def __init__(self, patterns: Sequence[Pattern], often: int = 1000) -> None:
        by_letters: dict[str, list[int]] = {}
        for index, pattern in enumerate(patterns):
            for letters in pattern.letters:
                by_letters.setdefault(letters, []).append(index)
        self._patterns = tuple(patterns)
        self._by_letters = {letters.encode(): tuple(found) for letters, found in by_letters.items()}
        self._grams = _grams(by_letters)
        self._often = often
        self._dull: set[bytes] = set()
        self._known: dict[bytes, tuple[int, ...]] = {}
        self._seen: dict[bytes, int] = {}

    def restart(self) -> None:
        """Another log begins."""
        self._seen.clear()

    def block(self, data: bytes, number: int) -> Iterator[Found]:
        """What is found in whole lines, the first of which has this number."""
        if b"\x1b" in data:
            data = ESCAPES.sub(b"", data)
        kinds = data.translate(FOLD, DROP).split(b"\n")
        self._forget()
        fresh = set(kinds) - self._dull - self._known.keys()
        if fresh:
            self._learn(fresh)
        hot = self._known.keys() & set(kinds)
        if not hot:
            return
        lines = data.split(b"\n")
        for index, kind in enumerate(kinds):
            if kind in hot:
                times = self._seen.get(kind, 0)
                if times < self._often:
                    self._seen[kind] = times + 1
                    yield from self._tried(lines[index], number + index, self._known[kind])

    def _forget(self) -> None:
        if len(self._dull) > KINDS_MAX:
            self._dull.clear()
        if len(self._known) > KINDS_MAX:
            self._known.clear()
            self._seen.clear()

    def _tried(self, line: bytes, number: int, candidates: Iterable[int]) -> Iterator[Found]:
        whole = line[:LINE_SHOWN] + (b" " + line[-LINE_SHOWN:] if len(line) > 2 * LINE_SHOWN else b"")
        text = whole.decode("utf-8", "replace").strip("\r")
        if "\r" in text:  # what a progress bar was overwritten with
            text = text.replace("\r", " \u23ce ")
        matched = []
        for index in candidates:
            pattern = self._patterns[index]
            match = pattern.regex.search(text)
            if match is not None:
                matched.append((pattern, _value(match) if pattern.differs else ""))
        yield Found(number, text, tuple(matched))

    def _learn(self, fresh: set[bytes]) -> None:
        joined = b"\n".join(fresh)
        suspects: set[bytes] = set()
        for gram in self._grams:
            if gram in joined:
                suspects.update(kind for kind in fresh if gram in kind)
        for kind in suspects:
            indices = sorted({i for letters, of in self._by_letters.items() if letters in kind for i in of})
            if indices or troubled(kind.decode()):
                self._known[kind] = tuple(indices)
        self._dull.update(kind for kind in fresh - self._known.keys() if len(kind) <= KIND_LETTERS_MAX)


def _value(match: re.Match[str]) -> str:
    return (match.groupdict().get("value") or match[0])[:200]


def _grams(by_letters: Iterable[str]) -> tuple[bytes, ...]:
    """What to look for first: every one of the letters."""
    from netdoctor.explain.lines import TROUBLE

    return tuple(sorted({*(one.encode() for one in by_letters), *(one.encode() for one in TROUBLE)}))
