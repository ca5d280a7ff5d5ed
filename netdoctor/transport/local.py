"""This machine without SSH: the same agent as a child process, over pipes."""

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from netdoctor.errors import AgentLost
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import Login, Session
from netdoctor.inventory.model import Target
from netdoctor.text import clean
from netdoctor.transport import here
from netdoctor.transport.base import (
    Event,
    Limits,
    Reply,
    Request,
    SessionEvent,
    StartPlan,
    Transport,
    missing_reply,
)
from netdoctor.transport.session import Answer, Broken, Conversation, Greeting, Send, broken_python, too_old
from netdoctor.transport.ssh.sshconfig import local_user

CLOSE_S = 1.5
# How soon `interrupt` is noticed.
NOTICED_S = 0.1
STDERR_KEPT_BYTES = 4096


class _Agent:
    """A running agent, its conversation, and the two ends of its pipes."""

    def __init__(
        self, argv: Sequence[str], marker: str, anchor_s: float, interrupted: Callable[[], None]
    ) -> None:
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
        self.conversation = Conversation(marker, anchor_s)
        self.errors = b""
        self._events: deque[Greeting | Answer | Broken] = deque()
        self._selector = selectors.DefaultSelector()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ)

    def send(self, data: bytes, finish: float) -> None:
        """Write all of it. Raises AgentLost, and TimeoutError where the agent does not read."""
        assert self.process.stdin is not None
        descriptor = self.process.stdin.fileno()
        os.set_blocking(descriptor, False)
        view = memoryview(data)
        with selectors.DefaultSelector() as writable:
            writable.register(descriptor, selectors.EVENT_WRITE)
            while view:
                if not writable.select(max(0.0, finish - time.monotonic())):
                    raise TimeoutError("the agent does not read")
                try:
                    view = view[os.write(descriptor, view) :]
                except BlockingIOError:
                    continue
                except OSError as e:
                    raise AgentLost("the agent ended") from e

    def next(self, finish: float) -> Greeting | Answer | Broken:
        """What the agent does next. Raises AgentLost, and TimeoutError."""
        while not self._events:
            self.interrupted()
            left = finish - time.monotonic()
            ready = self._selector.select(min(left, NOTICED_S)) if left > 0 else []
            if not ready and left <= 0:
                raise TimeoutError("no answer in time")
            for key, _ in ready:
                self._take(key.fileobj, finish)
        return self._events.popleft()

    def _take(self, stream: Any, finish: float) -> None:
        data = self._read(stream)
        if data is None:
            return
        if not data:
            raise AgentLost("the agent ended")
        for event in self.conversation.feed(data):
            if isinstance(event, Send):
                self.send(event.data, finish)
            else:
                self._events.append(event)

    def _read(self, stream: Any) -> bytes | None:
        """What its stdout has, b'' at its end, None for nothing. What stderr has is kept."""
        try:
            data = os.read(stream.fileno(), 1 << 18)
        except BlockingIOError:
            return None
        if stream is self.process.stdout:
            return data
        self.errors = (self.errors + data)[-STDERR_KEPT_BYTES:]
        if not data:
            self._selector.unregister(stream)
        return None

    def answer(self, request: Request, finish: float) -> Answer:
        """What comes of a request."""
        try:
            self.send(self.conversation.ask_for(request), finish)
            while not isinstance(event := self.next(finish), Answer):
                if isinstance(event, Broken):
                    return Answer(missing=Missing(Why.LOST, event.why))
        except AgentLost as error:
            return self.conversation.end(str(error)) or Answer(missing=Missing(Why.LOST, str(error)))
        except TimeoutError as error:
            return self.conversation.late(str(error)) or Answer(missing=Missing(Why.TIMED_OUT, str(error)))
        return event

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


class LocalTransport(Transport):
    """Runs an agent for each target on this machine; there is usually one."""

    def __init__(self, limits: Limits, python: str | None = None) -> None:
        self._limits = limits
        self._python = python or sys.executable
        self._agents: dict[str, _Agent] = {}
        self._leaving: list[_Agent] = []
        self._anchor = time.time() - time.monotonic()

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

    def _start(self, plan: StartPlan) -> Iterator[Event]:
        for target in plan.targets:
            finish = time.monotonic() + self._limits.node_budget_s
            session, agent = self._begin(target, finish, plan)
            yield SessionEvent(node=target.id, session=session)
            if agent is None:
                continue
            self._agents[target.id] = agent
            yield self._ask(target.id, plan.first[target.id], finish)
            if not plan.keep_open:
                self._dismiss(target.id)

    def bound_s(self, targets: Sequence[Target]) -> float:
        """Return the longest that `start` can take: one after the other."""
        return len(targets) * self._limits.node_budget_s

    def _call(self, requests: Mapping[str, Request], finish: float) -> Iterator[Reply]:
        """Send one request to each named node, one after the other."""
        for node, request in requests.items():
            yield self._ask(node, request, finish)

    def close(self) -> None:
        """End all agents within two seconds."""
        for node in list(self._agents):
            self._dismiss(node)
        finish = time.monotonic() + CLOSE_S
        for agent in self._leaving:
            agent.reap(finish)
        self._leaving.clear()

    def _begin(self, target: Target, finish: float, plan: StartPlan) -> tuple[Session, _Agent | None]:
        from netdoctor.transport.bundle import argv, build_bundle

        python = target.python or self._python
        marker = secrets.token_hex(8)
        bundle = build_bundle(marker=marker, deadline_s=plan.deadline_s, collectors=plan.collectors)
        session = partial(Session, user=local_user(), interpreter=python, transport="local", stage="agent")
        began = time.monotonic()
        try:
            agent = _Agent(argv(python, marker), marker, self._anchor, self._raise_interruption)
        except OSError as e:
            if isinstance(e, FileNotFoundError | PermissionError):
                detail = clean(f"{python}: {e.strerror}", 200)
                return session(outcome=Login.INTERPRETER, stage="shell", detail=detail), None
            local_fault, detail = here.no_process(e)
            detail = clean(detail, 200)
            return session(outcome=Login.CONTROL, stage="shell", detail=detail, trouble=local_fault), None
        with contextlib.suppress(AgentLost, TimeoutError):  # an old interpreter leaves without reading
            agent.send(bundle, finish)
        outcome, version = Login.SHELL, None
        try:
            event = agent.next(finish)
        except (AgentLost, TimeoutError) as e:
            outcome = Login.TIMEOUT if isinstance(e, TimeoutError) else Login.SHELL
            event = Broken(str(e))
        except BaseException:  # an interruption: `close` has to know of it
            self._drop(agent)
            raise
        if isinstance(event, Greeting):
            version = clean(event.hello.old_python or event.hello.python, 20)
            outcome, why = Login.OLD_PYTHON, too_old(event.hello, python)
        else:
            reason = event.why if isinstance(event, Broken) else "it gave up"
            why = f"the agent did not start: {clean(agent.errors, 200) or reason}"
            if broken := broken_python(agent.errors):
                outcome, why = Login.BROKEN_PYTHON, broken
        if why:
            self._drop(agent)
            return session(outcome=outcome, detail=clean(why, 400), python_version=version), None
        first_byte_ms = (time.monotonic() - began) * 1e3
        noise = agent.conversation.noise
        return session(
            outcome=Login.OK, python_version=version, first_byte_ms=first_byte_ms, noise=noise
        ), agent

    def _ask(self, node: str, request: Request, finish: float) -> Reply:
        agent = self._agents.get(node)
        if agent is None or agent.conversation.broken:
            return missing_reply(node, Why.LOST, agent.conversation.broken if agent else "no open session")
        return agent.answer(request, min(finish, time.monotonic() + request.timeout_s)).reply(node)

    def _dismiss(self, node: str) -> None:
        self._drop(self._agents.pop(node))

    def _drop(self, agent: _Agent) -> None:
        agent.stop()
        self._leaving.append(agent)
