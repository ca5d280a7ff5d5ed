"""A worker process: logs in to its share of the nodes and carries requests to their agents.

Speaks with the main process over stdin and stdout (`messages`). Ends when stdin ends, and with it every
connection and so every agent: nothing is left when the main process is killed. gevent replaces sockets and
threads before anything else is imported, and only here.
"""

import gc
import sys
from types import SimpleNamespace

from gevent import events, monkey

gc.disable()  # until all is imported
# Invoke, which Fabric is made of, takes from the one a class that helps to test, and with it comes asyncio;
# by the other it reads configuration, of which there is none here.
for unused in ("unittest.mock", "invoke.vendor.yaml"):
    sys.modules.setdefault(unused, SimpleNamespace(Mock=None))  # type: ignore[arg-type]
# No plug-in of gevent has a say here; to look for some it reads the metadata of all packages 23 times.
events.notify_and_call_entry_points = events.notify
monkey.patch_all(ssl=False)

import contextlib  # noqa: E402
import fcntl  # noqa: E402
import logging  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
from typing import NoReturn  # noqa: E402

import gevent  # noqa: E402
import gevent.os  # noqa: E402
import msgspec  # noqa: E402
from gevent.event import Event  # noqa: E402

from netdoctor.transport.ssh.link import fence_paramiko  # noqa: E402
from netdoctor.transport.ssh.messages import (  # noqa: E402
    LOOKUP_THREADS,
    FromWorker,
    Splitter,
    Start,
    ToWorker,
    framed,
)
from netdoctor.transport.ssh.nodes import Worker  # noqa: E402

# What many nodes say within so long goes to the main process at once: to wake it up costs both more than to
# say it. Of few nodes each is waited for.
TOGETHER_S = 0.03
TOGETHER_NODES = 256
PIPE_BYTES = 1 << 20


class Output:
    """Writes messages to the main process without ever blocking a node. nodes: how many it is written of."""

    nodes = 0

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._parts: list[bytes] = []
        self._ready = Event()
        gevent.os.make_nonblocking(fd)
        with contextlib.suppress(OSError):  # as much as the user may have
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def emit(self, message: FromWorker, result: bytes = b"") -> None:
        self._parts.append(framed(message, result))
        self._ready.set()

    def run(self) -> None:
        while True:
            self._ready.wait()
            gevent.sleep(TOGETHER_S * min(1.0, self.nodes / TOGETHER_NODES))
            self._ready.clear()
            data = memoryview(b"".join(self._parts))
            self._parts.clear()
            while data:
                data = data[gevent.os.nb_write(self._fd, data) :]


def _end_process() -> NoReturn:
    """Leave at once; the kernel closes every connection, and each agent sees its stdin end."""
    os._exit(0)


def main() -> None:
    """Serve the main process until it closes our stdin."""
    logging.disable(logging.CRITICAL)
    fence_paramiko()
    # Sessions are long-lived and made of cycles: collecting young objects all the time finds nothing.
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gevent.get_hub().threadpool_size = LOOKUP_THREADS
    output = Output(1)
    gevent.spawn(output.run)
    gevent.os.make_nonblocking(0)
    splitter = Splitter()
    decode = msgspec.json.Decoder(ToWorker).decode
    worker: Worker | None = None
    start: Start | None = None
    try:
        while data := gevent.os.nb_read(0, 1 << 20):
            for body in splitter.feed(data):
                if start is not None and worker is None:
                    output.nodes = len(start.nodes)
                    worker = Worker(start, body, output.emit)
                    worker.run()
                    continue
                message = decode(body)
                if isinstance(message, Start):
                    start = message
                elif worker is not None:
                    worker.call(message)
    except OSError:
        pass
    if worker is not None:
        worker.end()
    _end_process()


if __name__ == "__main__":
    main()
