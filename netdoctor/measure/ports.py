"""Which TCP ports every node reaches on every other, over listeners that netdoctor opens itself."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from netdoctor.facts.net import PortMatrix, PortProbe, TestListener
from netdoctor.measure.common import (
    CLOSE_S,
    EPHEMERAL,
    NO_ADDRESS,
    RENDEZVOUS,
    Caller,
    Participants,
    answered,
    close_listeners,
    converted,
    peers,
    reason,
    replies,
    rows,
    token,
)
from netdoctor.measure.declare import Context, experiment
from netdoctor.transport.base import Request

# NCCL and gloo listen on kernel-chosen ports (bind to port 0), so a sample of the ephemeral range stands for
# them: near both ends and in the middle, where a partly opened range shows.
FRACTIONS = (0.04, 0.5, 0.96)
# Three seconds of silence are two SYN retransmissions (at 1 s and 3 s, RFC 6298 with Linux's initial RTO).
TIMEOUT_S = 3.2
OPEN_S = 10.0
CONNECT_S = TIMEOUT_S * 4 + 10
# Who did not answer is asked again from parts of the range of source ports that are far from each other: a
# filter without state that drops by port drops answers to some of them. One SYN retransmission is enough.
SOURCES = (0.11, 0.36, 0.89)
AGAIN_TIMEOUT_S = 1.2
AGAIN_S = 8.0
MOST_AGAIN = 64
OPEN = ("open", "in_use")
OUTCOMES = ("open", "refused", "filtered", "rejected", "no_route", "in_use", "error")
DEFAULT_RANGE = (32768, 60999)  # net.ipv4.ip_local_port_range, Documentation/networking/ip-sysctl.rst


@experiment(after=["routes"], bound_s=OPEN_S + CONNECT_S + AGAIN_S + CLOSE_S, cost="opens-port")
def ports(context: Context) -> PortMatrix:
    """Every node dials the others' rendezvous port, and some of those that NCCL and gloo may get.

    All paths of the job at once; beside the main one only the kind of ports that the job dials there, on
    rails of RoCE one port, from the rail's own address: what RDMA needs, too, is a way there.

    A node that cannot open listeners or does not report is named in `failed_nodes`; the rest stands.
    """
    transport, participants = context.transport, context.participants
    nodes = participants.usable()
    failed: dict[str, str] = {n: NO_ADDRESS for n in participants.nodes if n not in nodes}
    if len(nodes) < 2:
        return PortMatrix(failed_nodes=failed, timeout_s=TIMEOUT_S)
    word = token()
    # Other ports than another scan's that runs at the same time.
    sample = random.Random(word)  # noqa: S311  of ports, and no secret
    listeners = _open(transport, participants, nodes, word, failed, sample)
    plan = peers(nodes)
    master = participants.master
    if master is not None and master in plan:
        for node in nodes:
            if node != master and master not in plan[node]:
                plan[node].append(master)
    targets = {
        src: [
            {"dst": dst, "address": one.address, "port": one.port, "purpose": one.purpose, **source}
            for dst in plan[src]
            for one in listeners.get(dst, [])
            # a busy rendezvous port is still dialled: who answers there shows the way is open
            if one.error in (None, "EADDRINUSE")
            for source in participants.sources(src, dst, one.address)
            if not source or one.purpose == EPHEMERAL
        ]
        for src in nodes
    }
    requests = {
        src: Request(
            op="connect",
            args={"targets": targets[src], "timeout_s": TIMEOUT_S, "token": word, "parallel": 256},
            timeout_s=CONNECT_S,
        )
        for src in nodes
    }
    probes: list[PortProbe] = []
    silent: set[str] = set()
    for reply in replies(transport, requests):
        if reply.missing is not None:
            silent.add(reply.node)
            failed.setdefault(reply.node, reason(reply))
            continue
        found, gap = answered(reply, targets[reply.node], NAME)
        if gap is not None:
            failed.setdefault(reply.node, gap)
        probes.extend(_probe(reply.node, row) for row in found)
    probes = _from_elsewhere(context, probes, word)
    close_listeners(transport, nodes)
    # The listeners of a node that went away in the meantime are gone: what failed there is no firewall.
    probes = [p for p in probes if p.dst not in silent or p.outcome in OPEN]
    # So may be whoever held a port when we could not have it, such as another scan.
    all_listeners = [one for many in listeners.values() for one in many]
    theirs = {(one.node, one.address, one.port) for one in all_listeners if one.error is not None}
    probes = [p for p in probes if (p.dst, p.address, p.port) not in theirs or p.outcome != "refused"]
    order = {n: i for i, n in enumerate(nodes)}
    first = participants.addresses
    probes.sort(
        key=lambda p: (
            *(order.get(p.src, 0), order.get(p.dst, 0)),
            *(p.address != first.get(p.dst), p.purpose != RENDEZVOUS, p.port),
        )
    )
    return PortMatrix(
        probes=tuple(probes),
        listeners=tuple(all_listeners),
        timeout_s=TIMEOUT_S,
        possible=len(nodes) * (len(nodes) - 1),
        failed_nodes=failed,
    )


def _open(
    transport: Caller,
    participants: Participants,
    nodes: list[str],
    word: str,
    failed: dict[str, str],
    rng: random.Random,
) -> dict[str, list[TestListener]]:
    requests = {}
    for node in nodes:
        low, high = _range(participants, node)
        span = high - low
        sample = [low + int(span * f) + rng.randrange(max(span // 50, 1)) for f in FRACTIONS]
        ports = {participants.master_port: RENDEZVOUS}
        ports |= dict.fromkeys((p for p in sample if p != participants.master_port), EPHEMERAL)
        wanted = [
            {"port": number, "purpose": purpose, "address": way.address}
            for way in participants.ways(node)
            for number, purpose in ports.items()
            if purpose in way.purposes
        ]
        on_rails = participants.on_rails(node)
        wanted += [{"port": sample[-1], "purpose": EPHEMERAL, **row} for row in on_rails]
        requests[node] = Request(
            op="listen",
            args={"listeners": wanted, "token": word, "ttl_s": 120.0},
            timeout_s=OPEN_S,
        )
    opened: dict[str, list[TestListener]] = {}
    for reply in replies(transport, requests):
        if reply.missing is not None:
            failed[reply.node] = f"could not open test listeners: {reason(reply)}"
            continue
        # Address and purpose are ours: a node does not get to choose where all the others dial.
        listed = requests[reply.node].args["listeners"]
        asked = {(row["address"], row["port"]): row["purpose"] for row in listed}
        mine = opened[reply.node] = []
        for row in rows(reply):
            address, port = str(row.get("address")), row.get("port")
            if isinstance(port, int) and (address, port) in asked:
                mine.append(
                    TestListener(
                        node=reply.node,
                        address=address,
                        port=port,
                        purpose=asked.pop((address, port)),
                        error=None if row.get("error") is None else str(row.get("error"))[:200],
                    )
                )
        closed = [one for one in mine if one.error not in (None, "EADDRINUSE")]
        if asked:
            failed[reply.node] = f"{len(asked)} test listeners were not answered for"
        elif closed:
            failed[reply.node] = f"could not listen on port {closed[0].port}: {closed[0].error}"
    return {n: opened[n] for n in nodes if n in opened}


def _from_elsewhere(context: Context, probes: Sequence[PortProbe], word: str) -> list[PortProbe]:
    """The probes; those without an answer with the source ports from which one came after all."""
    filtered: dict[str, list[PortProbe]] = {}
    for probe in probes:
        if probe.outcome == "filtered" and probe.source_port:
            filtered.setdefault(probe.src, []).append(probe)
    requests = {}
    for src, many in filtered.items():
        low, high = _range(context.participants, src)
        targets = []
        for i, probe in enumerate(many[:: -(-len(many) // MOST_AGAIN)]):
            others = [low + int((high - low) * share) + i for share in SOURCES]
            targets += [{**_name(probe), "source_port": port} for port in (probe.source_port, *others)]
        args = {"targets": targets, "timeout_s": AGAIN_TIMEOUT_S, "token": word, "parallel": 256}
        requests[src] = Request(op="connect", args=args, timeout_s=AGAIN_S)
    answers: dict[tuple[object, ...], list[int]] = {}
    for reply in replies(context.transport, requests):
        targets = requests[reply.node].args["targets"]
        for row in answered(reply, targets, (*NAME, "source_port"))[0]:
            if row.get("outcome") in OPEN:
                answers.setdefault((reply.node, *map(row.get, NAME)), []).append(row["source_port"])
    return [replace(p, open_from=tuple(answers.get((p.src, *map(_name(p).get, NAME)), ()))) for p in probes]


# What tells the targets of one node apart; a source only where it is a rail's.
NAME = ("dst", "address", "port", "source")


def _name(probe: PortProbe) -> dict[str, Any]:
    name = {"dst": probe.dst, "address": probe.address, "port": probe.port}
    return name | ({"source": probe.source} if probe.source else {})


def _range(participants: Participants, node: str) -> tuple[int, int]:
    """Of the ports that the node's kernel picks."""
    low, high = (participants.ephemeral or {}).get(node, DEFAULT_RANGE)
    return (low, high) if 1024 <= low < high <= 65535 else DEFAULT_RANGE


def _probe(src: str, row: dict[str, Any]) -> PortProbe:
    probe = converted(row, src, PortProbe)
    detail = probe if isinstance(probe, str) else f"unknown outcome {probe.outcome[:40]!r}"
    if isinstance(probe, PortProbe) and probe.outcome in OUTCOMES:
        return probe
    return PortProbe(
        src=src,
        dst=row["dst"],
        address=row["address"],
        port=row["port"],
        purpose=str(row.get("purpose", "")),
        source=row.get("source", ""),
        outcome="error",
        detail=detail,
    )
