"""Sockets for facts: what `socket` is made of, without the hundreds of enumeration members that it makes.

Its sockets are no context managers; who has to accept or copy them wants `socket`.
"""

try:
    import _socket as raw
except ImportError:
    import socket as raw  # type: ignore[no-redef]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Socket", "raw"]


class Socket(object):
    """A socket for the body of a `with`."""

    def __init__(self, family: int, kind: int, protocol: int = 0) -> None:
        self._socket = raw.socket(family, kind, protocol)

    def __enter__(self) -> "raw.socket":
        return self._socket

    def __exit__(self, *_: "Any") -> None:
        self._socket.close()
