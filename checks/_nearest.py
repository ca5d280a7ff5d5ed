"""Which HCAs are nearest to each GPU of a node."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

from netdoctor.checks._xid import address
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.rdma import Hca
from netdoctor.rules.pci import Distance, distance


class Nearest(NamedTuple):
    """The HCAs that are nearest to a GPU, and how near that is."""

    far: Distance
    names: tuple[str, ...]


# Index of a GPU or name of an HCA, its way through the PCI tree, its NUMA node.
Place = tuple[int | str, tuple[str, ...], int | None]


def nearest(gpu: GpuFacts, cards: Collection[Hca]) -> dict[int, Nearest]:
    """By index of the GPU; empty where the way to one of them is not known."""
    ways = {address(one.address): (one.path, one.numa_node) for one in gpu.pci if one.path}
    known = [(device.index, ways.get(address(device.pci_bus_id))) for device in gpu.devices]
    places = tuple((index, *way) for index, way in known if way is not None)
    if len(places) < len(known) or not cards:
        return {}
    return _matched(places, tuple((hca.name, hca.pci_path, hca.numa_node) for hca in cards))


# Thousands of nodes of a kind are alike.
@lru_cache(maxsize=256)
def _matched(gpus: tuple[Place, ...], cards: tuple[Place, ...]) -> dict[int, Nearest]:
    found = {}
    for index, path, numa in gpus:
        ways: dict[Distance, list[str]] = defaultdict(list)
        for name, other, other_numa in cards:
            ways[distance(path, other, numa, other_numa)].append(str(name))
        found[int(index)] = Nearest(min(ways), tuple(ways[min(ways)]))
    return found


def usual(nodes: Mapping[str, Mapping[int, Nearest]]) -> dict[int, Distance]:
    """What more than half of several nodes have, by GPU."""
    counts: dict[int, Counter[Distance]] = defaultdict(Counter)
    for near in nodes.values():
        for index, (far, _) in near.items():
            counts[index][far] += 1
    common = {index: counter.most_common(1)[0] for index, counter in counts.items()}
    return {index: far for index, (far, count) in common.items() if 2 * count > len(nodes)}
