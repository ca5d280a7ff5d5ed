"""Whether NICs of different rails reach each other, and when NCCL pairs such."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.net import PortMatrix, PortProbe
from netdoctor.facts.paths import RAIL, Path, Paths
from netdoctor.rules.variables import param

REACHED = ("open", "in_use")
CLOSED = ("filtered", "rejected", "no_route", "refused")
CROSS_NIC = "NCCL_CROSS_NIC"


def pairs_of_rails(count: int) -> list[tuple[int, int]]:
    """The ordered pairs of `count` rails; of any first few, rails take part equally often."""
    return [(one, (one + step) % count) for step in range(1, count) for one in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """One try from a rail of `src` to another rail of `dst`, between which both rails work."""

    src: str
    dst: str
    rails: tuple[str, str]  # names of the ports, that of the sender first
    probe: PortProbe

    @property
    def is_open(self) -> bool:
        return self.probe.outcome in REACHED


def crossings(ports: PortMatrix, paths: Paths) -> list[Crossing]:
    """What the tries across show, without those between nodes of which a rail itself is closed, and without
    those that could not be made."""
    reached = {(one.src, one.dst, one.address) for one in ports.probes if one.outcome in REACHED}
    reached -= {(one.src, one.dst, one.address) for one in ports.probes if one.outcome in CLOSED}
    rails: dict[tuple[str, str], Path] = {}
    for rail in paths.rails:
        for end in rail.addresses.items():
            rails.setdefault(end, rail)
    found = []
    for probe in ports.crossings:
        source, target = rails.get((probe.src, probe.source)), rails.get((probe.dst, probe.address))
        if source is None or target is None or probe.outcome not in (*REACHED, *CLOSED):
            continue
        ends = {rail.addresses.get(probe.dst) for rail in (source, target)}
        if all((probe.src, probe.dst, address) in reached for address in ends):
            names = (source.id.removeprefix(f"{RAIL} "), target.id.removeprefix(f"{RAIL} "))
            found.append(Crossing(src=probe.src, dst=probe.dst, rails=names, probe=probe))
    return found


def leaves_rail(env: Mapping[str, str], gpu: GpuFacts | None) -> str | None:
    """Why a rank of this node sends to a rank of another from its own NIC, and not from that of the
    receiver's rail; empty where it does not, None where nobody knows.

    With PXN the data goes over NVLink to the GPU at the right NIC. [NCCL src/graph/search.cc
    ncclTopoGetNetDev, 2.12 to 2.30: NCCL_P2P_PXN_LEVEL is 2 by itself, and PXN wants NVLink between GPUs;
    with one GPU a node, both ends take NICs by the channel]
    """
    if gpu is None or len(gpu.devices) < 2:
        return None if gpu is None else ""
    for name, value, default in _WITHOUT_PXN:
        if param(env.get(name), default) == value:
            return f"{name}={env[name]}"
    links = [device.nvlinks for device in gpu.devices]
    if None in links:
        return None
    return "" if any(links) else "GPUs without NVLink"


_WITHOUT_PXN = (("NCCL_PXN_DISABLE", 1, 0), ("NCCL_P2P_PXN_LEVEL", 0, 2), ("NCCL_P2P_DISABLE", 1, 0))


def is_kept(env: Mapping[str, str]) -> bool:
    """Whether NCCL keeps every connection on its rail."""
    return param(env.get(CROSS_NIC), 2) == 0


def is_crossed(env: Mapping[str, str]) -> bool:
    """Whether NCCL crosses in rings and trees, too."""
    return param(env.get(CROSS_NIC), 2) == 1


def never_met(found: list[Crossing]) -> Iterator[tuple[str, str]]:
    """The pairs of rails that were tried and of which no try got through."""
    met = {one.rails for one in found if one.is_open}
    yield from dict.fromkeys(one.rails for one in found if one.rails not in met)
