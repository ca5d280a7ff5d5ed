"""Largest packet that passes between nodes without fragmentation."""

from netdoctor.facts.net import MtuProbe, PathMtus
from netdoctor.measure.common import (
    NO_ADDRESS,
    Caller,
    Ground,
    answered,
    converted,
    open_echoes,
    peers,
    reason,
    replies,
    token,
)
from netdoctor.transport.base import Request

# Every directed pair up to 16 nodes (a black hole sits on one path); beyond, 8 seeded peers per node.
ALL_PAIRS_UP_TO = 16
PEERS_WHEN_SAMPLED = 8
TIMEOUT_S = 0.6


def measure(transport: Caller, ground: Ground) -> PathMtus:
    """UDP probes with the don't-fragment bit over directed pairs."""
    nodes = ground.usable()
    failed: dict[str, str] = {n: NO_ADDRESS for n in ground.nodes if n not in nodes}
    if len(nodes) < 2:
        return PathMtus(failed_nodes=failed)
    word = token()
    echoes = open_echoes(transport, ground, nodes, word, failed)
    plan = peers(nodes, at_most=ALL_PAIRS_UP_TO, count=PEERS_WHEN_SAMPLED)
    targets = {
        src: [
            {"dst": dst, "address": ground.addresses[dst], "port": echoes[dst]}
            for dst in plan[src]
            if dst in echoes and (src, dst) not in ground.dead
        ]
        for src in nodes
    }
    probes: list[MtuProbe] = []
    requests = {
        src: Request(
            op="path_mtu",
            args={"targets": targets[src], "token": word, "timeout_s": TIMEOUT_S},
            timeout_s=60.0,
        )
        for src in nodes
        if targets[src]
    }
    silent: set[str] = set()
    for reply in replies(transport, requests):
        if reply.missing is not None:
            silent.add(reply.node)
            failed.setdefault(reply.node, reason(reply))
            continue
        found, gap = answered(reply, targets[reply.node], ("dst", "address"))
        if gap is not None:
            failed.setdefault(reply.node, gap)
        for row in found:
            probe = converted(row, reply.node, MtuProbe)
            if isinstance(probe, str):
                failed.setdefault(reply.node, probe)
            else:
                probes.append(probe)
    # Not in a `finally`: after an interrupt nobody waits for this, and agents close with their sessions.
    for _ in replies(transport, {n: Request(op="unlisten", timeout_s=5.0) for n in nodes}):
        pass
    # An echo on a node that went away in the meantime answers nobody, and says nothing about the path.
    probes = [p for p in probes if p.dst not in silent or p.outcome == "ok"]
    order = {n: i for i, n in enumerate(nodes)}
    probes.sort(key=lambda p: (order.get(p.src, 0), order.get(p.dst, 0)))
    return PathMtus(probes=tuple(probes), failed_nodes=failed)
