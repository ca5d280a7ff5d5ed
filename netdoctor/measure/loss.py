"""Packet loss between nodes, over directed pairs at once."""

from netdoctor.facts.bandwidth import LossMatrix, LossProbe
from netdoctor.measure.common import CLOSE_S, ECHO_OPEN_S, over_echoes
from netdoctor.measure.declare import Context, experiment

# With seven peers some 1,500 small packets per second leave a node: far from filling any link or queue.
PACKETS = 250
SECONDS = 1.25
COUNTING_S = SECONDS + 15.0


@experiment(after=["ports", "path_mtu"], bound_s=ECHO_OPEN_S + COUNTING_S + CLOSE_S, cost="opens-port")
def loss(context: Context) -> LossMatrix:
    """Packet loss: small datagrams to echoes, which count what arrives in each direction."""
    args = {"packets": PACKETS, "seconds": SECONDS}
    found = over_echoes(context.transport, context.participants, LossProbe, "udp_loss", args, COUNTING_S)
    probes = tuple(p for p in found.probes if p.dst not in found.silent)
    return LossMatrix(probes=probes, seconds=SECONDS if found.probes else 0.0, failed_nodes=found.failed)
