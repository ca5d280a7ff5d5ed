"""Ports that the kernel hands out by itself, to whoever dials or binds port 0.

They are those of net.ipv4.ip_local_port_range without those of ip_local_reserved_ports, which a program still
gets by asking for one. [Linux Documentation/networking/ip-sysctl.rst]
"""

import re
from collections.abc import Iterator

from netdoctor.facts.net import NetFacts

_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


def hands_out(net: NetFacts, port: int) -> bool:
    """Whether somebody may be given this port without having asked for it."""
    low, high = net.ephemeral_ports
    return low <= port <= high and not any(first <= port <= last for first, last in _reserved(net))


def pool(net: NetFacts) -> int:
    """How many such ports the node has."""
    at, high = net.ephemeral_ports
    left = high - at + 1
    for first, last in sorted(_reserved(net)):
        left -= max(0, min(last, high) - max(first, at) + 1)
        at = max(at, last + 1)
    return left


def _reserved(net: NetFacts) -> Iterator[tuple[int, int]]:
    """First and last of each range of ``8080,29500-29509``, as the kernel writes it."""
    for part in net.reserved_ports.split(",") if net.reserved_ports else ():
        if found := _RANGE.fullmatch(part.strip()):
            yield int(found[1]), int(found[2] or found[1])
