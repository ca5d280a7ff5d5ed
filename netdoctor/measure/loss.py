"""Packet loss between nodes, over directed pairs at once."""

from netdoctor.facts.bandwidth import LossMatrix, LossProbe
from netdoctor.measure.common import Caller, Ground, over_echoes

# With seven peers some 1,500 small packets per second leave a node: far from filling any link or queue.
PACKETS = 250
SECONDS = 1.25


def measure(transport: Caller, ground: Ground) -> LossMatrix:
    """Small datagrams to echoes, which count what arrives: each direction is told by itself."""
    args = {"packets": PACKETS, "seconds": SECONDS}
    found = over_echoes(transport, ground, LossProbe, "udp_loss", args, SECONDS + 15.0)
    probes = tuple(p for p in found.probes if p.dst not in found.silent)
    return LossMatrix(probes=probes, seconds=SECONDS if found.probes else 0.0, failed_nodes=found.failed)
