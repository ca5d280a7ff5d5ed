"""Counters of links, read once more at the end: what grew meanwhile grew under load."""

from dataclasses import replace

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.counters import LaterCounters
from netdoctor.facts.gpu import GpuFacts
from netdoctor.measure.common import facts_of
from netdoctor.measure.declare import Context, experiment

ASKING_S = 15.0
# Where nothing took longer, each node waits by itself until so much lies between its two readings.
APART_S = 2.0


@experiment(bound_s=2 * ASKING_S, needs=["counters"], last=True)
def counters(context: Context) -> dict[str, LaterCounters | Missing]:
    """Error counters of links once more, after all that loads them."""
    nodes = context.participants.nodes
    before = context.store.present("counters", nodes)
    args = {node: {"not_before_s": first.uptime_s + APART_S} for node, first in before.items()}
    found: dict[str, LaterCounters | Missing] = dict.fromkeys(
        nodes, Missing(Why.NOT_COLLECTED, "there is no first reading")
    )
    for node, later in facts_of(context.transport, "counters", args, ASKING_S).items():
        found[node] = later if isinstance(later, Missing) else LaterCounters(reading=later)
    # Apart from them: NVML may hang, where files do not.
    have = {n: {"counters": True} for n, gpu in context.store.present("gpu", nodes).items() if gpu.devices}
    for node, gpu in facts_of(context.transport, "gpu", have, ASKING_S).items():
        first = found[node]
        if isinstance(first, LaterCounters) and isinstance(gpu, GpuFacts):
            found[node] = replace(first, gpu=gpu)
    return found
