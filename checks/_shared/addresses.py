"""Which address belongs to which node and interface."""

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from netdoctor.facts.net import AddressRow, Netdev, NetFacts
from netdoctor.facts.software import Job
from netdoctor.memo import by_identity
from netdoctor.rules import addresses as rules

parse = rules.parse


def is_loopback(text: str | None) -> bool:
    found = parse(text)
    return found is not None and found.is_loopback


def same(one: str | None, other: str | None) -> bool:
    """Both are addresses, and the same one."""
    first = parse(one)
    return first is not None and first == parse(other)


@by_identity
def usable(net: NetFacts) -> list[AddressRow]:
    """Rows that peers can dial: neither loopback nor link-local."""
    return [row for row in net.addresses if rules.is_apart(row.address)]


def holds(net: NetFacts, text: str | None) -> AddressRow | None:
    """The row of `net` with this address, or None."""
    address = parse(text)
    return None if address is None else rules.rows_by_address(net).get(address)


def device(net: NetFacts, ifname: str) -> Netdev | None:
    for dev in net.netdevs:
        if dev.name == ifname:
            return dev
    return None


def data_device(net: NetFacts, text: str | None) -> Netdev | None:
    """The interface that carries the node's data address, or None."""
    row = holds(net, text)
    return device(net, row.ifname) if row else None


def dialled(node: str, nets: Mapping[str, NetFacts], job: Job) -> Netdev | None:
    """The interface of `node` that holds the address at which peers dial it, or None."""
    return data_device(nets[node], job.data_addresses.get(node)) if node in nets else None


def owners(nets: Mapping[str, NetFacts], text: str | None) -> tuple[str, ...]:
    """Nodes that have this address, loopback aside."""
    if parse(text) is None or is_loopback(text):
        return ()
    return tuple(node for node, net in nets.items() if holds(net, text))


def holders(nets: Mapping[str, NetFacts]) -> dict[rules.IPAddress | None, list[str]]:
    """By address, loopback aside, the nodes that have it; None has none."""
    found: dict[rules.IPAddress | None, list[str]] = {}
    for node, net in nets.items():
        for address in dict.fromkeys(parse(row.address) for row in net.addresses):
            if address is not None and not address.is_loopback:
                found.setdefault(address, []).append(node)
    return found


def commonest_network(
    rows: Iterable[AddressRow], reach: Mapping[rules.IPNetwork, Mapping[str, AddressRow]]
) -> tuple[rules.IPNetwork, bool]:
    """The network that holds most of these addresses, and whether it holds more than half of them.

    reach: as of networks_by_reach; of equals the one that more nodes are in. Raises ValueError without rows.
    """
    count = Counter(map(rules.network, rows))
    commonest = max(
        count, key=lambda net: (count[net], len(reach.get(net, ())), -net.version, -int(net.network_address))
    )
    return commonest, 2 * count[commonest] > count.total()


def _families(addresses: Iterable[str]) -> list[list[rules.IPAddress]]:
    """The addresses of each family that has any, in order, once each."""
    found = sorted({a for a in map(parse, addresses) if a is not None}, key=int)
    groups = [[a for a in found if a.version == version] for version in (4, 6)]
    return [group for group in groups if group]


def spans(addresses: Iterable[str]) -> list[str]:
    """The same addresses as nft writes them: each run of neighbours as ``10.0.0.1-10.0.0.9``."""
    result = []
    for group in _families(addresses):
        starts = [i for i, a in enumerate(group) if i == 0 or int(a) != int(group[i - 1]) + 1]
        for start, end in zip(starts, [*starts[1:], len(group)], strict=True):
            first, last = group[start], group[end - 1]
            result += [f"{first}-{last}"] if end - start > 2 else [str(a) for a in group[start:end]]
    return result


def cover(addresses: Iterable[str], at_most: int = 8) -> list[str]:
    """Addresses or networks for a rule: the addresses themselves, or else networks that hold them and nothing
    else, or else one that holds them all: what takes no more than `at_most` places. Families stay apart."""
    result: list[str] = []
    for group in _families(addresses):
        # mypy sees that families could be mixed, and not that they are not.
        nets: Iterable[Any] = map(ipaddress.ip_network, group)
        exact = list(ipaddress.collapse_addresses(nets))
        if len(group) <= at_most:
            result += [str(a) for a in group]
            continue
        if len(exact) <= at_most:
            result += [str(net).removesuffix(f"/{net.max_prefixlen}") for net in exact]
            continue
        spread = int(group[0]) ^ int(group[-1])
        prefix = group[0].max_prefixlen - spread.bit_length()
        # A network wider than a /16 (IPv6: /48) trusts too much to be a proposal: name the addresses.
        if prefix < (16 if group[0].version == 4 else 48):
            result += [str(a) for a in group]
        else:
            result.append(str(ipaddress.ip_network((int(group[0]), prefix), strict=False)))
    return result
