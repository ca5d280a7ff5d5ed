from netdoctor.checks.gpu_ecc import gpu_ecc
from netdoctor.model import Status

from .build import causes, node
from .build_hw import gpu, gpus, no_gpus


def test_silent_without_errors() -> None:
    assert not list(gpu_ecc(node(), gpus()))


def test_speaks_of_uncorrected_errors() -> None:
    findings = list(gpu_ecc(node(), gpus(devices=(gpu(0), gpu(1, ecc_uncorrected=2)))))
    assert [f.summary for f in findings] == ["GPU 1 has 2 uncorrected memory errors"]
    assert causes(findings) == {"gpu-ecc": {"n1"}}


def test_skips_what_does_not_count() -> None:
    for facts in (no_gpus(), gpus(devices=(gpu(0, ecc_uncorrected=None),))):
        (finding,) = gpu_ecc(node(), facts)
        assert finding.status is Status.SKIP
