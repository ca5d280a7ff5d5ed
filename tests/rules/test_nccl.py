"""NCCL's selection rules against a table of cases read from its source."""

from dataclasses import replace

import pytest

from netdoctor.facts.net import AddressRow, NetFacts
from netdoctor.facts.rdma import Gid, Hca, HcaPort
from netdoctor.facts.software import ConfFile, EnvFacts, Job
from netdoctor.rules import nccl as rules
from tests.checks.build import loopback, netdev, row

NEW = (2, 30, 7)
OLD = (2, 27, 7)


def machine(*rows: AddressRow, down: tuple[str, ...] = ()) -> NetFacts:
    names = list(dict.fromkeys(one.ifname for one in rows if one.ifname != "lo"))
    return NetFacts(
        netdevs=(
            loopback(),
            *(netdev(name, i, running=name not in down) for i, name in enumerate(names, start=2)),
        ),
        addresses=rows,
    )


LO = row("lo", "127.0.0.1", 8, scope="host")
ETH0 = row("eth0", "10.0.0.1")
ETH1 = row("eth1", "10.1.0.1")
ETH10 = row("eth10", "10.2.0.1")
IB0 = row("ib0", "192.168.100.1")
DOCKER = row("docker0", "172.17.0.1", 16)
VIRBR = row("virbr0", "192.168.122.1")
TAIL = row("tailscale0", "100.64.0.1", 32)
ETH0_V6 = row("eth0", "fd00::1", 64)
ETH0_LL = row("eth0", "fe80::1", 64, scope="link")
LOM = row("lom1", "10.3.0.1")


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
        pytest.param((ETH0,), {"NCCL_COMM_ID": "node1:1"}, NEW, "eth0", None, id="comm id by name"),
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


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (None, 7),
        ("", 7),
        ("1", 1),
        ("true", 0),
        ("yes", 0),
        ("010", 8),
        ("0x10", 16),
        ("-1", -1),
        ("22ms", 22),
        (" 5", 5),
        ("08", 0),
        ("99999999999999999999", 7),
    ],
)
def test_integers_as_strtoll_reads_them(text: str | None, number: int) -> None:
    assert rules.param(text, 7) == number


def test_the_jobs_environment_wins_over_login_and_files() -> None:
    login = EnvFacts(
        variables={"NCCL_DEBUG": "WARN", "NCCL_IB_HCA": "mlx5", "MASTER_PORT": "1"},
        nccl_conf=(
            ConfFile(path="/root/.nccl.conf", values={"NCCL_DEBUG": "INFO", "NCCL_BUFFSIZE": "1"}),
            ConfFile(path="/etc/nccl.conf", values={"NCCL_BUFFSIZE": "2", "GLOO_SOCKET_IFNAME": "x"}),
        ),
    )
    job = Job(env={"NCCL_IB_HCA": "=mlx5_0"}, env_from={"NCCL_IB_HCA": "train.env:4"})
    assert rules.effective_env(login, job) == {
        "NCCL_IB_HCA": ("=mlx5_0", "train.env:4"),
        "NCCL_DEBUG": ("WARN", "login session"),
        "MASTER_PORT": ("1", "login session"),
        "NCCL_BUFFSIZE": ("1", "/root/.nccl.conf"),
    }
    assert rules.effective_env(None, Job()) == {}


# --- what peers should dial ----------------------------------------------------------------------


def cluster(*extra: AddressRow, count: int = 3, first: bool = True) -> dict[str, NetFacts]:
    nets = {}
    for i in range(1, count + 1):
        own = (row("eth0", f"10.0.0.{i}"),)
        nets[f"n{i}"] = machine(LO, *((*extra, *own) if first else (*own, *extra)))
    return nets


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


# --- proposals -----------------------------------------------------------------------------------


def propose(nets: dict[str, NetFacts], preferred: dict[str, str] | None = None) -> rules.Proposal:
    proposal = rules.propose_ifname(nets, {}, dict.fromkeys(nets, NEW), preferred or {})
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
    assert rules.propose_ifname(nets, {}, {}, {}) is None


def test_never_proposes_a_name_that_is_no_plain_word() -> None:
    nets = {f"n{i}": machine(row("$(reboot)", f"10.0.0.{i}")) for i in (1, 2)}
    assert rules.propose_ifname(nets, {}, {}, {}) is None


# --- HCAs ----------------------------------------------------------------------------------------


def hca(name: str, *states: str, layer: str = "InfiniBand", ok: bool | None = True) -> Hca:
    ports = tuple(
        HcaPort(
            name=f"{name}:{i}",
            number=i,
            state=state,
            phys_state="LinkUp",
            link_layer=layer,
            rate_gbit_s=400.0,
        )
        for i, state in enumerate(states or ("ACTIVE",), start=1)
    )
    return Hca(name=name, ports=ports, uverbs_ok=ok)


@pytest.mark.parametrize(
    ("value", "selected"),
    [
        (None, ["mlx5_0:1", "mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]),
        ("", ["mlx5_0:1", "mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]),
        ("mlx5_1", ["mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]),
        ("=mlx5_1", ["mlx5_1:1", "mlx5_1:2"]),
        ("=mlx5_1:2", ["mlx5_1:2"]),
        ("mlx5_0:1,mlx5_1:1", ["mlx5_0:1", "mlx5_1:1", "mlx5_10:1"]),
        ("^mlx5_1", ["mlx5_0:1"]),
        ("^=mlx5_1", ["mlx5_0:1", "mlx5_10:1"]),
        ("^=mlx5_1:2", ["mlx5_0:1", "mlx5_1:1", "mlx5_10:1"]),
        ("^", []),
        ("^=", []),
        ("eth0", []),
        ("mlx5_0, mlx5_1", ["mlx5_0:1"]),
        ("=mlx5_0:1:0:0", ["mlx5_0:1"]),
    ],
)
def test_hca_filter(value: str | None, selected: list[str]) -> None:
    hcas = (hca("mlx5_0"), hca("mlx5_1", "ACTIVE", "ACTIVE"), hca("mlx5_10"))
    assert [port.name for _, port in rules.selected_ports(hcas, value)] == selected


def test_only_active_ports_of_devices_that_open() -> None:
    hcas = (hca("a", "INIT"), hca("b", "DOWN"), hca("c", ok=False), hca("d", layer="Unknown"), hca("e"))
    assert [port.name for _, port in rules.selected_ports(hcas, None)] == ["e:1"]


def test_names_what_a_prefix_drags_in() -> None:
    hcas = (hca("mlx5_1"), hca("mlx5_10"), hca("mlx5_11"))
    assert rules.prefix_surprises(hcas, "mlx5_1") == {"mlx5_1": ["mlx5_10", "mlx5_11"]}
    assert rules.prefix_surprises(hcas, "=mlx5_1") == {}
    assert rules.prefix_surprises(hcas, "mlx5") == {}


# --- GIDs ----------------------------------------------------------------------------------------

USUAL = (
    Gid(index=0, gid="fe80::1", type="IB/RoCE v1"),
    Gid(index=1, gid="fe80::1", type="RoCE v2"),
    Gid(index=2, gid="::ffff:10.0.0.1", type="IB/RoCE v1"),
    Gid(index=3, gid="::ffff:10.0.0.1", type="RoCE v2"),
    Gid(index=5, gid="::ffff:10.9.0.1", type="RoCE v2"),
)


@pytest.mark.parametrize(
    ("gids", "env", "version", "index"),
    [
        pytest.param(USUAL, {}, NEW, 3, id="first v4 over RoCE v2"),
        pytest.param(USUAL, {}, (2, 20, 5), 0, id="zero before 2.21"),
        pytest.param(USUAL, {"NCCL_IB_GID_INDEX": "1"}, NEW, 1, id="forced"),
        pytest.param(USUAL, {"NCCL_IB_GID_INDEX": "-1"}, NEW, 3, id="minus one is unset"),
        pytest.param(USUAL, {"NCCL_IB_GID_INDEX": "9"}, NEW, 9, id="forced blindly"),
        pytest.param(USUAL[:2], {}, NEW, 0, id="no IPv4 is index zero"),
        pytest.param(USUAL, {"NCCL_IB_ADDR_RANGE": "10.9.0.0/16"}, NEW, 5, id="range"),
        pytest.param(USUAL, {"NCCL_IB_ADDR_RANGE": "10.8.0.0/16"}, NEW, 0, id="range without match"),
        pytest.param(USUAL, {"NCCL_IB_ROCE_VERSION_NUM": "1"}, NEW, 2, id="RoCE v1 asked for"),
        pytest.param(USUAL[3:], {}, NEW, 3, id="gap at zero"),
        pytest.param(
            (USUAL[0], Gid(index=1, gid="fd00::1", type="RoCE v2")),
            {"NCCL_IB_ADDR_FAMILY": "AF_INET6"},
            NEW,
            1,
            id="IPv6 fabric",
        ),
    ],
)
def test_gid_index(gids: tuple[Gid, ...], env: dict[str, str], version: tuple[int, ...], index: int) -> None:
    port = replace(hca("mlx5_0", layer="Ethernet").ports[0], gids=gids)
    assert rules.choose_gid_index(port, env, version) == index


def test_infiniband_ignores_the_index() -> None:
    port = replace(hca("mlx5_0").ports[0], gids=USUAL)
    assert rules.choose_gid_index(port, {"NCCL_IB_GID_INDEX": "3"}, NEW) == 0
