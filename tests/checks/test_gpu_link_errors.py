from typing import Any

import pytest

from netdoctor.checks.gpu_link_errors import gpu_link_errors
from netdoctor.model import Status

from .build import causes, said
from .build_hw import gpu, gpus, no_gpus

NOT_TOLD = dict.fromkeys(("nvlink_recoveries", "nvlink_crc_errors", "nvlink_replays", "pcie_replays"))


def test_silent_without_errors() -> None:
    assert not list(gpu_link_errors(gpus()))


@pytest.mark.parametrize(
    ("changes", "up_s", "key"),
    [
        ({"nvlink_recoveries": 1}, 400_000.0, "gpu-nvlink-recovered"),
        ({"nvlink_recoveries": 1}, None, "gpu-nvlink-recovered"),
        ({"nvlink_crc_errors": 40_000_000}, 400_000.0, "gpu-nvlink-crc"),
        ({"pcie_replays": 60_000}, 400_000.0, "gpu-pcie-replays"),
    ],
)
def test_what_is_a_fault(changes: dict[str, Any], up_s: float | None, key: str) -> None:
    findings = said(gpu_link_errors(gpus(devices=(gpu(0), gpu(1, **changes)), up_s=up_s)))
    assert causes(findings) == {key: {"n1"}}
    assert [f.status for f in findings] == [Status.WARN]
    assert findings[0].summary.startswith("GPU 1 has ")


@pytest.mark.parametrize("up_s", [400_000.0, None])
def test_single_errors_are_shown_and_not_judged(up_s: float | None) -> None:
    """Not at any number where nobody knows since when; a total is no rate."""
    many = 10**9 if up_s is None else 30_000
    devices = (gpu(0, pcie_replays=many, nvlink_crc_errors=7), gpu(1, nvlink_replays=1))
    (finding,) = gpu_link_errors(gpus(devices=devices, up_s=up_s))
    assert finding.status is Status.PASS
    for words in (f"GPU 0 has {many} PCIe replays", "7 NVLink CRC errors", "GPU 1 has 1 NVLink replay"):
        assert words in finding.summary


def test_not_applicable() -> None:
    mute = gpus(devices=(gpu(0, **NOT_TOLD), gpu(1, **NOT_TOLD)))
    for facts in (no_gpus(), mute):
        assert [f.status for f in gpu_link_errors(facts)] == [Status.SKIP]
    geforce = gpu(0, **{**NOT_TOLD, "pcie_replays": 0})
    assert not list(gpu_link_errors(gpus(devices=(geforce,))))


def test_one_silent_gpu_among_counting_ones_is_not_green() -> None:
    (finding,) = gpu_link_errors(gpus(devices=(gpu(0), gpu(1, **NOT_TOLD))))
    assert finding.status is Status.UNKNOWN
