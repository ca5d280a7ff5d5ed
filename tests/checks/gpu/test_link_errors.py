from typing import Any

import pytest

from netdoctor.checks.gpu.link_errors import gpu_link_errors
from netdoctor.facts.counters import LaterCounters
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.model import Finding, Status

from ..build import causes, said
from ..build_hw import counters, gpu, gpus, no_gpus

UP_S = 400_000.0
TOTALS = ("nvlink_recoveries", "nvlink_crc_errors", "nvlink_replays", "pcie_replays")
NOT_TOLD: dict[str, Any] = {**dict.fromkeys(TOTALS), "link_errors": {}}


def judge(*devices: Gpu, up_s: float | None = UP_S, later: LaterCounters | None = None) -> list[Finding]:
    return said(gpu_link_errors(gpus(devices=devices, up_s=up_s), later))


def later(*devices: Gpu, after_s: float = 60.0) -> LaterCounters:
    """The second reading."""
    return LaterCounters(reading=counters(), gpu=gpus(devices=devices, up_s=UP_S + after_s))


def test_silent_without_errors() -> None:
    assert not judge(gpu(0), gpu(1))
    assert not judge(gpu(0), gpu(1), later=later(gpu(0), gpu(1)))


@pytest.mark.parametrize(
    ("changes", "up_s", "key"),
    [
        ({"nvlink_recoveries": 1}, UP_S, "gpu-nvlink-recovered"),
        ({"nvlink_recoveries": 1}, None, "gpu-nvlink-recovered"),
        ({"nvlink_crc_errors": 40_000_000}, UP_S, "gpu-nvlink-crc"),
        ({"pcie_replays": 60_000}, UP_S, "gpu-pcie-replays"),
    ],
)
def test_totals_that_are_a_fault(changes: dict[str, Any], up_s: float | None, key: str) -> None:
    findings = judge(gpu(0), gpu(1, **changes), up_s=up_s)
    assert causes(findings) == {key: {"n1"}}
    assert [f.status for f in findings] == [Status.WARN]
    assert findings[0].summary.startswith("GPU 1: ")
    assert findings[0].summary.endswith("since the driver was loaded")


@pytest.mark.parametrize("up_s", [UP_S, None])
def test_single_errors_are_shown_and_not_judged(up_s: float | None) -> None:
    """Not at any number where nobody knows since when; a total is no rate."""
    many = 10**9 if up_s is None else 30_000
    (finding,) = judge(
        gpu(0, pcie_replays=many, nvlink_crc_errors=7), gpu(1, nvlink_replays=1), up_s=up_s, later=None
    )
    assert finding.status is Status.PASS
    for words in (f"GPU 0: {many} PCIe replays", "GPU 0: 7 NVLink CRC errors", "GPU 1: 1 NVLink replay"):
        assert words in finding.summary


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ({}, {"nvlink_recoveries": 1}, "gpu-nvlink-recovered"),
        ({"nvlink_replays": 5}, {"nvlink_replays": 6}, "gpu-nvlink-replays"),
        ({"nvlink_crc_errors": 5}, {"nvlink_crc_errors": 6005}, "gpu-nvlink-crc"),
        ({"pcie_replays": 900}, {"pcie_replays": 908}, "gpu-pcie-replays"),
        ({"nvlink_crc_errors": 5}, {"nvlink_crc_errors": 5000}, None),
        ({"pcie_replays": 900}, {"pcie_replays": 907}, None),
        ({"nvlink_replays": 5}, {"nvlink_replays": 5}, None),
        ({"nvlink_replays": 5}, {"nvlink_replays": 1}, None),  # began anew
        ({"nvlink_replays": 5}, {"nvlink_replays": None}, None),
        ({"nvlink_replays": 5}, {"uuid": "GPU-other", "nvlink_replays": 9}, None),
    ],
)
def test_what_was_added_while_the_scan_measured(
    before: dict[str, Any], after: dict[str, Any], key: str | None
) -> None:
    findings = judge(gpu(0, **before), gpu(1), later=later(gpu(0, **after), gpu(1)))
    assert causes(findings) == ({key: {"n1"}} if key else {})
    if key:
        assert findings[0].summary.endswith("in the 60 s of this scan")


@pytest.mark.parametrize(
    ("before", "after", "key", "said"),
    [
        ({"recoveries": [(5, 1)]}, {}, "gpu-nvlink-recovered", "GPU 0, NVLink 5: 1 NVLink recovery since"),
        ({}, {"replays": [(17, 3)]}, "gpu-nvlink-replays", "GPU 0, NVLink 17: 3 NVLink replays in the 60 s"),
        ({}, {"crc_errors": [(2, 6000), (3, 9)]}, "gpu-nvlink-crc", "GPU 0, NVLink 2: 6000 NVLink CRC"),
        # No link is bad by itself, and the GPU is.
        ({}, {"crc_errors": [(i, 1000) for i in range(9)]}, "gpu-nvlink-crc", "GPU 0: 9000 NVLink CRC"),
        ({}, {"replays": [(i, 1) for i in range(6)]}, "gpu-nvlink-replays", "GPU 0: 6 NVLink replays"),
        ({}, {"recovery_events": [(1, 1)]}, "gpu-nvlink-recovered", "NVLink 1: 1 NVLink recovery event in"),
        ({}, {"failed_recoveries": [(1, 2)]}, "gpu-nvlink-recovered", "NVLink 1: 2 failed NVLink recoveries"),
        ({}, {"bit_errors": [(1, 90)]}, "gpu-nvlink-crc", "NVLink 1: 90 uncorrected NVLink bit errors"),
        ({}, {"bit_errors": [(1, 20)]}, None, ""),
        ({"failed_recoveries": [(1, 2)], "recovery_events": [(1, 2)]}, {}, None, ""),
        ({"bit_errors": [(4, 10**6)]}, {}, None, ""),
        ({"replays": [(3, 7)]}, {"replays": [(3, 7)]}, None, ""),
        ({"replays": [(3, 7)]}, {"replays": [(4, 7)]}, "gpu-nvlink-replays", "NVLink 4: 7 NVLink replays"),
    ],
)
def test_the_link_is_named(before: Any, after: Any, key: str | None, said: str) -> None:
    """Whether totals are known or not, they do not say the same a second time."""
    for totals in ({}, dict.fromkeys(TOTALS[:3])):
        again = later(gpu(0, link_errors={**before, **after}, **totals))
        findings = judge(gpu(0, link_errors=before, **totals), later=again)
        assert causes(findings) == ({key: {"n1"}} if key else {})
        bad = [f for f in findings if f.status is not Status.PASS]
        assert len(bad) == bool(key)
        assert all(said in f.summary for f in bad)


def test_a_second_reading_that_tells_nothing() -> None:
    grown = gpu(0, nvlink_replays=9)
    for again in (LaterCounters(reading=counters()), later(grown, after_s=0.2), later(grown, after_s=-50.0)):
        assert causes(judge(gpu(0), later=again)) == {}
    without = LaterCounters(reading=counters(), gpu=GpuFacts(nvml="error"))
    assert causes(judge(gpu(0, nvlink_recoveries=2), later=without)) == {"gpu-nvlink-recovered": {"n1"}}


def test_not_applicable() -> None:
    mute = gpus(devices=(gpu(0, **NOT_TOLD), gpu(1, **NOT_TOLD)))
    for facts in (no_gpus(), mute):
        assert [f.status for f in gpu_link_errors(facts, None)] == [Status.SKIP]
    assert not judge(gpu(0, **{**NOT_TOLD, "pcie_replays": 0}))


def test_one_silent_gpu_among_counting_ones_is_not_green() -> None:
    (finding,) = judge(gpu(0), gpu(1, **NOT_TOLD))
    assert finding.status is Status.UNKNOWN


def test_a_gpu_that_failed_under_the_scans_own_load() -> None:
    lost = Gpu(index=1, error="GPU is lost")
    (finding,) = judge(gpu(0), gpu(1), later=later(gpu(0), lost))
    assert causes([finding]) == {"gpu-lost-meanwhile": {"n1"}}
    assert finding.status is Status.FAIL
    assert "GPU 1 answered at login" in finding.summary
    assert not judge(gpu(0), gpu(1, error="GPU is lost"), later=later(gpu(0), lost))  # gpu.visible says so
