import pytest

from netdoctor.checks.host.mounts import host_mounts
from netdoctor.facts.places import Place, PlaceFacts
from netdoctor.model import Kind, Status

from ..build import GIB, MIB, causes, place, places, said

NFS = {"fs_type": "nfs4", "source": "10.0.0.5:/x", "network": True, "mount_point": "/data"}
NO_WORDS = {"fs_type": None, "source": None, "mount_point": None}
SILENT = [
    place("/", "root", free_bytes=500 * MIB),
    place("/", "root", free_bytes=0, writable=False, read_only=True, fs_type="squashfs"),
    place("/", "root", inodes_total=0, inodes_free=0, fs_type="btrfs"),
    place("/data", "path", **NFS),
    place("/data", "path", free_bytes=0, writable=False, **NFS),
    place("/data", "path", inodes_total=1_000_000_000, inodes_free=20_000_000, **NFS),
    place("/data", "path", error="ENOENT"),
    place("/mnt/user", "mount", error="EACCES", fs_type="fuse.sshfs", network=True),
    place("/hf", "cache", error="ENOENT"),
    place("/boot", "cache", total_bytes=300 * MIB, free_bytes=200 * MIB),
]
SPEAKING = [
    (place("/", "root", free_bytes=10 * MIB), "disk-full-root", Status.WARN),
    (place("/hf", "cache", free_bytes=900 * MIB, mount_point="/hf"), "disk-full-hf", Status.WARN),
    (place("/ckpt", free_bytes=900 * MIB, mount_point="/ckpt"), "disk-full-ckpt", Status.WARN),
    (place("/home/ml", "home", inodes_free=9_000, mount_point="/home"), "inodes-out-home-ml", Status.WARN),
    (place("/t", "tmp", inodes_free=0, mount_point="/t"), "inodes-out-t", Status.FAIL),
    (place("/data", error="hangs", **NFS), "mount-hangs-data", Status.FAIL),
    (place("/data", error="hangs", **NO_WORDS), "mount-hangs-data", Status.FAIL),
    (place("/data", "mount", error="hangs", **NFS), "mount-hangs-data", Status.WARN),
    (place("/data", "mount", error="ESTALE", **NFS), "mount-broken-data", Status.WARN),
    (place("/data", error="ENOTCONN", **NFS), "mount-broken-data", Status.FAIL),
    (place("/data", fell_read_only=True, writable=False), "mount-fell-read-only-data", Status.FAIL),
    (place("/", "root", fell_read_only=True, writable=False), "mount-fell-read-only-root", Status.WARN),
    (place("/data", readable=False), "path-refused-data", Status.FAIL),
    (place("/data", error="EACCES"), "path-refused-data", Status.FAIL),
]


def test_silent_where_nothing_is_wrong() -> None:
    assert list(host_mounts(places())) == []
    for one in SILENT:
        assert list(host_mounts(places(one))) == [], one


def test_speaks_of_each_fault() -> None:
    for one, key, status in SPEAKING:
        findings = said(host_mounts(places(one)))
        assert causes(findings) == {key: {"n1"}}, one
        assert [finding.status for finding in findings] == [status], one


def test_who_serves_a_mount_is_looked_at_before_it_is_given_up() -> None:
    for error in ("hangs", "ESTALE", "ENOTCONN", "EIO"):
        (finding,) = host_mounts(places(place("/data", error=error, **NFS)))
        assert finding.cause
        see, off = finding.cause.fixes
        assert (see.kind, off.kind) == (Kind.LOOK, None)  # None: it acts
        assert see.commands[0].shell.startswith("grep -F -- /data /proc/self/mountinfo")
        assert (off.commands[0].shell, off.risk) == ("umount -l /data", "medium")


def test_one_file_system_is_told_once() -> None:
    full = [place(path, role, free_bytes=0) for path, role in (("/", "root"), ("/home/ml", "home"))]
    assert len(list(host_mounts(PlaceFacts(places=tuple(full))))) == 1
    # /tmp lies on it, too: that is host.disk's.
    assert not list(host_mounts(PlaceFacts(places=(place("/tmp", "tmp", free_bytes=0), *full))))


def test_what_nobody_tried_is_unknown() -> None:
    (finding,) = host_mounts(places(place("/x", "mount", error="not tried")))
    assert finding.status is Status.UNKNOWN


@pytest.mark.parametrize("path", ["/a'; touch PWN;'", "/a\n$(PWN)", "/{x}`PWN`"])
def test_a_name_of_the_node_is_one_word_of_a_command(path: str) -> None:
    import shlex

    hung: Place = place(path, "mount", error="hangs", network=True, mount_point=path)
    for finding in said(host_mounts(places(hung))):
        assert finding.cause is not None
        shells = [command.shell for fix in finding.cause.fixes for command in fix.commands]
        assert any(path in shlex.split(shell) for shell in shells)


def test_sizes_are_in_words() -> None:
    (finding,) = host_mounts(
        places(place("/ckpt", free_bytes=64 * MIB, total_bytes=2 * GIB, mount_point="/c"))
    )
    assert "64 MiB free of 2.0 GiB" in finding.summary
