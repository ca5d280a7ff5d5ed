"""Who loses packets: counts of directed pairs in, the fewest nodes and paths that account for them out."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from netdoctor.localise.binomial import log_tail

# What healthy networks may lose under other people's load, and how improbable a suspect's loss must be if
# it were no worse: with the 30 or so questions asked of a small cluster, one in 10,000 clean runs blames
# somebody.
BACKGROUND = 0.001
DOUBT = math.log(3e-6)

Cell = tuple[str, str]
Counts = Mapping[Cell, tuple[int, int]]  # (lost, sent) by direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Somebody who loses packets."""

    nodes: tuple[str, ...]
    side: str  # ``in``, ``out``, ``both`` of a node; ``path``; ``all``
    lost: int
    sent: int
    cells: frozenset[Cell]


def suspects(cells: Counts, limit: float) -> tuple[Loss, ...]:
    """The fewest nodes and paths that account for what is lost, the surest first.

    Pairs are put together before they are judged: a node that loses 2 % shows on six pairs what no single
    one of them proves. A node needs two pairs in a direction; with fewer it is a path. limit: shares of less
    are nobody's fault.
    """
    left = dict(cells)
    found: list[Loss] = []
    while left:
        worth = [one for one in _candidates(left) if one.lost >= limit * one.sent]
        best = min(worth, key=_chance, default=None)
        if best is None or _chance(best) > DOUBT:
            break
        found.append(best)
        left = {cell: counts for cell, counts in left.items() if cell not in best.cells}
    sides = _joined(found)
    lossy = {cell for one in sides for cell in one.cells if cells[cell][0]}
    nodes = {n for cell in cells for n in cell}
    blamed = {n for one in sides if one.side != "path" for n in one.nodes}
    if len(nodes) > 2 and len(blamed) == len(nodes) and len(lossy) > len(cells) // 2:
        return (total((), "all", cells, cells),)
    return tuple(sides)


def _candidates(cells: Counts) -> Iterator[Loss]:
    leaving: dict[str, list[Cell]] = {}
    entering: dict[str, list[Cell]] = {}
    for cell in cells:
        leaving.setdefault(cell[0], []).append(cell)
        entering.setdefault(cell[1], []).append(cell)
    for node in dict.fromkeys(n for cell in cells for n in cell):
        for side, touching in (("out", leaving.get(node, [])), ("in", entering.get(node, []))):
            # Loss on one pair alone is that path's, however much it weighs in the sum.
            if sum(1 for cell in touching if cells[cell][0]) > 1:
                yield total((node,), side, cells, touching)
    for cell, (lost, _) in cells.items():
        if lost:
            yield total(cell, "path", cells, [cell])


def total(nodes: tuple[str, ...], side: str, cells: Counts, covered: Collection[Cell]) -> Loss:
    """What is lost on these pairs together."""
    lost, sent = (sum(cells[cell][i] for cell in covered) for i in (0, 1))
    return Loss(nodes=nodes, side=side, lost=lost, sent=sent, cells=frozenset(covered))


def _chance(one: Loss) -> float:
    return log_tail(one.lost, one.sent, BACKGROUND)


def _joined(found: list[Loss]) -> list[Loss]:
    """Both directions of a node, or of a path, are one."""
    by_nodes: dict[tuple[bool, frozenset[str]], Loss] = {}
    for one in found:
        key = (one.side == "path", frozenset(one.nodes))
        before = by_nodes.get(key)
        by_nodes[key] = one
        if before is not None:
            by_nodes[key] = replace(
                before,
                side="path" if key[0] else "both",
                lost=before.lost + one.lost,
                sent=before.sent + one.sent,
                cells=before.cells | one.cells,
            )
    return list(by_nodes.values())
