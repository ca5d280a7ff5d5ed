from dataclasses import replace

import pytest

from netdoctor.checks.host_shm import host_shm
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import Status

from .build import GIB, MIB, causes, file_system, host, job, limits, said
from .build_hw import gpus, no_gpus


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
