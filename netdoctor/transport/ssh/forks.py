"""Several ssh workers for the imports of one: a process imports, forks them, says who they are and ends.

While that goes on this process is a "subreaper" (prctl(2), PR_SET_CHILD_SUBREAPER), so that the kernel makes
it the parent of those whose parent has ended: they are waited for and killed as if it had started them.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

PR_SET_CHILD_SUBREAPER = 36
# What the imports may take; then each worker is started by itself.
IMPORT_S = 30.0
# How soon an interruption is noticed.
LOOK_S = 0.25


class Forked:
    """As much of `subprocess.Popen` as a worker's owner asks for."""

    def __init__(self, pid: int, stdin: int, stdout: int) -> None:
        self.pid = pid
        self.stdin = open(stdin, "wb", buffering=0)  # noqa: SIM115  closed by its owner
        self.stdout = open(stdout, "rb", buffering=0)  # noqa: SIM115
        self._code: int | None = None

    def kill(self) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, or minus the signal. Raises TimeoutExpired."""
        finish = None if timeout is None else time.monotonic() + timeout
        while self._code is None:
            try:
                pid, status = os.waitpid(self.pid, 0 if finish is None else os.WNOHANG)
            except ChildProcessError:  # SIGCHLD is ignored here: it is gone, and nobody knows how
                pid, status = self.pid, 0
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
            elif finish is not None and time.monotonic() >= finish:
                raise subprocess.TimeoutExpired("ssh_worker", timeout or 0.0)
            else:
                time.sleep(0.002)
        return self._code


def forked(environment: Mapping[str, str], errors: Sequence[int], look: Callable[[], None]) -> list[Forked]:
    """As many workers as there is room for, the stderr of each in one of `errors`; none where that cannot be.

    look: called now and then, may raise. Raises OSError.
    """
    child_ends: list[int] = []
    our_ends: list[tuple[int, int]] = []
    pids: list[int] = []
    try:
        for one in errors:
            stdin, to = os.pipe()
            answers, stdout = os.pipe()
            our_ends.append((to, answers))
            child_ends += (stdin, stdout, one)
        with _subreaper():
            pids = _launched(environment, child_ends, look)
        return [Forked(pid, *ends) for pid, ends in zip(pids, our_ends, strict=False)]
    finally:
        unused = [end for ends in our_ends[len(pids) :] for end in ends]
        for end in (*unused, *(end for end in child_ends if end not in errors)):
            os.close(end)


@contextlib.contextmanager
def _subreaper() -> Iterator[None]:
    """Raises OSError where the kernel, or this Python, cannot do that."""
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, AttributeError):
        raise OSError("no prctl") from None
    if prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("no subreaper")
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _launched(environment: Mapping[str, str], streams: Sequence[int], look: Callable[[], None]) -> list[int]:
    """The process ids of the workers, which are our children when this returns."""
    launcher = subprocess.Popen(  # noqa: S603  our own module
        [sys.executable, "-P", "-m", "netdoctor.transport.ssh.ssh_worker", *map(str, streams)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=streams,
        env=environment,
        cwd="/",
        start_new_session=True,  # Ctrl-C reaches the main process only
    )
    output = b""
    finish = time.monotonic() + IMPORT_S
    with launcher, selectors.DefaultSelector() as selector:
        assert launcher.stdout is not None
        selector.register(launcher.stdout, selectors.EVENT_READ)
        try:
            while time.monotonic() < finish:
                look()
                if selector.select(LOOK_S):
                    if not (more := os.read(launcher.stdout.fileno(), 4096)):
                        break
                    output += more
        finally:
            launcher.kill()
    return [int(pid) for pid in output.split()]
