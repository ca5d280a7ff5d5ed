"""IPv4 addresses that share a subnet with another interface of the node, and what its kernel does then."""

import struct

from . import files, sockets
from .sockets import netlink
from .sockets import raw as socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

# Every interface's own, and that of all: the kernel goes by the higher of the two.
# [Documentation/networking/ip-sysctl.rst]
_SETTINGS = ("rp_filter", "arp_ignore", "arp_announce", "arp_filter")


def number(address: str) -> int:
    """Return an IPv4 address as a number."""
    return int(struct.unpack(">I", socket.inet_aton(address))[0])


def crowded(rows: "list[tuple[str, str, int]]") -> "list[tuple[str, str, int]]":
    """Return those of (interface, address, prefix length) that overlap with one of another interface.

    Networks are apart, or one holds the other: whatever begins before the widest one ends is inside of it.
    """
    found = []
    group = []  # type: list[tuple[str, str, int]]
    end = -1
    for start, length, name, address in sorted(
        (number(address) >> (32 - length) << (32 - length), length, name, address)
        for name, address, length in rows
        if 0 < length < 31
    ):
        if start > end:
            found += group if len({one[0] for one in group}) > 1 else []
            group, end = [], start | (1 << (32 - length)) - 1
        group.append((name, address, length))
    return found + (group if len({one[0] for one in group}) > 1 else [])


def setting(root: str, name: str, what: str) -> "Optional[int]":
    """Return what the kernel goes by on an interface; None where it does not say."""
    values = [
        files.number(files.under(root, "/proc/sys/net/ipv4/conf/%s/%s" % (scope, what)))
        for scope in ("all", name)
    ]
    return None if None in values else max(one or 0 for one in values)


def way(address: str, peer: str) -> "Optional[str]":
    """Return the interface over which the kernel would send from `address` to `peer`; nothing is sent."""
    try:
        with netlink() as link:
            packed, source = socket.inet_aton(peer), socket.inet_aton(address)
            answer = sockets.ask_route(link, socket.AF_INET, packed, source=source)
            return str(socket.if_indextoname(struct.unpack("=I", answer[sockets.OIF])[0]))
    except (KeyError, OSError, struct.error):
        return None


def shared(root: str, rows: "list[tuple[str, str, int]]", live: bool) -> "list[dict[str, Any]]":
    """Return facts.net.SharedAddress of the rows that overlap with another interface's."""
    local = {number(address) for _, address, _ in rows}
    found = []
    for name, address, length in crowded(rows):
        first = number(address) >> (32 - length) << (32 - length)
        # Somebody else there: the first of the network, or of the next ones, that is not this node.
        peer = next(n for n in range(first + 1, first + 2 + len(local)) if n not in local)
        dev = way(address, socket.inet_ntoa(struct.pack(">I", peer))) if live else None
        fields = {what: setting(root, name, what) for what in _SETTINGS}
        found.append(dict(fields, ifname=name, address=address, prefix_len=length, dev=dev))
    return found
