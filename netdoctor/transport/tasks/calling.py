"""What all ways have in common where agents call this machine: conversations over a `calls.Listener`."""

import heapq
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import Login, Session
from netdoctor.text import clean
from netdoctor.transport import frames
from netdoctor.transport.base import (
    CLOCK_AT_ONCE,
    Event,
    Reply,
    Request,
    SessionEvent,
    Transport,
    last_moment,
    missing_reply,
)
from netdoctor.transport.session import Answer, Broken, Conversation, Greeting, Send
from netdoctor.transport.ssh.sshconfig import local_user
from netdoctor.transport.tasks import calls

NOTICED_S = 0.25


class Progress(Enum):
    """What whoever started the transport has been told of a node."""

    AWAITED = auto()  # nothing
    CUT_OFF = auto()  # nothing: its task runs and cannot call; what that means depends on the others
    LOGGED_IN = auto()  # a good session
    ANSWERED = auto()  # that, and its first answer
    FAILED = auto()  # a bad session

    @property
    def is_over(self) -> bool:
        """Whether it will have no session."""
        return self in (Progress.CUT_OFF, Progress.FAILED)


@dataclass(eq=False, slots=True)
class Agent:
    """A node on its way."""

    id: str
    host: str  # as it calls itself on the listener
    python: str
    first: Request
    progress: Progress = Progress.AWAITED
    is_open: bool = False  # its agent has greeted, and its connection stands
    address: str = ""
    conversation: Conversation | None = None  # once it has called


N = TypeVar("N", bound=Agent)


class Calling(Transport, Generic[N]):
    """Sessions with agents that call. A transport makes the listener and the nodes."""

    kind = stage = ""

    def __init__(self) -> None:
        self._nodes: dict[str, N] = {}
        self._by_host: dict[str, N] = {}
        self._listener: calls.Listener | None = None
        self._cancelled: str | None = None
        self._waiting: set[str] = set()
        self._keep_open = False
        self._times: list[tuple[float, int, N, Any]] = []
        self._turn = 0
        self._anchor = time.time() - time.monotonic()
        self._marker = ""

    # What a transport has of its own

    def _serve(self, event: Any) -> None:
        """Something else that is registered at the listener's selector can be read or written."""

    def _due(self, node: N, what: Any) -> Iterator[SessionEvent]:
        """A moment has come that `_at` was told of."""
        yield from ()

    def _note_of(self, node: N) -> str:
        """What is to be said of a node with which all is well."""
        return ""

    # What happens

    def _events(self, finish: float) -> Iterator[Event]:
        """What came of what happens next, of agents, of what else is served, and of the clock."""
        self._raise_interruption()
        assert self._listener is not None
        now = time.monotonic()
        until = min(finish, now + NOTICED_S, self._times[0][0] if self._times else math.inf)
        for event in self._listener.events(until - now):
            if isinstance(event, calls.Joined):
                node = self._by_host[event.node]
                node.address, node.conversation = event.address, Conversation(self._marker, self._anchor)
            elif isinstance(event, calls.Received):
                yield from self._from_agent(self._by_host[event.node], event.data, event.at)
            elif isinstance(event, calls.Left):
                broken = Broken(calls.ALTERED) if event.altered else None
                yield from self._agent_ended(self._by_host[event.node], broken)
            else:
                self._serve(event)
        now = time.monotonic()
        while self._times and self._times[0][0] <= now:
            _, _, node, what = heapq.heappop(self._times)
            if isinstance(what, Conversation):
                if node.conversation is what and (answer := what.expired(now)):
                    yield self._answered(node, answer)
            else:
                yield from self._due(node, what)

    def _at(self, when: float, node: N, what: Any) -> None:
        self._turn += 1
        heapq.heappush(self._times, (when, self._turn, node, what))

    # What agents say

    def _from_agent(self, node: N, data: bytes, at: float) -> Iterator[Event]:
        assert self._listener is not None
        assert node.conversation is not None
        for event in node.conversation.feed(data, at):
            if isinstance(event, Send):
                self._listener.send(node.host, event.data)
            elif isinstance(event, Answer):
                yield self._answered(node, event)
            elif isinstance(event, Greeting):
                yield from self._hello(node, event.hello)
            else:
                self._listener.drop(node.host)
                yield from self._agent_ended(node, event)

    def _hello(self, node: N, hello: frames.Hello) -> Iterator[Event]:
        assert self._listener is not None
        if node.progress.is_over:  # too late
            self._listener.drop(node.host)
            return
        node.is_open = True
        if node.progress is Progress.AWAITED:
            node.progress = Progress.LOGGED_IN
            yield SessionEvent(node=node.id, session=self._session(node, Login.OK, self._note_of(node)))
        if node.progress is Progress.ANSWERED:  # before the step was started again
            self._waiting.discard(node.id)
        else:
            self._ask(node, node.first)

    def _agent_ended(self, node: N, broken: Broken | None = None) -> Iterator[Event]:
        """An agent's connection has ended; broken: as its conversation has it."""
        node.is_open = False
        why = broken.why if broken else self._cancelled or "the agent ended"
        if node.conversation is not None and (answer := node.conversation.end(why)):
            yield self._answered(node, answer)
        elif node.progress is Progress.AWAITED:
            yield self._fail(node, Login.ALTERED if why == calls.ALTERED else Login.LOST, why)

    def _answered(self, node: N, answer: Answer) -> Reply:
        node.progress = Progress.ANSWERED
        self._waiting.discard(node.id)
        if not self._keep_open and self._listener is not None:
            self._listener.drop(node.host)
            node.is_open = False
        return answer.reply(node.id)

    def _ask(self, node: N, request: Request) -> None:
        assert self._listener is not None
        assert node.conversation is not None
        self._listener.send(node.host, node.conversation.ask_for(request))
        self._at(time.monotonic() + request.timeout_s, node, node.conversation)

    # Sessions

    def _give_up(self, nodes: Sequence[N], outcome: Login, detail: str) -> Iterator[Event]:
        for node in nodes:
            if node.progress is Progress.LOGGED_IN:
                yield self._answered(node, Answer(missing=Missing(Why.LOST, detail)))
            elif node.progress is Progress.AWAITED:
                yield self._fail(node, outcome, detail)

    def _fail(self, node: N, outcome: Login, detail: str) -> SessionEvent:
        node.progress = Progress.FAILED
        self._waiting.discard(node.id)
        return SessionEvent(node=node.id, session=self._session(node, outcome, detail))

    def _session(self, node: N, outcome: Login, detail: str = "") -> Session:
        hello = (node.conversation.hello if node.conversation is not None else None) or frames.Hello()
        return Session(
            outcome=outcome,
            stage="agent" if outcome == Login.OK else self.stage,
            detail=clean(detail, 400),
            address=node.address or None,
            user=local_user(),
            interpreter=node.python,
            python_version=clean(hello.python, 20) or None,
            noise=node.conversation.noise if node.conversation is not None else "",
            transport=self.kind,
        )

    # Requests

    def _call(self, requests: Mapping[str, Request], finish: float) -> Iterator[Reply]:
        """Send one request to each named node with an open session; clocks a few at a time."""
        finish = last_moment(requests, finish)
        clocks: list[tuple[N, Request]] = []
        self._waiting = set(requests)
        for name, request in requests.items():
            node = self._nodes.get(name)
            if node is None or not node.is_open:
                self._waiting.discard(name)
                yield missing_reply(name, Why.LOST, self._cancelled or "no open session")
            elif request.op == "clock":
                clocks.append((node, request))
            else:
                self._ask(node, request)
        at_once = 0
        while self._waiting and time.monotonic() < finish:
            while clocks and at_once < CLOCK_AT_ONCE:
                at_once += 1
                self._ask(*clocks.pop())
            for event in self._events(finish):
                at_once -= 1  # counts for clocks alone, which are never asked with others
                if isinstance(event, Reply):
                    yield event
        for name in sorted(self._waiting):
            conversation = self._nodes[name].conversation
            late = conversation.late() if conversation is not None else None
            yield late.reply(name) if late else missing_reply(name, Why.TIMED_OUT, "no answer in time")
        self._waiting = set()
