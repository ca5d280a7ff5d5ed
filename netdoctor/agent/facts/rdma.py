"""Group `rdma`: HCAs and their ports as sysfs shows them. [Linux drivers/infiniband/core/sysfs.c]"""

import errno
import os

from ..system import files, libs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional

_CLASS = "/sys/class/infiniband"
_MELLANOX = "0x15b3"
MAX_HCAS = 128
MAX_PORTS = 16
MAX_GIDS = 1024
MAX_PKEYS = 128
# NCCL loads libnccl-net.so, or libnccl-net-NAME.so for NCCL_NET_PLUGIN=NAME. [src/plugin/net.cc]
_PLUGINS = ("libnccl-net.so", "libnccl-net-ofi.so", "libnccl-net-aws-ofi.so")
# Where EFA's installer, NVIDIA's images, and AWS's machine images and guides put them.
_PLUGIN_FOLDERS = tuple(
    folder + below
    for folder in (
        "/opt/amazon/ofi-nccl/lib",
        "/opt/amazon/aws-ofi-nccl/lib",
        "/opt/aws-ofi-nccl/lib",
        "/usr/local/cuda/efa/lib",
    )
    for below in ("", "64", "/x86_64-linux-gnu", "/aarch64-linux-gnu")
)
# A table has 255 rows, filled from the first free one on.
EMPTY_ROWS = 32


def numeric(name: str) -> "tuple[int, str]":
    """Sort key for names that are numbers."""
    return (int(name), name) if name.isdigit() else (1 << 30, name)


def state_word(text: "Optional[str]") -> str:
    """Return ``ACTIVE`` of ``4: ACTIVE``."""
    return (text or "").partition(":")[2].strip() or (text or "")


def rate(text: str) -> "Optional[float]":
    """Return 400.0 of ``400 Gb/sec (4X NDR)``; the number may end in .5."""
    number, unit, _ = text.partition("Gb/sec")
    integer, dot, part = number.strip().partition(".")
    if not unit or not integer.isdecimal() or (dot and not part.isdecimal()):
        return None
    return float(integer + dot + part)


def gids(base: str, rows: "list[str]") -> "list[dict[str, Any]]":
    """Return the non-empty rows of a port's GID table; reading an empty slot's attributes gives EINVAL."""
    found = []
    empty = 0
    for name in rows:
        gid = files.attribute(base + "/gids/" + name)
        if not gid or not gid.strip("0:"):
            empty += 1
            if empty > EMPTY_ROWS:
                break
            continue
        empty = 0
        found.append(
            {
                "index": int(name),
                "gid": gid,
                "type": files.attribute(base + "/gid_attrs/types/" + name) or None,
                "netdev": files.attribute(base + "/gid_attrs/ndevs/" + name) or None,
            }
        )
    return found


def pkeys(base: str) -> "list[str]":
    """Return the non-empty rows of a port's table of partitions."""
    folder = base + "/pkeys/"
    rows = (files.attribute(folder + name) for name in files.names(folder, MAX_PKEYS))
    return sorted({row for row in rows if row and row.strip("0x")})


def traffic_class(hca: str, number: str, root: str) -> "Optional[int]":
    """Return 106 of ``Global tclass=106``; only drivers outside of the kernel's tree have the file."""
    path = files.under(root, "%s/%s/tc/%s/traffic_class" % (_CLASS, hca, number))
    word = (files.attribute(path) or "").partition("Global tclass=")[2].split("\n")[0].strip()
    return int(word) if word.isdecimal() else None


def driver(device: str) -> "Optional[str]":
    """Return ``mlx5_core 24.10-1.1.4``, or the module's name alone."""
    name = files.link_name(device + "/driver")
    version = files.attribute(device + "/driver/module/version") if name else None
    return "%s %s" % (name, version) if version else name


class Config(object):
    """The configuration space of a PCI function, for the body of a `with`. Raises OSError, beyond 64 bytes
    for all but root. Each read goes to the device, so little is read.
    [PCI Express Base Specification, include/uapi/linux/pci_regs.h]"""

    def __init__(self, folder: str) -> None:
        self._fd = os.open(folder + "/config", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def __enter__(self) -> "Config":
        return self

    def __exit__(self, *_: "Any") -> None:
        os.close(self._fd)

    def number(self, at: int, size: int) -> int:
        data = os.pread(self._fd, size, at)
        if len(data) < size:
            raise OSError(errno.EPERM, "not for this user")
        return int.from_bytes(data, "little")

    def express(self) -> int:
        """Return where the PCI Express capability begins, 0 where there is none."""
        at, left = self.number(0x34, 1), 48
        while at and left and self.number(at, 1) != 0x10:  # PCI_CAP_ID_EXP
            at, left = self.number(at + 1, 1), left - 1
        return at if left else 0

    def redirects(self) -> bool:
        """Whether a switch port redirects what goes from one device below it to another (Access Control
        Services)."""
        at = self.express()
        if not at or self.number(at + 2, 1) >> 4 != 6:  # PCI_EXP_TYPE_DOWNSTREAM
            return False
        at, left = 0x100, 48
        while at and left:
            header = self.number(at, 4)
            if header & 0xFFFF == 0xD:  # PCI_EXT_CAP_ID_ACS
                # Request, completion redirect, egress control
                return bool(self.number(at + 6, 2) & 0x2C)
            at, left = header >> 20, left - 1
        return False

    def sizes(self) -> "tuple[int, int, int]":
        """Return the most that it asks for at once (max read request), that it sends at once (max payload),
        and that it could: bytes."""
        at = self.express()
        if not at:
            raise OSError(errno.ENODEV, "no PCI Express")
        able, control = self.number(at + 4, 4), self.number(at + 8, 2)  # DEVCAP, DEVCTL
        return 128 << (control >> 12 & 7), 128 << (control >> 5 & 7), 128 << (able & 7)


def sizes(device: str) -> "Optional[list[int]]":
    """Return max read request and max payload of a function, and the payload that it and the port above could
    do; None where nobody may read them, and of a virtual function, whose own say nothing."""
    found = []
    try:
        if os.path.exists(device + "/physfn"):
            return None
        for folder in (device, os.path.dirname(device)):
            with Config(folder) as config:
                found.append(config.sizes())
    except OSError:
        return None
    return [found[0][0], found[0][1], min(found[0][2], found[1][2])]


def is_virtual_machine(root: str) -> bool:
    """Whether this is a virtual machine, as x86 tells: what its IOMMU does is the host's."""
    flags = files.text_or_none(files.under(root, "/proc/cpuinfo"), 8192) or ""
    return " hypervisor" in flags


def acs(device: str, known: "dict[str, Optional[bool]]") -> "Optional[list[str]]":
    """Return the switch ports above a device (its real path) that redirect; None where nobody may read.
    known: what has been read of ports, by their folders."""
    found = []
    above = os.path.dirname(device)
    while files.pci_address(os.path.basename(above)):
        if above not in known:
            try:
                with Config(above) as config:
                    known[above] = config.redirects()
            except OSError:
                known[above] = None
        answer = known[above]
        if answer is None:
            return None
        if answer:
            found.append(os.path.basename(above))
        above = os.path.dirname(above)
    return found


def flow_control(
    netdev: str, root: str, known: "Optional[Mapping[str, dict[str, Any]]]"
) -> "Optional[dict[str, Any]]":
    """Return facts.rdma.FlowControl of an interface; None where nobody tells. known: as of collect()."""
    from ..system import flow

    if known is None:
        found = {"pauses": flow.pauses(netdev)}  # type: dict[str, Any]
        found.update(flow.ask(netdev) or {})
    else:
        found = dict(known.get(netdev) or {})
    found["ecn"] = flow.ecn(root, netdev)
    return found if any(one is not None for one in found.values()) else None


def port(
    hca: str, number: str, netdevs: "list[str]", root: str, known: "Optional[Mapping[str, dict[str, Any]]]"
) -> "dict[str, Any]":
    """Return facts.rdma.HcaPort. netdevs: of its PCI function."""
    base = files.under(root, "%s/%s/ports/%s" % (_CLASS, hca, number))

    def text(name: str) -> str:
        return files.attribute(base + "/" + name) or ""

    rows = sorted((n for n in files.names(base + "/gids") if n.isdigit()), key=numeric)
    speed, layer = text("rate"), text("link_layer")
    found = gids(base, rows[:MAX_GIDS])
    flow = None
    if layer == "Ethernet":
        # A function may have one for each of its ports, and those of virtual switches; a bond has GIDs, too.
        netdev = [gid["netdev"] for gid in found if gid["netdev"] in netdevs] or netdevs[:1]
        flow = flow_control(netdev[0], root, known) if netdev else None
    return {
        "name": hca + ":" + number,
        "number": int(number),
        "state": state_word(text("state")),
        "phys_state": state_word(text("phys_state")),
        "link_layer": layer,
        "rate_gbit_s": rate(speed),
        "rate_text": speed,
        "lid": files.number(base + "/lid"),
        "sm_lid": files.number(base + "/sm_lid"),
        "gids": found,
        "gid_table_len": len(rows) or None,
        "pkeys": pkeys(base) if layer == "InfiniBand" else [],
        "traffic_class": traffic_class(hca, number, root),
        "flow": flow,
    }


def pcie_link(here: str, is_vm: bool) -> "Optional[dict[str, Any]]":
    """Return facts.rdma.PcieLink of a function (its real path); None where it, or the port above, tells of no
    link. guest: what its configuration says is made up by the host."""
    above = os.path.dirname(here)

    def number(folder: str, name: str) -> float:
        # "16", "32.0 GT/s PCIe", "8 GT/s", "Unknown"; 255 lanes are the kernel's word for unknown, too.
        word = (files.attribute(folder + "/" + name) or "").partition(" ")[0]
        value = float(word) if word.replace(".", "", 1).isdecimal() else 0.0
        return 0.0 if value >= 255 else value

    if not all(files.pci_address(os.path.basename(folder)) for folder in (here, above)):
        return None

    def least(name: str) -> float:
        return min(number(here, "max_link_" + name), number(above, "max_link_" + name))

    read_request, payload, payload_most = (None if is_vm else sizes(here)) or (0, 0, 0)
    return {
        "read_request": read_request,
        "payload": payload,
        "payload_most": payload_most,
        "width": int(number(here, "current_link_width")),
        "width_most": int(least("width")),
        "gtransfers_s": number(here, "current_link_speed"),
        "gtransfers_s_most": least("speed"),
    }


def uverbs_name(hca: str, base: str, root: str) -> "Optional[str]":
    """Return ``uverbs0``, from the device or from the class of all uverbs."""
    folder_of_device = base + "/device/infiniband_verbs/"
    for name in files.names(folder_of_device):
        # Two devices of one PCI function (mlx5 with SFs) share the folder.
        if name.startswith("uverbs") and (files.attribute(folder_of_device + name + "/ibdev") or hca) == hca:
            return name
    folder = files.under(root, "/sys/class/infiniband_verbs/")
    for name in files.names(folder):
        if files.attribute(folder + name + "/ibdev") == hca:
            return name
    return None


def exists_or_none(path: str) -> "Optional[bool]":
    """Whether there is such a file; None where that is not to be seen."""
    try:
        os.stat(path)
    except OSError as e:
        return False if e.errno in (errno.ENOENT, errno.ENOTDIR) else None
    return True


def hca(
    name: str,
    root: str,
    is_vm: bool,
    known: "Optional[Mapping[str, dict[str, Any]]]",
    above: "dict[str, Optional[bool]]",
) -> "dict[str, Any]":
    """Return facts.rdma.Hca. above: as acs() wants it."""
    base = files.under(root, _CLASS + "/" + name)

    def text(attribute: str) -> "Optional[str]":
        return files.attribute(base + "/" + attribute) or None

    device = base + "/device"
    real = os.path.realpath(device) if os.path.exists(device) else ""
    address = files.pci_address(real)
    uverbs = uverbs_name(name, base, root)
    uverbs_ok = None
    # Without ib_uverbs, or in a container that was not given the devices, the HCA is in sysfs alone.
    exists = False  # type: Optional[bool]
    if uverbs is not None:
        node = files.under(root, "/dev/infiniband/" + uverbs)
        exists = exists_or_none(node)
        if exists:
            uverbs_ok = os.access(node, os.R_OK | os.W_OK)
    elif not exists_or_none(base + "/ports"):
        exists = None
    ports = [n for n in files.names(base + "/ports") if n.isdigit()]
    netdevs = files.names(device + "/net", 256)
    return {
        "name": name,
        "fw_version": text("fw_ver"),
        "board_id": text("board_id"),
        "hca_type": text("hca_type"),
        "node_guid": text("node_guid"),
        "sys_image_guid": text("sys_image_guid"),
        "pci_address": address,
        "pci_path": files.pci_path(real),
        "numa_node": files.number(device + "/numa_node"),
        "pcie": pcie_link(real, is_vm),
        "netdevs": netdevs,
        "port_label": files.attribute(device + "/net/" + netdevs[0] + "/phys_port_name") if netdevs else None,
        "uverbs": uverbs,
        "uverbs_there": exists,
        "uverbs_ok": uverbs_ok,
        "driver": driver(device),
        "iommu": None if is_vm else text("device/iommu_group/type"),
        "acs": acs(real, above),
        "ports": [port(name, n, netdevs, root, known) for n in sorted(ports, key=numeric)[:MAX_PORTS]],
    }


def give_mtus(hcas: "list[dict[str, Any]]", known: "Optional[Mapping[str, dict[str, Any]]]") -> None:
    """Add to each active InfiniBand port its MTU, where the login user may open the HCA. known: as of
    collect(). That of a RoCE port follows from its interface's."""
    ports = {}  # type: dict[tuple[str, int], dict[str, Any]]
    for one in hcas:
        for port in one["ports"] if one["uverbs_ok"] or known is not None else ():
            if port["state"] == "ACTIVE" and port["link_layer"] == "InfiniBand":
                ports[one["name"], port["number"]] = port
    if not ports:
        return
    if known is None:
        from ..system import verbs_ports

        known = {name: {"mtu": mtu} for name, mtu in verbs_ports.mtus(sorted(ports)).items()}
    for port in ports.values():
        port["mtu_bytes"] = (known.get(port["name"]) or {}).get("mtu")


def net_plugins(root: str, library_path: str) -> "list[dict[str, Any]]":
    """Return facts.rdma.NetPlugin of those for EFA."""
    found = [path for name in _PLUGINS for path in libs.find(name, root, library_path)]
    elsewhere = [folder + "/" + name for folder in _PLUGIN_FOLDERS for name in _PLUGINS]
    others = [path for path in elsewhere if path not in found and libs.is_file(path, root)]
    return [{"path": path, "found": path in found} for path in found + others]


def unbound_pci(root: str, bound: "set[Optional[str]]") -> "list[str]":
    """Return PCI addresses of Mellanox/NVIDIA network functions without an RDMA device."""
    found = []
    folder = files.under(root, "/sys/bus/pci/devices")
    for address in files.pci_of(root, _MELLANOX):
        base = folder + "/" + address
        if (
            address not in bound
            and (files.attribute(base + "/class") or "").startswith("0x02")
            and not files.names(base + "/infiniband")
        ):
            found.append(address)
    return found


def collect(
    args: "dict[str, Any]", root: str = "/", known: "Optional[Mapping[str, dict[str, Any]]]" = None
) -> "dict[str, Any]":
    """Return facts.rdma.RdmaFacts. known: what the kernel of a recorded machine, with its `root`, answers of
    its interfaces: pfc, dscp and pauses of facts.rdma.FlowControl; and the library of ports: mtu."""
    if known is None and root != "/":
        known = {}
    names = files.names(files.under(root, _CLASS), MAX_HCAS)
    is_vm = bool(names) and is_virtual_machine(root)
    above = {}  # type: dict[str, Optional[bool]]
    hcas = [hca(name, root, is_vm, known, above) for name in names]
    give_mtus(hcas, known)
    library_path = os.environ.get("LD_LIBRARY_PATH", "")
    verbs = libs.find("libibverbs.so.1", root, library_path)
    return {
        "hcas": hcas,
        "unbound_pci": unbound_pci(root, {h["pci_address"] for h in hcas}),
        "libibverbs": verbs[0] if verbs else None,
        "net_plugins": (
            net_plugins(root, library_path)
            if any((h["driver"] or h["name"]).startswith("efa") for h in hcas)
            else None
        ),
    }
