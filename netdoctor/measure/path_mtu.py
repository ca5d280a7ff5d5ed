"""Largest packet that passes between nodes without fragmentation."""

from netdoctor.facts.net import MtuProbe, PathMtus
from netdoctor.measure.common import CLOSE_S, ECHO_OPEN_S, over_echoes
from netdoctor.measure.declare import Context, experiment

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
