"""Group `routes`: the kernel's own answer for each destination; no packet is sent."""

import errno
import struct

from ..system import files, sockets
from ..system.sockets import Socket, netlink
from ..system.sockets import raw as socket
from . import net as facts_net

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

MAX_DESTINATIONS = 20000
DISCARD_PORT = 9


def parse_address(text: str) -> "tuple[int, Any]":
    """Return (family, sockaddr) of a literal address, scope included. Raises OSError, ValueError."""
    # As bytes: text goes through the encoding of international names, whose import is half of a route's cost.
    host, kind, flags = text.encode("ascii"), socket.SOCK_DGRAM, socket.AI_NUMERICHOST
    row = socket.getaddrinfo(host, DISCARD_PORT, type=kind, flags=flags)[0]
    return row[0], row[4]


def source_address(family: int, address: "Any") -> str:
    """Return the address that the kernel would send from. Raises OSError: ENETUNREACH and others."""
    with Socket(family, socket.SOCK_DGRAM) as s:
        s.connect(address)  # UDP: looks the route up, sends nothing
        return str(s.getsockname()[0]).partition("%")[0]


def device_and_gateway(
    link: "socket.socket", family: int, address: "Any"
) -> "tuple[Optional[str], Optional[str]]":
    """Return the interface and the next hop for a destination. Raises OSError."""
    scope = address[3] if family == socket.AF_INET6 else 0
    packed = socket.inet_pton(family, str(address[0]).partition("%")[0])
    answer = sockets.ask_route(link, family, packed, scope)
    dev = gateway = None
    if len(answer.get(sockets.OIF, b"")) == 4:
        dev = socket.if_indextoname(struct.unpack("=I", answer[sockets.OIF])[0])
    raw = answer.get(sockets.GATEWAY)
    via = answer.get(sockets.VIA)  # an IPv4 route over an IPv6 neighbour: family (u16) and address
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
    destinations = args.get("destinations")
    if not isinstance(destinations, dict):
        destinations = {}
    devs = {}  # type: dict[str, str]
    for row in facts_net.getifaddrs():
        if row.address:
            devs.setdefault(row.address, row.name)
    further = list(args.get("further") or [])[:MAX_DESTINATIONS]
    rows = list(destinations.items())[:MAX_DESTINATIONS]
    try:
        link = netlink()  # type: Optional[Socket]
    except OSError:
        link = None
    try:
        return {
            "routes": {str(node): route(str(address), link, devs) for node, address in rows},
            "further": [route(str(address), link, devs) for address in further],
        }
    finally:
        if link is not None:
            link.close()
