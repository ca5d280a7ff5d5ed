"""Who is odd, over all checks that hold nodes against each other, whatever values they have.

Never "most" of a value that not more than half have, never certain that a node stops the job where no value
has a majority, and nothing hangs on the order in which nodes are listed. Each row makes the facts of nodes
from a number each, 0 to 3, that stands for what they have.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdoctor.checks.amd.parity import amd_parity
from netdoctor.checks.env.drift import env_drift
from netdoctor.checks.fs.shared import fs_shared
from netdoctor.checks.gloo.ifname import gloo_ifname
from netdoctor.checks.gpu.count import gpu_count
from netdoctor.checks.gpu.driver import gpu_driver
from netdoctor.checks.gpu.imex import gpu_imex
from netdoctor.checks.gpu.link import gpu_link
from netdoctor.checks.gpu.parity import gpu_parity
from netdoctor.checks.host.parity import host_parity
from netdoctor.checks.host.tuning import host_tuning
from netdoctor.checks.nccl.env import nccl_env
from netdoctor.checks.nccl.ib_hca import nccl_ib_hca
from netdoctor.checks.nccl.ifname import nccl_ifname
from netdoctor.checks.net.interface import net_interface
from netdoctor.checks.net.mtu import net_mtu
from netdoctor.checks.net.parity import net_parity
from netdoctor.checks.path.same import path_same
from netdoctor.checks.ray.version import ray_version
from netdoctor.checks.rdma.hca import rdma_hca
from netdoctor.checks.rdma.parity import rdma_parity
from netdoctor.checks.rdma.port import rdma_port
from netdoctor.checks.rdma.rate import rdma_rate
from netdoctor.checks.rdzv.addr import rdzv_addr
from netdoctor.checks.sw.nccl import sw_nccl
from netdoctor.checks.sw.parity import sw_parity
from netdoctor.checks.sw.python import sw_python
from netdoctor.checks.sw.torch import sw_torch
from netdoctor.checks.time.source import time_source
from netdoctor.engine.assemble.causes import ORIGINS
from netdoctor.facts.clock import TimeReport
from netdoctor.facts.net import NetFacts, Nic
from netdoctor.facts.paths import Paths, Use
from netdoctor.facts.ray import RayFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import SoftwareFacts
from netdoctor.model import Confidence, Finding, Status
from tests.checks import build, build_hw
from tests.checks.test_amd import mi300x

Values = Mapping[str, int]
NFS: dict[str, Any] = {
    "fs_type": "nfs4", "network": True, "kind": "directory", "mount_point": "/data", "inode": "2",
}  # fmt: skip


def number(node: str) -> int:
    return int(node[1:])


def each(values: Values, make: Callable[[int], Any]) -> dict[str, Any]:
    return {node: make(value) for node, value in values.items()}


def job(values: Values, **more: Any) -> Any:
    addresses = {node: build.address(number(node)) for node in values}
    return build.job(1, data_addresses=addresses, **more)


def nets(values: Values, make: Callable[[int], Any]) -> dict[str, NetFacts]:
    """Each node with its eth0 as `make` changes it."""
    return {
        node: build.net(number(node), netdevs=(build.loopback(), replace(build.netdev(), **make(value))))
        for node, value in values.items()
    }


def torches(values: Values) -> dict[str, SoftwareFacts]:
    return each(values, lambda v: build_hw.software(torch=build_hw.torch(version=f"2.{v}.0+cu124")))


def packages(values: Values) -> Iterable[Finding]:
    softwares = each(values, lambda v: build_hw.software(packages={"numpy": f"2.{v}.0"}))
    return sw_parity(softwares, job(values, packages=("numpy",)))


def nic_parity(values: Values) -> Iterable[Finding]:
    def odd(v: int) -> dict[str, Any]:
        nic = Nic(version="in-kernel", firmware=f"4.{v}", sizes={"ring rx": (v + 1, 9)})
        return {"driver": "ice", "model": "8086:1592 8086:0002", "duplex": "full", "nic": nic}

    found = nets(values, odd)
    uses = [Use(node=n, address=build.address(number(n)), purpose="gloo", rule="test") for n in values]
    hosts = {node: build.host(number(node)) for node in values}
    return net_parity(found, Paths(paths=(), uses=tuple(uses)), hosts, None, None)


def ports(values: Values, **changes: Callable[[int], Any]) -> dict[str, RdmaFacts]:
    def make(value: int) -> RdmaFacts:
        return build_hw.rdma(
            build_hw.hca(ports=(build_hw.port(**{name: of(value) for name, of in changes.items()}),))
        )

    return each(values, make)


def networks(values: Values) -> dict[str, NetFacts]:
    """One network for each value, in which the node is, beside one in which all are."""
    return {
        node: build.net(
            number(node),
            netdevs=(build.loopback(), build.netdev("eth0"), build.netdev("eth1", 3)),
            addresses=(
                build.row("eth0", f"10.{value}.0.{number(node)}"),
                *(build.row(f"eth{1 + v}", f"10.{v}.0.{number(node)}") for v in range(4) if v != value),
            ),
        )
        for node, value in values.items()
    }


def meanings(values: Values) -> Iterable[Finding]:
    """MASTER_ADDR is a name, which each node resolves to one of the nodes."""
    resolves = {
        node: replace(
            build.resolve(number(node), 1), peers=(build.lookup("master", build.address(value + 1)),)
        )
        for node, value in values.items()
    }
    nets_of = {node: build.net(number(node)) for node in values}
    found = rdzv_addr(job(values, master_addr="master"), resolves, nets_of)
    # Whether it is the first node's at all is no question of who is odd.
    return [one for one in found if one.cause and one.cause.key == "master-differs"]


def gloo(values: Values) -> Iterable[Finding]:
    resolves = {
        node: replace(
            build.resolve(number(node), 1),
            own=build.lookup(node, f"10.{value}.0.{number(node)}"),
            first_bindable=f"10.{value}.0.{number(node)}",
        )
        for node, value in values.items()
    }
    hosts = {node: build.host(number(node)) for node in values}
    return gloo_ifname(networks(values), resolves, hosts, each(values, lambda _: build.env()), job(values))


def sources(values: Values) -> Iterable[Finding]:
    def make(value: int) -> Any:
        source = f"ntp{value}.example"
        return build.time_facts(reports=(TimeReport(daemon="chronyd", source=source, sources=(source,)),))

    return time_source(each(values, make), {node: build.host(number(node)) for node in values})


def contents(values: Values, **kind: Any) -> Iterable[Finding]:
    places = {
        node: build.places(build.place("/srv/code", digest=f"d{value}", inode=node, device=node, **kind))
        for node, value in values.items()
    }
    hosts = {node: build.host(number(node)) for node in values}
    return path_same(places, hosts, job(values, paths=("/srv/code",)))


def mounts(values: Values) -> Iterable[Finding]:
    places = each(
        values, lambda v: build.places(build.place("/data", source=f"srv{v}:/x", changed=f"{v}", **NFS))
    )
    return fs_shared(places, {n: build.host(number(n)) for n in values}, job(values, paths=("/data",)))


def gpus(values: Values, make: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    def of_node(value: int) -> Any:
        return build_hw.gpus(2, devices=tuple(build_hw.gpu(i, **make(value)) for i in range(2)))

    return each(values, of_node)


ROWS: dict[str, Callable[[Values], Iterable[Finding]]] = {
    "host.parity": lambda v: host_parity({n: build.host(number(n), kernel=f"6.{x}") for n, x in v.items()}),
    "host.parity arch": lambda v: host_parity({n: build.host(number(n), arch=f"a{x}") for n, x in v.items()}),
    "host.tuning": lambda v: host_tuning(
        each(v, lambda x: build.tuning(bios=f"2.{x}", governor=f"g{x}")),
        {n: build.host(number(n)) for n in v},
    ),
    "host.tuning sysctl": lambda v: host_tuning(
        each(v, lambda x: build.tuning(sysctls={"net.core.rmem_max": str(x)})),
        {n: build.host(number(n)) for n in v},
    ),
    "host.tuning clock": lambda v: host_tuning(
        each(v, lambda x: build.tuning(clock_source="hpet" if x else "tsc", swap_used_bytes=x << 30)),
        {n: build.host(number(n)) for n in v},
    ),
    "gpu.driver": lambda v: gpu_driver(
        each(v, lambda x: build_hw.gpus(
            driver_version=f"570.{x}", kernel_driver=f"570.{x}", library_driver=f"570.{x}"
        ))
    ),
    "gpu.parity": lambda v: gpu_parity(gpus(v, lambda x: {"vbios": f"96.{x}"})),
    "gpu.count": lambda v: gpu_count(each(v, build_hw.gpus), {n: build.node(number(n)) for n in v}),
    "gpu.count model": lambda v: gpu_count(
        gpus(v, lambda x: {"name": f"H{x}"}), {n: build.node(number(n)) for n in v}
    ),
    "gpu.imex": lambda v: gpu_imex(
        each(v, lambda x: build_hw.gpus(1, devices=(build_hw.gpu(nvlink_domain="d"),), imex=x != 3,
                                        imex_nodes=tuple(f"10.0.0.{i}" for i in range(x + 1))))
    ),
    "gpu.link": lambda v: gpu_link(gpus(v, lambda x: {"nvlinks_active": 18 - x, "pcie_width": 16 >> x})),
    "amd.parity": lambda v: amd_parity(each(v, lambda x: mi300x(rocm=f"6.{x}"))),
    "net.mtu": lambda v: net_mtu(nets(v, lambda x: {"mtu": 1500 + x}), job(v)),
    "net.interface": lambda v: net_interface(nets(v, lambda x: {"speed_mbit_s": 10_000 * (x + 1)}), job(v)),
    "net.parity": nic_parity,
    "sw.torch": lambda v: sw_torch(torches(v), None),
    "sw.torch lacking": lambda v: sw_torch(
        each(v, lambda x: build_hw.software(torch=build_hw.torch() if x == 1 else None)), None
    ),
    "sw.python": lambda v: sw_python(each(v, lambda x: build_hw.software(version=f"3.{9 + x}.1"))),
    "sw.nccl": lambda v: sw_nccl(each(v, lambda x: build_hw.software(nccl=(build_hw.nccl(f"2.2{x}.1"),)))),
    "sw.parity": packages,
    "ray.version": lambda v: ray_version(
        each(v, lambda x: RayFacts(version=f"2.{x}.0", python_version=f"3.1{x}.1"))
    ),
    "rdma.hca": lambda v: rdma_hca(
        each(v, lambda x: build_hw.rdma(*(build_hw.hca(f"mlx5_{i}") for i in range(x + 1)))), None
    ),
    "rdma.hca names": lambda v: rdma_hca(each(v, lambda x: build_hw.rdma(build_hw.hca(f"mlx5_{x}"))), None),
    "rdma.rate": lambda v: rdma_rate(ports(v, rate_gbit_s=lambda x: 100.0 * (x + 1)), None),
    "rdma.port": lambda v: rdma_port(
        ports(v, state=lambda x: ("DOWN", "ACTIVE", "INIT")[x]), None
    ),
    "rdma.parity": lambda v: rdma_parity(ports(v, pkeys=lambda x: (f"0x800{x}",))),
    "nccl.env": lambda v: nccl_env(
        each(v, lambda x: build.env(**({"NCCL_CROSS_NIC": str(x)} if x < 3 else {}))),
        None, None, job(v),
    ),
    "nccl.ib-hca": lambda v: nccl_ib_hca(
        each(v, lambda x: build_hw.rdma(*(build_hw.hca(f"mlx5_{i}") for i in range(x + 1)))),
        each(v, lambda _: build.env()), None, job(v),
    ),
    "nccl.ib-hca layer": lambda v: nccl_ib_hca(
        ports(v, link_layer=lambda x: ("InfiniBand", "Ethernet")[x]),
        each(v, lambda _: build.env()), None, job(v),
    ),
    "nccl.ib-hca none": lambda v: nccl_ib_hca(
        ports(v, state=lambda x: ("DOWN", "ACTIVE")[x]),
        each(v, lambda _: build.env()), None, job(v),
    ),
    "nccl.ifname": lambda v: nccl_ifname(
        networks(v), each(v, lambda _: build.env()), None, None, None, None, job(v)
    ),
    "gloo.ifname": gloo,
    "env.drift": lambda v: env_drift(
        each(v, lambda x: build.env(**({"OMP_NUM_THREADS": str(x)} if x else {}))), None, None, job(v)
    ),
    "rdzv.addr": meanings,
    "time.source": sources,
    "path.same": contents,
    "path.same tree": lambda v: contents(v, kind="directory", entries={"a": "1"}, entries_total=1),
    "fs.shared": mounts,
}  # fmt: skip
CLAIMS = re.compile(r"\b(most|majority's)\b")


def trouble(row: str, values: Values) -> list[Finding]:
    found = build.said(ROWS[row](values))
    return [one for one in found if one.status in (Status.FAIL, Status.WARN)]


def essence(findings: Iterable[Finding]) -> Counter[tuple[Any, ...]]:
    return Counter(
        (one.target, one.status, one.cause and (one.cause.key, one.cause.confidence), one.observed)
        for one in findings
    )


# Rows whose facts have fewer values than four.
VALUES = {
    "host.tuning clock": 2, "sw.torch lacking": 2, "rdma.port": 3, "gpu.imex": 3, "nccl.ib-hca layer": 2,
    "nccl.ib-hca none": 2,
}  # fmt: skip


@settings(max_examples=800, deadline=None)
@given(st.sampled_from(sorted(ROWS)), st.lists(st.integers(0, 3), min_size=1, max_size=9), st.randoms())
def test_nobody_is_called_odd_without_a_majority(row: str, numbers: list[int], random: Any) -> None:
    values = {f"n{i}": value % VALUES.get(row, 4) for i, value in enumerate(numbers, 1)}
    counts = Counter(values.values())
    most = next((value for value, count in counts.items() if 2 * count > len(values)), None)
    findings = trouble(row, values)
    for one in findings:
        assert one.cause is not None, one
        odd = most is not None and values.get(one.target) not in (None, most)
        origin = ORIGINS.get(one.expected_from) if one.expected_from else ""
        words = f"{one.summary}; {one.cause.title}; {one.expected} ({origin})"
        if CLAIMS.search(words):
            assert odd, words
        if one.status is Status.FAIL and one.cause.confidence is Confidence.CERTAIN:
            assert odd, words
    mixed = list(values)
    random.shuffle(mixed)
    assert essence(trouble(row, {node: values[node] for node in mixed})) == essence(findings)


@pytest.mark.parametrize("row", sorted(ROWS))
def test_every_row_names_the_odd_node(row: str) -> None:
    """Else the rows above would prove nothing."""
    named = []
    for usual, odd in ((0, 1), (1, 0)):
        values = {f"n{i}": usual for i in range(1, 6)}
        named.append({one.target for one in trouble(row, {**values, "n3": odd})})
    assert {"n3"} in named, named
