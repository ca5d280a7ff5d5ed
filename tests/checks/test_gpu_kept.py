"""GPUs that a device cgroup keeps from a login, as schedulers do on purpose."""

from dataclasses import replace
from typing import Any

from netdoctor.checks.gpu_count import gpu_count
from netdoctor.checks.gpu_visible import gpu_visible
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import Status

from . import build
from . import build_hw as hw


def held(shown: int, boards: int = 8, **changes: Any) -> GpuFacts:
    blocked = tuple(f"/dev/nvidia{i}" for i in range(shown, boards))
    own = tuple(hw.gpu(i) for i in range(shown))
    return replace(hw.gpus(boards, devices=own, blocked=blocked, slurmd=True), **changes)


def test_what_a_device_cgroup_keeps_from_a_login_is_not_the_nodes_fault() -> None:
    refused = tuple(hw.gpu(i, error="Insufficient Permissions") for i in range(8))
    no_control = ("/dev/nvidiactl",)
    for facts in (
        held(0),
        held(5),
        held(0, devices=refused),
        held(0, nvml="no_driver", nvml_code=9, blocked=no_control),
        held(0, nvml="error", nvml_code=17),
    ):
        (found,) = gpu_visible(build.node(), facts, build.host())
        assert (found.status, found.cause and found.cause.key) == (Status.UNKNOWN, "gpu-kept-from-login")
        assert "slurmd runs; look from inside a job" in found.summary
        assert found.cause is not None
        assert found.cause.settle_by == "netdoctor scan --via slurm"
        (counted,) = gpu_count({"n1": facts}, {"n1": build.node(gpus=8)})
        assert counted.status is Status.SKIP


def test_inside_a_job_its_share_is_what_there_is() -> None:
    (found,) = gpu_visible(build.node(), held(4, login_job="42"), build.host())
    assert (found.status, found.summary) == (Status.PASS, "4 of 8 GPUs are those of Slurm job 42")
    (none,) = gpu_visible(build.node(), held(0, login_job="42"), build.host())
    assert (none.status, none.gap) == (Status.SKIP, "GPUs that are not the job's")
    counted = gpu_count({f"n{i}": held(4, login_job="42") for i in (1, 2)}, build.nodes(2))
    assert {one.status for one in counted} == {Status.PASS}


def test_a_missing_gpu_beside_one_that_is_kept_is_missing() -> None:
    one_gone = held(6, blocked=("/dev/nvidia7",))
    assert "gpu-kept-from-login" not in {
        one.cause.key for one in gpu_visible(build.node(), one_gone, build.host()) if one.cause
    }
    nothing_blocked = held(6, blocked=())
    (found,) = gpu_visible(build.node(), nothing_blocked, build.host())
    assert found.status is Status.FAIL
