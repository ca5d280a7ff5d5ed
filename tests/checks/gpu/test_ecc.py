from netdoctor.checks.gpu.ecc import gpu_ecc
from netdoctor.model import Status

from ..build import causes, said
from ..build_hw import gpu, gpus, no_gpus


def test_silent_without_errors() -> None:
    assert not list(gpu_ecc(gpus()))


def test_speaks_of_uncorrected_errors() -> None:
    findings = said(gpu_ecc(gpus(devices=(gpu(0), gpu(1, ecc_uncorrected=2)))))
    assert [f.summary for f in findings] == ["GPU 1 has 2 uncorrected memory errors"]
    assert causes(findings) == {"gpu-ecc": {"n1"}}


def test_skips_what_does_not_count() -> None:
    for facts in (no_gpus(), gpus(devices=(gpu(0, ecc_uncorrected=None),))):
        (finding,) = gpu_ecc(facts)
        assert finding.status is Status.SKIP


def test_one_silent_gpu_among_counting_ones_is_not_green() -> None:
    devices = (gpu(0), gpu(1, ecc_uncorrected=None), gpu(2, ecc_uncorrected=None))
    (finding,) = gpu_ecc(gpus(devices=devices))
    assert finding.status is Status.UNKNOWN
    assert finding.summary == "GPU 1 and GPU 2 do not count ECC errors, others here do"
    nameless = gpus(devices=(gpu(0), gpu(1, ecc_uncorrected=None, name="")))
    assert [one.status for one in gpu_ecc(nameless)] == [Status.UNKNOWN]


def test_another_model_may_not_count_and_a_sick_gpu_is_said_elsewhere() -> None:
    geforce = gpu(1, ecc_uncorrected=None, name="NVIDIA GeForce RTX 4090")
    lost = gpu(2, ecc_uncorrected=None, error="GPU is lost")
    assert not list(gpu_ecc(gpus(devices=(gpu(0), geforce, lost))))


def test_rows_of_memory() -> None:
    worn = gpu(1, remap_failed=True, remap_pending=False)
    findings = said(gpu_ecc(gpus(devices=(gpu(0, remap_pending=True, remap_failed=False), worn))))
    assert [(f.status, f.summary) for f in findings] == [
        (Status.WARN, "GPU 0 has faulty memory rows that are replaced at its next reset"),
        (Status.FAIL, "GPU 1 has a faulty memory row and no spare row for it"),
    ]
    assert causes(findings) == {"gpu-memory-pending": {"n1"}, "gpu-memory-worn": {"n1"}}
    (finding,) = gpu_ecc(gpus(devices=(gpu(0, ecc_uncorrected=1, remap_pending=True),)))
    assert finding.summary == "GPU 0 has 1 uncorrected memory error"


def test_pages_before_ampere() -> None:
    old = {
        "remap_pending": None,
        "remap_failed": None,
        "banks_without_spare": None,
        "name": "Tesla V100-SXM2",
    }
    devices = tuple(
        gpu(i, **old, **pages)
        for i, pages in enumerate(
            [
                {"retired_pages": 0, "retired_pending": False},
                {"retired_pages": 12, "retired_pending": False},
                {"retired_pages": 3, "retired_pending": True},
                {"retired_pages": 63, "retired_pending": False},
            ]
        )
    )
    findings = said(gpu_ecc(gpus(devices=devices)))
    assert [(f.status, f.summary) for f in findings] == [
        (Status.WARN, "GPU 2 has faulty memory pages that are replaced at its next reset"),
        (Status.WARN, "GPU 3 has retired as many pages of its memory as it can"),
    ]


def test_what_is_left_to_repair_memory_with() -> None:
    devices = (gpu(0, sram_exceeded=True), gpu(1, banks_without_spare=1), gpu(2, sram_exceeded=None))
    findings = said(gpu_ecc(gpus(devices=devices)))
    assert {f.status for f in findings} == {Status.WARN}
    assert [f.cause and (f.cause.key, str(f.cause.action)) for f in findings] == [
        ("gpu-memory-spent", "replace"),
        ("gpu-memory-no-spare", "ignore"),
    ]
    (finding,) = gpu_ecc(gpus(devices=(gpu(0, sram_exceeded=None, sram_refused=True),)))
    assert (finding.status, "needs root" in finding.summary) == (Status.PASS, True)
    # A row that could not be replaced says as much, and errors of long ago say nothing.
    devices = (gpu(0, remap_failed=True, banks_without_spare=1), gpu(1, ecc_uncorrected_ever=40))
    findings = said(gpu_ecc(gpus(devices=devices)))
    assert causes(findings) == {"gpu-memory-worn": {"n1"}}
    assert (findings[-1].status, findings[-1].summary.endswith("not judged: GPU 1 40")) == (Status.PASS, True)
