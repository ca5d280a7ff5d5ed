from dataclasses import replace

import pytest

from netdoctor.checks.host.shm import host_shm
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import Status

from ..build import GIB, MIB, causes, file_system, host, job, limits, said
from ..build_hw import gpus, no_gpus


@pytest.mark.parametrize(
    ("free", "status"),
    [
        pytest.param(60 * GIB, None, id="plenty"),
        pytest.param(1 * GIB, None, id="just enough"),
        pytest.param(500 * MIB, Status.WARN, id="below the advice"),
        pytest.param(64 * MIB, Status.FAIL, id="docker default"),
    ],
)
def test_judges_free_space(free: int, status: Status | None) -> None:
    shm = file_system("/dev/shm", free_bytes=free)
    findings = said(host_shm(host(), limits(shm=shm), None, job()))
    assert [one.status for one in findings] == ([status] if status else [])


@pytest.mark.parametrize(
    ("gpu", "backend", "status"),
    [
        pytest.param(no_gpus(), None, Status.WARN, id="no GPU: gloo alone"),
        pytest.param(gpus(), "gloo", Status.WARN, id="gloo, said"),
        pytest.param(no_gpus(), "nccl", Status.FAIL, id="nccl, said"),
        pytest.param(gpus(), None, Status.FAIL, id="GPUs"),
        pytest.param(None, None, Status.FAIL, id="GPUs unread"),
        pytest.param(
            replace(no_gpus(), device_nodes=("/dev/nvidia0",)), None, Status.FAIL, id="GPUs without a driver"
        ),
    ],
)
def test_gloo_does_not_need_it(gpu: GpuFacts | None, backend: str | None, status: Status) -> None:
    shm = file_system("/dev/shm", free_bytes=64 * MIB)
    (finding,) = said(host_shm(host(), limits(shm=shm), gpu, job(backend=backend)))
    assert finding.status is status
    assert ("NCCL and data loaders with workers would fail" in finding.summary) == (status is Status.WARN)


def test_an_unwritable_one_fails() -> None:
    findings = said(host_shm(host(), limits(shm=file_system("/dev/shm", writable=False)), no_gpus(), job()))
    assert causes(findings) == {"shm-unusable": {"n1"}}


def test_a_container_gets_a_flag_and_not_a_mount() -> None:
    shm = file_system("/dev/shm", free_bytes=64 * MIB)
    (finding,) = said(host_shm(host(container="docker"), limits(shm=shm), None, job()))
    assert finding.cause is not None
    assert "--shm-size" in finding.cause.fixes[0].commands[0].shell


@pytest.mark.parametrize(
    ("free", "left", "key", "status"),
    [
        pytest.param(60 * GIB, 900 * MIB, None, None, id="a little, and enough is free"),
        pytest.param(60 * GIB, 8 * GIB, "shm-left-over", Status.WARN, id="memory that is gone"),
        pytest.param(500 * MIB, 600 * MIB, "shm-left-over", Status.WARN, id="what makes it small"),
        pytest.param(64 * MIB, 2 * GIB, "shm-left-over", Status.FAIL, id="what stops NCCL"),
        pytest.param(64 * MIB, 32 * MIB, "shm-small", Status.FAIL, id="small all the same"),
    ],
)
def test_what_ended_jobs_left_behind(free: int, left: int, key: str | None, status: Status | None) -> None:
    shm, names = file_system("/dev/shm", free_bytes=free), ("nccl-Ab12Cd", "torch_1_2_0", "sem.$(reboot)")
    here = limits(shm=shm, stale_shm_bytes=left, stale_shm_files=names)
    findings = said(host_shm(host(), here, gpus(), job()))
    assert [(f.cause and f.cause.key, f.status) for f in findings] == ([(key, status)] if key else [])
    if key == "shm-left-over" and findings[0].cause:
        _, remove = findings[0].cause.fixes
        assert "for f in nccl-Ab12Cd torch_1_2_0; do" in remove.commands[0].shell
    # A container does not see who else uses the host's files.
    inside = said(host_shm(host(container="docker"), here, gpus(), job()))
    assert [f.cause and f.cause.key for f in inside] == (["shm-small"] if free < GIB else [])


def test_names_that_may_stand_in_no_command() -> None:
    here = limits(stale_shm_bytes=2 * GIB, stale_shm_files=("sem.a b", "nccl-;x"))
    (finding,) = said(host_shm(host(), here, gpus(), job()))
    assert finding.cause
    assert finding.cause.fixes == ()
