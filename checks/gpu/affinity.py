"""Which GPU goes with which HCA, and whether all are as near to each other as on other nodes."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from netdoctor.check import check
from netdoctor.checks._shared.majority import of_most
from netdoctor.checks._shared.parity import differing
from netdoctor.checks._shared.text import listing
from netdoctor.checks.gpu._xid import address
from netdoctor.facts.expected import Expectations
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.rdma import Hca, RdmaFacts
from netdoctor.model import PEERS, Action, Cause, Finding, Status, look, ok, seen, skip
from netdoctor.rules.pci import Distance, distance

FAR = Cause(
    "gpu-far-from-hca", "GPUs of {nodes} are farther from their HCAs than on other nodes", action=Action.DRAIN
)
SPREAD = Cause(
    "gpu-far-apart", "GPUs of {nodes} are farther from each other than on other nodes", action=Action.DRAIN
)
COMPARE = look("compare it with a correct node", "nvidia-smi topo -m")


class Position(NamedTuple):
    """On the PCI bus, of a GPU (its index) or an HCA (its name)."""

    who: int | str
    path: tuple[str, ...]
    numa_node: int | None

    def to(self, other: "Position") -> Distance:
        return distance(self.path, other.path, self.numa_node, other.numa_node)


class Layout(NamedTuple):
    nearest: Mapping[int, Distance]  # by index of the GPU, how far the nearest HCA is
    who: str  # which HCAs those are, in words
    pairs: tuple[Distance, ...]  # how far GPUs are from each other, the nearest first


def layout(gpu: GpuFacts, cards: Collection[Hca]) -> Layout | None:
    """None where it is not known of a GPU."""
    on_bus = {address(one.address): (one.path, one.numa_node) for one in gpu.pci if one.path}
    known = [(device.index, on_bus.get(address(device.pci_bus_id))) for device in gpu.devices]
    gpus = tuple(Position(index, *position) for index, position in known if position is not None)
    if len(gpus) < len(known) or not gpus:
        return None
    return _layout(gpus, tuple(Position(hca.name, hca.pci_path, hca.numa_node) for hca in cards))


# Thousands of nodes of a kind are alike.
@lru_cache(maxsize=256)
def _layout(gpus: tuple[Position, ...], cards: tuple[Position, ...]) -> Layout:
    nearest, words = {}, []
    for gpu in gpus if cards else ():
        by_distance: dict[Distance, list[str]] = defaultdict(list)
        for card in cards:
            by_distance[gpu.to(card)].append(str(card.who))
        far = nearest[int(gpu.who)] = min(by_distance)
        words.append(f"GPU {gpu.who} {' or '.join(by_distance[far][:2])} ({far.name})")
    pairs = sorted(a.to(b) for a, b in combinations(gpus, 2))
    return Layout(nearest, listing(words, 16), tuple(pairs))


def farther(nodes: Mapping[str, Layout]) -> dict[str, Finding]:
    """Nodes of a kind whose GPUs are farther from their HCAs, or from each other, than on most of them.

    By all of a node together: that its slots are numbered in another order moves nothing.
    """
    by_index: dict[int, list[Distance]] = defaultdict(list)
    for one in nodes.values():
        for index, far in one.nearest.items():
            by_index[index].append(far)
    typical = {i: most for i, fars in by_index.items() if (most := of_most(fars, len(nodes)))}
    pairs = of_most((one.pairs for one in nodes.values()), len(nodes))
    found = {}
    for node, one in nodes.items():
        worse = {i: far for i, far in one.nearest.items() if far > typical.get(i, far)}
        if worse and sum(one.nearest.values()) > sum(typical.get(i, far) for i, far in one.nearest.items()):
            here = listing((f"GPU {i} {far.name}" for i, far in worse.items()), 8)
            peers = listing((f"GPU {i} {typical[i].name}" for i in worse), 8)
            summary = f"the nearest HCA is farther away than on most nodes: {here}; there {peers}"
            found[node] = _finding(FAR, node, summary, here, peers, one.who)
        elif pairs and sum(one.pairs) > sum(pairs):
            here, peers = _counts(one.pairs), _counts(pairs)
            summary = f"the GPUs are farther from each other than on most nodes: {here} pairs; there {peers}"
            found[node] = _finding(SPREAD, node, summary, here, peers, here)
    return found


def _counts(pairs: Iterable[Distance]) -> str:
    """``6 PIX and 2 SYS``."""
    return listing(f"{count} {far.name}" for far, count in sorted(Counter(pairs).items()))


def _finding(cause: Cause, node: str, summary: str, here: str, peers: str, what: str) -> Finding:
    evidence = seen("/sys/bus/pci/devices", what, "file")
    return cause.warn(summary, at=node, observed=here, expected=PEERS(peers), seen=evidence, fixes=COMPARE)


@check(
    after=["ssh.login", "gpu.visible", "rdma.hca"],
    required=False,
    source="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
    expects={"gpu.affinity": str},
)
def gpu_affinity(
    gpus: Mapping[str, GpuFacts], rdmas: Mapping[str, RdmaFacts], expect: Expectations | None = None
) -> Iterator[Finding]:
    """Every GPU is as near to an HCA, and to the other GPUs, as on other nodes with the same hardware.

    Looks at:
        The path from each GPU to each HCA and to the other GPUs through the PCI tree of sysfs, in the
        terms of ``nvidia-smi topo``: PIX (one switch), PXB (several), PHB (a host bridge), NODE (several
        of them on one NUMA node), SYS (between NUMA nodes). Nodes with the same GPUs and HCAs are
        compared: the nearest HCA of each GPU, and the number of GPU pairs at each distance. What most of
        them have is taken as the design.

    Matters because:
        NCCL gives each GPU the nearest HCA, and uses GPUDirect RDMA up to a host bridge. With a card in
        the wrong slot, or another NUMA setting in the BIOS, data goes through the CPUs, and every
        collective gets slower.

    Fix:
        Compare slots and BIOS settings with a correct node.
    """
    kinds: dict[tuple[object, ...], dict[str, Layout]] = defaultdict(dict)
    for node, facts in gpus.items():
        cards = [hca for hca in rdmas[node].hcas if hca.pci_path] if node in rdmas else []
        found = layout(facts, cards)
        if not facts.devices:
            yield skip("no GPU on this node", node)
        elif found is None:
            yield skip("the places of the GPUs on the PCI bus are not shown here", node)
        elif not cards and len(facts.devices) < 2:
            yield skip("one GPU, and no HCA on the PCI bus", node)
        else:
            types = tuple(sorted(hca.hca_type or "" for hca in cards))
            kinds[tuple((device.index, device.name) for device in facts.devices), types][node] = found
    near = {
        n: _counts(one.nearest.values())
        for nodes in kinds.values()
        for n, one in nodes.items()
        if one.nearest
    }
    yield from differing(
        near, "way to the nearest HCA", FAR, key="gpu.affinity", expect=expect, status=Status.WARN,
        peers=False, fixes=lambda *_: COMPARE,
    )  # fmt: skip
    for nodes in kinds.values():
        worse = farther(nodes)
        yield from worse.values()
        yield from (ok(node, one.who) for node, one in nodes.items() if one.who and node not in worse)
