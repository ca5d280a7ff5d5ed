"""Questions that may hang for ever, as one to a mount whose server is gone, asked in a forked child.

A thread that hangs in the kernel would keep the agent itself from ending, and with it the login session.
"""

import os
import select
import time

from .. import runtime, wire
from . import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Sequence

_ANSWER_CAP_BYTES = 256 * 1024
_FORK_S = 2.0


class Hung(Exception):
    """The child gave no answer in time."""


class Asker(object):
    """A forked child that answers function(question) for one question at a time.

    last: what it does when nobody asks any more, the agent's end among the reasons: also where that was
    killed, but not where the child itself is.
    """

    def __init__(self, function: "Callable[[Any], Any]", last: "Optional[Callable[[], Any]]" = None) -> None:
        """Raises OSError where no process can be started."""
        questions, self._out = os.pipe()
        self._in, answers = os.pipe()
        try:
            self.pid = runtime.fork_child()
        except OSError:
            for fd in (questions, self._out, self._in, answers):
                os.close(fd)
            raise
        if self.pid == 0:
            try:
                _serve(function, questions, answers)
            finally:
                # Nobody asks any more; or nobody reads the answer to what was asked before.
                try:
                    if last:
                        last()
                finally:
                    os._exit(0)
        os.close(questions)
        os.close(answers)
        try:
            # A lock that another thread held at the fork is held there for ever: that is no mount's fault.
            self.ask(None, _FORK_S)
        except Hung:
            self.close()
            raise OSError("a forked child does not run")

    def ask(self, question: "Any", patience_s: float) -> "Any":
        """Return the answer. Raises Hung, after which the child is of no use; OSError where it has ended."""
        data = wire.dumps(question).encode() + b"\n"
        os.write(self._out, data)
        end = time.monotonic() + patience_s
        got = b""
        while not got.endswith(b"\n"):
            if not select.select([self._in], [], [], max(0.0, end - time.monotonic()))[0]:
                raise Hung()
            part = os.read(self._in, 65536)
            if not part or len(got) > _ANSWER_CAP_BYTES:
                raise OSError("the child that looks at file systems ended")
            got += part
        return wire.loads(got.decode("utf-8", "replace"))

    def close(self) -> None:
        """End the child. One that hangs in the kernel ends when the kernel lets go of it."""
        let_go([self], 0.0)


def let_go(askers: "Sequence[Asker]", patience_s: float) -> None:
    """Ask them no more, and give them time for what they do last."""
    for asker in askers:
        os.close(asker._out)
    end = time.monotonic() + patience_s
    for asker in askers:
        # A child that has ended has closed its end; before, the answer to a last question may come.
        os.set_blocking(asker._in, False)  # a thread that waits for that answer may take it
        while select.select([asker._in], [], [], max(0.0, end - time.monotonic()))[0]:
            try:
                if not os.read(asker._in, 65536):
                    break
            except BlockingIOError:
                pass
        os.close(asker._in)
        runtime.end_child(asker.pid)


def _serve(function: "Callable[[Any], Any]", questions: int, answers: int) -> None:
    """Answer until nobody asks any more. Nothing of the agent's is kept open, its session above all."""
    for name in files.names("/proc/self/fd") or map(str, range(1024)):
        if int(name) not in (questions, answers):
            try:
                os.close(int(name))
            except OSError:
                pass  # that of the listing itself
    got = b""
    while True:
        part = os.read(questions, 65536)
        if not part:
            return
        got += part
        if got.endswith(b"\n"):
            question = wire.loads(got.decode())
            answer = wire.dumps(None if question is None else function(question)).encode() + b"\n"
            while answer:
                answer = answer[os.write(answers, answer) :]
            got = b""


def answers(
    function: "Callable[[Any], Any]", questions: "Sequence[Any]", patience_s: float, hung_at_most: int
) -> "list[Any]":
    """Return function(question) for each: None where it hung, and for all that come after too many that did.

    Without a child (the user may start no more processes) it is asked here.
    """
    found = []  # type: list[Any]
    asker = None
    hung = 0
    for question in questions:
        if hung >= hung_at_most:
            found.append(None)
            continue
        try:
            asker = asker or Asker(function)
        except OSError:
            found.append(function(question))
            continue
        try:
            found.append(asker.ask(question, patience_s))
        except (Hung, OSError, ValueError):
            found.append(None)
            hung += 1
            asker.close()
            asker = None
    if asker:
        asker.close()
    return found
