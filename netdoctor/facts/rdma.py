"""Facts about RDMA devices, from /sys/class/infiniband."""

import re
from dataclasses import dataclass

from netdoctor.facts.base import fact

# Soft RDMA and cloud adapters print a fixed rate that says nothing about a link
# (drivers/infiniband/sw, drivers/infiniband/hw/efa of the kernel).
_VIRTUAL = ("rxe", "siw", "efa", "erdma", "mana")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gid:
    """One non-empty row of a port's GID table. type: ``RoCE v2``, ``IB/RoCE v1`` or None where unreadable."""

    index: int
    gid: str
    type: str | None = None
    netdev: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowControl:
    """What the interface of a RoCE port does against loss. pfc: priorities with priority flow control; None
    where its driver does not say. dscp: the priority of each of 64 DSCPs, ``-`` for one without; empty where
    packets are sorted by their VLAN tag. pauses: those for all priorities, ``rx tx``, ``off``. ecn:
    priorities for which it heeds (rp) and sends (np) notices of congestion, ``rp all np 3``."""

    pfc: tuple[int, ...] | None = None
    dscp: str = ""
    pauses: str | None = None
    ecn: str | None = None

    def priority(self, traffic_class: int) -> int | None:
        """That of packets with this traffic class, where the interface sorts by DSCP."""
        digit = self.dscp[traffic_class >> 2 : (traffic_class >> 2) + 1]
        return int(digit) if digit.isascii() and digit.isdigit() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HcaPort:
    """One port. name is NCCL's ``mlx5_0:1``; state ``ACTIVE``, ``INIT``, ``DOWN``…; link_layer ``InfiniBand``
    or ``Ethernet``; rate_gbit_s and rate_text from ``400 Gb/sec (4X NDR)``. gid_table_len: rows, empty ones
    too. pkeys: the non-empty rows of its table, ``0xffff``. traffic_class: what mlx5 sets for all of RoCE.
    flow: of its interface, for RoCE. mtu_bytes: what a packet carries at most, of InfiniBand ports that are
    active and may be opened."""

    name: str
    number: int
    state: str
    phys_state: str
    link_layer: str
    rate_gbit_s: float | None
    rate_text: str = ""
    lid: int | None = None
    sm_lid: int | None = None
    gids: tuple[Gid, ...] = ()
    gid_table_len: int | None = None
    pkeys: tuple[str, ...] = ()
    traffic_class: int | None = None
    flow: FlowControl | None = None
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
    """Lanes and speed (GT/s a lane) of a card's link as trained, and the lesser of what the card and the port
    above it can do. read_request, payload: bytes that the card asks for and sends at once at most;
    payload_most: that it and the port could (told to root alone). 0 where the kernel does not say."""

    width: int = 0
    width_most: int = 0
    gtransfers_s: float = 0.0
    gtransfers_s_most: float = 0.0
    read_request: int = 0
    payload: int = 0
    payload_most: int = 0

    @property
    def is_known(self) -> bool:
        return min(self.width, self.width_most, self.gtransfers_s, self.gtransfers_s_most) > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hca:
    """One RDMA device. netdevs: interfaces of the same PCI function. uverbs_there: whether it has a
    /dev/infiniband/uverbsN, which libibverbs needs; None where that was not to be seen. uverbs_ok: that is
    readable and writable for the login user; None when there is none to test. driver:
    ``mlx5_core 24.10-1.1.4``, the number where the module has one, as those outside of the kernel's tree
    do. iommu: type of its IOMMU group, ``identity``, ``DMA-FQ``; None without one, and in virtual machines.
    acs: PCI addresses of switch ports above it that send what goes from one device to another through the
    processor; None where only root may read that."""

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
    netdevs: tuple[str, ...] = ()
    uverbs: str | None = None
    uverbs_there: bool | None = None
    uverbs_ok: bool | None = None
    driver: str | None = None
    iommu: str | None = None
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
    """A plugin through which NCCL uses another network. found: the loader finds it in the login session."""

    path: str
    found: bool

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


@fact("rdma")
@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaFacts:
    """hcas: sorted by name. unbound_pci: PCI addresses of RDMA-capable NICs (Mellanox/NVIDIA 15b3) without an
    RDMA device. libibverbs: path found by the loader, or None. net_plugins: NCCL's for EFA, those that the
    loader finds first; None where there is no EFA."""

    hcas: tuple[Hca, ...] = ()
    unbound_pci: tuple[str, ...] = ()
    libibverbs: str | None = None
    net_plugins: tuple[NetPlugin, ...] | None = None
