"""Clusters that nobody has: the answers of any number of nodes, as agents would send them.

Eight GPUs, HCAs on networks of their own, a management and a data network to each node. What experiments
find is that of a launch scan: one firewall over an eighth of the nodes, which lets nothing in from others.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from netdoctor.facts.bandwidth import LossMatrix, LossProbe
from netdoctor.facts.base import FACT_TYPES, Missing, Why
from netdoctor.facts.cabling import CabledPort, CablingFacts
from netdoctor.facts.counters import LaterCounters
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.health import HealthFacts
from netdoctor.facts.host import LimitFacts
from netdoctor.facts.net import (
    FirewallFacts,
    MtuProbe,
    PathMtus,
    PortHolderFacts,
    PortMatrix,
    PortProbe,
    Route,
    RouteFacts,
    Ruleset,
)
from netdoctor.facts.net_setup import InterfaceSetup, NetSetupFacts
from netdoctor.facts.rdma import Gid, Hca, RdmaFacts
from netdoctor.inventory import Target
from netdoctor.measure.common import ECHO_PAIRS_UP_TO, ECHO_PEERS, peers
from netdoctor.store import Store
from tests.checks import build, build_hw

HCAS = 4
SHAPES = ("healthy", "faulty", "different", "firewall")
# Of a hundred nodes of a faulty cluster.
FAULTY = 1


def name(i: int) -> str:
    return f"gpu{i:05d}"


def address(i: int, network: int = 20) -> str:
    return f"10.{network}.{i >> 8}.{i & 255}"


def targets(count: int) -> list[Target]:
    return [
        Target(id=name(i), host=name(i), order=i, gpus=build_hw.GPUS, line=i + 1, source="hosts.txt")
        for i in range(count)
    ]


def _infiniband(rail: int) -> Hca:
    return build_hw.hca(f"mlx5_{rail}", uverbs=f"uverbs{rail}", ports=(build_hw.port(f"mlx5_{rail}"),))


def _hca(i: int, rail: int) -> Hca:
    device = f"mlx5_{rail}"
    gids = (
        Gid(index=0, gid="fe80::1", type="IB/RoCE v1", netdev=f"rail{rail}"),
        Gid(index=1, gid="fe80::1", type="RoCE v2", netdev=f"rail{rail}"),
        Gid(index=2, gid=f"::ffff:{address(i, 100 + rail)}", type="IB/RoCE v1", netdev=f"rail{rail}"),
        Gid(index=3, gid=f"::ffff:{address(i, 100 + rail)}", type="RoCE v2", netdev=f"rail{rail}"),
    )
    port = build_hw.port(device, link_layer="Ethernet", gids=gids, sm_lid=0)
    return build_hw.hca(device, netdevs=(f"rail{rail}",), uverbs=f"uverbs{rail}", ports=(port,))


def _gpus(i: int) -> GpuFacts:
    devices = tuple(build_hw.gpu(g, uuid=f"GPU-{i:05d}-{g}") for g in range(build_hw.GPUS))
    return build_hw.gpus(devices=devices)


def facts(i: int, shape: str = "healthy", hcas: int = HCAS) -> dict[str, Any]:
    """What node i of a cluster of this shape answers, by group."""
    # Over InfiniBand no rail is a path of its own.
    infiniband = shape == "firewall"
    rails = range(0 if infiniband else hcas)
    interfaces = ("eth0", "eth1", *(f"rail{rail}" for rail in rails))
    networks = (20, 30, *(100 + rail for rail in rails))
    netdevs = [build.loopback(), *(build.netdev(one, 2 + n) for n, one in enumerate(interfaces))]
    rows = [build.row("lo", "127.0.0.1", 8, scope="host")]
    rows += [build.row(one, address(i, net), 16) for one, net in zip(interfaces, networks, strict=True)]
    own = build.lookup(name(i), address(i))
    found: dict[str, Any] = {
        "host": build.host(
            hostname=name(i), fqdn=name(i), machine_id=f"{i:032x}", boot_id=f"boot-{i}",
            ssh_server_address=address(i),
        ),
        "health": HealthFacts(pid_max=4_194_304),
        "net_setup": NetSetupFacts(interfaces=(InterfaceSetup(ifname="lo"),)),
        "cabling": CablingFacts(
            ports=tuple(CabledPort(port=f"rail{r}", switch=f"02:{i // 32}:{r}") for r in rails)
        ),
        "limits": build.limits(),
        "places": build.places(),
        "tuning": build.tuning(),
        "net": build.net(netdevs=tuple(netdevs), addresses=tuple(rows), default_devs=("eth0",)),
        "gpu": _gpus(i),
        "kernel_log": build_hw.kernel_log(),
        "rdma": RdmaFacts(
            hcas=tuple(_infiniband(r) if infiniband else _hca(i, r) for r in range(hcas)),
            libibverbs="/usr/lib/libibverbs.so.1",
        ),
        "python_start": build_hw.python_start(),
        "software": build_hw.software(),
        "env": build.env(PATH="/usr/bin:/bin", LANG="C.UTF-8"),
        "resolve": build.resolve(own=own, first_bindable=address(i), peers=()),
        "time": build.time_facts(),
        "port_holder": PortHolderFacts(port=build.RDZV),
        "counters": build_hw.counters(hcas=hcas, netdevs=interfaces),
    }  # fmt: skip
    if shape == "different" or (shape == "faulty" and i % (100 // FAULTY) == 1):
        _spoil(found, i, all_of_it=shape == "different")
    return found


def _spoil(found: dict[str, Any], i: int, all_of_it: bool) -> None:
    """Something wrong, another thing on every few nodes; or that nothing is the same as anywhere else."""
    limits: LimitFacts = found["limits"]
    gpus: GpuFacts = found["gpu"]
    rdma: RdmaFacts = found["rdma"]
    which = range(6) if all_of_it else (i // (100 // FAULTY) % 6,)
    for fault in which:
        if fault == 0:
            shm = replace(limits.shm, free_bytes=(64 + i % 512) * build.MIB)
            found["limits"] = replace(limits, shm=shm, memlock_soft_bytes=65536 + 4096 * i)
        elif fault == 1:
            driver = f"570.{i % 9000}.{i % 97}"
            spoilt = (replace(gpus.devices[0], ecc_uncorrected=1 + i % 7, nvlinks_active=i % 17),)
            found["gpu"] = replace(gpus, driver_version=driver, devices=spoilt + gpus.devices[1:])
        elif fault == 2:
            software = found["software"]
            torch = replace(software.torch, version=f"2.{i % 40}.{i % 11}+cu124")
            found["software"] = replace(software, torch=torch, version=f"3.{8 + i % 6}.{i % 19}")
        elif fault == 3:
            hca = replace(rdma.hcas[0], fw_version=f"28.{i % 100}.{i % 1000}")
            found["rdma"] = replace(rdma, hcas=(hca, *rdma.hcas[2:]))
        elif fault == 4:
            found["resolve"] = replace(
                found["resolve"], own=build.lookup(name(i), "127.0.1.1"), first_bindable="127.0.1.1"
            )
        else:
            found["env"] = build.env(NCCL_SOCKET_IFNAME=f"ens{i % 300}", NCCL_IB_HCA=f"mlx5_{i % 12}")


def replies(count: int, shape: str, hcas: int = HCAS) -> Iterator[tuple[str, bytes]]:
    """(node, its first answer) of every node."""
    none = {"missing": {"why": "not_applicable", "detail": "no such thing here"}}
    asked = [info.group for info in FACT_TYPES.values() if (info.scope, info.origin) == ("node", "agent")]
    for i in range(count):
        found = {group: {"value": one} for group, one in facts(i, shape, hcas).items()}
        yield name(i), msgspec.json.encode({**dict.fromkeys(asked, none), **found})


def measure(store: Store, count: int) -> None:
    """What a launch scan of so many nodes measures between them, with a firewall over the first eighth."""
    nodes = [name(i) for i in range(count)]
    place = {node: i for i, node in enumerate(nodes)}
    behind = set(nodes[: max(2, count // 8)])
    few = peers(nodes, at_most=ECHO_PAIRS_UP_TO, count=ECHO_PEERS)
    ports = (build.RDZV, 33800, 46800, 59600)
    probes, ends = [], set()
    later = build_hw.counters(5060.0, 9000, hcas=HCAS, netdevs=("eth0", "eth1"))
    for src, dialled in peers(nodes).items():
        if nodes[0] not in (src, *dialled):
            dialled.append(nodes[0])  # the rendezvous
        for dst in dialled:
            is_shut = dst in behind and src not in behind
            ends |= {src, dst} if is_shut else set()
            probes += [
                PortProbe(
                    src=src, dst=dst, address=address(place[dst]), port=port,
                    purpose="rendezvous" if port == build.RDZV else "ephemeral",
                    outcome="filtered" if is_shut else "open", elapsed_ms=0.4, source_port=45000,
                )
                for port in ports
            ]  # fmt: skip
        own = address(place[src])
        routes = {dst: Route(destination=address(place[dst]), source=own, dev="eth0") for dst in dialled}
        store.put("routes", src, RouteFacts(routes=routes))
        store.put("clock", src, build.clock(place[src] % 7 / 1000))
        store.put("counters_later", src, LaterCounters(reading=later))
    store.cluster["ports"] = PortMatrix(probes=tuple(probes), possible=count * (count - 1))
    quiet = Missing(Why.NOT_APPLICABLE, "nothing is filtered here")
    rules = FirewallFacts(rulesets=(Ruleset(kind="nftables", active=False),))
    for node in nodes:
        store.put("firewall", node, rules if node in ends else quiet)
    heard = [
        (src, dst, address(place[dst]), not (dst in behind and src not in behind))
        for src, dialled in few.items()
        for dst in dialled
    ]
    store.cluster["path_mtu"] = PathMtus(
        probes=tuple(
            MtuProbe(
                src=src, dst=dst, address=there, dev="eth0", dev_mtu=1500, small_ok=through,
                largest_ok=1500 if through else None, outcome="ok" if through else "no_answer",
            )
            for src, dst, there, through in heard
        )
    )  # fmt: skip
    store.cluster["loss"] = LossMatrix(
        seconds=1.25,
        probes=tuple(
            LossProbe(src=src, dst=dst, address=there, sent=250, arrived=250 * ok, answered=250 * ok)
            for src, dst, there, ok in heard
        ),
    )
