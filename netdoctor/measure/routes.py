"""Routes to the peers' data addresses."""

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.net import RouteFacts
from netdoctor.measure.common import NO_ADDRESS, facts_of, peers
from netdoctor.measure.declare import Context, experiment

ASKING_S = 15.0


@experiment(bound_s=ASKING_S)
def routes(context: Context) -> dict[str, RouteFacts | Missing]:
    """Every node looks up its way to the others' addresses, on each path of the job."""
    participants = context.participants
    nodes = participants.usable()
    plan = peers(nodes)
    further = {n: [one.address for one in participants.addresses_of(n)[1:]] for n in nodes}
    args = {
        n: {
            "destinations": {p: participants.addresses[p] for p in plan[n]},
            "further": [address for p in plan[n] for address in further[p]],
        }
        for n in nodes
    }
    found = facts_of(context.transport, "routes", args, ASKING_S)
    nowhere = Missing(Why.FAILED, NO_ADDRESS)
    return {n: found.get(n, nowhere) for n in participants.nodes}
