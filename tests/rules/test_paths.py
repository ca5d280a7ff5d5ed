"""Which addresses of each node its peers dial."""

from dataclasses import replace
from typing import Any

import pytest

from netdoctor.facts.net import NetFacts, ResolveFacts
from netdoctor.facts.paths import Paths
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import Job, NcclAnswer
from netdoctor.rules import paths as rules
from netdoctor.rules.variables import effective_env
from tests.checks import build_hw as hw
from tests.checks.build import lookup, row
from tests.counting import calls

from .machines import DOCKER, LO, VIRBR, cluster, machine


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


ROCE = hw.rdma(hw.hca(ports=(hw.roce_port(),)))


def paths_of(nets: dict[str, NetFacts], env: dict[str, str] | None = None, **more: Any) -> Paths:
    """Of nodes with a GPU each; more: of Known (the same on each node), or of Job."""
    of_job = {name: more.pop(name) for name in ("backend", "master_addr") if name in more}
    main = {f"n{i}": f"10.0.0.{i}" for i in range(1, len(nets) + 1)}
    job = Job(env=env or {}, master_node="n1", data_addresses=more.pop("main", main), **of_job)
    known = {
        node: rules.Known(net=net, env=effective_env(None, job), **{"gpu": hw.gpus(1), **more})
        for node, net in nets.items()
    }
    return rules.paths(known, job)


def both() -> dict[str, NetFacts]:
    return {f"n{i}": machine(LO, row("eth0", f"10.0.0.{i}"), row("eth1", f"10.1.0.{i}")) for i in (1, 2, 3)}


SECOND = {f"n{i}": f"10.1.0.{i}" for i in (1, 2, 3)}


def further(found: Paths) -> list[dict[str, str]]:
    return [path.addresses for path in found.further]


def test_every_interface_that_nccl_takes_is_dialled() -> None:
    found = paths_of(both())
    assert further(found) == [SECOND]
    (path,) = found.further
    assert (path.id, path.network, path.ifnames["n2"]) == ("2", "10.1.0.0/24", "eth1")
    sockets = [use for use in found.uses if use.node == "n1" and use.purpose.startswith("NCCL socket")]
    assert [(use.purpose, use.address) for use in sockets] == [
        ("NCCL socket 0", "10.0.0.1"),
        ("NCCL socket 1", "10.1.0.1"),
    ]
    assert {use.rule for use in sockets} == {"not docker*, lo*, virbr*"}


STOPPED = machine(LO, row("eth0", "10.0.0.1"), row("eth1", "10.1.0.1"), down=("eth1",)).netdevs
ONE_PATH = {
    "one network": (cluster(), {}, {}),
    "an interface that NCCL excludes": (cluster(DOCKER), {}, {}),
    "of a hypervisor": (cluster(VIRBR), {}, {}),
    "the variable names one": (both(), {"NCCL_SOCKET_IFNAME": "eth0"}, {}),
    "gloo": (both(), {}, {"backend": "gloo"}),
    "no GPU": (both(), {}, {"gpu": hw.no_gpus()}),
    "GPUs were not read": (both(), {}, {"gpu": None}),
    "HCAs carry the data": (both(), {}, {"rdma": ROCE}),
    "a plug-in carries the data": (both(), {"NCCL_NET": "AWS Libfabric"}, {}),
    "the second one is not running": ({n: replace(m, netdevs=STOPPED) for n, m in both().items()}, {}, {}),
    "the same bridge on each node": (cluster(row("br-1a2b", "172.18.0.1", 16)), {}, {}),
    "link-local": (cluster(row("veth1", "fe80::5", 64, scope="link")), {}, {}),
    "two families on one interface": (cluster(row("eth0", "fd00::1", 64), first=False), {}, {}),
    "one node": (cluster(count=1), {}, {}),
    "MASTER_ADDR on the same network": (both(), {"NCCL_SOCKET_IFNAME": "eth0"}, {"master_addr": "10.0.0.1"}),
    "MASTER_ADDR of nobody": (cluster(), {}, {"master_addr": "203.0.113.7"}),
    "MASTER_ADDR of another node": (both(), {}, {"master_addr": "10.1.0.2", "backend": "gloo"}),
}  # fmt: skip


@pytest.mark.parametrize("variant", ONE_PATH)
def test_one_path_is_all_that_is_dialled(variant: str) -> None:
    nets, env, more = ONE_PATH[variant]
    found = paths_of(nets, env, **more)
    assert (len(found.paths), found.paths[0].id) == (1, "main")
    assert found.paths[0].addresses == {node: f"10.0.0.{node[1:]}" for node in nets}


def test_says_why_purposes_were_left_out() -> None:
    assert paths_of(both(), backend="gloo").left_out["NCCL socket"] == "the job uses gloo"
    assert paths_of(both(), gpu=None).left_out["NCCL socket"] == "GPUs were not read"
    assert "mlx5_0:1" in paths_of(both(), rdma=ROCE).left_out["NCCL socket"]
    assert "own names" in paths_of(both()).left_out["gloo"]
    assert "no node could look up" in paths_of(both(), master_addr="head").left_out["store"]
    assert "rank 0" in paths_of(both(), master_addr="203.0.113.7").left_out["store"]


def test_where_master_addr_points_is_a_path_of_its_own() -> None:
    found = paths_of(both(), {"NCCL_SOCKET_IFNAME": "=eth0"}, master_addr="10.1.0.1")
    (path,) = found.further
    assert path.addresses == {"n1": "10.1.0.1"}
    assert path.sources == SECOND, "the others send from their end of that network"
    (store,) = [use for use in found.uses if use.purpose == "store"]
    assert (store.address, store.rule) == ("10.1.0.1", "MASTER_ADDR")
    head = ResolveFacts(own=lookup("n1", "10.0.0.1"), peers=(lookup("head", "10.1.0.1"),))
    named = paths_of(both(), backend="gloo", master_addr="head", resolve=head)
    assert further(named) == [{"n1": "10.1.0.1"}]


def test_master_addr_counts_by_what_any_node_takes_the_name_for() -> None:
    """Rank 0's own node may take its name for loopback; the others dial what they were told."""
    job = Job(master_addr="n1", master_node="n1", backend="gloo", data_addresses={"n1": "10.0.0.1"})
    known = {
        node: rules.Known(
            net=net,
            env={},
            resolve=ResolveFacts(
                own=lookup(node, "127.0.1.1"),
                peers=() if node == "n1" else (lookup("n1", "10.1.0.1"),),
            ),
        )
        for node, net in both().items()
    }
    found = rules.paths(known, job)
    assert further(found) == [{"n1": "10.1.0.1"}]
    assert "store" not in found.left_out


def test_gloo_is_dialled_where_the_own_name_or_the_variable_says() -> None:
    assert further(paths_of(both(), {"GLOO_SOCKET_IFNAME": "eth1"}, backend="gloo")) == [SECOND]
    own = {"n1": ResolveFacts(own=lookup("n1", "10.1.0.1"), first_bindable="10.1.0.1")}
    found = paths_of({"n1": both()["n1"]}, backend="gloo", resolve=own["n1"])
    assert further(found) == [{"n1": "10.1.0.1"}]


def test_networks_of_one_node_each_are_grouped_by_the_interfaces_place() -> None:
    nets = {
        f"n{i}": machine(
            LO, row("eth0", f"10.0.0.{i}"), row("eth1", f"10.1.{i}.1"), row("eth2", f"10.2.{i}.1")
        )
        for i in (1, 2, 3)
    }
    found = paths_of(nets)
    assert further(found) == [{f"n{i}": f"10.{net}.{i}.1" for i in (1, 2, 3)} for net in (1, 2)]
    assert {path.network for path in found.further} == {""}


def test_two_interfaces_in_one_network_are_two_paths() -> None:
    nets = {
        f"n{i}": machine(LO, row("eth0", f"10.0.0.{i}"), row("eth1", f"10.0.0.{i + 100}")) for i in (1, 2)
    }
    assert further(paths_of(nets)) == [{"n1": "10.0.0.101", "n2": "10.0.0.102"}]


def test_a_renamed_interface_and_one_of_one_node_alone() -> None:
    nets = both()
    nets["n2"] = machine(LO, row("ens9", "10.0.0.2"), row("eth7", "10.1.0.2"), row("br-77", "172.18.0.1", 16))
    found = paths_of(nets)
    assert further(found) == [SECOND, {"n2": "172.18.0.1"}], "peers would dial the bridge, too"


def test_rails_are_counted_and_carry_no_tcp() -> None:
    nets = both()
    known = {
        n: hw.rdma(*(hw.hca(f"mlx5_{k}", ports=(hw.roce_port(f"mlx5_{k}", int(n[1:])),)) for k in (0, 1)))
        for n in nets
    }
    job = Job(data_addresses=SECOND)
    found = rules.paths(
        {n: rules.Known(net=nets[n], env={}, gpu=hw.gpus(1), rdma=known[n]) for n in nets}, job
    )
    assert [(rail.id, rail.addresses["n2"]) for rail in found.rails] == [
        ("RoCE mlx5_0:1", "10.0.0.2"),
        ("RoCE mlx5_1:1", "10.0.0.2"),
    ]
    assert found.rails[0].ifnames["n3"] == "eth0"
    assert not any(use.purpose.startswith("NCCL socket") for use in found.uses)
    assert further(found) == [{f"n{i}": f"10.0.0.{i}" for i in (1, 2, 3)}], "NCCL's bootstrap"


def of_rails(
    names: dict[str, tuple[str, ...]], env: dict[str, str] | None = None, shared: bool = False
) -> Paths:
    """Nodes with these HCAs: the first on 10.0.0.0/24, the second on 10.1.0.0/24, or both there."""

    def hcas(node: str) -> RdmaFacts:
        found = []
        for place, name in enumerate(names[node]):
            one = hw.roce_port(name, int(node[1:]))
            net = "10.0.0." if shared or place == 0 else "10.1.0."
            gids = tuple(replace(gid, gid=gid.gid.replace("10.0.0.", net)) for gid in one.gids)
            found.append(hw.hca(name, ports=(replace(one, gids=gids),)))
        return hw.rdma(*found)

    known = {
        n: rules.Known(net=net, env=effective_env(None, Job(env=env or {})), gpu=hw.gpus(1), rdma=hcas(n))
        for n, net in both().items()
    }
    return rules.paths(known, Job(data_addresses={n: f"10.0.0.{n[1:]}" for n in known}))


ALIKE = dict.fromkeys(("n1", "n2", "n3"), ("mlx5_0", "mlx5_1"))


def test_each_rail_is_tried_from_its_own_addresses() -> None:
    one, other = of_rails(ALIKE).rails
    assert (one.addresses["n2"], other.addresses["n2"]) == ("10.0.0.2", "10.1.0.2")
    assert other.sources == other.addresses == SECOND
    assert other.label == "eth1 (10.1.0.0/24: RoCE mlx5_1:1)"
    assert other.tried


@pytest.mark.parametrize(
    "names",
    [
        pytest.param({**ALIKE, "n2": ("mlx5_0", "rocep1s0")}, id="one other name"),
        pytest.param(
            {"n1": ("roce0", "roce1"), "n2": ("mlx5_0", "mlx5_1"), "n3": ("p1", "p2")}, id="none alike"
        ),
    ],
)
def test_rails_of_other_names_are_paired_by_their_place(names: dict[str, tuple[str, ...]]) -> None:
    found = of_rails(names).rails
    assert [rail.id for rail in found] == ["RoCE mlx5_0:1", "RoCE mlx5_1:1"]
    assert found[1].addresses == SECOND


def test_a_rail_that_a_node_lacks_shifts_no_other() -> None:
    assert [list(rail.addresses) for rail in of_rails({**ALIKE, "n2": ("mlx5_1",)}).rails] == [
        ["n1", "n3"],
        ["n1", "n2", "n3"],
    ]


def test_rails_in_one_network_are_not_tried() -> None:
    found = of_rails(ALIKE, shared=True)
    assert not any(rail.tried for rail in found.rails)
    assert "share a network" in found.left_out["between rails"]


def test_what_nccl_itself_chose_is_dialled() -> None:
    answer = NcclAnswer(library="/opt/libnccl.so.2", version="2.28.3", address="10.1.0.1")
    found = paths_of({"n1": both()["n1"]}, {"NCCL_SOCKET_IFNAME": "=eth0"}, answer=answer)
    (use,) = [use for use in found.uses if use.purpose == "NCCL bootstrap"]
    assert (use.address, use.rule) == ("10.1.0.1", "asked")
    assert further(found) == [{"n1": "10.1.0.1"}]


@pytest.mark.thorough
def test_many_small_networks_cost_as_much_for_each_node_as_few() -> None:
    """Each two nodes with a network of their own: as many paths as half the nodes."""

    def work(count: int) -> int:
        nets = {
            f"n{i}": machine(
                LO,
                row("eth0", f"10.0.{i // 250}.{1 + i % 250}", 16),
                row("eth1", f"10.{1 + i // 500}.{i // 2 % 250}.{1 + i % 2}", 30),
            )
            for i in range(count)
        }
        main = {node: net.addresses[1].address for node, net in nets.items()}
        return calls(lambda: paths_of(nets, main=main))

    work(400)  # each text is taken apart once
    assert work(400) < 2.2 * work(200)
