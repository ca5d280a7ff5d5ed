"""The ways over which a job's nodes dial each other, worked out before anything is tried."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from netdoctor.facts.base import fact
from netdoctor.text import listing

MAIN = "main"
STORE = "store"
GLOO = "gloo"
BOOTSTRAP = "NCCL bootstrap"
SOCKET = "NCCL socket"
RAIL = "RoCE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One address that a node advertises to its peers."""

    node: str
    address: str
    # ``store`` (where MASTER_ADDR points), ``gloo``, ``NCCL bootstrap``, ``NCCL socket 0`` (the number is
    # that of NCCL's device), ``RoCE mlx5_0:1``.
    purpose: str
    rule: str  # what led there, such as a variable's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Addresses of different nodes that one network carries; every rank may dial any of them."""

    id: str  # ``main``, then ``2``, ``3``…
    # addresses, ifnames: of the nodes that are dialled here, by node.
    addresses: dict[str, str]
    ifnames: dict[str, str] = field(default_factory=dict)
    # Addresses from which nodes send here, as far as networks tell.
    sources: dict[str, str] = field(default_factory=dict)
    network: str = ""  # of the addresses, empty where they are in several
    users: tuple[str, ...] = ()  # what dials here, ``NCCL``, ``gloo``, ``MASTER_ADDR``; of a rail, its ports
    tried: bool = True  # of a rail, whether what it carries can be distinguished from the node's others

    @property
    def is_main(self) -> bool:
        return self.id == MAIN

    @property
    def is_rail(self) -> bool:
        return self.id.startswith(RAIL)

    @property
    def label(self) -> str:
        """``eth1 (10.1.0.0/24: NCCL)``."""
        names = listing(dict.fromkeys(self.ifnames.values()), 3)
        about = ": ".join(filter(None, (self.network, listing(self.users))))
        return f"{names} ({about})" if about else names or "the main path"


@fact("paths", scope="cluster", origin="control")
@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """All paths of a job, and what they were worked out from."""

    # The main one first, which is that of Job.data_addresses, then those that add an address to it.
    paths: tuple[Path, ...] = ()
    # Of RoCE ports, rail with rail; no TCP connection of the job goes there.
    rails: tuple[Path, ...] = ()
    uses: tuple[Use, ...] = ()  # every address that the job advertises, those that nobody can dial included
    # Purposes that were not counted, or are not known, and why.
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def further(self) -> tuple[Path, ...]:
        return tuple(path for path in self.paths if not path.is_main)

    @property
    def beside(self) -> tuple[Path, ...]:
        """All but the main one, rails too."""
        return (*self.further, *self.rails)


class Probe(Protocol):
    """What was tried from one node to an address of another; some have a `source`, the address sent from."""

    @property
    def src(self) -> str: ...

    @property
    def dst(self) -> str: ...

    @property
    def address(self) -> str: ...


def path_of(paths: Paths | None) -> Callable[[Probe], Path | None]:
    """Tells on which path a probe was, by the addresses that it went from and to; None for the main one."""
    further = {(n, a): p for p in reversed(paths.further if paths else ()) for n, a in p.addresses.items()}
    rails: dict[tuple[str, str], list[Path]] = {}
    for rail in paths.rails if paths else ():
        for end in rail.addresses.items():
            rails.setdefault(end, []).append(rail)

    def find(probe: Probe) -> Path | None:
        source, end = getattr(probe, "source", ""), (probe.dst, probe.address)
        if not source:
            return further.get(end)
        return next((rail for rail in rails.get(end, ()) if rail.sources.get(probe.src) == source), None)

    return find
