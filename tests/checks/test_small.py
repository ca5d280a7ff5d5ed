"""Two to four DGX Sparks, with a switch, a cable or a ring of cables: published traps are named with what to
set, and healthy ones are silent. Those of one node are in tests/data/machines/dgx-spark.toml."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from netdoctor.engine.diagnose import Group
from netdoctor.engine.gathering import all_paths
from netdoctor.facts.counters import LaterCounters
from netdoctor.facts.net_setup import InterfaceSetup, NetSetupFacts
from netdoctor.facts.rdma import Gid
from netdoctor.facts.software import Nccl
from netdoctor.store import Store
from tests import machines
from tests.checks import build, build_hw
from tests.checks.test_machines import alarms, judged

# Interfaces of the machine's HCAs: two halves of the first socket, and of the second.
NETDEVS = {
    "mlx5_0": "enp1s0f0np0", "mlx5_2": "enP2p1s0f0np0", "mlx5_1": "enp1s0f1np1", "mlx5_3": "enP2p1s0f1np1",
}  # fmt: skip
# node -> HCA -> its address, of a /24.
Cables = Mapping[str, Mapping[str, str]]
SPARK = machines.load("dgx-spark")


def cluster(cables: Cables, nccl: str = "2.30.7", **env: str) -> Store:
    """Sparks whose ports have these addresses, and no others; their job has these variables."""
    store = machines.fleet([SPARK] * len(cables))
    for node, addresses in cables.items():
        rdma, net, software = (store.get(group, node) for group in ("rdma", "net", "software"))
        hcas = []
        for hca in rdma.hcas:
            own = addresses.get(hca.name)
            mapped = f"0000:0000:0000:0000:0000:ffff:{_hex(own)}" if own else ""
            kinds = [(2, "IB/RoCE v1"), (3, "RoCE v2")] if own else []
            rows = [Gid(index=i, gid=mapped, type=kind, netdev=NETDEVS[hca.name]) for i, kind in kinds]
            state = (
                {"state": "ACTIVE", "rate_gbit_s": 200.0} if own else {"state": "DOWN", "rate_gbit_s": 40.0}
            )
            port = replace(hca.ports[0], gids=(*hca.ports[0].gids[:2], *rows), **state)
            hcas.append(replace(hca, ports=(port,)))
        store.put("rdma", node, replace(rdma, hcas=tuple(hcas)))
        kept = [row for row in net.addresses if row.ifname not in NETDEVS.values()]
        rows = [build.row(NETDEVS[hca], address, 24) for hca, address in addresses.items()]
        devs = [
            replace(dev, up=True, running=True, carrier=True, mtu=9000, operstate="up", speed_mbit_s=200_000)
            if dev.name in {NETDEVS[hca] for hca in addresses}
            else dev
            for dev in net.netdevs
        ]
        store.put("net", node, replace(net, addresses=(*kept, *rows), netdevs=tuple(devs)))
        store.put("counters", node, build_hw.counters(hcas=4, netdevs=("eth0", *NETDEVS.values())))
        later = build_hw.counters(uptime_s=5060.0, hcas=4, netdevs=("eth0", *NETDEVS.values()))
        store.put("counters_later", node, LaterCounters(reading=later))
        setups = [
            InterfaceSetup(
                ifname=NETDEVS[hca], by="systemd-networkd", state="configured", method="manual",
                addresses=(address,), mtu=9000, autoconnect=True,
            )
            for hca, address in addresses.items()
        ]  # fmt: skip
        store.put("net_setup", node, NetSetupFacts(interfaces=tuple(setups)))
        library = (Nccl(version=nccl, origin="wheel", path="/x/libnccl.so.2"),)
        store.put("software", node, replace(software, nccl=library))
    job = build.job(len(cables), env=env)
    store.cluster["job"] = job
    store.cluster["paths"] = all_paths(store, list(cables), job)
    return store


def _hex(address: str | None) -> str:
    numbers = [int(one) for one in (address or "").split(".")]
    return f"{numbers[0]:02x}{numbers[1]:02x}:{numbers[2]:02x}{numbers[3]:02x}"


def groups(store: Store) -> list[Group]:
    return judged([SPARK] * len(store.cluster["job"].data_addresses), store)[1]


def both(first: str, second: str, number: int, socket: int = 0) -> dict[str, str]:
    """A socket's halves in two networks, ``10.30.1`` and ``10.30.2``."""
    one, other = (("mlx5_0", "mlx5_2"), ("mlx5_1", "mlx5_3"))[socket]
    return {one: f"{first}.{number}", other: f"{second}.{number}"}


def ring(count: int, equal: bool = False) -> dict[str, dict[str, str]]:
    """Each node's first socket to the next one's second; equal: the first cable at first sockets."""
    found: dict[str, dict[str, str]] = {node: {} for node in build.names(count)}
    for i in range(1, count + 1):
        then = i % count + 1
        first, second = f"10.30.{2 * i}", f"10.30.{2 * i + 1}"
        found[f"n{i}"] |= both(first, second, 1, 0)
        found[f"n{then}"] |= both(first, second, 2, 1)
    if equal:
        for table in (found["n2"],):
            swap = {"mlx5_0": "mlx5_1", "mlx5_1": "mlx5_0", "mlx5_2": "mlx5_3", "mlx5_3": "mlx5_2"}
            found["n2"] = {swap[hca]: address for hca, address in table.items()}
    return found


PAIR = {f"n{i}": both("10.30.1", "10.30.2", i) for i in (1, 2)}
FOUR = {f"n{i}": both("10.30.1", "10.30.2", i) for i in (1, 2, 3, 4)}
OTHER_SOCKET = {"n1": both("10.30.1", "10.30.2", 1), "n2": both("10.30.1", "10.30.2", 2, socket=1)}
AWARE = {"NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_IB_MERGE_NICS": "0"}


@pytest.mark.parametrize(
    ("cables", "env"),
    [
        pytest.param(PAIR, {}, id="pair"),
        pytest.param(FOUR, {}, id="four behind a switch"),
        pytest.param(PAIR, {"NCCL_IB_GID_INDEX": ""}, id="empty is unset"),
        pytest.param(PAIR, {"NCCL_IB_HCA": "=mlx5_0,mlx5_2"}, id="both halves named"),
        pytest.param(PAIR, {"NCCL_NET_GDR_LEVEL": "LOC"}, id="no GPUDirect"),
        pytest.param(ring(3), AWARE, id="ring of three"),
        pytest.param(ring(3), {"NCCL_NET_PLUGIN": "mesh"}, id="ring with a plugin for such"),
        pytest.param(ring(4), {**AWARE, "NCCL_ALGO": "Ring"}, id="ring of four"),
    ],
)
def test_healthy_ones_are_silent(cables: Cables, env: dict[str, str]) -> None:
    assert alarms(groups(cluster(cables, **env))) == []


@dataclass(frozen=True)
class Trap:
    """What somebody published, the cause that names it, of which nodes, and the words of its fix."""

    thread: str
    cables: Cables
    key: str
    fix: str
    nodes: tuple[str, ...] = ("n1", "n2")
    env: dict[str, str] = field(default_factory=dict)
    nccl: str = "2.30.7"


# What follows: without its HCAs a node sends over whatever else it has; where a cable is in another socket,
# or is one more than others have, a port is down.
FOLLOW = {"nccl-sockets-uneven", "nccl-ib-fewer", "net-down", "hca-port-down", "hca-port-elsewhere"}
TRAPS = [
    Trap(
        "https://github.com/NVIDIA/dgx-spark-playbooks/tree/main/nvidia/connect-two-sparks: sockets",
        OTHER_SOCKET, "hca-port-elsewhere", "use the same sockets",
    ),
    Trap(
        "https://github.com/NVIDIA/dgx-spark-playbooks/tree/main/nvidia/connect-two-sparks: one list",
        OTHER_SOCKET, "nccl-ib-hca-nomatch", "NCCL_IB_HCA", ("n2",), {"NCCL_IB_HCA": "=mlx5_0,mlx5_2"},
    ),
    Trap(
        "https://github.com/NVIDIA/daqiri/issues/173: halves in each other's networks",
        {"n1": both("10.30.1", "10.30.2", 1), "n2": both("10.30.2", "10.30.1", 2)},
        "rails-crossed", "move the cables",
    ),
    Trap(
        "https://github.com/luxingcom/aicad-nccl-optimization/issues/1: a triangle",
        ring(3), "rails-ring", "NCCL_IB_SUBNET_AWARE_ROUTING=1", ("n1", "n2", "n3"),
    ),
    Trap(
        "https://github.com/luxingcom/aicad-nccl-optimization/issues/1: equal sockets",
        ring(3, equal=True), "rails-ring", "the second socket of the next", ("n1", "n2", "n3"), AWARE,
    ),
    Trap(
        "https://github.com/eugr/spark-vllm-docker/issues/252: the image's NCCL ignores it",
        ring(3), "rails-ring", "NCCL 2.30.7 or newer", ("n1", "n2", "n3"), AWARE, "2.28.9",
    ),
    Trap(
        "https://github.com/MiaAI-Lab/DeepSeek-v4.1-Flash-DGX-Sparks/pull/3: trees in a ring of four",
        ring(4), "rails-ring", "NCCL_ALGO=Ring", ("n1", "n2", "n3", "n4"), AWARE,
    ),
    Trap(
        "192.168.201.1 to a PC beside a switch",
        {**FOUR, "n1": {**FOUR["n1"], "mlx5_3": "192.168.201.1"}},
        "rails-alone", "=mlx5_0,mlx5_2", ("n1",),
    ),
    Trap(
        "https://github.com/NVIDIA/dgx-spark-playbooks/tree/main/nvidia/nccl: link-local: [ ipv4 ]",
        {f"n{i}": {"mlx5_0": f"10.30.1.{i}", "mlx5_2": f"169.254.35.{i}"} for i in (1, 2)},
        "address-link-local", "netplan",
    ),
    Trap(
        "https://forums.developer.nvidia.com/t/dgx-spark-gpudirect-rdma/348787",
        PAIR, "gpudirect-forced", "unset NCCL_DMABUF_ENABLE", env={"NCCL_DMABUF_ENABLE": "1"},
    ),
    Trap(
        "https://github.com/NVIDIA/nccl-tests/issues/188: left from an image",
        PAIR, "nccl-ib-off", "NCCL_IB_DISABLE", env={"NCCL_IB_DISABLE": "1"},
    ),
]  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS, ids=lambda one: f"{one.key} {one.thread[-20:]}")
def test_a_published_trap_is_named_with_what_to_set(trap: Trap) -> None:
    found = groups(cluster(trap.cables, trap.nccl, **trap.env))
    named = {group.key: group for group in found if group.status in ("fail", "warn", "unknown")}
    assert trap.key in named, alarms(found)
    assert named.keys() <= {trap.key, *FOLLOW}, alarms(found)
    group = named[trap.key]
    assert set(group.culprits) == set(trap.nodes)
    fixes: list[Any] = [
        word for fix in group.fixes for word in (fix.text, *(command.shell for command in fix.commands))
    ]
    assert trap.fix in " ".join(fixes), fixes
