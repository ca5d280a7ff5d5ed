from dataclasses import replace

import pytest

from netdoctor.checks.net.mtu import net_mtu
from netdoctor.facts.net import NetFacts
from netdoctor.facts.paths import Paths
from netdoctor.model import Confidence, Finding, Status

from ..build import address, cause, causes, job, loopback, net, netdev, nets, second


def jumbo(i: int, mtu: int = 9000) -> NetFacts:
    return net(i, netdevs=(loopback(), netdev(mtu=mtu)))


def judge(facts: dict[str, NetFacts]) -> list[Finding]:
    return list(net_mtu(facts, job(len(facts))))


def test_silent_when_equal() -> None:
    assert judge(nets(4)) == []


def test_one_node_is_skipped() -> None:
    assert judge(nets(1))[0].status is Status.SKIP


def test_the_odd_one_warns_either_way() -> None:
    findings = judge({**nets(3), "n2": jumbo(2)})
    assert causes(findings) == {"mtu-differs": {"n2"}}
    assert cause(findings, "mtu-differs").fixes[0].commands[0].shell == "ip link set dev eth0 mtu 1500"
    assert causes(judge({**nets(3), "n1": jumbo(1, 1400)})) == {"mtu-differs": {"n1"}}


def test_two_nodes_are_a_tie() -> None:
    findings = judge({**nets(1), "n2": jumbo(2)})
    assert causes(findings) == {"mtu-differs": {"n1", "n2"}}
    assert cause(findings, "mtu-differs").confidence is Confidence.SUSPECTED


@pytest.mark.parametrize(
    ("net_facts", "dialled"),
    [
        pytest.param(net(2), None, id="no data address"),
        pytest.param(net(2), "192.0.2.9", id="an address that no interface has"),
        pytest.param(net(2, netdevs=(loopback(),)), address(2), id="an interface that was not read"),
        pytest.param(jumbo(2, 0), address(2), id="an MTU that could not be read"),
    ],
)
def test_a_node_whose_mtu_was_not_read_is_unknown(net_facts: NetFacts, dialled: str | None) -> None:
    addresses = {"n1": address(1), "n3": address(3), **({"n2": dialled} if dialled else {})}
    findings = list(net_mtu({**nets(3), "n2": net_facts}, job(3, data_addresses=addresses)))
    assert [(one.target, one.status) for one in findings] == [("n2", Status.UNKNOWN)]


def test_without_any_data_address_nothing_is_known() -> None:
    (finding,) = net_mtu(nets(3), job(3, data_addresses={}))
    assert (finding.target, finding.status) == ("cluster", Status.UNKNOWN)


def test_over_loopback_there_is_no_mtu_to_compare() -> None:
    findings = list(net_mtu(nets(2), job(2, data_addresses=dict.fromkeys(("n1", "n2"), "127.0.0.1"))))
    assert [(one.target, one.status) for one in findings] == [("n1", Status.SKIP), ("n2", Status.SKIP)]


def test_other_interfaces_do_not_count() -> None:
    extra = net(2, netdevs=(loopback(), netdev(), netdev("docker0", 3, mtu=1400)))
    assert judge({**nets(3), "n2": extra}) == []


def test_a_further_path_is_compared_by_itself_and_named() -> None:
    def two(i: int, mtu: int) -> NetFacts:
        healthy = net(i)
        devs = (*healthy.netdevs, netdev("eth1", 3, mtu=mtu))
        return replace(healthy, netdevs=devs)

    machines = {f"n{i}": two(i, 9000 if i == 2 else 1500) for i in (1, 2, 3)}
    findings = list(net_mtu(machines, job(3), second(3)))
    assert causes(findings) == {"mtu-differs-net2": {"n2"}}
    assert "over eth1 (10.1.0.0/24: NCCL)" in findings[0].summary
    assert cause(findings, "mtu-differs-net2").fixes[0].commands[0].shell == "ip link set dev eth1 mtu 1500"
    rail = replace(second(3).further[0], id="RoCE mlx5_0:1", users=())
    on_rail = list(net_mtu(machines, job(3), Paths(paths=second(3).paths[:1], rails=(rail, rail))))
    assert causes(on_rail) == {"mtu-differs-rail-mlx5_0-1": {"n2"}}
    assert len(on_rail) == 1, "two ports of one interface"
    everywhere = {f"n{i}": two(i, 9000) for i in (1, 2, 3)}
    assert list(net_mtu(everywhere, job(3), second(3))) == [], "each path has an MTU of its own"
