"""Facts about what links count: errors and link events of RDMA ports and of network interfaces."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.facts.base import fact
from netdoctor.facts.gpu import GpuFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Counters of one RDMA port (``mlx5_0:1``) or interface (``ens1f0``).

    values: those that are not 0, by the kernel's names, since whatever made them begin. read: how many could
    be read, so that 0 is told from nothing. Of interfaces that carry RDMA also tx_pauses, rx_pauses (frames),
    tx_pause_us, rx_pause_us, over all priorities, and tx_pause_storm_*. uppers: interfaces on top of this
    one: bonds, bridges, VLANs.
    """

    name: str
    values: Mapping[str, int] = field(default_factory=dict)
    read: int = 0
    uppers: tuple[str, ...] = ()


@fact("counters")
@dataclass(frozen=True, slots=True, kw_only=True)
class CounterFacts:
    """One reading, when the node has been up for `uptime_s`.

    netdevs: interfaces that are up and have a device behind them; the virtual ones where none has, as in a
    container. No wireless ones.
    """

    uptime_s: float
    ports: tuple[Counted, ...] = ()
    netdevs: tuple[Counted, ...] = ()

    def lacks(self) -> str:
        return "" if self.uptime_s > 0 else "for how long it has been up"


@fact("counters_later", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class LaterCounters:
    """The same once more, after all that was measured. gpu: what GPUs count, and nothing else of them."""

    reading: CounterFacts
    gpu: GpuFacts | None = None
