"""Gloo's own choice of address, as pure functions over facts.

Written after torch 2.15 (c10d/init.cpp, ProcessGroupGloo.cpp) and gloo 70dc360 (transport/tcp/device.cc).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from netdoctor.facts.net import AddressRow, NetFacts, ResolveFacts
from netdoctor.rules.addresses import ip, parse, rows_of

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a Gloo process."""

    ifname: str | None  # as asked for, or the interface that holds the address
    address: str | None  # what it advertises, None when it fails
    # None when the interface is not there, has no address, or the address is of no interface listed.
    row: AddressRow | None
    rule: str  # ``GLOO_SOCKET_IFNAME``, ``own name`` or ``fallback`` (own name of no use: loopback)
    tried: str | None = None  # an address that it fails over


def interface_names(env: Mapping[str, str]) -> tuple[str, ...]:
    """GLOO_SOCKET_IFNAME as torch splits it: exact names, nothing trimmed, an end comma adds nothing.

    Empty when the variable is unset or under two characters, which torch takes for unset.
    """
    text = env.get("GLOO_SOCKET_IFNAME", "")
    if len(text) < 2:
        return ()
    names = text.split(",")
    return tuple(names[:-1] if names[-1] == "" else names)


def choose(net: NetFacts, resolve: ResolveFacts | None, env: Mapping[str, str]) -> tuple[Device, ...]:
    """The devices that a Gloo process of this node makes, at least one; more with a list of interfaces.

    Without GLOO_SOCKET_IFNAME it is the first address of the node's own name that can be bound,
    else loopback. Empty when that cannot be told, because `resolve` is None.
    """
    names = interface_names(env)
    if names:
        return tuple(_of_interface(net, name) for name in names)
    if resolve is None:
        return ()
    if is_too_long(resolve.own.name):
        return (Device(None, None, None, "own name"),)
    rule = "own name" if resolve.first_bindable is not None else "fallback"
    address = resolve.first_bindable or LOOPBACK
    row, found = _row_of(net, address), parse(address)
    if row is None and found is not None:
        # It can be bound (ip_nonlocal_bind, 0.0.0.0, a group, a local route), and fails in the end, in
        # sockaddrToInterfaceName. There, one loopback address stands for every other.
        looped = found.is_loopback and any(ip(one.address).is_loopback for one in rows_of(net))
        if not looped:
            return (Device(None, None, None, rule, tried=address),)
    ifname = "lo" if rule == "fallback" else row.ifname if row else None
    return (Device(ifname, address, row, rule),)


def is_too_long(own_name: str) -> bool:
    """Whether gethostname() has no room for it: torch gives HOST_NAME_MAX, 64 bytes with the final NUL."""
    return len(own_name.encode("utf-8", "replace")) >= 64


def _of_interface(net: NetFacts, name: str) -> Device:
    # lookupAddrForIface: strcmp on the name, the first row of an IP family; link-local is not passed over.
    for row in rows_of(net):
        if row.ifname == name and row.family in ("inet", "inet6"):
            return Device(name, row.address, row, "GLOO_SOCKET_IFNAME")
    return Device(name, None, None, "GLOO_SOCKET_IFNAME")


def _row_of(net: NetFacts, address: str) -> AddressRow | None:
    try:
        searched = ip(address)
    except ValueError:
        return None
    for row in rows_of(net):
        if ip(row.address) == searched:
            return row
    return None


def is_loopback(device: Device) -> bool:
    """Whether other nodes would be told to dial themselves."""
    found = parse(device.address)
    return found is not None and found.is_loopback
