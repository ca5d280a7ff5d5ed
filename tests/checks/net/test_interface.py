from typing import Any

import pytest

from netdoctor.checks.net.interface import net_interface
from netdoctor.facts.expected import Expectation, Expectations
from netdoctor.facts.net import NetFacts
from netdoctor.model import Confidence, Finding, Status

from ..build import address, cause, causes, found, job, loopback, net, netdev, nets, row


def judge(facts: dict[str, NetFacts], **changes: object) -> list[Finding]:
    return list(net_interface(facts, job(len(facts), **changes)))


def with_dev(i: int, **changes: Any) -> NetFacts:
    return net(i, netdevs=(loopback(), netdev(**changes)))


def two_nets(i: int, **changes: Any) -> NetFacts:
    return net(
        i,
        netdevs=(loopback(), netdev(), netdev("eth1", 3, **changes)),
        addresses=(*net(i).addresses, row("eth1", f"10.1.0.{i}")),
    )


def test_silent_on_a_healthy_cluster() -> None:
    assert judge(nets(4)) == []
    assert judge(nets(1)) == []


def test_no_address_at_all() -> None:
    bare = net(2, addresses=(row("lo", "127.0.0.1", 8), row("eth0", "fe80::1", 64)))
    findings = judge({**nets(3), "n2": bare})
    assert causes(findings) == {"net-no-address": {"n2"}}
    assert findings[0].status is Status.FAIL


@pytest.mark.parametrize("ifname", ["eth0", "ens1"])
def test_the_interface_to_bring_up_is_one_that_the_node_has(ifname: str) -> None:
    bare = net(2, netdevs=(loopback(), netdev("ib0", 5), netdev(ifname, 6)), addresses=())
    (fix,) = cause(judge({**nets(3), "n2": bare}), "net-no-address").fixes
    name = ifname if ifname == "eth0" else "ib0"
    assert fix.commands[0].shell == f"ip link set dev {name} up && ip address show dev {name}"


def test_the_expected_network_is_that_of_the_interface_in_ipv4() -> None:
    labelled = net(
        1,
        netdevs=(loopback(), netdev(), netdev("eth1", 3)),
        addresses=(row("eth0", address(1)), row("eth1", "fd00::1", 64), row("eth1:0", "10.1.0.1")),
    )
    for network, named in (("10.1.0.0/24", set()), ("10.0.0.0/24", {"n1"})):
        wish = Expectation(key="net.network.*", of="eth1", any_of=(network,), place="e.toml:3")
        findings = net_interface({"n1": labelled}, job(1), expect=Expectations(wishes=(wish,)))
        assert {one.target for one in findings} == named, network


@pytest.mark.parametrize(
    ("state", "key"),
    [
        pytest.param({"up": False, "running": False, "carrier": None}, "net-down", id="down"),
        pytest.param({"running": False, "carrier": False}, "net-no-carrier", id="no carrier"),
    ],
)
def test_the_data_interface_is_down(state: dict[str, object], key: str) -> None:
    findings = judge({**nets(3), "n3": with_dev(3, **state)})
    assert causes(findings) == {key: {"n3"}}
    assert findings[0].status is Status.FAIL


def test_another_interface_that_only_this_node_has_down() -> None:
    facts = {"n1": two_nets(1), "n2": two_nets(2, up=False, running=False), "n3": two_nets(3)}
    assert set(found(judge(facts), Status.WARN)) == {"n2"}
    over_eth1 = {f"n{i}": f"10.1.0.{i}" for i in (1, 3)} | {"n2": address(2)}
    assert set(found(judge(facts, data_addresses=over_eth1), Status.FAIL)) == {"n2"}


def test_an_unused_interface_that_is_down_is_normal() -> None:
    spare = {
        f"n{i}": net(i, netdevs=(loopback(), netdev(), netdev("eth1", 3, up=False, running=False)))
        for i in (1, 2, 3)
    }
    assert judge(spare) == []


def test_a_slow_link_warns() -> None:
    findings = judge({**nets(3), "n2": with_dev(2, speed_mbit_s=10_000)})
    assert causes(findings) == {"net-speed": {"n2"}}
    assert cause(findings, "net-speed").confidence is Confidence.CERTAIN


def test_between_two_nodes_the_slower_is_suspected() -> None:
    findings = judge({**nets(1), "n2": with_dev(2, speed_mbit_s=10_000)})
    assert causes(findings) == {"net-speed": {"n2"}}
    assert cause(findings, "net-speed").confidence is Confidence.SUSPECTED


def test_unknown_speeds_and_a_faster_link_are_fine() -> None:
    assert judge({**nets(3), "n2": with_dev(2, speed_mbit_s=None)}) == []
    assert judge({**nets(3), "n2": with_dev(2, speed_mbit_s=200_000)}) == []


def test_an_address_behind_translation_warns() -> None:
    findings = judge(nets(2), data_addresses={"n1": address(1), "n2": "203.0.113.9"})
    assert causes(findings) == {"net-address-not-own": {"n2"}}


def test_a_node_whose_dialled_address_is_not_known_is_unknown() -> None:
    findings = found(judge(nets(3), data_addresses={"n1": address(1), "n2": address(2)}))
    assert {node: one.status for node, one in findings.items()} == {"n3": Status.UNKNOWN}


def test_loopback_clusters_have_nothing_to_judge() -> None:
    findings = judge(nets(2), data_addresses={"n1": "127.0.0.1", "n2": "127.0.0.1"})
    assert {one.status for one in findings} == {Status.SKIP}
