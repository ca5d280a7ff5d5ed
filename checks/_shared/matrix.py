"""From a directed matrix of good and bad pairs to the fewest faults that account for it."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from netdoctor.compat import StrEnum
from netdoctor.facts.bandwidth import LossMatrix, TcpRates
from netdoctor.facts.net import PathMtus, PortMatrix
from netdoctor.model import CLUSTER, Cause, Finding, pair, unknown

Cell = tuple[str, str]
# What a socket hears that gets no port from the kernel: of UDP, of TCP [Linux net/ipv4/af_inet.c].
NO_PORTS_LEFT = ("EAGAIN", "EADDRNOTAVAIL")
NO_PORT = Cause(
    "local-ports-none", "{nodes} {has} no free local port for new connections", follows=("net.local-ports",)
)
# Whatever one node sends (0) or is sent (1).
Line = tuple[int, str]


class Kind(StrEnum):
    """What a fault sits at."""

    IN = "in"  # nothing gets into the node
    OUT = "out"  # nothing gets out of it
    NODE = "node"  # both
    PATH = "path"  # one directed pair
    SPLIT = "split"  # two parts cannot reach each other
    ALL = "all"  # no pair works


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Where something is broken, and the bad pairs that it accounts for."""

    kind: Kind
    nodes: tuple[str, ...]  # of a path source and target, of a split the smaller part; empty on a tie
    cells: frozenset[Cell]
    partial: bool = False  # only some of the node's pairs are bad

    @property
    def culprits(self) -> tuple[str, ...]:
        """Nodes that it blames, or the pair of a path; all nodes at a split into equal halves."""
        if self.kind is Kind.PATH:
            return (pair(*self.nodes),)
        return self.nodes or tuple(dict.fromkeys(node for cell in sorted(self.cells) for node in cell))


def left_out(
    what: str,
    measured: PortMatrix | PathMtus | LossMatrix | TcpRates,
    nodes: Iterable[str],
    nothing: str = "",
) -> Iterator[Finding]:
    """``unknown`` for nodes whose part did not run, and for those of `nodes` that are in no pair.

    what: ``ports were not tested``. nothing: the summary for the cluster where no pair was measured and
    nobody failed.
    """
    for node, reason in measured.failed_nodes.items():
        yield unknown(node, f"{what}: {reason}")
    tried = measured.rates if isinstance(measured, TcpRates) else measured.probes
    part = {*measured.failed_nodes, *(end for one in tried for end in (one.src, one.dst))}
    if not part and nothing:
        yield unknown(CLUSTER, nothing)
    for node in nodes if part else ():
        if node not in part:
            yield unknown(node, f"{what}: no pair with it was tried")


def unsent(src: str, dst: str, summary: str, detail: str) -> Finding:
    """``unknown`` for a pair between which nothing could be sent. detail: the name of the error, if any."""
    text = f"{summary}: {detail}" if detail else summary
    if detail in NO_PORTS_LEFT:
        return NO_PORT.unknown(text, at=pair(src, dst), culprits=(src,))
    return unknown(pair(src, dst), text)


def decode(cells: Mapping[Cell, bool]) -> tuple[Fault, ...]:
    """Faults behind `cells` ((src, dst) to "bad"), in the order in which nodes first appear.

    Pairs that were not tried are absent and count for nothing. A node is to blame for a direction when every
    pair tried in that direction is bad, there are at least two of them, and no other fault accounts for them
    all. With two nodes that can never be told: what is left is PATH, or ALL.
    """
    bad = {cell for cell, is_bad in cells.items() if is_bad}
    if not bad:
        return ()
    nodes = list(dict.fromkeys(node for cell in cells for node in cell))
    if len(bad) == len(cells) and len(bad) > 1:
        return (Fault(kind=Kind.ALL, nodes=tuple(nodes), cells=frozenset(bad)),)
    columns, rows = _full(cells, nodes, 1), _full(cells, nodes, 0)
    into, out = _necessary(bad, columns, rows)
    left = {(src, dst) for src, dst in bad if src not in out and dst not in into}
    faults: list[Fault] = []
    for node in nodes:
        if node in into and node in out:
            kind, own_cells = Kind.NODE, columns[node] | rows[node]
        elif node in into:
            kind, own_cells = Kind.IN, columns[node]
        elif node in out:
            kind, own_cells = Kind.OUT, rows[node]
        else:
            continue
        faults.append(Fault(kind=kind, nodes=(node,), cells=frozenset(own_cells)))
    return (*faults, *_rest(cells, left, nodes))


def vertex_cover(cells: Iterable[Cell], likely: Collection[str]) -> tuple[str, ...]:
    """The fewest nodes of which each of these pairs has one; of several that may be it, those that are
    `likely`, else all of them."""
    cells_of: dict[str, set[Cell]] = {}
    for cell in sorted(set(cells)):
        for end in cell:
            cells_of.setdefault(end, set()).add(cell)
    position = {node: i for i, node in enumerate(cells_of)}

    def entry(node: str) -> tuple[int, bool, int, str]:
        return -len(cells_of[node]), node not in likely, position[node], node

    heap, found = [*map(entry, cells_of)], []
    heapify(heap)
    while heap and heap[0][0]:
        first: list[str] = []
        most = heap[0][:2]
        while heap and heap[0][:2] == most:
            *_, node = now = heappop(heap)
            if node in cells_of and now == entry(node):
                first.append(node)
        found += first
        for cell in {cell for node in first for cell in cells_of.pop(node)}:
            for node in cell:
                if node in cells_of:
                    cells_of[node].discard(cell)
                    heappush(heap, entry(node))
    return tuple(found)


def decode_to(cells: Mapping[Cell, bool]) -> tuple[Fault, ...]:
    """As `decode`; where one node alone is dialled and nobody gets through, it is the way into that one."""
    faults, targets = decode(cells), tuple({dst for _, dst in cells})
    if len(targets) > 1:
        return faults
    alone = (Kind.ALL, Kind.IN)
    return tuple(replace(one, kind=Kind.IN, nodes=targets) if one.kind in alone else one for one in faults)


def _full(cells: Mapping[Cell, bool], nodes: Iterable[str], end: int) -> dict[str, set[Cell]]:
    """Nodes of which every pair at this end (0 source, 1 target) is bad, with those pairs."""
    tried: dict[str, set[Cell]] = {node: set() for node in nodes}
    fine: set[str] = set()
    for cell, is_bad in cells.items():
        tried[cell[end]].add(cell)
        if not is_bad:
            fine.add(cell[end])
    return {node: own_cells for node, own_cells in tried.items() if node not in fine and len(own_cells) > 1}


def _necessary(
    bad: set[Cell], columns: dict[str, set[Cell]], rows: dict[str, set[Cell]]
) -> tuple[set[str], set[str]]:
    """Directions of nodes that the simplest account needs.

    First those with a pair that only they account for; then, as long as one direction accounts for more of
    what is left than any other, that one. A tie stays open.
    """
    into: set[str] = set()
    out: set[str] = set()
    for src, dst in bad:
        if dst in columns and src not in rows:
            into.add(dst)
        if src in rows and dst not in columns:
            out.add(src)
    left = {(src, dst) for src, dst in bad if src not in out and dst not in into}
    lines: dict[Line, set[Cell]] = {
        (1, node): own_cells & left for node, own_cells in columns.items() if node not in into
    }
    lines |= {(0, node): own_cells & left for node, own_cells in rows.items() if node not in out}
    heap = [(-len(own_cells), line) for line, own_cells in lines.items()]
    heapify(heap)
    while (best := _largest(heap, lines)) and len(lines[best]) > 1:
        also = _largest(heap, lines)
        if also and len(lines[also]) == len(lines[best]):
            break
        if also:
            heappush(heap, (-len(lines[also]), also))
        (out, into)[best[0]].add(best[1])
        for src, dst in lines.pop(best):
            crossing: Line = (0, src) if best[0] else (1, dst)
            if crossing in lines:
                lines[crossing].discard((src, dst))
                heappush(heap, (-len(lines[crossing]), crossing))
    return into, out


def _largest(heap: list[tuple[int, Line]], lines: Mapping[Line, set[Cell]]) -> Line | None:
    """Take the longest line from a heap, in which each stands for every length that it has had."""
    while heap:
        length, line = heappop(heap)
        if line in lines and -length == len(lines[line]):
            return line
    return None


def _rest(cells: Mapping[Cell, bool], left: set[Cell], nodes: list[str]) -> list[Fault]:
    """What no whole row or column accounts for: a split, part of a node's pairs, single paths."""
    if not left:
        return []
    split = _split(cells, left, nodes)
    if split is not None:
        return [split]
    faults: list[Fault] = []
    lines: dict[Line, set[Cell]] = {}
    for cell in left:
        for end in (0, 1):
            lines.setdefault((end, cell[end]), set()).add(cell)
    by_size: dict[int, tuple[dict[str, None], dict[str, None]]] = {}
    for end, node in sorted(lines):
        by_size.setdefault(len(lines[end, node]), ({}, {}))[end][node] = None
    # Three pairs of one node in one direction are no coincidence; two may be.
    for most in range(max(by_size), 2, -1):
        sources, targets = by_size.get(most, ({}, {}))
        # Lines of one direction share no pair; of both, nobody can tell which it is.
        while bool(sources) != bool(targets):
            end, node = (0, next(iter(sources))) if sources else (1, next(iter(targets)))
            own_cells = frozenset(lines[end, node])
            kind = Kind.IN if end == 1 else Kind.OUT
            faults.append(Fault(kind=kind, nodes=(node,), cells=own_cells, partial=True))
            for cell in sorted(own_cells):
                for side, other in enumerate(cell):
                    size = len(lines[side, other])
                    del by_size[size][side][other]
                    lines[side, other].discard(cell)
                    by_size.setdefault(size - 1, ({}, {}))[side][other] = None
            left -= own_cells
        if sources:
            break
    order = {node: i for i, node in enumerate(nodes)}
    for cell in sorted(left, key=lambda c: (order[c[0]], order[c[1]])):
        faults.append(Fault(kind=Kind.PATH, nodes=cell, cells=frozenset([cell])))
    return faults


def _split(cells: Mapping[Cell, bool], left: set[Cell], nodes: list[str]) -> Fault | None:
    """Two parts, each at least two nodes, that work inside and not across; None if it is not that."""
    touched = {node for cell in left for node in cell}
    involved = [node for node in nodes if node in touched]
    if len(involved) < 4:
        return None
    good: dict[str, list[str]] = {}
    for (src, dst), is_bad in cells.items():
        if not is_bad and src in touched and dst in touched:
            good.setdefault(src, []).append(dst)
            good.setdefault(dst, []).append(src)
    part, todo = {involved[0]}, [involved[0]]
    while todo:
        more = set(good.get(todo.pop(), ())) - part
        part |= more
        todo += more
    rest = [node for node in involved if node not in part]
    if len(part) < 2 or len(rest) < 2:
        return None
    across = {c for c in cells if (c[0] in part) != (c[1] in part) and c[0] in touched and c[1] in touched}
    if left != across:
        return None
    small: tuple[str, ...] = ()
    if len(part) != len(rest):
        small = tuple(n for n in involved if n in part) if len(part) < len(rest) else tuple(rest)
    return Fault(kind=Kind.SPLIT, nodes=small, cells=frozenset(left))
