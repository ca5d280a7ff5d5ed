"""Which GPU goes with which HCA, and whether they are as near to each other as on other nodes."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._nearest import Nearest, nearest, usual
from netdoctor.checks._words import listing
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import PEERS, Action, Cause, Finding, look, ok, seen, skip
from netdoctor.rules.pci import Distance

FAR = Cause(
    "gpu-far-from-hca",
    "GPUs of {nodes} are farther from their HCAs than on other nodes",
    action=Action.DRAIN,
)


@check(
    after=["ssh.login", "gpu.visible", "rdma.hca"],
    required=False,
    source="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
)
def gpu_affinity(gpus: Mapping[str, GpuFacts], rdmas: Mapping[str, RdmaFacts]) -> Iterator[Finding]:
    """Every GPU is as near to an HCA as on the other nodes of the kind.

    Looks at:
        The way from each GPU to each HCA through the PCI tree of sysfs, in the words of ``nvidia-smi topo``:
        PIX (one switch), PXB (several), PHB (a host bridge), NODE (several of them on one NUMA node), SYS
        (between NUMA nodes). The nearest HCA of a GPU is compared between nodes with the same GPUs and HCAs;
        what most of them have is how they are built.

    Matters because:
        NCCL gives a GPU the HCA that is nearest, and uses GPUDirect RDMA up to a host bridge. A card in
        another slot, or a NUMA setting of the BIOS, takes the data through the processors and slows every
        collective.

    Fix:
        Compare slots and BIOS settings with a node that is right.
    """
    kinds: dict[tuple[object, ...], dict[str, dict[int, Nearest]]] = defaultdict(dict)
    for node, facts in gpus.items():
        cards = [hca for hca in rdmas[node].hcas if hca.pci_path] if node in rdmas else []
        near = nearest(facts, cards)
        if near:
            types = tuple(sorted(hca.hca_type or "" for hca in cards))
            kinds[tuple((device.index, device.name) for device in facts.devices), types][node] = near
        elif not facts.devices:
            yield skip("no GPU on this node", node)
        else:
            why = "where GPUs are on the PCI bus is not shown here" if cards else "no HCA on the PCI bus"
            yield skip(why, node)
    for nodes in kinds.values():
        most = usual(nodes)
        for node, near in nodes.items():
            pairs = (f"GPU {i} {' or '.join(hcas[:2])} ({far.name})" for i, (far, hcas) in near.items())
            who = listing(pairs, 16)
            farther = {i: far for i, (far, _) in near.items() if far > most.get(i, far)}
            if farther:
                yield _far(node, farther, most, who)
            else:
                yield ok(node, who)


def _far(node: str, farther: Mapping[int, Distance], most: Mapping[int, Distance], who: str) -> Finding:
    here = listing((f"GPU {i} {far.name}" for i, far in farther.items()), 8)
    there = listing((f"GPU {i} {most[i].name}" for i in farther), 8)
    return FAR.warn(
        f"the nearest HCA is farther away than on most nodes: {here}; there {there}",
        at=node,
        observed=here,
        expected=PEERS(there),
        seen=seen("/sys/bus/pci/devices", who, "file"),
        fixes=look("compare it with a node that is right", "nvidia-smi topo -m"),
    )
