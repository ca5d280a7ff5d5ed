"""Group `rdma`: HCAs and their ports as sysfs shows them. [Linux drivers/infiniband/core/sysfs.c]"""

import errno
import os

from . import files, libs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

_CLASS = "/sys/class/infiniband"
_MELLANOX = "0x15b3"
MAX_HCAS = 128
MAX_PORTS = 16
MAX_GIDS = 1024
MAX_PKEYS = 128


def numeric(name: str) -> "tuple[int, str]":
    """Sort key for names that are numbers."""
    return (int(name), name) if name.isdigit() else (1 << 30, name)


def state_word(text: "Optional[str]") -> str:
    """Return ``ACTIVE`` of ``4: ACTIVE``."""
    return (text or "").partition(":")[2].strip() or (text or "")


def rate(text: str) -> "Optional[float]":
    """Return 400.0 of ``400 Gb/sec (4X NDR)``; the number may end in .5."""
    number, unit, _ = text.partition("Gb/sec")
    whole, dot, part = number.strip().partition(".")
    if not unit or not whole.isdecimal() or (dot and not part.isdecimal()):
        return None
    return float(whole + dot + part)


def gids(base: str) -> "list[dict[str, Any]]":
    """Return the non-empty rows of a port's GID table; reading an empty slot's attributes gives EINVAL."""
    found = []
    for name in sorted(files.names(os.path.join(base, "gids"), MAX_GIDS), key=numeric):
        gid = files.text_or_none(os.path.join(base, "gids", name))
        if not name.isdigit() or not gid or not gid.strip("0:"):
            continue
        found.append(
            {
                "index": int(name),
                "gid": gid,
                "type": files.text_or_none(os.path.join(base, "gid_attrs/types", name)) or None,
                "netdev": files.text_or_none(os.path.join(base, "gid_attrs/ndevs", name)) or None,
            }
        )
    return found


def pkeys(base: str) -> "list[str]":
    """Return the non-empty rows of a port's table of partitions."""
    folder = os.path.join(base, "pkeys")
    rows = (files.text_or_none(os.path.join(folder, name)) for name in files.names(folder, MAX_PKEYS))
    return sorted({row for row in rows if row and row.strip("0x")})


def traffic_class(hca: str, number: str, root: str) -> "Optional[int]":
    """Return 106 of ``Global tclass=106``; only drivers outside of the kernel's tree have the file."""
    path = files.under(root, "%s/%s/tc/%s/traffic_class" % (_CLASS, hca, number))
    word = (files.text_or_none(path) or "").partition("Global tclass=")[2].split("\n")[0].strip()
    return int(word) if word.isdecimal() else None


def driver(device: str) -> "Optional[str]":
    """Return ``mlx5_core 24.10-1.1.4``, or the module's name alone."""
    try:
        name = os.path.basename(os.readlink(os.path.join(device, "driver")))
    except OSError:
        return None
    version = files.text_or_none(os.path.join(device, "driver/module/version"))
    return name + " " + version if version else name


def redirects(config: bytes) -> "Optional[bool]":
    """Whether a switch port redirects what goes from one device below it to another; None where that cannot
    be read. [PCI Express Base Specification: Access Control Services, include/uapi/linux/pci_regs.h]"""

    def number(at: int, size: int) -> int:
        return int.from_bytes(config[at : at + size], "little")

    if len(config) <= 0x100:  # without root the kernel gives 64 bytes
        return None
    at, left = number(0x34, 1), 48
    while at and left and number(at, 1) != 0x10:  # PCI_CAP_ID_EXP
        at, left = number(at + 1, 1), left - 1
    if not at or not left or number(at + 2, 1) >> 4 != 6:  # PCI_EXP_TYPE_DOWNSTREAM
        return False
    at, left = 0x100, 48
    while at and left:
        header = number(at, 4)
        if header & 0xFFFF == 0xD:  # PCI_EXT_CAP_ID_ACS
            # Request, completion redirect, egress control
            return bool(number(at + 6, 2) & 0x2C)
        at, left = header >> 20, left - 1
    return False


def is_guest(root: str) -> bool:
    """Whether this is a virtual machine, as x86 tells: what its IOMMU does is the host's."""
    flags = files.text_or_none(files.under(root, "/proc/cpuinfo"), 8192) or ""
    return " hypervisor" in flags


def acs(device: str) -> "Optional[list[str]]":
    """Return the switch ports above a device (its real path) that redirect; None where nobody may read."""
    found = []
    above = os.path.dirname(device)
    while files.pci_address(os.path.basename(above)):
        try:
            answer = redirects(files.read_bytes(os.path.join(above, "config"), 4096))
        except OSError:
            answer = None
        if answer is None:
            return None
        if answer:
            found.append(os.path.basename(above))
        above = os.path.dirname(above)
    return found


def port(hca: str, base: str, number: str, root: str) -> "dict[str, Any]":
    """Return facts.rdma.HcaPort."""

    def text(name: str) -> str:
        return files.text_or_none(os.path.join(base, name)) or ""

    return {
        "name": hca + ":" + number,
        "number": int(number),
        "state": state_word(text("state")),
        "phys_state": state_word(text("phys_state")),
        "link_layer": text("link_layer"),
        "rate_gbit_s": rate(text("rate")),
        "rate_text": text("rate"),
        "lid": files.int_or_none(os.path.join(base, "lid")),
        "sm_lid": files.int_or_none(os.path.join(base, "sm_lid")),
        "gids": gids(base),
        "gid_table_len": len([n for n in files.names(os.path.join(base, "gids")) if n.isdigit()]) or None,
        "pkeys": pkeys(base) if text("link_layer") == "InfiniBand" else [],
        "traffic_class": traffic_class(hca, number, root),
    }


def pcie_link(device: str) -> "Optional[dict[str, Any]]":
    """Return facts.rdma.PcieLink; None where the function, or the port above it, tells of no link."""
    here = os.path.realpath(device)
    above = os.path.dirname(here)

    def number(folder: str, name: str) -> float:
        # "16", "32.0 GT/s PCIe", "8 GT/s", "Unknown"; 255 lanes are the kernel's word for unknown, too.
        word = (files.text_or_none(os.path.join(folder, name)) or "").partition(" ")[0]
        value = float(word) if word.replace(".", "", 1).isdecimal() else 0.0
        return 0.0 if value >= 255 else value

    if not all(files.pci_address(os.path.basename(folder)) for folder in (here, above)):
        return None

    def least(name: str) -> float:
        return min(number(here, "max_link_" + name), number(above, "max_link_" + name))

    return {
        "width": int(number(here, "current_link_width")),
        "width_most": int(least("width")),
        "gtransfers_s": number(here, "current_link_speed"),
        "gtransfers_s_most": least("speed"),
    }


def uverbs_name(hca: str, base: str, root: str) -> "Optional[str]":
    """Return ``uverbs0``, from the device or from the class of all uverbs."""
    for name in files.names(os.path.join(base, "device/infiniband_verbs")):
        if name.startswith("uverbs"):
            ibdev = os.path.join(base, "device/infiniband_verbs", name, "ibdev")
            # Two devices of one PCI function (mlx5 with SFs) share the folder.
            if (files.text_or_none(ibdev) or hca) == hca:
                return name
    folder = files.under(root, "/sys/class/infiniband_verbs")
    for name in files.names(folder):
        if files.text_or_none(os.path.join(folder, name, "ibdev")) == hca:
            return name
    return None


def is_there(path: str) -> "Optional[bool]":
    """Whether there is such a file; None where that is not to be seen."""
    try:
        os.stat(path)
    except OSError as e:
        return False if e.errno in (errno.ENOENT, errno.ENOTDIR) else None
    return True


def hca(name: str, root: str, guest: bool) -> "dict[str, Any]":
    """Return facts.rdma.Hca."""
    base = files.under(root, _CLASS + "/" + name)

    def text(attribute: str) -> "Optional[str]":
        return files.text_or_none(os.path.join(base, attribute)) or None

    device = os.path.join(base, "device")
    real = os.path.realpath(device) if os.path.exists(device) else ""
    address = files.pci_address(real)
    uverbs = uverbs_name(name, base, root)
    uverbs_ok = None
    # Without ib_uverbs, or in a container that was not given the devices, the HCA is in sysfs alone.
    there = False  # type: Optional[bool]
    if uverbs is not None:
        node = files.under(root, "/dev/infiniband/" + uverbs)
        there = is_there(node)
        if there:
            uverbs_ok = os.access(node, os.R_OK | os.W_OK)
    elif not is_there(os.path.join(base, "ports")):
        there = None
    ports = [n for n in files.names(os.path.join(base, "ports")) if n.isdigit()]
    return {
        "name": name,
        "fw_version": text("fw_ver"),
        "board_id": text("board_id"),
        "hca_type": text("hca_type"),
        "node_guid": text("node_guid"),
        "sys_image_guid": text("sys_image_guid"),
        "pci_address": address,
        "pci_path": files.pci_path(real),
        "numa_node": files.int_or_none(os.path.join(device, "numa_node")),
        "pcie": pcie_link(device),
        "netdevs": files.names(os.path.join(device, "net"), 256),
        "uverbs": uverbs,
        "uverbs_there": there,
        "uverbs_ok": uverbs_ok,
        "driver": driver(device),
        "iommu": None if guest else text("device/iommu_group/type"),
        "acs": acs(real),
        "ports": [
            port(name, os.path.join(base, "ports", n), n, root)
            for n in sorted(ports, key=numeric)[:MAX_PORTS]
        ],
    }


def unbound_pci(root: str, bound: "set[Optional[str]]") -> "list[str]":
    """Return PCI addresses of Mellanox/NVIDIA network functions without an RDMA device."""
    found = []
    folder = files.under(root, "/sys/bus/pci/devices")
    for address in files.names(folder):
        base = os.path.join(folder, address)
        if (
            files.text_or_none(os.path.join(base, "vendor")) == _MELLANOX
            and (files.text_or_none(os.path.join(base, "class")) or "").startswith("0x02")
            and address not in bound
            and not files.names(os.path.join(base, "infiniband"))
        ):
            found.append(address)
    return found


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.rdma.RdmaFacts."""
    names = files.names(files.under(root, _CLASS), MAX_HCAS)
    guest = bool(names) and is_guest(root)
    hcas = [hca(name, root, guest) for name in names]
    library_path = os.environ.get("LD_LIBRARY_PATH", "")
    verbs = libs.find("libibverbs.so.1", root, library_path)
    return {
        "hcas": hcas,
        "unbound_pci": unbound_pci(root, {h["pci_address"] for h in hcas}),
        "libibverbs": verbs[0] if verbs else None,
    }
