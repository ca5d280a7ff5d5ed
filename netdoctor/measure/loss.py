"""Packet loss between nodes, over directed pairs at once."""

from netdoctor.facts.bandwidth import LossMatrix, LossProbe
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

# Every directed pair up to 16 nodes; beyond, 8 seeded peers per node.
ALL_PAIRS_UP_TO = 16
PEERS_WHEN_SAMPLED = 8
# With seven peers some 1,500 small packets per second leave a node: far from filling any link or queue.
PACKETS = 250
SECONDS = 1.25


def measure(transport: Caller, ground: Ground) -> LossMatrix:
    """Small datagrams to echoes, which count what arrives: each direction is told by itself."""
    nodes = ground.usable()
    failed: dict[str, str] = {n: NO_ADDRESS for n in ground.nodes if n not in nodes}
    if len(nodes) < 2:
        return LossMatrix(failed_nodes=failed)
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
    requests = {
        src: Request(
            op="udp_loss",
            args={"targets": targets[src], "token": word, "packets": PACKETS, "seconds": SECONDS},
            timeout_s=SECONDS + 15.0,
        )
        for src in nodes
        if targets[src]
    }
    probes: list[LossProbe] = []
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
            probe = converted(row, reply.node, LossProbe)
            if isinstance(probe, str):
                failed.setdefault(reply.node, probe)
            else:
                probes.append(probe)
    for _ in replies(transport, {n: Request(op="unlisten", timeout_s=5.0) for n in nodes}):
        pass
    probes = [p for p in probes if p.dst not in silent]
    order = {n: i for i, n in enumerate(nodes)}
    probes.sort(key=lambda p: (order.get(p.src, 0), order.get(p.dst, 0)))
    return LossMatrix(probes=tuple(probes), seconds=SECONDS, failed_nodes=failed)
