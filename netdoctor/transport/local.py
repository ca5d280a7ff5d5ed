"""This machine without SSH: the same agent as a child process, over pipes."""

import contextlib
import math
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import Login, Session
from netdoctor.inventory.model import Target
from netdoctor.text import clean
from netdoctor.transport import frames, here
from netdoctor.transport.base import Interruptible, Limits, Reply, Request, SessionEvent
from netdoctor.transport.ssh.sshconfig import local_user

CLOSE_S = 1.5
# How soon `interrupt` is noticed.
NOTICED_S = 0.1
STDERR_KEPT_BYTES = 4096
NEEDS_MAX = 8


class _Ended(Exception):
    """The agent is gone, or the time is up; `why` as in a missing fact."""

    def __init__(self, why: Why, detail: str) -> None:
        super().__init__(detail)
        self.why = why


class _Agent:
    """A running agent and the two ends of its pipes."""

    def __init__(self, argv: Sequence[str], marker: str, interrupted: Callable[[], None]) -> None:
        self.interrupted = interrupted
        self.process = subprocess.Popen(  # noqa: S603  # our own bootstrap, no shell
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
        self.reader = frames.FrameReader(marker)
        self.hello = frames.Hello()
        self.errors = b""
        self.number = 0
        self._payloads: deque[bytes] = deque()
        self._selector = selectors.DefaultSelector()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ)

    def send(self, data: bytes, finish: float) -> None:
        """Write all of it. Raises _Ended."""
        assert self.process.stdin is not None
        descriptor = self.process.stdin.fileno()
        os.set_blocking(descriptor, False)
        view = memoryview(data)
        with selectors.DefaultSelector() as writable:
            writable.register(descriptor, selectors.EVENT_WRITE)
            while view:
                if not writable.select(max(0.0, finish - time.monotonic())):
                    raise _Ended(Why.TIMED_OUT, "the agent does not read")
                try:
                    view = view[os.write(descriptor, view) :]
                except BlockingIOError:
                    continue
                except OSError as e:
                    raise _Ended(Why.LOST, "the agent ended") from e

    def frame(self, finish: float) -> frames.Frame:
        """Return the next message. Raises _Ended and AgentTrouble."""
        while not self._payloads:
            self.interrupted()
            left = finish - time.monotonic()
            ready = self._selector.select(min(left, NOTICED_S)) if left > 0 else []
            if not ready and left <= 0:
                raise _Ended(Why.TIMED_OUT, "no answer in time")
            for key, _ in ready:
                self._take(key.fileobj)
        return frames.decode_frame(self._payloads.popleft())

    def _take(self, stream: Any) -> None:
        try:
            data = os.read(stream.fileno(), 1 << 18)
        except BlockingIOError:
            return
        if stream is self.process.stderr and stream is not None:
            self.errors = (self.errors + data)[-STDERR_KEPT_BYTES:]
            if not data:
                self._selector.unregister(stream)
        elif data:
            self._payloads.extend(self.reader.feed(data))
        else:
            raise _Ended(Why.LOST, "the agent ended")

    def request(self, op: str, args: bytes, finish: float) -> bytes:
        """Send a request and return its result as JSON. Raises _Ended and AgentTrouble."""
        from netdoctor.transport.provide import provide_bytes

        self.number += 1
        self.send(frames.request_frame(self.number, op, args), finish)
        needs = 0
        while True:
            frame = self.frame(finish)
            if frame.need is not None and needs < NEEDS_MAX:
                needs += 1
                self.send(provide_bytes(frame.need, self.hello.machine, self.hello.bits), finish)
            elif frame.id == self.number:
                if frame.ok:
                    return bytes(frame.result)
                why = Why(frame.why) if frame.why in list(Why) else Why.FAILED
                raise _Ended(why, clean(frame.detail, 400))

    def stop(self) -> None:
        """Close its stdin; the agent leaves when it sees the end."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def reap(self, finish: float) -> None:
        """Wait for it, then kill it."""
        try:
            self.process.wait(max(0.0, finish - time.monotonic()))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._selector.close()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


class LocalTransport(Interruptible):
    """Runs an agent for each target on this machine; there is usually one."""

    def __init__(self, limits: Limits, python: str | None = None) -> None:
        self._limits = limits
        self._python = python or sys.executable
        self._agents: dict[str, _Agent] = {}
        self._leaving: list[_Agent] = []
        self._anchor = time.time() - time.monotonic()
        self.notes: tuple[str, ...] = ()

    def describe(self, target: Target) -> dict[str, Any]:
        """Return what `start` would run."""
        return {
            "transport": "local",
            "host": target.host,
            "address": None,
            "port": None,
            "user": local_user(),
            "jump": [],
            "python": target.python or self._python,
        }

    def start(
        self,
        targets: Sequence[Target],
        first: Mapping[str, Request],
        *,
        keep_open: bool,
        collectors: Mapping[str, str],
        deadline_s: float = 300.0,
    ) -> Iterator[SessionEvent | Reply]:
        """Start an agent for each target and send it its first request."""
        for target in targets:
            finish = time.monotonic() + self._limits.node_budget_s
            session, agent = self._begin(target, finish, collectors, deadline_s)
            yield SessionEvent(node=target.id, session=session)
            if agent is None:
                continue
            self._agents[target.id] = agent
            yield self._ask(target.id, first[target.id], finish)
            if not keep_open:
                self._dismiss(target.id)

    def bound_s(self, targets: Sequence[Target]) -> float:
        """Return the longest that `start` can take: one after the other."""
        return len(targets) * self._limits.node_budget_s

    def call(self, requests: Mapping[str, Request], within_s: float | None = None) -> Iterator[Reply]:
        """Send one request to each named node, one after the other."""
        end = math.inf if within_s is None else time.monotonic() + within_s
        for node, request in requests.items():
            yield self._ask(node, request, end)

    def close(self) -> None:
        """End all agents within two seconds."""
        for node in list(self._agents):
            self._dismiss(node)
        finish = time.monotonic() + CLOSE_S
        for agent in self._leaving:
            agent.reap(finish)
        self._leaving.clear()

    def _begin(
        self, target: Target, finish: float, collectors: Mapping[str, str], deadline_s: float
    ) -> tuple[Session, _Agent | None]:
        from netdoctor.transport.bundle import argv, build_bundle

        python = target.python or self._python
        marker = secrets.token_hex(8)
        bundle = build_bundle(marker=marker, deadline_s=deadline_s, collectors=collectors)
        base = {"user": local_user(), "interpreter": python, "transport": "local", "address": None}
        began = time.monotonic()
        try:
            agent = _Agent(argv(python, marker), marker, self._raise_interruption)
        except OSError as e:
            missing = isinstance(e, FileNotFoundError | PermissionError)
            trouble, detail = (None, f"{python}: {e.strerror}") if missing else here.no_process(e)
            outcome = Login.INTERPRETER if missing else Login.CONTROL
            told = {"outcome": outcome, "stage": "shell", "detail": clean(detail, 200), "trouble": trouble}
            return msgspec.convert({**base, **told}, Session), None
        failed = {**base, "stage": "agent"}
        with contextlib.suppress(_Ended):  # an old interpreter speaks and leaves without reading
            agent.send(bundle, finish)
        try:
            hello = agent.frame(finish).hello
        except (_Ended, frames.AgentTrouble) as e:
            timed_out = isinstance(e, _Ended) and e.why is Why.TIMED_OUT
            said = clean(agent.errors, 200)
            failed["outcome"] = Login.TIMEOUT if timed_out else Login.SHELL
            failed["detail"] = clean(f"the agent did not start: {said or e}", 400)
            self._drop(agent)
            return msgspec.convert(failed, Session), None
        except BaseException:  # an interruption: `close` has to know of it
            self._drop(agent)
            raise
        if hello is None or hello.old_python is not None:
            version = clean(hello.old_python or "", 20) if hello else ""
            failed["outcome"] = Login.OLD_PYTHON if version else Login.SHELL
            failed["detail"] = f"{python} is Python {version}, 3.6 or newer is needed"
            self._drop(agent)
            return msgspec.convert({**failed, "python_version": version or None}, Session), None
        agent.hello = hello
        session = {
            **base,
            "outcome": Login.OK,
            "stage": "agent",
            "python_version": clean(hello.python, 20),
            "first_byte_ms": (time.monotonic() - began) * 1e3,
            "noise": agent.reader.noise,
        }
        return msgspec.convert(session, Session), agent

    def _ask(self, node: str, request: Request, finish: float) -> Reply:
        finish = min(finish, time.monotonic() + request.timeout_s)
        agent = self._agents.get(node)
        if agent is None:
            return Reply(node=node, missing=Missing(Why.LOST, "no open session"))
        try:
            if request.op == "clock":
                result: Any = self._clock(agent, int(request.args.get("exchanges", 8)), finish)
            else:
                args = msgspec.json.encode(dict(request.args))
                result = frames.decode_result(agent.request(request.op, args, finish))
        except _Ended as e:
            missing = Missing(e.why, str(e))
        except frames.AgentTrouble as e:
            missing = Missing(Why.UNPARSABLE, str(e))
        else:
            return Reply(node=node, result=result)
        return Reply(node=node, missing=missing)

    def _clock(self, agent: _Agent, exchanges: int, finish: float) -> dict[str, Any]:
        samples = []
        for _ in range(max(1, min(exchanges, 64))):
            sent = time.monotonic()
            there = frames.decode_result(agent.request("ping", b"{}", finish))
            back = time.monotonic()
            if not isinstance(there, dict):
                raise frames.AgentTrouble("the reply to a ping cannot be read")
            times = [there.get("recv_s"), there.get("send_s")]
            if not all(isinstance(t, float | int) for t in times):
                raise frames.AgentTrouble("the reply to a ping cannot be read")
            samples.append([self._anchor + sent, *times, self._anchor + back])
        return {"samples": samples}

    def _dismiss(self, node: str) -> None:
        self._drop(self._agents.pop(node))

    def _drop(self, agent: _Agent) -> None:
        agent.stop()
        self._leaving.append(agent)
