import json
import os
import re
import subprocess
from dataclasses import replace

import pytest

from netdoctor.checks._shared.ports import port_causes
from netdoctor.checks.net._clouds import CLOUDS
from netdoctor.checks.net.ports import net_ports
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import FirewallFacts, PortMatrix, Ruleset
from netdoctor.facts.paths import Paths
from netdoctor.model import Confidence, Finding, Status

from ..build import (
    HIGH,
    RDZV,
    cause,
    causes,
    found,
    host,
    hosts,
    inbound,
    job,
    matrix,
    names,
    outbound,
    probe,
    second,
)

RULES = Ruleset(
    kind="nftables",
    active=True,
    rules=("inet site_firewall input: meta l4proto { tcp, udp } th dport != 22 counter drop",),
)
QUIET = FirewallFacts(rulesets=(Ruleset(kind="nftables", active=False),))


def judge(
    ports: PortMatrix,
    count: int = 4,
    firewalls: dict[str, FirewallFacts] | None = None,
    machines: dict[str, HostFacts] | None = None,
    paths: Paths | None = None,
) -> list[Finding]:
    causes = port_causes(ports, firewalls, paths)
    return list(net_ports(ports, causes, job(count), machines or hosts(count)))


def test_an_open_matrix_passes_and_says_how_many_pairs() -> None:
    (finding,) = judge(matrix(4))
    assert finding.status is Status.PASS
    assert finding.summary == "12 of 12 directed pairs tried, all open"


def test_one_node_is_skipped() -> None:
    (finding,) = judge(PortMatrix(), 1)
    assert finding.status is Status.SKIP


def strays(matrix: PortMatrix, *cells: tuple[str, str], open_from: tuple[int, ...] = (55000,)) -> PortMatrix:
    """The rendezvous port of these pairs filtered from source port 41000, and open from another."""
    stray = {"outcome": "filtered", "source_port": 41000, "open_from": open_from}
    return replace(
        matrix,
        probes=tuple(
            replace(p, **stray) if (p.src, p.dst) in cells and p.port == RDZV else p for p in matrix.probes
        ),
    )


@pytest.mark.parametrize(
    ("ports", "nodes"),
    [
        (strays(matrix(4), ("n1", "n3"), ("n3", "n4")), {"n3"}),
        (strays(matrix(4), ("n1", "n3")), {"n1", "n3"}),
        # With what is dropped on the way in, and out, for every source port.
        (strays(matrix(4, bad_high={**inbound(4, "n3"), **outbound(4, "n3")}), ("n1", "n3")), {"n3"}),
        (strays(matrix(4, bad_high=inbound(4, "n3")), ("n3", "n2"), ("n4", "n3")), {"n3"}),
    ],
)
def test_a_filter_without_state_is_one_cause(ports: PortMatrix, nodes: set[str]) -> None:
    findings = judge(ports)
    assert causes(findings) == {"firewall-stateless": nodes}
    (line,) = [e for e in found(findings)[min(nodes)].evidence if "source port 41000" in e.what]
    assert line.output == "no answer"
    assert causes(judge(ports, firewalls=dict.fromkeys(names(4), QUIET))) == {"fabric-stateless": nodes}


def test_what_is_lost_once_is_no_matter_of_the_source_port() -> None:
    again = strays(matrix(4), ("n1", "n3"), open_from=(41000, 55000))
    assert causes(judge(again)) == {"firewall-rendezvous-path": {"n1->n3"}}


def test_another_fault_beside_a_filter_without_state_stays_one() -> None:
    ports = strays(matrix(4, bad_high=inbound(4, "n1")), ("n2", "n3"), ("n3", "n4"))
    assert causes(judge(ports)) == {"firewall-stateless": {"n3"}, "firewall-ephemeral": {"n1"}}


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        pytest.param(inbound(4, "n3"), {"firewall-inbound": {"n3"}}, id="inbound"),
        pytest.param(outbound(4, "n3"), {"firewall-outbound": {"n3"}}, id="outbound"),
        pytest.param({**inbound(4, "n3"), **outbound(4, "n3")}, {"firewall-isolated": {"n3"}}, id="both"),
        pytest.param(inbound(4, "n2", "n3"), {"firewall-inbound": {"n2", "n3"}}, id="two bad of four"),
        pytest.param(
            {**inbound(4, "n1"), **outbound(4, "n4")},
            {"firewall-inbound": {"n1"}, "firewall-outbound": {"n4"}},
            id="one each way",
        ),
        pytest.param({("n1", "n2"): "filtered"}, {"firewall-path": {"n1->n2"}}, id="one path"),
        pytest.param(
            inbound(4, "n3", outcome="rejected"), {"firewall-reject-inbound": {"n3"}}, id="rejected"
        ),
        pytest.param(inbound(4, "n3", outcome="refused"), {"port-refused-inbound": {"n3"}}, id="refused"),
        pytest.param(outbound(4, "n3", outcome="no_route"), {"unreachable-outbound": {"n3"}}, id="no route"),
        pytest.param(
            inbound(4, "n1", "n2", "n3", "n4"),
            {"firewall-everywhere": {"n1", "n2", "n3", "n4"}},
            id="all",
        ),
    ],
)
def test_names_the_culprit(bad: dict[tuple[str, str], str], said: dict[str, set[str]]) -> None:
    findings = judge(matrix(4, bad))
    assert causes(findings) == said
    assert {one.status for one in findings} == {Status.FAIL}


def test_pairs_and_culprit_share_one_cause() -> None:
    findings = judge(matrix(4, inbound(4, "n3")))
    assert set(found(findings)) == {"n3", "n1->n3", "n2->n3", "n4->n3"}
    assert found(findings)["n3"].evidence[0].what == f"TCP {RDZV} and {HIGH} from n1, n2 and n4 to n3"
    assert "no answer in 3.0 s" in found(findings)["n3"].evidence[0].output
    assert "other way" in found(findings)["n3"].evidence[1].what


def test_only_the_rendezvous_port_opened() -> None:
    findings = judge(matrix(4, bad_high=inbound(4, "n2")))
    assert causes(findings) == {"firewall-ephemeral": {"n2"}}
    findings = judge(matrix(4, bad_high=inbound(4, "n1", "n2", "n3", "n4")))
    assert causes(findings) == {"firewall-ephemeral": {"n1", "n2", "n3", "n4"}}


@pytest.mark.parametrize(
    ("bad", "is_told"),
    [
        pytest.param({"bad_high": inbound(4, "n2")}, True, id="the others closed"),
        pytest.param(
            {"bad_high": inbound(4, "n2"), "bad_rdzv": {("n1", "n2"): "rejected"}},
            False,
            id="one pair beside",
        ),
        pytest.param({"bad_rdzv": inbound(4, "n2")}, False, id="the rendezvous port closed"),
        pytest.param({"bad": inbound(4, "n2")}, False, id="both closed"),
    ],
)
def test_the_rendezvous_port_is_told_to_be_open_where_it_is_on_all_of_these_pairs(
    bad: dict[str, dict[tuple[str, str], str]], is_told: bool
) -> None:
    told = [(line.what, line.output) for line in found(judge(matrix(4, **bad)))["n2"].evidence]
    assert (("the rendezvous port on the same pairs", "open") in told) is is_told


def test_only_the_ports_that_fail_are_shown() -> None:
    one_more = {("n1", "n2"): "filtered"}
    low = found(judge(matrix(4, bad_rdzv=inbound(4, "n2"), bad_high=one_more)))["n2"]
    high = found(judge(matrix(4, bad_high=inbound(4, "n2"), bad_rdzv=one_more)))["n2"]
    assert low.evidence[0].what == f"TCP {RDZV} from n1, n3 and n4 to n2"
    assert high.evidence[0].what == f"TCP {HIGH} from n1, n3 and n4 to n2"


def test_a_closed_rendezvous_port_matters_on_the_master() -> None:
    assert found(judge(matrix(4, bad_rdzv=inbound(4, "n1"))))["n1"].status is Status.FAIL
    assert found(judge(matrix(4, bad_rdzv=inbound(4, "n3"))))["n3"].status is Status.WARN


def test_a_busy_port_is_an_open_way() -> None:
    assert causes(judge(matrix(4, bad_rdzv=inbound(4, "n1", outcome="in_use")))) == {}


def test_two_nodes_are_undecided_until_a_rule_set_settles_it() -> None:
    ports = matrix(2, {("n1", "n2"): "filtered"})
    hint = cause(judge(ports, 2), "firewall-path")
    assert hint.confidence is Confidence.SUSPECTED
    assert hint.settle_by
    facts = {"n1": QUIET, "n2": FirewallFacts(rulesets=(RULES,))}
    assert causes(judge(ports, 2, facts)) == {"firewall-inbound": {"n2"}}
    facts = {"n2": QUIET, "n1": FirewallFacts(rulesets=(RULES,))}
    assert causes(judge(ports, 2, facts)) == {"firewall-outbound": {"n1"}}


def test_two_nodes_both_ways() -> None:
    ports = matrix(2, {**inbound(2, "n1"), **inbound(2, "n2")})
    assert causes(judge(ports, 2)) == {"firewall-everywhere": {"n1", "n2"}}
    facts = {"n1": QUIET, "n2": FirewallFacts(rulesets=(RULES,))}
    assert causes(judge(ports, 2, facts)) == {"firewall-isolated": {"n2"}}


def test_a_node_that_was_not_tested_is_unknown() -> None:
    findings = judge(matrix(3, failed_nodes={"n4": "lost"}))
    assert found(findings)["n4"].status is Status.UNKNOWN
    assert found(judge(PortMatrix()))["cluster"].status is Status.UNKNOWN


@pytest.mark.parametrize("failed", [{}, {"n1": "lost"}], ids=["nobody failed", "another failed"])
def test_a_node_in_no_pair_is_unknown(failed: dict[str, str]) -> None:
    findings = found(judge(matrix(3, failed_nodes=failed), 4))
    assert findings["n4"].status is Status.UNKNOWN
    assert "n2" not in findings


def test_where_nobody_else_took_part_the_last_node_was_not_tested_either() -> None:
    assert set(found(judge(PortMatrix(failed_nodes={"n1": "lost"}), 2), Status.UNKNOWN)) == {"n1", "n2"}


def test_our_own_trouble_blames_nobody() -> None:
    ports = matrix(3, {("n1", "n2"): "error"})
    findings = judge(ports, 3)
    assert found(findings)["n1->n2"].status is Status.UNKNOWN
    assert causes(findings) == {}


@pytest.mark.parametrize(("detail", "said"), [("EMFILE", "EMFILE"), ("", "no outcome")])
def test_a_connection_that_could_not_be_tried_says_why(detail: str, said: str) -> None:
    ports = PortMatrix(probes=(*matrix(3).probes, probe("n1", "n2", 52000, "error", detail=detail)))
    summary = found(judge(ports, 3))["n1->n2"].summary
    assert summary == f"the connection could not be tried: {said}"


def test_the_fix_lets_the_peers_in_where_the_rule_is() -> None:
    facts = {"n3": FirewallFacts(rulesets=(RULES,)), "n1": QUIET}
    hint = cause(judge(matrix(4, inbound(4, "n3")), 4, facts), "firewall-inbound")
    (command,) = hint.fixes[0].commands
    assert command.run_on == "n3"
    assert command.shell == (
        "nft insert rule inet site_firewall input ip saddr '{ 10.0.0.1, 10.0.0.2, 10.0.0.4 }' accept "
        "comment netdoctor"
    )


@pytest.mark.parametrize(
    ("bad", "key", "confidence"),
    [
        pytest.param(inbound(4, "n3"), "fabric-inbound", Confidence.CERTAIN, id="inbound"),
        pytest.param({("n1", "n2"): "filtered"}, "fabric-path", Confidence.LIKELY, id="one way"),
        pytest.param({("n1", "n2"): "rejected"}, "fabric-reject-path", Confidence.LIKELY, id="rejected"),
    ],
)
def test_without_a_rule_set_the_fabric_is_named(
    bad: dict[tuple[str, str], str], key: str, confidence: Confidence
) -> None:
    facts = {f"n{i}": QUIET for i in range(1, 5)}
    findings = judge(matrix(4, bad), 4, facts)
    hint = cause(findings, key)
    assert hint.confidence is confidence
    assert hint.settle_by is None
    assert "switch ports" in hint.fixes[0].text
    assert "from 10.0.0.1" in hint.fixes[0].text
    shown = next(f.evidence for f in findings if f.evidence)
    assert any("none of their rule sets explains it" in one.output for one in shown)


def test_another_nodes_rule_set_does_not_clear_the_fabric() -> None:
    facts = {**SETTLED, "n3": QUIET, "n4": FirewallFacts(rulesets=(RULES,))}
    assert set(causes(judge(matrix(4, inbound(4, "n3")), 4, facts))) == {"fabric-inbound"}


def test_a_rule_set_that_was_not_read_leaves_the_node_to_blame() -> None:
    facts = {f"n{i}": QUIET for i in (1, 2, 4)}
    assert set(causes(judge(matrix(4, inbound(4, "n3")), 4, facts))) == {"firewall-inbound"}


def test_a_cloud_gets_its_command_and_says_what_it_must_be_told() -> None:
    facts = {f"n{i}": QUIET for i in range(1, 5)}
    clouded = hosts(4) | {"n3": host(3, cloud="aws")}
    findings = judge(matrix(4, inbound(4, "n3")), 4, facts, clouded)
    first = cause(findings, "fabric-inbound").fixes[0]
    assert '"${SG:?' in first.commands[0].shell


def test_commands_for_clouds_say_what_is_not_set_and_are_what_their_programs_take() -> None:
    said = 'say() { for word; do printf "%s\\n" "$word"; done; }; '
    said += "".join(f'{name}() {{ say "$@"; }}; ' for name in ("aws", "gcloud", "az", "oci"))
    every = [shell for one in CLOUDS.values() for shell in (one.shell, one.see, one.see_mtu) if shell]
    names = sorted({name for shell in every for name in re.findall(r"\$\{(\w+):", shell)})
    given = {"PATH": os.defpath, **dict.fromkeys(names, "10.0.0.0/24")}
    bare = "".join(f"({shell}) && echo wrong; " for shell in every)
    more = {"capture_output": True, "text": True, "check": True}
    done = subprocess.run(["sh", "-c", f"{said}{bare}true"], env={"PATH": os.defpath}, **more)
    assert (done.stdout, done.stderr.count("set it to")) == ("", len(every))
    (oci,) = [shell for shell in every if "nsg rules add" in shell]
    done = subprocess.run(["sh", "-c", said + oci], env=given, **more)
    (rule,) = json.loads(done.stdout.splitlines()[-1])
    assert (rule["source"], rule["direction"], rule["protocol"]) == ("10.0.0.0/24", "INGRESS", "all")


def test_a_node_that_drops_some_peers_is_said_to_drop_those() -> None:
    hint = cause(judge(matrix(4, {("n1", "n3"): "filtered"}), 4, SETTLED), "firewall-inbound")
    assert hint.title == "{nodes} drop{s} connections from n1"
    both = {("n1", "n3"): "filtered", ("n1", "n4"): "filtered", ("n2", "n4"): "filtered"}
    hint = cause(
        judge(matrix(4, both), 4, {**SETTLED, "n4": FirewallFacts(rulesets=(RULES,))}), "firewall-inbound"
    )
    assert hint.title == "{nodes} drop{s} connections from some of the other nodes"


SETTLED = {"n1": QUIET, "n2": QUIET, "n3": FirewallFacts(rulesets=(RULES,)), "n4": QUIET}


def test_a_port_that_fails_on_part_of_the_range_counts() -> None:
    probes = (
        *matrix(3).probes,
        *(probe(src, "n2", 52000, "filtered") for src in ("n1", "n3")),
    )
    assert causes(judge(PortMatrix(probes=probes), 3)) == {"firewall-ephemeral": {"n2"}}


def test_thousands_of_pairs_share_one_hint() -> None:
    hints = {id(one.cause) for one in judge(matrix(9, inbound(9, "n3")), 9) if "->" in one.target}
    assert len(hints) == 1


def test_a_pair_finds_its_cause_for_each_kind_of_port() -> None:
    derived = port_causes(matrix(4, bad_high=inbound(4, "n2"), bad_rdzv={("n1", "n3"): "filtered"}), None)
    high, low = derived.causes
    assert derived.cause_of(None, ("n1", "n2"), "ephemeral") is high
    assert derived.cause_of(None, ("n1", "n3"), "rendezvous") is low
    assert derived.cause_of(None, ("n1", "n2"), "rendezvous") is None


def over_two(
    bad: dict[tuple[str, str], str], first: PortMatrix | None = None, paths: Paths | None = None
) -> PortMatrix:
    """Beside the main path (whole, unless given) each pair over 10.1.0.0/24, of which these are `bad`."""
    first = first or matrix(4)
    (path,) = (paths or second(4)).further
    port = RDZV if paths and "store" in {use.purpose for use in paths.uses} else HIGH
    more = (
        probe(src, dst, port, bad.get((src, dst), "open"), address=address)
        for src in names(4)
        for dst, address in path.addresses.items()
        if src != dst
    )
    return PortMatrix(probes=(*first.probes, *more), possible=12)


def test_two_open_paths_pass() -> None:
    (finding,) = judge(over_two({}), paths=second(4))
    assert "12 of 12 directed pairs tried on 2 paths" in finding.summary


def test_a_network_that_is_closed_on_a_node_is_one_cause_and_is_named() -> None:
    ports = over_two(inbound(4, "n3"))
    findings = judge(ports, paths=second(4), firewalls={"n3": FirewallFacts(rulesets=(RULES,))})
    assert causes(findings) == {"firewall-inbound-net2": {"n3"}}
    hint = cause(findings, "firewall-inbound-net2")
    assert (
        hint.title
        == "{nodes} drop{s} connections that come from the other nodes, over eth1 (10.1.0.0/24: NCCL)"
    )
    let_in, _, leave_out = hint.fixes
    assert "10.1.0.1, 10.1.0.2, 10.1.0.4" in let_in.commands[0].shell
    assert leave_out.commands[0].shell == "export NCCL_SOCKET_IFNAME='=eth0'"
    assert "over eth1 (10.1.0.0/24: NCCL)" in found(findings)["n1->n3"].summary


def test_a_node_that_is_closed_on_every_path_is_one_cause() -> None:
    findings = judge(over_two(inbound(4, "n3"), matrix(4, inbound(4, "n3"))), paths=second(4))
    assert causes(findings) == {"firewall-inbound": {"n3"}}
    assert "10.0.0.0/24" not in cause(findings, "firewall-inbound").title
    both = {("n1", "n2"): "filtered"}
    assert causes(judge(over_two(both, matrix(4, both)), paths=second(4))) == {"firewall-path": {"n1->n2"}}


def test_different_troubles_of_two_paths_are_two_causes() -> None:
    findings = judge(over_two(inbound(4, "n3"), matrix(4, outbound(4, "n2"))), paths=second(4))
    assert causes(findings) == {"firewall-outbound": {"n2"}, "firewall-inbound-net2": {"n3"}}


def test_where_only_one_node_is_dialled_it_is_the_way_into_that_one() -> None:
    store = second(4, "store")
    closed = judge(over_two(inbound(4, "n1"), paths=store), paths=store)
    assert causes(closed) == {"firewall-inbound-net2": {"n1"}}
    one = judge(over_two({("n3", "n1"): "filtered"}, paths=store), paths=store)
    assert causes(one) == {"firewall-path-net2": {"n3->n1"}}
    assert {finding.status for finding in one} == {Status.FAIL}


def test_the_rendezvous_port_counts_where_master_addr_points() -> None:
    store = second(4, "store")
    findings = judge(over_two({}, matrix(4, bad_rdzv=inbound(4, "n1")), store), paths=store)
    assert {finding.status for finding in findings} == {Status.WARN}


@pytest.mark.parametrize(
    ("outcome", "rules", "key", "status"),
    [
        ("filtered", RULES, "firewall-inbound", Status.WARN),
        ("filtered", None, "fabric-inbound", Status.FAIL),
        ("no_route", None, "unreachable-inbound", Status.FAIL),
    ],
)
def test_a_rail_stops_a_job_unless_a_node_s_own_firewall_closes_it(
    outcome: str, rules: Ruleset | None, key: str, status: Status
) -> None:
    """Which RDMA passes by."""
    further = second(4).further[0]
    rail = replace(further, id="RoCE mlx5_1:1", sources=further.addresses, users=("RoCE mlx5_1:1",))
    paths = replace(second(4), paths=second(4).paths[:1], rails=(rail,))
    bad = dict.fromkeys(inbound(4, "n3"), outcome)
    whole = over_two(bad)
    ports = replace(
        whole,
        probes=tuple(
            replace(p, source=rail.addresses[p.src]) if p.address in rail.addresses.values() else p
            for p in whole.probes
        ),
    )
    firewalls = dict.fromkeys(names(4), QUIET) | ({"n3": FirewallFacts(rulesets=(rules,))} if rules else {})
    findings = judge(ports, paths=paths, firewalls=firewalls)
    assert causes(findings) == {f"{key}-rail-mlx5_1-1": {"n3"}}
    assert {finding.status for finding in findings} == {status}
    assert "over eth1 (10.1.0.0/24: RoCE mlx5_1:1)" in cause(findings, f"{key}-rail-mlx5_1-1").title
