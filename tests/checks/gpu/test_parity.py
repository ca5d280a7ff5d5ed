from typing import Any

import pytest

from netdoctor.checks.gpu.parity import gpu_parity
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import Finding, Status

from ..build import causes
from ..build_hw import all_gpus, gpu, gpus, no_gpus


def judged(count: int = 4, **odd: GpuFacts) -> list[Finding]:
    return list(gpu_parity(all_gpus(count, **odd)))


def spoilt(**changes: Any) -> GpuFacts:
    """The first GPU of a node is another one."""
    return gpus(devices=(gpu(0, **changes), *(gpu(i) for i in range(1, 8))))


def test_silent_where_all_are_alike() -> None:
    assert not judged()
    assert not judged(n2=spoilt(name="NVIDIA L4", vbios="95.04", power_limit_w=72.0, power_default_w=72.0))
    silent = gpus(devices=tuple(gpu(i, vbios="", ecc_enabled=None, power_limit_w=None) for i in range(8)))
    assert not judged(2, n1=silent, n2=silent)


def test_inforom() -> None:
    findings = judged(n2=spoilt(inforom="G520.0202.00.01"), n3=spoilt(inforom_valid=False))
    assert causes(findings) == {"gpu-parity-inforom": {"n2"}, "gpu-inforom-corrupt": {"n3"}}
    assert {f.status for f in findings} == {Status.WARN}
    # A board of another make has another VBIOS, too, and is one matter.
    both = judged(n2=spoilt(inforom="G520.0202.00.01", vbios="96.00.99.00.01"))
    assert causes(both) == {"gpu-parity-vbios": {"n2"}}
    silent = gpus(devices=tuple(gpu(i, inforom_valid=None) for i in range(8)))
    assert not judged(2, n1=silent, n2=silent)
    assert [(f.target, f.status) for f in judged(n2=silent)] == [("n2", Status.UNKNOWN)]


def test_one_that_does_not_tell_is_not_green() -> None:
    findings = judged(n2=spoilt(vbios=""))
    assert [(f.target, f.status) for f in findings] == [("n2", Status.UNKNOWN)]


def test_modes_and_firmware_of_one_node() -> None:
    findings = judged(
        n1=spoilt(vbios="96.00.99.00.01"),
        n2=spoilt(ecc_enabled=False),
        n3=spoilt(compute_mode=3),
        n4=spoilt(persistence=False, mig_enabled=True),
    )
    assert {f.status for f in findings} == {Status.WARN}
    assert causes(findings) == {
        "gpu-parity-vbios": {"n1"},
        "gpu-parity-ecc": {"n2"},
        "gpu-parity-compute": {"n3"},
        "gpu-parity-mig": {"n4"},
        "gpu-parity-persistence": {"n4"},
    }
    ecc = next(f for f in findings if f.target == "n2")
    assert ecc.summary == "ECC mode of NVIDIA H100 80GB HBM3 off and on here, on on most nodes"
    assert ecc.cause
    assert ecc.cause.fixes[0].commands[0].shell.startswith("nvidia-smi -e 1")


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ({"power_limit_w": 400.0}, "gpu-power-capped", "400 W (power), its default is 700 W"),
        (
            {"clocks_set_mhz": (1200, 2619)},
            "gpu-clocks-set",
            "1200 MHz (graphics clock), its default is 1980 MHz",
        ),
        (
            {"clocks_set_mhz": (1980, 1593)},
            "gpu-clocks-set",
            "1593 MHz (memory clock), its default is 2619 MHz",
        ),
    ],
)
def test_what_is_set_below_the_default(changes: dict[str, Any], key: str, said: str) -> None:
    (finding,) = judged(n3=spoilt(**changes))
    assert (finding.target, finding.summary) == ("n3", f"GPU 0 is limited to {said}")
    assert set(causes([finding])) == {key}


def test_clocks_above_the_default_are_a_choice_and_boards_need_not_tell() -> None:
    assert not judged(n3=spoilt(clocks_set_mhz=(1980, 2619), clocks_default_mhz=(1755, 2619)))
    assert not judged(n3=spoilt(clocks_set_mhz=None))
    assert not judged(n3=spoilt(clocks_default_mhz=None))


def test_not_applicable() -> None:
    assert [f.status for f in gpu_parity({"n1": no_gpus()})] == [Status.SKIP]
