"""Run a command to its end and write down what its whole process tree cost: wall time, CPU, memory.

    measured.py RESULT.json STDIN STDOUT STDERR time|memory TIMEOUT_S COMMAND...

CPU is user and system time of the command and of everything that it started, including what outlives it, such
as connections that it left open; that is ended here. Sampling memory costs CPU, so a run does one of the two.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from typing import Any, NoReturn

PR_SET_CHILD_SUBREAPER = 36
SAMPLE_EVERY_S = 0.05


def main() -> None:
    result, stdin, stdout, stderr, kind, timeout_s, *command = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become the reaper of the command's processes")
    signal.signal(signal.SIGTERM, stop)
    peak = Peak() if kind == "memory" else None
    code: int | None = None
    try:
        with open(stdin, "rb") as given, open(stdout, "wb") as out, open(stderr, "wb") as err:
            started = time.monotonic()
            child = subprocess.Popen(command, stdin=given, stdout=out, stderr=err)
            if peak:
                peak.watch()
            try:
                code = child.wait(float(timeout_s))
            except subprocess.TimeoutExpired:
                code = None
            wall_s = time.monotonic() - started
    finally:
        end_all()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer: dict[str, Any] = {"code": code, "wall_s": wall_s, "cpu_s": used.ru_utime + used.ru_stime}
    if peak:
        answer["memory_bytes"] = peak.bytes
    with open(result, "w", encoding="ascii") as file:
        json.dump(answer, file)


def stop(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(143)


def children() -> list[int]:
    """Processes whose parent is this one."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


def end_all() -> None:
    """End and reap every process that is left of the command, so that its time is counted."""
    patience = time.monotonic() + 3
    while True:
        number = signal.SIGTERM if time.monotonic() < patience else signal.SIGKILL
        for pid in children():
            os.kill(pid, number)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.02)


class Peak:
    """The most resident memory that all processes of the command had together; shared pages count in each."""

    def __init__(self) -> None:
        import psutil

        self._psutil = psutil
        self.bytes = 0

    def watch(self) -> None:
        threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self) -> None:
        me = self._psutil.Process()
        while True:
            total = 0
            for process in me.children(recursive=True):
                try:
                    total += process.memory_info().rss
                except self._psutil.Error:
                    continue
            self.bytes = max(self.bytes, total)
            time.sleep(SAMPLE_EVERY_S)


if __name__ == "__main__":
    main()
