from dataclasses import replace
from typing import Any

import pytest

from netdoctor.checks.rdma.gid import fill_gids, rdma_gid
from netdoctor.facts.net import AddressRow, NetFacts
from netdoctor.facts.rdma import Gid, RdmaFacts
from netdoctor.facts.software import SoftwareFacts
from netdoctor.model import Finding, Status

from ..build import cause, causes, env, found, host, job, net, row
from ..build_hw import hca, nccl, rdma, rdmas, roce_gids, roce_port, software


def roce(i: int, **changes: Any) -> RdmaFacts:
    return rdma(hca("mlx5_0", ports=(roce_port(i=i, **changes),)))


def cluster(count: int = 3, **odd: RdmaFacts) -> dict[str, RdmaFacts]:
    return {f"n{i}": odd.get(f"n{i}", roce(i)) for i in range(1, count + 1)}


def run(nodes: dict[str, RdmaFacts], version: str = "2.21.5", **variables: str) -> list[Finding]:
    softwares: dict[str, SoftwareFacts] = {n: software(nccl=(nccl(version),)) for n in nodes}
    return list(rdma_gid(nodes, None, softwares, None, None, job(env=variables)))


def test_says_which_gid() -> None:
    findings = run(cluster())
    assert {f.status for f in findings} == {Status.PASS}
    assert findings[0].observed == "mlx5_0:1 index 3 (10.0.0.1, RoCE v2)"


def test_skips() -> None:
    assert [f.status for f in rdma_gid({"n1": RdmaFacts()}, None, None, None, None, job())] == [Status.SKIP]
    assert [f.status for f in rdma_gid(rdmas(2), None, None, None, None, job())] == [Status.SKIP]
    assert found(run(cluster(n2=RdmaFacts())))["n2"].status is Status.SKIP


def test_no_ipv4_fails_where_others_have_it() -> None:
    findings = run(cluster(n2=roce(2, gids=roce_gids(2)[:2])))
    assert causes(findings) == {"gid-no-ipv4": {"n2"}}
    assert found(findings)["n2"].status is Status.FAIL
    assert "interface" not in found(findings)["n2"].summary  # nothing is known about it


@pytest.mark.parametrize(("i", "said"), [(1, "eth1 has 10.0.0.1"), (2, "eth1 has no IPv4 address")])
def test_no_ipv4_says_whether_the_interface_has_one(i: int, said: str) -> None:
    eth1 = AddressRow(ifname="eth1", family="inet", address="10.0.0.1", prefix_len=24)
    nets = {n: NetFacts(netdevs=(), addresses=rows) for n, rows in (("n1", (eth1,)), ("n2", ()))}
    odd = {f"n{i}": roce(i, gids=roce_gids(i)[:2])}
    findings = found(rdma_gid(cluster() | odd, None, None, nets, None, job()))
    assert said in findings[f"n{i}"].summary


@pytest.mark.parametrize(
    ("name", "dev", "says", "loses"),
    [
        ("mlx5_0", "eth0", "modprobe -r mlx5_ib; modprobe -a mlx5_ib", "RDMA connections of programs there"),
        ("irdma0", "eth0", "systemd-run --collect --wait sh -c", "this session and the default route"),
        ("irdma0", "eth1", "systemd-run --collect --wait sh -c", "its traffic"),
    ],
)
def test_filling_the_table_cuts_nobody_off(name: str, dev: str, says: str, loses: str) -> None:
    facts = net(addresses=(row("eth0", "10.0.0.1"), row("eth1", "10.1.0.1")))
    (fix,) = fill_gids(hca(name), dev, facts, host())
    assert says in fix.commands[0].shell
    assert loses in (fix.loses or "")
    assert fix.risk == ("high" if "session" in loses else "medium")
    # What carries nothing for certain is not called so.
    (fix,) = fill_gids(hca("irdma0"), dev, None, None)
    assert "maybe this session" in (fix.loses or "")


def test_no_ipv4_anywhere_is_one_flat_ethernet() -> None:
    flat = {f"n{i}": roce(i, gids=roce_gids(i)[:2]) for i in (1, 2)}
    assert {f.status for f in run(flat)} == {Status.WARN}


def test_no_ipv4_fails_with_an_old_nccl_too() -> None:
    findings = run(cluster(n2=roce(2, gids=roce_gids(2)[:2])), "2.20.5")
    assert found(findings)["n2"].status is Status.FAIL


def test_a_forced_index_is_checked_on_each_node() -> None:
    assert {f.status for f in run(cluster(), NCCL_IB_GID_INDEX="3")} == {Status.PASS}
    shifted = (*roce_gids(2)[:2], Gid(index=4, gid="::ffff:10.0.0.2", type="RoCE v2"))
    findings = run(cluster(n2=roce(2, gids=shifted)), NCCL_IB_GID_INDEX="3")
    assert causes(findings) == {"gid-index-wrong": {"n2"}}
    assert cause(findings, "gid-index-wrong").fixes[0].commands[0].shell == "unset NCCL_IB_GID_INDEX"


def test_a_forced_v1_fails() -> None:
    assert set(causes(run(cluster(2), NCCL_IB_GID_INDEX="2"))) == {"gid-index-wrong"}


def test_the_index_from_a_file_counts() -> None:
    envs = {"n1": env(NCCL_IB_GID_INDEX="9")}
    assert causes(rdma_gid(cluster(), envs, None, None, None, job())) == {"gid-index-wrong": {"n1"}}


def test_before_2_21_it_is_index_zero() -> None:
    findings = run(cluster(2), "2.20.5")
    assert causes(findings) == {"gid-old-nccl": {"n1", "n2"}}
    assert {f.status for f in findings} == {Status.WARN}
    softwares = {"n1": software(nccl=(nccl("2.20.5"),)), "n2": software()}
    (mixed,) = [f for f in rdma_gid(cluster(2), None, softwares, None, None, job()) if f.target == "n1"]
    assert mixed.status is Status.FAIL
    assert mixed.cause is not None
    assert mixed.cause.follows == ("sw.torch", "sw.nccl")
    assert cause(findings, "gid-old-nccl").fixes[0].commands[0].shell == "export NCCL_IB_GID_INDEX=3"


def test_ports_that_nccl_leaves_out_do_not_count() -> None:
    two = rdma(
        hca("mlx5_0", ports=(roce_port(),)),
        hca("mlx5_1", ports=(roce_port("mlx5_1", gids=roce_gids()[:2]),)),
    )
    assert not causes(run({"n1": two}, NCCL_IB_HCA="=mlx5_0"))
    assert causes(run({"n1": two})) == {"gid-no-ipv4": {"n1"}}


def test_an_unreadable_table_is_unknown() -> None:
    assert found(run(cluster(n1=roce(1, gids=()))))["n1"].status is Status.UNKNOWN


@pytest.mark.parametrize("row", range(4))
def test_a_row_without_a_version_is_no_routable_one(row: int) -> None:
    table = tuple(replace(gid, type=None) if gid.index == row else gid for gid in roce_gids(2))
    said = found(run(cluster(n2=roce(2, gids=table))))["n2"]
    # Rows that NCCL passes over in any case do no harm.
    assert said.status is (Status.UNKNOWN if row == 3 else Status.PASS)
    assert said.status is Status.PASS or "GID 3" in said.summary


def test_a_port_whose_link_layer_is_unreadable_is_not_taken_for_infiniband() -> None:
    for nodes in (cluster(n2=roce(2, link_layer="")), {"n2": roce(2, link_layer="")}):
        assert found(run(nodes))["n2"].status is Status.UNKNOWN


def test_a_global_ipv6_gid_is_judged_by_its_version() -> None:
    rows = (*roce_gids()[:2], Gid(index=2, gid="fd00::1", type="RoCE v2"))
    env6 = {"NCCL_IB_ADDR_FAMILY": "AF_INET6", "NCCL_IB_GID_INDEX": "2"}
    assert run({"n1": roce(1, gids=rows)}, **env6)[0].status is Status.PASS
    rows = (*rows[:2], replace(rows[2], type=None))
    assert run({"n1": roce(1, gids=rows)}, **env6)[0].status is Status.UNKNOWN


@pytest.mark.parametrize("variable", [{"NCCL_IB_DISABLE": "1"}, {"NCCL_NET": "Socket"}])
def test_nccl_that_uses_no_hca_uses_no_gid(variable: dict[str, str]) -> None:
    """Of the job, and of one node alone."""
    bare = {node: rdma(hca(ports=(roce_port(gids=roce_gids()[:2]),))) for node in ("n1", "n2")}
    assert causes(rdma_gid(bare, None, None, None, None, job()))
    silent = list(rdma_gid(bare, None, None, None, None, job(env=variable)))
    assert {(one.target, one.status) for one in silent} == {("n1", Status.SKIP), ("n2", Status.SKIP)}
    assert next(iter(variable)) in silent[0].summary
    mixed = found(rdma_gid(bare, {"n1": env(**variable), "n2": env()}, None, None, None, job()))
    assert (mixed["n1"].status, mixed["n2"].cause is not None) == (Status.SKIP, True)
