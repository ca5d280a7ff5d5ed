"""Which TCP ports every node reaches on every other, over listeners that netdoctor opens itself."""

import random
from collections.abc import Iterator, Mapping, Sequence
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
    close_listeners,
    converted,
    peers,
    reason,
    replies,
    rows,
    target_rows,
    token,
)
from netdoctor.measure.declare import Context, experiment
from netdoctor.rules.rails import pairs_of_rails
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
# A few tries of each node go from one rail to another: to one listener of each rail, which answers over the
# rail alone. At most this many over all its peers, or one for each.
CROSSING = "crossing"
MOST_ACROSS = 8
OPEN = ("open", "in_use")
OUTCOMES = ("open", "refused", "filtered", "rejected", "no_route", "in_use", "error")
DEFAULT_RANGE = (32768, 60999)  # net.ipv4.ip_local_port_range, Documentation/networking/ip-sysctl.rst


@experiment(after=["routes"], bound_s=OPEN_S + CONNECT_S + AGAIN_S + CLOSE_S, cost="opens-port")
def ports(context: Context) -> PortMatrix:
    """Every node dials the others' rendezvous port, and some of those that NCCL and gloo may get.

    All paths of the job at once; beside the main one only the kind of ports that the job dials there, on
    rails of RoCE one port, from the rail's own address: what RDMA needs, too, is a way there. A few tries for
    each pair go from one rail to another.

    A node that cannot open listeners or does not report is named in `failed_nodes`; the rest stands.
    """
    transport, participants = context.transport, context.participants
    nodes = participants.usable()
    failed: dict[str, str] = {n: NO_ADDRESS for n in participants.nodes if n not in nodes}
    if len(nodes) < 2:
        return PortMatrix(failed_nodes=failed, timeout_s=TIMEOUT_S)
    word = token()
    listeners = _open(transport, participants, nodes, word, failed)
    requests = connect_requests(_targets(participants, nodes, listeners), word)
    answers, silent = target_rows(transport, requests, NAME, failed)
    # Which is which, our own targets say: no node gets to move a failure out of the way.
    across = {
        (src, *map(row.get, NAME))
        for src, request in requests.items()
        for row in request.args["targets"]
        if row["purpose"] == CROSSING
    }
    direct: list[PortProbe] = []
    crossings: list[PortProbe] = []
    for src, row in answers:
        (crossings if (src, *map(row.get, NAME)) in across else direct).append(_probe(src, row))
    probes = _from_elsewhere(context, direct, word)
    close_listeners(transport, nodes)
    # The listeners of a node that went away in the meantime are gone: what failed there is no firewall. So
    # may be whoever held a port when we could not have it, such as another scan.
    busy = {(one.node, one.address, one.port) for one in listeners if one.error is not None}
    probes = [
        p
        for p in probes
        if (p.dst not in silent or p.outcome in OPEN)
        and ((p.dst, p.address, p.port) not in busy or p.outcome != "refused")
    ]
    order = {n: i for i, n in enumerate(nodes)}
    main = participants.addresses
    probes.sort(
        key=lambda p: (
            *(order.get(p.src, 0), order.get(p.dst, 0)),
            *(p.address != main.get(p.dst), p.purpose != RENDEZVOUS, p.port),
        )
    )
    return PortMatrix(
        probes=tuple(probes),
        crossings=tuple(one for one in crossings if one.dst not in silent),
        listeners=tuple(listeners),
        timeout_s=TIMEOUT_S,
        possible=len(nodes) * (len(nodes) - 1),
        failed_nodes=failed,
    )


def _targets(
    participants: Participants, nodes: list[str], listeners: Sequence[TestListener]
) -> dict[str, list[dict[str, Any]]]:
    """What each node dials: listeners of its peers, and of the master in any case."""
    dialled = peers(nodes)
    master = participants.master
    if master in dialled:
        for node in nodes:
            if master not in (node, *dialled[node]):
                dialled[node].append(master)
    opened: dict[str, list[TestListener]] = {}
    for one in listeners:
        # A busy rendezvous port is still dialled: who answers there shows the way is open.
        if one.error in (None, "EADDRINUSE"):
            opened.setdefault(one.node, []).append(one)
    return {
        src: [
            {"dst": dst, "address": one.address, "port": one.port, "purpose": one.purpose, **source}
            for dst in dialled[src]
            for one in opened.get(dst, [])
            for source in participants.sources(src, dst, one.address)
            if one.purpose != CROSSING and (not source or one.purpose == EPHEMERAL)
        ]
        + list(_across(participants, src, dialled[src], opened))
        for src in nodes
    }


def _across(
    participants: Participants, src: str, dialled: Sequence[str], opened: Mapping[str, Sequence[TestListener]]
) -> Iterator[dict[str, Any]]:
    """What a node dials on its peers' other rails, each try another pair of rails.

    All nodes begin with the same pairs, so that one which alone does not get across shows.
    """
    rails = participants.to_cross
    pairs = pairs_of_rails(len(rails))
    count = min(max(1, MOST_ACROSS // max(len(dialled), 1)), len(pairs))
    for peer, dst in enumerate(dialled):
        ends = {one.address: one for one in opened.get(dst, ()) if one.purpose == CROSSING and not one.error}
        for number in range(peer * count, (peer + 1) * count):
            source, target = (rails[i].addresses for i in pairs[number % len(pairs)])
            if src in source and dst in target and (one := ends.get(target[dst])):
                yield {
                    "dst": dst,
                    "address": one.address,
                    "port": one.port,
                    "purpose": CROSSING,
                    "source": source[src],
                }


def connect_requests(
    targets: Mapping[str, Sequence[Mapping[str, Any]]],
    word: str,
    timeout_s: float = TIMEOUT_S,
    limit_s: float = CONNECT_S,
) -> dict[str, Request]:
    """For each node the request to dial its targets. timeout_s: of one connection."""
    return {
        src: Request(
            op="connect",
            args={"targets": rows, "timeout_s": timeout_s, "token": word, "parallel": 256},
            timeout_s=limit_s,
        )
        for src, rows in targets.items()
    }


def listen_request(listeners: Sequence[Mapping[str, Any]], word: str) -> Request:
    """Open these listeners, each an address, a port and its purpose."""
    args = {"listeners": listeners, "token": word, "ttl_s": 120.0}
    return Request(op="listen", args=args, timeout_s=OPEN_S)


def _open(
    transport: Caller, participants: Participants, nodes: list[str], word: str, failed: dict[str, str]
) -> list[TestListener]:
    """Open listeners on each node; what became of them, in the order of the nodes."""
    rng = random.Random(word)  # noqa: S311  of ports, and no secret; not those of a scan at the same time
    requests = {}
    for node in nodes:
        low, high = _range(participants, node)
        span = high - low
        sample = [low + int(span * f) + rng.randrange(max(span // 50, 1)) for f in FRACTIONS]
        purposes = {participants.master_port: RENDEZVOUS}
        purposes |= dict.fromkeys((p for p in sample if p != participants.master_port), EPHEMERAL)
        listeners = [
            {"port": number, "purpose": purpose, "address": one.address}
            for one in participants.addresses_of(node)
            for number, purpose in purposes.items()
            if purpose in one.purposes
        ]
        on_rails = participants.on_rails(node)
        listeners += [{"port": sample[-1], "purpose": EPHEMERAL, **row} for row in on_rails]
        # Where the main path is a rail, its listeners answer whatever interface a packet comes in by.
        across = dict.fromkeys(
            rail.addresses[node] for rail in participants.to_cross if node in rail.addresses
        )
        if across:
            free = low + rng.randrange(max(span // 2, 1))
            number = next(port for port in range(free, free + 5) if port not in purposes)
            row = {"port": number, "purpose": CROSSING, "rail": True}
            listeners += [{**row, "address": address} for address in across]
        requests[node] = listen_request(listeners, word)
    opened: dict[str, list[TestListener]] = {}
    for reply in replies(transport, requests):
        if reply.missing is not None:
            failed[reply.node] = f"could not open test listeners: {reason(reply)}"
            continue
        # Address and purpose are ours: a node does not get to choose where all the others dial.
        listed = requests[reply.node].args["listeners"]
        waiting = {(row["address"], row["port"]): row["purpose"] for row in listed}
        local = opened[reply.node] = []
        for row in rows(reply):
            address, port = str(row.get("address")), row.get("port")
            if isinstance(port, int) and (address, port) in waiting:
                purpose = waiting.pop((address, port))
                error = None if row.get("error") is None else str(row.get("error"))[:200]
                local.append(
                    TestListener(node=reply.node, address=address, port=port, purpose=purpose, error=error)
                )
        # What only tells whether rails meet is not missed by the rest.
        closed = [one for one in local if one.error not in (None, "EADDRINUSE") and one.purpose != CROSSING]
        if waiting:
            failed[reply.node] = f"{len(waiting)} test listeners were not answered for"
        elif closed:
            failed[reply.node] = f"could not listen on port {closed[0].port}: {closed[0].error}"
    return [one for n in nodes for one in opened.get(n, ())]


def _from_elsewhere(context: Context, probes: Sequence[PortProbe], word: str) -> list[PortProbe]:
    """The probes; those without an answer with the source ports from which one came after all."""
    filtered: dict[str, list[PortProbe]] = {}
    for probe in probes:
        if probe.outcome == "filtered" and probe.source_port:
            filtered.setdefault(probe.src, []).append(probe)
    targets: dict[str, list[dict[str, Any]]] = {}
    for src, many in filtered.items():
        low, high = _range(context.participants, src)
        for i, probe in enumerate(many[:: -(-len(many) // MOST_AGAIN)]):
            others = [low + int((high - low) * share) + i for share in SOURCES]
            targets.setdefault(src, []).extend(
                {**_name(probe), "source_port": port} for port in (probe.source_port, *others)
            )
    requests = connect_requests(targets, word, AGAIN_TIMEOUT_S, AGAIN_S)
    open_from: dict[tuple[object, ...], list[int]] = {}
    for src, row in target_rows(context.transport, requests, (*NAME, "source_port"), {})[0]:
        if row.get("outcome") in OPEN:
            open_from.setdefault((src, *map(row.get, NAME)), []).append(row["source_port"])
    return [replace(p, open_from=tuple(open_from.get((p.src, *map(_name(p).get, NAME)), ()))) for p in probes]


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
