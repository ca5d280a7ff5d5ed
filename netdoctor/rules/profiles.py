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
    """One kind of system. gpu: pattern of its GPUs' name. least: GPUs that a node has at least to be one.
    cloud: whose it is, as HostFacts names it; None for machines of one's own. has: by the key under which it
    may be expected."""

    name: str
    gpu: str
    cloud: str | None
    least: int
    has: Mapping[str, float]
    source: str


_H100 = r"H100 80GB HBM3|H100 SXM|H800$"
_H200 = r"H200$"
_A100 = r"A100-SXM4"
_HOPPER = {"gpu.count": 8, "gpu.nvlinks": 18}
_AMPERE = {"gpu.count": 8, "gpu.nvlinks": 12}
_EFA = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html"
_AWS = "https://github.com/meta-pytorch/torchx/blob/main/torchx/specs/named_resources_aws.py"
_AZURE = "https://learn.microsoft.com/azure/virtual-machines/sizes/gpu-accelerated/"
_OCI = "https://github.com/oracle-quickstart/oci-hpc/blob/master/samples/gpu/"
_POD = "https://docs.nvidia.com/dgx-basepod/reference-architecture-infrastructure-foundation-enterprise-ai/latest/"
_DGX = "https://docs.nvidia.com/dgx/"

# Numbers of NVLinks are those of https://docs.nvidia.com/health-validation/reference/checks/nvlink and, for
# A100, of https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/ (two to each of six
# NVSwitches). NVSwitches of the fourth generation (B200) are not on the PCI bus as such. Which of OCI's
# devices carry RDMA is what its scripts give to NCCL. Boards of one's own have the network that their builder
# gave them; what stands here is that of NVIDIA's own system with the board.
# Of each: name, whose it is, its GPUs, what it has with them, RDMA devices, their Gbit/s, and the source of
# those. The first that fits counts.
_ROWS: tuple[tuple[str, str | None, str, Mapping[str, float], int, int, str], ...] = (
    ("p5.48xlarge", "aws", _H100, _HOPPER, 32, 0, _EFA),
    ("p5e.48xlarge or p5en.48xlarge", "aws", _H200, _HOPPER, 16, 0, _AWS),
    ("p4d.24xlarge", "aws", _A100, _AMPERE, 4, 0, _AWS),
    ("Standard_ND96isr_H100_v5", "azure", _H100, _HOPPER, 8, 400, f"{_AZURE}ndh100v5-series"),
    ("Standard_ND96amsr_A100_v4", "azure", _A100, _AMPERE, 8, 200, f"{_AZURE}ndma100v4-series"),
    ("BM.GPU.H100.8", "oci", _H100, _HOPPER, 16, 0, f"{_OCI}nccl_run_allreduce_H100_200.sh"),
    ("BM.GPU.A100-v2.8", "oci", _A100, _AMPERE, 16, 0, f"{_OCI}nccl_run_allreduce.sh"),
    (
        "a system with an HGX H100 or H200 board", None, f"{_H100}|{_H200}",
        {**_HOPPER, "gpu.nvswitches": 4}, 8, 400, f"{_POD}core-components.html",
    ),
    (
        "a system with an HGX A100 board", None, _A100,
        {**_AMPERE, "gpu.nvswitches": 6}, 8, 200, f"{_DGX}dgxa100-user-guide/introduction-to-dgxa100.html",
    ),
    (
        "a system with an HGX B200 board", None, r"\bB200$", _HOPPER, 8, 400, f"{_POD}core-components.html",
    ),
    (
        "a compute tray of a GB200 NVL72", None, r"\bGB200$", {"gpu.count": 4, "gpu.nvlinks": 18}, 4, 400,
        f"{_DGX}dgxgb200-user-guide/hardware.html",
    ),
)  # fmt: skip
PROFILES = tuple(
    Profile(
        name=name,
        gpu=gpu,
        cloud=cloud,
        # A smaller machine, or a part of one, is another kind.
        least=int(boards["gpu.count"]) // 2 + 1,
        has={**boards, "rdma.hcas": hcas, **({"rdma.rate": rate} if rate else {})},
        source=source,
    )
    for name, cloud, gpu, boards, hcas, rate, source in _ROWS
)


def profile(gpu: GpuFacts, host: HostFacts | None) -> Profile | None:
    """The kind of system that a node is, None where it is none of the known."""
    names = {device.name for device in gpu.devices}
    cloud = host.cloud if host else None
    if len(names) != 1 or (host and host.shares_machine):
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
        have: list[float] = []
        for node in nodes:
            value = _value(key, gpus[node], rdma.get(node))
            if value is None or value >= normal:
                break
            have.append(value)
        if len(have) == len(nodes) and not (wanted and wanted.about(key)):
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
