"""Text, numbers and node names on one line: what every rendering draws of them.

Everything returned is text that `netdoctor.text.clean` has seen.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from netdoctor.report.model import Report
from netdoctor.text import clean, has_ci_command

FOLD_LIMIT = 60
_WIDE = 100_000
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")


def plain(text: object, limit: int = 2_000) -> str:
    """Return anything as one harmless line; what is cut ends in three dots."""
    cleaned = clean(text if isinstance(text, str) else str(text), _WIDE)
    return cleaned if len(cleaned) <= limit else cleaned[: limit - 3].rstrip() + "..."


def is_inert(char: str) -> bool:
    """Return whether a character is drawn as itself and steers nothing."""
    return char.isprintable() and (char.isascii() or clean(f"x{char}x") == f"x{char}x")


def escaped(text: str) -> str:
    r"""Return `text` with each character that cannot be seen written as ``\x1b``, ``\u202e`` or ``\n``.

    And ``##[``, which some CI take for a command in their log, as ``#\x23[``.
    """
    if has_ci_command(text):
        text = text.replace("##", "#\\x23")
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if is_inert(c) else c.encode("unicode_escape").decode("ascii") for c in text)


def number(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def seconds(ms: float) -> str:
    """Return a duration as ``11.8 s`` or ``134 s``."""
    return f"{ms / 1000:.1f} s" if abs(ms) < 100_000 else f"{ms / 1000:.0f} s"


def fact(name: str, value: object) -> str:
    """Return a node's fact as it is read: bytes in GiB, nothing for None."""
    if value is None:
        return ""
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{value / 2**30:.4g} GiB"
    return plain(value, 80)


def figure(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "no number"


def fold(names: Sequence[str], limit: int | None = FOLD_LIMIT) -> str:
    """Return cleaned names folded, cut between names above `limit` characters."""
    cleaned = [plain(name, 200) for name in names]
    if len(cleaned) == 1:
        return cleaned[0]
    from netdoctor.inventory.nodeset import fold as fold_names

    return plain(fold_names(cleaned, limit), _WIDE)


def nodes_text(report: Report, names: Sequence[str], limit: int | None = FOLD_LIMIT) -> str:
    """Return names folded, or ``all 4 nodes`` for all of several."""
    every = report.matrix.nodes or tuple(target.id for target in report.targets)
    if len(every) > 1 and len(names) >= len(every) and set(names) >= set(every):
        return f"all {len(every)} nodes"
    return fold(names, limit)


def fold_addresses(lines: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return lines with the targets they are said of, those together that differ in addresses alone.

    ``eth0 10.0.0.1`` of node1 and ``eth0 10.0.0.2`` of node2 are ``eth0 10.0.0.[1-2]`` of both.
    """
    groups: dict[str, list[tuple[str, list[str]]]] = {}
    for line, targets in lines.items():
        groups.setdefault(_ADDRESS.sub("\0", line), []).append((line, targets))
    folded = {}
    for mask, members in groups.items():
        found = zip(*(_ADDRESS.findall(line) for line, _ in members), strict=True)
        folded_addresses = iter([fold(list(dict.fromkeys(addresses))) for addresses in found])
        folded_line = "".join(
            next(folded_addresses) if part == "\0" else part for part in re.split("(\0)", mask)
        )
        folded[folded_line] = [target for _, targets in members for target in targets]
    return folded


def pairs_text(pairs: Sequence[str]) -> list[str]:
    """Return ``n[1-2,4] -> n3``: pairs with an end in common together, largest first, three at most."""
    left = dict.fromkeys((src, dst) for src, _, dst in (pair.partition("->") for pair in pairs))
    lines: list[str] = []
    while left and len(lines) < 3:
        sizes = Counter((end, pair[end]) for pair in left for end in (1, 0))
        (end, node), _ = sizes.most_common(1)[0]
        others = [pair[1 - end] for pair in left if pair[end] == node]
        lines.append(f"{fold(others)} -> {node}" if end else f"{node} -> {fold(others)}")
        left = {pair: None for pair in left if pair[end] != node}
    return [*lines, number(len(left), "more pair")] if left else lines


def ids(causes: Iterable[int]) -> str:
    """Return ``[1], [2] and [3]``; long lists are cut."""
    marks = [f"[{n}]" for n in causes]
    if len(marks) > 4:
        return f"{marks[0]} to {marks[-1]}"
    return " and ".join(filter(None, [", ".join(marks[:-1]), marks[-1] if marks else ""]))
