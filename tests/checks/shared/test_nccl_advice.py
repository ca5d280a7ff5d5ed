"""Values of NCCL_SOCKET_IFNAME that are proposed."""

from netdoctor.advice import Proposal, propose_ifname
from netdoctor.facts.net import NetFacts
from tests.rules.machines import DOCKER, ETH0, LO, NEW, cluster, machine

from ..build import row


def propose(nets: dict[str, NetFacts], preferred: dict[str, str] | None = None) -> Proposal:
    proposal = propose_ifname(nets, {}, dict.fromkeys(nets, NEW), preferred or {})
    assert proposal is not None
    return proposal


def test_proposes_one_exact_name() -> None:
    assert propose(cluster(DOCKER)).value == "=eth0"


def test_proposes_a_list_when_names_differ() -> None:
    nets = {"n1": machine(LO, ETH0), "n2": machine(LO, row("ens3", "10.0.0.2"))}
    assert propose(nets).value == "=eth0,ens3"


def test_proposes_an_exclusion_when_a_list_would_pick_wrongly() -> None:
    nets = {
        "n1": machine(LO, row("eth0", "10.0.0.1")),
        "n2": machine(LO, row("eth0", "172.30.0.2"), row("eth1", "10.0.0.2")),
    }
    proposal = propose(nets)
    # eth0 is right on n1 and wrong on n2: no single value does it.
    assert proposal.value is None
    assert proposal.per_node == {"n1": "=eth0", "n2": "=eth1"}
    nets = {
        "n1": machine(LO, row("a", "10.0.0.1"), row("x", "172.30.0.1")),
        "n2": machine(LO, row("x", "172.31.0.2"), row("b", "10.0.0.2")),
        "n3": machine(LO, row("b", "192.0.2.3"), row("a", "10.0.0.3")),
    }
    assert propose(nets).per_node == {"n1": "=a", "n2": "=b", "n3": "=a"}


def test_prefers_the_network_that_the_user_dials() -> None:
    nets = {f"n{i}": machine(LO, row("a", f"10.1.0.{i}"), row("b", f"10.2.0.{i}")) for i in (1, 2)}
    assert propose(nets).value == "=a"
    assert propose(nets, {"n1": "10.2.0.1", "n2": "10.2.0.2"}).value == "=b"


def test_routed_racks_get_the_addresses_that_are_dialled() -> None:
    nets = {f"n{i}": machine(LO, row("eth0", f"10.{i}.0.5")) for i in (1, 2)}
    assert propose(nets, {"n1": "10.1.0.5", "n2": "10.2.0.5"}).value == "=eth0"
    assert propose_ifname(nets, {}, {}, {}) is None


def test_never_proposes_a_name_that_is_no_plain_word() -> None:
    nets = {f"n{i}": machine(row("$(reboot)", f"10.0.0.{i}")) for i in (1, 2)}
    assert propose_ifname(nets, {}, {}, {}) is None
