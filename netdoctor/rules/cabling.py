"""Which RoCE ports of nodes share a network, and whether NCCL pairs such."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations


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
    """Nothing is said where no two nodes share a network: rails that are routed do so node by node."""
    members: dict[str, set[str]] = {}
    for node, ports in ends.items():
        for port in ports:
            members.setdefault(port.network, set()).add(node)
    shared: dict[tuple[str, str], list[tuple[str, str]]] = {}
    paired: dict[tuple[str, str], list[tuple[str, str]]] = {}
    crossed = []
    for a, b in combinations(ends, 2):
        found = [(x.port, y.port) for x in ends[a] for y in ends[b] if x.network == y.network]
        pairs = set(_paired(ends[a], ends[b]))
        shared[a, b], paired[a, b] = found, [two for two in found if two in pairs]
        met = {port for two in paired[a, b] for port in two}
        if any(not met & set(two) for two in found if two not in pairs):
            crossed.append((a, b))
    linked = {
        node: {n for two, ports in shared.items() if ports and node in two for n in two} for node in ends
    }
    peers = {node: others for node, others in linked.items() if others}
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
        is_ring=len(peers) > 2
        and all(len(nodes) == 2 for nodes in joined)
        and all(len(others) > 2 for others in peers.values()),  # itself and two more
    )


def _paired(one: Sequence[End], other: Sequence[End]) -> list[tuple[str, str]]:
    """The ports that NCCL pairs: those of one name, or where no name is on both nodes, of one place."""
    names = {port.port for port in one} & {port.port for port in other}
    if names:
        return [(name, name) for name in names]
    return [(x.port, y.port) for x, y in zip(one, other, strict=False)]


def odd_ones(ends: Ends, found: Cabling) -> tuple[str, ...]:
    """The nodes that are in most crossed pairs; both of two."""
    times = {node: sum(node in pair for pair in found.crossed) for node in ends}
    most = max(times.values(), default=0)
    return tuple(node for node, count in times.items() if count == most and count)
