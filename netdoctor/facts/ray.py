"""Facts about a node of a Ray cluster, and about connections between them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.facts.base import fact
from netdoctor.facts.net import PortProbe


@fact("ray", absent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class RayFacts:
    """The raylet that runs on a node, as it was started."""

    version: str | None = None  # version, commit: of the Ray that it belongs to
    commit: str | None = None
    python: str = ""  # what runs its workers
    python_version: str | None = None  # ``3.11.7``
    address: str = ""  # where its peers dial it
    gcs_address: str = ""  # ``host:port`` of the head
    # Those that it listens on, for its node manager and object manager; empty where this user may not see.
    ports: tuple[int, ...] = ()
    # The lowest and the highest that workers listen on, None for those that the kernel picks.
    worker_ports: tuple[int, int] | None = None
    raylets: int = 1  # how many there are of this cluster at this address; the first one is reported
    cpus: float | None = None  # cpus, gpus: what all of them offer, None where it was not said
    gpus: float | None = None
    object_store_bytes: int | None = None
    object_store_dir: str = ""  # ``/dev/shm``, or where it went instead

    def missing_field(self) -> str:
        return "" if self.address or self.gcs_address else "where the raylet is dialled"


@fact("ray_ports", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class RayPorts:
    """Connections between raylets, to the head, and to a port of those that workers get.

    PortProbe.purpose: ``raylet``, ``gcs``, ``worker``.
    """

    probes: tuple[PortProbe, ...] = ()
    failed_nodes: Mapping[str, str] = field(default_factory=dict)  # why a node took no part, by node
    timeout_s: float = 0.0
