"""File systems that a job uses: that they answer, can be written, and have space."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.positions import (
    MOUNT_ERRORS,
    cause_at,
    clean_up,
    free_space,
    mount_text,
    unread_reason,
)
from netdoctor.checks._shared.text import GIB, MIB, quoted, size
from netdoctor.facts.places import HUNG, UNTRIED, Place, PlaceFacts
from netdoctor.model import HERE, Cause, Finding, Fix, Status, look, run, seen, unknown

# A job writes into caches, and may write into what was named: a compiled kernel cache takes tens of MiB, a
# checkpoint more than any bound here. Of the rest it is enough that they are not full.
LEAST_BYTES = 64 * MIB
ENOUGH_BYTES = {"cache": GIB, "path": GIB}
# A small one need not have so much, as long as it is not nearly full.
LEAST_SHARE = 0.05
# The kubelet evicts pods below 5 % of the inodes (nodefs.inodesFree); an environment of Python packages takes
# some 10,000 files, so that a larger number is none to worry about, whatever its share.
LEAST_INODE_SHARE = 0.05
LEAST_INODES = 10_000
OF_THE_JOB = ("path", "home", "tmp", "cache")

HANGS = Cause("mount-hangs", "{where} does not answer on {nodes}")
BROKEN = Cause("mount-broken", "{where} cannot be reached on {nodes}")
FELL = Cause("mount-fell-read-only", "{where} became read-only on {nodes}", explains=False)
REFUSED = Cause("path-refused", "{where} may not be read on {nodes}")
LITTLE = Cause("disk-full", "{where} has little space on {nodes}", explains=False)
NO_INODES = Cause("inodes-out", "{where} has hardly any inodes left on {nodes}", explains=False)


@check(
    explains=["path.same", "fs.shared"],
    required=False,
    source="https://man7.org/linux/man-pages/man5/nfs.5.html",
)
def host_mounts(facts: PlaceFacts) -> Iterator[Finding]:
    """The file systems that a job uses answer, can be written, and have space and inodes.

    Looks at:
        /, home, HF_HOME, TORCH_HOME, XDG_CACHE_HOME, every ``--path``, and network mounts: whether they
        answer, their space and inodes (statvfs), and their entries in /proc/self/mountinfo. Each is read
        in a separate process, which is given up after four seconds. For temporary files see
        ``host.disk``.

    Matters because:
        If the server of a mount is down, every process that touches the mount waits and cannot be
        interrupted. A full disk ends a job when it writes. So does a disk without inodes, although ``df``
        shows free space.

    Fix:
        Start the server of the mount that hangs again, or unmount it. Delete what fills a disk, or set
        the cache's variable to another disk.
    """
    judged: set[str | None] = set()
    for location in facts.places:
        if location.error is not None or location.fell_read_only or location.readable is False:
            yield from _unusable(location, facts.patience_s)
        elif location.writable and location.mount_point not in judged:
            judged.add(location.mount_point)
            yield from _space(location)


def _unusable(location: Place, patience_s: float) -> Iterator[Finding]:
    """What does not answer, or not as it should. A path that is not there is for path.same."""
    reason = unread_reason(location, patience_s)
    where, status = location.mount_point or location.path, Status.WARN
    if location.role in OF_THE_JOB:
        where, status = location.path, Status.FAIL
    if location.error == UNTRIED:
        yield unknown(HERE, f"{location.path}: {reason}")
    elif location.error == HUNG or location.error in MOUNT_ERRORS:
        yield cause_at(HANGS if location.error == HUNG else BROKEN, where).say(
            status,
            f"{where} ({mount_text(location)}): {reason}",
            observed=reason,
            expected="an answer at once",
            seen=seen(f"stat {where}", reason),
            fixes=_remount(location.mount_point or where),
        )
    elif location.fell_read_only:
        text = "the kernel made it read-only, as it does after an error"
        yield cause_at(FELL, where).say(
            status,
            f"{where} ({mount_text(location)}): {text}",
            observed="read-only",
            expected="as it was mounted, for writing",
            seen=seen("/proc/self/mountinfo", f"{location.fs_type} ro", "file"),
            fixes=look(
                "read the kernel's messages", "dmesg -T | grep -iE 'ext4|btrfs|I/O error' | tail", root=True
            ),
        )
    elif location.role == "path" and (location.readable is False or location.error in ("EACCES", "EPERM")):
        yield cause_at(REFUSED, where).fail(
            f"{where} may not be read by the login user",
            observed=location.error or "no permission",
            expected="a path that the job may read",
            fixes=look("see who has access", f"ls -ld {quoted(where)}; id"),
        )


def _space(location: Place) -> Iterator[Finding]:
    enough = ENOUGH_BYTES.get(location.role, LEAST_BYTES)
    # Where temporary files go host.disk has judged the space.
    if location.role != "tmp" and location.free_bytes < min(enough, LEAST_SHARE * location.total_bytes):
        free = f"{size(location.free_bytes)} free"
        yield cause_at(LITTLE, location.path).warn(
            f"{location.path} ({mount_text(location)}) has {free_space(location)}",
            observed=free,
            expected=f"at least {size(int(min(enough, LEAST_SHARE * location.total_bytes)))}",
            seen=seen(f"df {location.path}", free, "command"),
            fixes=clean_up(location.path),
        )
        return
    left, total = location.inodes_free, location.inodes_total
    if total and left < min(LEAST_INODES, LEAST_INODE_SHARE * total):
        here = quoted(location.path)
        yield cause_at(NO_INODES, location.path).say(
            Status.FAIL if location.role == "tmp" and not left else Status.WARN,
            f"{location.path} ({mount_text(location)}) has {left} of {total} inodes left",
            observed=f"{left} inodes",
            expected=f"at least {max(1, min(LEAST_INODES, int(LEAST_INODE_SHARE * total)))}",
            seen=seen(f"df -i {location.path}", f"{left} of {total}", "command"),
            fixes=look(
                "see which folders have the most files",
                f"df -i {here}; du -x --inodes {here} | sort -n | tail",
            ),
        )


def _remount(point: str) -> tuple[Fix, ...]:
    mounts = f"grep -F -- {quoted(point)} /proc/self/mountinfo"
    see = look(
        "see what is mounted there, and read the kernel's messages", f"{mounts}; dmesg -T | tail", root=True
    )
    off = run(
        "start its server again; or unmount it, so that nothing waits for it any more",
        f"umount -l {quoted(point)}",
        root=True,
        risk="medium",
        loses="data that is not yet on the server",
        persistent=False,
    )
    return see, off
