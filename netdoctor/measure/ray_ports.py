"""The connections that a Ray cluster needs: raylet to raylet, to the head, and to ports of workers."""

import random
from collections.abc import Mapping
from typing import Any

from netdoctor.facts.net import NetFacts, PortProbe
from netdoctor.facts.ray import RayFacts, RayPorts
from netdoctor.measure.common import (
    CLOSE_S,
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
from netdoctor.measure.ports import CONNECT_S, OPEN_S, OUTCOMES, TIMEOUT_S
from netdoctor.transport.base import Request

RAYLET, GCS, WORKER = "raylet", "gcs", "worker"
NAME = ("dst", "address", "port")


@experiment(after=["ports"], needs=["ray", "net"], bound_s=OPEN_S + CONNECT_S + CLOSE_S, cost="opens-port")
def ray_ports(context: Context) -> RayPorts:
    """Nodes of a Ray cluster dial each other's raylet, the head's port, and one of those that workers get."""
    transport = context.transport
    rays: Mapping[str, RayFacts] = context.store.present("ray", context.participants.nodes)
    nets: Mapping[str, NetFacts] = context.store.present("net", context.participants.nodes)
    failed: dict[str, str] = {}
    # A node says where Ray dials it, and no more than one of its own addresses is taken.
    addresses = {}
    for node, ray in rays.items():
        if node in nets and ray.address in {row.address for row in nets[node].addresses}:
            addresses[node] = ray.address
        else:
            failed[node] = "its interfaces do not have the address that Ray dials"
    if len(addresses) < 2:
        return RayPorts(failed_nodes=failed, timeout_s=TIMEOUT_S)
    word = token()
    workers = _workers(context, {node: rays[node] for node in addresses}, word)
    heads = {ray.gcs_address for ray in rays.values()}
    services = {
        node: [
            *((port, RAYLET) for port in rays[node].ports),
            *((port, GCS) for head, port in map(_split, heads) if head == address),
            *((port, WORKER) for port in workers.get(node, ())),
        ]
        for node, address in addresses.items()
    }
    plan = peers(list(addresses))
    for node, has in services.items():
        if any(purpose == GCS for _, purpose in has):
            for src, others in plan.items():
                others.extend([node] if src != node and node not in others else [])
    targets: dict[str, list[dict[str, Any]]] = {
        src: [
            {"dst": dst, "address": addresses[dst], "port": port, "purpose": purpose}
            for dst in others
            for port, purpose in dict(services[dst]).items()
        ]
        for src, others in plan.items()
    }
    args = {"timeout_s": TIMEOUT_S, "token": word, "parallel": 256}
    requests = {
        src: Request(op="connect", args={"targets": rows_, **args}, timeout_s=CONNECT_S)
        for src, rows_ in targets.items()
    }
    probes: list[PortProbe] = []
    for reply in replies(transport, requests):
        if reply.missing is not None:
            failed[reply.node] = reason(reply)
            continue
        found, gap = answered(reply, targets[reply.node], NAME)
        if gap is not None:
            failed[reply.node] = gap
        for row in found:
            probe = converted(row, reply.node, PortProbe)
            if isinstance(probe, PortProbe) and probe.outcome in OUTCOMES:
                probes.append(probe)
            else:
                failed[reply.node] = probe if isinstance(probe, str) else "an outcome that is none"
    close_listeners(transport, workers)
    # Whose session ended meanwhile has no listener any more: what failed there is no firewall.
    probes = [p for p in probes if p.purpose != WORKER or p.dst not in failed]
    probes.sort(key=lambda p: (p.dst, p.src, p.port))
    return RayPorts(probes=tuple(probes), failed_nodes=failed, timeout_s=TIMEOUT_S)


def _workers(context: Context, rays: Mapping[str, RayFacts], word: str) -> dict[str, list[int]]:
    """A listener on each node, on a port of those that its workers get; the lowest go to workers first."""
    rng = random.Random(word)  # noqa: S311  of ports, and no secret
    wanted = {}
    for node, ray in rays.items():
        if ray.worker_ports and 1024 <= ray.worker_ports[0] < ray.worker_ports[1] <= 65535:
            low, high = ray.worker_ports
            wanted[node] = rng.randrange((low + high + 1) // 2, high + 1)
    requests = {
        node: Request(
            op="listen",
            args={
                "listeners": [{"port": port, "purpose": WORKER, "address": rays[node].address}],
                "token": word,
                "ttl_s": 120.0,
            },
            timeout_s=OPEN_S,
        )
        for node, port in wanted.items()
    }
    return {
        reply.node: [wanted[reply.node]]
        for reply in replies(context.transport, requests)
        if any(row.get("port") == wanted[reply.node] and row.get("error") is None for row in rows(reply))
    }


def _split(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``; port 0, which nobody dials, where it is none."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port) if port.isdecimal() and 0 < int(port) < 65536 else 0
