"""Facts about what links count: errors and link events of RDMA ports and of network interfaces."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.facts.base import fact
from netdoctor.facts.gpu import GpuFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Counters of one RDMA port (``mlx5_0:1``) or interface (``ens1f0``)."""

    name: str
    # Those that are not 0, by the kernel's names, since whatever made them begin.
    values: Mapping[str, int] = field(default_factory=dict)
    # How many could be read, to distinguish 0 from nothing. Of interfaces that carry RDMA also tx_pauses,
    # rx_pauses (frames), tx_pause_us, rx_pause_us, over all priorities, and tx_pause_storm_*.
    read: int = 0
    uppers: tuple[str, ...] = ()  # interfaces on top of this one: bonds, bridges, VLANs


@fact("counters")
@dataclass(frozen=True, slots=True, kw_only=True)
class CounterFacts:
    """One reading, when the node has been up for `uptime_s`."""

    uptime_s: float
    ports: tuple[Counted, ...] = ()
    # Interfaces that are up and have a device behind them; the virtual ones where none has, as in a
    # container. No wireless ones.
    netdevs: tuple[Counted, ...] = ()

    def missing_field(self) -> str:
        return "" if self.uptime_s > 0 else "for how long it has been up"


@fact("counters_later", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class LaterCounters:
    """The same again, after all that was measured."""

    reading: CounterFacts
    gpu: GpuFacts | None = None  # what GPUs count, and nothing else of them
