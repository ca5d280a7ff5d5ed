"""Facts about RDMA devices, from /sys/class/infiniband."""

import re
from dataclasses import dataclass

from netdoctor.facts.base import fact

# Soft RDMA and cloud adapters print a fixed rate that says nothing about a link
# (drivers/infiniband/sw, drivers/infiniband/hw/efa of the kernel).
_VIRTUAL = ("rxe", "siw", "efa", "erdma", "mana")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gid:
    """One non-empty row of a port's GID table."""

    index: int
    gid: str
    type: str | None = None  # ``RoCE v2``, ``IB/RoCE v1`` or None where unreadable
    netdev: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowControl:
    """What the interface of a RoCE port does against loss."""

    # Priorities with priority flow control; None where its driver does not say.
    pfc: tuple[int, ...] | None = None
    # The priority of each of 64 DSCPs, ``-`` for one without; empty where packets are sorted by their VLAN
    # tag.
    dscp: str = ""
    pauses: str | None = None  # those for all priorities, ``rx tx``, ``off``
    # Priorities for which it heeds (rp) and sends (np) notices of congestion, ``rp all np 3``.
    ecn: str | None = None

    def priority(self, traffic_class: int) -> int | None:
        """That of packets with this traffic class, where the interface sorts by DSCP."""
        digit = self.dscp[traffic_class >> 2 : (traffic_class >> 2) + 1]
        return int(digit) if digit.isascii() and digit.isdigit() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HcaPort:
    """One port of an HCA."""

    name: str  # NCCL's, ``mlx5_0:1``
    number: int
    state: str  # ``ACTIVE``, ``INIT``, ``DOWN``…
    phys_state: str
    link_layer: str  # ``InfiniBand`` or ``Ethernet``
    rate_gbit_s: float | None  # this and the text from ``400 Gb/sec (4X NDR)``
    rate_text: str = ""
    lid: int | None = None
    sm_lid: int | None = None
    gids: tuple[Gid, ...] = ()
    gid_table_len: int | None = None  # rows, empty ones too
    pkeys: tuple[str, ...] = ()  # the non-empty rows of its table, ``0xffff``
    traffic_class: int | None = None  # what mlx5 sets for all of RoCE
    flow: FlowControl | None = None  # of its interface, for RoCE
    # What a packet carries at most, of InfiniBand ports that are active and may be opened.
    mtu_bytes: int | None = None

    @property
    def subnet(self) -> str:
        """Prefix of an InfiniBand port's first GID, ``fe80:0000:0000:0000``; empty where there is none."""
        return "" if self.is_roce else ":".join(self.gids[0].gid.split(":")[:4]) if self.gids else ""

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"

    @property
    def is_roce(self) -> bool:
        return self.link_layer == "Ethernet"

    @property
    def lanes(self) -> int | None:
        """4 of ``400 Gb/sec (4X NDR)``; None where it is not said."""
        match = re.search(r"\((\d+)X", self.rate_text)
        return int(match[1]) if match else None

    @property
    def speed_is_unnamed(self) -> bool:
        """Whether the rate may be what a kernel prints for a speed that it does not know:
        ``10 Gb/sec (4X SDR)``, or ``10 Gb/sec (4X)`` where it is old."""
        name = re.search(r"\(\d+X ([A-Z0-9]+)\)", self.rate_text)
        return (self.rate_gbit_s or 0) <= 10 and (name is None or name[1] == "SDR")


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieLink:
    """A card's link. A number is 0 where the kernel does not say it."""

    # Lanes, and GT/s a lane: as trained, and the lesser of what the card and the port above it can do.
    width: int = 0
    width_most: int = 0
    gtransfers_s: float = 0.0
    gtransfers_s_most: float = 0.0
    read_request: int = 0  # read_request, payload: bytes that the card asks for and sends at once at most
    payload: int = 0
    payload_most: int = 0  # that it and the port could (told to root alone)

    @property
    def is_known(self) -> bool:
        return min(self.width, self.width_most, self.gtransfers_s, self.gtransfers_s_most) > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hca:
    """One RDMA device."""

    name: str
    fw_version: str | None = None
    board_id: str | None = None
    hca_type: str | None = None
    node_guid: str | None = None
    sys_image_guid: str | None = None
    pci_address: str | None = None
    pci_path: tuple[str, ...] = ()
    numa_node: int | None = None
    pcie: PcieLink | None = None
    netdevs: tuple[str, ...] = ()  # interfaces of the same PCI function
    # What its interface calls the socket of the cable, ``p0``; None where the driver does not say.
    port_label: str | None = None
    uverbs: str | None = None
    # Whether it has a /dev/infiniband/uverbsN, which libibverbs needs; None where that was not to be seen.
    uverbs_there: bool | None = None
    # Whether that is readable and writable for the login user; None when there is none to test.
    uverbs_ok: bool | None = None
    # ``mlx5_core 24.10-1.1.4``, the number where the module has one, as those outside of the kernel's tree
    # do.
    driver: str | None = None
    # Type of its IOMMU group, ``identity``, ``DMA-FQ``; None without one, and in virtual machines.
    iommu: str | None = None
    # PCI addresses of switch ports above it that send what goes from one device to another through the
    # processor; None where only root may read that.
    acs: tuple[str, ...] | None = None
    ports: tuple[HcaPort, ...] = ()

    @property
    def can_be_opened(self) -> bool:
        """Not known to be without a device, or to have one that the login user may not open."""
        return self.uverbs_there is not False and self.uverbs_ok is not False

    @property
    def is_efa(self) -> bool:
        return self.name.startswith("efa") or (self.driver or "").startswith("efa")

    @property
    def is_virtual(self) -> bool:
        """Software RDMA, or a cloud adapter without a rate of its own. udev calls an EFA ``rdmap16s0``."""
        kind, driver = (self.hca_type or "").lower(), self.driver or ""
        return self.name.startswith(_VIRTUAL) or kind.startswith(_VIRTUAL) or driver.startswith(_VIRTUAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetPlugin:
    """A plugin through which NCCL uses another network."""

    path: str
    found: bool  # the loader finds it in the login session

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


@fact("rdma")
@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaFacts:
    """What a node has for RDMA."""

    hcas: tuple[Hca, ...] = ()  # sorted by name
    # PCI addresses of RDMA-capable NICs (Mellanox/NVIDIA 15b3) without an RDMA device.
    unbound_pci: tuple[str, ...] = ()
    libibverbs: str | None = None  # path found by the loader, or None
    # NCCL's for EFA, those that the loader finds first; None where there is no EFA.
    net_plugins: tuple[NetPlugin, ...] | None = None
