"""Runs of netdoctor without the imports, which are half of a short run.

`python -m tests.forks` makes them once; a JSON object with three streams, sent to its socket, is a run: a
fork with its own folder and environment, answered by its exit code. `tests/forked.py` asks from a shell.
The ssh worker of a run is a fork too, but of a process of its own, as gevent replaces what others import
for good.
"""

import contextlib
import gc
import io
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

LONGEST = 1 << 20


def runs(listener: socket.socket) -> None:
    """Serve runs until stdin ends."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    subprocess.Popen(
        [sys.executable, "-m", "tests.forks", "workers", str(there.fileno())],
        pass_fds=[there.fileno()],
        stdin=subprocess.DEVNULL,
    )
    there.close()
    import netdoctor.cli.progress
    import netdoctor.cli.scan
    import netdoctor.report.cli
    import netdoctor.scanning
    import netdoctor.transport.ssh.transport
    from netdoctor.cli import run

    _begin(run)
    netdoctor.transport.ssh.transport.worker_process = lambda env, errors: Worker(here, env, errors)  # type: ignore[assignment,return-value]
    gc.collect()
    gc.freeze()  # what is only looked through for garbage is copied all the same
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    return
                if key.data is not None:
                    child, asked = key.data
                    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    with asked, contextlib.suppress(OSError):  # whoever asked may have given up
                        asked.send(str(code).encode())
                    continue
                asked, _ = listener.accept()
                said, streams, _, _ = socket.recv_fds(asked, LONGEST, 3)
                job = json.loads(said)
                if not (child := os.fork()):
                    _become(job["cwd"], job["env"], streams)
                    _run(run, job["args"])
                for descriptor in streams:
                    os.close(descriptor)
                selector.register(os.pidfd_open(child), selectors.EVENT_READ, (child, asked))


def _begin(run: Callable[[Sequence[str]], int]) -> None:
    """What the first run of a process does and later ones find done: late imports, patterns, plug-ins."""
    from netdoctor.engine import registry
    from netdoctor.report import output
    from netdoctor.transport import bundle
    from tests.report.build import sample_report

    for check in registry.load_builtin().values():
        registry.matches("", check.explains)
    for name in ("", *bundle.modules()):
        bundle.pack(bundle.own_tag(), name)
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        run(["scan", "node[1-4]", "--plan"])
    for name in set(output.FORMATS) - {"none"}:
        output.render(sample_report(), name)


def _run(run: Callable[[Sequence[str]], int], args: Sequence[str]) -> NoReturn:
    """As `python -m netdoctor` ends, without taking apart what was imported: ten times a `--version`."""
    code = 1
    try:
        code = run(args)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _become(cwd: str, env: Mapping[str, str], streams: list[int]) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)


class Worker:
    """As much of `subprocess.Popen` as a worker's owner asks for; its parent is another process."""

    def __init__(self, to: socket.socket, env: Mapping[str, str], errors: int) -> None:
        said, stdin = os.pipe()
        stdout, answers = os.pipe()
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        socket.send_fds(
            to, [json.dumps({"env": dict(env), "files": files}).encode()], [said, answers, errors]
        )
        os.close(said)
        os.close(answers)
        pid, descriptors, _, _ = socket.recv_fds(to, 64, 1)
        self.pid, self._end = int(pid), descriptors[0]
        self.stdin, self.stdout = io.FileIO(stdin, "wb"), io.FileIO(stdout, "rb")

    def kill(self) -> None:
        signal.pidfd_send_signal(self._end, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        with selectors.DefaultSelector() as selector:
            selector.register(self._end, selectors.EVENT_READ)
            if not selector.select(timeout):
                raise subprocess.TimeoutExpired("ssh_worker", timeout or 0)
        return 0


def workers(asked: socket.socket) -> None:
    """Serve workers until nobody is left who could ask."""
    from netdoctor.transport.ssh import ssh_worker  # first of all: it lets gevent replace what others import

    gc.collect()
    gc.freeze()
    fork = ssh_worker.monkey.get_original("os", "fork")
    selector = ssh_worker.monkey.get_original("selectors", "PollSelector")()
    selector.register(asked, selectors.EVENT_READ, None)
    while True:
        for key, _ in selector.select():
            if key.data is not None:
                os.waitpid(key.data, 0)
                selector.unregister(key.fd)
                os.close(key.fd)
                continue
            said, streams, _, _ = socket.recv_fds(asked, LONGEST, 3)
            if not said:
                return
            job = json.loads(said)
            child = fork()
            if not child:
                selector.close()
                asked.close()
                os.setsid()
                _become("/", job["env"], streams)
                soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, job["files"]), job["files"]))
                ssh_worker.main()
            end = os.pidfd_open(child)
            socket.send_fds(asked, [str(child).encode()], [end])
            selector.register(end, selectors.EVENT_READ, child)
            for descriptor in streams:
                os.close(descriptor)


if __name__ == "__main__":
    given = socket.socket(fileno=int(sys.argv[2]))
    {"runs": runs, "workers": workers}[sys.argv[1]](given)
