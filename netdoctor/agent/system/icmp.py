"""Reads the error queue of a socket: who said what about our packet. [man 7 ip, IP_RECVERR]"""

import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional  # noqa: F401 - used in a type comment

IP_RECVERR = 11
IPV6_RECVERR = 25
MSG_ERRQUEUE = 0x2000
ORIGIN_LOCAL, ORIGIN_ICMP, ORIGIN_ICMP6 = 1, 2, 3

_V4 = {
    0: "network unreachable",
    1: "host unreachable",
    2: "protocol unreachable",
    3: "port unreachable",
    4: "fragmentation needed",
    9: "network administratively prohibited",
    10: "host administratively prohibited",
    13: "communication administratively prohibited",
}
_V6 = {
    0: "no route",
    1: "administratively prohibited",
    3: "address unreachable",
    4: "port unreachable",
    5: "source address failed policy",
    6: "reject route",
}
_PROHIBITED = {ORIGIN_ICMP: (9, 10, 13), ORIGIN_ICMP6: (1, 5, 6)}
_PORT = {ORIGIN_ICMP: 3, ORIGIN_ICMP6: 4}


class Report(object):
    """One entry of the error queue. offender: address of who sent the ICMP message, or None."""

    def __init__(self, data: bytes) -> None:
        # struct sock_extended_err, then a sockaddr
        number, origin, kind, code, info = struct.unpack_from("=IBBBxI", data)
        self.errno = int(number)
        self.origin = int(origin)
        self.type = int(kind)
        self.code = int(code)
        self.info = int(info)
        self.offender = None  # type: Optional[str]
        if len(data) >= 24:
            family = struct.unpack_from("=H", data, 16)[0]
            if family == socket.AF_INET:
                self.offender = socket.inet_ntop(family, data[20:24])
            elif family == socket.AF_INET6 and len(data) >= 40:
                self.offender = socket.inet_ntop(family, data[24:40])

    @property
    def unreachable(self) -> bool:
        return (self.origin, self.type) in ((ORIGIN_ICMP, 3), (ORIGIN_ICMP6, 1))

    @property
    def prohibited(self) -> bool:
        return self.unreachable and self.code in _PROHIBITED[self.origin]

    @property
    def port_unreachable(self) -> bool:
        return self.unreachable and self.code == _PORT[self.origin]

    @property
    def too_big(self) -> bool:
        """The packet does not fit; `info` is the size that would."""
        return (self.origin, self.type, self.code) == (ORIGIN_ICMP, 3, 4) or (self.origin, self.type) == (
            ORIGIN_ICMP6,
            2,
        )

    def text(self) -> str:
        if self.origin == ORIGIN_LOCAL:
            return "this node's own kernel"
        words = (_V4 if self.origin == ORIGIN_ICMP else _V6).get(self.code)
        if not self.unreachable or words is None:
            words = "type %d code %d" % (self.type, self.code)
        return "ICMP %s from %s" % (words, self.offender or "an unknown sender")


def enable(s: socket.socket) -> None:
    """Ask the kernel to queue errors for `s`; harmless where it cannot."""
    try:
        if s.family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
        else:
            s.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
    except OSError:
        pass


def reports(s: socket.socket, cap: int = 64) -> "list[Report]":
    """Return and remove what is queued for `s`."""
    found = []  # type: list[Report]
    for _ in range(cap):
        try:
            _, ancillary, _, _ = s.recvmsg(1, 512, MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except OSError:
            break
        for level, kind, data in ancillary:
            is_error = (level, kind) in ((socket.IPPROTO_IP, IP_RECVERR), (socket.IPPROTO_IPV6, IPV6_RECVERR))
            if is_error and len(data) >= 16:
                found.append(Report(data))
    return found
