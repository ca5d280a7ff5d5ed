"""Machines of their own for an oracle: network, mount and UTS namespaces that questions are asked in.

Everything is forked from this process: nothing is installed, and what is written is gone with the space.
Needs root.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x20000, 0x4000000, 0x40000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
ANSWER_S = 30  # no answer takes this long; the kernel's timer ends who hangs

_libc = ctypes.CDLL(None, use_errno=True)


def refused() -> str:
    """Why spaces cannot be made here; empty where they can."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("ip") is None:
        return "needs iproute2"
    probe = subprocess.run(["unshare", "-n", "-m", "-u", "true"], capture_output=True)
    return "" if probe.returncode == 0 else "namespaces cannot be made here"


def _call(name: str, *args: Any) -> None:
    if getattr(_libc, name)(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    _call("mount", source.encode(), target.encode(), kind.encode(), flags, data.encode())


def mount(source: str, target: str) -> None:
    """Show `source` at `target`, for whoever shares this mount namespace."""
    _mount(source, target, "none", 0x1000)  # MS_BIND


def _enter(pid: int) -> None:
    # The mount namespace last: the others are found through this one's /proc.
    handles = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in ("net", "uts", "mnt")]
    for handle in handles:
        _call("setns", handle, 0)
        os.close(handle)


def forked(work: Callable[[], object]) -> Any:
    """What `work` returns in a child of its own, through JSON. Raises RuntimeError where it fails."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        _answer(work, writes)
    os.close(writes)
    with os.fdopen(reads, "rb") as stream:
        data = stream.read()
    _, status = os.waitpid(pid, 0)
    reply = json.loads(data) if data else {"error": f"no answer, status {status}"}
    if "error" in reply:
        raise RuntimeError(reply["error"])
    return reply["value"]


def _answer(work: Callable[[], object], writes: int) -> NoReturn:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, ANSWER_S)
    try:
        reply: dict[str, object] = {"value": work()}
    except BaseException:  # handed to the parent
        reply = {"error": traceback.format_exc()}
    with os.fdopen(writes, "wb") as stream:
        stream.write(json.dumps(reply).encode())
    os._exit(0)  # threads of a library may live on


class Space:
    """One machine. pid: of the process that holds it; etc: its own /etc, as seen from outside."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.pid = pid
        self.folder = folder

    @property
    def etc(self) -> Path:
        return self.folder / "etc"

    def run(self, work: Callable[[], object], environ: Mapping[str, str]) -> Any:
        """What `work` returns in the space under this environment, and no other variables."""

        def inside() -> object:
            _enter(self.pid)
            os.environ.clear()
            os.environ.update(environ)
            os.chdir("/")
            return work()

        return forked(inside)

    def batch(self, commands: list[str]) -> None:
        """Run lines of `ip`; those that the kernel refuses make a machine, too, without what they ask for."""
        argv = ["nsenter", f"--net=/proc/{self.pid}/ns/net", "ip", "-force", "-batch", "-"]
        subprocess.run(argv, input="\n".join(commands) + "\n", text=True, capture_output=True)


@contextlib.contextmanager
def space(hostname: str = "node1") -> Iterator[Space]:
    """A machine with lo alone, down. Its /etc is a copy to write to; names are looked up in its hosts file
    alone."""
    with tempfile.TemporaryDirectory(prefix="netdoctor-oracle-") as name:
        folder = Path(name)
        reads, writes = os.pipe()
        pid = os.fork()
        if pid == 0:
            _hold(folder, hostname, writes)
        os.close(writes)
        try:
            with os.fdopen(reads, "rb") as stream:
                said = stream.read()
            if said:
                raise RuntimeError(said.decode())
            yield Space(pid, folder)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _hold(folder: Path, hostname: str, writes: int) -> NoReturn:
    try:
        _call("prctl", 1, signal.SIGKILL, 0, 0, 0)
        _call("unshare", CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS)
        _mount("none", "/", "none", MS_REC | MS_PRIVATE)
        _mount("sysfs", "/sys", "sysfs")  # that of the new network namespace
        for part in ("etc", "work"):
            (folder / part).mkdir()
        _mount("overlay", "/etc", "overlay", 0, f"lowerdir=/etc,upperdir={folder}/etc,workdir={folder}/work")
        Path("/etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
        Path("/etc/hosts").write_text("127.0.0.1 localhost\n")
        if Path("/etc/nccl.conf").exists():
            Path("/etc/nccl.conf").unlink()
        _call("sethostname", hostname.encode(), len(hostname.encode()))
        for key in ("all/disable_ipv6", "default/disable_ipv6", "all/accept_dad", "default/accept_dad"):
            Path(f"/proc/sys/net/ipv6/conf/{key}").write_text("0")
        os.close(writes)
        while True:
            signal.pause()
    except BaseException as error:
        sys.stderr.flush()
        os.write(writes, f"no space: {error!r}".encode())
        os._exit(1)
