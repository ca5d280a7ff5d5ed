"""torch's build against the GPUs of the node: vendor and architecture."""

from typing import Any

from netdoctor.checks.gpu.torch import gpu_torch
from netdoctor.facts.accelerators import AcceleratorFacts, AmdGpu
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.software import Torch
from netdoctor.model import Finding, Status

from .. import build_hw as hw

AMD = AcceleratorFacts(amd=(AmdGpu(address="0000:05:00.0", device_id="0x74a1", driver="amdgpu"),))
V100 = hw.gpus(devices=(hw.gpu(0, name="Tesla V100-SXM2-32GB", compute_capability="7.0"),))
B200 = hw.gpus(devices=tuple(hw.gpu(i, name="NVIDIA B200", compute_capability="10.0") for i in range(8)))
ROCM = hw.torch(version="2.6.0+rocm6.2.4", cuda=None, hip="6.2.41134", archs=())
CPU = hw.torch(version="2.6.0+cpu", cuda=None, archs=())
CU130 = hw.torch(version="2.11.0+cu130", cuda="13.0", archs=("sm_75", "sm_80", "sm_90", "sm_100", "sm_120"))


def said(torch: Torch | None, gpus: GpuFacts, others: AcceleratorFacts | None = None) -> Finding:
    (found,) = list(gpu_torch(hw.software(torch=torch), gpus, others)) or [None]
    assert found is not None
    return found


FAULTS: dict[str, tuple[tuple[Any, ...], str, str]] = {
    "a GPU newer than the wheel": (
        (hw.torch(), B200), "torch-no-gpu-code", "torch 2.6.0+cu124 has no code for NVIDIA B200 (sm_100)"
    ),
    "a GPU that the wheel dropped": (
        (CU130, V100), "torch-no-gpu-code", "torch 2.11.0+cu130 has no code for Tesla V100-SXM2-32GB (sm_70)"
    ),
    "CUDA on AMD": (
        (hw.torch(), hw.no_gpus(), AMD), "torch-other-vendor",
        "torch 2.6.0+cu124 is built for CUDA, and the node's GPUs are AMD's",
    ),
    "processors on AMD": (
        (CPU, hw.no_gpus(), AMD), "torch-other-vendor",
        "torch 2.6.0+cpu is built for processors, and the node's GPUs are AMD's",
    ),
    "ROCm on NVIDIA": (
        (ROCM, hw.gpus()), "torch-other-vendor",
        "torch 2.6.0+rocm6.2.4 is built for ROCm, and the node's GPUs are NVIDIA's",
    ),
}  # fmt: skip


def test_what_torch_is_not_built_for_is_named() -> None:
    for case, (given, key, summary) in FAULTS.items():
        found = said(*given)
        assert found.cause is not None, case
        assert (found.status, found.cause.key, found.summary) == (Status.FAIL, key, summary), case
        assert found.cause.fixes, case


def test_a_torch_for_the_other_vendor_is_shown_by_its_own_file() -> None:
    for path, shown in (("/opt/v/lib/torch", "/opt/v/lib/torch/version.py"), ("", "torch/version.py")):
        found = said(hw.torch(path=path), hw.no_gpus(), AMD)
        assert [(line.what, line.output) for line in found.evidence] == [(shown, "2.6.0+cu124")]


def test_code_is_there() -> None:
    for torch, gpus, words in (
        (hw.torch(), hw.gpus(), "torch 2.6.0+cu124 has code for NVIDIA H100 80GB HBM3 (sm_90)"),
        (hw.torch(), V100, "Tesla V100-SXM2-32GB (sm_70, without bfloat16 units)"),
        (
            hw.torch(archs=("sm_90", "compute_90")),
            B200,
            "NVIDIA B200 (sm_100, compiled from PTX when it starts)",
        ),
    ):
        found = said(torch, gpus)
        assert found.status is Status.PASS
        assert words in found.summary


def test_one_kind_of_two_is_named() -> None:
    mixed = hw.gpus(devices=(hw.gpu(0), *B200.devices))
    statuses = [one.status for one in gpu_torch(hw.software(), mixed)]
    assert statuses == [Status.FAIL, Status.PASS]


def test_what_does_not_apply_or_cannot_be_told() -> None:
    mute = hw.gpus(devices=(hw.gpu(0, compute_capability=None),))
    for torch, gpus, others in (
        (None, hw.gpus(), None),
        (hw.torch(), hw.no_gpus(), None),
        (hw.torch(), hw.no_gpus(), AcceleratorFacts()),
        (CPU, hw.gpus(), None),
        (hw.torch(archs=()), hw.gpus(), None),
    ):
        assert said(torch, gpus, others).status is Status.SKIP
    assert said(hw.torch(), mute).status is Status.UNKNOWN
    assert not list(gpu_torch(hw.software(torch=ROCM), hw.no_gpus(), AMD))
