from dataclasses import replace

import pytest

from netdoctor.checks.net.route import net_route
from netdoctor.facts.net import NetFacts, Route, RouteFacts
from netdoctor.model import Finding, Status

from ..build import (
    address,
    all_routes,
    cause,
    causes,
    found,
    job,
    loopback,
    name,
    net,
    netdev,
    nets,
    routes,
    row,
    second,
)


def judge(facts: dict[str, RouteFacts], machines: dict[str, NetFacts] | None = None) -> list[Finding]:
    count = len(machines or facts)
    return list(net_route(facts, machines or nets(count), job(count)))


def none_to(i: int) -> Route:
    return Route(destination=address(i), error="ENETUNREACH")


def test_silent_on_a_healthy_cluster() -> None:
    assert judge(all_routes(4)) == []


def test_one_node_is_skipped() -> None:
    (finding,) = judge({"n1": RouteFacts()})
    assert finding.status is Status.SKIP


def test_a_node_without_routes_is_the_culprit() -> None:
    lost = {name(i): none_to(i) for i in (1, 3, 4)}
    findings = judge({**all_routes(4), "n2": routes(2, 4, **lost)})
    assert causes(findings) == {"route-missing": {"n2"}}
    assert set(found(findings, Status.FAIL)) == {"n2->n1", "n2->n3", "n2->n4"}
    shell = cause(findings, "route-missing").fixes[0].commands[0].shell
    assert shell.endswith("; ip route replace 10.0.0.1/32 dev eth0")


def test_a_node_that_nobody_has_a_route_to() -> None:
    facts = {name(i): routes(i, 4, n3=none_to(3)) for i in (1, 2, 4)} | {"n3": routes(3, 4)}
    assert causes(judge(facts)) == {"route-missing-to": {"n3"}}


def test_one_missing_route_is_its_nodes() -> None:
    assert causes(judge({**all_routes(4), "n1": routes(1, 4, n4=none_to(4))})) == {"route-missing": {"n1"}}


def test_traffic_over_another_interface_warns() -> None:
    machines = {
        **nets(2),
        "n1": net(
            1,
            netdevs=(loopback(), netdev(), netdev("tailscale0", 3)),
            addresses=(*net(1).addresses, row("tailscale0", "100.64.0.1", 32)),
        ),
    }
    other = Route(destination=address(2), source="100.64.0.1", dev="tailscale0")
    findings = judge({"n1": routes(1, 2, n2=other), "n2": routes(2, 2)}, machines)
    assert causes(findings) == {"route-other-interface": {"n1"}}
    assert findings[0].status is Status.WARN


def two_networks(number: int, ifname: str = "ens6") -> NetFacts:
    """A node with one more network, 10.9.0.0/24, on this interface."""
    one = net(number)
    return net(
        number,
        netdevs=(*one.netdevs, netdev(ifname, 3)),
        addresses=(*one.addresses, row(ifname, f"10.9.0.{number}", 24)),
    )


@pytest.mark.parametrize("odd", [{1}, {2}, {3, 4}, {1, 2, 3}])
def test_no_route_is_touched_where_a_node_is_dialled_on_another_network(odd: set[int]) -> None:
    """Each route is the right one for its address; what is wrong is which address was chosen."""
    used = {name(i): f"10.9.0.{i}" if i in odd else address(i) for i in range(1, 5)}
    facts = {
        name(i): RouteFacts(
            routes={
                n: Route(destination=a, source=None, dev="ens6" if a.startswith("10.9") else "eth0")
                for n, a in used.items()
                if n != name(i)
            }
        )
        for i in range(1, 5)
    }
    machines = {name(i): two_networks(i) for i in range(1, 5)}
    findings = list(net_route(facts, machines, job(4, data_addresses=used)))
    assert {f.target for f in findings} == {
        f"n{a}->n{b}" for a in range(1, 5) for b in range(1, 5) if (a in odd) != (b in odd)
    }
    for finding in findings:
        assert finding.cause is not None
        assert finding.cause.follows == ("nccl.ifname", "gloo.ifname")
        assert not any(fix.commands for fix in finding.cause.fixes)


def test_a_node_that_was_asked_for_no_route_is_unknown() -> None:
    findings = found(judge({**all_routes(3), "n2": RouteFacts()}))
    assert {node: one.status for node, one in findings.items()} == {"n2": Status.UNKNOWN}


def test_a_route_without_an_interface_is_unknown() -> None:
    findings = found(judge({**all_routes(3), "n2": routes(2, 3, n3=Route(destination=address(3)))}))
    assert {target: one.status for target, one in findings.items()} == {"n2->n3": Status.UNKNOWN}


def test_two_nodes_with_one_address() -> None:
    mine = Route(destination=address(1), source=address(1), dev="lo")
    findings = judge({"n1": routes(1, 2, n2=mine), "n2": routes(2, 2)})
    assert causes(findings) == {"address-duplicate": {"n1", "n2"}}


def test_a_route_that_is_missing_on_a_further_path_is_named() -> None:
    def asked(i: int, error: str | None) -> RouteFacts:
        further = tuple(
            Route(destination=f"10.1.0.{j}", dev=None if error else "eth1", error=error)
            for j in range(1, 4)
            if j != i
        )
        return replace(routes(i, 3), further=further)

    facts = {f"n{i}": asked(i, "ENETUNREACH" if i == 2 else None) for i in (1, 2, 3)}
    findings = list(net_route(facts, nets(3), job(3), second(3)))
    assert causes(findings) == {"route-missing-net2": {"n2"}}
    assert "over eth1 (10.1.0.0/24: NCCL)" in findings[0].summary
    assert not list(net_route({n: asked(int(n[1:]), None) for n in facts}, nets(3), job(3), second(3)))


def test_a_network_of_one_node_alone_is_one_cause_and_left_out_first() -> None:
    known = second(3)
    (path,) = known.further
    alone = replace(known, paths=(known.paths[0], replace(path, addresses={"n2": "10.1.0.2"})))
    lost = Route(destination="10.1.0.2", error="ENETUNREACH")
    facts = {n: replace(routes(int(n[1:]), 3), further=(lost,) if n != "n2" else ()) for n in nets(3)}
    findings = list(net_route(facts, nets(3), job(3), alone))
    assert causes(findings) == {"route-missing-to-net2": {"n2"}}
    assert (
        cause(findings, "route-missing-to-net2").fixes[0].commands[0].shell
        == "export NCCL_SOCKET_IFNAME='=eth0'"
    )
