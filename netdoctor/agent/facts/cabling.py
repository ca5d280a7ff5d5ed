"""Group `cabling`: what each port of the node is connected to.

lldpd and systemd-networkd say it of Ethernet; InfiniBand ports are asked who is at the other end, where the
login may.
[IEEE 802.1AB-2016 section 8; systemd src/network/networkd-lldp-rx.c; rdma-core infiniband-diags/smpquery.c]
"""

import os

from .. import runtime
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # noqa: F401

TOOL_S = 5.0
# A query takes some milliseconds; a fabric that answers none would take that of all ports.
QUERY_S = 2.0
MOST, TEXT_MAX, FILE_MAX = 64, 120, 65536
NETWORKD = "/run/systemd/netif/lldp"
# As distributions build lldpd.
SOCKETS = ("/run/lldpd.socket", "/run/lldpd/lldpd.socket", "/var/run/lldpd.socket")
# Bits of the capabilities that are in use. [IEEE 802.1AB-2016 table 8-4]
BRIDGE_OR_ROUTER = 0x04 | 0x10
# What an id is: a MAC address, for a chassis and for a port. [tables 8-2, 8-3]
CHASSIS_MAC, PORT_MAC = 4, 3


def row(port: str, switch: str, title: str, at: str, by: str) -> "dict[str, str]":
    """Return one port as the fact has it."""
    found = {"port": port, "switch": switch, "switch_name": title, "at": at}
    return dict({key: text.strip()[:TEXT_MAX] for key, text in found.items()}, by=by)


def one_each(rows: "list[tuple[bool, dict[str, str]]]") -> "list[dict[str, str]]":
    """Return the neighbour of each port: a switch before others, and none where several are left.

    rows: whether it is a switch, and the port.
    """
    by_port = {}  # type: dict[str, list[tuple[bool, dict[str, str]]]]
    for is_switch, one in rows:
        by_port.setdefault(one["port"], []).append((is_switch, one))
    found = []
    for several in by_port.values():
        best = [one for is_switch, one in several if is_switch] or [one for _, one in several]
        if len({one["switch"] for one in best}) == 1:
            found.append(best[0])
    return found


def _map(value: "Any") -> "dict[str, Any]":
    return value if isinstance(value, dict) else {}


def _list(value: "Any") -> "list[dict[str, Any]]":
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


def of_lldpd(text: str) -> "list[dict[str, str]]":
    """Return the ports of ``lldpcli -f json show neighbors``, which writes one of a thing as an object."""
    import json  # which takes longer to load than all else here

    try:
        data = json.loads(text)
    except (ValueError, RuntimeError):  # no JSON, or too deep
        return []
    rows = []
    for one in _list(_map(_map(data).get("lldp")).get("interface")):
        for name, neighbor in one.items():
            chassis = _map(_map(neighbor).get("chassis"))
            # {"leaf1": {"id": …}}; one without a name is {"id": …} itself.
            names = [title for title, more in chassis.items() if isinstance(more, dict) and "id" in more]
            title = names[0] if names else ""
            more = chassis[title] if names else chassis
            switch = str(_map(more.get("id")).get("value") or title)
            on = [str(c.get("type")) for c in _list(more.get("capability")) if c.get("enabled")]
            port = _map(_map(neighbor).get("port"))
            at = _map(port.get("id"))
            by_name = at.get("type") in ("ifname", "local")
            where = str((at.get("value") if by_name else port.get("descr")) or at.get("value") or "")
            if switch:
                is_switch = "Bridge" in on or "Router" in on
                rows.append((is_switch, row(str(name), switch, str(title), where, "lldpd")))
    return one_each(rows)


def _mac(value: bytes) -> str:
    return ":".join("%02x" % byte for byte in value)


def of_frame(port: str, frame: bytes) -> "tuple[bool, dict[str, str]]":
    """Return (whether it is a switch, the port) of the frame that was received last at a port."""
    at, values = 14, {}  # type: int, dict[int, bytes]
    while at + 2 <= len(frame):
        head = frame[at] << 8 | frame[at + 1]
        kind, size = head >> 9, head & 511
        if kind == 0:
            break
        values.setdefault(kind, frame[at + 2 : at + 2 + size])
        at += 2 + size
    chassis, remote = values.get(1, b""), values.get(2, b"")
    switch = _mac(chassis[1:]) if chassis[:1] == bytes([CHASSIS_MAC]) else _text(chassis[1:])
    where = _mac(remote[1:]) if remote[:1] == bytes([PORT_MAC]) else _text(remote[1:])
    if remote[:1] == bytes([PORT_MAC]) and values.get(4):
        where = _text(values[4])
    on = values.get(7, b"")[2:4]
    is_switch = len(on) == 2 and bool((on[0] << 8 | on[1]) & BRIDGE_OR_ROUTER)
    return is_switch, row(port, switch, _text(values.get(5, b"")), where, "systemd-networkd")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace").strip("\0")


def of_networkd(root: str) -> "list[dict[str, str]]":
    """Return the ports whose neighbours systemd-networkd keeps: for each a length of 8 bytes and a frame."""
    folder = files.under(root, NETWORKD)
    rows = []
    for name in files.names(files.under(root, "/sys/class/net"))[:512] if os.path.isdir(folder) else ():
        index = files.number(files.under(root, "/sys/class/net/%s/ifindex" % name))
        try:
            data = files.read_bytes("%s/%s" % (folder, index), FILE_MAX)
        except OSError:
            continue
        while len(data) >= 8:
            size = int.from_bytes(data[:8], "little")
            found = of_frame(name, data[8 : 8 + size])
            if found[1]["switch"]:
                rows.append(found)
            data = data[8 + size :]
    return one_each(rows)


def _answer(text: str) -> "dict[str, str]":
    """Return what smpquery prints, by name: ``LocalPort:.......................5``."""
    pairs = [line.partition(":")[::2] for line in text.splitlines() if not line.startswith("#")]
    return {name: value.lstrip(".").strip() for name, value in pairs}


def of_infiniband(tool: str, ports: "list[tuple[str, str]]") -> "tuple[list[dict[str, str]], str]":
    """Return (the ports of which the neighbour answered, why others did not). ports: (HCA, its port)."""
    found = []  # type: list[dict[str, str]]
    for hca, port in ports[:MOST]:
        answers = {}  # type: dict[str, str]
        for query in ("nodeinfo", "nodedesc"):
            # By the way that leaves at this port: neither a subnet manager nor an address is needed.
            try:
                done = runtime.run_tool([tool, "-C", hca, "-P", port, query, "-D", "0," + port], QUERY_S)
            except OSError as e:
                return found, "smpquery: %s" % files.errno_name(e)
            if done.code != 0:
                return found, "smpquery %s:%s: %s" % (hca, port, done.err.strip()[-TEXT_MAX:] or "no answer")
            answers.update(_answer(done.out))
        if answers.get("NodeType") == "Switch":
            title = answers.get("Node Description", "")
            where = answers.get("LocalPort", "")
            found.append(row("%s:%s" % (hca, port), answers.get("Guid", title), title, where, "smpquery"))
    return found, ""


def infiniband_ports(root: str) -> "list[tuple[str, str]]":
    """Return (HCA, port) of InfiniBand ports with a link."""
    found = []  # type: list[tuple[str, str]]
    folder = files.under(root, "/sys/class/infiniband")
    for hca in sorted(files.names(folder)):
        for port in sorted(files.names("%s/%s/ports" % (folder, hca))):
            base = "%s/%s/ports/%s" % (folder, hca, port)
            layer, state = files.attribute(base + "/link_layer"), files.attribute(base + "/phys_state") or ""
            if layer == "InfiniBand" and "LinkUp" in state:
                found.append((hca, port))
    return found


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.cabling.CablingFacts."""
    unread = []
    rows = of_networkd(root)
    tool = runtime.find_tool("lldpcli", root=root)
    runs = any(os.path.exists(files.under(root, one)) for one in SOCKETS)
    if tool is not None and runs:
        try:
            done = runtime.run_tool([tool, "-f", "json", "show", "neighbors"], TOOL_S)
            if done.code == 0 and "chassis" in done.out:
                rows += of_lldpd(done.out)
            elif done.code != 0:
                unread.append("lldpcli: %s" % (done.err.strip()[-TEXT_MAX:] or "no answer"))
        except OSError as e:
            unread.append("lldpcli: %s" % files.errno_name(e))
    ports = infiniband_ports(root)
    tool = runtime.find_tool("smpquery", root=root)
    if ports and tool is None:
        unread.append("smpquery of infiniband-diags is not installed")
    elif ports and tool is not None:
        found, why = of_infiniband(tool, ports)
        rows += found
        unread += [why] if why else []
    by_port = {one["port"]: one for one in rows}
    return {"ports": list(by_port.values())[:MOST], "unread": "; ".join(unread)}
