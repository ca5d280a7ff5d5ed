import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from netdoctor.checks._shared.hosts_file import rewrite
from netdoctor.checks.net.resolve import net_resolve
from netdoctor.facts.host import Node
from netdoctor.facts.net import ResolveFacts
from netdoctor.facts.software import Job
from netdoctor.model import Finding, Status

from ..build import (
    address,
    cause,
    causes,
    found,
    host,
    hosts,
    job,
    lookup,
    loopback,
    names,
    net,
    netdev,
    nets,
    node,
    nodes,
    relook,
    resolve,
    resolves,
    row,
    session,
)


def judge(
    facts: dict[str, ResolveFacts],
    listed: dict[str, Node] | None = None,
    plan: Job | None = None,
) -> list[Finding]:
    count = len(facts)
    return list(net_resolve(facts, nets(count), hosts(count), listed or nodes(count), plan or job(count)))


def unknown_name(name: str) -> dict[str, object]:
    return {"error": "EAI_NONAME: Name or service not known"}


def test_silent_on_a_healthy_cluster() -> None:
    assert judge(resolves(4)) == []
    assert judge(resolves(1)) == []


def looped(i: int, count: int) -> ResolveFacts:
    return replace(
        resolve(i, count),
        own=lookup(f"n{i}", "127.0.1.1"),
        first_bindable="127.0.1.1",
        hosts_lines=(f"127.0.1.1 n{i}",),
    )


def test_the_own_name_on_loopback() -> None:
    findings = judge({**resolves(4), "n2": looped(2, 4)})
    assert causes(findings) == {"hosts-loopback": {"n2"}}
    assert findings[0].status is Status.FAIL
    assert findings[0].evidence[1].output == "127.0.1.1 n2"
    (command,) = cause(findings, "hosts-loopback").fixes[0].commands
    assert "10.0.0.2 n2" in command.shell


def test_a_named_gloo_interface_makes_it_a_risk_only() -> None:
    plan = job(4, env={"GLOO_SOCKET_IFNAME": "eth0"})
    findings = judge({**resolves(4), "n2": looped(2, 4)}, plan=plan)
    assert findings[0].status is Status.WARN


def test_one_node_may_use_loopback() -> None:
    assert judge({"n1": looped(1, 1)}) == []


def test_the_own_name_unknown_or_elsewhere() -> None:
    lost = replace(resolve(2, 3), own=lookup("n2", error="EAI_NONAME"), first_bindable=None)
    assert causes(judge({**resolves(3), "n2": lost})) == {"own-name-unknown": {"n2"}}
    strange = replace(resolve(2, 3), own=lookup("n2", "192.0.2.9"), first_bindable=None)
    findings = judge({**resolves(3), "n2": strange})
    assert causes(findings) == {"own-name-wrong": {"n2"}}
    assert findings[0].expected == "10.0.0.2"


def test_a_missing_peer_name_blames_the_node_that_misses_it() -> None:
    facts = resolves(4)
    facts["n1"] = relook(facts["n1"], lookup("n3", error="EAI_NONAME"))
    findings = judge(facts)
    assert causes(findings) == {"peer-name-unknown": {"n1"}}
    assert findings[0].summary.startswith("cannot resolve n3: EAI_NONAME")
    assert findings[0].observed == "EAI_NONAME"
    assert "10.0.0.3 n3" in cause(findings, "peer-name-unknown").fixes[0].commands[0].shell


def test_a_wrong_peer_address_says_whose_it_is() -> None:
    facts = resolves(4)
    facts["n1"] = relook(facts["n1"], lookup("n3", address(4)))
    findings = judge(facts)
    assert causes(findings) == {"peer-name-wrong": {"n1"}}
    assert "which is n4" in findings[0].summary


def test_a_peer_on_loopback_is_wrong() -> None:
    facts = resolves(3)
    facts["n1"] = relook(facts["n1"], lookup("n3", "127.0.0.1"))
    assert causes(judge(facts)) == {"peer-name-wrong": {"n1"}}


def test_a_second_address_of_the_peer_is_fine() -> None:
    facts = resolves(3)
    facts["n1"] = relook(facts["n1"], lookup("n3", "192.0.2.1", address(3)))
    assert judge(facts) == []


def test_names_that_only_ssh_knows_are_one_warning() -> None:
    facts = {
        name: relook(one, *(lookup(peer, error="EAI_NONAME") for peer in names(3)))
        for name, one in resolves(3).items()
    }
    (finding,) = judge(facts)
    assert finding.status is Status.WARN
    assert "looked up over" not in finding.summary  # every pair was asked
    assert finding.cause is not None
    assert (finding.cause.key, finding.cause.culprits) == ("names-ssh-only", ("n1", "n2", "n3"))


def test_addresses_in_the_list_are_no_names() -> None:
    listed = {f"n{i}": node(i, host=address(i)) for i in (1, 2, 3)}
    facts = {
        name: relook(one, *(lookup(peer, error="EAI_NONAME") for peer in names(3)))
        for name, one in resolves(3).items()
    }
    assert judge(facts, listed) == []


def test_slow_lookups_warn() -> None:
    facts = resolves(2)
    facts["n2"] = relook(facts["n2"], lookup("n1", address(1), elapsed_ms=5004.0))
    assert causes(judge(facts)) == {"dns-slow": {"n2"}}


def test_a_name_that_was_never_asked_is_unknown() -> None:
    facts = resolves(3)
    late = lookup("n3", error="timed out: earlier lookups used up the time")
    facts["n1"] = relook(facts["n1"], late)
    assert found(judge(facts))["n1"].status is Status.UNKNOWN


def test_an_own_name_that_was_never_asked_is_unknown() -> None:
    late = lookup("n2", error="timed out: earlier lookups used up the time")
    facts = {**resolves(3), "n2": replace(resolve(2, 3), own=late)}
    assert {node: one.status for node, one in found(judge(facts)).items()} == {"n2": Status.UNKNOWN}


def test_a_node_that_looked_up_none_of_the_names_is_unknown() -> None:
    facts = {**resolves(3), "n2": replace(resolve(2, 3), peers=())}
    assert {node: one.status for node, one in found(judge(facts)).items()} == {"n2": Status.UNKNOWN}


def test_names_that_nobody_was_asked_for_are_not_judged() -> None:
    (said,) = judge({node: replace(facts, peers=()) for node, facts in resolves(3).items()})
    assert (said.status, said.summary) == (Status.PASS, "the names of other nodes were not looked up")


def test_a_sample_is_called_one() -> None:
    def sampled(peers: int, **bad: str) -> list[Finding]:
        facts = resolves(5)
        for i, (name, one) in enumerate(facts.items()):
            known = [relook(one, *(lookup(n, **{k: v}) for n in bad for k, v in [("error", bad[n])])).peers]
            facts[name] = replace(one, peers=tuple(known[0][(i + 1 + k) % 5] for k in range(peers)))
        return judge(facts)

    (said,) = sampled(2)
    assert (said.status, said.target) == (Status.PASS, "cluster")
    assert said.summary == "the names of other nodes, looked up over 10 of 20 directed pairs, all right"
    assert sampled(4) == []
    wrong = sampled(2, n3="EAI_NONAME")
    assert {one.target for one in wrong} == {"n1", "n2"}  # who asked for it; and nobody is called right
    everything = sampled(2, **dict.fromkeys(names(5), "EAI_NONAME"))
    assert "over 10 of 20 directed pairs" in everything[0].summary


@pytest.mark.parametrize(("boxes", "stray"), [({2}, False), ({2, 3}, False), ({1, 2, 3}, False), ({2}, True)])
def test_a_container_on_a_bridge_is_called_by_its_machines_address(boxes: set[int], stray: bool) -> None:
    """Its own, 172.17.0.2, means nothing elsewhere: no healthy node is blamed, and none gets it written."""
    machines, all_nets = dict(hosts(4)), dict(nets(4))
    for i in boxes:
        machines[f"n{i}"] = host(i, container="docker")
        all_nets[f"n{i}"] = net(
            netdevs=(loopback(), netdev(kind="veth", speed_mbit_s=None)),
            addresses=(row("lo", "127.0.0.1", 8, scope="host"), row("eth0", "172.17.0.2", 16)),
        )
    data = {f"n{i}": "172.17.0.2" if i in boxes else address(i) for i in range(1, 5)}
    sessions = {f"n{i}": session(i) for i in range(1, 5)}
    facts = {f"n{i}": resolve(i, 4) for i in range(1, 5)}
    if stray:
        facts["n4"] = relook(facts["n4"], lookup("n2", "192.0.2.7"))
    plan = replace(job(4), data_addresses=data)
    findings = list(net_resolve(facts, all_nets, machines, nodes(4), plan, sessions))
    wrong = {one.target for one in findings if one.cause and one.cause.key == "peer-name-wrong"}
    assert wrong == ({"n4"} if stray else set())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("127.0.0.1 localhost\n127.0.1.1 n1.lan n1\n", "127.0.0.1 localhost\n10.0.0.1 n1.lan n1\n"),
        (
            "127.0.0.1 localhost n1\n10.0.0.11 n11\n",
            "127.0.0.1 localhost\n10.0.0.11 n11\n10.0.0.1 n1.lan n1\n",
        ),
    ],
)
def test_the_command_rewrites_a_hosts_file(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(before)
    shell = rewrite({"n1": "10.0.0.1"}, ["n1.lan"])
    assert shell is not None
    for _ in range(2):  # pasting twice does no harm
        subprocess.run(["sh", "-c", shell.replace("/etc/hosts", str(path))], check=True)
        assert path.read_text() == after
        assert (tmp_path / "hosts.before-netdoctor").read_text() == before


def test_odd_names_reach_no_command() -> None:
    assert rewrite({"n1; reboot": "10.0.0.1"}) is None
    assert rewrite({"n1": "$(reboot)"}) is None


def without(node: str, peer: str, count: int = 4) -> dict[str, ResolveFacts]:
    """Healthy but for one node, which does not know the name of a peer."""
    facts = resolves(count)
    peers = tuple(
        replace(one, **unknown_name(peer), addresses=()) if one.name == peer else one
        for one in facts[node].peers
    )
    return {**facts, node: replace(facts[node], peers=peers)}


@pytest.mark.parametrize(
    ("launcher", "peer", "status", "words"),
    [
        pytest.param("torchrun", "n3", Status.WARN, "torchrun does not look it up", id="torchrun"),
        pytest.param("srun", "n3", Status.WARN, "mpirun, pdsh and DeepSpeed would fail", id="srun"),
        pytest.param("torchrun", "n1", Status.FAIL, "", id="rank 0's"),
        pytest.param("mpirun", "n3", Status.FAIL, "mpirun looks it up", id="mpirun"),
        pytest.param(None, "n3", Status.FAIL, "torchrun only rank 0's (--launcher)", id="not known"),
        pytest.param(None, "n1", Status.FAIL, "", id="not known, rank 0's"),
    ],
)
def test_a_name_that_the_launcher_does_not_ask_for(
    launcher: str | None, peer: str, status: Status, words: str
) -> None:
    (finding,) = judge(without("n2", peer), plan=job(4, launcher=launcher))
    assert (finding.status, finding.target) == (status, "n2")
    assert words in finding.summary
    assert ("launcher" in finding.summary or "look" in finding.summary) == bool(words)


def test_rank_0_of_torchrun_is_the_first_by_full_name() -> None:
    """Where the rendezvous is on n2, agents still take the smallest name, n1, for rank 0."""
    (finding,) = judge(without("n3", "n1"), plan=job(4, launcher="torchrun", master_node="n2"))
    assert finding.status is Status.FAIL
    (finding,) = judge(without("n3", "n2"), plan=job(4, launcher="torchrun", master_node="n2"))
    assert finding.status is Status.FAIL, "the endpoint's name is asked for by every agent"
