import pytest

from netdoctor.checks.host_disk import host_disk
from netdoctor.model import Status

from .build import GIB, MIB, causes, file_system, limits, said


@pytest.mark.parametrize(
    ("free", "status"),
    [(60 * GIB, None), (GIB, None), (500 * MIB, Status.WARN), (64 * MIB, Status.WARN), (0, Status.FAIL)],
)
def test_judges_free_space(free: int, status: Status | None) -> None:
    findings = list(host_disk(limits(tmp=file_system("/tmp", free_bytes=free))))
    assert [one.status for one in findings] == ([status] if status else [])


def test_a_read_only_one_is_another_cause() -> None:
    findings = said(host_disk(limits(tmp=file_system("/tmp", writable=False))))
    assert causes(findings) == {"tmp-unusable": {"n1"}}
