from dataclasses import replace

from netdoctor.checks.gloo.ifname import gloo_ifname
from netdoctor.facts.net import NetFacts, ResolveFacts
from netdoctor.facts.software import ConfFile, EnvFacts
from netdoctor.model import Finding, Status

from ..build import cause, causes, env, found, host, hosts, job, lookup, net, nets, resolve, resolves, row


def run(
    facts: dict[str, NetFacts],
    names: dict[str, ResolveFacts] | None = None,
    envs: dict[str, EnvFacts] | None = None,
    **variables: str,
) -> list[Finding]:
    count = len(facts)
    envs = {node: env() for node in facts} | (envs or {})
    return list(gloo_ifname(facts, names or resolves(count), hosts(count), envs, job(count, env=variables)))


def own(i: int, *ips: str, bindable: str | None) -> ResolveFacts:
    return resolve(i, own=lookup(f"n{i}", *ips), first_bindable=bindable)


def test_says_what_each_node_uses() -> None:
    findings = run(nets(3))
    assert found(findings)["n2"].observed == "eth0 10.0.0.2"
    assert {f.status for f in findings} == {Status.PASS}


def test_an_address_that_is_none_is_unknown_on_its_node() -> None:
    findings = run(nets(3), {**resolves(3), "n2": own(2, "x", bindable="x")})
    assert {node: finding.status for node, finding in found(findings).items()} == {
        "n1": Status.PASS, "n2": Status.UNKNOWN, "n3": Status.PASS,
    }  # fmt: skip


def test_skips_on_one_node() -> None:
    assert [f.status for f in run(nets(1))] == [Status.SKIP]


def test_the_debian_trap() -> None:
    names = {**resolves(3), "n2": own(2, "127.0.1.1", bindable="127.0.1.1")}
    findings = run(nets(3), names)
    assert causes(findings) == {"hosts-loopback": {"n2"}}
    assert "host name n2 resolves to 127.0.1.1" in found(findings)["n2"].summary
    fixes = cause(findings, "hosts-loopback").fixes
    assert fixes[0].commands[0].run_on == "n2"
    assert "10.0.0.2 n2" in fixes[0].commands[0].shell
    assert fixes[1].commands[0].shell == "export GLOO_SOCKET_IFNAME=eth0"
    # A value that torch takes for unset is not to blame.
    assert causes(run(nets(3), names, GLOO_SOCKET_IFNAME=",")) == {"hosts-loopback": {"n2"}}


def test_the_full_name_moves_with_the_own_name() -> None:
    names = {**resolves(2), "n2": own(2, "127.0.1.1", bindable="127.0.1.1")}
    known = {**hosts(2), "n2": host(2, fqdn="n2.example.org")}
    findings = list(gloo_ifname(nets(2), names, known, dict.fromkeys(names, env()), job(2)))
    assert "10.0.0.2 n2.example.org n2" in cause(findings, "hosts-loopback").fixes[0].commands[0].shell


def test_an_interface_named_makes_the_name_irrelevant() -> None:
    names = {**resolves(3), "n2": own(2, "127.0.1.1", bindable="127.0.1.1")}
    assert not causes(run(nets(3), names, GLOO_SOCKET_IFNAME="eth0"))


def test_an_own_name_that_ends_gloo() -> None:
    long = resolve(2, own=lookup("n" * 64, "10.0.0.2"), first_bindable="10.0.0.2")
    findings = run(nets(3), {**resolves(3), "n1": own(1, "0.0.0.0", bindable="0.0.0.0"), "n2": long})
    assert causes(findings) == {"own-name-nowhere": {"n1"}, "own-name-long": {"n2"}}
    assert {found(findings)[node].status for node in ("n1", "n2")} == {Status.FAIL}
    assert not causes(run(nets(3), {**resolves(3), "n2": long}, GLOO_SOCKET_IFNAME="eth0"))


def test_an_own_name_of_no_use() -> None:
    names = {
        **resolves(3),
        "n1": own(1, "192.0.2.7", bindable=None),
        "n2": resolve(2, own=lookup("n2", error="EAI_NONAME"), first_bindable=None),
        "n3": own(3, bindable=None),
    }
    assert causes(run(nets(3), names)) == {"own-name-wrong": {"n1"}, "own-name-unknown": {"n2", "n3"}}


def test_a_lookup_that_was_never_made_is_unknown() -> None:
    names = {
        **resolves(2),
        "n1": resolve(1, own=lookup("n1", error="timed out: earlier names"), first_bindable=None),
    }
    assert found(run(nets(2), names))["n1"].status is Status.UNKNOWN


def test_ncl_grammar_is_no_gloo_grammar() -> None:
    for value in ("=eth0", "eth", "^lo"):
        findings = run(nets(2), GLOO_SOCKET_IFNAME=value)
        assert causes(findings) == {"gloo-ifname-nomatch": {"n1", "n2"}}
        assert "exact names only" in findings[0].summary


def test_a_name_that_one_node_lacks() -> None:
    odd = net(3, addresses=(row("lo", "127.0.0.1", 8), row("ens3", "10.0.0.3")))
    findings = run({**nets(2), "n3": odd}, GLOO_SOCKET_IFNAME="eth0")
    assert causes(findings) == {"gloo-ifname-nomatch": {"n3"}}
    commands = cause(findings, "gloo-ifname-nomatch").fixes[0].commands
    assert [c.run_on for c in commands] == ["job", "n1", "n2", "n3"]


def test_lists_must_be_of_one_length() -> None:
    envs = {"n1": env(), "n2": env(), "n3": env(GLOO_SOCKET_IFNAME="eth0,eth0")}
    assert causes(run(nets(3), None, envs)) == {"gloo-ifname-count": {"n3"}}


def test_loopback_on_request() -> None:
    assert set(causes(run(nets(2), GLOO_SOCKET_IFNAME="lo"))) == {"gloo-ifname-loopback"}


def test_the_management_network_on_one_node() -> None:
    facts = {
        f"n{i}": net(i, addresses=(row("eth0", f"10.0.0.{i}"), row("mgmt0", f"192.168.1.{i}")))
        for i in (1, 2, 3)
    }
    names = {**resolves(3), "n3": own(3, "192.168.1.3", bindable="192.168.1.3")}
    findings = run(facts, names)
    assert causes(findings) == {"gloo-ifname-network": {"n3"}}
    assert "eth0 10.0.0.3 there" in found(findings)["n3"].summary


def test_routed_racks_are_fine() -> None:
    facts = {f"n{i}": net(i, addresses=(row("eth0", f"10.{i}.0.5"),)) for i in (1, 2)}
    names = {f"n{i}": own(i, f"10.{i}.0.5", bindable=f"10.{i}.0.5") for i in (1, 2)}
    assert not causes(run(facts, names))
    nowhere = {node: replace(one, default_devs=()) for node, one in facts.items()}
    assert set(causes(run(nowhere, names))) == {"gloo-ifname-network"}
    behind = {node: replace(one, routed=("10.0.0.0/8",)) for node, one in nowhere.items()}
    assert not causes(run(behind, names))


def test_families_do_not_mix() -> None:
    v6 = net(2, addresses=(row("eth0", "fd00::2", 64),))
    names = {"n1": resolve(1), "n2": own(2, "fd00::2", bindable="fd00::2")}
    findings = run({"n1": net(1), "n2": v6}, names)
    assert set(causes(findings)) == {"gloo-ifname-network"}


def test_what_a_node_sets_has_to_be_known() -> None:
    def statuses(**variables: str) -> list[Status]:
        said = gloo_ifname(nets(2), resolves(2), hosts(2), {"n1": env()}, job(2, env=variables))
        return [one.status for one in said]

    assert statuses() == [Status.PASS, Status.UNKNOWN]
    assert statuses(GLOO_SOCKET_IFNAME="eth0") == [Status.PASS, Status.PASS]


def test_an_address_of_no_interface_is_no_pass() -> None:
    names = {**resolves(2), "n2": own(2, "10.77.0.1", bindable="10.77.0.1")}
    assert [one.status for one in run(nets(2), names)] == [Status.PASS, Status.FAIL]


def test_what_nccl_exports_from_its_files_counts_later() -> None:
    def with_file(value: str) -> dict[str, EnvFacts]:
        conf = ConfFile(path="/etc/nccl.conf", place="system", values={"GLOO_SOCKET_IFNAME": value})
        return {"n2": EnvFacts(nccl_conf=(conf,))}

    findings = run(nets(2), envs=with_file("lo"))
    assert causes(findings) == {"gloo-ifname-later": {"n2"}}
    assert {f.status for f in findings} == {Status.PASS, Status.WARN}
    assert not causes(run(nets(2), envs=with_file("eth0"), GLOO_SOCKET_IFNAME="eth0"))
