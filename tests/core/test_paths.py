"""Healthy clusters of many shapes: every address that the job dials is tried, and nothing is said."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from netdoctor.engine.diagnose import diagnose
from netdoctor.engine.gathering import addresses, all_paths
from netdoctor.engine.judge import judge
from netdoctor.engine.registry import load_builtin, ordered
from netdoctor.facts.bandwidth import LossMatrix, LossProbe
from netdoctor.facts.net import AddressRow, NetFacts, Route, RouteFacts
from netdoctor.facts.paths import Paths
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.measure.common import Participants
from netdoctor.model import Status
from netdoctor.store import Store
from tests.checks import build, build_hw
from tests.checks.build import row
from tests.checks.test_together import cluster
from tests.rules.machines import LO, machine

Rows = Callable[[int], tuple[AddressRow, ...]]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A healthy cluster. rows: of node i after lo; paths: that are dialled; down: interfaces not running."""

    rows: Rows
    paths: int = 1
    count: int = 4
    env: dict[str, str] = field(default_factory=dict)
    gpus: bool = True
    hcas: bool = False
    down: tuple[str, ...] = ()
    speeds: dict[str, int] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)


def one(i: int) -> tuple[AddressRow, ...]:
    return (row("eth0", f"10.0.0.{i}"),)


def two(i: int) -> tuple[AddressRow, ...]:
    return (*one(i), row("eth1", f"10.1.0.{i}"))


def also(ifname: str, address: str, prefix_len: int = 24, **more: Any) -> Rows:
    return lambda i: (*one(i), row(ifname, address.format(i), prefix_len, **more))


def renamed(i: int) -> tuple[AddressRow, ...]:
    return (row(f"ens{i}f0", f"10.0.0.{i}"), row(f"ens{i}f1", f"10.1.0.{i}"))


def six(i: int) -> tuple[AddressRow, ...]:
    return (row("eth0", f"fd00::{i}", 64), row("eth1", f"fd01::{i}", 64))


def routed(i: int) -> tuple[AddressRow, ...]:
    return (row("eth0", f"10.0.{i}.1"), row("eth1", f"10.1.{i}.1"))


SHAPES = {
    "one network": Shape(rows=one),
    "one node": Shape(rows=two, count=1, paths=2),
    "two nodes": Shape(rows=two, count=2, paths=2),
    "two networks": Shape(rows=two, paths=2),
    "two networks, no GPU": Shape(rows=two, gpus=False),
    "two networks, gloo": Shape(rows=two, job={"backend": "gloo"}),
    "two networks, one named": Shape(rows=two, env={"NCCL_SOCKET_IFNAME": "=eth0"}),
    "two networks, gloo on the second": Shape(
        rows=two, gpus=False, env={"GLOO_SOCKET_IFNAME": "eth1"}, paths=2
    ),
    "two networks, the second not running": Shape(rows=two, down=("eth1",)),
    "MASTER_ADDR on the second": Shape(rows=two, gpus=False, job={"master_addr": "10.1.0.1"}, paths=2),
    "renamed interfaces": Shape(rows=renamed, paths=2),
    "three networks": Shape(rows=lambda i: (*two(i), row("eth2", f"10.2.0.{i}")), paths=3),
    "two interfaces in one network": Shape(rows=also("eth1", "10.0.0.10{}"), paths=2),
    "docker": Shape(rows=also("docker0", "172.17.0.1", 16)),
    "a hypervisor's bridge": Shape(rows=also("virbr0", "192.168.122.1")),
    "an overlay, gloo": Shape(rows=also("tailscale0", "100.64.0.{}", 32), job={"backend": "gloo"}),
    "IPv6 only": Shape(rows=six, paths=2),
    "both families": Shape(rows=also("eth0", "fd00::{}", 64)),
    "link-local beside": Shape(rows=also("eth0", "fe80::{}", 64, scope="link")),
    "routed subnets": Shape(rows=routed, paths=2),
    "HCAs, two networks": Shape(rows=two, hcas=True),
    "25 beside 100 Gbit/s": Shape(rows=two, speeds={"eth1": 25_000}, paths=2),
}


def net_of(shape: Shape, i: int) -> NetFacts:
    found = machine(LO, *shape.rows(i), down=shape.down)
    devs = tuple(
        replace(dev, speed_mbit_s=shape.speeds.get(dev.name, 100_000)) if not dev.loopback else dev
        for dev in found.netdevs
    )
    return replace(found, netdevs=devs, default_devs=(devs[1].name,))


def store_of(shape: Shape) -> Store:
    """What nodes of this shape say of themselves, and the paths that follow."""
    store = cluster(shape.count)
    job = build.job(shape.count, **{"env": shape.env, "data_addresses": {}, **shape.job})
    for i, node in enumerate(build.names(shape.count), 1):
        net = net_of(shape, i)
        first = net.addresses[1].address
        store.put("net", node, net)
        store.put("host", node, build.host(i, ssh_server_address=first))
        store.put("env", node, build.env())
        store.put("gpu", node, build_hw.gpus(1) if shape.gpus else build_hw.no_gpus())
        store.put("rdma", node, build_hw.rdma() if shape.hcas else RdmaFacts())
        store.put("software", node, build_hw.software(nccl=(build_hw.nccl("2.28.3"),)))
        firsts = {j: net_of(shape, j).addresses[1].address for j in range(1, shape.count + 1)}
        peers = tuple(build.lookup(build.name(j), address) for j, address in firsts.items())
        own = build.lookup(node, first)
        store.put("resolve", node, build.resolve(i, own=own, first_bindable=first, peers=peers))
    nodes = build.names(shape.count)
    job = replace(job, data_addresses=dict(addresses(store, nodes, job)))
    store.cluster |= {"job": job, "paths": all_paths(store, nodes, job)}
    return store


def measured(store: Store, count: int) -> Iterator[tuple[str, str, str, str]]:
    """(src, dst, address, purpose) of all that experiments try."""
    participants = Participants.from_facts(build.names(count), store, store.cluster["job"])
    for dst in participants.usable():
        for way in participants.addresses_of(dst):
            for purpose in sorted(way.purposes):
                yield from ((src, dst, way.address, purpose) for src in participants.nodes if src != dst)


@pytest.mark.parametrize("name", SHAPES)
def test_a_healthy_cluster_is_silent(name: str) -> None:
    shape = SHAPES[name]
    store, count = store_of(shape), shape.count
    paths = store.cluster["paths"]
    assert isinstance(paths, Paths)
    assert len(paths.paths) == shape.paths
    tried = list(measured(store, count))
    data = [(src, dst, address) for src, dst, address, purpose in tried if purpose == "ephemeral"]
    store.cluster["ports"] = replace(
        build.matrix(count),
        probes=tuple(
            build.probe(src, dst, build.RDZV if purpose == "rendezvous" else build.HIGH, address=address)
            for src, dst, address, purpose in tried
        ),
    )
    store.cluster["path_mtu"] = replace(
        build.path_mtus(count), probes=tuple(build.mtu_probe(s, d, address=a) for s, d, a in data)
    )
    store.cluster["loss"] = LossMatrix(
        probes=tuple(LossProbe(src=s, dst=d, address=a, sent=9, arrived=9, answered=9) for s, d, a in data)
    )
    main = store.cluster["job"].data_addresses
    for node in build.names(count):
        asked = {(d, a): Route(destination=a, dev=None) for s, d, a, _ in tried if s == node}
        first = paths.paths[0].ifnames[node]
        store.put(
            "routes",
            node,
            RouteFacts(
                routes={d: replace(r, dev=first) for (d, a), r in asked.items() if a == main[d]},
                further=tuple(r for (d, a), r in asked.items() if a != main[d]),
            ),
        )
    families = ("net", "rdzv", "nccl", "gloo")
    checks = [check for check in ordered(load_builtin().values()) if check.family in families]
    judgement = judge(checks, build.names(count), store)
    assert judgement.tracebacks == []
    groups = diagnose(judgement)
    assert not groups, [(group.key, group.title, group.members[0][1].summary) for group in groups]
    statuses = {status for cells in judgement.cells.values() for status in cells.values()}
    assert statuses <= {Status.PASS, Status.SKIP}
