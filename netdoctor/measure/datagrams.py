"""Datagrams between nodes, to echoes on the others: how many are lost, how large they may be."""

from netdoctor.facts.bandwidth import LossMatrix, LossProbe
from netdoctor.facts.net import MtuProbe, PathMtus
from netdoctor.measure.common import CLOSE_S, ECHO_OPEN_S, over_echoes
from netdoctor.measure.declare import Context, experiment

# With seven peers some 1,500 small packets per second leave a node: far from filling any link or queue.
PACKETS = 250
SECONDS = 1.25
COUNTING_S = SECONDS + 15.0
TIMEOUT_S = 0.6
PROBING_S = 60.0


@experiment(after=["ports"], bound_s=ECHO_OPEN_S + PROBING_S + CLOSE_S, cost="opens-port")
def path_mtu(context: Context) -> PathMtus:
    """Datagrams of different sizes, not to be fragmented, to echoes on the others."""
    args = {"timeout_s": TIMEOUT_S}
    found = over_echoes(
        context.transport, context.participants, MtuProbe, "path_mtu", args, PROBING_S, rails=True
    )
    # An echo on a node that went away in the meantime answers nobody, and says nothing about the path.
    probes = tuple(p for p in found.probes if p.dst not in found.silent or p.outcome == "ok")
    return PathMtus(probes=probes, failed_nodes=found.failed)


@experiment(after=["ports", "path_mtu"], bound_s=ECHO_OPEN_S + COUNTING_S + CLOSE_S, cost="opens-port")
def loss(context: Context) -> LossMatrix:
    """Packet loss: small datagrams to echoes, which count what arrives in each direction."""
    args = {"packets": PACKETS, "seconds": SECONDS}
    found = over_echoes(context.transport, context.participants, LossProbe, "udp_loss", args, COUNTING_S)
    probes = tuple(p for p in found.probes if p.dst not in found.silent)
    return LossMatrix(probes=probes, seconds=SECONDS if found.probes else 0.0, failed_nodes=found.failed)
