"""What systems with a known GPU board normally have. Said where all nodes lack it, and never judged: what is
built, or rented, in another way is none of our business."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.wanted import Wanted

WHAT = {
    "gpu.count": "GPUs",
    "gpu.nvlinks": "NVLinks up on each GPU",
    "gpu.nvswitches": "NVSwitches on the PCI bus",
    "rdma.hcas": "RDMA devices",
    "rdma.rate": "Gbit/s on each RDMA port",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One kind of system. gpu: pattern of its GPUs' name. least: GPUs that a node has at least to be one:
    a smaller machine, or a part of one, is another kind. cloud: whose it is, as HostFacts names it; None for
    machines of one's own. has: by the key under which it may be expected."""

    name: str
    gpu: str
    cloud: str | None = None
    least: int = 5
    has: Mapping[str, float]
    source: str


_H100 = r"H100 80GB HBM3|H100 SXM|H800$"
_H200 = r"H200$"
_A100 = r"A100-SXM4"
_DGX = "https://docs.nvidia.com/dgx/"
_AWS = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html"
_AZURE = "https://learn.microsoft.com/azure/virtual-machines/sizes/gpu-accelerated/"
_OCI = "https://docs.oracle.com/iaas/Content/Compute/References/computeshapes.htm"
_HOPPER = {"gpu.count": 8, "gpu.nvlinks": 18}
_AMPERE = {"gpu.count": 8, "gpu.nvlinks": 12}

# The first that fits counts. Boards of one's own have the network that their builder gave them; what stands
# here is that of NVIDIA's own system with the board.
PROFILES = (
    Profile(name="p5.48xlarge", gpu=_H100, cloud="aws", has={**_HOPPER, "rdma.hcas": 32}, source=_AWS),
    Profile(name="p5en.48xlarge", gpu=_H200, cloud="aws", has={**_HOPPER, "rdma.hcas": 16}, source=_AWS),
    Profile(name="p4d.24xlarge", gpu=_A100, cloud="aws", has={**_AMPERE, "rdma.hcas": 4}, source=_AWS),
    Profile(
        name="Standard_ND96isr_H100_v5",
        gpu=_H100,
        cloud="azure",
        has={**_HOPPER, "rdma.hcas": 8, "rdma.rate": 400},
        source=_AZURE + "ndh100v5-series",
    ),
    Profile(
        name="Standard_ND96amsr_A100_v4",
        gpu=_A100,
        cloud="azure",
        has={**_AMPERE, "rdma.hcas": 8, "rdma.rate": 200},
        source=_AZURE + "ndma100v4-series",
    ),
    Profile(name="BM.GPU.H100.8", gpu=_H100, cloud="oci", has={**_HOPPER, "rdma.hcas": 16}, source=_OCI),
    Profile(name="BM.GPU.A100-v2.8", gpu=_A100, cloud="oci", has={**_AMPERE, "rdma.hcas": 16}, source=_OCI),
    Profile(
        name="a system with an HGX H100 or H200 board",
        gpu=f"{_H100}|{_H200}",
        has={**_HOPPER, "gpu.nvswitches": 4, "rdma.hcas": 8, "rdma.rate": 400},
        source=_DGX + "dgxh100-user-guide/introduction-to-dgxh100.html",
    ),
    Profile(
        name="a system with an HGX A100 board",
        gpu=_A100,
        has={**_AMPERE, "gpu.nvswitches": 6, "rdma.hcas": 8, "rdma.rate": 200},
        source=_DGX + "dgxa100-user-guide/introduction-to-dgxa100.html",
    ),
    Profile(
        name="a system with an HGX B200 board",
        gpu=r"\bB200$",
        has={**_HOPPER, "gpu.nvswitches": 2, "rdma.hcas": 8, "rdma.rate": 400},
        source=_DGX + "dgxb200-user-guide/introduction-to-dgxb200.html",
    ),
    Profile(
        name="a compute tray of a GB200 NVL72",
        gpu=r"\bGB200$",
        least=3,
        has={"gpu.count": 4, "gpu.nvlinks": 18, "rdma.hcas": 4, "rdma.rate": 400},
        source=_DGX + "dgxgb200-user-guide/hardware.html",
    ),
)


def profile(gpu: GpuFacts, host: HostFacts | None) -> Profile | None:
    """The kind of system that a node is, None where it is none of the known."""
    names = {device.name for device in gpu.devices}
    cloud = host.cloud if host else None
    if len(names) != 1 or (host and host.in_lab):
        return None
    (name,) = names
    fitting = (one for one in PROFILES if one.cloud == cloud and len(gpu.devices) >= one.least)
    return next((one for one in fitting if re.search(one.gpu, name)), None)


def remarks(
    gpus: Mapping[str, GpuFacts],
    rdma: Mapping[str, RdmaFacts],
    hosts: Mapping[str, HostFacts],
    wanted: Wanted | None = None,
) -> list[str]:
    """What all nodes of a kind have less of than such systems normally do. Not what the user has typed."""
    kinds: dict[str, list[str]] = {}
    known: dict[str, Profile] = {}
    for node, gpu in gpus.items():
        if one := profile(gpu, hosts.get(node)):
            known[one.name] = one
            kinds.setdefault(one.name, []).append(node)
    return [text for name, nodes in kinds.items() for text in _less(known[name], nodes, gpus, rdma, wanted)]


def _less(
    kind: Profile,
    nodes: Sequence[str],
    gpus: Mapping[str, GpuFacts],
    rdma: Mapping[str, RdmaFacts],
    wanted: Wanted | None,
) -> Iterator[str]:
    for key, normal in kind.has.items():
        have = [value for node in nodes if (value := _value(key, gpus[node], rdma.get(node))) is not None]
        if len(have) == len(nodes) and max(have) < normal and not (wanted and wanted.about(key)):
            most = f"{max(have):g}" if max(have) else "none"
            here = (
                f"{nodes[0]} has {most}"
                if len(nodes) == 1
                else f"all {len(nodes)} nodes of the kind have {most}"
            )
            if max(have) != min(have):
                here = f"no node of the kind has more than {most}"
            yield (
                f"{kind.name} normally has {normal:g} {WHAT[key]}; {here} ({kind.source}). "
                "Nothing is judged by that: --expect does"
            )


def _value(key: str, gpu: GpuFacts, rdma: RdmaFacts | None) -> float | None:
    """What a node has of it, None where it did not tell or it cannot be said."""
    if key == "gpu.count":
        return len(gpu.devices)
    if key == "gpu.nvlinks":
        up = [device.nvlinks_active for device in gpu.devices if device.nvlinks_active is not None]
        return max(up) if len(up) == len(gpu.devices) else None
    if key == "gpu.nvswitches":
        return gpu.nvswitches
    if rdma is None:
        return None
    if key == "rdma.hcas":
        return len(rdma.hcas)
    rates = [port.rate_gbit_s for hca in rdma.hcas for port in hca.ports if port.active and port.rate_gbit_s]
    return max(rates, default=None)
