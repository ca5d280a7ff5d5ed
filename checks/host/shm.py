"""Size of /dev/shm."""

import re
from collections.abc import Iterator, Sequence

from netdoctor.check import check
from netdoctor.checks._shared.edits import append
from netdoctor.checks._shared.job import only_gloo
from netdoctor.checks._shared.text import GIB, MIB, listing, quoted, size
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import FileSystem, HostFacts, LimitFacts
from netdoctor.facts.software import Job
from netdoctor.model import Cause, Finding, Fix, in_job, look, run, seen

# NCCL's SHM transport and DataLoader workers live here; container engines give 64 MB unless asked.
# Below 64 MiB + one segment init fails with ENOSPC; 1 GiB is the usual advice (docker --shm-size=1g).
LEAST_BYTES = 128 * MIB
ADVISED_BYTES = GIB

# What may stand in a command of the names in /dev/shm: nccl-Ab12Cd, torch_4711_2817_0, sem.mp-x1.
_SEGMENT = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,100}")

UNUSABLE = Cause("shm-unusable", "/dev/shm cannot be used on {nodes}")
SMALL = Cause("shm-small", "/dev/shm is too small on {nodes}")
LEFT_OVER = Cause("shm-left-over", "old jobs left files that use memory in /dev/shm of {nodes}")


@check(source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory")
def host_shm(host: HostFacts, limits: LimitFacts, gpu: GpuFacts | None, job: Job) -> Iterator[Finding]:
    """/dev/shm is large enough for NCCL and data loaders.

    Looks at:
        Size and free space of the file system at /dev/shm (statvfs), and whether it is writable. Also the
        total size of files of NCCL, torch and Python there that no process has open. In a container these
        files are not counted, because other containers may use them.

    Matters because:
        NCCL's shared-memory transport and PyTorch's DataLoader workers put segments there. Containers get
        64 MB by default. NCCL then ends with "No space left on device" or, in releases 2.16 to 2.18,
        SIGBUS. On a node without a GPU, or with ``--backend gloo``, it is a warning: gloo does not use
        it.

    Fix:
        Delete leftover files. On a machine remount it larger; start a container with ``--shm-size`` or
        ``--ipc=host``.
    """
    shm, free = limits.shm, size(limits.shm.free_bytes)
    evidence = seen("statvfs /dev/shm", free, "file")
    if shm.error or not shm.writable:
        yield UNUSABLE.fail(
            f"/dev/shm cannot be used: {shm.error or 'not writable'}",
            expected="a writable tmpfs",
            seen=evidence,
            fixes=_enlarge(host, shm, ADVISED_BYTES),
        )
        return
    stops = shm.free_bytes < LEAST_BYTES
    spared = stops and only_gloo(job, [gpu])
    left = 0 if host.container else limits.stale_shm_bytes
    if left >= ADVISED_BYTES or shm.free_bytes < ADVISED_BYTES <= shm.free_bytes + left:
        yield (LEFT_OVER.fail if stops and not spared else LEFT_OVER.warn)(
            f"{size(left)} of /dev/shm are files that no process uses, {free} are free",
            observed=size(left),
            expected="no files of jobs that have ended",
            seen=seen("/dev/shm", listing(limits.stale_shm_files, 8), "file"),
            fixes=_remove_left_over(limits.stale_shm_files),
        )
    elif shm.free_bytes < ADVISED_BYTES:
        whom = "; gloo does not use it, NCCL and data loaders with workers would fail" if spared else ""
        say = SMALL.fail if stops and not spared else SMALL.warn
        yield say(
            f"/dev/shm has {free} free of {size(shm.total_bytes)}{whom}",
            observed=free,
            expected=f"at least {size(ADVISED_BYTES)}",
            seen=evidence,
            fixes=_enlarge(host, shm, ADVISED_BYTES),
        )


def _enlarge(host: HostFacts, shm: FileSystem, least_bytes: int) -> tuple[Fix, ...]:
    """Half of the memory for /dev/shm, the kernel's own default: now, and from each boot on."""
    if host.container:
        larger = in_job(
            f"start the {host.container} container with a larger shared memory, or the host's",
            "docker run --shm-size=16g ...   # or --ipc=host",
        )
        return (larger,)
    size_mib = max(least_bytes, host.memory_total_bytes // 2) // MIB
    smaller = f"mount -o remount,size={shm.total_bytes // 1024}k /dev/shm" if shm.total_bytes else ""
    now = run(
        "enlarge it to half of the memory, the kernel's own default",
        f"mount -o remount,size={size_mib}M /dev/shm",
        undo=smaller,
        root=True,
        persistent=False,
    )
    line = f"tmpfs /dev/shm tmpfs nosuid,nodev,size={size_mib}M 0 0"
    back = f"sed -i -e '\\|^{line}$|d' -e 's/^#netdoctor //' /etc/fstab"
    lasting = run(
        "enlarge it by its line in /etc/fstab, and keep only that line",
        f"f=/etc/fstab; {back}; sed -i -E 's|^[^#]+[[:space:]]/dev/shm[[:space:]]|#netdoctor &|' $f && "
        f"{append(quoted(line))} && mount -o remount /dev/shm",
        undo=" && ".join(filter(None, (back, smaller))),
        root=True,
    )
    return now, lasting


def _remove_left_over(names: Sequence[str]) -> tuple[Fix, ...]:
    """Files in /dev/shm that nobody uses: unless somebody does by the time it is pasted."""
    plain = " ".join(name for name in names if _SEGMENT.fullmatch(name))
    if not plain:
        return ()
    used = "{ ls -l /proc/[0-9]*/fd; cat /proc/[0-9]*/maps; } 2>/dev/null | grep -F /dev/shm/"
    each = 'case $used in *"/dev/shm/$f"*) ;; *) rm -f "/dev/shm/$f" ;; esac'
    remove = run(
        "delete those that no process has open",
        f"used=$({used}); for f in {plain}; do {each}; done",
        root=True,
        risk="medium",
        loses="the data in them",
    )
    return look("see who owns them, and how old they are", "ls -l /dev/shm"), remove
