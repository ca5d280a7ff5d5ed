"""Routes to the peers' data addresses, and firewall rule sets where something was filtered."""

from collections.abc import Sequence
from typing import Any

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.net import PortMatrix
from netdoctor.measure.common import NO_ADDRESS, Caller, Ground, peers, replies
from netdoctor.store import decode
from netdoctor.transport.base import Request


def measure_routes(transport: Caller, ground: Ground) -> dict[str, Any]:
    """RouteFacts (or Missing) by node."""
    nodes = ground.usable()
    plan = peers(nodes)
    requests = {
        n: Request(
            op="facts",
            args={"groups": {"routes": {"destinations": {p: ground.addresses[p] for p in plan[n]}}}},
            timeout_s=15.0,
        )
        for n in nodes
    }
    found = _facts(transport, requests, "routes")
    nowhere = Missing(Why.FAILED, NO_ADDRESS)
    return {n: found.get(n, nowhere) for n in ground.nodes}


def measure_firewall(transport: Caller, nodes: Sequence[str]) -> dict[str, Any]:
    """FirewallFacts (or Missing) by node."""
    requests = {n: Request(op="facts", args={"groups": {"firewall": {}}}, timeout_s=15.0) for n in nodes}
    return _facts(transport, requests, "firewall")


def filtered_ends(ports: PortMatrix) -> list[str]:
    """Nodes at either end of a connection that was filtered, rejected or refused, in first-seen order.

    Refused too: netdoctor listens there, so it was a rule that answered with a TCP reset.
    """
    ends: dict[str, None] = {}
    for probe in ports.probes:
        if probe.outcome in ("filtered", "rejected", "refused"):
            ends.setdefault(probe.src)
            ends.setdefault(probe.dst)
    return list(ends)


def _facts(transport: Caller, requests: dict[str, Request], group: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for reply in replies(transport, requests):
        if reply.missing is not None:
            found[reply.node] = reply.missing
        else:
            answer = reply.result.get(group) if isinstance(reply.result, dict) else None
            found[reply.node] = decode(group, answer)
    return found
