"""GPUs that a device cgroup keeps from a login, as schedulers do on purpose."""

from dataclasses import replace
from typing import Any

from netdoctor.checks.gpu.count import gpu_count
from netdoctor.checks.gpu.visible import gpu_visible
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.software import EnvFacts
from netdoctor.model import Status

from .. import build
from .. import build_hw as hw


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
        assert "slurmd runs; scan from inside a job" in found.summary
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


def step(given: int, host: str = "n1") -> EnvFacts:
    return EnvFacts(variables={"SLURMD_NODENAME": host, "SLURM_GPUS_ON_NODE": str(given)})


def counted(envs: dict[str, EnvFacts], **gpus: GpuFacts) -> list[tuple[Status, str | None, str]]:
    found = gpu_count(gpus, build.nodes(len(gpus)), envs=envs)
    return [(one.status, one.observed, one.expected or "") for one in found if one.status is not Status.PASS]


def test_what_slurm_gave_a_task_is_what_has_to_be_there() -> None:
    share = held(4, login_job="42")
    # Uneven shares of one job are as Slurm made them, and others' GPUs are nobody's fault.
    uneven = {"n1": share, "n2": held(2, login_job="42"), "n3": held(2, login_job="42")}
    assert counted({"n1": step(4), "n2": step(2, "n2"), "n3": step(2, "n3")}, **uneven) == []
    # gres.conf has eight, and the bus seven; a share of four, of which one is gone from bus and /dev.
    seven = held(7, boards=7, blocked=(), login_job="42")
    gone = held(3, boards=7, login_job="42")
    for facts, given in ((seven, 8), (gone, 4), (hw.gpus(0, devices=()), 8)):
        found = counted({"n1": step(given)}, n1=facts)
        assert found == [(Status.FAIL, str(len(facts.devices)), str(given))]
    # Not believed: another node's variables, and those of a launcher that counts otherwise.
    assert counted({"n1": step(8, "n2")}, n1=share) == []
    odd = EnvFacts(variables={"SLURMD_NODENAME": "n1", "SLURM_GPUS_ON_NODE": "x"})
    assert counted({"n1": odd}, n1=share) == []
    parted = replace(share, devices=tuple(replace(one, mig_enabled=True) for one in share.devices))
    assert counted({"n1": step(28)}, n1=parted) == []


def test_without_device_cgroups_a_share_is_a_variable() -> None:
    every = hw.gpus(8, cuda_visible_devices="0,1")
    assert list(gpu_visible(build.node(), every, build.host(), None, step(2))) == []
    (found,) = gpu_visible(build.node(), every, build.host(), None, step(4))
    assert found.status is Status.WARN
    assert counted({"n1": step(2)}, n1=every) == []


def test_a_lost_gpu_of_a_share_is_held_against_the_share() -> None:
    (found,) = gpu_visible(build.node(), held(3, blocked=("/dev/nvidia4", "/dev/nvidia5")), build.host())
    assert (found.status, found.observed, found.expected) == (Status.FAIL, "3 GPUs", "6 GPUs")


def test_a_missing_gpu_beside_one_that_is_kept_is_missing() -> None:
    one_gone = held(6, blocked=("/dev/nvidia7",))
    assert "gpu-kept-from-login" not in {
        one.cause.key for one in gpu_visible(build.node(), one_gone, build.host()) if one.cause
    }
    nothing_blocked = held(6, blocked=())
    (found,) = gpu_visible(build.node(), nothing_blocked, build.host())
    assert found.status is Status.FAIL
