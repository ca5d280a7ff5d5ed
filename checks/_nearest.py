"""Which HCAs are nearest to each GPU of a node."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from netdoctor.checks._xid import address
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.rdma import Hca
from netdoctor.rules.pci import Distance, distance


class Nearest(NamedTuple):
    """The HCAs that are nearest to a GPU, and how near that is."""

    far: Distance
    names: tuple[str, ...]


def nearest(gpu: GpuFacts, cards: Collection[Hca]) -> dict[int, Nearest]:
    """By index of the GPU; empty where the way to one of them is not known."""
    places = {address(one.address): one for one in gpu.pci if one.path}
    found = {}
    for device in gpu.devices:
        place = places.get(address(device.pci_bus_id))
        if place is None or not cards:
            return {}
        ways: dict[Distance, list[str]] = defaultdict(list)
        for hca in cards:
            ways[distance(place.path, hca.pci_path, place.numa_node, hca.numa_node)].append(hca.name)
        found[device.index] = Nearest(min(ways), tuple(ways[min(ways)]))
    return found


def usual(nodes: Mapping[str, Mapping[int, Nearest]]) -> dict[int, Distance]:
    """What more than half of several nodes have, by GPU."""
    counts: dict[int, Counter[Distance]] = defaultdict(Counter)
    for near in nodes.values():
        for index, (far, _) in near.items():
            counts[index][far] += 1
    common = {index: counter.most_common(1)[0] for index, counter in counts.items()}
    return {index: far for index, (far, count) in common.items() if 2 * count > len(nodes)}
