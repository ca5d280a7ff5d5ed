"""File systems that a job uses: that they answer, can be written, and have space."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.positions import MOUNT_ERRORS, cause_at, free_space, mount_text, unread_reason
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
FELL = Cause("mount-fell-read-only", "{where} made itself read-only on {nodes}", explains=False)
REFUSED = Cause("path-refused", "{where} may not be read on {nodes}")
LITTLE = Cause("disk-full", "{where} has little space on {nodes}", explains=False)
NO_INODES = Cause("inodes-out", "{where} has hardly any inodes left on {nodes}", explains=False)


@check(
    explains=["path.same", "fs.shared"],
    required=False,
    source="https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/",
)
def host_mounts(places: PlaceFacts) -> Iterator[Finding]:
    """The file systems that a job uses answer, can be written, and have space and inodes.

    Looks at:
        /, home, HF_HOME, TORCH_HOME, XDG_CACHE_HOME, every ``--path``, and mounts from the network: whether
        they answer, space and inodes (statvfs), and what /proc/self/mountinfo says of them. Each is asked in
        a process of its own, which is given up after four seconds. For temporary files see ``host.disk``.

    Matters because:
        A mount whose server is gone keeps whatever touches it waiting, and cannot be interrupted. A full disk
        ends a job when it writes; so does one without inodes, while ``df`` shows space.

    Fix:
        Bring the server of a mount that hangs back, or unmount it; remove what fills a disk, or point the
        cache's variable at another one.
    """
    told: set[str | None] = set()
    for place in places.places:
        if place.error is not None or place.fell_read_only or place.readable is False:
            yield from _trouble(place, places.patience_s)
        elif place.writable and place.mount_point not in told:
            told.add(place.mount_point)
            yield from _space(place)


def _trouble(place: Place, patience_s: float) -> Iterator[Finding]:
    """What does not answer, or not as it should. A path that is not there is for path.same."""
    said = unread_reason(place, patience_s)
    where, status = place.mount_point or place.path, Status.WARN
    if place.role in OF_THE_JOB:
        where, status = place.path, Status.FAIL
    if place.error == UNTRIED:
        yield unknown(HERE, f"{place.path}: {said}")
    elif place.error == HUNG or place.error in MOUNT_ERRORS:
        yield cause_at(HANGS if place.error == HUNG else BROKEN, where).say(
            status,
            f"{where} ({mount_text(place)}): {said}",
            observed=said,
            expected="an answer at once",
            seen=seen(f"stat {where}", said),
            fixes=_remount(place.mount_point or where),
        )
    elif place.fell_read_only:
        text = "the kernel made it read-only, as it does after an error"
        yield cause_at(FELL, where).say(
            status,
            f"{where} ({mount_text(place)}): {text}",
            observed="read-only",
            expected="as it was mounted, for writing",
            seen=seen("/proc/self/mountinfo", f"{place.fs_type} ro", "file"),
            fixes=look(
                "see what the kernel said", "dmesg -T | grep -iE 'ext4|btrfs|I/O error' | tail", root=True
            ),
        )
    elif place.role == "path" and (place.readable is False or place.error in ("EACCES", "EPERM")):
        yield cause_at(REFUSED, where).fail(
            f"{where} may not be read by the login user",
            observed=place.error or "no permission",
            expected="a path that the job may read",
            fixes=look("see who may", f"ls -ld {quoted(where)}; id"),
        )


def _space(place: Place) -> Iterator[Finding]:
    enough = ENOUGH_BYTES.get(place.role, LEAST_BYTES)
    # Where temporary files go host.disk has judged the space.
    if place.role != "tmp" and place.free_bytes < min(enough, LEAST_SHARE * place.total_bytes):
        free = f"{size(place.free_bytes)} free"
        yield cause_at(LITTLE, place.path).warn(
            f"{place.path} ({mount_text(place)}) has {free_space(place)}",
            observed=free,
            expected=f"at least {size(int(min(enough, LEAST_SHARE * place.total_bytes)))}",
            seen=seen(f"df {place.path}", free, "command"),
            fixes=_clean(place.path),
        )
        return
    left, total = place.inodes_free, place.inodes_total
    if total and left < min(LEAST_INODES, LEAST_INODE_SHARE * total):
        here = quoted(place.path)
        yield cause_at(NO_INODES, place.path).say(
            Status.FAIL if place.role == "tmp" and not left else Status.WARN,
            f"{place.path} ({mount_text(place)}) has {left} of {total} inodes left",
            observed=f"{left} inodes",
            expected=f"at least {max(1, min(LEAST_INODES, int(LEAST_INODE_SHARE * total)))}",
            seen=seen(f"df -i {place.path}", f"{left} of {total}", "command"),
            fixes=look(
                "see which folders hold the files", f"df -i {here}; du -x --inodes {here} | sort -n | tail"
            ),
        )


def _remount(point: str) -> tuple[Fix, ...]:
    see = look("see what is mounted there, and what the kernel said", "dmesg -T | tail", root=True)
    off = run(
        "bring its server back; or take it out of the way, so that nothing waits for it any more",
        f"umount -l {quoted(point)}",
        root=True,
        risk="medium",
        loses="what was not written back",
        persistent=False,
    )
    return off, see


def _clean(path: str) -> Fix:
    place = quoted(path)
    return look(
        "see what fills it, and remove what nobody uses",
        f"df -h {place}; du -xah {place} 2>/dev/null | sort -h | tail -n 15",
        root=True,
    )
