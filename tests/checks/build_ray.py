"""Facts of a healthy Ray cluster, for tests to spoil."""

from typing import Any

from netdoctor.facts.net import PortProbe
from netdoctor.facts.ray import RayFacts, RayPorts

from .build import GIB, address, name

GCS_PORT = 6379
PORTS = {"raylet": 38833, "gcs": GCS_PORT, "worker": 15200}


def ray(i: int = 1, **changes: Any) -> RayFacts:
    defaults: dict[str, Any] = {
        "version": "2.44.1",
        "commit": "daca7b2b1a950dc7f731e34e74c76ae383794ffe",
        "python": "/opt/ray/bin/python",
        "python_version": "3.11.7",
        "address": address(i),
        "gcs_address": f"{address(1)}:{GCS_PORT}",
        "ports": (PORTS["raylet"], 44289),
        "worker_ports": (10002, 19999),
        "cpus": 64.0,
        "gpus": 8.0,
        "object_store_bytes": 100 * GIB,
        "object_store_dir": "/dev/shm",
    }
    return RayFacts(**{**defaults, **changes})


def rays(count: int, **odd: RayFacts) -> dict[str, RayFacts]:
    return {name(i): odd.get(name(i), ray(i)) for i in range(1, count + 1)}


def ray_ports(count: int, *bad: tuple[str, str, str, str]) -> RayPorts:
    """All pairs open but for `bad`: source, destination, purpose, outcome."""
    how = {one[:3]: one[3] for one in bad}
    probes = [
        PortProbe(
            src=name(i),
            dst=name(j),
            address=address(j),
            port=port,
            purpose=purpose,
            outcome=how.get((name(i), name(j), purpose), "in_use"),
        )
        for i in range(1, count + 1)
        for j in range(1, count + 1)
        for purpose, port in PORTS.items()
        if i != j and (purpose != "gcs" or j == 1)
    ]
    return RayPorts(probes=tuple(probes), timeout_s=3.2)
