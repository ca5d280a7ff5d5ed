"""NCCL's selection rules for interfaces against a table of cases read from its source."""

from dataclasses import replace

import pytest

from netdoctor.facts.net import AddressRow, Lookup, ResolveFacts
from netdoctor.rules import nccl as rules
from tests.checks.build import row

from .machines import (
    DOCKER,
    ETH0,
    ETH0_LL,
    ETH0_V6,
    ETH1,
    ETH10,
    IB0,
    LO,
    LOM,
    NEW,
    OLD,
    TAIL,
    VIRBR,
    machine,
)


@pytest.mark.parametrize(
    ("rows", "env", "version", "expected", "rule"),
    [
        # 1.1 automatic order
        pytest.param((LO, ETH0), {}, NEW, "eth0", "not docker*, lo*, virbr*", id="plain"),
        pytest.param((LO, ETH0, IB0), {}, NEW, "ib0", "ib*", id="ipoib first"),
        pytest.param((LO, DOCKER, ETH0), {}, NEW, "eth0", None, id="docker later"),
        pytest.param((LO, DOCKER), {}, NEW, "docker0", "docker*", id="docker before lo"),
        pytest.param((LO,), {}, NEW, "lo", "lo*", id="loopback last"),
        pytest.param((LO, VIRBR), {}, NEW, "lo", "lo*", id="virbr after lo"),
        pytest.param((VIRBR,), {}, NEW, "virbr0", "virbr*", id="virbr at the very end"),
        pytest.param((LO, VIRBR, ETH0), {}, OLD, "virbr0", "not docker*, lo*", id="virbr before"),
        pytest.param((LO, TAIL, ETH0), {}, NEW, "tailscale0", None, id="tailscale is not excluded"),
        pytest.param((LO, LOM), {}, NEW, "lo", "lo*", id="lom1 is excluded by prefix"),
        pytest.param((), {}, NEW, None, "nothing left", id="nothing at all"),
        # 1.2 what qualifies
        pytest.param((ETH0_LL, ETH1), {}, NEW, "eth0", None, id="link-local is not skipped"),
        pytest.param((row("lo", "::1", 128),), {}, NEW, None, "nothing left", id="v6 loopback"),
        # 1.3 grammar
        pytest.param((ETH0, ETH1), {"NCCL_SOCKET_IFNAME": "eth1"}, NEW, "eth1", None, id="name"),
        pytest.param((ETH10, ETH1), {"NCCL_SOCKET_IFNAME": "eth1"}, NEW, "eth10", None, id="prefix"),
        pytest.param((ETH10, ETH1), {"NCCL_SOCKET_IFNAME": "=eth1"}, NEW, "eth1", None, id="exact"),
        pytest.param((ETH0, ETH1), {"NCCL_SOCKET_IFNAME": "eth1,eth0"}, NEW, "eth0", None, id="kernel order"),
        pytest.param((DOCKER, ETH0), {"NCCL_SOCKET_IFNAME": "^docker,lo"}, NEW, "eth0", None, id="exclude"),
        pytest.param((ETH0, ETH1), {"NCCL_SOCKET_IFNAME": "^=eth0"}, NEW, "eth1", None, id="exclude exactly"),
        pytest.param((ETH0,), {"NCCL_SOCKET_IFNAME": "=^eth1"}, NEW, None, None, id="wrong order"),
        pytest.param(
            (LO, DOCKER, ETH0),
            {"NCCL_SOCKET_IFNAME": "^lo,^docker"},
            NEW,
            "docker0",
            None,
            id="modifier counts at the start only",
        ),
        pytest.param((ETH1,), {"NCCL_SOCKET_IFNAME": "eth0,=eth1"}, NEW, None, None, id="late ="),
        pytest.param((ETH1,), {"NCCL_SOCKET_IFNAME": "eth0, eth1"}, NEW, None, None, id="space"),
        pytest.param((ETH0,), {"NCCL_SOCKET_IFNAME": "eth0:1"}, NEW, "eth0", None, id="alias"),
        pytest.param((ETH0,), {"NCCL_SOCKET_IFNAME": ""}, NEW, "eth0", None, id="empty is unset"),
        pytest.param((ETH0,), {"NCCL_SOCKET_IFNAME": "^"}, NEW, "eth0", None, id="one sign is unset"),
        pytest.param((ETH0,), {"NCCL_SOCKET_IFNAME": "="}, NEW, "eth0", None, id="= is unset"),
        pytest.param((ETH0,), {"NCCL_SOCKET_IFNAME": "^="}, NEW, None, None, id="^= is nothing"),
        pytest.param((ETH0,), {"NCCL_SOCKET_IFNAME": "ens"}, NEW, None, None, id="find or fail"),
        pytest.param((LO, ETH0), {"NCCL_SOCKET_IFNAME": "lo"}, NEW, "lo", None, id="lo on request"),
        # 1.4 family and NCCL_COMM_ID
        pytest.param((ETH0, ETH0_V6), {"NCCL_SOCKET_FAMILY": "AF_INET6"}, NEW, "eth0", None, id="family"),
        pytest.param((ETH0,), {"NCCL_SOCKET_FAMILY": "AF_INET6"}, NEW, None, None, id="no v6"),
        pytest.param((ETH0,), {"NCCL_SOCKET_FAMILY": "6"}, NEW, "eth0", None, id="no such family"),
        pytest.param(
            (ETH0, ETH1),
            {"NCCL_COMM_ID": "10.1.0.9:29500", "NCCL_SOCKET_IFNAME": "eth0"},
            NEW,
            "eth1",
            "NCCL_COMM_ID",
            id="comm id overrides",
        ),
        pytest.param((ETH0,), {"NCCL_COMM_ID": "10.9.0.9:1"}, NEW, None, "NCCL_COMM_ID", id="comm id fails"),
        pytest.param((ETH0,), {"NCCL_COMM_ID": "10.0.0.9"}, NEW, "eth0", None, id="comm id without a port"),
        pytest.param((ETH0,), {"NCCL_COMM_ID": ",10.0.0.9:1,10.1.0.9"}, NEW, "eth0", None, id="first item"),
        pytest.param((ETH0,), {"NCCL_COMM_ID": ""}, NEW, None, None, id="empty comm id"),
        pytest.param((ETH0,), {"NCCL_COMM_ID": "[10.0.0.9]:1"}, NEW, None, None, id="IPv4 in brackets"),
        pytest.param((ETH0_V6,), {"NCCL_COMM_ID": "[fd00::9]:1"}, NEW, "eth0", None, id="comm id of IPv6"),
        pytest.param((ETH0_V6,), {"NCCL_COMM_ID": "[fd00::9"}, NEW, None, None, id="open bracket"),
        pytest.param((ETH0_LL,), {"NCCL_COMM_ID": "[fe80::9]:1"}, NEW, None, None, id="no zone"),
        pytest.param((ETH0_LL,), {"NCCL_COMM_ID": "[fe80::9%eth0]:1"}, NEW, "eth0", None, id="zone"),
        pytest.param((ETH0_LL,), {"NCCL_COMM_ID": "[fe80::9%lo]:1"}, NEW, None, None, id="another zone"),
    ],
)
def test_choice(
    rows: tuple[AddressRow, ...],
    env: dict[str, str],
    version: tuple[int, ...],
    expected: str | None,
    rule: str | None,
) -> None:
    choice = rules.choose(machine(*rows), env, version)
    assert choice.ifname == expected
    assert rule is None or choice.rule == rule


def test_a_name_in_the_comm_id_is_looked_up_on_the_node() -> None:
    net, env = machine(ETH0, ETH1), {"NCCL_COMM_ID": "head:29500"}
    assert rules.comm_id_host(env["NCCL_COMM_ID"]) == "head"
    assert rules.choose(net, env, NEW).untold

    def known(lookup: Lookup) -> ResolveFacts:
        return ResolveFacts(own=Lookup(name="n1"), peers=(lookup,))

    there = known(Lookup(name="head", addresses=("10.1.0.9", "10.0.0.9")))
    assert rules.choose(net, env, NEW, there).ifname == "eth1"
    unknown = known(Lookup(name="head", error="EAI_NONAME: Name or service not known"))
    assert rules.choose(net, env, NEW, unknown) == rules.Choice(None, "NCCL_COMM_ID")
    assert rules.choose(net, env, NEW, known(Lookup(name="head", error="timed out: no answer"))).untold
    assert rules.comm_id_host("10.0.0.1:1") is rules.comm_id_host("[fd00::1]:1") is None


def test_the_label_of_an_address_has_its_own_flags() -> None:
    rows = (row("lo0", "10.0.0.9"), ETH1)
    net = machine(*(replace(one, running=one is ETH1) for one in rows))
    assert rules.choose(net, {"NCCL_SOCKET_IFNAME": "lo0"}, NEW).row is None
    assert rules.choose(net, {"NCCL_SOCKET_IFNAME": "lo0"}, OLD).ifname == "lo0"


def test_a_carrierless_interface_counts_only_before_2_28_3() -> None:
    net = machine(ETH0, ETH1, down=("eth0",))
    assert rules.choose(net, {}, (2, 28, 3)).ifname == "eth1"
    assert rules.choose(net, {}, None).ifname == "eth1"
    assert rules.choose(net, {}, (2, 27, 7)).ifname == "eth0"


def test_one_address_per_interface_the_first() -> None:
    rows, _ = rules.candidates(machine(ETH0, ETH1, ETH0_V6), {}, NEW)
    assert [one.address for one in rows] == ["10.0.0.1", "10.1.0.1"]
    forced, _ = rules.candidates(machine(ETH0, ETH0_V6), {"NCCL_SOCKET_FAMILY": "AF_INET6"}, NEW)
    assert [one.address for one in forced] == ["fd00::1"]


def test_at_most_sixteen_entries() -> None:
    value = ",".join(f"x{i}" for i in range(16)) + ",eth0"
    assert rules.choose(machine(ETH0), {"NCCL_SOCKET_IFNAME": value}, NEW).row is None


def test_rows_that_are_no_address_are_left_out() -> None:
    assert rules.choose(machine(row("eth9", "garbage"), ETH0), {}, NEW).ifname == "eth0"
