"""Addresses and networks of nodes. Each text is taken apart once: few come up for many pairs."""

import ipaddress
import re
import socket
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from netdoctor.facts.net import AddressRow, NetFacts
from netdoctor.memo import by_identity, by_members

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_SCOPE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,14}")


# Texts of ten thousand nodes with a dozen addresses each.
CACHED = 1 << 18


@lru_cache(maxsize=CACHED)
def ip(text: str) -> IPAddress:
    """An address, with or without a scope (``fe80::1%eth0``). Raises ValueError for anything else.

    A scope is the name of an interface, and of such that may stand in a command. `ipaddress` takes any text.
    """
    address, percent, scope = text.partition("%")
    if percent and not _SCOPE.fullmatch(scope):
        raise ValueError(f"no interface: {scope!r}")
    return bare(address)


def bare(text: str) -> IPAddress:
    """ipaddress.ip_address, by the C library where that takes the text too: a fifth of the time."""
    try:
        if ":" in text:
            return ipaddress.IPv6Address(socket.inet_pton(socket.AF_INET6, text))
        return ipaddress.IPv4Address(socket.inet_pton(socket.AF_INET, text))
    except (OSError, ValueError):
        return ipaddress.ip_address(text)


def bits_of(text: str) -> int:
    """The 128 bits of an IPv6 address. Raises ValueError for anything else."""
    try:
        return int.from_bytes(socket.inet_pton(socket.AF_INET6, text), "big")
    except (OSError, ValueError):
        return int(ipaddress.IPv6Address(text))


def dotted(number: int) -> str:
    """``10.0.0.1`` of its 32 bits."""
    return socket.inet_ntoa(number.to_bytes(4, "big"))


@lru_cache(maxsize=CACHED)
def parse(text: str | None) -> IPAddress | None:
    """The address that `text` is (scope and IPv4-mapping removed), or None."""
    try:
        found = ip(text or "")
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


@by_identity
def rows_of(net: NetFacts) -> tuple[AddressRow, ...]:
    """Rows in getifaddrs order, without those that are no IP address and so cannot be judged."""
    return tuple(row for row in net.addresses if _located(row.address, row.prefix_len) is not None)


@by_identity
def usable_rows(net: NetFacts) -> tuple[tuple[int, AddressRow, IPNetwork], ...]:
    """Rows that peers could dial: place among `rows_of`, row, network."""
    located = [(row, _located(row.address, row.prefix_len)) for row in rows_of(net)]
    return tuple(
        (position, row, where[0])
        for position, (row, where) in enumerate(located)
        if where is not None and where[1] and row.scope != "host"
    )


@by_identity
def rows_by_address(net: NetFacts) -> dict[IPAddress | None, AddressRow]:
    """The first row with each address."""
    return {parse(row.address): row for row in reversed(rows_of(net))}


def network(row: AddressRow) -> IPNetwork:
    """The network of a row. Raises ValueError for a row that `rows_of` leaves out."""
    found = network_of(row.address, row.prefix_len)
    if found is None:
        raise ValueError(f"no network: {row.address}/{row.prefix_len}")
    return found


@lru_cache(maxsize=1 << 12)
def _routed(text: str) -> IPNetwork | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def network_of(address: str, prefix_len: int) -> IPNetwork | None:
    """The network of an address, None for what is no IP address."""
    found = _located(address, prefix_len)
    return found[0] if found else None


@lru_cache(maxsize=CACHED)
def _located(address: str, prefix_len: int) -> tuple[IPNetwork, bool] | None:
    """The network of an address, and whether peers could dial it; None for what is no IP address."""
    try:
        one = ip(address)
    except ValueError:
        return None
    host = one.max_prefixlen - prefix_len
    if not 0 <= host <= one.max_prefixlen:
        return None
    return _masked(one.version, int(one) >> host << host, prefix_len), _can_be_dialled(one)


@lru_cache(maxsize=1 << 16)
def _masked(version: int, first: int, prefix_len: int) -> IPNetwork:
    """One object for all addresses in a network."""
    return (ipaddress.IPv4Network if version == 4 else ipaddress.IPv6Network)((first, prefix_len))


def leads_to(net: NetFacts, to: IPNetwork | IPAddress) -> bool:
    """Whether a route of the node may lead to this network or address, directly or over a router.

    From its addresses and its tables of routes; which rule leads to which table is not among the facts.
    """
    where = ipaddress.ip_network(to)
    if net.default_devs or any(network(row).overlaps(where) for row in rows_of(net)):
        return True
    behind = map(_routed, net.routed)
    return any(one is not None and one.overlaps(where) for one in behind)


def is_usable(row: AddressRow) -> bool:
    """Whether peers could dial this address at all: neither loopback nor link-local nor unspecified."""
    return row.scope != "host" and _can_be_dialled(ip(row.address))


_LOOPBACK = 127
_LINK_LOCAL = 169 << 8 | 254


@lru_cache(maxsize=CACHED)
def is_apart(text: str) -> bool:
    """Whether it is an address that more than one machine, or one link, knows."""
    found = parse(text)
    if found is None:
        return False
    if found.version == 4:  # in numbers: ipaddress makes a network for each question
        return int(found) >> 24 != _LOOPBACK and int(found) >> 16 != _LINK_LOCAL
    return not (found.is_loopback or found.is_link_local)


def _can_be_dialled(address: IPAddress) -> bool:
    if address.version == 4:
        return int(address) != 0 and int(address) >> 24 != _LOOPBACK
    return not (address.is_loopback or address.is_unspecified or address.is_link_local)


@by_members
def repeated_addresses(nets: Mapping[str, NetFacts]) -> set[str]:
    """Addresses that more than one node has, such as every docker0's 172.17.0.1."""
    count = Counter(address for net in nets.values() for address in {row.address for row in rows_of(net)})
    return {address for address, nodes in count.items() if nodes > 1}


@by_members
def networks_by_reach(nets: Mapping[str, NetFacts]) -> dict[IPNetwork, dict[str, AddressRow]]:
    """Per network, the first address that each node has in it, without addresses that several nodes have."""
    repeated = repeated_addresses(nets)
    reach: dict[IPNetwork, dict[str, AddressRow]] = {}
    for node, net in nets.items():
        for _, row, where in usable_rows(net):
            if row.address not in repeated:
                reach.setdefault(where, {}).setdefault(node, row)
    return reach
