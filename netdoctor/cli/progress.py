"""What is going on, on stderr: a live line on a terminal, a heartbeat line elsewhere."""

import math
import os
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TextIO

from netdoctor.compat import Self
from netdoctor.engine.run import Progress as Event
from netdoctor.text import clean

HEARTBEAT_S = 10.0
# A log says soon that something has begun.
FIRST_S = 2.0
REFRESH_S = 0.2
# So many that are waited for are named.
NAMES_MAX = 3
# What goes on in a phase; an experiment of a plug-in has its name.
DOES = {
    "pythons": "looking for interpreters",
    "connect": "logging in, asking for facts",
    "clock": "comparing clocks",
    "routes": "looking up routes",
    "ports": "dialling each other's ports",
    "ray-ports": "dialling each other's raylets",
    "firewall": "reading firewall rules",
    "path-mtu": "sending packets of every size",
    "loss": "counting packets that get lost",
    "tcp": "measuring TCP rates",
    "verbs": "measuring RDMA writes",
    "allreduce": "running all-reduces with torch",
    "counters": "reading error counters again",
    "gpu-bits": "doing the same work on every GPU",
    "gpu-work": "working the GPUs for two seconds",
    "imports": "importing the job's packages",
    "mesh": "logging in from node to node",
    "reach": "asking for URLs",
    "shells": "asking login shells",
    "job-shells": "asking shells",
    "sharing": "writing and reading small files",
    "storage": "measuring file systems",
    "judge": "judging",
}


class Progress:
    """Context manager whose `update` takes engine events. Never raises: a closed stderr stops nothing."""

    def __init__(self, stream: TextIO | None, nodes: Sequence[str], *, enabled: bool = True) -> None:
        self.stream = stream
        self.nodes = tuple(nodes)
        # Who has not answered yet in a phase that tells of each node.
        self.silent = dict.fromkeys(self.nodes)
        self.enabled = enabled and stream is not None  # None: started with stderr closed
        self.live = stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.started = time.monotonic()
        self.event = Event(phase="connect", total=len(self.nodes))
        self.failures: list[str] = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)

    def update(self, event: Event) -> None:
        if event.phase != self.event.phase:
            self.silent = dict.fromkeys(self.nodes)
        if event.node is not None:
            self.silent.pop(event.node, None)
        self.event = event
        if event.node and event.text:
            self.failures.append(f"{clean(event.node, 60)} {clean(event.text, 40)}")

    def __enter__(self) -> Self:
        if self.enabled:
            try:
                self.thread.start()
            except RuntimeError:  # no thread to be had: the scan goes on without the line
                self.enabled = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop.set()
        if self.enabled:
            self.thread.join(timeout=1.0)
            if self.live:
                self._write("\r\x1b[K")

    def _beat(self) -> None:
        wait = REFRESH_S if self.live else FIRST_S
        while not self.stop.wait(wait):
            wait = REFRESH_S if self.live else HEARTBEAT_S
            line = self._line()
            self._write(f"\r\x1b[K{line}" if self.live else f"netdoctor: {line}\n")

    def _line(self) -> str:
        event = self.event
        does = DOES.get(event.phase) or clean(event.phase, 40)
        line = f"scan {self._clock()}  {does}{self._count(event)}{self._left(event)}"
        if self.failures:
            line += f"  trouble: {', '.join(self.failures[:3])}"
            if len(self.failures) > 3:
                line += f" and {len(self.failures) - 3} more"
        return line[: self._columns() - 1] if self.live else line

    def _count(self, event: Event) -> str:
        """How many have answered, and the last few that have not by name."""
        done, total, names = event.requested - event.left, event.requested, event.waiting
        if event.phase in ("connect", "pythons"):
            done, total, names = event.done, event.total, tuple(self.silent)
        left = total - done
        few = f"  waiting for {', '.join(clean(n, 60) for n in names)}" if 0 < left <= NAMES_MAX else ""
        return f" {done}/{total}{few if done else ''}" if total else ""

    @staticmethod
    def _left(event: Event) -> str:
        seconds = 0 if event.ends is None else math.ceil(event.ends - time.monotonic())
        return f"  at most {seconds} s left" if seconds > 0 else ""

    def _clock(self) -> str:
        seconds = int(time.monotonic() - self.started)
        return f"{seconds // 60:02d}:{seconds % 60:02d}"

    def _columns(self) -> int:
        try:
            return max(os.get_terminal_size(self.stream.fileno() if self.stream else 2).columns, 20)
        except (OSError, ValueError):
            return 80

    def _write(self, text: str) -> None:
        if self.stream is None:
            return
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):
            self.enabled = False
            self.stop.set()
