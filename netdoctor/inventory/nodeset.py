"""Node-set syntax: ranges written out, names folded, expressions over known names.

Both by hand: ClusterShell sorts, where the order of a list is the order of ranks; it builds
``n[1-999999999]`` before anyone can count it; and it folds 2,000 scattered IPv4 addresses in 2.3 s
(1.10.1), cubic. Tests hold both to the same answers. Groups (``@name``) here are those of a list;
ClusterShell's own are `readers.sets`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from math import prod

from netdoctor.inventory.errors import InventoryError, Problem
from netdoctor.inventory.names import Fault, printable

RANGE_MAX = 20_000
TOO_MANY = f"more than {RANGE_MAX} hosts in all, reading stopped here"
BRACKETS_MAX = 4

_STEP = re.compile(r"([0-9]+)(?:-([0-9]+)(?:/([0-9]+))?)?")
_DIGITS_MAX = 18
_FOLDABLE = re.compile(r"[A-Za-z0-9_.-]{1,253}(?::[0-9]{1,5})?")
_NUMBER = re.compile(rf"([0-9]{{1,{_DIGITS_MAX}}})")
OPERATORS = ",!&^"


class SyntaxFault(Exception):
    """A piece of node-set text that cannot be read; `token` is the piece."""

    def __init__(self, token: str, fault: Fault) -> None:
        super().__init__(fault.message)
        self.token = token
        self.fault = fault


def split(text: str, separators: str = ",") -> Iterator[tuple[str, str]]:
    """Yield (operator, piece) for pieces between separators that stand outside brackets.

    The first operator is ''. Raises SyntaxFault for brackets that do not pair.
    """
    operator, start, inside = "", 0, False
    for position, char in enumerate(text):
        if char == "[":
            if inside:
                raise SyntaxFault(text, Fault("bracket inside a bracket", "write: gpu[01-16,20]"))
            inside = True
        elif char == "]":
            if not inside:
                raise SyntaxFault(text, Fault("']' without '['", "write: gpu[01-16]"))
            inside = False
        elif char in separators and not inside:
            yield operator, text[start:position]
            operator, start = char, position + 1
    if inside:
        raise SyntaxFault(text, Fault("'[' without ']'", "write: gpu[01-16]"))
    yield operator, text[start:]


def write_out(pattern: str, room: int = RANGE_MAX) -> list[str]:
    """Return the names that one pattern such as ``rack[1-2]n[01-16,20]`` stands for, in its order.

    Zero padding is kept. Raises SyntaxFault when it is malformed or stands for more than `room`.
    """
    if "[" not in pattern:
        if "]" in pattern:
            raise SyntaxFault(pattern, Fault("']' without '['", "write: gpu[01-16]"))
        return [pattern]
    if pattern.count("[") > BRACKETS_MAX:
        raise SyntaxFault(pattern, Fault(f"more than {BRACKETS_MAX} ranges in one name"))
    parts: list[list[str]] = []
    spans: list[list[tuple[int, int, int, int]]] = []
    literals: list[str] = []
    rest = pattern
    while rest:
        literal, bracket, rest = rest.partition("[")
        literals.append(literal)
        if not bracket:
            break
        body, closed, rest = rest.partition("]")
        if not closed or "]" in literal or "[" in body:
            raise SyntaxFault(pattern, Fault("brackets do not pair", "write: gpu[01-16]"))
        spans.append([_span(pattern, item) for item in body.split(",")])
    count = prod(sum(_size(span) for span in group) for group in spans)
    if count > room:
        message = f"stands for {printable(str(count), 24)} names, {RANGE_MAX} are allowed in all"
        left = "" if room == RANGE_MAX else f"{max(room, 0)} are left at this place"
        raise SyntaxFault(pattern, Fault(message, left))
    for index, group in enumerate(spans):
        parts.append([literals[index]])
        parts.append([str(n).zfill(w) for lo, hi, st, w in group for n in range(lo, hi + 1, st)])
    parts.extend([literal] for literal in literals[len(spans) :])
    return ["".join(piece) for piece in product(*parts)]


def _span(pattern: str, item: str) -> tuple[int, int, int, int]:
    """Return (first, last, step, width) of ``7``, ``01-16`` or ``0-10/2``."""
    match = _STEP.fullmatch(item)
    if match is None:
        if not item:
            raise SyntaxFault(pattern, Fault("number missing in the range", "write: gpu[01-16]"))
        if re.fullmatch("[0-9]+:[0-9]+", item):
            hint = f"Ansible's colon; write: [{item.replace(':', '-')}]"
            raise SyntaxFault(pattern, Fault("':' in a range", hint))
        if re.fullmatch(r"[0-9]+\.\.\.?[0-9]+", item):
            raise SyntaxFault(pattern, Fault("dots in a range", "write: gpu[01-16]"))
        message = f"'{printable(item, 30)}' is not a range of numbers"
        raise SyntaxFault(pattern, Fault(message, "write: gpu[01-16,20]"))
    first, last, step = match[1], match[2] or match[1], match[3] or "1"
    if max(len(first), len(last), len(step)) > _DIGITS_MAX:
        raise SyntaxFault(pattern, Fault(f"number of more than {_DIGITS_MAX} digits in a range"))
    if int(first) > int(last):
        hint = f"write: [{last}-{first}]"
        raise SyntaxFault(pattern, Fault(f"range {first}-{last} runs backwards", hint))
    if len(last) > 1 and last[0] == "0" and len(first) != len(last):
        raise SyntaxFault(
            pattern,
            Fault(f"zero padding differs in {first}-{last}", f"write: [{first.zfill(len(last))}-{last}]"),
        )
    if int(step) == 0:
        raise SyntaxFault(pattern, Fault("step of 0 in a range", "write: gpu[0-10/2]"))
    padded = len(first) > 1 and first[0] == "0"
    return int(first), int(last), int(step), len(first) if padded else 0


def _size(span: tuple[int, int, int, int]) -> int:
    """Return how many numbers a span holds (len() of a range overflows on large ones)."""
    first, last, step, _ = span
    return (last - first) // step + 1


def is_ipv6_literal(text: str) -> bool:
    """Return whether `text` begins with a bracket that holds an address and not a range."""
    from netdoctor.inventory.names import host_fault

    inside, closed, _ = text.removeprefix("[").partition("]")
    if not (text.startswith("[") and closed and ":" in inside):
        return False
    return host_fault(inside) is None or inside.count(":") > 1


def expand(expr: str) -> list[str]:
    """Return the names in ``gpu[01-16,20],b2`` in the order written, duplicates kept.

    Names are not checked against the rules for hosts. Raises InventoryError.
    """
    names: list[str] = []
    try:
        for _, piece in split(expr):
            names.extend(_expand_piece(piece.strip(" \t"), RANGE_MAX - len(names)))
    except SyntaxFault as error:
        problem = Problem("command line", None, error.token, *error.fault)
        raise InventoryError([problem]) from None
    return names


def _expand_piece(piece: str, room: int) -> list[str]:
    """Return the names one piece stands for, refusing what no name can hold."""
    if not piece:
        raise SyntaxFault(piece, Fault("name missing", "write: gpu[01-16],b2"))
    if not piece.isprintable() or " " in piece:
        raise SyntaxFault(piece, Fault("space or control character in a name"))
    if is_ipv6_literal(piece):
        return [piece]
    return write_out(piece, room)


def fold(names: Sequence[str], limit: int | None = None) -> str:
    """Return names folded with zero padding kept: ``gpu-a[01-02,04]``; duplicates count once.

    Names that node-set syntax cannot carry are joined by commas after the others. With `limit`, a
    longer text is cut between names: ``gpu-a[01-40,42,...] (113 nodes)``, the folded part at most
    `limit` long.
    """
    unique = list(dict.fromkeys(names))
    foldable = [name for name in unique if _FOLDABLE.fullmatch(name)]
    others = [name for name in unique if not _FOLDABLE.fullmatch(name)]
    text = ",".join([*_fold(foldable), *others])
    if limit is None or len(text) <= limit:
        return text
    return f"{_shorten(text, limit)} ({len(unique)} {'node' if len(unique) == 1 else 'nodes'})"


def _fold(names: list[str]) -> Iterator[str]:
    """Fold names of one shape after the other: first along the last number or the first, which is shorter."""
    shapes: dict[str, list[list[str]]] = {}
    for name in names:
        parts = _NUMBER.split(name)
        shapes.setdefault("\0".join(parts[::2]), []).append(parts)
    for _, rows in sorted(shapes.items()):
        rows.sort(key=lambda parts: [_number_key(number) for number in parts[1::2]])
        varying = [axis for axis in range(1, len(rows[0]), 2) if len({parts[axis] for parts in rows}) > 1]
        axes = varying[-BRACKETS_MAX:]
        yield min((_fold_along(rows, order) for order in (axes[::-1], axes)), key=len)


def _fold_along(rows: Sequence[Sequence[str]], axes: Sequence[int]) -> str:
    """Merge rows that differ in one number, for one axis after the other. rows: text, number, text, ..."""
    for axis in axes:
        merged: dict[tuple[str, ...], list[str]] = {}
        for parts in rows:
            merged.setdefault((*parts[:axis], *parts[axis + 1 :]), []).append(parts[axis])
        rows = [(*rest[:axis], _bracket(numbers), *rest[axis:]) for rest, numbers in merged.items()]
    return ",".join("".join(parts) for parts in rows)


def _bracket(numbers: list[str]) -> str:
    """Write numbers as ``[1-3,7]``; a single one as it is."""
    if len(numbers) == 1:
        return numbers[0]
    runs: list[list[str]] = []
    for number in sorted(numbers, key=_number_key):
        if runs and follows(runs[-1][-1], number):
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return f"[{','.join('-'.join(run) for run in runs)}]"


def _number_key(number: str) -> tuple[int, int]:
    return len(number), int(number)


def follows(last: str, number: str) -> bool:
    """Return whether a range such as ``08-11`` goes on from one number to the other, padding included."""
    padded = last[0] == "0" or number[0] == "0"
    return int(number) == int(last) + 1 and (not padded or len(last) == len(number))


def _shorten(text: str, limit: int) -> str:
    """Cut folded text at a comma so that it fits `limit`, closing an open bracket."""
    best, inside = "", False
    for position, char in enumerate(text):
        if position > limit:
            break
        if char == ",":
            cut = text[:position] + (",...]" if inside else ",...")
            best = cut if len(cut) <= limit else best
        inside = char == "[" if char in "[]" else inside
    return best or text[: max(limit - 3, 1)] + "..."


def evaluate(
    expr: str,
    universe: Collection[str],
    resolve: Callable[[str], list[str]],
    groups: Mapping[str, Collection[str]] | None = None,
) -> set[str]:
    """Return the names that an expression selects.

    ``,`` adds, ``!`` removes, ``&`` keeps common ones, ``^`` keeps those in one of both, from left
    to right without precedence, as ClusterShell reads them. ``*`` and ``?`` match names of
    `universe`. `resolve` turns one written-out name into known names; `groups` are those of the list
    itself. Raises SyntaxFault.
    """
    chosen: dict[str, None] = {}
    for operator, raw in split(expr, OPERATORS):
        piece = raw.strip(" \t")
        found: Iterable[str]
        if piece.startswith("@"):
            if piece[1:] not in (groups or {}):
                listed = ", ".join(sorted(groups or {})[:10])
                hint = f"it has: {listed}" if listed else "write the names"
                raise SyntaxFault(piece, Fault("the list has no such group", hint))
            found = (groups or {})[piece[1:]]
        elif "*" in piece or "?" in piece:
            found = _match(piece, universe)
        else:
            written = _expand_piece(piece, RANGE_MAX)
            found = [known for name in written for known in resolve(name)]
        chosen = combine(chosen, operator, found)
    return set(chosen)


def combine(chosen: dict[str, None], operator: str, names: Iterable[str]) -> dict[str, None]:
    """Return what an operator makes of names chosen so far and more names; their order stays."""
    found = dict.fromkeys(names)
    match operator:
        case "!":
            return {name: None for name in chosen if name not in found}
        case "&":
            return {name: None for name in chosen if name in found}
        case "^":
            return {name: None for name in (*chosen, *found) if (name in chosen) is not (name in found)}
    return chosen | found


def _match(piece: str, universe: Collection[str]) -> set[str]:
    """Return the known names that a wildcard matches; ranges do not mix with wildcards."""
    if "[" in piece:
        raise SyntaxFault(piece, Fault("a wildcard and a range in one name", "use one of the two"))
    # fnmatch and not a pattern of our own: it does not backtrack on 'n*n*n*n*n*x'.
    found = {name for name in universe if fnmatchcase(name, piece)}
    if not found:
        raise SyntaxFault(piece, Fault("matches none of the listed nodes"))
    return found
