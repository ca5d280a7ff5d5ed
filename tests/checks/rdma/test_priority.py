from dataclasses import replace
from typing import Any

import pytest

from netdoctor.checks.rdma.parity import rdma_parity
from netdoctor.checks.rdma.priority import rdma_priority
from netdoctor.engine.diagnose import diagnose
from netdoctor.engine.judge import judge
from netdoctor.engine.registry import load_builtin
from netdoctor.facts.rdma import FlowControl, RdmaFacts
from netdoctor.model import Finding, Status
from netdoctor.store import Store

from ..build import causes, env, job, names, said
from ..build_hw import hca, port, rdma, roce_port

BY_EIGHTS = "".join(str(i >> 3) for i in range(64))
USUAL = FlowControl(pfc=(3,), dscp=BY_EIGHTS, pauses="off")
# DSCP 26 in priority 5, where drivers put it into 3.
MOVED = BY_EIGHTS[:26] + "5" + BY_EIGHTS[27:]


def roce(flow: FlowControl | None = USUAL, **on: Any) -> RdmaFacts:
    ports = (roce_port(device, flow=flow, **on) for device in ("mlx5_0", "mlx5_1"))
    return rdma(*(hca(one.name.partition(":")[0], ports=(one,)) for one in ports))


def judged(nodes: dict[str, RdmaFacts], tc: str | None = "106", **variables: str) -> list[Finding]:
    told = {**variables, **({"NCCL_IB_TC": tc} if tc is not None else {})}
    setting = job(env=told, env_from=dict.fromkeys(told, "train.env:4"))
    return said(rdma_priority(nodes, {node: env() for node in nodes}, None, setting))


def alarms(findings: list[Finding]) -> list[Finding]:
    return [one for one in findings if one.status is not Status.SKIP]


@pytest.mark.parametrize(
    ("flow", "tc"),
    [
        (USUAL, "106"),
        (USUAL, "0x6a"),
        (USUAL, None),  # what a program sets by itself is not known
        (USUAL, "-1"),
        (USUAL, "300"),
        (replace(USUAL, pfc=()), "106"),  # lossy by design
        (replace(USUAL, pfc=None), "106"),
        (replace(USUAL, dscp=""), "106"),  # sorted by VLAN tag, which is another matter
        (replace(USUAL, dscp=BY_EIGHTS[:26] + "-" + BY_EIGHTS[27:]), "106"),
        (None, "106"),
    ],
)
def test_silent_where_the_class_is_protected_and_where_nothing_is_said(
    flow: FlowControl | None, tc: str | None
) -> None:
    for count in (1, 2, 4):
        assert not alarms(judged(dict.fromkeys(names(count), roce(flow)), tc))
    assert not alarms(judged(dict.fromkeys(names(2), rdma(hca(ports=(port(),)))), "106"))
    assert not alarms(judged(dict.fromkeys(names(2), RdmaFacts()), "106"))


def test_a_class_whose_priority_has_no_flow_control() -> None:
    """One finding a node for ports that are alike, and the value that would be right."""
    for tc, wanted in (("0", "104"), ("2", "106"), ("162", "106")):
        findings = judged(dict.fromkeys(names(3), roce()), tc)
        assert {(f.status, f.target) for f in findings} == {(Status.WARN, node) for node in names(3)}
        assert causes(findings) == {"nccl-class-open": {*names(3)}}
        cause = findings[0].cause
        assert cause
        assert cause.fixes[-1].commands[0].shell == f"export NCCL_IB_TC={wanted}"
    assert findings[0].summary == (
        "mlx5_0:1 and mlx5_1:1: NCCL_IB_TC=162 (train.env:4): DSCP 40, priority 5; the port has PFC 3"
    )
    several = judged({"n1": roce(replace(USUAL, pfc=(3, 4)))}, "0")
    assert several[0].cause
    assert len(several[0].cause.fixes) == 1  # nobody says which of the two is meant


def test_the_drivers_own_class_wins() -> None:
    assert not alarms(judged(dict.fromkeys(names(2), roce(traffic_class=106)), "0"))
    findings = judged({"n1": roce(traffic_class=0)}, "106")
    assert "the driver's traffic class 0: DSCP 0, priority 0" in findings[0].summary
    assert judged({"n1": roce(traffic_class=0)}, None)[0].status is Status.WARN


def test_one_node_that_has_another_table_or_no_flow_control() -> None:
    usual = dict.fromkeys(names(3), roce())
    for odd, key in (
        ({"dscp": MOVED}, "rdma-trust"), ({"dscp": MOVED, "pfc": (5,)}, "rdma-trust"),
        ({"pfc": (4,)}, "rdma-pfc"), ({"pfc": ()}, "rdma-pfc"),
    ):  # fmt: skip
        findings = judged({**usual, "n4": roce(replace(USUAL, **odd))})  # type: ignore[arg-type]
        assert causes(findings) == {key: {"n4"}}, odd
    # As many ports have it as have not: "most" would be wrong.
    assert causes(judged({"n1": roce(), "n2": roce(replace(USUAL, pfc=(4,)))})) == {"nccl-class-open": {"n2"}}
    both = judged({"n1": roce(), "n2": roce(replace(USUAL, dscp=MOVED, pfc=(5,)))})
    assert causes(both) == {"rdma-trust": {"n1", "n2"}}
    assert {f.expected for f in both} == {"the same on all nodes"}


def test_what_nccl_does_not_use_is_not_judged() -> None:
    nodes = dict.fromkeys(names(2), roce())
    assert judged(nodes, "0", NCCL_IB_HCA="=mlx5_1")[0].summary.startswith("mlx5_1:1: ")
    for off in ({"NCCL_IB_DISABLE": "1"}, {"NCCL_NET": "Socket"}):
        assert {f.status for f in judged(nodes, "0", **off)} == {Status.SKIP}


def test_it_is_one_cause_with_the_table_that_is_another_one() -> None:
    nodes = {**dict.fromkeys(names(3), roce()), "n4": roce(replace(USUAL, dscp=MOVED))}
    assert causes(said(rdma_parity(nodes))) == causes(judged(nodes))
    store = Store()
    for node, facts in nodes.items():
        store.put("rdma", node, facts)
        store.put("env", node, env())
    store.cluster["job"] = job(env={"NCCL_IB_TC": "106"}, env_from={"NCCL_IB_TC": "train.env:4"})
    known = load_builtin()
    judgement = judge([known["rdma.parity"], known["rdma.priority"]], names(4), store)
    groups = [(g.key, set(g.culprits), len(g.members)) for g in diagnose(judgement)]
    assert groups == [("rdma-trust", {"n4"}, 2)]
