from dataclasses import replace
from typing import Any

from netdoctor.checks.nccl.sockets import nccl_sockets
from netdoctor.facts.net import AddressRow, NetFacts
from netdoctor.facts.software import Job
from netdoctor.model import Finding, Status
from netdoctor.rules.paths import Known, paths
from netdoctor.rules.variables import effective_env

from .. import build_hw as hw
from ..build import cause, causes, job, name, net, netdev, row


def nodes(*extra: AddressRow | None, **speeds: int) -> dict[str, NetFacts]:
    """n1… with eth0 of 100 Gbit/s and, where one is given, another address. speeds: of other interfaces."""

    def one(i: int, more: AddressRow | None) -> NetFacts:
        healthy = net(i)
        rows = (more,) if more is not None else ()
        devs = [netdev(r.ifname, 3, speed_mbit_s=speeds.get(r.ifname)) for r in rows if r.ifname != "eth0"]
        return replace(healthy, netdevs=(*healthy.netdevs, *devs), addresses=(*healthy.addresses, *rows))

    return {name(i): one(i, more) for i, more in enumerate(extra, 1)}


def judge(nets: dict[str, NetFacts], the_job: Job | None = None, **known: Any) -> list[Finding]:
    the_job = the_job or job(len(nets))
    seen = {
        n: Known(net=one, env=effective_env(None, the_job), **{"gpu": hw.gpus(1), **known})
        for n, one in nets.items()
    }
    softwares = {n: known["software"] for n in nets if "software" in known}
    return list(nccl_sockets(paths(seen, the_job), nets, the_job, None, softwares))


def everywhere(ifname: str, address: str, **more: Any) -> list[AddressRow]:
    return [row(ifname, address.format(i), **more) for i in (1, 2, 3)]


def fixed(findings: list[Finding], key: str) -> str:
    (fix,) = cause(findings, key).fixes
    return fix.commands[0].shell


def test_two_equal_networks_pass() -> None:
    (finding,) = judge(nodes(*everywhere("eth1", "10.1.0.{}"), eth1=100_000))
    assert (finding.status, finding.summary) == (Status.PASS, "NCCL sends over eth0 and eth1")


def test_says_why_it_does_not_apply() -> None:
    bridges = nodes(*everywhere("br-1a2b", "172.18.0.1"))
    for known, why in (({"gpu": hw.no_gpus()}, "no GPU"), ({"rdma": hw.rdma(hw.hca())}, "mlx5_0:1")):
        (finding,) = judge(bridges, **known)
        assert finding.status is Status.SKIP
        assert why in finding.summary
    assert [one.status for one in judge(nodes(None))] == [Status.SKIP]


def test_a_bridge_with_one_address_on_every_node() -> None:
    findings = judge(nodes(*everywhere("br-1a2b", "172.18.0.1")))
    assert causes(findings) == {"nccl-sockets-same-address": {"n1", "n2", "n3"}}
    assert {one.status for one in findings} == {Status.FAIL}
    assert "br-1a2b 172.18.0.1" in findings[0].summary
    assert fixed(findings, "nccl-sockets-same-address") == "export NCCL_SOCKET_IFNAME='=eth0'"


def test_a_bridge_that_is_not_running_is_a_matter_of_the_release() -> None:
    nets = nodes(*everywhere("br-1a2b", "172.18.0.1"))
    nets = {
        n: replace(one, netdevs=tuple(replace(d, running=d.name == "eth0") for d in one.netdevs))
        for n, one in nets.items()
    }
    findings = judge(nets)
    assert causes(findings) == {"nccl-sockets-same-address": {"n1", "n2", "n3"}}
    assert {one.status for one in findings} == {Status.WARN}
    assert "before 2.28.3" in cause(findings, "nccl-sockets-same-address").title
    for version, said in (("2.27.7", Status.FAIL), ("2.28.3", Status.PASS)):
        assert {one.status for one in judge(nets, software=hw.software(nccl=(hw.nccl(version),)))} == {said}


def test_bridges_that_nccl_excludes_and_set_variables_are_silent() -> None:
    assert not causes(judge(nodes(*everywhere("docker0", "172.17.0.1"))))
    named = job(3, env={"NCCL_SOCKET_IFNAME": "eth"})
    assert not causes(judge(nodes(*everywhere("br-1a2b", "172.18.0.1")), named))


def test_a_link_local_address_is_a_risk() -> None:
    findings = judge(nodes(None, row("veth9", "fe80::9", 64, scope="link"), None))
    assert causes(findings) == {"nccl-sockets-link-local": {"n2"}}
    assert findings[0].status is Status.WARN
    assert fixed(findings, "nccl-sockets-link-local") == "export NCCL_SOCKET_IFNAME='=eth0'"


def test_a_management_network_beside_a_fast_one() -> None:
    findings = judge(nodes(*everywhere("mgmt0", "10.1.0.{}"), mgmt0=1000))
    assert causes(findings) == {"nccl-sockets-uneven": {"n1", "n2", "n3"}}
    assert "mgmt0 10.1.0.1, 1 Gbit/s, another 100" in findings[0].summary
    assert fixed(findings, "nccl-sockets-uneven") == "export NCCL_SOCKET_IFNAME='=eth0'"
    assert not causes(judge(nodes(*everywhere("mgmt0", "10.1.0.{}"), mgmt0=25_000)))


def test_the_value_keeps_what_is_good() -> None:
    nets = nodes(*everywhere("eth1", "10.1.0.{}"), eth1=100_000)
    bridge = row("br-1", "172.18.0.1", 16)
    nets = {n: replace(one, addresses=(*one.addresses, bridge)) for n, one in nets.items()}
    assert "'=eth0,eth1'" in fixed(judge(nets), "nccl-sockets-same-address")


def test_an_overlay_beside_a_direct_network() -> None:
    findings = judge(nodes(*everywhere("tailscale0", "100.64.0.{}", prefix_len=32)))
    assert causes(findings) == {"nccl-sockets-uneven": {"n1", "n2", "n3"}}
    assert "an overlay, although there is a direct network" in findings[0].summary
    assert fixed(findings, "nccl-sockets-uneven") == "export NCCL_SOCKET_IFNAME='=eth0'"


def test_link_local_addresses_that_all_nodes_have_are_a_risk_too() -> None:
    findings = judge(nodes(*everywhere("cali9", "fe80::ecee:eeff:feee:eeee", prefix_len=64, scope="link")))
    assert causes(findings) == {"nccl-sockets-link-local": {"n1", "n2", "n3"}}
