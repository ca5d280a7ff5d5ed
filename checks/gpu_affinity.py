"""Which GPU goes with which HCA, and whether all are as near to each other as on other nodes."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._nearest import COMPARE, FAR, Layout, distances, farther, layout
from netdoctor.checks._parity import differing
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.wanted import Wanted
from netdoctor.model import Finding, Status, ok, skip


@check(
    after=["ssh.login", "gpu.visible", "rdma.hca"],
    required=False,
    source="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
    expects={"gpu.affinity": str},
)
def gpu_affinity(
    gpus: Mapping[str, GpuFacts], rdmas: Mapping[str, RdmaFacts], expect: Wanted | None = None
) -> Iterator[Finding]:
    """Every GPU is as near to an HCA, and to the other GPUs, as on the other nodes of the kind.

    Looks at:
        The way from each GPU to each HCA and to the other GPUs through the PCI tree of sysfs, in the words
        of ``nvidia-smi topo``: PIX (one switch), PXB (several), PHB (a host bridge), NODE (several of them on
        one NUMA node), SYS (between NUMA nodes). The nearest HCA of each GPU, and how many pairs of GPUs are
        how far apart, are compared between nodes with the same GPUs and HCAs; what most of them have is how
        they are built.

    Matters because:
        NCCL gives a GPU the HCA that is nearest, and uses GPUDirect RDMA up to a host bridge. A card in
        another slot, or a NUMA setting of the BIOS, takes the data through the processors and slows every
        collective.

    Fix:
        Compare slots and BIOS settings with a node that is right.
    """
    kinds: dict[tuple[object, ...], dict[str, Layout]] = defaultdict(dict)
    for node, facts in gpus.items():
        cards = [hca for hca in rdmas[node].hcas if hca.pci_path] if node in rdmas else []
        found = layout(facts, cards)
        if not facts.devices:
            yield skip("no GPU on this node", node)
        elif found is None:
            yield skip("where GPUs are on the PCI bus is not shown here", node)
        elif not cards and len(facts.devices) < 2:
            yield skip("one GPU, and no HCA on the PCI bus", node)
        else:
            types = tuple(sorted(hca.hca_type or "" for hca in cards))
            kinds[tuple((device.index, device.name) for device in facts.devices), types][node] = found
    near = {n: distances(one) for nodes in kinds.values() for n, one in nodes.items() if one.nearest}
    yield from differing(
        near, "way to the nearest HCA", FAR, key="gpu.affinity", expect=expect, status=Status.WARN,
        peers=False, fixes=lambda *_: COMPARE,
    )  # fmt: skip
    for nodes in kinds.values():
        worse = farther(nodes)
        yield from worse.values()
        yield from (ok(node, one.who) for node, one in nodes.items() if one.who and node not in worse)
