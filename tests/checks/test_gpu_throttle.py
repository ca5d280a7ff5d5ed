import pytest

from netdoctor.checks.gpu_throttle import gpu_throttle
from netdoctor.model import Status

from .build import causes, said
from .build_hw import gpu, gpus, no_gpus


@pytest.mark.parametrize("bits", [0x0, 0x1, 0x2, 0x4, 0x10, 0x100])
def test_normal_reasons_are_silent(bits: int) -> None:
    assert not list(gpu_throttle(gpus(devices=(gpu(0, throttle_reasons=bits),))))


@pytest.mark.parametrize(
    ("bits", "key"),
    [(0x08, "gpu-slowdown"), (0x20, "gpu-slowdown"), (0x40 | 0x1, "gpu-slowdown"), (0x80, "gpu-power-brake")],
)
def test_bad_reasons_speak(bits: int, key: str) -> None:
    findings = said(gpu_throttle(gpus(devices=(gpu(0, throttle_reasons=bits),))))
    assert causes(findings) == {key: {"n1"}}
    assert findings[0].status is Status.WARN


def test_skips() -> None:
    for facts in (no_gpus(), gpus(devices=(gpu(0, throttle_reasons=None),))):
        (finding,) = gpu_throttle(facts)
        assert finding.status is Status.SKIP


def test_one_silent_gpu_among_reporting_ones_is_not_green() -> None:
    silent = gpu(1, throttle_reasons=None)
    (finding,) = gpu_throttle(gpus(devices=(gpu(0), silent)))
    assert (finding.status, finding.summary) == (Status.UNKNOWN, "GPU 1 does not report it, others here do")
    sick = gpu(1, throttle_reasons=None, error="GPU is lost")
    assert not list(gpu_throttle(gpus(devices=(gpu(0), sick))))
