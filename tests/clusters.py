"""Clusters that nobody has: the answers of any number of nodes, as agents would send them.

Eight GPUs, four HCAs on networks of their own, a management and a data network to each node.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import LimitFacts
from netdoctor.facts.net import PortHolderFacts
from netdoctor.facts.rdma import Gid, Hca, RdmaFacts
from netdoctor.inventory import Target
from tests.checks import build, build_hw

HCAS = 4
SHAPES = ("healthy", "faulty", "different")
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


def facts(i: int, shape: str = "healthy") -> dict[str, Any]:
    """What node i of a cluster of this shape answers, by group."""
    rails = range(HCAS)
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
        "limits": build.limits(),
        "net": build.net(netdevs=tuple(netdevs), addresses=tuple(rows), default_devs=("eth0",)),
        "gpu": _gpus(i),
        "rdma": RdmaFacts(hcas=tuple(_hca(i, r) for r in rails), libibverbs="/usr/lib/libibverbs.so.1"),
        "software": build_hw.software(),
        "env": build.env(PATH="/usr/bin:/bin", LANG="C.UTF-8"),
        "resolve": build.resolve(own=own, first_bindable=address(i), peers=()),
        "time": build.time_facts(),
        "port_holder": PortHolderFacts(port=build.RDZV),
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


def replies(count: int, shape: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(node, its first answer as plain data) of every node."""
    for i in range(count):
        yield name(i), {group: {"value": msgspec.to_builtins(one)} for group, one in facts(i, shape).items()}
