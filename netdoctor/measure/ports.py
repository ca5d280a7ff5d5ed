"""Which TCP ports every node reaches on every other, over listeners that netdoctor opens itself."""

import random
from collections import Counter
from typing import Any

import msgspec

from netdoctor.facts.net import PortMatrix, PortProbe, TestListener
from netdoctor.measure.common import Ground, peers, reason, replies, rows, token
from netdoctor.transport.base import Request, Transport

# NCCL and gloo listen on kernel-chosen ports (bind to port 0), so a sample of the ephemeral range stands for
# them: near both ends and in the middle, where a partly opened range shows.
FRACTIONS = (0.04, 0.5, 0.96)
# Three seconds of silence are two SYN retransmissions (at 1 s and 3 s, RFC 6298 with Linux's initial RTO).
TIMEOUT_S = 3.2


def measure(transport: Transport, ground: Ground, *, seed: int = 0) -> PortMatrix:
    """The directed matrix over the rendezvous port and three ephemeral ports per node.

    A node that cannot open listeners or does not report is named in `failed_nodes`; the rest stands.
    """
    nodes = ground.usable()
    failed: dict[str, str] = {n: "has no usable data address" for n in ground.nodes if n not in nodes}
    if len(nodes) < 2:
        return PortMatrix(failed_nodes=failed, timeout_s=TIMEOUT_S)
    word = token()
    listeners = _open(transport, ground, nodes, word, failed, random.Random(seed))  # noqa: S311  port sample
    try:
        plan = peers(nodes)
        if ground.master in nodes:
            for node in nodes:
                if node != ground.master and ground.master not in plan[node]:
                    plan[node].append(str(ground.master))
        requests = {
            src: Request(
                op="connect",
                args={
                    "targets": [
                        {
                            "dst": one.node,
                            "address": one.address,
                            "port": one.port,
                            "purpose": one.purpose,
                        }
                        for dst in plan[src]
                        for one in listeners.get(dst, [])
                        # a busy rendezvous port is still dialled: who answers there shows the way is open
                        if one.error in (None, "EADDRINUSE")
                    ],
                    "timeout_s": TIMEOUT_S,
                    "token": word,
                    "parallel": 256,
                },
                timeout_s=TIMEOUT_S * 4 + 10,
            )
            for src in nodes
        }
        probes: list[PortProbe] = []
        for reply in replies(transport, requests):
            if reply.missing is not None:
                failed.setdefault(reply.node, reason(reply))
                continue
            probes.extend(_probe(reply.node, row) for row in rows(reply))
    finally:
        for _ in replies(transport, {n: Request(op="unlisten", timeout_s=5.0) for n in nodes}):
            pass
    order = {n: i for i, n in enumerate(nodes)}
    probes.sort(key=lambda p: (order.get(p.src, 0), order.get(p.dst, 0), p.purpose != "rendezvous", p.port))
    return PortMatrix(
        probes=tuple(probes),
        listeners=tuple(one for many in listeners.values() for one in many),
        timeout_s=TIMEOUT_S,
        possible=len(nodes) * (len(nodes) - 1),
        failed_nodes=failed,
    )


def _open(
    transport: Transport,
    ground: Ground,
    nodes: list[str],
    word: str,
    failed: dict[str, str],
    rng: random.Random,
) -> dict[str, list[TestListener]]:
    requests = {}
    for node in nodes:
        low, high = (ground.ephemeral or {}).get(node, (32768, 60999))
        span = max(high - low, 1)
        sample = [low + int(span * f) + rng.randrange(max(span // 50, 1)) for f in FRACTIONS]
        wanted = [{"port": ground.master_port, "purpose": "rendezvous"}]
        wanted += [{"port": port, "purpose": "ephemeral"} for port in dict.fromkeys(sample)]
        for row in wanted:
            row["address"] = ground.addresses[node]
        requests[node] = Request(
            op="listen",
            args={"listeners": wanted, "token": word, "ttl_s": 120.0},
            timeout_s=10.0,
        )
    opened: dict[str, list[TestListener]] = {}
    for reply in replies(transport, requests):
        if reply.missing is not None:
            failed[reply.node] = f"could not open test listeners: {reason(reply)}"
            continue
        opened[reply.node] = [
            TestListener(
                node=reply.node,
                address=str(row.get("address", "")),
                port=_int(row.get("port")),
                purpose=str(row.get("purpose", "")),
                error=None if row.get("error") is None else str(row.get("error"))[:200],
            )
            for row in rows(reply)
        ]
    return {n: opened[n] for n in nodes if n in opened}


def _probe(src: str, row: dict[str, Any]) -> PortProbe:
    try:
        return msgspec.convert({**row, "src": src}, type=PortProbe)
    except msgspec.ValidationError as error:
        return PortProbe(
            src=src,
            dst=str(row.get("dst", "")),
            address=str(row.get("address", "")),
            port=_int(row.get("port")),
            purpose=str(row.get("purpose", "")),
            outcome="error",
            detail=f"unreadable answer: {error}",
        )


def _int(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 65536 else 0


def summary(ports: PortMatrix) -> dict[str, int]:
    """How many probes ended how."""
    return dict(Counter(probe.outcome for probe in ports.probes))
