from dataclasses import replace
from typing import Any

import pytest

from netdoctor.checks.rdma.parity import rdma_parity
from netdoctor.facts.expected import Expectation, Expectations
from netdoctor.facts.rdma import FlowControl, Gid, Hca, PcieLink, RdmaFacts
from netdoctor.model import Finding, Status

from ..build import causes, names, said
from ..build_hw import hca, port, rdma, roce_port

GID = Gid(index=0, gid="fe80:0000:0000:0000:a088:c203:0012:3456", type="IB/RoCE v1")


def card(device: str, *, on: dict[str, Any] | None = None, roce: bool = False, **changes: Any) -> Hca:
    usual: dict[str, Any] = {"sm_lid": 1, "gids": (GID,), "pkeys": ("0xffff",), "mtu_bytes": 4096}
    usual |= on or {}
    one = roce_port(device, **(on or {})) if roce else port(device, **usual)
    own = {"driver": "mlx5_core 24.10-1.1.4", "pcie": PcieLink(read_request=4096), **changes}
    return hca(device, ports=(one,), **own)


def cluster(count: int, odd: RdmaFacts, **usual: Any) -> dict[str, RdmaFacts]:
    return {n: rdma(card("mlx5_0", **usual), card("mlx5_1", **usual)) for n in names(count - 1)} | {
        f"n{count}": odd
    }


def judged(odd: RdmaFacts, count: int = 3, expect: Expectations | None = None, **usual: Any) -> list[Finding]:
    return said(rdma_parity(cluster(count, odd, **usual), expect))


def test_silent_on_equal_nodes_and_on_rails_that_are_fabrics_of_their_own() -> None:
    assert not judged(rdma(card("mlx5_0"), card("mlx5_1")))
    rails = rdma(card("mlx5_0"), card("mlx5_1", on={"sm_lid": 9, "pkeys": ("0x8001",)}))
    assert not said(rdma_parity(dict.fromkeys(names(4), rails)))
    # Another card of that name, one that is down, software, and a node without any.
    for odd in (
        card("mlx5_1", on={"sm_lid": 9}, board_id="MT_1"),
        card("mlx5_1", on={"sm_lid": 9, "state": "DOWN"}),
        card("rxe0", on={"sm_lid": 9}),
    ):
        assert not judged(rdma(card("mlx5_0"), odd)), odd
    assert not judged(RdmaFacts())
    assert [f.status for f in said(rdma_parity({"n1": RdmaFacts()}))] == [Status.SKIP]


@pytest.mark.parametrize(
    ("odd", "key", "words"),
    [
        ({"on": {"sm_lid": 9}}, "rdma-sm-lid", "subnet manager's LID of mlx5_1:1 0x9 here, 0x1 on"),
        (
            {"on": {"gids": (replace(GID, gid="fec0:0000:0000:0001:a088:c203:0012:3456"),)}}, "rdma-subnet",
            "InfiniBand subnet of mlx5_1:1 fec0:0000:0000:0001 here, fe80:0000:0000:0000 on most nodes",
        ),
        ({"on": {"pkeys": ("0x8001", "0xffff")}}, "rdma-pkeys", "partitions of mlx5_1:1 0x8001 and 0xffff"),
        ({"on": {"mtu_bytes": 2048}}, "rdma-mtu", "active MTU of mlx5_1:1 2048 here, 4096 on most nodes"),
        ({"pcie": PcieLink(read_request=512)}, "rdma-read-request", "max read request (PCIe) of mlx5_1:1 "),
        ({"driver": "mlx5_core"}, "rdma-driver", "driver of mlx5_1:1 mlx5_core here, mlx5_core 24.10"),
    ],
)  # fmt: skip
def test_names_the_odd_port(odd: dict[str, Any], key: str, words: str) -> None:
    (finding,) = judged(rdma(card("mlx5_0"), card("mlx5_1", **odd)))
    assert (finding.status, causes([finding])) == (Status.WARN, {key: {"n3"}})
    assert finding.summary.startswith(words)
    assert finding.evidence[0].output == finding.observed


def test_ports_that_differ_alike_are_one_finding() -> None:
    (finding,) = judged(rdma(card("mlx5_0", driver="mlx5_core 5.8"), card("mlx5_1", driver="mlx5_core 5.8")))
    assert finding.summary.startswith("driver of mlx5_0:1 and mlx5_1:1 mlx5_core 5.8 here")


def test_the_traffic_class_of_roce() -> None:
    usual: dict[str, Any] = {"roce": True, "on": {"traffic_class": 106}}
    both = rdma(card("mlx5_0", **usual), card("mlx5_1", **usual))
    assert not judged(both, **usual)
    (finding,) = judged(rdma(card("mlx5_0", roce=True), card("mlx5_1", roce=True)), **usual)
    assert finding.summary.startswith("RoCE traffic class of mlx5_0:1 and mlx5_1:1 not set here, 106 on most")
    assert not judged(rdma(card("mlx5_0", roce=True)), roce=True)


BY_EIGHTS = "".join(str(i >> 3) for i in range(64))
USUAL = FlowControl(pfc=(3,), dscp=BY_EIGHTS, pauses="off", ecn="rp all np all")


def roce(flow: FlowControl | None) -> RdmaFacts:
    return rdma(*(card(device, roce=True, on={"flow": flow}) for device in ("mlx5_0", "mlx5_1")))


@pytest.mark.parametrize(
    ("odd", "key", "words"),
    [
        ({"pfc": (), "pauses": "rx tx"}, "rdma-pfc",
         "flow control of mlx5_0:1 and mlx5_1:1 pauses rx tx here, PFC 3 on most nodes"),
        ({"pfc": ()}, "rdma-pfc", "flow control of mlx5_0:1 and mlx5_1:1 none here, PFC 3 on most"),
        ({"pfc": (3, 4)}, "rdma-pfc", "flow control of mlx5_0:1 and mlx5_1:1 PFC 3,4 here"),
        ({"dscp": ""}, "rdma-trust",
         "sorting into priorities of mlx5_0:1 and mlx5_1:1 VLAN here, DSCP on most"),
        ({"dscp": BY_EIGHTS[:26] + "5" + BY_EIGHTS[27:]}, "rdma-trust",
         "sorting into priorities of mlx5_0:1 and mlx5_1:1 DSCP (26 to 5) here"),
        ({"ecn": "rp none np all"}, "rdma-ecn",
         "congestion control (ECN) of mlx5_0:1 and mlx5_1:1 rp none np all here"),
    ],
)  # fmt: skip
def test_the_node_that_loses_where_the_rest_does_not(odd: dict[str, Any], key: str, words: str) -> None:
    """Among six nodes, and not where they have no flow control at all, or pauses beside PFC."""
    usual = dict.fromkeys(names(5), roce(USUAL))
    (finding,) = said(rdma_parity({**usual, "n6": roce(replace(USUAL, **odd))}))
    assert (finding.status, causes([finding])) == (Status.WARN, {key: {"n6"}})
    assert finding.summary.startswith(words)
    assert not said(rdma_parity({**usual, "n6": roce(replace(USUAL, pauses="rx tx"))}))
    lossy = FlowControl(pfc=(), pauses="off")
    assert not said(rdma_parity(dict.fromkeys(names(6), roce(lossy))))


def test_a_nic_that_does_not_tell_of_its_flow_control() -> None:
    """Is unknown among those that do, and nothing where none does."""
    silent = FlowControl(pauses="rx tx")
    nodes = {**dict.fromkeys(names(3), roce(USUAL)), "n4": roce(silent)}
    findings = said(rdma_parity(nodes))
    assert [(f.status, f.target) for f in findings] == [(Status.UNKNOWN, "n4")] * 3
    for flow in (silent, None):
        assert not said(rdma_parity(dict.fromkeys(names(3), roce(flow))))


def test_what_could_not_be_read_is_unknown_where_others_show_it() -> None:
    findings = judged(rdma(card("mlx5_0"), card("mlx5_1", on={"pkeys": (), "sm_lid": None})))
    assert [(f.status, f.target) for f in findings] == [(Status.UNKNOWN, "n3")] * 2
    nobody = dict.fromkeys(names(3), rdma(card("mlx5_0", driver=None)))
    assert not said(rdma_parity(nobody))


def test_what_the_user_expects() -> None:
    expect = Expectations(wishes=(Expectation(key="rdma.pkeys", any_of=("0x8001",), place="e.toml:3"),))
    findings = judged(rdma(card("mlx5_0"), card("mlx5_1")), expect=expect)
    assert {(f.target, f.expected) for f in findings} == {(n, "0x8001") for n in names(3)}
