"""The filter language: words that choose nodes and checks."""

import fnmatch
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from netdoctor.errors import InputError
from netdoctor.report.summary import LETTERS
from netdoctor.tui.state import Cells, Known, natural

WORDS = (
    ("gpu07", "nodes whose name contains it; gpu0* and gpu[01-04] work too"),
    ("fail warn unknown blocked skip pass", "nodes with such a result in the checks shown"),
    ("net.ports nccl.*", "only these checks"),
    ("[2]", "nodes of cause 2"),
    ("torch!=2.6.0 gpus<8", "compare a fact: = != < > <= >="),
    ("~gp7", "letters in this order, anywhere in the name"),
    ("!word", "without those"),
)
_STATUS = {word: letter for letter, word in LETTERS.items()}
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_COMPARE = re.compile(r"([a-z_]{1,40})(!=|<=|>=|=|<|>)(.*)", re.DOTALL)
_CAUSE = re.compile(r"\[(\d{1,6})\]")
WORDS_AT_MOST = 20


@dataclass(frozen=True, slots=True)
class Chosen:
    """Rows and columns that a filter lets through, None for all of them."""

    rows: tuple[int, ...] | None = None
    columns: tuple[int, ...] | None = None


def choose(text: str, cells: Cells, known: Known | None) -> Chosen:
    """What `text` chooses. Words of one kind add up, kinds narrow each other; never raises."""
    tokens = text.split()[:WORDS_AT_MOST]
    if not tokens:
        return Chosen()
    checks: dict[bool, set[int]] = {True: set(), False: set()}
    nodes: list[tuple[str, bool, set[int]]] = []
    statuses: list[tuple[bool, str]] = []
    for word in tokens:
        include = not word.startswith("!")
        token = word if include else word[1:]
        if not token:
            continue
        columns = _columns(token, cells)
        if token in _STATUS:
            statuses.append((include, _STATUS[token]))
        elif columns:
            checks[include] |= columns
        else:
            kind, rows = _rows(token, cells, known)
            nodes.append((kind, include, rows))
    narrowed_to: set[int] | None = None
    if checks[True] or checks[False]:
        base = checks[True] or set(range(len(cells.checks)))
        narrowed_to = base - checks[False]
    chosen = set(range(len(cells.nodes)))
    for kind in {kind for kind, _, _ in nodes}:
        good = [rows for k, include, rows in nodes if k == kind and include]
        if good:
            chosen &= set().union(*good)
    for _, include, rows in nodes:
        if not include:
            chosen -= rows
    if statuses:
        chosen = _with_status(statuses, cells, chosen, narrowed_to)
    narrowed = bool(nodes or statuses)
    return Chosen(
        rows=tuple(sorted(chosen)) if narrowed else None,
        columns=None if narrowed_to is None else tuple(sorted(narrowed_to)),
    )


def _columns(token: str, cells: Cells) -> set[int]:
    if not re.fullmatch(r"[A-Za-z0-9_.*?-]+", token) or not ("." in token or token in cells.families):
        return set()
    return {
        column
        for column, check in enumerate(cells.checks)
        if check == token or cells.families[column] == token or _glob(token, check)
    }


def _with_status(
    statuses: Sequence[tuple[bool, str]], cells: Cells, chosen: set[int], columns: set[int] | None
) -> set[int]:
    required = frozenset(ord(letter) for good, letter in statuses if good)
    excluded = frozenset(ord(letter) for good, letter in statuses if not good)
    found = set()
    for row in chosen:
        letters = cells.row(row)
        present = set(letters) if columns is None else {letters[c] for c in columns}
        if (not required or present & required) and not present & excluded:
            found.add(row)
    return found


def _rows(token: str, cells: Cells, known: Known | None) -> tuple[str, set[int]]:
    every = range(len(cells.nodes))
    if cause := _CAUSE.fullmatch(token):
        if known is None:
            return "cause", set()
        number = int(cause[1])
        members = known.members.get(number, frozenset())
        return "cause", {row for row in every if cells.nodes[row] in members}
    compared = _COMPARE.fullmatch(token)
    if compared and known is not None:
        return "fact", _compared(compared[1], compared[2], compared[3], cells, known)
    if token.startswith("~"):
        return "name", {row for row in every if fuzzy(token[1:], cells.nodes[row]) is not None}
    if "[" in token or "," in token:
        names = _expanded(token)
        if names:
            return "name", {row for row in every if cells.nodes[row] in names}
    if "*" in token or "?" in token:
        return "name", {row for row in every if _glob(f"*{token}*", cells.nodes[row])}
    lower = token.lower()
    return "name", {row for row in every if lower in cells.nodes[row].lower()}


def _glob(pattern: str, text: str) -> bool:
    # Runs of stars make fnmatch's regular expression slow without meaning anything.
    pattern = re.sub(r"\*+", "*", pattern)
    return pattern.count("*") <= 6 and fnmatch.fnmatchcase(text[:300].lower(), pattern.lower())


def _expanded(token: str) -> frozenset[str]:
    from netdoctor.inventory import expand

    try:
        return frozenset(expand(token))
    except (InputError, ValueError):
        return frozenset()


def _compared(name: str, how: str, value: str, cells: Cells, known: Known) -> set[int]:
    found = set()
    for row, node in enumerate(cells.nodes):
        target = known.targets.get(node)
        fact = target.facts.get(name) if target else None
        if fact is None:
            continue
        actual: object = natural(str(fact))
        expected: object = natural(value)
        if how in ("=", "!="):
            actual, expected = str(fact), value
        if _OPERATORS[how](actual, expected):
            found.add(row)
    return found


def fuzzy(letters: str, text: str) -> int | None:
    """How well `letters` occur in this order in `text`: less is better, None when they do not."""
    score, position = 0, -1
    lower = text[:300].lower()
    for letter in letters.lower():
        found = lower.find(letter, position + 1)
        if found < 0:
            return None
        score += found - position - 1
        position = found
    return score
