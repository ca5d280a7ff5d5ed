"""Processes by pid and start time: pids are reused, so a pid alone proves nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """One process of this boot; `started` is field 22 of /proc/PID/stat, in clock ticks."""

    pid: int
    started: int


def _stat(pid: int | str) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # 4711 (name with ) and spaces) S 1 4711 ...: only what follows the last bracket is safe to split
    return text.rpartition(")")[2].split()


def identify(pid: int) -> Process | None:
    """The process that has this pid now; None when there is none, or only its corpse."""
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return Process(pid, int(fields[19]))


def parent(pid: int) -> int:
    """The pid of its parent, 0 when there is no such process."""
    fields = _stat(pid)
    return 0 if fields is None else int(fields[1])


def alive(process: Process) -> bool:
    return identify(process.pid) == process


def kill(processes: Iterable[Process], sig: int = signal.SIGKILL) -> None:
    for process in processes:
        if alive(process):
            try:
                os.kill(process.pid, sig)
            except ProcessLookupError:
                continue


def wait_gone(processes: Iterable[Process], timeout_s: float = 10) -> list[Process]:
    """Wait until the processes are gone; return those that are not."""
    deadline = time.monotonic() + timeout_s
    left = [p for p in processes if alive(p)]
    while left and time.monotonic() < deadline:
        time.sleep(0.01)
        left = [p for p in left if alive(p)]
    return left


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def command_line(pid: int) -> list[str]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.rstrip(b"\0").split(b"\0") if part]


def with_argument(beginning: str) -> list[Process]:
    """Processes that have a word beginning so in their command line."""
    found = []
    for pid in all_pids():
        words = command_line(pid)
        if pid != os.getpid() and any(word.startswith(beginning) for word in words):
            process = identify(pid)
            if process is not None:
                found.append(process)
    return found


def in_pid_namespace_of(pid: int) -> list[int]:
    """Every pid (as seen from here) inside the pid namespace whose first process is `pid`."""
    try:
        namespace = os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return []
    found = []
    for other in all_pids():
        try:
            if os.readlink(f"/proc/{other}/ns/pid") == namespace:
                found.append(other)
        except OSError:
            continue
    return found
