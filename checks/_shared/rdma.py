"""What the checks about HCAs share."""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping

from netdoctor.checks._shared.text import listing
from netdoctor.facts.cabling import CablingFacts
from netdoctor.facts.rdma import Hca, HcaPort, RdmaFacts
from netdoctor.model import Cause, Evidence, Finding, seen

NO_HCAS = "no HCA on any node"
UNREAD = Cause("hca-unread", "HCA ports of {nodes} could not be read")


def ports_of(nodes: Mapping[str, RdmaFacts]) -> Iterator[tuple[str, Hca, HcaPort]]:
    """Every port of every node."""
    for node, facts in nodes.items():
        for hca in facts.hcas:
            for port in hca.ports:
                yield node, hca, port


def unread(nodes: Mapping[str, RdmaFacts]) -> Iterator[Finding]:
    """`unknown` for each HCA and port that does not tell whether it is in use; one cause for all checks."""
    for node, facts in nodes.items():
        for hca in facts.hcas:
            if not hca.ports:
                yield UNREAD.unknown(f"the ports of {hca.name} could not be read", at=node)
            for port in hca.ports:
                if not (port.state and port.link_layer):
                    yield UNREAD.unknown(f"state or link layer of {port.name} could not be read", at=node)


def has_any(nodes: Mapping[str, RdmaFacts]) -> bool:
    return any(facts.hcas for facts in nodes.values())


def short(gid: str) -> str:
    """``fe80::9c4:ff``, as people write it, for the eight groups that sysfs prints."""
    try:
        return str(ipaddress.IPv6Address(gid))
    except ValueError:
        return gid


def hca_evidence(facts: RdmaFacts) -> Evidence:
    """The HCAs of a node as sysfs shows them."""
    rows = [
        " ".join(filter(None, (hca.name, hca.hca_type, f"fw {hca.fw_version or '?'}"))) for hca in facts.hcas
    ]
    return seen("/sys/class/infiniband", listing(rows, 8) or "empty", "file")


def unbound_evidence(facts: RdmaFacts) -> Evidence:
    """Its NICs that are no HCA."""
    return seen("/sys/bus/pci/devices", listing(facts.unbound_pci, 8) + " without an RDMA device", "file")


def port_evidence(hca: Hca, port: HcaPort, *, gids: bool = False) -> Evidence:
    """A port's attributes, or its GID table, as sysfs shows them."""
    folder = f"/sys/class/infiniband/{hca.name}/ports/{port.number}/"
    if gids:
        rows = [f"{gid.index} {short(gid.gid)} {gid.type or '?'}" for gid in port.gids[:8]]
        return seen(f"{folder}gids", ", ".join(rows) or "empty", "file")
    parts = [port.link_layer, port.state, port.phys_state, port.rate_text or f"{port.rate_gbit_s}"]
    if port.sm_lid is not None and not port.is_roce:
        parts.append(f"sm_lid {port.sm_lid:#x}")
    return seen(folder, ", ".join(parts), "file")


def cable(cabling: CablingFacts | None, hcas: Iterable[Hca], name: str) -> tuple[Evidence, ...]:
    """Which port of which switch the port of this name is connected to, where that is known."""
    names = {name}
    for port in (port for hca in hcas for port in hca.ports if port.name == name):
        names |= {gid.netdev for gid in port.gids if gid.netdev}
    ends = (one for one in (cabling.ports if cabling else ()) if one.port in names)
    return tuple(seen(f"{one.by}, at the other end of {name}", one.where) for one in ends)
