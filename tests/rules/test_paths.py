"""Which address of each node its peers should dial."""

from netdoctor.rules import paths as rules
from tests.checks.build import row

from .machines import DOCKER, LO, cluster, machine


def test_dials_the_ssh_address_when_it_is_the_nodes_own() -> None:
    nets = {f"n{i}": machine(LO, row("a", f"10.1.0.{i}"), row("b", f"10.2.0.{i}")) for i in (1, 2)}
    ssh = {"n1": "10.2.0.1", "n2": "203.0.113.9"}
    assert rules.data_addresses(nets, {}, ssh) == {"n1": "10.2.0.1", "n2": "10.1.0.2"}


def test_dials_what_the_variable_selects() -> None:
    nets = {f"n{i}": machine(LO, row("a", f"10.1.0.{i}"), row("b", f"10.2.0.{i}")) for i in (1, 2)}
    envs = {"n1": {"NCCL_SOCKET_IFNAME": "=b"}, "n2": {"NCCL_SOCKET_IFNAME": "lo"}}
    ssh = {"n1": "10.1.0.1", "n2": "127.0.0.1"}
    assert rules.data_addresses(nets, envs, ssh) == {"n1": "10.2.0.1", "n2": "10.1.0.2"}


def test_never_dials_an_interface_of_one_node_where_all_share_a_network() -> None:
    nets = cluster()
    nets["n2"] = machine(LO, row("eth0", "10.0.0.2"), row("tailscale0", "100.64.0.1", 32))
    envs = {n: {"NCCL_SOCKET_IFNAME": "tailscale0"} for n in nets}
    ssh = {f"n{i}": f"10.0.0.{i}" for i in (1, 2, 3)}
    assert rules.data_addresses(nets, envs, ssh) == ssh


def test_never_dials_an_address_that_every_node_has() -> None:
    nets = cluster(DOCKER)
    assert rules.data_addresses(nets, {}, {}) == {f"n{i}": f"10.0.0.{i}" for i in (1, 2, 3)}


def test_leaves_out_nodes_without_an_address() -> None:
    assert rules.data_addresses({"n1": machine(LO)}, {}, {"n1": "127.0.0.1"}) == {}
