from typing import Any

import pytest

from netdoctor.checks.gpu.fabric import gpu_fabric
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import Finding, Status

from ..build import causes, said
from ..build_hw import gpu, gpus, no_gpus


def ampere(**changes: Any) -> GpuFacts:
    """Boards that say nothing of their fabric."""
    return gpus(devices=tuple(gpu(i, fabric_state=0, fabric_status=None) for i in range(8)), **changes)


def judged(facts: GpuFacts) -> list[Finding]:
    return said(gpu_fabric(facts))


def test_silent_where_all_have_joined() -> None:
    assert not judged(gpus())
    assert not judged(gpus(nvswitches=0, fabric_manager=None)), "Blackwell's switches are on no PCI bus"
    assert not judged(ampere())


@pytest.mark.parametrize(
    ("state", "status", "cause", "summary"),
    [
        (1, 0, "gpu-fabric-waits", "not in the NVLink fabric: GPU 1: not started"),
        (2, 0, "gpu-fabric-waits", "not in the NVLink fabric: GPU 1: in progress"),
        (3, 999, "gpu-fabric-failed", "not in the NVLink fabric: GPU 1: 999"),
    ],
)
def test_a_gpu_outside(state: int, status: int, cause: str, summary: str) -> None:
    findings = judged(gpus(devices=(gpu(0), gpu(1, fabric_state=state, fabric_status=status))))
    assert [(f.status, f.summary) for f in findings] == [(Status.FAIL, summary)]
    assert causes(findings) == {cause: {"n1"}}


def test_boards_that_do_not_tell() -> None:
    (finding,) = judged(ampere(nvswitches=6, fabric_manager=False))
    assert (finding.status, finding.summary) == (Status.FAIL, "6 NVSwitches, and no fabric manager runs")
    (finding,) = judged(ampere(nvswitches=6, fabric_manager=None))
    assert (finding.status, finding.gap) == (Status.SKIP, "the fabric manager (needs root)")


def test_a_fabric_manager_of_another_release() -> None:
    """It ends at once, or will; one that came with an upgrade that waits for a restart is none of its own."""
    old: dict[str, Any] = {"fabric_packages": {"nvidia-fabricmanager": ("570.124.06",)}}
    (finding,) = judged(gpus(**old))
    assert (finding.status, finding.observed) == (Status.WARN, "570.124.06")
    assert finding.summary.endswith("the driver is 570.86.15: it runs until its next start")
    waiting = gpus(devices=(gpu(0), gpu(1, fabric_state=2)), **old)
    for facts in (waiting, ampere(fabric_manager=False, **old), gpus(fabric_manager=False, **old)):
        (finding,) = judged(facts)
        assert causes([finding]) == {"gpu-fabric-release": {"n1"}}
        assert finding.status is Status.FAIL
    assert not judged(gpus(library_driver="570.124.06", **old))
    assert not judged(gpus(fabric_packages={"nvidia-fabricmanager": ("570.124.06", "570.86.15")}))
    pcie = gpus(devices=(gpu(0, fabric_state=None),), nvswitches=0, fabric_manager=None, **old)
    assert [one.status for one in judged(pcie)] == [Status.SKIP]


def test_one_that_does_not_tell_among_others_is_not_green() -> None:
    assert [f.status for f in judged(gpus(devices=(gpu(0), gpu(1, fabric_state=None))))] == [Status.UNKNOWN]


def test_not_applicable() -> None:
    pcie = gpus(devices=(gpu(0, fabric_state=None, fabric_status=None),), nvswitches=0, fabric_manager=None)
    assert [f.summary for f in judged(pcie)] == ["no NVSwitch on this node"]
    assert [f.summary for f in judged(no_gpus())] == ["no GPU on this node"]
