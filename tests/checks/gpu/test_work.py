"""GPUs at work, beside others of their kind and beside their data sheet."""

from dataclasses import replace
from typing import Any

import pytest

from netdoctor.checks.gpu.work import gpu_work
from netdoctor.facts.gpu import GpuFacts, GpuWork
from netdoctor.model import Finding, Status
from netdoctor.rules.boards import board, least

from .. import build_hw as hw
from ..build import name, names
from ..build_hw import gpu_work as work

A_LAPTOP = "NVIDIA GeForce RTX 4070 Laptop GPU"


def test_gpus_of_amd_are_compared_with_each_other() -> None:
    board = "AMD Instinct MI300X OAM"
    well = replace(work(2), gpus=tuple(replace(one, board=board) for one in work(2).gpus))
    slow = replace(well, gpus=(replace(well.gpus[0], tflop_s=300.0), well.gpus[1]))
    (finding,) = (one for one in said(well, well, slow, gpus=hw.no_gpus()) if one.cause)
    assert finding.target == "n3"
    assert finding.summary.startswith("GPU 0 multiplies at 300 TFLOP/s, others at 70")
    assert finding.cause
    assert "amd-smi" in finding.cause.fixes[0].commands[0].shell


def said(*nodes: GpuWork, gpus: GpuFacts | None = None) -> list[Finding]:
    facts = dict.fromkeys(names(len(nodes)), gpus or hw.gpus())
    return list(gpu_work({name(i): one for i, one in enumerate(nodes, start=1)}, facts))


def faults(*nodes: GpuWork, gpus: GpuFacts | None = None) -> list[tuple[str, str, str]]:
    found = [finding for finding in said(*nodes, gpus=gpus) if finding.cause is not None]
    return [(finding.target, finding.cause.key, finding.summary) for finding in found if finding.cause]


HOT = {"tflop_s": 430.0, "clock_mhz": 1080, "temperature_c": 88}
FAULTS: dict[str, tuple[tuple[GpuWork, ...], list[tuple[str, str, str]]]] = {
    "a hot GPU": (
        (work(), work(odd={3: HOT})),
        [("n2", "gpu-work-slow", "GPU 3 multiplies at 430 TFLOP/s, others at 704 "
          "(1080 MHz under load, others 1755; 88 °C, others 55)")],
    ),
    "clocks that are locked, and what follows from them": (
        (work(), work(odd={3: {"tflop_s": 500.0, "clock_mhz": 1200, "throttle_reasons": 0x2}})),
        [("n2", "gpu-clocks-locked",
          "GPU 3 works at 1200 MHz, others at 1755, and neither heat nor power limits it")],
    ),
    "a clock that power keeps down": (
        (work(), work(odd={3: {"clock_mhz": 1200, "throttle_reasons": 0x4}})),
        [],
    ),
    "two nodes of one GPU: the slower is the suspect": (
        (work(1), work(1, tflop_s=500.0)),
        [("n2", "gpu-work-slow", "GPU 0 multiplies at 500 TFLOP/s, others at 700")],
    ),
    "slow memory": (
        (work(2), work(2, odd={1: {"memory_gbyte_s": 2300.0}})),
        [("n2", "gpu-memory-slow", "GPU 1 has a memory rate of 2300 GB/s, others at 2900")],
    ),
    "half the lanes": (
        (work(2), work(2, odd={1: {"to_host_gbyte_s": 26.0, "pcie_width": 8}})),
        [("n2", "gpu-copy-slow", "GPU 1 sends data at 26 GB/s, others at 54 (8 PCIe lanes, others 16)")],
    ),
    "a node whose GPUs are all slow": (
        (work(2), work(2, tflop_s=450.0)),
        [("n2", "gpu-work-slow", f"GPU {i} multiplies at 450 TFLOP/s, others at 700") for i in (0, 1)],
    ),
    "another result": (
        (work(1, wrong=2),),
        [("n1", "gpu-work-wrong",
          "GPU 0 gives 2 different values when it multiplies the same numbers again")],
    ),
    "torch cannot use it": (
        (work(1, error="RuntimeError: CUDA error: no kernel image is available"),),
        [("n1", "gpu-work-fails",
          "GPU 0 did not do its work: RuntimeError: CUDA error: no kernel image is available")],
    ),
    "all are slow beside the data sheet": (
        (work(1, tflop_s=300.0), work(1, tflop_s=310.0)),
        [(f"n{i}", "gpu-work-below-board", f"GPU 0 reaches {f} TFLOP/s, the data sheet says 989")
         for i, f in ((1, 300), (2, 310))],
    ),
}  # fmt: skip


def test_what_is_slow_wrong_or_broken_is_named() -> None:
    for case, (nodes, expected) in FAULTS.items():
        assert faults(*nodes) == expected, case


def test_healthy_gpus_say_their_figures() -> None:
    spread = work(odd={2: {"tflop_s": 600.0, "memory_gbyte_s": 2700.0, "to_device_gbyte_s": 40.0}})
    found = said(work(), spread)
    assert [finding.status for finding in found] == [Status.PASS] * 2
    assert "compute 600 to 707 TFLOP/s" in found[1].summary
    assert "data sheet 989 TFLOP/s, 3350 GB/s" in found[1].summary
    assert found[0].measures is not None
    assert found[0].measures["gpu.work.memory"].value == 2900.0
    assert found[0].gap is None


@pytest.mark.parametrize(
    ("nodes", "gpus"),
    [
        # Copies on every node's second GPU are slow: that is how the nodes are built.
        pytest.param([work(2, odd={1: {"to_host_gbyte_s": 12.0}})] * 2, None, id="a slot"),
        pytest.param([work(1, tflop_s=300.0)], hw.gpu(power_limit_w=350.0), id="a power limit"),
        pytest.param([work(1, tflop_s=45.0, memory_gbyte_s=250.0)], hw.gpu(name="NVIDIA L4"), id="72 W"),
        pytest.param([work(1, tflop_s=20.0)], hw.gpu(name=A_LAPTOP), id="no data sheet"),
        pytest.param([work(1, tflop_s=40.0, kind="float32")], None, id="no matrix units used"),
        pytest.param([work(1), work(1, tflop_s=500.0, side=4096)], None, id="smaller matrices"),
    ],
)
def test_no_fault(nodes: list[GpuWork], gpus: Any) -> None:
    devices = (gpus, replace(gpus, index=1)) if gpus is not None else None
    found = faults(*nodes, gpus=hw.gpus(devices=devices) if devices else None)
    assert found == []


def test_a_power_limit_of_some_makes_them_a_kind_of_their_own() -> None:
    capped = hw.gpus(1, devices=(hw.gpu(0, power_limit_w=400.0),))
    facts = {"n1": hw.gpus(1), "n2": capped}
    found = list(gpu_work({"n1": work(1), "n2": work(1, tflop_s=450.0)}, facts))
    assert [finding.status for finding in found] == [Status.PASS] * 2


def test_what_was_not_compared_is_a_gap() -> None:
    laptop = hw.gpus(devices=(hw.gpu(0, name=A_LAPTOP),))
    (alone,) = said(work(1, tflop_s=20.0), gpus=laptop)
    assert alone.gap == "no other GPU to compare with"
    part = replace(work(1), left_out={1: "MIG is on"})
    skipped, measured = said(part)
    assert (skipped.status, skipped.summary) == (Status.SKIP, "GPU 1 took no part: MIG is on")
    assert measured.status is Status.PASS
    (full,) = said(work(1, error="MemoryError: too little of its memory is free: 10 of 81920 MiB"))
    assert full.status is Status.UNKNOWN
    (silent,) = said(work(1, memory_gbyte_s=None))
    assert (silent.status, silent.summary) == (Status.UNKNOWN, "GPU 0 did not report memory")


def test_boards_by_the_drivers_name() -> None:
    known = {
        "NVIDIA H100 80GB HBM3": 989,
        "NVIDIA H100 PCIe": 756,
        "NVIDIA H100 NVL": 835,
        "NVIDIA H200": 989,
        "NVIDIA B200": 2250,
        "NVIDIA GB200": 2500,
        "NVIDIA A100-SXM4-80GB": 312,
        "NVIDIA A100-PCIE-40GB": 312,
        "NVIDIA A100 80GB PCIe": 312,
        "NVIDIA A10": 125,
        "NVIDIA L40S": 362,
        "NVIDIA L4": 121,
        "Tesla V100-SXM2-32GB": 125,
        "Tesla T4": 65,
    }
    for text, tflop_s in known.items():
        found = board(text)
        assert found is not None, text
        assert found.tflop_s == tflop_s, text
    assert not any(map(board, ("NVIDIA GH200 480GB", "NVIDIA H200 NVL", "NVIDIA A10G")))
    for text in (A_LAPTOP, "NVIDIA A100X-40C", "NVIDIA GeForce RTX 3090", "NVIDIA RTX A4000", "", "H1000"):
        assert board(text) is None, text
    t4 = board("Tesla T4")
    assert t4 is not None
    assert least("Tesla T4", t4).tflop_s == 0
