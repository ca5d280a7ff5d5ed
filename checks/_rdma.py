"""What the checks about HCAs share."""

import ipaddress
import re
from collections.abc import Iterator, Mapping

from netdoctor.facts.rdma import Hca, HcaPort, RdmaFacts
from netdoctor.model import Evidence

# Soft RDMA and cloud adapters print a fixed rate that says nothing about a link
# (drivers/infiniband/sw, drivers/infiniband/hw/efa of the kernel).
_VIRTUAL = ("rxe", "siw", "efa", "erdma", "mana")

NO_HCAS = "no HCA on any node"


def is_virtual(hca: Hca) -> bool:
    """Software RDMA (rxe, siw) or a cloud adapter without a rate of its own."""
    text = (hca.hca_type or "").lower()
    return hca.name.startswith(_VIRTUAL) or text.startswith(_VIRTUAL)


def ports_of(nodes: Mapping[str, RdmaFacts]) -> Iterator[tuple[str, Hca, HcaPort]]:
    """Every port of every node."""
    for node, facts in nodes.items():
        for hca in facts.hcas:
            for port in hca.ports:
                yield node, hca, port


def has_any(nodes: Mapping[str, RdmaFacts]) -> bool:
    return any(facts.hcas for facts in nodes.values())


def is_plain_name(name: str) -> bool:
    """Whether a device name may stand in a command and in NCCL_IB_HCA."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name) is not None


def lanes(rate_text: str) -> int | None:
    """Lane count of ``400 Gb/sec (4X NDR)``: 4. None where it is not said."""
    match = re.search(r"\((\d+)X", rate_text)
    return int(match[1]) if match else None


def signalling(rate_text: str) -> str | None:
    """Name of the lane speed, ``NDR``; None for ``10 Gb/sec (4X)``, as old kernels print."""
    match = re.search(r"\(\d+X ([A-Z0-9]+)\)", rate_text)
    return match[1] if match else None


def short(gid: str) -> str:
    """``fe80::9c4:ff``, as people write it, for the eight groups that sysfs prints."""
    try:
        return str(ipaddress.IPv6Address(gid))
    except ValueError:
        return gid


def port_evidence(node: str, hca: Hca, port: HcaPort, *, gids: bool = False) -> Evidence:
    """A port's attributes as sysfs shows them."""
    parts = [port.link_layer, port.state, port.phys_state, port.rate_text or f"{port.rate_gbit_s}"]
    if port.sm_lid is not None and not port.is_roce:
        parts.append(f"sm_lid {port.sm_lid:#x}")
    if gids:
        parts = [f"{gid.index} {short(gid.gid)} {gid.type or '?'}" for gid in port.gids[:8]] or ["empty"]
    attribute = "gids" if gids else ""
    return Evidence(
        kind="file",
        where=node,
        what=f"/sys/class/infiniband/{hca.name}/ports/{port.number}/{attribute}",
        output=", ".join(parts),
    )
