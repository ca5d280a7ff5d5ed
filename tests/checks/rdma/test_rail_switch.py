"""Ports on another rail's switch, on random fabrics with crossed cables, and on healthy ones."""

import random
from collections.abc import Mapping
from itertools import combinations

import pytest

from netdoctor.checks.rdma.rail_switch import rdma_rail_switch
from netdoctor.engine.gathering import put_leaves
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.cabling import CabledPort, CablingFacts, by_switches
from netdoctor.facts.host import Node
from netdoctor.facts.rdma import Gid, RdmaFacts
from netdoctor.inventory.names import leaf_fault
from netdoctor.model import Finding, Status
from netdoctor.rules.switches import job_ports, leaves, rail_ports
from netdoctor.store import Store

from ..build import cause, env, job, net, netdev, row
from ..build_hw import hca, port

# node -> rail -> the switch of its port
Fabric = dict[str, dict[int, str]]


def fabric(leaf_count: int, rails: int, nodes: int, one_switch: bool = False) -> Fabric:
    """Leaves with a switch for each rail, or one for all of them."""
    return {
        f"gpu{leaf}-{i}": {r: f"leaf{leaf}" if one_switch else f"leaf{leaf}-rail{r}" for r in range(rails)}
        for leaf in range(leaf_count)
        for i in range(nodes)
    }


def facts(cables: Fabric, by: str = "lldpd") -> dict[str, CablingFacts]:
    return {
        node: CablingFacts(
            ports=tuple(
                CabledPort(port=f"rail{r}", switch=f"02:{switch}", switch_name=switch, at=f"swp{node}", by=by)
                for r, switch in ports.items()
            )
        )
        for node, ports in cables.items()
    }


def roce(count: int) -> RdmaFacts:
    gids = [Gid(index=3, gid="::ffff:10.0.0.1", type="RoCE v2", netdev=f"rail{r}") for r in range(count)]
    ports = [port(f"mlx5_{r}", link_layer="Ethernet", gids=(gids[r],)) for r in range(count)]
    return RdmaFacts(hcas=tuple(hca(f"mlx5_{r}", ports=(ports[r],)) for r in range(count)))


def judged(
    cablings: Mapping[str, CablingFacts] | None,
    nodes: Mapping[str, RdmaFacts],
    listed: Mapping[str, str] = {},
) -> list[Finding]:
    known = {node: Node(id=node, host=node, order=i, rail=listed.get(node)) for i, node in enumerate(nodes)}
    envs, nets = {node: env() for node in nodes}, {node: net() for node in nodes}
    return list(rdma_rail_switch(nodes, cablings, known, nets, envs, job()))


def rdma_of(cables: Fabric) -> dict[str, RdmaFacts]:
    return {node: roce(len(ports)) for node, ports in cables.items()}


@pytest.mark.parametrize("seed", range(60))
def test_crossed_cables_of_random_fabrics(seed: int) -> None:
    chance = random.Random(seed)
    rails, nodes = chance.randint(2, 8), chance.randint(4, 12)
    cables = fabric(chance.randint(1, 4), rails, nodes)
    (finding,) = judged(facts(cables), rdma_of(cables))
    assert finding.status is Status.PASS, "healthy"
    if chance.random() < 0.5:  # some links are down
        node = chance.choice([*cables])
        del cables[node][chance.randrange(rails)]
        (finding,) = judged(facts(cables), rdma_of(cables))
        assert finding.status is Status.PASS, "a link is down"
    odd = set()
    for node in chance.sample([*cables], k=chance.randint(1, 2)):
        if node.startswith("gpu0") and len(cables[node]) > 1:
            a, b = chance.sample([*cables[node]], k=2)
            cables[node][a], cables[node][b] = cables[node][b], cables[node][a]
            odd |= {(node, f"mlx5_{a}:1"), (node, f"mlx5_{b}:1")}
    if nodes < 6 and len({node for node, _ in odd}) > 1:
        return  # of four nodes two are no third
    found = [one for one in judged(facts(cables), rdma_of(cables)) if one.status is Status.WARN]
    assert {one.target for one in found} == {node for node, _ in odd}
    for one in found:
        assert all(name in one.summary for node, name in odd if node == one.target)


def test_what_it_says() -> None:
    cables = fabric(1, 4, 4)
    cables["gpu0-2"] |= {1: "leaf0-rail2", 2: "leaf0-rail1"}
    (finding,) = judged(facts(cables), rdma_of(cables))
    assert (finding.status, finding.target) == (Status.WARN, "gpu0-2")
    assert finding.summary == (
        "mlx5_1:1 is on leaf0-rail2, where mlx5_2:1 of the others is, and not on leaf0-rail1; "
        "mlx5_2:1 is on leaf0-rail1, where mlx5_1:1 of the others is, and not on leaf0-rail2"
    )
    assert cause([finding], "rail-switch").fixes[0].text == (
        "move the cable of mlx5_1:1 from leaf0-rail2 port swpgpu0-2 to leaf0-rail1; "
        "mlx5_2:1 from leaf0-rail1 port swpgpu0-2 to leaf0-rail2"
    )
    cables["gpu0-2"] = cables["gpu0-1"] | {3: "storage"}
    (finding,) = judged(facts(cables), rdma_of(cables))
    assert finding.summary == "mlx5_3:1 is on storage, and not on leaf0-rail3"


@pytest.mark.parametrize(
    ("cables", "status"),
    [
        (fabric(3, 8, 4, one_switch=True), Status.SKIP),
        # Nothing says which of two is odd, nor where every node is cabled in its own way.
        ({"a": {0: "s0", 1: "s1"}, "b": {0: "s1", 1: "s0"}}, Status.SKIP),
        ({f"n{i}": {r: f"s{(r + i) % 4}" for r in range(4)} for i in range(8)}, Status.SKIP),
        ({"a": {0: "s0"}, "b": {}, "c": {0: "s1"}}, Status.SKIP),
        # Two planes, and each node's ports on both.
        ({f"n{i}": {r: f"plane{r % 2}" for r in range(8)} for i in range(16)}, Status.PASS),
    ],
)
def test_fabrics_without_a_switch_for_each_rail(cables: Fabric, status: Status) -> None:
    (finding,) = judged(facts(cables), rdma_of(cables))
    assert finding.status is status


def test_rail_of_the_hosts_file_where_nodes_do_not_say() -> None:
    cables = fabric(1, 2, 3)
    listed = {node: ",".join(f"mlx5_{r}:{one}" for r, one in ports.items()) for node, ports in cables.items()}
    listed["gpu0-1"] = "mlx5_0:leaf0-rail1,mlx5_1:leaf0-rail0"
    (finding,) = judged(None, rdma_of(cables), listed)
    assert (finding.status, finding.target) == (Status.WARN, "gpu0-1")
    silent = {node: CablingFacts(ports=()) for node in cables}
    (finding,) = judged(silent, rdma_of(cables), listed)
    assert finding.target == "gpu0-1"
    # A switch for management that nodes hear says nothing of their RDMA ports.
    one = CabledPort(port="eno1", switch="02:99", switch_name="mgmt", by="systemd-networkd")
    managed = {node: CablingFacts(ports=(one,)) for node in cables}
    (finding,) = judged(managed, rdma_of(cables), listed)
    assert (finding.status, finding.target) == (Status.WARN, "gpu0-1")
    (finding,) = judged(facts(cables), rdma_of(cables), listed)  # the cable itself counts
    assert finding.status is Status.PASS


def test_where_nobody_knows_a_switch() -> None:
    nodes = rdma_of(fabric(1, 2, 3))
    (finding,) = judged(None, nodes)
    assert finding.status is Status.SKIP
    unread = {node: CablingFacts(ports=(), unread="lldpcli: Permission denied") for node in nodes}
    (finding,) = judged(unread, nodes)
    assert finding.summary.endswith("which switch its RDMA ports are on: lldpcli: Permission denied")


def test_ports_of_a_job_are_nccls_or_the_interface_of_the_data_address() -> None:
    known = {name: CabledPort(port=name, switch=name.upper()) for name in ("rail0", "rail1", "eno1", "mgmt")}
    plain = net(
        netdevs=(netdev("bond0", 2, kind="bond", slaves=("eno1", "eno2")), netdev("mgmt", 3)),
        addresses=(row("bond0", "10.0.0.1"), row("mgmt", "10.1.0.1")),
    )

    def of(rdma: RdmaFacts | None, ib_hca: str | None = None, address: str | None = None) -> dict[str, str]:
        found = job_ports(known, rdma, plain, ib_hca=ib_hca, address=address)
        assert all(name == one.port for name, one in found.items())
        return {name: one.switch for name, one in found.items()}

    assert of(roce(3)) == {"mlx5_0:1": "RAIL0", "mlx5_1:1": "RAIL1"}
    assert of(roce(3), ib_hca="=mlx5_1") == {"mlx5_1:1": "RAIL1"}
    assert of(None, address="10.0.0.1") == {"bond0": "ENO1"}
    assert of(None, address="10.9.0.1") == of(None) == {}


def test_leaves_of_the_hosts_file_win() -> None:
    cables = fabric(2, 2, 2)
    for listed, expected in (
        (None, {node: f"{node[:4].replace('gpu', 'leaf')}-rail0" for node in cables}),
        ("typed", {"gpu0-0": "typed"}),
    ):
        store = Store()
        for i, (node, one) in enumerate(facts(cables).items()):
            first = Node(id=node, host=node, order=i, leaf=listed if not i else None)
            store.put("node", node, first)
            store.put("cabling", node, one)
            store.put("rdma", node, roce(2))
        store.put("net", "gpu0-0", Missing(Why.FAILED, "x"))
        # One that is on a switch where nobody else is, such as that of a hypervisor.
        store.put("node", "vm", Node(id="vm", host="vm", order=9))
        store.put("cabling", "vm", facts({"vm": {0: "x", 1: "y"}})["vm"])
        store.put("rdma", "vm", roce(2))
        put_leaves(store, [*cables, "vm"], job())
        found = {node: one.leaf for node in (*cables, "vm") if (one := store.get("node", node)).leaf}
        assert found == expected


def test_a_management_switch_is_everybodys() -> None:
    """It is the first port by name, and no two leaves are one for its sake."""
    hosts = {f"n{i}": {"eth0": "mgmt", "eth1": f"leaf{i // 4}"} for i in range(12)}
    links = [(host, port, switch) for host, ports in hosts.items() for port, switch in ports.items()]
    assert by_switches(links, {}) == {host: ports["eth1"] for host, ports in hosts.items()}


@pytest.mark.parametrize("seed", range(40))
def test_leaves_of_random_cables(seed: int) -> None:
    """Each host has a leaf, whose name a hosts file takes; hosts with the same cables share it."""
    chance = random.Random(seed)
    switches = [chance.choice(["s", "\x1b[1m", "a b", "-", "é" * 90, ""]) + str(i) for i in range(8)]
    hosts = {f"h{i}": chance.sample(switches, chance.randint(1, 4)) for i in range(chance.randint(1, 30))}
    links = [(host, str(p), switch) for host, several in hosts.items() for p, switch in enumerate(several)]
    found = by_switches(links, {switch: chance.choice(["same", switch]) for switch in switches})
    assert found.keys() == hosts.keys()
    assert not any(map(leaf_fault, found.values()))
    for (one, first), (other, second) in combinations(hosts.items(), 2):
        assert set(first) != set(second) or found[one] == found[other]
    ports = {
        host: {str(p): CabledPort(port=str(p), switch=switch) for p, switch in enumerate(several)}
        for host, several in hosts.items()
    }
    assert leaves(ports).keys() == hosts.keys()
    rail_ports(ports)
