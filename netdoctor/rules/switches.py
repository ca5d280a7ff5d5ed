"""Which switch each port that a job uses is connected to, and which are not on the switch of their rail."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from netdoctor.facts.cabling import CabledPort, CablingFacts, by_switches
from netdoctor.facts.host import Node
from netdoctor.facts.net import NetFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.rules.addresses import parse, rows_by_address
from netdoctor.rules.nccl_ib import selected_ports

# Ports of one name are one rail where so many of them are on one switch, of so many at least. Chosen by us.
MOST_OF, LEAST = 2 / 3, 3


def of_rail(rail: str | None) -> dict[str, CabledPort]:
    """By port, what ``rail=`` of a hosts file says."""
    entries = [entry.partition(":") for entry in (rail or "").split(",")]
    return {port: CabledPort(port=port, switch=switch, by="rail=") for port, _, switch in entries if switch}


def ports_of_nodes(
    cablings: Mapping[str, CablingFacts],
    listed: Mapping[str, Node],
    pick: Callable[[str, Mapping[str, CabledPort]], dict[str, CabledPort]],
) -> dict[str, dict[str, CabledPort]]:
    """By node and port, what the nodes say of the ports that `pick` takes of those that are known; what the
    hosts file lists where none of them says anything of such, as that may call switches by other names."""
    found = {node: pick(node, {one.port: one for one in cabling.ports}) for node, cabling in cablings.items()}
    if any(found.values()):
        return found
    return {node: pick(node, of_rail(one.rail)) for node, one in listed.items()}


def job_ports(
    known: Mapping[str, CabledPort],
    rdma: RdmaFacts | None,
    net: NetFacts | None,
    *,
    ib_hca: str | None,
    address: str | None,
) -> dict[str, CabledPort]:
    """By name, the ports of those that are known that NCCL uses: ``mlx5_0:1``; without any, the interface
    with the node's data address. ib_hca: NCCL_IB_HCA."""
    slaves = {one.name: one.slaves for one in (net.netdevs if net else ())}

    def find(*names: str) -> CabledPort | None:
        names = (*names, *(slave for name in names for slave in slaves.get(name, ())))
        return next((known[name] for name in names if name in known), None)

    ports = selected_ports(rdma.hcas, ib_hca) if rdma else []
    if ports:
        names = {
            port.name: (port.name, hca.name, *dict.fromkeys(gid.netdev for gid in port.gids if gid.netdev))
            for hca, port in ports
        }
    else:
        row = rows_by_address(net).get(parse(address)) if net and parse(address) else None
        names = {row.ifname: (row.ifname,)} if row else {}
    found = {name: find(*several) for name, several in names.items()}
    return {name: replace(one, port=name) for name, one in found.items() if one is not None}


Ports = Mapping[str, Mapping[str, CabledPort]]  # by node and port


def leaves(by_node: Ports) -> dict[str, str]:
    """The leaf of each node, named after a switch of it."""
    links = [(node, port, one.switch) for node, ports in by_node.items() for port, one in ports.items()]
    names = {one.switch: one.switch_name for ports in by_node.values() for one in ports.values()}
    return by_switches(links, {switch: name for switch, name in names.items() if name})


@dataclass(frozen=True, slots=True)
class OddPort:
    """A port of a node on another switch than the same port of most nodes of its leaf.

    expected: theirs; rail: the port of theirs that is on its switch, None where none is.
    """

    node: str
    found: CabledPort
    expected: CabledPort
    rail: str | None

    def __str__(self) -> str:
        rail = f", where {self.rail} of the others is" if self.rail else ""
        return f"{self.found.port} is on {self.found.name}{rail}, and not on {self.expected.name}"


@dataclass(frozen=True, slots=True)
class RailPorts:
    """count: ports that were held against the same port of other nodes; odd: those that are elsewhere."""

    count: int
    odd: tuple[OddPort, ...]


def rail_ports(by_node: Ports) -> RailPorts:
    """Nothing is compared in a leaf where no two rails have a switch of their own."""
    groups: dict[str, list[str]] = {}
    for node, leaf in leaves(by_node).items():
        groups.setdefault(leaf, []).append(node)
    count, odd = 0, []
    for nodes in groups.values():
        expected = dict(_most_common([by_node[node] for node in nodes]))
        rails = {one.switch: port for port, one in expected.items()}
        for node in nodes if len(rails) > 1 else ():
            for port, one in by_node[node].items():
                if port in expected:
                    count += 1
                    if one.switch != expected[port].switch:
                        odd.append(OddPort(node, one, expected[port], rails.get(one.switch)))
    return RailPorts(count, tuple(odd))


def _most_common(nodes: Iterable[Mapping[str, CabledPort]]) -> Iterator[tuple[str, CabledPort]]:
    """By port, one that is on the switch of its rail."""
    by_port: dict[str, list[CabledPort]] = {}
    for ports in nodes:
        for port, one in ports.items():
            by_port.setdefault(port, []).append(one)
    for port, several in by_port.items():
        switch, count = Counter(one.switch for one in several).most_common(1)[0]
        if len(several) >= LEAST and count >= MOST_OF * len(several):
            yield port, next(one for one in several if one.switch == switch)
