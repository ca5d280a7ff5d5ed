from typing import Any

from netdoctor.checks.gpu.imex import gpu_imex
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import Finding, Status

from ..build import causes, name
from ..build_hw import gpu, gpus, no_gpus

ALL = tuple(f"10.0.0.{i}" for i in range(1, 5))


def tray(domain: str = "aa.1", **changes: Any) -> GpuFacts:
    usual: dict[str, Any] = {
        "devices": tuple(gpu(i, nvlink_domain=domain) for i in range(4)),
        "imex": True,
        "imex_nodes": ALL,
        "fabric_packages": {"nvidia-imex": ("570.86.15",)},
    }
    return gpus(**{**usual, **changes})


def judged(*nodes: GpuFacts) -> list[Finding]:
    return list(gpu_imex({name(i): facts for i, facts in enumerate(nodes, 1)}))


def test_the_odd_one_of_a_domain_is_named() -> None:
    well = (tray(), tray(), tray())
    assert judged(*well) == []
    for odd, key, said in (
        (tray(imex=False), "gpu-imex-stopped", "does not run here, but on 3 of 4 nodes"),
        (tray(imex_nodes=ALL[:3]), "gpu-imex-nodes", "of most nodes that run it by 10.0.0.4"),
        (
            tray(fabric_packages={"nvidia-imex": ("560.35.03",)}),
            "gpu-imex-release",
            "the driver is 570.86.15",
        ),
    ):
        (finding,) = judged(*well, odd)
        assert (causes([finding]), finding.status) == ({key: {"n4"}}, Status.WARN)
        assert said in finding.summary


def test_what_is_normal() -> None:
    """A service that starts with the job, racks with lists of their own, no list, an upgrade that waits."""
    assert judged(*[tray(imex=False)] * 3) == []
    assert judged(tray(), tray(imex=False)) == [], "nobody has a majority"
    assert judged(*[tray()] * 3, *[tray("bb.1", imex_nodes=("10.0.1.1",))] * 3) == []
    assert judged(*[tray()] * 3, tray(imex_nodes=None)) == []
    assert judged(tray(library_driver="580.65.06", fabric_packages={"nvidia-imex": ("580.65.06",)})) == []


def test_not_applicable() -> None:
    assert [f.status for f in judged(gpus(), no_gpus())] == [Status.SKIP] * 2
    (hidden,) = judged(tray(imex=None))
    assert (hidden.status, hidden.gap) == (Status.SKIP, "IMEX (needs root)")
