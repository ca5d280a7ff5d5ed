"""Sockets and routes for facts, by what `socket` is made of: it costs as much to import as all facts.

Who has to accept or copy sockets wants `socket`.
"""

import os
import struct

try:
    import _socket as raw
except ImportError:
    import socket as raw  # type: ignore[no-redef]

from . import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

__all__ = ["raw"]  # of what is imported here, for other modules

TABLE_CAP = 32 << 20
# Of messages about routes, and attributes of a route. [man 7 sockets]
_RTM_GETROUTE = 26
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
DST, SRC, OIF, GATEWAY, VIA = 1, 2, 4, 5, 18


class Socket(raw.socket):
    """A socket for the body of a `with`."""

    def __enter__(self) -> "Socket":
        return self

    def __exit__(self, *_: "Any") -> None:
        self.close()


def netlink() -> Socket:
    """Return a socket to the kernel's routing and link settings (NETLINK_ROUTE). Raises OSError."""
    link = Socket(raw.AF_NETLINK, raw.SOCK_RAW, 0)
    link.settimeout(1.0)
    link.bind((0, 0))
    return link


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


class Listener(object):
    """A socket in LISTEN. address: words of hex digits, each in host byte order."""

    def __init__(self, address: str, port: int, uid: int, inode: str) -> None:
        self.address = address
        self.port = port
        self.uid = uid
        self.inode = inode


def listeners(root: str = "/") -> "Iterator[Listener]":
    """Yield what listens on TCP ports, as far as the kernel's tables can be read.

    ``   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 23456 1 …``
    """
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            text = files.read_text(files.under(root, table), TABLE_CAP)
        except OSError:
            continue
        for line in text.splitlines()[1:]:
            part = line.split()
            if len(part) > 9 and part[3] == "0A":
                address, _, port = part[1].partition(":")
                try:
                    yield Listener(address, int(port, 16), int(part[7]), part[9])
                except ValueError:
                    continue
