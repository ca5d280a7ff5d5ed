"""Which RoCE ports of nodes share a network, and whether NCCL pairs such."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

ALL_PAIRS_UP_TO = 16


@dataclass(frozen=True, slots=True)
class End:
    """A RoCE port that NCCL uses, and the network of the address behind its GID."""

    port: str  # ``mlx5_0:1``
    network: str


# By node, its ports in NCCL's order.
Ends = Mapping[str, Sequence[End]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cabling:
    """How ports of nodes meet."""

    # By pair of nodes, the ports of both that share a network.
    shared: Mapping[tuple[str, str], Sequence[tuple[str, str]]]
    paired: Mapping[tuple[str, str], Sequence[tuple[str, str]]]  # those of them that NCCL pairs
    # Pairs of which ports at one place do not meet, though they do at other places.
    crossed: Sequence[tuple[str, str]]
    strangers: Sequence[tuple[str, str]]  # that share no network, though both do with others
    lonely: Mapping[str, Sequence[str]]  # ports without a peer on nodes that have others with one
    is_ring: bool  # each network joins two nodes of more, as cables without a switch do


def cabling(ends: Ends) -> Cabling:
    """All is empty where no two nodes share a network, as where every port is routed by itself."""
    members: dict[str, set[str]] = {}
    for node, ports in ends.items():
        for port in ports:
            members.setdefault(port.network, set()).add(node)
    shared: dict[tuple[str, str], list[tuple[str, str]]] = {}
    paired: dict[tuple[str, str], list[tuple[str, str]]] = {}
    crossed = []
    for a, b in _pairs(list(ends)):
        found = [(x.port, y.port) for x in ends[a] for y in ends[b] if x.network == y.network]
        pairs = set(_paired(ends[a], ends[b]))
        shared[a, b], paired[a, b] = found, [two for two in found if two in pairs]
        met = {port for two in paired[a, b] for port in two}
        if any(not met & set(two) for two in found if two not in pairs):
            crossed.append((a, b))
    peers: dict[str, set[str]] = {}
    for two in (two for two, ports in shared.items() if ports):
        for node in two:
            peers.setdefault(node, set()).update(two)
    joined = [nodes for nodes in members.values() if len(nodes) > 1]
    return Cabling(
        shared=shared,
        paired=paired,
        crossed=crossed,
        strangers=[two for two, ports in shared.items() if not ports and peers.keys() >= set(two)],
        lonely={
            node: names
            for node in peers
            if (names := [port.port for port in ends[node] if len(members[port.network]) == 1])
        },
        is_ring=2 < len(peers) <= ALL_PAIRS_UP_TO
        and all(len(nodes) == 2 for nodes in joined)
        and all(len(others) > 2 for others in peers.values()),  # itself and two more
    )


def _pairs(nodes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """All of a small cluster; of a large one, where no ring of cables is, each node with two others."""
    if len(nodes) <= ALL_PAIRS_UP_TO:
        yield from combinations(nodes, 2)
    else:
        yield from ((nodes[0], node) for node in nodes[1:])
        yield from pairwise(nodes[1:])


def _paired(one: Sequence[End], other: Sequence[End]) -> list[tuple[str, str]]:
    """The ports that NCCL pairs: those of one name, or where no name is on both nodes, of one place."""
    names = {port.port for port in one} & {port.port for port in other}
    if names:
        return [(name, name) for name in names]
    return [(x.port, y.port) for x, y in zip(one, other, strict=False)]


def odd_ones(found: Cabling) -> tuple[str, ...]:
    """The nodes that are in most crossed pairs; both of two."""
    times = Counter(node for two in found.crossed for node in two)
    most = max(times.values(), default=0)
    return tuple(node for node, count in times.items() if count == most)
