"""``-o jsonl`` while the scan runs: each event is a line, written and flushed when it happens.

The lines are those of `report/formats/jsonl.py`, with ``progress`` and ``node`` between ``start`` and the
results. A thread of its own writes them: a signal that ends the scan cuts none, a slow reader delays nothing.
"""

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from netdoctor.engine.run import Listener, Progress
from netdoctor.errors import InputError
from netdoctor.files import open_own
from netdoctor.jsontext import encode
from netdoctor.report.formats import jsonl
from netdoctor.report.model import Report
from netdoctor.report.output import Output, put
from netdoctor.report.save import READABLE, pour, write_whole

# Between two events that count answers.
COUNTS_S = 0.2


class Live:
    """One stream: begin, update as often as there is something, end."""

    def __init__(self, write: Callable[[bytes], None], close: Callable[[], None] = lambda: None) -> None:
        self.write, self.close = write, close
        self.lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.error: OSError | None = None
        self.began = self.next_count = time.monotonic()
        self.thread = threading.Thread(target=self._pour, daemon=True)

    def begin(self, report: Report) -> None:
        """The scan starts; the report says what is known before anybody is contacted."""
        self.began = time.monotonic()
        self.lines.put(jsonl.start(report))
        self.thread.start()

    def update(self, event: Progress) -> None:
        """Something happened: a node answered, or did not, or a phase begins or ends."""
        now = time.monotonic()
        if event.node is not None:
            event_data = {"event": "node", "node": event.node, "reached": not event.text, "text": event.text}
        elif event.requested and event.left and now < self.next_count:
            return  # one of many answers
        else:
            event_data = {"event": "progress", "phase": event.phase, "done": event.done, "total": event.total}
            if event.requested:
                event_data |= {"asked": event.requested, "left": event.left, "waiting": list(event.waiting)}
                self.next_count = now + COUNTS_S
        self.lines.put(encode({**event_data, "at_s": round(now - self.began, 3)}) + b"\n")

    def end(self, report: Report, detail: str) -> None:
        """The report is there. Waits until all is written. Raises OSError."""
        self.lines.put(jsonl.finish(report, detail, targets=True))
        self.lines.put(None)
        self.thread.join()
        self.close()
        if self.error is not None:
            raise self.error

    def _pour(self) -> None:
        written = False
        while (line := self.lines.get()) is not None:
            if self.error is not None:
                continue
            try:
                self.write(line)
                written = True
            except BrokenPipeError as error:
                if not written:
                    self.error = error
                else:  # who leaves after a part took what it wanted
                    self.write = lambda line: None
            except OSError as error:
                self.error = error


def begin(outputs: Sequence[Output], report: Report, *, redact: bool) -> list[Output]:
    """The outputs, those of jsonl with a stream that has begun. Raises InputError for a file.

    With --redact there is none: who stands for whom is known when the report is there.
    """
    if redact:
        return list(outputs)
    return [_begun(output, report) if output.format == "jsonl" else output for output in outputs]


def listener(first: Listener, outputs: Iterable[Output]) -> Listener:
    """Tells `first` and all streams what happens."""
    listeners = [first, *(output.live.update for output in outputs if isinstance(output.live, Live))]

    def tell(event: Progress) -> None:
        for one in listeners:
            one(event)

    return tell


def _begun(output: Output, report: Report) -> Output:
    if output.path is None:
        live = Live(put)
    else:
        try:
            descriptor = output.stream if output.stream is not None else _emptied(output.path)
        except OSError as error:
            raise InputError(f"-o jsonl={output.path}: {error.strerror or error}") from None
        live = Live(lambda line: pour(descriptor, line), lambda: os.close(descriptor))
    live.begin(report)
    return replace(output, live=live)


def _emptied(path: Path) -> int:
    """A descriptor of a new, empty file in the place of what was there."""
    write_whole(path, b"", READABLE)
    return open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
