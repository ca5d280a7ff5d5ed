"""Counters of links, read once more at the end: what grew meanwhile grew under load."""

from dataclasses import replace

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.counters import LaterCounters
from netdoctor.facts.gpu import GpuFacts
from netdoctor.measure.common import facts_of
from netdoctor.measure.declare import Context, experiment
from netdoctor.transport.base import Request

ASKING_S = 15.0
# Where nothing took longer, each node waits by itself until so much lies between its two readings.
APART_S = 2.0


@experiment(bound_s=2 * ASKING_S, needs=["counters"], last=True)
def counters(context: Context) -> dict[str, LaterCounters | Missing]:
    """Error counters of links once more, after all that loads them."""
    nodes = context.participants.nodes
    requests = {}
    for node, first in context.store.present("counters", nodes).items():
        groups = {"counters": {"not_before_s": first.uptime_s + APART_S}}
        requests[node] = Request(op="facts", args={"groups": groups}, timeout_s=ASKING_S)
    found: dict[str, LaterCounters | Missing] = dict.fromkeys(
        nodes, Missing(Why.NOT_COLLECTED, "there is no first reading")
    )
    for node, later in facts_of(context.transport, requests, "counters").items():
        found[node] = later if isinstance(later, Missing) else LaterCounters(reading=later)
    # Apart from them: NVML may hang, where files do not.
    request = Request(op="facts", args={"groups": {"gpu": {"counters": True}}}, timeout_s=ASKING_S)
    have = [node for node, facts in context.store.present("gpu", nodes).items() if facts.devices]
    for node, gpu in facts_of(context.transport, dict.fromkeys(have, request), "gpu").items():
        first = found[node]
        if isinstance(first, LaterCounters) and isinstance(gpu, GpuFacts):
            found[node] = replace(first, gpu=gpu)
    return found
