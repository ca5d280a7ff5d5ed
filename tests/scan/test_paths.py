"""Troubles of a path that is not the one of the login: found, named, and healed by what is printed."""

import ipaddress
import json
from itertools import product
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from tests.scan.faults import Case, found, hold
from tests.scan.harness import netdoctor, scan
from tests.scan.test_healthy import quiet

NODES = ("node0", "node1", "node2", "node3")


def second(lab: Lab, node: str = "") -> str:
    """The network on eth1, or a node's address there."""
    address = lab.state.address(node or NODES[0], 1)
    return address if node else str(ipaddress.ip_network(f"{address}/24", strict=False))


def first(lab: Lab) -> str:
    """The network on eth0."""
    return str(ipaddress.ip_network(f"{lab.state.address(NODES[0])}/24", strict=False))


def test_two_healthy_networks_are_tried_and_silent(socket_lab: Lab, folder: Path) -> None:
    scanned = scan(socket_lab, folder)
    quiet(scanned)
    assert scanned.cell("nccl.sockets", "node0") == "."
    saved = json.loads((folder / ".netdoctor" / "last.json").read_text("utf-8"))
    facts = saved["facts"]["cluster"]
    dialled = {probe["address"] for probe in facts["ports"]["value"]["probes"]}
    assert {second(socket_lab, node) for node in NODES} < dialled
    assert len(facts["path_mtu"]["value"]["probes"]) == len(facts["loss"]["value"]["probes"]) == 24


def test_a_firewall_and_an_mtu_on_the_second_network(socket_lab: Lab, folder: Path) -> None:
    over = f"over eth1 ({second(socket_lab)}: NCCL)"
    closed = Case(
        faults=(f"node2 drop peers={second(socket_lab)}",), key="firewall-inbound-net2", check="net.ports",
        said=over, fix="nft insert rule",
    )  # fmt: skip
    odd = Case(
        faults=("node1 mtu if=eth1 mtu=9000",), key="mtu-differs-net2", check="net.mtu", status="warn",
        nodes=("node1",), said=over, fix="dev eth1 mtu 1500",
    )  # fmt: skip
    hold(socket_lab, folder, closed, odd)


def test_a_rail_that_is_closed_by_a_node_and_one_by_the_network(hw_lab: Lab, folder: Path) -> None:
    over = f"over eth1 ({second(hw_lab)}: RoCE mlx5_1:1)"
    closed = Case(
        faults=(f"node2 drop peers={second(hw_lab)}",), key="firewall-inbound-rail-mlx5_1-1",
        check="net.ports", status="warn", nodes=("node2",), said=over, fix="nft insert rule",
    )  # fmt: skip
    # A firewall of the node does not see RDMA; what the network drops, it may well drop of that, too.
    lost = Case(
        faults=(f"node1 fabric-drop from=all to={second(hw_lab, 'node1')}",),
        key="fabric-inbound-rail-mlx5_1-1", check="net.ports", nodes=("node1",), said=over,
    )  # fmt: skip
    hold(hw_lab, folder, closed, lost)


def test_rails_that_do_not_meet_and_a_node_without_the_way(hw_lab: Lab, folder: Path) -> None:
    """The lab's two networks are rails that do not meet. That is named where NCCL would pair them, and healed
    by what is printed, which `plan` writes by itself."""
    hold(
        hw_lab, folder, Case(faults=(), key="rails-separate", check="rdma.cross-rail", status="warn",
                             nodes=(), fix="NCCL_CROSS_NIC=0", job={"NCCL_PXN_DISABLE": "1"}),
    )  # fmt: skip
    planned = netdoctor("plan", "--last", "--output", "dotenv", cwd=folder).stdout
    assert "NCCL_CROSS_NIC=0" in planned.splitlines()
    # node3 forwards between them, and is itself on neither way.
    ways = [
        [
            "ip",
            "route",
            "add",
            second(hw_lab),
            "via",
            hw_lab.state.address("node3"),
            "dev",
            "eth0",
            "metric",
            "900",
        ],
        ["ip", "route", "add", first(hw_lab), "via", second(hw_lab, "node3"), "dev", "eth1", "metric", "900"],
    ]
    hw_lab.run("node3", ["sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
    for node, way in product(NODES[:3], ways):
        hw_lab.run(node, way, check=True)
    try:
        scanned = scan(hw_lab, folder)
        assert found(scanned) == {"rails-closed": ("node3",)}, scanned.summary()
    finally:
        hw_lab.run("node3", ["sysctl", "-qw", "net.ipv4.ip_forward=0"], check=True)
        for node, way in product(NODES[:3], ways):
            hw_lab.run(node, ["ip", "route", "del", *way[3:]], check=True)


def test_master_addr_on_the_second_network_and_a_bridge_that_all_nodes_have(
    socket_lab: Lab, folder: Path
) -> None:
    store = Case(
        faults=(f"node3 drop ports=29500 dir=out peers={second(socket_lab)}",),
        key="firewall-rendezvous-outbound-net2", check="net.ports", nodes=("node3",),
        confidence="likely",
        said=f"over eth1 ({second(socket_lab)}: MASTER_ADDR and NCCL)", fix="nft insert rule",
        job={"MASTER_ADDR": second(socket_lab, "node0")},
    )  # fmt: skip
    bridge = Case(
        faults=tuple(f"{node} if-extra name=br-1a2b address=172.18.0.1/16 containers=1" for node in NODES),
        key="nccl-sockets-same-address", check="nccl.sockets", nodes=NODES,
        said="br-1a2b 172.18.0.1", fix="NCCL_SOCKET_IFNAME",
    )  # fmt: skip
    hold(socket_lab, folder, store, bridge)


@pytest.mark.rates
def test_a_slow_link_on_the_second_network(socket_lab: Lab, folder: Path) -> None:
    # One rate for all, far below what two lent cores can do.
    for node in NODES:
        for name in ("eth0", "eth1"):
            slow = "20mbit" if (node, name) == ("node2", "eth1") else "200mbit"
            socket_lab.break_(node, "slow-link", **{"if": name, "rate": slow})
    scanned = scan(socket_lab, folder, "--only", "bw.tcp", "--budget", "14")
    assert found(scanned) == {"slow-node-both-net2": ("node2",)}, scanned.summary()
    cause = scanned.cause("slow-node-both-net2")
    assert f"over eth1 ({second(socket_lab)}: NCCL)" in cause["title"]
    assert "dev eth1" in cause["fixes"][0]["commands"][0]["shell"]
