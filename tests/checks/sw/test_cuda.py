import pytest

from netdoctor.checks.sw.cuda import sw_cuda
from netdoctor.model import CLUSTER, Status
from netdoctor.rules.cuda import dotted, minimum_driver

from ..build import causes, found, said
from ..build_hw import all_gpus, gpu, gpus, no_gpus, software, softwares, torch


@pytest.mark.parametrize(
    ("cuda", "driver"),
    [
        ((13, 2), "580"),
        ((13, 0), "580"),
        ((12, 9), "525.60.13"),
        ((12, 0), "525.60.13"),
        ((11, 8), "450.80.02"),
        ((11, 0), "450.36.06"),
        ((10, 2), "440.33"),
        ((9, 0), "384.81"),
    ],
)
def test_minimum_drivers_as_nvidia_prints_them(cuda: tuple[int, ...], driver: str) -> None:
    least = minimum_driver(cuda)
    assert least is not None
    assert dotted(least) == driver


def test_unknown_before_cuda_9() -> None:
    assert minimum_driver((8, 0)) is None


def test_silent_when_the_driver_is_new_enough() -> None:
    assert not list(sw_cuda(softwares(2), all_gpus(2)))


@pytest.mark.parametrize(
    ("cuda", "driver", "offers", "speaks"),
    [
        pytest.param("12.4", "525.60.13", "12.0", False, id="minor version compatibility"),
        pytest.param("12.4", "520.61.05", "11.8", True, id="one too old"),
        pytest.param("13.0", "570.86.15", "12.8", True, id="next major"),
        pytest.param("13.0", "570.86.15", "13.0", False, id="cuda-compat in front"),
        pytest.param("11.8", "570.86.15", "12.8", False, id="older build, newer driver"),
    ],
)
def test_driver_against_build(cuda: str, driver: str, offers: str, speaks: bool) -> None:
    facts = gpus(
        driver_version=driver,
        kernel_driver=driver,
        cuda_driver=offers,
        devices=(gpu(0, compute_capability="8.0"),),
    )
    findings = list(sw_cuda({"n1": software(torch=torch(cuda=cuda))}, {"n1": facts}))
    assert causes(findings) == ({"driver-too-old": {"n1"}} if speaks else {})


def test_the_drivers_own_version_is_shown_and_the_kernels_where_it_is_not_known() -> None:
    for version, shown in (("520.61.05", "520.61.05"), (None, "520.56.06")):
        facts = gpus(driver_version=version, kernel_driver="520.56.06", cuda_driver="11.8")
        (finding, *_) = sw_cuda(softwares(1), {"n1": facts})
        assert finding.evidence[1].output == f"driver {shown}, CUDA 11.8"


@pytest.mark.parametrize(
    ("offers", "fixes"),
    [("11.8", ["on all nodes, a torch built for CUDA 11.8 or older"]), ("11", []), (None, [])],
)
def test_an_older_torch_is_the_other_way_out(offers: str | None, fixes: list[str]) -> None:
    facts = gpus(driver_version="520.61.05", kernel_driver="520.61.05", cuda_driver=offers)
    (hint,) = (f.cause for f in sw_cuda(softwares(1), {"n1": facts}) if f.cause)
    assert [fix.text for fix in hint.fixes[1:]] == fixes


def test_a_family_can_need_more_than_the_toolkit() -> None:
    facts = gpus(
        driver_version="550.54.14", kernel_driver="550.54.14", devices=(gpu(0, compute_capability="10.0"),)
    )
    assert causes(sw_cuda(softwares(1), {"n1": facts})) == {"driver-too-old-for-gpu": {"n1"}}


def test_another_cuda_major_is_named() -> None:
    odd = software(torch=torch(version="2.6.0+cu118", cuda="11.8"))
    assert causes(sw_cuda(softwares(3, n2=odd), all_gpus(3))) == {"cuda-major": {"n2"}}


def test_skips() -> None:
    findings = found(said(sw_cuda({"n1": software(torch=None)}, {"n1": no_gpus()}), CLUSTER))
    assert findings[CLUSTER].status is Status.SKIP
    findings = found(sw_cuda(softwares(2), {"n1": gpus(), "n2": no_gpus()}))
    assert findings["n2"].status is Status.SKIP


def test_cannot_tell_without_a_driver_version() -> None:
    facts = gpus(driver_version=None, kernel_driver=None)
    assert found(sw_cuda(softwares(1), {"n1": facts}))["n1"].status is Status.UNKNOWN


def test_cannot_tell_where_torch_could_not_be_read() -> None:
    broken = software(torch=torch(cuda=None), torch_error="version.py: EACCES")
    assert found(sw_cuda(softwares(2, n1=broken), all_gpus(2)))["n1"].status is Status.UNKNOWN
    assert {f.status for f in sw_cuda({"n1": broken}, all_gpus(1))} == {Status.UNKNOWN}


def test_a_gpu_that_does_not_tell_its_family_may_need_a_newer_driver() -> None:
    silent = (gpu(0), gpu(1, compute_capability=None))
    old = {"driver_version": "550.54.14", "kernel_driver": "550.54.14"}
    assert found(sw_cuda(softwares(1), {"n1": gpus(devices=silent, **old)}))["n1"].status is Status.UNKNOWN
    assert not list(sw_cuda(softwares(1), {"n1": gpus(devices=silent)}))  # new enough for all families


def test_cannot_tell_without_the_cuda_of_the_drivers_library() -> None:
    facts = {"n1": gpus(cuda_driver=None), "n2": gpus()}
    assert {f.target: f.status for f in sw_cuda(softwares(2), facts)} == {"n1": Status.UNKNOWN}
