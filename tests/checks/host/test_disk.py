import pytest

from netdoctor.checks.host.disk import host_disk
from netdoctor.model import Status

from ..build import GIB, MIB, causes, file_system, limits, said


@pytest.mark.parametrize(
    ("free", "status"),
    [(60 * GIB, None), (GIB, None), (500 * MIB, Status.WARN), (64 * MIB, Status.WARN), (0, Status.FAIL)],
)
def test_judges_free_space(free: int, status: Status | None) -> None:
    findings = list(host_disk(limits(tmp=file_system("/tmp", free_bytes=free))))
    assert [one.status for one in findings] == ([status] if status else [])


@pytest.mark.parametrize(
    ("total", "free", "kind", "key", "fix"),
    [
        pytest.param(GIB, GIB - 4096, "tmpfs", None, "", id="1 GiB, all of it free"),
        pytest.param(GIB, GIB - GIB // 8, "ext4", None, "", id="1 GiB, an eighth of it the file system's"),
        pytest.param(500 * MIB, 499 * MIB, "tmpfs", "tmp-small", "remount,size=4096M", id="small, and empty"),
        pytest.param(48 * MIB, 48 * MIB, "ext4", "tmp-small", "TMPDIR", id="small on a disk"),
        pytest.param(500 * MIB, 100 * MIB, "tmpfs", "tmp-full", "du ", id="small, and filled"),
        pytest.param(64 * GIB, 500 * MIB, "ext4", "tmp-full", "du ", id="large, and filled"),
    ],
)
def test_small_is_not_full(total: int, free: int, kind: str, key: str | None, fix: str) -> None:
    tmp = file_system("/tmp", total_bytes=total, free_bytes=free, fs_type=kind)
    findings = said(host_disk(limits(tmp=tmp)))
    assert set(causes(findings)) == ({key} if key else set())
    for one in findings:
        assert one.cause is not None
        assert fix in str(one.cause.fixes[0].commands)


def test_a_read_only_one_is_another_cause() -> None:
    findings = said(host_disk(limits(tmp=file_system("/tmp", writable=False))))
    assert causes(findings) == {"tmp-unusable": {"n1"}}
