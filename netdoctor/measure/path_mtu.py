"""Largest packet that passes between nodes without fragmentation."""

import msgspec

from netdoctor.facts.net import MtuProbe, PathMtus
from netdoctor.measure.common import Ground, peers, reason, replies, rows, token
from netdoctor.transport.base import Request, Transport

# Every directed pair up to 16 nodes (a black hole sits on one path); beyond, 8 seeded peers per node.
ALL_PAIRS_UP_TO = 16
TIMEOUT_S = 0.6


def measure(transport: Transport, ground: Ground) -> PathMtus:
    """UDP probes with the don't-fragment bit over directed pairs."""
    nodes = ground.usable()
    failed: dict[str, str] = {n: "has no usable data address" for n in ground.nodes if n not in nodes}
    if len(nodes) < 2:
        return PathMtus(failed_nodes=failed)
    word = token()
    echoes: dict[str, int] = {}
    requests = {
        n: Request(
            op="udp_echo",
            args={"address": ground.addresses[n], "token": word, "ttl_s": 120.0},
            timeout_s=10.0,
        )
        for n in nodes
    }
    for reply in replies(transport, requests):
        port = reply.result.get("port") if isinstance(reply.result, dict) else None
        if isinstance(port, int):
            echoes[reply.node] = port
        else:
            failed[reply.node] = f"could not open a UDP echo: {reason(reply)}"
    plan = peers(nodes, at_most=ALL_PAIRS_UP_TO)
    probes: list[MtuProbe] = []
    try:
        asked = {}
        for src in nodes:
            targets = [
                {"dst": dst, "address": ground.addresses[dst], "port": echoes[dst]}
                for dst in (plan[src] if len(nodes) <= ALL_PAIRS_UP_TO else plan[src][:8])
                if dst in echoes
            ]
            if targets:
                asked[src] = Request(
                    op="path_mtu",
                    args={"targets": targets, "token": word, "timeout_s": TIMEOUT_S},
                    timeout_s=60.0,
                )
        for reply in replies(transport, asked):
            if reply.missing is not None:
                failed.setdefault(reply.node, reason(reply))
            for row in rows(reply):
                try:
                    probes.append(msgspec.convert({**row, "src": reply.node}, type=MtuProbe))
                except msgspec.ValidationError as error:
                    failed.setdefault(reply.node, f"unreadable answer: {error}")
    finally:
        for _ in replies(transport, {n: Request(op="unlisten", timeout_s=5.0) for n in nodes}):
            pass
    order = {n: i for i, n in enumerate(nodes)}
    probes.sort(key=lambda p: (order.get(p.src, 0), order.get(p.dst, 0)))
    return PathMtus(probes=tuple(probes), failed_nodes=failed)
