"""The kernel's routes, asked over netlink; no packet is sent. [man 7 rtnetlink]"""

import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_RTM_GETROUTE = 26
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
# Attributes of a route.
DST, SRC, OIF, GATEWAY, VIA = 1, 2, 4, 5, 18


def ask_route(
    link: "Any", family: int, packed: bytes, oif: int = 0, source: bytes = b""
) -> "dict[int, bytes]":
    """Return the attributes of RTM_GETROUTE's answer by type. Raises OSError with the kernel's errno."""
    attributes = struct.pack("=HH", 4 + len(packed), DST) + packed
    if source:
        attributes += struct.pack("=HH", 4 + len(source), SRC) + source
    if oif:
        attributes += struct.pack("=HHI", 8, OIF, oif)
    lengths = (len(packed) * 8, len(source) * 8)
    body = struct.pack("=BBBBBBBBI", family, *lengths, 0, 0, 0, 0, 0, 0) + attributes
    link.send(struct.pack("=IHHII", 16 + len(body), _RTM_GETROUTE, _NLM_F_REQUEST, 1, 0) + body)
    data = link.recv(65536)
    _, kind = struct.unpack_from("=IH", data)
    if kind == _NLMSG_ERROR:
        number = -struct.unpack_from("=i", data, 16)[0]
        raise OSError(number, os.strerror(number))
    found = {}
    at = 28  # nlmsghdr and rtmsg
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            break
        found[kind] = data[at + 4 : at + length]
        at += (length + 3) & ~3
    return found
