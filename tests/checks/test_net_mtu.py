from netdoctor.checks.net_mtu import net_mtu
from netdoctor.facts.net import NetFacts
from netdoctor.model import Confidence, Finding, Status

from .build import cause, causes, job, loopback, net, netdev, nets


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


def test_other_interfaces_do_not_count() -> None:
    extra = net(2, netdevs=(loopback(), netdev(), netdev("docker0", 3, mtu=1400)))
    assert judge({**nets(3), "n2": extra}) == []
