"""Facts about RDMA devices, from /sys/class/infiniband."""

from dataclasses import dataclass

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Gid:
    """One non-empty row of a port's GID table. type: ``RoCE v2``, ``IB/RoCE v1`` or None where unreadable."""

    index: int
    gid: str
    type: str | None = None
    netdev: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HcaPort:
    """One port. name is NCCL's ``mlx5_0:1``; state ``ACTIVE``, ``INIT``, ``DOWN``…; link_layer ``InfiniBand``
    or ``Ethernet``; rate_gbit_s and rate_text from ``400 Gb/sec (4X NDR)``."""

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

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"

    @property
    def is_roce(self) -> bool:
        return self.link_layer == "Ethernet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hca:
    """One RDMA device. netdevs: interfaces of the same PCI function. uverbs_ok: /dev/infiniband/uverbsN is
    readable and writable for the login user; None when there is no such node to test."""

    name: str
    fw_version: str | None = None
    board_id: str | None = None
    hca_type: str | None = None
    node_guid: str | None = None
    sys_image_guid: str | None = None
    pci_address: str | None = None
    numa_node: int | None = None
    netdevs: tuple[str, ...] = ()
    uverbs: str | None = None
    uverbs_ok: bool | None = None
    ports: tuple[HcaPort, ...] = ()


@fact("rdma")
@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaFacts:
    """hcas: sorted by name. unbound_pci: PCI addresses of RDMA-capable NICs (Mellanox/NVIDIA 15b3) without an
    RDMA device. libibverbs: path found by the loader, or None."""

    hcas: tuple[Hca, ...] = ()
    unbound_pci: tuple[str, ...] = ()
    libibverbs: str | None = None
