"""Hosts and reports to plan for."""

from typing import Any

from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.facts.net import PortHolderFacts
from netdoctor.facts.rdma import Gid, Hca, HcaPort, RdmaFacts
from netdoctor.inventory import Target
from netdoctor.launch import Evidence, LaunchPlan, Options, plan
from tests.checks import build as healthy
from tests.core import fake

HOUR = 3600.0


def targets(count: int, **changes: Any) -> list[Target]:
    return [
        Target(id=healthy.name(i), host=healthy.name(i), order=i - 1, **changes) for i in range(1, count + 1)
    ]


def gpus(count: int, **changes: Any) -> GpuFacts:
    return GpuFacts(nvml="ok", devices=tuple(Gpu(index=i) for i in range(count)), **changes)


def rdma(*rows: Gid, layer: str = "Ethernet") -> RdmaFacts:
    port = HcaPort(
        name="mlx5_0:1", number=1, state="ACTIVE", phys_state="LinkUp", link_layer=layer, rate_gbit_s=400,
        gids=rows, gid_table_len=16,
    )  # fmt: skip
    return RdmaFacts(hcas=(Hca(name="mlx5_0", ports=(port,)),))


def evidence(count: int, each: dict[str, Any] | None = None, **changes: Any) -> Evidence:
    """Of a launch scan of n1, n2…, all well. each: further facts of every node; groups are taken from it."""
    facts: dict[str, Any] = {
        "net": {},
        "env": {},
        "gpu": {},
        "port_holder": {},
    }
    for i in range(1, count + 1):
        node = healthy.name(i)
        facts["net"][node] = healthy.net(i)
        facts["env"][node] = healthy.env()
        facts["gpu"][node] = gpus(8)
        facts["port_holder"][node] = PortHolderFacts(port=29500)
        for group, value in (each or {}).items():
            facts.setdefault(group, {})[node] = value
    store = fake.store_of(count, **facts)
    store.cluster["job"] = changes.pop("job", healthy.job(count))
    store.cluster["ports"] = changes.pop("ports", healthy.matrix(count))
    said: dict[str, Any] = {
        "source": "report of 2026-11-20 14:02",
        "finished": "2026-11-20T13:02:00.000Z",
        "age_s": HOUR,
        "state": "ready",
        "good": frozenset(healthy.names(count)),
    }
    return Evidence(facts=store, **{**said, **changes})


def planned(
    nodes: list[Target], seen: Evidence | None = None, launcher: str = "torchrun", **options: Any
) -> LaunchPlan:
    return plan(nodes, seen, Options(launcher=launcher, **options), hosts="hosts.txt")
