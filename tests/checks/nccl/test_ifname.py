from dataclasses import replace

import pytest

from netdoctor.checks._shared.edits import assign
from netdoctor.checks.nccl.ifname import nccl_ifname
from netdoctor.facts.net import AddressRow, NetFacts, Route, RouteFacts
from netdoctor.facts.software import ConfFile, EnvFacts, NcclAnswer
from netdoctor.model import Finding, Status

from ..build import address, cause, causes, env, found, job, loopback, netdev, nets, row
from ..build_hw import nccl, software

LO = row("lo", "127.0.0.1", 8, scope="host")
DOCKER = row("docker0", "172.17.0.1", 16)


def machine(*rows: AddressRow, down: tuple[str, ...] = (), **changes: object) -> NetFacts:
    names = dict.fromkeys(one.ifname for one in rows)
    facts = NetFacts(
        netdevs=(
            loopback(),
            *(netdev(name, i, running=name not in down) for i, name in enumerate(names, start=2)),
        ),
        addresses=(LO, *rows),
        default_devs=("eth0",),
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


def eth(i: int, name: str = "eth0") -> AddressRow:
    return row(name, address(i))


def run(
    facts: dict[str, NetFacts],
    envs: dict[str, EnvFacts] | None = None,
    version: str = "2.28.3",
    **variables: str,
) -> list[Finding]:
    softwares = {node: software(nccl=(nccl(version),)) for node in facts}
    envs = {node: env() for node in facts} | (envs or {})
    setting = job(env=variables, env_from=dict.fromkeys(variables, "train.env:4"))
    return list(nccl_ifname(facts, envs, softwares, None, None, None, setting))


def fix_of(findings: list[Finding], key: str) -> str:
    return cause(findings, key).fixes[0].commands[0].shell


def test_says_what_each_node_uses() -> None:
    findings = run(nets(3))
    assert {f.target: f.observed for f in findings} == {f"n{i}": f"eth0 {address(i)}" for i in (1, 2, 3)}
    assert {f.status for f in findings} == {Status.PASS}


def test_one_node_and_an_unknown_release() -> None:
    (finding,) = nccl_ifname(nets(1), {"n1": env()}, None, None, None, None, job(1))
    assert finding.status is Status.PASS
    assert "release is not known" in finding.summary


def test_skips_for_gloo() -> None:
    (finding,) = nccl_ifname(nets(2), None, None, None, None, None, job(2, backend="gloo"))
    assert finding.status is Status.SKIP


def test_a_name_that_one_node_lacks() -> None:
    facts = {**nets(3), "n4": machine(eth(4, "ens10f0np0"))}
    findings = run(facts, NCCL_SOCKET_IFNAME="eth0")
    assert causes(findings) == {"nccl-ifname-nomatch": {"n4"}}
    hint = cause(findings, "nccl-ifname-nomatch")
    assert hint.title == "{nodes} {has} no interface eth0, which NCCL_SOCKET_IFNAME asks for"
    assert hint.fixes[0].commands[0].run_on == "job"
    assert hint.fixes[0].commands[0].shell == "export NCCL_SOCKET_IFNAME='=eth0,ens10f0np0'"
    assert hint.fixes[0].text == "in train.env:4, one value that fits all 4 nodes"
    assert "train.env:4" in found(findings)["n4"].summary


def test_the_proposal_avoids_a_prefix() -> None:
    facts = {f"n{i}": machine(row("eth10", f"192.168.{i}.9"), eth(i, "eth1")) for i in (1, 2)}
    findings = run(facts, NCCL_SOCKET_IFNAME="ens1")
    assert fix_of(findings, "nccl-ifname-nomatch") == "export NCCL_SOCKET_IFNAME='=eth1'"


def test_no_single_value_gives_one_per_node() -> None:
    facts = {
        "n1": machine(eth(1)),
        "n2": machine(row("eth0", "172.30.0.2"), eth(2, "eth1")),
    }
    findings = run(facts)
    assert causes(findings) == {"nccl-ifname-network": {"n2"}}
    commands = cause(findings, "nccl-ifname-network").fixes[0].commands
    assert [(c.run_on, c.shell) for c in commands] == [
        ("job", "unset NCCL_SOCKET_IFNAME"),
        ("n1", assign("NCCL_SOCKET_IFNAME", "=eth0", "/etc/nccl.conf")[0]),
        ("n2", assign("NCCL_SOCKET_IFNAME", "=eth1", "/etc/nccl.conf")[0]),
    ]


def test_an_interface_that_is_down_or_bare() -> None:
    facts = {**nets(2), "n3": machine(eth(3), down=("eth0",))}
    assert causes(run(facts, NCCL_SOCKET_IFNAME="eth0")) == {"nccl-ifname-down": {"n3"}}
    assert not causes(run(facts, version="2.27.7", NCCL_SOCKET_IFNAME="eth0"))
    bare = machine(netdevs=(loopback(), netdev("eth0")))
    findings = run({**nets(2), "n3": bare}, NCCL_SOCKET_IFNAME="eth0")
    assert causes(findings) == {"nccl-ifname-no-address": {"n3"}}
    findings = run(
        {"n1": machine(eth(1)), "n2": bare}, NCCL_SOCKET_IFNAME="=eth0", NCCL_SOCKET_FAMILY="AF_INET6"
    )
    assert causes(findings) == {"nccl-ifname-no-address": {"n1", "n2"}}
    ends = {node: one.summary.rpartition(" has ")[2] for node, one in found(findings).items()}
    assert ends == {"n1": "no address of AF_INET6", "n2": "no address"}


def test_a_value_that_fits_one_node_only_is_one_cause() -> None:
    facts = {**nets(4), "n3": machine(eth(3), row("docker0", "172.17.0.1"), down=("docker0",))}
    assert causes(run(facts, NCCL_SOCKET_IFNAME="docker0")) == {"nccl-ifname-nomatch": {"n1", "n2", "n4"}}
    assert found(run(facts, NCCL_SOCKET_IFNAME="docker0"), Status.FAIL).keys() == facts.keys()


def test_loopback_is_no_way_to_a_peer() -> None:
    facts = {**nets(2), "n3": machine()}
    assert causes(run(facts)) == {"nccl-ifname-loopback": {"n3"}}
    assert causes(run(nets(2), NCCL_SOCKET_IFNAME="lo")) == {"nccl-ifname-loopback": {"n1", "n2"}}
    assert not causes(run({"n1": machine()}))


def test_the_same_bridge_address_on_two_nodes() -> None:
    facts = {f"n{i}": machine(DOCKER, eth(i)) for i in (1, 2)}
    assert not causes(run(facts))
    findings = run(facts, NCCL_SOCKET_IFNAME="docker0")
    assert causes(findings) == {"nccl-ifname-same-address": {"n1", "n2"}}
    assert fix_of(findings, "nccl-ifname-same-address") == "export NCCL_SOCKET_IFNAME='=eth0'"


def test_a_bridge_on_one_node_only() -> None:
    bridge = row("br-1a2b", "172.18.0.1", 16)
    facts = {**nets(3), "n4": machine(bridge, eth(4))}
    findings = run(facts)
    assert causes(findings) == {"nccl-ifname-network": {"n4"}}
    assert fix_of(findings, "nccl-ifname-network") == "export NCCL_SOCKET_IFNAME='=eth0'"


def test_a_vpn_on_one_node_and_on_all() -> None:
    def tail(i: int) -> AddressRow:
        return row("tailscale0", f"100.64.0.{i}", 32)

    findings = run({**nets(3), "n4": machine(tail(4), eth(4))})
    assert causes(findings) == {"nccl-ifname-network": {"n4"}}
    shared = {f"n{i}": machine(row("wg0", f"10.9.0.{i}"), eth(i)) for i in (1, 2)}
    findings = run(shared)
    assert causes(findings) == {"nccl-ifname-overlay": {"n1", "n2"}}
    assert {f.status for f in findings} == {Status.WARN}
    assert fix_of(findings, "nccl-ifname-overlay") == "export NCCL_SOCKET_IFNAME='=eth0'"
    # It is all that they have in common.
    assert not causes(run({**shared, "n3": machine(row("wg0", "10.9.0.3"))}))


def test_link_local_is_no_address_for_peers() -> None:
    facts = {**nets(2), "n3": machine(row("eth0", "fe80::3", 64, scope="link"))}
    assert causes(run(facts)) == {"nccl-ifname-link-local": {"n3"}}


def test_ipoib_without_an_address_on_one_node() -> None:
    def ib(i: int) -> AddressRow:
        return row("ib0", f"192.168.100.{i}")

    facts = {f"n{i}": machine(eth(i), ib(i)) for i in (1, 2, 3)}
    assert {f.observed for f in run(facts)} == {f"ib0 192.168.100.{i}" for i in (1, 2, 3)}
    findings = run({**facts, "n4": machine(eth(4))})
    assert causes(findings) == {"nccl-ifname-network": {"n4"}}
    assert fix_of(findings, "nccl-ifname-network") == "export NCCL_SOCKET_IFNAME='=eth0'"


def test_routed_racks_are_fine() -> None:
    facts = {f"n{i}": machine(row("eth0", f"10.{i}.0.5")) for i in (1, 2, 3)}
    assert not causes(run(facts))
    management = {f"n{i}": machine(row("eth0", f"10.{i}.0.5"), eth(i, "mgmt0")) for i in (1, 2, 3)}
    assert not causes(run(management))


def test_racks_without_a_route_are_not() -> None:
    facts = {f"n{i}": machine(row("eth0", f"10.{i}.0.5"), default_devs=()) for i in (1, 2)}
    assert set(causes(run(facts))) == {"nccl-ifname-network"}
    assert not causes(run({n: replace(one, routed=("10.0.0.0/8", "no network")) for n, one in facts.items()}))
    setting = job(2, data_addresses={"n1": "10.1.0.5", "n2": "10.2.0.5"})
    routes = {
        "n1": RouteFacts(routes={"n2": Route(destination="10.2.0.5", error="ENETUNREACH")}),
        "n2": RouteFacts(routes={"n1": Route(destination="10.1.0.5", dev="eth0")}),
    }
    findings = list(nccl_ifname(facts, None, None, routes, None, None, setting))
    assert not causes(findings) or "n2" not in causes(findings)["nccl-ifname-network"]


def test_a_shorter_prefix_on_one_node_is_the_same_network() -> None:
    facts = {**nets(3), "n4": machine(row("eth0", address(4), 16))}
    assert not causes(run(facts))


def test_the_file_of_a_node_counts_and_the_job_wins() -> None:
    conf = ConfFile(path="/etc/nccl.conf", values={"NCCL_SOCKET_IFNAME": "lo"})
    envs = {"n1": env(), "n2": EnvFacts(nccl_conf=(conf,))}
    findings = run(nets(2), envs)
    assert causes(findings) == {"nccl-ifname-loopback": {"n2"}}
    assert found(findings)["n2"].evidence[0].what == "/etc/nccl.conf"
    assert not causes(run(nets(2), envs, NCCL_SOCKET_IFNAME="eth0"))


def test_a_comm_id_that_fits_no_node() -> None:
    findings = run(nets(2), NCCL_COMM_ID="192.0.2.1:29500")
    assert causes(findings) == {"nccl-comm-id": {"n1", "n2"}}


def test_says_why_a_list_matches_nothing() -> None:
    for value, why in (("ens1, eth0", "space"), ("=^lo", "write ^="), ("ens1,=eth0", "start of the list")):
        findings = run(nets(2), NCCL_SOCKET_IFNAME=value)
        assert why in found(findings)["n1"].summary


@pytest.mark.parametrize("conf", [None, ConfFile(path="/etc/nccl.conf", error="EIO")])
def test_what_a_node_sets_has_to_be_known(conf: ConfFile | None) -> None:
    envs = {"n1": env()} if conf is None else {"n1": env(), "n2": EnvFacts(nccl_conf=(conf,))}
    findings = found(nccl_ifname(nets(2), envs, None, None, None, None, job(2)))
    assert [findings[node].status for node in ("n1", "n2")] == [Status.PASS, Status.UNKNOWN]
    assert "could not be read" in findings["n2"].summary


def test_a_file_that_nccl_may_not_open_either_sets_nothing() -> None:
    conf = ConfFile(path="/root/.nccl.conf", error="EACCES")
    assert {f.status for f in run(nets(2), {"n2": EnvFacts(nccl_conf=(conf,))})} == {Status.PASS}


def test_an_unknown_release_counts_where_releases_differ() -> None:
    facts = {"n1": machine(row("virbr0", "192.168.122.1"), eth(1)), "n2": machine(eth(2))}
    findings = found(nccl_ifname(facts, {"n1": env(), "n2": env()}, None, None, None, None, job(2)))
    assert [findings[node].status for node in ("n1", "n2")] == [Status.UNKNOWN, Status.PASS]


def test_an_interface_without_flags_may_be_down() -> None:
    facts = {**nets(2), "n2": machine(eth(2), netdevs=())}
    assert found(run(facts))["n2"].status is Status.UNKNOWN
    assert found(run(facts, version="2.27.7"))["n2"].status is Status.PASS


def test_a_warning_does_not_hide_what_is_not_known() -> None:
    shared = {f"n{i}": machine(row("wg0", f"10.9.0.{i}"), eth(i)) for i in (1, 2)}
    findings = nccl_ifname(shared, {"n1": env()}, None, None, None, None, job(2))
    assert [(f.target, f.status) for f in findings] == [
        ("n1", Status.WARN),
        ("n2", Status.WARN),
        ("n2", Status.UNKNOWN),
    ]


def test_the_place_of_a_value_is_no_matter_of_its_name() -> None:
    setting = job(env={"NCCL_SOCKET_IFNAME": "ens9"}, env_from={"NCCL_SOCKET_IFNAME": "login.env:2"})
    findings = list(nccl_ifname(nets(2), None, None, None, None, None, setting))
    assert cause(findings, "nccl-ifname-nomatch").fixes[0].text.startswith("in login.env:2, ")


def test_hostile_names_stay_out_of_commands_and_templates() -> None:
    facts = {**nets(2), "n3": machine(row("{x};reboot", "10.0.0.3"))}
    findings = run(facts, NCCL_SOCKET_IFNAME="{nodes};reboot")
    for finding in findings:
        assert finding.cause is None or "reboot" not in finding.cause.title
        for fix in finding.cause.fixes if finding.cause else ():
            assert all("reboot" not in command.shell for command in fix.commands)


# --- NCCL itself was asked -----------------------------------------------------------------------


def ask(facts: NetFacts, login: EnvFacts | None = None, **said: str | None) -> Finding:
    """What is said of a second node, on which NCCL gave this answer."""
    answer = NcclAnswer(library="/opt/libnccl.so.2", version="2.21.5", **said)  # type: ignore[arg-type]
    both, envs = {**nets(1), "n2": facts}, {"n1": env(), "n2": login or env()}
    return found(nccl_ifname(both, envs, None, None, None, {"n2": answer}, job(2)))["n2"]


def test_what_nccl_itself_chose_is_said() -> None:
    finding = ask(machine(eth(2)), address=address(2))
    assert (finding.status, finding.summary) == (Status.PASS, f"NCCL itself chose eth0 ({address(2)})")
    assert "/opt/libnccl.so.2" in {one.what for one in finding.evidence}
    (predicted,) = nccl_ifname(nets(1), {"n1": env()}, None, None, None, None, job(1))
    assert "predicted" in predicted.summary


def test_the_answer_counts_and_the_difference_is_ours() -> None:
    finding = ask(machine(eth(2), row("eth1", "10.9.0.2")), address="10.9.0.2")
    assert finding.observed == "eth1 10.9.0.2"
    both = machine(row("eth1", "10.9.0.2"), eth(2))
    finding = ask(both, address=address(2))
    assert finding.status is Status.PASS
    ours = "netdoctor's rules expected eth1 (10.9.0.2): please report this"
    assert finding.summary == f"NCCL itself chose eth0 ({address(2)}); {ours}"


def test_an_answer_stands_in_for_what_could_not_be_read() -> None:
    closed = EnvFacts(nccl_conf=(ConfFile(path="/etc/nccl.conf", error="EIO"),))
    assert ask(machine(eth(2)), closed, address=address(2)).status is Status.PASS


def test_nccl_finding_nothing_is_a_failure_and_its_other_troubles_are_not() -> None:
    nothing = ask(machine(eth(2)), error="Bootstrap : no socket interface found")
    assert nothing.status is Status.FAIL
    assert "no socket interface found" in nothing.summary
    assert ask(machine(eth(2)), error="Call to bind failed : Too many open files").status is Status.UNKNOWN
    assert ask(machine(eth(2)), address="10.77.0.1").status is Status.UNKNOWN


def test_with_a_comm_id_the_answer_does_not_name_the_interface() -> None:
    login = env(NCCL_COMM_ID=f"{address(9)}:1")
    finding = ask(machine(eth(2)), login, address=address(9))
    assert finding.status is Status.PASS
    assert "predicted" in finding.summary
    assert ask(machine(), login, address=address(9)).status is Status.UNKNOWN
    by_name = ask(machine(eth(2)), env(NCCL_COMM_ID="head:1"), address=address(9))
    assert (by_name.status, by_name.observed) == (Status.PASS, f"eth0 {address(2)}")
    nowhere = ask(machine(), login, error="NET/Socket : No usable listening interface found")
    assert nowhere.cause is not None
    assert nowhere.cause.key == "nccl-comm-id"
