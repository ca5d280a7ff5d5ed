import pytest

from netdoctor.checks.gpu.throttle import gpu_throttle
from netdoctor.model import Status

from ..build import causes, said
from ..build_hw import gpu, gpus, no_gpus


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


NO_MARGIN = {"margin_c": None, "operating_margin_c": None, "slowdown_margin_c": None}


@pytest.mark.parametrize(
    ("changes", "said_of_it"),
    [
        ({"margin_c": 0}, "GPU 0 is 0 C from its limit"),
        ({"margin_c": -3, "operating_margin_c": None}, "GPU 0 is -3 C from its limit"),
        ({**NO_MARGIN, "temperature_c": 85, "operating_c": 85, "slowdown_c": 92}, "GPU 0 is at 85 C"),
        ({**NO_MARGIN, "temperature_c": 97, "operating_c": 105, "slowdown_c": 97}, "GPU 0 is at 97 C"),
    ],
)
def test_heat_against_the_gpus_own_limits(changes: dict[str, int | None], said_of_it: str) -> None:
    findings = said(gpu_throttle(gpus(devices=(gpu(0, **changes), gpu(1)))))
    assert [f.summary for f in findings] == [said_of_it]
    assert causes(findings) == {"gpu-hot": {"n1"}}
    # A reason that the GPU gives itself says as much.
    slowed = said(gpu_throttle(gpus(devices=(gpu(0, **changes, throttle_reasons=0x40),))))
    assert causes(slowed) == {"gpu-slowdown": {"n1"}}


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature_c": 90},  # and far from its limit, says its margin
        {"margin_c": 1},
        {"margin_c": -1, "operating_margin_c": None},
        {**NO_MARGIN, "temperature_c": 84, "operating_c": 85, "slowdown_c": 92},
        {**NO_MARGIN, "temperature_c": 110},
        {**NO_MARGIN, "temperature_c": 40, "operating_c": 0, "slowdown_c": 0},
        {"operating_margin_c": None, "slowdown_margin_c": None, "margin_c": -40},
    ],
)
def test_warm_and_untold_is_not_hot(changes: dict[str, int | None]) -> None:
    assert not list(gpu_throttle(gpus(devices=(gpu(0, **changes),))))
