"""Nodes as Ray has them: in its table, alive, and starting an actor."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.outcomes import outcomes
from netdoctor.facts.host import Login, Node, Session
from netdoctor.model import Finding, ok, seen

OUTCOMES = outcomes("ray", "nodes.toml")


@check(after=(), via="ray", source="https://docs.ray.io/en/releases-2.44.1/ray-core/api/doc/ray.nodes.html")
def ray_nodes(node: Node, session: Session) -> Iterator[Finding]:
    """Ray has every node alive in its table, and starts an actor on it.

    Looks at:
        Ray's own table of nodes. On each node one actor that starts netdoctor's agent
        (NodeAffinitySchedulingStrategy, no CPU, no GPU).

    Matters because:
        A placement group waits for ever for a node that is dead or never joined. If an actor cannot start
        there, the job ends with RayActorError.

    Fix:
        Read the raylet's log on the node, and start Ray there again with the address of the head.
    """
    if session.outcome == Login.OK:
        if session.noise:
            yield ok(node.id, "the agent runs", evidence=(seen("printed at its start", session.noise),))
        return
    text = session.outcome.replace("_", " ")
    yield OUTCOMES.finding(
        session.outcome if session.outcome in OUTCOMES.outcome else Login.CONTROL,
        {},
        session.detail or text,
        observed=text,
        expected="alive in Ray's table, and an actor that starts",
        seen=seen(f"Ray, {session.stage}", session.detail),
    )
