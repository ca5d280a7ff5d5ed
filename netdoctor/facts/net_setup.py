"""What sets up a node's network interfaces, at the next boot too."""

from dataclasses import dataclass

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceSetup:
    """The loopback interface, or that of an RDMA device, and who sets it up."""

    ifname: str
    by: str = ""  # ``NetworkManager``, ``systemd-networkd``, empty where neither runs or knows it
    # ``connected``, ``connected (externally)``, ``configured``, ``unmanaged`` and the like.
    state: str = ""
    # What its profile or file has: ``manual`` or ``auto``, addresses, the MTU (0 without one), and whether it
    # is used by itself. Empty and None where that may not be read.
    method: str = ""
    addresses: tuple[str, ...] = ()
    mtu: int | None = None
    autoconnect: bool | None = None
    files: tuple[str, ...] = ()  # further files that name it, of those that are read at boot

    @property
    def is_set_up(self) -> bool:
        """Whether one of the two does it, and nobody else."""
        return bool(self.by) and "externally" not in self.state and self.state != "unmanaged"


@fact("net_setup")
@dataclass(frozen=True, slots=True, kw_only=True)
class NetSetupFacts:
    """Interfaces, and what sets them up."""

    interfaces: tuple[InterfaceSetup, ...]
    closed: bool = False  # whether some file of those that are read at boot may not be read
    mtu_elsewhere: bool = False  # whether one of them sets an MTU for devices that it describes

    def missing_field(self) -> str:
        return "" if self.interfaces else "any interface"
