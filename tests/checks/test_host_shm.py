import pytest

from netdoctor.checks.host_shm import host_shm
from netdoctor.model import Status

from .build import GIB, MIB, causes, file_system, host, limits, said


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
    findings = said(host_shm(host(), limits(shm=shm)))
    assert [one.status for one in findings] == ([status] if status else [])


def test_an_unwritable_one_fails() -> None:
    findings = said(host_shm(host(), limits(shm=file_system("/dev/shm", writable=False))))
    assert causes(findings) == {"shm-unusable": {"n1"}}


def test_a_container_gets_a_flag_and_not_a_mount() -> None:
    shm = file_system("/dev/shm", free_bytes=64 * MIB)
    (finding,) = said(host_shm(host(container="docker"), limits(shm=shm)))
    assert finding.cause is not None
    assert "--shm-size" in finding.cause.fixes[0].commands[0].shell
