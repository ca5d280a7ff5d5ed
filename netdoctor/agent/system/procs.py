"""Who a process is, from psutil where it is to be had, else from /proc. Never its arguments."""

import os
import time

from .. import runtime
from . import files, private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Optional


def user_name(uid: int) -> str:
    """Return the user's name, or the number where the user data base does not know it."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OSError):
        return str(uid)


def pids(root: str = "/") -> "Iterator[int]":
    """Return the process ids that /proc shows."""
    for name in files.names(files.under(root, "/proc")):
        if name.isdigit():
            yield int(name)


def comm(pid: int, root: str = "/") -> "Optional[str]":
    """Return the name of a process as the kernel knows it: one word of at most 15 characters."""
    title = files.text_or_none(files.under(root, "/proc/%d/comm" % pid), 64)
    return None if title is None else private.process_name(title)


# What the command lines of an agent and of its ranks hold: BOOTSTRAP of transport/bundle.py, and op_spawn.
_SCANS = (b"ndagent_loader", b"netdoctor-rank")


def is_scan(pid: int, root: str = "/") -> bool:
    """Return whether a process is netdoctor's: of this scan, or of another one at the same time."""
    try:
        arguments = files.read_bytes(files.under(root, "/proc/%d/cmdline" % pid), 8192)
    except OSError:
        return False
    return any(mark in arguments for mark in _SCANS)


# The parent of all the kernel's threads, of which a node with many cores has thousands.
KTHREADD = "/proc/2"
CHILDREN_CAP = 1 << 20


def running(root: str = "/") -> "set[str]":
    """Return the names of all processes that /proc shows, those of the kernel's own threads aside."""
    kernel = set()  # type: set[str]
    # "2 (kthreadd) S 0 …": in a container 2 is a process like any other.
    if (files.text_or_none(files.under(root, KTHREADD + "/stat")) or "").startswith("2 (kthreadd) S 0 "):
        children = files.text_or_none(files.under(root, KTHREADD + "/task/2/children"), CHILDREN_CAP)
        kernel.update((children or "").split())
    titles = set()
    for pid in map(str, pids(root)):
        if pid not in kernel:
            try:
                fd = os.open(files.under(root, "/proc/" + pid + "/comm"), os.O_RDONLY | os.O_NONBLOCK)
            except OSError:
                continue
            try:
                titles.add(os.read(fd, 64))
            except OSError:  # it has just ended
                pass
            finally:
                os.close(fd)
    # Most names come many times.
    names = (private.process_name(title.decode("utf-8", "replace").strip("\0 \t\r\n")) for title in titles)
    return {name for name in names if name}


def stat_fields(pid: int, root: str = "/") -> "list[str]":
    """Return the fields of /proc/PID/stat behind the name, which may hold anything: ``123 (name) S 1 …``."""
    text = files.text_or_none(files.under(root, "/proc/%d/stat" % pid)) or ""
    return text.rpartition(") ")[2].split()


def _age_from_proc(pid: int, root: str) -> "Optional[float]":
    # Field 22 is the start in ticks after boot, and the uptime comes from the same clock: a clock step does
    # not matter.
    uptime_s = files.uptime_s(root)
    try:
        ticks = int(stat_fields(pid, root)[19])
    except (IndexError, ValueError):
        return None
    return None if uptime_s is None else max(0.0, uptime_s - ticks / float(os.sysconf("SC_CLK_TCK")))


def is_left_over(pid: int, root: str = "/") -> bool:
    """Return whether a process of a login session of systemd's has lost its parent."""
    # 0::/user.slice/user-1000.slice/session-3.scope
    groups = files.text_or_none(files.under(root, "/proc/%d/cgroup" % pid)) or ""
    names = [line.rpartition("/")[2] for line in groups.splitlines()]
    return stat_fields(pid, root)[1:2] == ["1"] and any(
        n.startswith("session-") and n.endswith(".scope") for n in names
    )


def describe(pid: int, root: str = "/") -> "dict[str, Any]":
    """Return {"name", "user", "uid", "age_s"}; None for what the node does not let us see."""
    psutil = runtime.library("psutil") if root == "/" else None
    if psutil is not None:
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                uid = int(process.uids().real)
                return {
                    "name": comm(pid, root),  # psutil would complete it from the arguments
                    "user": user_name(uid),
                    "uid": uid,
                    "age_s": max(0.0, time.time() - float(process.create_time())),
                }
        except Exception:  # NoSuchProcess, AccessDenied, or a psutil that dislikes this kernel
            pass
    try:
        uid_or_none = os.stat(files.under(root, "/proc/%d" % pid)).st_uid  # type: Optional[int]
    except OSError:
        uid_or_none = None
    return {
        "name": comm(pid, root),
        "user": None if uid_or_none is None else user_name(uid_or_none),
        "uid": uid_or_none,
        "age_s": _age_from_proc(pid, root),
    }
