"""What systems with a known GPU board normally have. Said where all nodes lack it, and never judged: what is
built, or rented, in another way is none of our business. The table is data/profiles.toml."""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from netdoctor import tables
from netdoctor.facts.expected import Expectations
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts
from netdoctor.facts.rdma import RdmaFacts

WHAT = {
    "gpu.count": "GPUs",
    "gpu.nvlinks": "NVLinks up on each GPU",
    "gpu.nvswitches": "NVSwitches on the PCI bus",
    "rdma.hcas": "RDMA devices",
    "rdma.rate": "Gbit/s on each RDMA port",
}


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of system."""

    name: str
    gpu: str  # pattern of its GPUs' name
    cloud: str | None = None  # whose it is, as HostFacts names it; None for machines of one's own
    has: dict[str, float]  # by the key under which it may be expected
    source: str

    @property
    def least(self) -> int:
        """GPUs that a node has at least to be one: a smaller machine, or a part of one, is another kind."""
        return int(self.has["gpu.count"]) // 2 + 1


class _Systems(Struct, forbid_unknown_fields=True):
    system: tuple[Profile, ...]


PROFILES = tables.table("netdoctor.rules", "profiles.toml", _Systems).system


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
    expectations: Expectations | None = None,
) -> list[str]:
    """What all nodes of a kind have less of than such systems normally do. Not what the user has typed."""
    kinds: dict[str, list[str]] = {}
    known: dict[str, Profile] = {}
    for node, gpu in gpus.items():
        if one := profile(gpu, hosts.get(node)):
            known[one.name] = one
            kinds.setdefault(one.name, []).append(node)
    return [
        text for name, nodes in kinds.items() for text in _less(known[name], nodes, gpus, rdma, expectations)
    ]


def _less(
    kind: Profile,
    nodes: Sequence[str],
    gpus: Mapping[str, GpuFacts],
    rdma: Mapping[str, RdmaFacts],
    expectations: Expectations | None,
) -> Iterator[str]:
    for key, normal in kind.has.items():
        have: list[float] = []
        for node in nodes:
            value = _value(key, gpus[node], rdma.get(node))
            if value is None or value >= normal:
                break
            have.append(value)
        if len(have) == len(nodes) and not (expectations and expectations.has(key)):
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
                "This is only a note: --expect makes it count"
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
