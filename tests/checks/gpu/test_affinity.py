from dataclasses import replace
from typing import Any

import pytest

from netdoctor.checks.gpu.affinity import gpu_affinity
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import Finding, Status

from ..build import causes, name
from ..build_hw import gpu, gpus, hca, no_gpus, path, pci, rdma

ELSEWHERE = ("pci0000:f0", "0000:f0:01.0", "0000:f9:00.0")


def judge(*nodes: tuple[GpuFacts, RdmaFacts]) -> list[Finding]:
    gpu_facts = {name(i): one for i, (one, _) in enumerate(nodes, 1)}
    return list(gpu_affinity(gpu_facts, {name(i): one for i, (_, one) in enumerate(nodes, 1)}))


def node(*hcas: Any, moved: dict[int, Any] | None = None) -> tuple[GpuFacts, RdmaFacts]:
    """moved: by GPU, what of its place on the PCI bus is otherwise."""
    places = tuple(replace(pci(i), **(moved or {}).get(i, {})) for i in range(8))
    return gpus(pci=places), rdma(*hcas)


FAR = {"path": (*ELSEWHERE[:1], "0000:f0:02.0", "0000:fa:00.0")}


def test_says_which_gpu_goes_with_which_hca() -> None:
    findings = judge(node(), node(), node())
    assert {f.status for f in findings} == {Status.PASS}
    assert findings[0].summary.startswith("GPU 0 mlx5_0 (PIX), GPU 1 mlx5_0 (PIX)")
    assert "GPU 7 mlx5_1 (PIX)" in findings[0].summary
    (alone,) = judge(node(hca("mlx5_0"), hca("mlx5_2"), hca("mlx5_4")))
    assert "GPU 0 mlx5_0 or mlx5_2 (PIX)" in alone.summary
    assert "GPU 7 mlx5_0 or mlx5_2 (SYS)" in alone.summary


@pytest.mark.parametrize(
    ("moved", "words"),
    [
        pytest.param({2: FAR}, "GPU 2 NODE; there GPU 2 PIX", id="another host bridge"),
        pytest.param({2: {**FAR, "numa_node": 3}}, "GPU 2 SYS; there GPU 2 PIX", id="another NUMA node"),
        pytest.param(
            {2: {"path": ("pci0000:00", "0000:00:05.0", "0000:07:00.0")}}, "GPU 2 PHB; there", id="slot"
        ),
        pytest.param(dict.fromkeys(range(8), FAR), "GPU 0 NODE, GPU 1 NODE", id="all of a node"),
    ],
)
def test_a_gpu_that_is_farther_than_on_other_nodes(moved: dict[int, Any], words: str) -> None:
    findings = [f for f in judge(node(), node(moved=moved), node()) if f.status is not Status.PASS]
    assert [(f.target, f.status) for f in findings] == [("n2", Status.WARN)]
    assert causes(findings) == {"gpu-far-from-hca": {"n2"}}
    assert words in findings[0].summary


def test_nobody_is_the_odd_one_of_two_and_nearer_is_no_fault() -> None:
    assert {f.status for f in judge(node(), node(moved={2: FAR}))} == {Status.PASS}
    assert {f.status for f in judge(node(moved={2: FAR}), node(), node(moved={2: FAR}))} == {Status.PASS}


def test_other_gpus_and_other_hcas_make_another_kind_of_node() -> None:
    one_hca_less = node(hca("mlx5_0"))
    assert {f.status for f in judge(node(), one_hca_less, node())} == {Status.PASS}
    l40s = gpus(devices=tuple(gpu(i, name="NVIDIA L40S") for i in range(8)))
    l40s = replace(l40s, pci=node(moved={2: FAR})[0].pci)
    assert {f.status for f in judge(node(), (l40s, rdma()), node())} == {Status.PASS}


def test_not_applicable() -> None:
    soft = hca("rxe0", pci_path=(), numa_node=None)
    earlier = gpus(pci=tuple(replace(pci(i), path=()) for i in range(8)))
    one_gpu = gpus(devices=(gpu(0),))
    for one in ((no_gpus(), rdma()), (one_gpu, rdma(soft)), (one_gpu, RdmaFacts()), (earlier, rdma())):
        assert [f.status for f in judge(one)] == [Status.SKIP]
    for several in (node(soft), (gpus(), RdmaFacts())):
        assert judge(several, several) == []
    # A hidden GPU takes its node out, and a soft adapter is not in the way.
    assert {f.status for f in judge(node(), node(hca("mlx5_0"), hca("mlx5_1"), soft))} == {Status.PASS}


def test_kernels_without_numa_nodes() -> None:
    flat = {i: {"numa_node": -1, "path": path(0, f"0000:2{i}:00.0")} for i in range(8)}
    assert "GPU 7 mlx5_0 (PIX)" in judge(node(moved=flat))[0].summary


def test_gpus_that_are_farther_from_each_other() -> None:
    """Without an HCA that would tell, and where it is as near as ever."""
    bare = (gpus(), RdmaFacts())
    moved = (node(moved={2: {**FAR, "numa_node": 0}})[0], RdmaFacts())
    findings = judge(bare, moved, bare)
    assert [(f.target, f.status) for f in findings] == [("n2", Status.WARN)]
    assert causes(findings) == {"gpu-far-apart": {"n2"}}
    assert "9 PIX, 3 NODE and 16 SYS pairs; there 12 PIX and 16 SYS" in findings[0].summary
    assert judge(bare, moved) == []


def test_slots_that_are_numbered_the_other_way_round() -> None:
    """Half of the GPUs beside the only HCA: the other half on the node whose BIOS counts backwards."""
    backwards = {i: {"path": pci(7 - i).path, "numa_node": pci(7 - i).numa_node} for i in range(8)}
    card = hca("mlx5_0")
    assert {f.status for f in judge(node(card), node(card, moved=backwards), node(card))} == {Status.PASS}
