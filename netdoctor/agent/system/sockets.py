"""Sockets for facts, by what `socket` is made of: without the hundreds of enumeration members that it makes.

Its sockets are no context managers; who has to accept or copy them wants `socket`.
"""

try:
    import _socket as raw
except ImportError:
    import socket as raw  # type: ignore[no-redef]

from . import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

__all__ = ["Socket", "listeners", "netlink", "raw"]

TABLE_CAP = 32 << 20


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
