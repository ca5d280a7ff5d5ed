"""The few system calls that Python 3.11 does not wrap, and running commands with clear errors."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 0x2

# What a login on a node finds, and what every command that the lab runs there gets: nothing of
# the caller's own environment may leak into a node.
NODE_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}

_libc = ctypes.CDLL(None, use_errno=True)


class LabError(Exception):
    """What went wrong in one clear line, and what to do about it."""


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, flags: int = 0) -> None:
    _check(_libc.setns(fd, flags), "setns")


def sethostname(name: str) -> None:
    raw = name.encode()
    _check(_libc.sethostname(raw, len(raw)), "sethostname")


def mount(source: str, target: str, fstype: str, flags: int = 0, data: str = "") -> None:
    result = _libc.mount(
        source.encode(), target.encode(), fstype.encode(), ctypes.c_ulong(flags), data.encode()
    )
    _check(result, f"mount {fstype or 'bind'} {source} on {target}")


def bind(source: str, target: str) -> None:
    mount(source, target, "", MS_BIND)


def pivot_here() -> None:
    """Make the working directory the root of this mount namespace, and drop the old root.

    chroot would not do: nsenter lands in the root of the mount namespace, not in a chroot.
    """
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


def set_process_name(name: str) -> None:
    """What ``ps -o comm`` and ``ss -p`` show for this process."""
    pr_set_name = 15
    _libc.prctl(pr_set_name, name.encode()[:15], 0, 0, 0)


def tool(name: str) -> str | None:
    """Path of a system program; the sbin folders are often missing from an ordinary PATH."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
    return shutil.which(name, path=path)


def command(
    argv: Sequence[str],
    *,
    stdin: str | bytes | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    timeout_s: float = 60,
) -> subprocess.CompletedProcess[bytes]:
    """Run a system program to its end; a failure becomes a `LabError` with its own words."""
    program = tool(argv[0])
    if program is None:
        raise LabError(f"{argv[0]} is not installed; the lab needs it")
    data = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            input=data if data is not None else b"",
            capture_output=True,
            env=dict(NODE_ENV if env is None else env),
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{argv[0]} did not end within {timeout_s:g} s") from error
    if check and done.returncode != 0:
        lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise LabError(f"{' '.join(argv[:6])}: {lines[-1] if lines else done.returncode}")
    return done
