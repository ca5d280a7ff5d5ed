"""Which lines of a block are known, without looking at most of them.

A block is folded to its letters (literals.py). Lines that then are equal are of one kind, and a kind is
looked at once: which patterns' letters does it hold? Only lines of a kind with any are tried against
expressions. For logs that repeat themselves the time is that of folding. Kinds are forgotten when many.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ahocorasick_rs import BytesAhoCorasick

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
# What a line holds that may be the last word of a job that failed.
LOOKS_BAD = re.compile(
    r"(?i)(?<![-_])error(?!s?[_'\"]?[=:]? ?\d)|exception|fail|fatal|unable|cannot|could ?n.t|could not"
    r"|invalid|illegal|panic|abort|assert|refus|reject|denied|unreachable|unavailable|unsupported|unexpected"
    r"|unrecognized|unknown|incompatib|insufficient|inconsistent|incomplete|mismatch|missing|corrupt|broken"
    r"|crash|killed|preempt|interrupted|disconnect"
    r"|timed? ?out|stuck|exceed|overflow|terminate|stopped|\bfault|\bdead\b|\blost\b|already exist"
    r"|out of\b|too (?:many|large|small|old|few)|\bSIG[A-Z]{3,5}\b|\bnan\b|does ?n.t|does not|NCCL WARN"
    r"|\bno (?:such|suitable|compatible|available|matching|valid|space|route)"
    r"|\bnot (?:found|available|supported|ready|enough|recognized|prepared|allowed|respond|permitted|match"
    r"|accessible|alive|exist|finite|init|defined|implement|able)"
)
# And what it holds where the program went on: no failure, a warning, a message of a lower level.
GOES_ON = re.compile(
    r"(?i:\b(?:0|no|zero|without|not an?) (?:errors?|failures?)\b(?! code)|, 0 failed"
    r"|\b(?:error|fail)\w*[=:] ?0\b)|\b[WIDV]\d{4} \d\d:|\[[WID] |\bW [a-z]|<warn>|(?<!NCCL )\bWARN\b"
    r"|\b(?:INFO|DEBUG|TRACE|WARNING|NOTICE|DIAG)\b|(?i:warning: |\binfo: )"
    r"|\A(?:\[\w+\]: ?)? {2,}(?:raise|File|return|assert) |\beval_loss\b"
    r"|(?i:\[[wid]\]|fall(?:ing|s)? ?back|retry|try(?:ing)? again|skip|continu|ignor|instead|deprecat"
    r"|optional|disabled|recommend|please (?:set|see)|\bif you\b|policy =|\bcorrectable)"
)
# Unless it says itself that it is an error.
ERROR_LEVEL = re.compile(r"\b[EF]\d{4} \d\d:|\bE \d+ \d+\]|\b(?:ERROR|CRITICAL|FATAL)\b|\A\w* ?[Ee]rror: ")
LAST_LINES = 10
LAST_SHOWN = 2000  # of each
KINDS_MAX = 40_000
KIND_LETTERS_MAX = 600  # of longer ones only a hash is kept
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
        self._tries = tuple((pattern, one) for pattern in patterns for one in pattern.alternatives)
        self._finder = _finder(tuple(one.letters for _, one in self._tries))
        self._often = often
        self._passed: set[bytes | int] = set()  # kinds that nothing can be, and those seen often enough
        self._known: dict[bytes | int, _Kind] = {}
        self._counts: dict[bytes | int, int] = {}
        self._tired: set[bytes | int] = set()  # of those passed over, the kinds seen often enough in this log

    def restart(self) -> None:
        """Another log begins."""
        self._counts.clear()
        self._passed -= self._tired
        self._tired.clear()

    def block(self, data: bytes, number: int) -> Iterator[Found]:
        """What is found in whole lines, the first of which has this number."""
        if b"\x1b" in data:
            data = ESCAPES.sub(b"", data)
        translated = english(data)
        # What is behind a return was written over a progress bar: a line of its own, of the same number.
        kinds = translated.replace(b"\r", b"\n").translate(FOLD, DROP).split(b"\n")
        self._forget()
        passed = self._passed
        indexes = [index for index, kind in enumerate(kinds) if kind not in passed]
        if not indexes:
            return
        numbers, lines = _pieces(data, number)
        read_as = lines if translated is data else translated.replace(b"\r", b"\n").split(b"\n")
        for index in indexes:
            kind = self._known_kind(kinds[index])
            if kind is None:
                continue
            found = self._tried(lines[index], read_as[index], numbers[index], kind)
            if found is not None:
                first = lines[bisect_left(numbers, numbers[index])]
                yield found if first is lines[index] else _behind(first, found)

    def _known_kind(self, folded: bytes) -> "_Kind | None":
        """What lines of the kind may be; None where they are passed over from now on."""
        key: bytes | int = folded if len(folded) <= KIND_LETTERS_MAX else hash(folded)
        if key in self._passed:  # a long one, or since the block was looked through
            return None
        kind = self._known.get(key) or self._finder.look(folded)
        if kind is None:
            self._passed.add(key)
            return None
        self._known[key] = kind
        times = self._counts[key] = self._counts.get(key, 0) + 1
        if times >= self._often or not kind.candidates:
            self._tired.add(key)
            self._passed.add(key)
        return kind

    def _forget(self) -> None:
        if len(self._passed) > KINDS_MAX:
            self._passed = set(self._tired)
        if len(self._known) > KINDS_MAX:
            self._known.clear()
            self.restart()

    def _tried(self, line: bytes, read_as: bytes, number: int, kind: "_Kind") -> Found | None:
        text = _ends_of(line)
        english_text = text if line is read_as else _ends_of(read_as)
        matched: list[tuple[Pattern, str]] = []
        for index in kind.candidates:
            pattern, alternative = self._tries[index]
            if matched and matched[-1][0] is pattern:
                continue
            match = alternative.search(english_text)
            if match is not None:
                matched.append((pattern, _value(match) if pattern.differs else ""))
        if matched or (kind.failing and FAILURE.search(english_text)):
            return Found(number, text, tuple(matched))
        return None


def last_lines(blocks: Iterable[tuple[int, bytes]]) -> list[tuple[int, str]]:
    """Those of the last LAST_LINES lines of a log that may be of a failure. blocks: its last ones."""
    rows = [row for number, block in blocks for row in enumerate(block.split(b"\n"), number)]
    ends = [(number, _ends_of(line)[:LAST_SHOWN]) for number, line in rows if line.strip()][-LAST_LINES:]
    return [(number, text) for number, text in ends if _is_trouble(text)]


def _is_trouble(text: str) -> bool:
    return bool(LOOKS_BAD.search(text) and (ERROR_LEVEL.search(text) or not GOES_ON.search(text)))


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


class _Kind(NamedTuple):
    """What lines that are equal but for numbers and signs may be."""

    candidates: tuple[int, ...]  # numbers of patterns' alternatives
    failing: bool  # it holds the letters of a line that reports an error


class _Finder:
    """What a kind may be, by the letters of each alternative; made once for all logs of a run."""

    def __init__(self, letters: Sequence[tuple[frozenset[str], ...]]) -> None:
        numbers: dict[str, int] = {}
        sets = [
            [{numbers.setdefault(text, len(numbers)) for text in one} for one in all_of] for all_of in letters
        ]
        self._failing = {numbers.setdefault(text, len(numbers)) for text in _FAILURE_LETTERS}
        self._by_text: list[list[int]] = [[] for _ in numbers]
        for index, (best, *_) in enumerate(sets):
            for number in best:
                self._by_text[number].append(index)
        self._others = [others for _, *others in sets]
        self._find = BytesAhoCorasick([text.encode() for text in numbers]).find_matches_as_indexes

    def look(self, kind: bytes) -> _Kind | None:
        """None where no pattern needs a try."""
        found = {number for number, _, _ in self._find(kind, overlapping=True)}
        first = sorted({index for number in found for index in self._by_text[number]})
        candidates = tuple(i for i in first if not any(map(found.isdisjoint, self._others[i])))
        failing = not found.isdisjoint(self._failing)
        return _Kind(candidates, failing) if candidates or failing else None


@lru_cache(4)
def _finder(letters: tuple[tuple[frozenset[str], ...], ...]) -> _Finder:
    return _Finder(letters)
