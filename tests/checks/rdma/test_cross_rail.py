from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from netdoctor.checks.rdma.cross_rail import rdma_cross_rail
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.net import PortMatrix, PortProbe
from netdoctor.facts.paths import Path, Paths
from netdoctor.model import Confidence, Finding, Status

from ..build import cause, causes, env, hosts, job, names
from ..build_hw import gpu, gpus

NODES = names(4)


def rails(count: int = 2, **more: Any) -> Paths:
    tables = [{node: f"10.{r}.0.{node[1:]}" for node in NODES} for r in range(count)]
    return Paths(
        rails=tuple(
            Path(id=f"RoCE mlx5_{r}:1", addresses=one, sources=one, **more) for r, one in enumerate(tables)
        )
    )


def matrix(paths: Paths, closed: Any = None, outcome: str = "no_route", dead: Any = ()) -> PortMatrix:
    """Every pair both ways of every two rails. closed: of these (source, target, from rail, to rail); dead:
    pairs between which the last rail itself is closed."""

    def probe(src: str, dst: str, one: int, other: int) -> PortProbe:
        shut = (src, dst) in dead if one == other else bool(closed and closed(src, dst, one, other))
        return PortProbe(
            src=src, dst=dst, port=40000, purpose="ephemeral", outcome=outcome if shut else "open",
            source=paths.rails[one].addresses[src], address=paths.rails[other].addresses[dst],
        )  # fmt: skip

    count = range(len(paths.rails))
    cells = list(permutations(NODES, 2))
    return PortMatrix(
        probes=tuple(probe(a, b, r, r) for a, b in cells for r in count),
        crossings=tuple(probe(a, b, *two) for a, b in cells for two in permutations(count, 2)),
    )


def judged(
    ports: PortMatrix, paths: Paths | None = None, gpu_facts: GpuFacts | None = None, **variables: str
) -> list[Finding]:
    facts, envs = dict.fromkeys(NODES, gpu_facts or gpus(8)), {node: env() for node in NODES}
    setting = job(env=variables)
    return list(rdma_cross_rail(ports, paths or rails(), hosts(4), facts, envs, setting))


def everything(*_: Any) -> bool:
    return True


PCIE = gpus(0, devices=tuple(gpu(i, nvlinks=0) for i in range(8)))


def test_rails_that_meet_and_those_that_nccl_does_not_pair() -> None:
    (finding,) = judged(matrix(rails()))
    assert (finding.status, finding.summary) == (
        Status.PASS, "NICs of different rails reach each other: 24 tries",
    )  # fmt: skip
    separate = matrix(rails(), everything)
    for facts, variables, said in (
        (None, {}, "NCCL stays on its rail here"),
        (gpus(1), {}, "stays on its rail"),
        (PCIE, {"NCCL_CROSS_NIC": "0"}, "NCCL_CROSS_NIC=0 keeps NCCL from that"),
        (None, {"NCCL_PXN_DISABLE": "1", "NCCL_CROSS_NIC": "0x0"}, "keeps NCCL from that"),
        (None, {"NCCL_PXN_DISABLE": "0"}, "stays on its rail"),
    ):
        (finding,) = judged(separate, gpu_facts=facts, **variables)
        assert finding.status is Status.PASS, (facts, variables)
        assert (said in finding.summary, finding.gap) == (True, None)
    unread = gpus(2, devices=(gpu(0, nvlinks=None), gpu(1, nvlinks=None)))
    (finding,) = judged(separate, gpu_facts=unread)
    assert finding.status is Status.PASS
    assert str(finding.gap).startswith("whether NCCL pairs")


@pytest.mark.parametrize(
    ("facts", "variables", "why", "status"),
    [
        (PCIE, {}, "GPUs without NVLink on n1", Status.WARN),
        (None, {"NCCL_PXN_DISABLE": "1"}, "NCCL_PXN_DISABLE=1 on n", Status.WARN),
        (None, {"NCCL_P2P_PXN_LEVEL": "0"}, "NCCL_P2P_PXN_LEVEL=0 on n", Status.WARN),
        (None, {"NCCL_P2P_DISABLE": "1"}, "NCCL_P2P_DISABLE=1 on n", Status.WARN),
        (None, {"NCCL_CROSS_NIC": "1"}, "NCCL_CROSS_NIC=1 on n1", Status.FAIL),
    ],
)
def test_rail_only_where_nccl_pairs_other_rails(
    facts: GpuFacts | None, variables: dict[str, str], why: str, status: Status
) -> None:
    findings = judged(matrix(rails(), everything), gpu_facts=facts, **variables)
    assert causes(findings) == {"rails-separate": {"cluster"}}
    assert findings[0].status is status
    assert why in findings[0].summary
    found = cause(findings, "rails-separate")
    assert found.fixes[0].commands[0].shell == "export NCCL_CROSS_NIC=0"
    assert found.confidence is Confidence.CERTAIN
    likely = judged(matrix(rails(), everything, "filtered"), gpu_facts=facts, **variables)
    assert cause(likely, "rails-separate").confidence is Confidence.LIKELY


def test_two_rails_of_three_that_meet() -> None:
    paths = rails(3)
    ports = matrix(paths, lambda _a, _b, one, other: 2 in (one, other))
    findings = judged(ports, paths, PCIE)
    assert causes(findings) == {"rails-separate": {"cluster"}}
    assert findings[0].summary.startswith("48 of 72 tries")


def test_a_node_without_a_route_to_the_other_rails() -> None:
    ports = matrix(rails(), lambda src, _dst, _one, _other: src == "n3")
    findings = judged(ports)
    assert causes(findings) == {"rails-closed": {"n3"}}
    assert findings[0].status is Status.WARN
    assert {one.status for one in judged(ports, NCCL_CROSS_NIC="1")} == {Status.FAIL}
    assert causes(judged(matrix(rails(), lambda _s, dst, *_: dst == "n2"))) == {"rails-closed": {"n2"}}


def test_rails_that_are_closed_themselves_do_not_count() -> None:
    dead = list(permutations(NODES, 2))
    (finding,) = judged(matrix(rails(), everything, dead=dead), gpu_facts=PCIE)
    assert (finding.status, "rails work" in finding.summary) == (Status.SKIP, True)
    some = matrix(rails(), lambda src, *_: src == "n3", dead=[one for one in dead if "n3" in one])
    (finding,) = judged(some)
    assert finding.status is Status.PASS


def test_says_why_it_does_not_apply() -> None:
    for paths in (rails(1), rails(2, tried=False)):
        (finding,) = judged(PortMatrix(), paths)
        assert (finding.status, finding.summary) == (Status.SKIP, "fewer than two RoCE rails")
    shared = replace(rails(2, tried=False), left_out={"between rails": "rails of n1 share a network"})
    assert judged(PortMatrix(), shared)[0].summary == "rails of n1 share a network"
    broken = matrix(rails())
    broken = replace(broken, crossings=tuple(replace(p, outcome="error") for p in broken.crossings))
    assert judged(broken)[0].status is Status.SKIP
