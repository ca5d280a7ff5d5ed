import pytest

from netdoctor.checks.ray.resources import ray_resources
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import Status

from ..build import causes, said
from ..build_hw import gpus, no_gpus
from ..build_ray import ray


@pytest.mark.parametrize(
    ("handed", "gpu"),
    [
        pytest.param(8.0, gpus(), id="all"),
        pytest.param(4.0, gpus(), id="fewer, on purpose"),
        pytest.param(0.0, gpus(), id="a head without"),
        pytest.param(None, gpus(), id="not said"),
        pytest.param(None, None, id="GPUs unread, none handed out"),
        pytest.param(None, no_gpus(), id="no GPU"),
    ],
)
def test_silent_where_ray_has_no_more_than_there_is(handed: float | None, gpu: GpuFacts | None) -> None:
    assert said(ray_resources(ray(gpus=handed), gpu)) == []


def test_a_gpu_that_is_gone_is_still_handed_out() -> None:
    (finding,) = found = said(ray_resources(ray(), gpus(7)))
    assert finding.status is Status.FAIL
    assert causes(found) == {"ray-gpus": {"n1"}}


def test_raylets_that_hand_out_the_same_gpus_twice() -> None:
    (finding,) = found = said(ray_resources(ray(gpus=16.0, raylets=2), gpus()))
    assert causes(found) == {"ray-gpus": {"n1"}}
    assert "2 raylets run here" in finding.summary
    assert finding.cause is not None
    assert "--num-gpus" in finding.cause.fixes[0].text
    assert said(ray_resources(ray(gpus=8.0, raylets=2), gpus())) == []


def test_an_object_store_on_a_disk_is_slow() -> None:
    (finding,) = found = said(ray_resources(ray(object_store_dir="/tmp"), gpus()))
    assert finding.status is Status.WARN
    assert causes(found) == {"ray-object-store": {"n1"}}
    for unread in (
        ray_resources(ray(object_store_dir=""), gpus()),
        ray_resources(ray(), None),
        ray_resources(ray(), GpuFacts(nvml="error")),
    ):
        assert [one.status for one in said(unread)] == [Status.UNKNOWN]
