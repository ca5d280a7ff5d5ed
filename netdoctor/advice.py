"""Values for NCCL_SOCKET_IFNAME and NCCL_IB_HCA that were tried on every node by NCCL's own rules."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from netdoctor.facts.net import AddressRow, NetFacts
from netdoctor.facts.rdma import Hca
from netdoctor.rules.addresses import is_usable, networks_by_reach, repeated_addresses, rows_of
from netdoctor.rules.nccl import choose
from netdoctor.rules.nccl_ib import MAX_IB_DEVS, selected_ports
from netdoctor.rules.variables import MAX_IFS
from netdoctor.rules.versions import Version
from netdoctor.text import is_plain_name

IFNAME = "NCCL_SOCKET_IFNAME"
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A setting that was tried on every node by the same rules. value: one for all, or None;
    per_node: the value of each node when no single one fits; addresses: what each node would
    advertise with it."""

    value: str | None
    per_node: Mapping[str, str]
    addresses: Mapping[str, AddressRow]


def propose_ifname(
    nets: Mapping[str, NetFacts],
    envs: Mapping[str, Mapping[str, str]],
    versions: Mapping[str, Version | None],
    preferred: Mapping[str, str],
) -> Proposal | None:
    """A NCCL_SOCKET_IFNAME that gives every node an address which its peers share a network with.

    `preferred` (node to address, such as Job.data_addresses) breaks ties, and stands in where no
    network holds every node. None when there is nothing to propose.
    """
    target = target_rows(nets, preferred)
    if target is None or not all(_SAFE_NAME.fullmatch(row.ifname) for row in target.values()):
        return None
    names = list(dict.fromkeys(row.ifname for row in target.values()))

    def works(value: str, nodes: Sequence[str]) -> bool:
        for node in nodes:
            env = {**envs.get(node, {}), IFNAME: value}
            if choose(nets[node], env, versions.get(node)).address != target[node].address:
                return False
        return True

    everyone = list(nets)
    for value in _spellings(nets, target, names):
        if works(value, everyone):
            return Proposal(value, {}, target)
    per_node = {node: f"={row.ifname}" for node, row in target.items()}
    if all(works(value, [node]) for node, value in per_node.items()):
        return Proposal(None, per_node, target)
    return None


def _spellings(
    nets: Mapping[str, NetFacts], target: Mapping[str, AddressRow], names: Sequence[str]
) -> Iterator[str]:
    if len(names) <= MAX_IFS:
        yield "=" + ",".join(names)
    # A list of names fails where a node has two of them and the wrong one comes first: exclude instead.
    others = sorted(
        {
            row.ifname
            for node, net in nets.items()
            for row in rows_of(net)
            if row.ifname != target[node].ifname
        }
        - set(names)
    )
    if others and len(others) <= MAX_IFS and all(_SAFE_NAME.fullmatch(name) for name in others):
        yield "^=" + ",".join(others)


def target_rows(nets: Mapping[str, NetFacts], preferred: Mapping[str, str]) -> dict[str, AddressRow] | None:
    """Per node the address to advertise: in one network that holds every node, else the preferred ones."""
    shared_networks = {net: rows for net, rows in networks_by_reach(nets).items() if len(rows) == len(nets)}
    first = min(shared_networks, key=lambda net: _liking(shared_networks[net], preferred), default=None)
    if first is not None:
        return shared_networks[first]
    repeated = repeated_addresses(nets)
    target: dict[str, AddressRow] = {}
    for node, net in nets.items():
        for row in rows_of(net):
            is_preferred = row.address == preferred.get(node)
            if is_preferred and is_usable(row) and row.address not in repeated:
                target[node] = row
                break
        else:
            return None
    return target


def _liking(rows: Mapping[str, AddressRow], preferred: Mapping[str, str]) -> tuple[int, int, int]:
    """Smaller is better: holds the preferred addresses, is no tunnel or bridge, is IPv4."""
    return (
        -sum(row.address == preferred.get(node) for node, row in rows.items()),
        sum(is_tunnel_name(row.ifname) or is_bridge_name(row.ifname) for row in rows.values()),
        sum(row.family == "inet6" for row in rows.values()),
    )


# Interfaces that NCCL does not exclude by itself although peers rarely reach them (reference 1.1).
_BRIDGES = ("docker", "br-", "virbr", "cni", "podman", "lxdbr", "lxcbr", "kube-ipvs")
_TUNNELS = ("tailscale", "wg", "tun", "tap", "zt", "flannel", "vxlan", "cali", "tunl", "utun")


def is_bridge_name(name: str) -> bool:
    """Names that container engines and hypervisors give to bridges which exist on one machine only."""
    return name.startswith(_BRIDGES)


def is_tunnel_name(name: str) -> bool:
    """Names of overlay and VPN interfaces, which carry a job slowly where they carry it at all."""
    return name.startswith(_TUNNELS)


def propose_hcas(nodes: Mapping[str, Sequence[Hca]], *, one_layer: bool) -> str | None:
    """A NCCL_IB_HCA of exact names that selects active ports on each of `nodes`.

    one_layer: ports of the link layer that most active ports have, and of no other. None where no such value
    works on every node.
    """
    active = {node: [port for _, port in selected_ports(hcas, None)] for node, hcas in nodes.items()}
    layers = [port.link_layer for ports in active.values() for port in ports]
    layers_allowed = set(layers)
    if one_layer:
        layers_allowed = {"InfiniBand" if 2 * layers.count("InfiniBand") >= len(layers) else "Ethernet"}
    names = dict.fromkeys(
        hca.name
        for hcas in nodes.values()
        for hca, port in selected_ports(hcas, None)
        if port.link_layer in layers_allowed
    )
    if not names or len(names) > MAX_IB_DEVS or not all(map(is_plain_name, names)):
        return None
    value = "=" + ",".join(names)
    for hcas in nodes.values():
        picked = selected_ports(hcas, value)
        if not picked or any(port.link_layer not in layers_allowed for _, port in picked):
            return None
    return value
