"""Group `net`: interfaces and addresses, in the kernel's own order."""

import ctypes
import os
import struct

from .. import runtime
from ..system import ethtool, files, sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Container, Iterator, Optional, Sequence

IFF_UP = 0x1
IFF_LOOPBACK = 0x8
IFF_RUNNING = 0x40
AF_INET = 2
AF_INET6 = 10
_LINK_LOCAL = ("fe8", "fe9", "fea", "feb")
# Flags of routes
RTF_UP = 0x1
RTF_GATEWAY = 0x2
RTF_REJECT = 0x200
_CONNTRACK = "/proc/sys/net/netfilter/nf_conntrack"
_IPV4 = "/proc/sys/net/ipv4/"
_ARPHRD_INFINIBAND = "32"
MAX_ASKED = 64
# Bytes of a table of sockets, some 150 each.
TABLE_CAP = 32 << 20
_SPEED_UNKNOWN = (-1, 0, 65535, 4294967295)
# As many are judged of a node; a list that is cut short would be another fact. Interfaces have rows, too.
MAX_ADDRESSES = 4096
MAX_ROWS = 4 * MAX_ADDRESSES


class Row(object):
    """One getifaddrs() row: interface flags, and an address where it is of an IP family."""

    __slots__ = ("address", "family", "flags", "name", "prefix_len")

    def __init__(
        self, name: str, flags: int, family: int = 0, address: str = "", prefix_len: int = 0
    ) -> None:
        self.name = name
        self.flags = flags
        self.family = family
        self.address = address
        self.prefix_len = prefix_len


class _Ifaddrs(ctypes.Structure):
    """struct ifaddrs. [man 3 getifaddrs]"""


_Ifaddrs._fields_ = [
    ("next", ctypes.POINTER(_Ifaddrs)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
    ("netmask", ctypes.c_void_p),
    ("ifu", ctypes.c_void_p),
    ("data", ctypes.c_void_p),
]


def getifaddrs() -> "list[Row]":
    """Return getifaddrs() in the order of the C library, which NCCL's choice depends on. Raises OSError."""
    libc = ctypes.CDLL(None)
    head = ctypes.POINTER(_Ifaddrs)()
    if libc.getifaddrs(ctypes.byref(head)) != 0:
        raise OSError("getifaddrs() failed")
    rows = []  # type: list[Row]
    try:
        at = head
        while at:
            if len(rows) >= MAX_ROWS:
                raise runtime.Unavailable("failed", "more than %d addresses and interfaces" % MAX_ROWS)
            entry = at.contents
            row = Row((entry.name or b"").decode("utf-8", "replace"), entry.flags)
            if entry.address:
                row.family = struct.unpack("=H", ctypes.string_at(entry.address, 2))[0]
                # struct sockaddr_in has the address at 4, sockaddr_in6 at 8.
                offset, size = {AF_INET: (4, 4), AF_INET6: (8, 16)}.get(row.family, (0, 0))
                if size:
                    packed = ctypes.string_at(entry.address + offset, size)
                    row.address = sockets.raw.inet_ntop(row.family, packed)
                    if entry.netmask:
                        mask = ctypes.string_at(entry.netmask + offset, size)
                        row.prefix_len = sum(bin(b).count("1") for b in mask)
            rows.append(row)
            at = entry.next
    finally:
        libc.freeifaddrs(head)
    return rows


def address_scope(address: str) -> str:
    """Return ``host``, ``link`` or ``global``."""
    if address == "::1" or address.startswith("127."):
        return "host"
    if address.startswith("169.254.") or (address.startswith(_LINK_LOCAL) and address[4:5] == ":"):
        return "link"
    return "global"


def _kind(base: str, flags: int, driver: "Optional[str]") -> str:
    if flags & IFF_LOOPBACK:
        return "loopback"
    for folder, kind in (("bridge", "bridge"), ("bonding", "bond"), ("tun_flags", "tun")):
        if os.path.exists(os.path.join(base, folder)):
            return kind
    if files.attribute(os.path.join(base, "type")) == _ARPHRD_INFINIBAND:
        return "ipoib"
    uevent = (files.attribute(os.path.join(base, "uevent")) or "").split("\n")
    devtype = next((line[len("DEVTYPE=") :] for line in uevent if line.startswith("DEVTYPE=")), None)
    if devtype in ("bridge", "bond", "vlan", "macvlan"):
        return devtype
    if driver == "veth":
        return "veth"
    if os.path.exists(os.path.join(base, "device")):
        return "physical"
    # Without an answer from the driver: a virtual Ethernet whose peer has another index is a veth.
    ifindex = files.number(os.path.join(base, "ifindex"))
    peer = files.number(os.path.join(base, "iflink"))
    if driver is None and devtype is None and ifindex and peer and ifindex != peer:
        return "veth"
    return "other"


def netdev(
    root: str, name: str, flags: "Optional[int]", ask_driver: bool, carrying: "Container[str]" = ()
) -> "dict[str, Any]":
    """Return facts.net.Netdev.

    flags: as getifaddrs() gives them; None takes those of sysfs. carrying: interfaces whose drivers are asked
    for more than their names.
    """
    base = files.under(root, "/sys/class/net/" + name)

    def text(attribute: str) -> "Optional[str]":
        return files.attribute(os.path.join(base, attribute)) or None

    if flags is None:
        # sysfs shows the stored flags, in which IFF_RUNNING is never set: operstate has to stand in.
        flags = files.number(os.path.join(base, "flags")) or 0
        if text("operstate") in ("up", "unknown") and flags & IFF_UP:
            flags |= IFF_RUNNING
    driver = files.link_name(base + "/device/driver")
    driver_info = ethtool.driver_info(name) if ask_driver and (driver is None or name in carrying) else []
    driver = driver or (driver_info[0] if driver_info else None)
    kind = _kind(base, flags, driver)
    speed = files.number(os.path.join(base, "speed"))
    # veth and tun answer with a constant that means nothing.
    if speed in _SPEED_UNKNOWN or kind in ("veth", "tun", "loopback"):
        speed = None
    carrier = text("carrier")
    pci = None
    device = os.path.join(base, "device")
    if os.path.exists(device):
        # A virtio device has its PCI function as parent, so the last address in the path counts.
        pci = files.pci_address(os.path.realpath(device))
    bonded = {}  # type: dict[str, Any]
    if kind == "bond":
        bonded["bond_mode"] = (text("bonding/mode") or "").partition(" ")[0]
        bonded["slaves"] = (text("bonding/slaves") or "").split()
    elif os.path.exists(os.path.join(base, "bonding_slave")):
        bonded["mii_status"] = text("bonding_slave/mii_status")
        bonded["aggregator"] = files.number(os.path.join(base, "bonding_slave", "ad_aggregator_id"))
    uevent = (text("device/uevent") or "").split("\n")
    ids = [line.partition("=")[2] for line in uevent if line.startswith(("PCI_ID=", "PCI_SUBSYS_ID="))]
    nic = None
    if driver_info and name in carrying and kind in ("physical", "veth"):
        nic = dict(ethtool.settings(name), version=driver_info[1], firmware=driver_info[2])
    return {
        **bonded,
        "name": name,
        "ifindex": files.number(os.path.join(base, "ifindex")) or 0,
        "up": bool(flags & IFF_UP),
        "running": bool(flags & IFF_RUNNING),
        "loopback": bool(flags & IFF_LOOPBACK),
        "mtu": files.number(os.path.join(base, "mtu")) or 0,
        "operstate": text("operstate") or "unknown",
        "carrier": {"1": True, "0": False}.get(carrier or ""),
        "speed_mbit_s": speed,
        "mac": text("address"),
        "kind": kind,
        "driver": driver,
        "pci_address": pci,
        "duplex": text("duplex") if kind == "physical" else None,
        "model": " ".join(ids),
        "nic": nic,
    }


def routes(root: str) -> "tuple[list[str], list[str]]":
    """Return the interfaces of default routes, and the networks behind other routes over a router.

    Interfaces: best metric first, IPv4 before IPv6. Networks: ``10.1.0.0/16``. For IPv4 the main table
    counts; without a default route in it, the tables that only a rule leads to count as well.
    """
    found = []
    behind = []  # type: list[str]

    def add(family: int, address: bytes, length: int) -> None:
        behind.append("%s/%d" % (sockets.raw.inet_ntop(family, address), length))

    table = files.text_or_none(files.under(root, "/proc/net/route"), files.CAP_BYTES) or ""
    for line in table.splitlines()[1:]:
        # eth0 00000000 0100A8C0 0003 0 0 100 00000000 0 0 0
        part = line.split()
        if len(part) < 8 or not _hex(part[3]) & RTF_UP:
            continue
        if part[1] == part[7] == "00000000":
            found.append((4, int(part[6]) if part[6].isdigit() else 0, part[0]))
        elif _hex(part[3]) & RTF_GATEWAY and not _hex(part[3]) & RTF_REJECT:
            add(AF_INET, struct.pack("=I", _hex(part[1]) & 0xFFFFFFFF), bin(_hex(part[7])).count("1"))
    if not found:
        behind += by_rules(root)
    table = files.text_or_none(files.under(root, "/proc/net/ipv6_route"), files.CAP_BYTES) or ""
    for line in table.splitlines():
        # dest plen src plen gateway metric refcnt use flags dev; RTF_REJECT marks "unreachable".
        part = line.split()
        if len(part) < 10 or _hex(part[8]) & RTF_REJECT or part[9] == "lo":
            continue
        if part[1] == "00" and not part[0].strip("0"):
            found.append((6, _hex(part[5]), part[9]))
        elif _hex(part[8]) & RTF_GATEWAY and len(part[0]) == 32:
            add(AF_INET6, struct.pack(">QQ", _hex(part[0][:16]), _hex(part[0][16:])), _hex(part[1]))
    devs = []  # type: list[str]
    for _, _, dev in sorted(found):
        if dev not in devs:
            devs.append(dev)
    return devs, behind[:MAX_ADDRESSES]


def by_rules(root: str) -> "list[str]":
    """Return the networks, ``0.0.0.0/0``, of the tables of IPv4 routes that only a rule leads to."""
    behind = []  # type: list[str]
    address, in_rule_table = "", False
    trie = files.text_or_none(files.under(root, "/proc/net/fib_trie"), files.CAP_BYTES) or ""
    for line in trie.splitlines():
        # Main: / Id 101: / "  |-- 10.1.0.0" / "     /16 universe UNICAST"
        part = line.split()
        if line[:1].strip():
            in_rule_table = part[0] == "Id"
        elif in_rule_table and part[:1] == ["|--"]:
            address = part[-1]
        elif in_rule_table and part[-1:] == ["UNICAST"] and address:
            behind.append(address + part[0])
    return behind


def _hex(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0


def local_ports(root: str) -> "dict[str, Any]":
    """Return what NetFacts has of the ports that the kernel picks: ``32768\t60999``, ``8080,29500-29509``."""
    range_ = (files.text_or_none(files.under(root, _IPV4 + "ip_local_port_range")) or "").split()
    given = len(range_) == 2 and range_[0].isdigit() and range_[1].isdigit()
    low, high = (int(range_[0]), int(range_[1])) if given else (32768, 60999)
    reserved = files.text_or_none(files.under(root, _IPV4 + "ip_local_reserved_ports"), files.CAP_BYTES) or ""
    many, waiting = 0, None  # type: int, Optional[int]
    for name in ("sockstat", "sockstat6"):
        # TCP: inuse 14 orphan 0 tw 3 alloc 21 mem 2; TCP6: inuse 4. Those that wait are counted once.
        text = files.text_or_none(files.under(root, "/proc/net/" + name)) or ""
        for part in (line.split() for line in text.splitlines() if line.startswith("TCP")):
            for i in range(1, len(part) - 1, 2):
                if part[i] in ("inuse", "tw") and part[i + 1].isdigit():
                    many += int(part[i + 1])
                    waiting = int(part[i + 1]) if part[i] == "tw" else waiting
    # The kernel takes milliseconds for a table of thousands.
    worth = 4 * many >= high - low + 1 - sum(last - first + 1 for first, last in _ranges(reserved))
    return {
        "ephemeral_ports": [low, high],
        "reserved_ports": reserved,
        "ports_taken": ports_taken(root, low, high, reserved) if worth else None,
        "time_wait": waiting,
        "tw_reuse": files.number(files.under(root, _IPV4 + "tcp_tw_reuse")),
    }


def _ranges(reserved: str) -> "Iterator[tuple[int, int]]":
    for part in reserved.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            yield int(first), int(last or first)


def ports_taken(root: str, low: int, high: int, reserved: str) -> "Optional[int]":
    """Return how many ports that the kernel may pick have a socket; None where the tables cannot be read."""
    reserved_ranges = list(_ranges(reserved))
    used = set()  # type: set[int]
    read = False
    for name in ("tcp", "tcp6"):
        try:
            table = files.read_text(files.under(root, "/proc/net/" + name), TABLE_CAP)
        except OSError:
            continue
        read = True
        for line in table.splitlines()[1:]:
            #    0: 0100007F:1F90 00000000:0000 0A …
            part = line.split(None, 2)
            if len(part) > 2:
                used.add(_hex(part[1].rpartition(":")[2]))
    if not read:
        return None
    free = (port for first, last in reserved_ranges for port in range(max(first, low), min(last, high) + 1))
    return len({port for port in used if low <= port <= high}.difference(free))


def _netdevs(rows: "Sequence[Row]", root: str, live: bool) -> "list[dict[str, Any]]":
    """Return facts.net.Netdev of every interface. live: the rows are this machine's; drivers are asked."""
    # A label may be another interface's name: the rows that are no addresses have the interfaces' own.
    flags = {row.name: row.flags for row in rows}
    flags.update((row.name, row.flags) for row in rows if row.family not in (AF_INET, AF_INET6))
    base = files.under(root, "/sys/class/net/")
    # bonding_masters is a plain file there
    names = [name for name in files.names(base) if os.path.isdir(base + name)]
    # Those with an address, and physical ones in a bond, a bridge or below a VLAN that has one.
    carrying = {row.name.partition(":")[0] for row in rows if address_scope(row.address or "::1") == "global"}
    carrying.update([name.partition(".")[0] for name in carrying])
    for name in names:
        if os.path.exists(base + name + "/device") and os.path.exists(base + name + "/master"):
            carrying.add(name)
    asked_more = sorted(carrying)[:MAX_ASKED]
    netdevs = [netdev(root, name, flags.get(name), live, asked_more) for name in names[: MAX_ADDRESSES + 1]]
    return sorted(netdevs, key=lambda dev: (dev["ifindex"], dev["name"]))


def _shared_subnets(rows: "Sequence[Row]", root: str, live: bool) -> "list[dict[str, Any]]":
    """Return facts.net.SharedAddress of those in one subnet with another interface's."""
    inet = [
        (row.name.partition(":")[0], row.address, row.prefix_len)
        for row in rows
        if row.family == AF_INET and row.flags & IFF_UP and address_scope(row.address) == "global"
    ]
    if len({name for name, _, _ in inet}) < 2:
        return []
    from ..system import subnets

    return subnets.shared(root, inet, live)


def collect(
    args: "dict[str, Any]", root: str = "/", rows: "Optional[Sequence[Row]]" = None
) -> "dict[str, Any]":
    """Return facts.net.NetFacts. rows: getifaddrs() of a recorded machine, with its `root`."""
    live = rows is None
    if rows is None:
        rows = getifaddrs()
    netdevs = _netdevs(rows, root, live)
    addresses = [
        {
            "ifname": row.name,
            "family": "inet" if row.family == AF_INET else "inet6",
            "address": row.address,
            "prefix_len": row.prefix_len,
            "scope": address_scope(row.address),
            "running": bool(row.flags & IFF_RUNNING),
        }
        for row in rows
        if row.family in (AF_INET, AF_INET6) and row.address
    ]
    for what, many in (("addresses", addresses), ("interfaces", netdevs)):
        if len(many) > MAX_ADDRESSES:
            raise runtime.Unavailable("failed", "more than %d %s" % (MAX_ADDRESSES, what))
    devs, behind = routes(root)
    disabled = files.text_or_none(files.under(root, "/proc/sys/net/ipv6/conf/all/disable_ipv6"))
    return {
        "netdevs": netdevs,
        "addresses": addresses,
        **local_ports(root),
        "default_devs": devs,
        "routed": behind,
        "ipv6_enabled": disabled == "0",
        "somaxconn": files.number(files.under(root, "/proc/sys/net/core/somaxconn")),
        "shared": _shared_subnets(rows, root, live),
        "conntrack": files.number(files.under(root, _CONNTRACK + "_count")),
        "conntrack_max": files.number(files.under(root, _CONNTRACK + "_max")),
    }
