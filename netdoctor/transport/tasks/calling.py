"""What all ways have in common where agents call this machine: conversations over a `calls.Board`."""

import heapq
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import Login, Session
from netdoctor.text import clean
from netdoctor.transport import frames
from netdoctor.transport.base import Interruptible, Reply, Request, SessionEvent
from netdoctor.transport.session import CLOCK_AT_ONCE, Answer, Broken, Conversation, Greeting, Send
from netdoctor.transport.ssh.sshconfig import local_user
from netdoctor.transport.tasks import calls

NOTICED_S = 0.25


@dataclass(eq=False, slots=True)
class Agent:
    """A node on its way. first: its first request; told: its session is out; ended: it has its first answer.

    host: as it calls itself on the board. failed: it will have no session. talk: with its agent, once that
    has called.
    """

    id: str
    host: str
    python: str
    first: Request
    told: bool = False
    ended: bool = False
    failed: bool = False
    is_open: bool = False
    address: str = ""
    talk: Conversation | None = None


N = TypeVar("N", bound=Agent)


class Calling(Interruptible, Generic[N]):
    """Sessions with agents that call. A transport makes the board and the nodes."""

    kind = stage = ""

    def __init__(self) -> None:
        self._nodes: dict[str, N] = {}
        self._by_host: dict[str, N] = {}
        self._board: calls.Board | None = None
        self._cancelled: str | None = None
        self._waiting: set[str] = set()
        self._keep_open = False
        self._times: list[tuple[float, int, N, Any]] = []
        self._turn = 0
        self._anchor = time.time() - time.monotonic()
        self._marker = ""

    # What a transport has of its own

    def _serve(self, event: Any) -> None:
        """Something else that is registered at the board's selector can be read or written."""

    def _due(self, node: N, what: Any) -> Iterator[SessionEvent]:
        """A moment has come that `_at` was told of."""
        yield from ()

    def _told_of(self, node: N) -> str:
        """What is to be said of a node with which all is well."""
        return ""

    # What happens

    def _events(self, finish: float) -> Iterator[SessionEvent | Reply]:
        """What came of what happens next, of agents, of what else is served, and of the clock."""
        self._raise_interruption()
        assert self._board is not None
        now = time.monotonic()
        until = min(finish, now + NOTICED_S, self._times[0][0] if self._times else math.inf)
        for event in self._board.events(until - now):
            if isinstance(event, calls.Came):
                node = self._by_host[event.node]
                node.address, node.talk = event.address, Conversation(self._marker, self._anchor)
            elif isinstance(event, calls.Heard):
                yield from self._from_agent(self._by_host[event.node], event.data, event.at)
            elif isinstance(event, calls.Gone):
                yield from self._gone(self._by_host[event.node])
            else:
                self._serve(event)
        now = time.monotonic()
        while self._times and self._times[0][0] <= now:
            _, _, node, what = heapq.heappop(self._times)
            if isinstance(what, Conversation):
                if node.talk is what and (answer := what.expired(now)):
                    yield self._answered(node, answer)
            else:
                yield from self._due(node, what)

    def _at(self, when: float, node: N, what: Any) -> None:
        self._turn += 1
        heapq.heappush(self._times, (when, self._turn, node, what))

    # What agents say

    def _from_agent(self, node: N, data: bytes, at: float) -> Iterator[SessionEvent | Reply]:
        assert self._board is not None
        assert node.talk is not None
        for event in node.talk.feed(data, at):
            if isinstance(event, Send):
                self._board.send(node.host, event.data)
            elif isinstance(event, Answer):
                yield self._answered(node, event)
            elif isinstance(event, Greeting):
                yield from self._hello(node, event.hello)
            else:
                self._board.drop(node.host)
                yield from self._gone(node, event)

    def _hello(self, node: N, hello: frames.Hello) -> Iterator[SessionEvent | Reply]:
        node.is_open = True
        if not node.told:
            node.told = True
            yield SessionEvent(node=node.id, session=self._session(node, Login.OK, self._told_of(node)))
        if node.ended:  # before the step was started again
            self._waiting.discard(node.id)
        else:
            self._ask(node, node.first)

    def _gone(self, node: N, broken: Broken | None = None) -> Iterator[SessionEvent | Reply]:
        """An agent's connection has ended; broken: as its conversation has it."""
        node.is_open = False
        said = broken.why if broken else self._cancelled or "the agent ended"
        if node.talk is not None and (answer := node.talk.gone(said)):
            yield self._answered(node, answer)
        elif not node.told and not node.failed:
            yield self._fail(node, Login.LOST, said)

    def _answered(self, node: N, answer: Answer) -> Reply:
        node.ended = True
        self._waiting.discard(node.id)
        if not self._keep_open and self._board is not None:
            self._board.drop(node.host)
            node.is_open = False
        return answer.reply(node.id)

    def _ask(self, node: N, request: Request) -> None:
        assert self._board is not None
        assert node.talk is not None
        self._board.send(node.host, node.talk.ask_for(request))
        self._at(time.monotonic() + request.timeout_s, node, node.talk)

    # Sessions

    def _all(self, nodes: Sequence[N], outcome: Login, said: str = "") -> Iterator[SessionEvent | Reply]:
        for node in nodes:
            if node.told and not node.ended:
                yield self._answered(node, Answer(missing=Missing(Why.LOST, said)))
            elif not node.told:
                yield self._fail(node, outcome, said)

    def _fail(self, node: N, outcome: Login, said: str) -> SessionEvent:
        node.failed = node.told = True
        self._waiting.discard(node.id)
        return SessionEvent(node=node.id, session=self._session(node, outcome, said))

    def _session(self, node: N, outcome: Login, said: str = "") -> Session:
        hello = (node.talk.hello if node.talk is not None else None) or frames.Hello()
        return Session(
            outcome=outcome,
            stage="agent" if outcome == Login.OK else self.stage,
            detail=clean(said, 400),
            address=node.address or None,
            user=local_user(),
            interpreter=node.python,
            python_version=clean(hello.python, 20) or None,
            noise=node.talk.noise if node.talk is not None else "",
            transport=self.kind,
        )

    # Requests

    def call(self, requests: Mapping[str, Request], within_s: float | None = None) -> Iterator[Reply]:
        """Send one request to each named node with an open session; clocks a few at a time."""
        began = time.monotonic()
        clocks = [node for node, request in requests.items() if request.op == "clock"]
        longest = max((request.timeout_s for request in requests.values()), default=0.0)
        longest = longest * (1 + len(clocks) / CLOCK_AT_ONCE) + NOTICED_S
        return self._replies(requests, began + (longest if within_s is None else min(longest, within_s)))

    def _replies(self, requests: Mapping[str, Request], finish: float) -> Iterator[Reply]:
        clocks: list[tuple[N, Request]] = []
        self._waiting = set(requests)
        for name, request in requests.items():
            node = self._nodes.get(name)
            if node is None or not node.is_open:
                self._waiting.discard(name)
                yield Reply(node=name, missing=Missing(Why.LOST, self._cancelled or "no open session"))
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
            talk = self._nodes[name].talk
            late = talk.late() if talk is not None else None
            yield (
                late.reply(name)
                if late
                else Reply(node=name, missing=Missing(Why.TIMED_OUT, "no answer in time"))
            )
        self._waiting = set()
