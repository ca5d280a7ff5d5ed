"""The connections that a Ray cluster needs: raylet to raylet, to the head, and to ports of workers."""

import random
from collections.abc import Mapping
from typing import Any

from netdoctor.facts.net import NetFacts, PortProbe
from netdoctor.facts.ray import RayFacts, RayPorts
from netdoctor.measure.common import (
    CLOSE_S,
    close_listeners,
    converted,
    peers,
    replies,
    rows,
    target_rows,
    token,
)
from netdoctor.measure.declare import Context, experiment
from netdoctor.measure.ports import CONNECT_S, OPEN_S, OUTCOMES, TIMEOUT_S, connect_requests, listen_request

RAYLET, GCS, WORKER = "raylet", "gcs", "worker"
NAME = ("dst", "address", "port")


@experiment(after=["ports"], needs=["ray", "net"], bound_s=OPEN_S + CONNECT_S + CLOSE_S, cost="opens-port")
def ray_ports(context: Context) -> RayPorts:
    """Nodes of a Ray cluster dial each other's raylet, the head's port, and one of those that workers get."""
    transport = context.transport
    rays: Mapping[str, RayFacts] = context.store.present("ray", context.participants.nodes)
    failed: dict[str, str] = {}
    addresses = _addresses(context, rays, failed)
    if len(addresses) < 2:
        return RayPorts(failed_nodes=failed, timeout_s=TIMEOUT_S)
    word = token()
    workers = _workers(context, {node: rays[node] for node in addresses}, word)
    requests = connect_requests(_targets(rays, addresses, workers), word)
    probes: list[PortProbe] = []
    for src, row in target_rows(transport, requests, NAME, failed)[0]:
        probe = converted(row, src, PortProbe)
        if isinstance(probe, PortProbe) and probe.outcome in OUTCOMES:
            probes.append(probe)
        else:
            failed[src] = probe if isinstance(probe, str) else "an outcome that is none"
    close_listeners(transport, workers)
    # Whose session ended meanwhile has no listener any more: what failed there is no firewall.
    probes = [p for p in probes if p.purpose != WORKER or p.dst not in failed]
    probes.sort(key=lambda p: (p.dst, p.src, p.port))
    return RayPorts(probes=tuple(probes), failed_nodes=failed, timeout_s=TIMEOUT_S)


def _addresses(context: Context, rays: Mapping[str, RayFacts], failed: dict[str, str]) -> dict[str, str]:
    """Where Ray dials each node: a node says so, and no more than one of its own addresses is taken."""
    nets: Mapping[str, NetFacts] = context.store.present("net", rays)
    addresses = {}
    for node, ray in rays.items():
        if node in nets and ray.address in {row.address for row in nets[node].addresses}:
            addresses[node] = ray.address
        else:
            failed[node] = "its interfaces do not have the address that Ray dials"
    return addresses


def _targets(
    rays: Mapping[str, RayFacts], addresses: Mapping[str, str], workers: Mapping[str, int]
) -> dict[str, list[dict[str, Any]]]:
    """What each node dials: its peers, and heads in any case."""
    heads = [_split(address) for address in {ray.gcs_address for ray in rays.values()}]
    purposes: dict[str, dict[int, str]] = {}
    dialled = peers(list(addresses))
    for node, address in addresses.items():
        head_ports = [port for head, port in heads if head == address]
        purposes[node] = dict.fromkeys(rays[node].ports, RAYLET) | dict.fromkeys(head_ports, GCS)
        if node in workers:
            purposes[node][workers[node]] = WORKER
        for src, others in dialled.items() if head_ports else ():
            if node not in (src, *others):
                others.append(node)
    return {
        src: [
            {"dst": dst, "address": addresses[dst], "port": port, "purpose": purpose}
            for dst in others
            for port, purpose in purposes[dst].items()
        ]
        for src, others in dialled.items()
    }


def _workers(context: Context, rays: Mapping[str, RayFacts], word: str) -> dict[str, int]:
    """A listener on each node, on a port of those that its workers get; the lowest go to workers first."""
    rng = random.Random(word)  # noqa: S311  of ports, and no secret
    ports = {}
    for node, ray in rays.items():
        if ray.worker_ports and 1024 <= ray.worker_ports[0] < ray.worker_ports[1] <= 65535:
            low, high = ray.worker_ports
            ports[node] = rng.randrange((low + high + 1) // 2, high + 1)
    requests = {
        node: listen_request([{"port": port, "purpose": WORKER, "address": rays[node].address}], word)
        for node, port in ports.items()
    }
    return {
        reply.node: ports[reply.node]
        for reply in replies(context.transport, requests)
        if any(row.get("port") == ports[reply.node] and row.get("error") is None for row in rows(reply))
    }


def _split(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``; port 0, which nobody dials, where it is none."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port) if port.isdecimal() and 0 < int(port) < 65536 else 0
