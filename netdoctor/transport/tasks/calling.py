"""What all ways have in common where agents call this machine: conversations over a `calls.Board`."""

import heapq
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import Login, Session
from netdoctor.text import clean
from netdoctor.transport import frames, provide
from netdoctor.transport.base import Interruptible, Reply, Request, SessionEvent
from netdoctor.transport.ssh.sshconfig import local_user
from netdoctor.transport.tasks import calls

NOTICED_S = 0.25
CLOCK_AT_ONCE = 16
NEEDS_MAX = 8


@dataclass(eq=False, slots=True)
class Agent:
    """A node on its way. first: its first request; told: its session is out; ended: it has its first answer.

    host: as it calls itself on the board. failed: it will have no session.
    """

    id: str
    host: str
    python: str
    first: Request
    told: bool = False
    ended: bool = False
    failed: bool = False
    is_open: bool = False
    number: int = 0
    needs: int = 0
    address: str = ""
    hello: frames.Hello = field(default_factory=frames.Hello)
    pending: "Pending | None" = None


@dataclass(eq=False, slots=True)
class Pending:
    """A request that is under way. samples: of the clock, with exchanges still to go."""

    request: Request
    sent: float
    exchanges: int = 0
    samples: list[list[float]] = field(default_factory=list)


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
                self._by_host[event.node].address = event.address
            elif isinstance(event, calls.Said):
                yield from self._frame(self._by_host[event.node], event)
            elif isinstance(event, calls.Gone):
                yield from self._gone(self._by_host[event.node], event.trouble)
            else:
                self._serve(event)
        now = time.monotonic()
        while self._times and self._times[0][0] <= now:
            _, _, node, what = heapq.heappop(self._times)
            if isinstance(what, Pending):
                if node.pending is what:
                    node.pending = None
                    why = f"no answer to {what.request.op} within {what.request.timeout_s:g} s"
                    yield self._answer(node, Missing(Why.TIMED_OUT, why))
            else:
                yield from self._due(node, what)

    def _at(self, when: float, node: N, what: Any) -> None:
        self._turn += 1
        heapq.heappush(self._times, (when, self._turn, node, what))

    # What agents say

    def _frame(self, node: N, event: calls.Said) -> Iterator[SessionEvent | Reply]:
        assert self._board is not None
        pending = node.pending
        try:
            frame = frames.decode_frame(event.payload)
            if frame.hello is not None and not node.is_open:
                yield from self._hello(node, frame.hello)
            elif frame.need is not None and node.needs < NEEDS_MAX:
                node.needs += 1
                data = provide.provide_bytes(frame.need, node.hello.machine, node.hello.bits)
                self._board.send(node.host, data)
            elif frame.id is None and frame.hello is None:
                raise frames.AgentTrouble(f"the agent gave up: {clean(frame.detail, 200)}")
            elif frame.id == node.number and pending is not None:
                yield from self._result(node, pending, frame, event.at)
        except frames.Unreadable as e:
            if pending is not None:
                node.pending = None
                yield self._answer(node, Missing(Why.UNPARSABLE, str(e)))
        except frames.AgentTrouble as e:
            self._board.drop(node.host)
            yield from self._gone(node, str(e))

    def _hello(self, node: N, hello: frames.Hello) -> Iterator[SessionEvent | Reply]:
        node.is_open, node.hello = True, hello
        if not node.told:
            node.told = True
            yield SessionEvent(node=node.id, session=self._session(node, Login.OK, self._told_of(node)))
        if node.ended:  # before the step was started again
            self._waiting.discard(node.id)
        else:
            self._ask(node, node.first)

    def _result(self, node: N, pending: Pending, frame: frames.Frame, at: float) -> Iterator[Reply]:
        if frame.ok and pending.request.op == "clock":
            there = _ping(bytes(frame.result))
            pending.samples.append(
                [self._anchor + pending.sent, *there, self._anchor + max(pending.sent, at)]
            )
            pending.exchanges -= 1
            if pending.exchanges > 0:
                self._send(node, pending)
                return
            answer: Any = {"samples": pending.samples}
        elif frame.ok:
            read = frames.decode_members if pending.request.by_group else frames.decode_result
            answer = read(bytes(frame.result))
        else:
            why = Why(frame.why) if frame.why in set(Why) else Why.FAILED
            answer = Missing(why, clean(frame.detail, 400))
        node.pending = None
        yield self._answer(node, answer)

    def _gone(self, node: N, trouble: str) -> Iterator[SessionEvent | Reply]:
        """An agent's connection has ended."""
        node.is_open = False
        said = trouble or self._cancelled or "the agent ended"
        if node.pending is not None:
            node.pending = None
            yield self._answer(node, Missing(Why.UNPARSABLE if trouble else Why.LOST, said))
        elif not node.told and not node.failed:
            yield self._fail(node, Login.LOST, said)

    def _answer(self, node: N, answer: Any) -> Reply:
        node.ended = True
        self._waiting.discard(node.id)
        if not self._keep_open and self._board is not None:
            self._board.drop(node.host)
            node.is_open = False
        if isinstance(answer, Missing):
            return Reply(node=node.id, missing=answer)
        return Reply(node=node.id, result=answer)

    def _ask(self, node: N, request: Request) -> None:
        exchanges, node.needs = 0, 0
        if request.op == "clock":
            exchanges = max(1, min(int(request.args.get("exchanges", 8)), 64))
        node.pending = Pending(request, time.monotonic(), exchanges)
        self._at(time.monotonic() + request.timeout_s, node, node.pending)
        self._send(node, node.pending)

    def _send(self, node: N, pending: Pending) -> None:
        assert self._board is not None
        node.number += 1
        clock = pending.request.op == "clock"
        args = b"{}" if clock else msgspec.json.encode(dict(pending.request.args))
        data = frames.request_frame(node.number, "ping" if clock else pending.request.op, args)
        pending.sent = time.monotonic()
        self._board.send(node.host, data)

    # Sessions

    def _all(self, nodes: Sequence[N], outcome: Login, said: str = "") -> Iterator[SessionEvent | Reply]:
        for node in nodes:
            if node.told and not node.ended:
                yield self._answer(node, Missing(Why.LOST, said))
            elif not node.told:
                yield self._fail(node, outcome, said)

    def _fail(self, node: N, outcome: Login, said: str) -> SessionEvent:
        node.failed = node.told = True
        self._waiting.discard(node.id)
        return SessionEvent(node=node.id, session=self._session(node, outcome, said))

    def _session(self, node: N, outcome: Login, said: str = "") -> Session:
        return Session(
            outcome=outcome,
            stage="agent" if outcome == Login.OK else self.stage,
            detail=clean(said, 400),
            address=node.address or None,
            user=local_user(),
            interpreter=node.python,
            python_version=clean(node.hello.python, 20) or None,
            noise=self._board.noise(node.host) if self._board is not None else "",
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
            self._nodes[name].pending = None
            yield Reply(node=name, missing=Missing(Why.TIMED_OUT, "no answer in time"))
        self._waiting = set()


def _ping(raw: bytes) -> tuple[float, float]:
    try:
        there = msgspec.json.decode(raw, type=dict[str, float])
        return there["recv_s"], there["send_s"]
    except (msgspec.MsgspecError, KeyError, RecursionError) as e:
        raise frames.Unreadable(f"the reply to a ping cannot be read: {e}") from e
