"""Group `routes`: the kernel's own answer for each destination; no packet is sent."""

import errno
import os
import struct

from . import files
from .sockets import Socket
from .sockets import raw as socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

MAX_DESTINATIONS = 20000
_RTM_GETROUTE = 26
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_RTA_DST, _RTA_SRC, _RTA_OIF, _RTA_GATEWAY, _RTA_VIA = 1, 2, 4, 5, 18
DISCARD_PORT = 9


def parse_address(text: str) -> "tuple[int, Any]":
    """Return (family, sockaddr) of a literal address, scope included. Raises OSError, ValueError."""
    # As bytes: text goes through the encoding of international names, whose import is half of a route's cost.
    asked, kind, flags = text.encode("ascii"), socket.SOCK_DGRAM, socket.AI_NUMERICHOST
    row = socket.getaddrinfo(asked, DISCARD_PORT, type=kind, flags=flags)[0]
    return row[0], row[4]


def source_address(family: int, address: "Any") -> str:
    """Return the address that the kernel would send from. Raises OSError: ENETUNREACH and others."""
    with Socket(family, socket.SOCK_DGRAM) as s:
        s.connect(address)  # UDP: looks the route up, sends nothing
        return str(s.getsockname()[0]).partition("%")[0]


def ask_kernel(
    link: "Any", family: int, packed: bytes, oif: int = 0, source: bytes = b""
) -> "dict[int, bytes]":
    """Return the attributes of RTM_GETROUTE's answer by type. Raises OSError with the kernel's errno."""
    attributes = struct.pack("=HH", 4 + len(packed), _RTA_DST) + packed
    if source:
        attributes += struct.pack("=HH", 4 + len(source), _RTA_SRC) + source
    if oif:
        attributes += struct.pack("=HHI", 8, _RTA_OIF, oif)
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


def device_and_gateway(
    link: "socket.socket", family: int, address: "Any"
) -> "tuple[Optional[str], Optional[str]]":
    """Return the interface and the next hop for a destination. Raises OSError."""
    scope = address[3] if family == socket.AF_INET6 else 0
    packed = socket.inet_pton(family, str(address[0]).partition("%")[0])
    answer = ask_kernel(link, family, packed, scope)
    dev = gateway = None
    if len(answer.get(_RTA_OIF, b"")) == 4:
        dev = socket.if_indextoname(struct.unpack("=I", answer[_RTA_OIF])[0])
    raw = answer.get(_RTA_GATEWAY)
    via = answer.get(_RTA_VIA)  # an IPv4 route over an IPv6 neighbour: family (u16) and address
    if raw:
        gateway = socket.inet_ntop(family, raw)
    elif via and len(via) == 18:
        gateway = socket.inet_ntop(socket.AF_INET6, via[2:])
    return dev, gateway


def route(destination: str, link: "Optional[socket.socket]", devs: "dict[str, str]") -> "dict[str, Any]":
    """Return facts.net.Route. devs: interface by local address, for kernels that do not answer netlink."""
    reply = {"destination": destination}  # type: dict[str, Any]
    try:
        family, address = parse_address(destination)
    except (OSError, ValueError):
        reply["error"] = "not an address"
        return reply
    try:
        reply["source"] = source_address(family, address)
    except OSError as e:
        reply["error"] = files.errno_name(e)
        return reply
    reply["dev"] = devs.get(reply["source"])
    if link is not None:
        try:
            reply["dev"], reply["gateway"] = device_and_gateway(link, family, address)
        except OSError as e:
            # A route that only a prohibit rule or a vanished device denies; connect() has judged already.
            if e.errno not in (errno.EOPNOTSUPP, errno.EAGAIN):
                reply["error"] = files.errno_name(e)
    return reply


def collect(args: "dict[str, Any]") -> "dict[str, Any]":
    """Return facts.net.RouteFacts. args: {"destinations": {node: address}, "further": [address]}."""
    from . import facts_net

    destinations = args.get("destinations")
    if not isinstance(destinations, dict):
        destinations = {}
    devs = {}  # type: dict[str, str]
    for row in facts_net.getifaddrs():
        if row.address:
            devs.setdefault(row.address, row.name)
    link = None  # type: Optional[socket.socket]
    try:
        link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)  # NETLINK_ROUTE
        link.settimeout(1.0)
        link.bind((0, 0))
    except OSError:
        link = None
    try:
        return {
            "routes": {
                str(node): route(str(address), link, devs)
                for node, address in list(destinations.items())[:MAX_DESTINATIONS]
            },
            "further": [
                route(str(address), link, devs)
                for address in list(args.get("further") or [])[:MAX_DESTINATIONS]
            ],
        }
    finally:
        if link is not None:
            link.close()
