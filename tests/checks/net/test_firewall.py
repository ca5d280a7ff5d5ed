import pytest

from netdoctor.checks._shared.ports import port_causes
from netdoctor.checks.net._firewall import allow
from netdoctor.checks.net.firewall import net_firewall
from netdoctor.facts.net import FirewallFacts, PortMatrix, Ruleset
from netdoctor.model import Finding, Status

from ..build import causes, found, inbound, job, matrix, outbound

PEERS = ["10.0.0.1", "10.0.0.2"]


def rules(
    kind: str = "nftables", *lines: str, active: bool = True, error: str | None = None
) -> FirewallFacts:
    return FirewallFacts(rulesets=(Ruleset(kind=kind, active=active, rules=lines, error=error),))


DROP_IN = rules("nftables", "inet site input: tcp dport 29500 drop")
DROP_OUT = rules("nftables", "inet site output: tcp dport 29500 drop")
QUIET = rules(active=False)


def judge(ports: PortMatrix, firewalls: dict[str, FirewallFacts], count: int = 3) -> list[Finding]:
    return list(net_firewall(port_causes(ports, firewalls), firewalls, job(count)))


def test_silent_when_nothing_is_filtered() -> None:
    (finding,) = judge(matrix(3), {"n1": DROP_IN})
    assert finding.status is Status.SKIP


def test_names_the_rule_set_of_the_culprit_only() -> None:
    findings = judge(matrix(3, inbound(3, "n2")), {"n1": DROP_IN, "n2": DROP_IN})
    assert causes(findings) == {"firewall-inbound": {"n2"}}
    assert set(found(findings)) == {"n2"}
    assert "nftables" in findings[0].summary


def test_the_direction_decides_which_rules_count() -> None:
    bad = matrix(3, outbound(3, "n2"))
    (finding,) = judge(bad, {"n2": DROP_OUT})
    assert finding.status is Status.FAIL
    (finding,) = judge(bad, {"n2": DROP_IN})
    assert finding.status is Status.PASS


@pytest.mark.parametrize(
    ("facts", "chains"),
    [
        pytest.param(("inet site in (hook input): tcp dport 1024-65535 drop",), ["in ip saddr"], id="input"),
        pytest.param(
            ("inet site both (hook input,output): drop",), ["both ip saddr", "both ip daddr"], id="jumped to"
        ),
        pytest.param(
            ("inet docker fwd (hook forward): policy drop", "inet site input: drop"), ["input ip saddr"],
            id="what is forwarded",
        ),
        pytest.param(("inet site ports: drop",), ["ports ip saddr", "ports ip daddr"], id="not known"),
    ],
)  # fmt: skip
def test_only_rules_that_can_match_are_inserted(facts: tuple[str, ...], chains: list[str]) -> None:
    """Where connections end both ways, as they do when the answers' ports are closed, too."""
    bad = {**inbound(4, "n2"), **outbound(4, "n2")}
    (finding,) = judge(matrix(4, bad), {"n2": rules("nftables", *facts)}, 4)
    assert finding.cause is not None
    shells = " && ".join(command.shell for command in finding.cause.fixes[0].commands).split(" && ")
    assert [" ".join(shell.split()[5:8]) for shell in shells] == chains


def test_a_chain_without_rules_gets_none() -> None:
    assert not allow("n3", rules("iptables", "filter INPUT: policy DROP"), PEERS, inbound=False)


def test_unreadable_rules_are_unknown() -> None:
    facts = {"n2": rules(active=False, error="no permission")}
    (finding,) = judge(matrix(3, inbound(3, "n2")), facts)
    assert finding.status is Status.UNKNOWN
    assert "no permission" in finding.summary


def test_no_rule_set_points_between_the_nodes() -> None:
    (finding,) = judge(matrix(3, inbound(3, "n2")), {"n1": QUIET, "n2": QUIET})
    assert finding.status is Status.PASS
    assert "security group" in finding.summary


@pytest.mark.parametrize(
    ("facts", "inward", "shell"),
    [
        pytest.param(
            rules("firewalld"),
            True,
            "firewall-cmd --permanent --zone=trusted --add-source=10.0.0.1 --add-source=10.0.0.2 "
            "&& firewall-cmd --reload",
            id="firewalld",
        ),
        pytest.param(
            rules("ufw"), True, "ufw allow from 10.0.0.1 && ufw allow from 10.0.0.2", id="ufw"
        ),
        pytest.param(
            rules("nftables", "table ip filter chain INPUT policy drop"),
            True,
            "nft insert rule ip filter INPUT ip saddr '{ 10.0.0.1, 10.0.0.2 }' accept comment netdoctor",
            id="nftables",
        ),
        pytest.param(
            rules("iptables", "-P INPUT DROP"), True,
            "iptables -I INPUT -s 10.0.0.1,10.0.0.2 -j ACCEPT", id="iptables in",
        ),
        pytest.param(
            rules("iptables", "-P OUTPUT DROP"), False,
            "iptables -I OUTPUT -d 10.0.0.1,10.0.0.2 -j ACCEPT", id="iptables out",
        ),
    ],
)  # fmt: skip
def test_the_command_fits_the_front_end(facts: FirewallFacts, inward: bool, shell: str) -> None:
    fix, *_ = allow("n3", facts, PEERS, inbound=inward)
    assert fix.commands[0].shell == shell
    assert fix.root


@pytest.mark.parametrize(
    ("kind", "chain"), [("firewalld", "inet firewalld filter_INPUT"), ("ufw", "ip filter ufw-before-input")]
)
def test_chains_of_another_front_end_are_left_to_it(kind: str, chain: str) -> None:
    written = rules("nftables", f"{chain}: tcp drop", "inet site input: tcp drop")
    both = FirewallFacts(rulesets=(*rules(kind).rulesets, *written.rulesets))

    def inserts(facts: FirewallFacts) -> list[str]:
        fixes = allow("n3", facts, PEERS, inbound=True)
        shells = [command.shell for fix in fixes for command in fix.commands if not fix.persistent]
        return [" ".join(one.split()[3:6]) for shell in shells for one in shell.split(" && ")]

    assert inserts(both) == ["inet site input"]
    assert inserts(written) == [chain, "inet site input"]


def test_many_peers_become_the_networks_that_hold_no_one_else() -> None:
    (fix,) = allow("n3", rules("ufw"), [f"10.0.0.{i}" for i in range(16, 30)], inbound=True)
    assert fix.widens == "trusts 10.0.0.16/29, 10.0.0.24/30, 10.0.0.28/31, all ports"
    (fix,) = allow("n3", rules("ufw"), [f"10.0.0.{i}" for i in range(1, 40, 2)], inbound=True)
    assert fix.commands[0].shell == "ufw allow from 10.0.0.0/26"
    assert fix.widens == "trusts 10.0.0.0/26, all ports"
    (fix,) = allow("n3", rules("ufw"), [f"10.1.{i}.1" for i in range(0, 256, 13)], inbound=True)
    assert fix.widens == "trusts 10.1.0.0/16, all ports"


def test_no_network_wider_than_a_16_is_trusted() -> None:
    peers = [f"10.{i % 2}.{i}.1" for i in range(0, 256, 13)]
    (fix,) = allow("n3", rules("ufw"), peers, inbound=True)
    assert set(fix.commands[0].shell.split(" && ")) == {f"ufw allow from {one}" for one in peers}


def test_nft_says_runs_of_addresses() -> None:
    peers = ["10.85.0.12", *(f"10.85.0.{i}" for i in range(20, 42)), "10.85.0.13"]
    now, later = allow("n3", rules("nftables", "inet site input: tcp drop"), peers, inbound=True)
    assert "ip saddr '{ 10.85.0.12, 10.85.0.13, 10.85.0.20-10.85.0.41 }' accept" in now.commands[0].shell
    assert now.widens == "trusts 10.85.0.12, 10.85.0.13, 10.85.0.20-10.85.0.41, all ports"
    assert (now.persistent, later.persistent) == (False, True)
    assert 'grep -lsF "table inet site " /etc/nftables.conf' in later.commands[0].shell


def test_a_node_that_filters_both_ways_gets_one_fix_for_both() -> None:
    both = rules("nftables", "inet site input: tcp drop", "inet site output: tcp drop")
    bad = {**inbound(4, "n2"), **outbound(4, "n2")}
    (finding,) = judge(matrix(4, bad), {"n2": both}, 4)
    assert finding.cause is not None
    fix, _ = finding.cause.fixes
    assert [command.shell.split()[5] for command in fix.commands] == ["input", "output"]
    assert fix.widens is not None
    assert "lets out to" in fix.widens
