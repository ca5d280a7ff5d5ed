"""What a pair or an all-reduce should reach, derived from the hardware that was seen.

busbw of an all-reduce over N nodes with n ranks in all, B the NICs of a node in one direction, V the GPUs'
own fabric (docs/PERFORMANCE.md of nccl-tests defines busbw so that a ring's is comparable with one link):

    a ring over all ranks             busbw <= min(V, B)
    reduced inside each node first    busbw <= min(V, B x (n-1)/n x N/(N-1)), up to 2 B for two nodes

NCCL takes the better of the two, so the second is the bound, and the first what may be expected. Published
figures (8 x 400 Gbit/s, four nodes and more) lie at 0.83 to 0.96 of B, and a floor of 0.8 B passes all of
them. A machine whose parts are not known gets no expectation: a wrong floor is worse than none.
"""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from netdoctor.facts.expected_rate import ExpectedRate, NoExpectedRate, Term
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import Netdev, NetFacts
from netdoctor.facts.rdma import HcaPort, RdmaFacts
from netdoctor.rules.nccl_ib import halves

PUBLISHED = "NVIDIA/nccl-tests issues 119 and 290; stas00/ml-engineering network/README.md"
INSIDE = "NVIDIA/nccl-tests issues 175, 212, 272; NVIDIA/nccl issue 1807; Azure/azurehpc-health-checks conf/"
SOCKETS = "one TCP stream over 100 Gbit/s carries 20 to 40 Gbit/s; 10G and 25G NICs give 1.1 and 2.8 GB/s"
LAB = "measured with gloo on links of 50 to 200 Mbit/s: 91 to 93 %"

# All ports together; published all-reduces reach 0.83 to 0.96 of it, single NICs 0.92 to 0.96.
RDMA_SHARES = (0.9, 0.8)
# Ethernet, IP and TCP headers leave 0.94 of a link at an MTU of 1500.
LINK_SHARES = (0.88, 0.75)
# A ring through NVSwitch: A100 230 of 300, H100 367 of 450, V100 110 of 150 GB/s.
RING_SHARES = (0.73, 0.65)
# In-switch reduction: H100 480, H200 475 of 787, B200 830 of 1575 GB/s.
NVLS_SHARES = (0.5, 0.44)
# A thread that feeds one TCP stream: 5 GB/s at best, 2.5 usual, 1 on slow cores. Two cores that send, receive
# and add up for four ranks reached 1.4 GB/s each in the lab, so a single core gets half.
STREAM_GBYTE_S = 5.0
STREAM_SHARES = (0.5, 0.2)

# One lane in one direction: 8, 16 and 32 GT/s less 128b/130b, 64 GT/s less its flits (PCI Express Base
# Specification 3.0 to 6.0).
PCIE_LANE_GBYTE_S = {3: 0.985, 4: 1.969, 5: 3.938, 6: 7.56}

# Drivers that print a rate which is not that of a link: veth says 10000, RDMA in software a fixed number.
NO_REAL_SPEED = ("veth", "tun", "bridge", "loopback", "macvlan", "other")
VIRTUAL_HCAS = ("rxe", "siw", "efa", "erdma", "mana")


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A board whose GPUs are joined in a known way. Rates are of one GPU in one direction."""

    pattern: str
    links: int
    nvlink_gbyte_s: float  # of all its links
    pcie_gbyte_s: float
    nvls: bool = False  # NVSwitch adds up (SM90 and later)


# NVIDIA's data sheets: NVLink 25 GB/s a link and direction up to generation 4 (6, 12, 18 links), 50 in 5;
# PCIe x16. Only boards that come with NVSwitch (or the V100's mesh): the names of others do not say how they
# are joined.
MODELS = (
    GpuModel(r"\bV100-SXM", 6, 150.0, 15.75),
    GpuModel(r"\bA100-SXM", 12, 300.0, 31.5),
    GpuModel(r"\bH100 80GB HBM3|\bH100.*SXM|\bH200\b(?!.*NVL)", 18, 450.0, 63.0, nvls=True),
    GpuModel(r"\bB200\b", 18, 900.0, 63.0, nvls=True),
)
# NVLS takes over from 5 GPUs on H200, 6 on B200 (ml-engineering, same file).
NVLS_FROM = 6
SWITCHED_FROM = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What of a node counts for one experiment. Empty terms with a reason: nothing can be said."""

    network: tuple[Term, ...] = ()  # terms between this node and others
    rails: Mapping[str, float]  # GB/s of each rail by HCA name
    gpus: int = 0  # that take part, of those held
    gpus_present: int = 0
    model: GpuModel | None = None
    gpu_name: str = ""
    nvlinks: int | None = None  # up on the GPU that has fewest, None where unknown
    # Of the GPU with the slowest link, in one direction, None where unknown.
    pcie_gbyte_s: float | None = None
    reason: str = ""


def hardware(
    *,
    net: NetFacts | None = None,
    rdma: RdmaFacts | None = None,
    gpu: GpuFacts | None = None,
    host: HostFacts | None = None,
    ifname: str | None = None,
    hcas: Collection[str] | None = None,
    gpus: int | None = None,
) -> Hardware:
    """What a node brings to an experiment that runs over `ifname`, or over HCAs when `gpus` is given.

    gpus: GPUs that take part; None for gloo and plain TCP. hcas: HCA names or ports (``mlx5_0``,
    ``mlx5_0:1``) that the job uses; None for all. With fewer GPUs than the node holds, their share of the
    rails counts.
    """
    if host is not None and host.shares_machine:
        return _nothing("the nodes share one machine's cores, and their links hide their limits")
    model, name, present = _gpus(gpu)
    nvlinks, pcie = _links(gpu)
    pcie = pcie if pcie is not None else model.pcie_gbyte_s if model is not None else None
    count = present if gpus is None else gpus
    ports = _ports(rdma, hcas) if gpus is not None else {}
    if ports:
        share = math.ceil(len(ports) * min(gpus or 1, present or 1) / max(present, 1))
        rails = dict(list(ports.items())[: max(share, 1)])
        total = sum(rails.values())
        rate = next(iter(rails.values())) * 8
        terms = [_term(f"{len(rails)} HCA ports of {rate:g} Gbit/s", total, RDMA_SHARES, PUBLISHED)]
        if pcie is not None:
            # What leaves a GPU passes its PCIe link, also with GPUDirect.
            lanes = (gpus or 1) * pcie
            terms.append(_term(f"PCIe of {gpus} {name}", lanes, RDMA_SHARES, "generation and width"))
        return Hardware(
            network=tuple(terms),
            rails=rails,
            gpus=count,
            gpus_present=present,
            model=model,
            gpu_name=name,
            nvlinks=nvlinks,
            pcie_gbyte_s=pcie,
        )
    link = _link(net, ifname)
    if isinstance(link, str):
        return _nothing(link)
    cores = host.cpu_count if host is not None else 2
    streams = Term(
        name="TCP through one thread" + (" on one core" if cores < 2 else ""),
        gbyte_s=STREAM_GBYTE_S / (2 if cores < 2 else 1),
        expected_share=STREAM_SHARES[0],
        floor_share=STREAM_SHARES[1],
        physical=False,
        source=SOCKETS,
    )
    wire = _term(f"link of {ifname}", link, LINK_SHARES, LAB if link < 0.1 else SOCKETS)
    return Hardware(
        network=(wire, streams),
        rails={},
        gpus=0 if gpus is None else count,
        gpus_present=present,
        model=model,
        gpu_name=name,
        nvlinks=nvlinks,
        pcie_gbyte_s=pcie,
    )


def pair(a: Hardware, b: Hardware, rail: str | None = None) -> ExpectedRate | NoExpectedRate:
    """One direction between two nodes; over one rail when it is named."""
    for one in (a, b):
        if not one.network:
            return NoExpectedRate(reason=one.reason)
    if rail is not None:
        if rail not in a.rails or rail not in b.rails:
            return NoExpectedRate(reason=f"no rate is known for rail {rail}")
        rate = min(a.rails[rail], b.rails[rail])
        return _least([_term(f"rail {rail} at {rate * 8:g} Gbit/s", rate, RDMA_SHARES, PUBLISHED)])
    return _least([*a.network, *b.network])


def all_reduce(nodes: Mapping[str, Hardware]) -> ExpectedRate | NoExpectedRate:
    """busbw over these nodes at 1 GiB per rank and more; smaller messages measure latency instead."""
    if not nodes:
        return NoExpectedRate(reason="no node takes part")
    if len(nodes) == 1:
        return _inside(next(iter(nodes.values())))
    terms: list[Term] = []
    ranks = sum(max(one.gpus, 1) for one in nodes.values())
    for name, one in sorted(nodes.items()):
        if not one.network:
            return NoExpectedRate(reason=f"{name}: {one.reason}")
        terms += one.network
        if one.gpus > 1:
            within = _inside(one)
            if isinstance(within, NoExpectedRate):
                return NoExpectedRate(reason=f"{name}: {within.reason}")
            terms += within.terms
    # Reduced inside nodes first, a node sends less than in a flat ring; the bound allows for it.
    several = max(one.gpus for one in nodes.values()) > 1
    slack = (ranks - 1) / ranks * len(nodes) / (len(nodes) - 1) if several else 1.0
    wires = {id(t) for one in nodes.values() for t in one.network}
    return _least(terms, slack={i: max(slack, 1.0) for i in wires})


def _inside(one: Hardware) -> ExpectedRate | NoExpectedRate:
    """The GPUs of one node among themselves."""
    if one.gpus < 2:
        return NoExpectedRate(reason="a single GPU has nobody to talk to inside its node")
    if one.model is None:
        return NoExpectedRate(reason=f"how {one.gpu_name or 'the GPUs'} are joined in a node is not known")
    # Boards of four have no switch: some of the GPUs share some of the links only.
    switched = one.gpus_present >= SWITCHED_FROM
    if not switched and one.gpus != one.gpus_present:
        return NoExpectedRate(
            reason=f"{one.gpus} of {one.gpus_present} {one.gpu_name} share an unknown part of their links"
        )
    link = one.model.nvlink_gbyte_s
    what = f"NVLink of {one.gpu_name}"
    if one.nvlinks is not None and one.nvlinks < one.model.links:
        if not one.nvlinks:
            return NoExpectedRate(reason=f"a {one.gpu_name} has no NVLink up")
        link *= one.nvlinks / one.model.links
        what += f" with {one.nvlinks} of {one.model.links} links up"
    if one.model.nvls and switched and one.gpus >= NVLS_FROM:
        # Each byte crosses a GPU's link once either way, where a ring's crosses 2(n-1)/n times.
        once = link * 2 * (one.gpus - 1) / one.gpus
        return _least([_term(f"{what}, added up in the switch", once, NVLS_SHARES, INSIDE)])
    return _least([_term(what, link, RING_SHARES, INSIDE)])


def _least(terms: list[Term], slack: Mapping[int, float] | None = None) -> ExpectedRate:
    """The least of the terms. slack: by how much the bound of a term, by id(), exceeds its rate."""
    limit = min(terms, key=lambda t: t.expected_gbyte_s)
    wider = slack or {}
    physical = [t.gbyte_s * wider.get(id(t), 1.0) for t in terms if t.physical]
    bound = min(physical) if physical else limit.gbyte_s
    return ExpectedRate(
        expected_gbyte_s=min(limit.expected_gbyte_s, bound),
        floor_gbyte_s=min(t.floor_gbyte_s for t in terms),
        bound_gbyte_s=bound,
        limit=limit,
        terms=tuple(dict.fromkeys(terms)),
    )


def _term(name: str, gbyte_s: float, shares: tuple[float, float], source: str) -> Term:
    return Term(name=name, gbyte_s=gbyte_s, expected_share=shares[0], floor_share=shares[1], source=source)


def _nothing(reason: str) -> Hardware:
    return Hardware(rails={}, reason=reason)


def _gpus(gpu: GpuFacts | None) -> tuple[GpuModel | None, str, int]:
    """Model, name and number of the node's GPUs; no model where they differ or are not known."""
    devices = [d for d in gpu.devices if d.error is None] if gpu is not None else []
    kinds = sorted({d.name for d in devices})
    if len(kinds) != 1 or any(d.mig_enabled for d in devices):
        return None, " and ".join(kinds), len(devices)
    return next((m for m in MODELS if re.search(m.pattern, kinds[0])), None), kinds[0], len(devices)


def _links(gpu: GpuFacts | None) -> tuple[int | None, float | None]:
    """(NVLinks up, GB/s of PCIe in one direction) of the GPUs that have least of them, None where unknown."""
    devices = [d for d in gpu.devices if d.error is None] if gpu is not None else []
    links = [d.nvlinks_active for d in devices]
    pcie = [
        PCIE_LANE_GBYTE_S[d.pcie_generation] * d.pcie_width
        for d in devices
        if d.pcie_generation in PCIE_LANE_GBYTE_S and d.pcie_width
    ]
    up = [count for count in links if count is not None]
    return (
        min(up) if up and len(up) == len(devices) else None,
        min(pcie) if pcie and len(pcie) == len(devices) else None,
    )


def _ports(rdma: RdmaFacts | None, hcas: Collection[str] | None) -> dict[str, float]:
    """GB/s of the active ports that carry the job: the fastest kind, as NCCL prefers it near each GPU."""
    ports: list[tuple[str, HcaPort]] = []
    for hca in rdma.hcas if rdma is not None else ():
        if hca.name.startswith(VIRTUAL_HCAS) or (hca.hca_type or "").lower().startswith(VIRTUAL_HCAS):
            continue
        for port in hca.ports:
            if port.active and port.rate_gbit_s and (hcas is None or {hca.name, port.name} & set(hcas)):
                ports.append((hca.name if len(hca.ports) == 1 else port.name, port))
    fastest = max((p.rate_gbit_s or 0.0 for _, p in ports), default=0.0)
    # Devices that are one port have its rate together, though each says the whole of it.
    shared = {hca.name: len(group) for group in halves(rdma.hcas if rdma else ()) for hca in group}
    return {
        name: fastest / 8 / shared.get(name.partition(":")[0], 1)
        for name, p in ports
        if p.rate_gbit_s == fastest
    }


def _link(net: NetFacts | None, ifname: str | None) -> float | str:
    """GB/s of an interface, or why it is not known."""
    if net is None or ifname is None:
        return "the interface that carries the job is not known"
    dev: Netdev | None = next((d for d in net.netdevs if d.name == ifname), None)
    if dev is None:
        return f"there is no interface {ifname}"
    if dev.kind in NO_REAL_SPEED:
        return f"{ifname} is a {dev.kind} interface, whose speed says nothing"
    if not dev.speed_mbit_s or dev.speed_mbit_s <= 0:
        return f"the driver of {ifname} does not say how fast the link is"
    return dev.speed_mbit_s / 8000
