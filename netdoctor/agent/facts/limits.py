"""Group `limits`: resource limits of the login session, and the memory file systems."""

import os
import resource
import time

from .. import runtime
from ..system import files, procs
from ..system.mounts import mount_of, read_mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional

    from ..system.mounts import Mount

# NCCL's segments, torch's shared tensors, PSM2's and POSIX semaphores.
_SHM = ("nccl-", "torch_", "psm_", "sem.")
STALE_AFTER_S = 60
MAX_STALE_NAMES = 50
SCAN_S = 2.0


def limit(name: str, index: int, limits: "Mapping[str, tuple[int, int]]") -> "Optional[int]":
    """Return a soft (0) or hard (1) limit of the session; None is unlimited."""
    pair = limits.get(name)
    return None if pair is None or pair[index] == resource.RLIM_INFINITY else pair[index]


def file_system(path: str, mounts: "list[Mount]", root: str = "/") -> "dict[str, Any]":
    """Return facts.host.FileSystem. A full or read-only file system is found without writing to it."""
    real = files.under(root, path)
    mount = mount_of(path, mounts)
    is_mount = mount is not None and mount.point == path
    reply = {"path": path, "fs_type": None, "is_mount": is_mount}  # type: dict[str, Any]
    try:
        stat = os.statvfs(real)
    except OSError as e:
        reply.update(writable=False, error=os.strerror(e.errno) if e.errno else str(e))
        return dict(reply, fs_type=mount.kind if mount and is_mount else None)
    reply.update(
        fs_type=mount.kind if mount else None,
        total_bytes=stat.f_blocks * stat.f_frsize,
        free_bytes=stat.f_bavail * stat.f_frsize,
        writable=os.access(real, os.W_OK) and not stat.f_flag & os.ST_RDONLY,
    )
    return reply


def _in_use(candidates: "set[str]", root: str, end: float) -> "tuple[set[str], bool]":
    """Return names of /dev/shm that processes have mapped or open, and whether all were readable."""
    found = set()  # type: set[str]
    complete = True
    for pid in procs.pids(root):
        if time.monotonic() > end:
            return found, False
        base = files.under(root, "/proc/%d" % pid)
        try:
            maps = files.read_text(base + "/maps", 4 << 20)
            found.update(part.split(None, 1)[0] for part in maps.split("/dev/shm/")[1:] if part.split())
            for fd in os.listdir(base + "/fd"):
                target = os.readlink(base + "/fd/" + fd)
                if target.startswith("/dev/shm/"):
                    found.add(target[len("/dev/shm/") :].split(" (deleted)")[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            complete = False
        if candidates <= found:
            break
    return found, complete


def stale_shm(root: str, now: float) -> "tuple[list[str], int]":
    """Return names and total size of shared-memory files that no living process uses.

    A file of another user whose processes we may not look into is left out, unless its name carries the
    pid of a process that is gone. Where /proc does not show all processes, only files of our own count.
    """
    folder = files.under(root, "/dev/shm")
    candidates = {}
    for name in files.names(folder):
        if name.startswith(_SHM):
            try:
                stat = os.lstat(os.path.join(folder, name))
            except OSError:
                continue
            if now - stat.st_mtime > STALE_AFTER_S:
                candidates[name] = stat
    if not candidates:
        return [], 0
    used, complete = _in_use(set(candidates), root, time.monotonic() + SCAN_S)
    shows_all = procs.comm(2, root) == "kthreadd"  # no container's own, and no hidepid
    stale = []
    size = 0
    for name, stat in sorted(candidates.items()):
        # torch_1234_567_0: its maker
        _, pid, *rest = name.split("_") if name.startswith("torch_") else ("", "")
        owner_gone = bool(rest) and pid.isdecimal() and not os.path.exists(files.under(root, "/proc/" + pid))
        ours = stat.st_uid == os.getuid()
        if name not in used and (ours or (shows_all and (complete or owner_gone))):
            stale.append(name)
            size += stat.st_blocks * 512
    return stale[:MAX_STALE_NAMES], size


def temporary(tmpdir: "Optional[str]", root: str) -> str:
    """Return where the job's temporary files go: its TMPDIR or the session's if it can be used, else /tmp.

    Python goes on to /tmp where TMPDIR cannot be written. [cpython Lib/tempfile.py _candidate_tempdir_list]
    """
    path = tmpdir or os.environ.get("TMPDIR") or "/tmp"
    real = files.under(root, path)
    usable = path.startswith("/") and os.path.isdir(real) and os.access(real, os.W_OK)
    return os.path.normpath(path) if usable else "/tmp"


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.host.LimitFacts."""
    limits = runtime.session_limits
    mounts = read_mounts(root)
    stale, stale_bytes = stale_shm(root, time.time())
    return {
        "memlock_soft_bytes": limit("MEMLOCK", 0, limits),
        "memlock_hard_bytes": limit("MEMLOCK", 1, limits),
        "nofile_soft": limit("NOFILE", 0, limits),
        "nofile_hard": limit("NOFILE", 1, limits),
        "stack_soft_bytes": limit("STACK", 0, limits),
        "nproc_soft": limit("NPROC", 0, limits),
        "shm": file_system("/dev/shm", mounts, root),
        "tmp": file_system(temporary(args.get("tmpdir"), root), mounts, root),
        "stale_shm_files": stale,
        "stale_shm_bytes": stale_bytes,
    }
