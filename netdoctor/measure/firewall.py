"""Firewall rule sets, where something was filtered."""

from typing import Any

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.net import FirewallFacts, PortMatrix
from netdoctor.measure.common import facts_of
from netdoctor.measure.declare import Context, experiment
from netdoctor.store import NOT_COLLECTED

ASKING_S = 15.0


@experiment(after=["ports"], bound_s=ASKING_S)
def firewall(context: Context) -> dict[str, FirewallFacts | Missing]:
    """Rule sets of the nodes at either end of what was filtered; nobody else's are looked at."""
    nodes = dict.fromkeys(context.participants.nodes)
    matrix = context.store.cluster_fact("ports")
    if not isinstance(matrix, PortMatrix):
        why = Missing(Why.NOT_COLLECTED, "no port was tried") if matrix is NOT_COLLECTED else matrix
        return dict.fromkeys(nodes, why)
    ends: dict[str, dict[str, Any]] = {n: {} for n in filtered_ends(matrix) if n in nodes}
    quiet = Missing(Why.NOT_APPLICABLE, "nothing is filtered here")
    return dict.fromkeys(nodes, quiet) | facts_of(context.transport, "firewall", ends, ASKING_S)


def filtered_ends(ports: PortMatrix) -> dict[str, None]:
    """Nodes at either end of a connection that was filtered, rejected or refused, in first-seen order.

    Refused too: netdoctor listens there, so it was a rule that answered with a TCP reset.
    """
    ends: dict[str, None] = {}
    for probe in ports.probes:
        if probe.outcome in ("filtered", "rejected", "refused"):
            ends.setdefault(probe.src)
            ends.setdefault(probe.dst)
    return ends
