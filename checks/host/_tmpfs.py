"""Commands that make memory file systems larger."""

import re
from collections.abc import Sequence

from netdoctor.checks._shared.text import GIB, MIB, quoted
from netdoctor.facts.host import FileSystem, HostFacts
from netdoctor.model import Fix, in_job, look, run

# What may stand in a command of the names in /dev/shm: nccl-Ab12Cd, torch_4711_2817_0, sem.mp-x1.
_SEGMENT = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,100}")


def enlarge_shm(host: HostFacts, shm: FileSystem, least_bytes: int) -> tuple[Fix, ...]:
    """Half of the memory for /dev/shm, the kernel's own default: now, and from each boot on."""
    if host.container:
        larger = in_job(
            f"start the {host.container} container with a larger shared memory, or the host's",
            "docker run --shm-size=16g ...   # or --ipc=host",
        )
        return (larger,)
    wanted = max(least_bytes, host.memory_total_bytes // 2) // MIB
    now = run(
        "enlarge it to half of the memory, the kernel's own default",
        f"mount -o remount,size={wanted}M /dev/shm",
        undo=f"mount -o remount,size={shm.total_bytes // 1024}k /dev/shm" if shm.total_bytes else "",
        root=True,
        persistent=False,
    )
    lasting = run(
        "enlarge it by its line in /etc/fstab, the only one that is kept for it",
        r'sed -i -E "\|^[^#]+[[:space:]]/dev/shm[[:space:]]|d" /etc/fstab && '
        f'echo "tmpfs /dev/shm tmpfs nosuid,nodev,size={wanted}M 0 0" >> /etc/fstab && '
        "mount -o remount /dev/shm",
        root=True,
    )
    return now, lasting


def enlarge_tmp(tmp: FileSystem) -> Fix:
    """Four GiB for the place of temporary files."""
    return run(
        "enlarge it; it takes memory only for what is in it",
        f"mount -o remount,size={4 * GIB // MIB}M {quoted(tmp.path)}",
        root=True,
        persistent=False,
    )


def remove_left_over(names: Sequence[str]) -> tuple[Fix, ...]:
    """Files in /dev/shm that nobody uses: unless somebody does by the time it is pasted."""
    plain = " ".join(name for name in names if _SEGMENT.fullmatch(name))
    if not plain:
        return ()
    used = "{ ls -l /proc/[0-9]*/fd; cat /proc/[0-9]*/maps; } 2>/dev/null | grep -F /dev/shm/"
    each = 'case $used in *"/dev/shm/$f"*) ;; *) rm -f "/dev/shm/$f" ;; esac'
    remove = run(
        "remove those that no process has open",
        f"used=$({used}); for f in {plain}; do {each}; done",
        root=True,
        risk="medium",
        loses="what is in them",
    )
    return look("see whose they are, and since when", "ls -l /dev/shm"), remove
