"""The host, network, rendezvous and time checks over one cluster, judged and grouped as in a scan."""

from dataclasses import replace
from typing import Any

import pytest

from netdoctor.engine.diagnose import Group, diagnose
from netdoctor.engine.judge import Judgement, judge
from netdoctor.engine.registry import load_builtin, matches, ordered
from netdoctor.facts.bandwidth import LossMatrix, LossProbe
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import Session
from netdoctor.facts.net import FirewallFacts, Lookup, PortHolderFacts, Ruleset
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import Status
from netdoctor.store import Store

from . import build

FAMILIES = ("ssh", "host", "net", "rdzv", "time")


def cluster(count: int = 4) -> Store:
    """Every fact of a healthy cluster."""
    store = Store()
    facts: dict[str, dict[str, Any]] = {
        "node": dict(build.nodes(count)),
        "session": {build.name(i): build.session(i) for i in range(1, count + 1)},
        "host": dict(build.hosts(count)),
        "limits": dict.fromkeys(build.names(count), build.limits()),
        "tuning": dict(build.tunings(count)),
        "net": dict(build.nets(count)),
        "resolve": dict(build.resolves(count)),
        "routes": dict(build.all_routes(count)),
        "rdma": dict.fromkeys(build.names(count), RdmaFacts()),
        "port_holder": dict.fromkeys(build.names(count), PortHolderFacts(port=build.RDZV)),
        "time": dict.fromkeys(build.names(count), build.time_facts()),
        "clock": dict(build.clocks(*[0.0] * count)),
        "firewall": dict.fromkeys(
            build.names(count), Missing(Why.NOT_APPLICABLE, "nothing is filtered here")
        ),
    }
    for group, values in facts.items():
        for node, value in values.items():
            store.put(group, node, value)
    store.cluster["job"] = build.job(count)
    store.cluster["ports"] = build.matrix(count)
    store.cluster["path_mtu"] = build.path_mtus(count)
    return store


def scan(store: Store, count: int = 4) -> tuple[Judgement, list[Group]]:
    checks = [one for one in ordered(load_builtin().values()) if one.family in FAMILIES]
    judgement = judge(checks, build.names(count), store)
    assert judgement.tracebacks == []
    return judgement, diagnose(judgement)


def said(groups: list[Group]) -> dict[str, tuple[str, set[str]]]:
    return {group.key: (group.status.value, set(group.culprits)) for group in groups}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 12])
def test_a_healthy_cluster_is_silent(count: int) -> None:
    judgement, groups = scan(cluster(count), count)
    assert groups == []
    statuses = {status for cells in judgement.cells.values() for status in cells.values()}
    assert statuses <= {Status.PASS, Status.SKIP}


def test_a_firewall_is_one_cause_with_the_rule_set_in_its_fix() -> None:
    store = cluster()
    store.cluster["ports"] = build.matrix(4, build.inbound(4, "n3"))
    rules = ("inet site_firewall input: th dport != 22 counter drop",)
    for node in build.names(4):
        store.put("firewall", node, FirewallFacts())
    store.put("firewall", "n3", FirewallFacts(rulesets=(Ruleset(kind="nftables", active=True, rules=rules),)))
    judgement, groups = scan(store)
    assert said(groups) == {"firewall-inbound": ("fail", {"n3"})}
    assert set(groups[0].checks) == {"net.ports", "net.firewall"}
    assert [fix.persistent for fix in groups[0].fixes] == [False, True]
    assert judgement.cells["net.ports"]["n1"] is Status.PASS
    assert judgement.cells["net.ports"]["n3"] is Status.FAIL


def test_a_firewall_on_the_master_takes_the_rendezvous_in() -> None:
    store = cluster()
    store.cluster["ports"] = build.matrix(4, build.inbound(4, "n1"))
    _, groups = scan(store)
    assert said(groups) == {"firewall-inbound": ("fail", {"n1"})}
    assert "rdzv.reach" in groups[0].checks


def test_two_faults_on_two_nodes_are_two_causes() -> None:
    store = cluster()
    store.cluster["ports"] = build.matrix(4, build.inbound(4, "n3"))
    store.put("clock", "n2", build.clock(7.0))
    _, groups = scan(store)
    assert said(groups) == {"firewall-inbound": ("fail", {"n3"}), "clock-skew": ("fail", {"n2"})}


def test_a_skewed_clock_takes_its_missing_daemon_in() -> None:
    store = cluster()
    store.put("clock", "n2", build.clock(7.0))
    store.put("time", "n2", build.time_facts(kernel_synchronized=False, daemons=()))
    _, groups = scan(store)
    assert said(groups) == {"clock-skew": ("fail", {"n2"})}


@pytest.mark.parametrize("lost", ["n1", "n3"])
def test_a_node_that_cannot_be_logged_in_to_is_one_cause(lost: str) -> None:
    store = cluster()
    gone = Missing(Why.LOST, "no session")
    for group in list(store.node):
        if group not in ("node", "session"):
            store.put(group, lost, gone)
    store.put("session", lost, Session(outcome="refused", stage="connect", address="10.0.0.3"))
    store.cluster["ports"] = replace(
        build.matrix(4), probes=tuple(p for p in build.matrix(4).probes if lost not in (p.src, p.dst))
    )
    store.cluster["path_mtu"] = replace(
        build.path_mtus(4),
        probes=tuple(p for p in build.path_mtus(4).probes if lost not in (p.src, p.dst)),
    )
    addresses = {n: a for n, a in build.job(4).data_addresses.items() if n != lost}
    store.cluster["job"] = build.job(4, data_addresses=addresses)
    judgement, groups = scan(store)
    assert said(groups) == {"ssh-refused": ("fail", {lost})}
    assert judgement.cells["net.ports"][lost] is Status.BLOCKED
    assert groups[0].blocked


def test_a_down_interface_accounts_for_what_follows() -> None:
    store = cluster()
    down = build.netdev(up=False, running=False, carrier=None)
    store.put("net", "n4", build.net(4, netdevs=(build.loopback(), down)))
    store.cluster["ports"] = build.matrix(
        4, {**build.inbound(4, "n4", outcome="no_route"), **build.outbound(4, "n4", outcome="no_route")}
    )
    _, groups = scan(store)
    assert said(groups) == {"net-down": ("fail", {"n4"})}


@pytest.mark.parametrize("lost", [(), ("resolve",), ("host",), ("resolve", "host", "limits")])
@pytest.mark.parametrize(
    ("answer", "key"),
    [
        ({"addresses": ("10.99.0.9",)}, "peer-name-wrong"),
        ({"error": "EAI_NONAME"}, "peer-name-unknown"),
        ({"addresses": ("10.0.0.3",)}, None),
    ],
)
def test_a_name_is_judged_whatever_its_own_node_could_say(
    answer: dict[str, Any], key: str | None, lost: tuple[str, ...]
) -> None:
    store = cluster()
    store.put("resolve", "n2", build.relook(store.get("resolve", "n2"), Lookup(name="n3", **answer)))
    for group in lost:
        store.put(group, "n3", Missing(Why.TIMED_OUT, "no answer in time"))
    judgement, groups = scan(store)
    assert {k: v for k, v in said(groups).items() if v[0] == "fail"} == (
        {key: ("fail", {"n2"})} if key else {}
    )
    assert judgement.cells["net.resolve"]["n2"] is (Status.FAIL if key else Status.PASS)


@pytest.mark.parametrize(
    ("ports", "error", "expected"),
    [
        ((45000, 45000), "EAGAIN", {"local-ports-short": ("fail", {"n4"})}),
        ((32768, 60999), "EAGAIN", {"local-ports-none": ("unknown", {"n4"})}),
        (
            (32768, 60999),
            "ENOBUFS",
            {f"net.{one}-unknown": ("unknown", set(build.names(4))) for one in ("loss", "path-mtu")},
        ),
    ],
)
def test_what_no_port_is_left_for_follows_from_the_ports(
    ports: tuple[int, int], error: str, expected: dict[str, tuple[str, set[str]]]
) -> None:
    store = cluster()
    store.put("net", "n4", build.net(4, ephemeral_ports=ports))
    failed = {"small_ok": False, "largest_ok": None, "outcome": "error", "detail": error}
    bad = {("n4", other): failed for other in build.names(3)}
    store.cluster["path_mtu"] = build.path_mtus(4, bad)
    store.cluster["loss"] = LossMatrix(
        seconds=1.25,
        probes=tuple(
            LossProbe(src=p.src, dst=p.dst, address=p.address, sent=250, arrived=250, answered=250)
            if (p.src, p.dst) not in bad
            else LossProbe(
                src=p.src, dst=p.dst, address=p.address, sent=0, arrived=0, answered=0, detail=error
            )
            for p in store.cluster["path_mtu"].probes
        ),
    )
    _, groups = scan(store)
    assert said(groups) == expected


def test_what_a_node_without_an_address_leaves_unmeasured_is_no_further_cause() -> None:
    store = cluster()
    store.put("net", "n4", build.net(4, addresses=(build.row("lo", "127.0.0.1", 8),)))
    addresses = {n: a for n, a in build.job(4).data_addresses.items() if n != "n4"}
    store.cluster["job"] = build.job(4, data_addresses=addresses)
    store.cluster["ports"] = replace(build.matrix(3), failed_nodes={"n4": "no address"})
    store.cluster["path_mtu"] = replace(build.path_mtus(3), failed_nodes={"n4": "no address"})
    judgement, groups = scan(store)
    home = next(group for group in groups if group.key == "net-no-address")
    assert judgement.cells["net.mtu"]["n4"] is Status.UNKNOWN
    assert ("net.mtu", "n4") in home.explained


def test_titles_fill_in() -> None:
    store = cluster()
    store.cluster["ports"] = build.matrix(4, build.inbound(4, "n3"))
    store.put("session", "n2", Session(outcome="jump", via="gate{x}"))
    _, groups = scan(store)
    for group in groups:
        text = group.title.format(nodes="n9", s="s", has="has", **{"is": "is"})
        assert "n9" in text


def test_what_checks_explain_exists() -> None:
    checks = load_builtin()
    for one in checks.values():
        for pattern in (*one.explains, *one.after):
            if pattern.startswith(FAMILIES):
                assert any(matches(other, [pattern]) for other in checks), (one.id, pattern)


def test_manual_pages_have_their_three_parts() -> None:
    for one in load_builtin().values():
        if one.family in FAMILIES:
            for part in ("Looks at:", "Matters because:", "Fix:"):
                assert part in one.manual, (one.id, part)
            assert one.title.endswith("."), one.id
