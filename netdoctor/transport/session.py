"""One agent's conversation, without I/O: bytes and moments in, bytes and events out.

Every way to a node has one Conversation for each agent and only moves its bytes: what the agent sends goes
into `feed`, what `feed` and `ask` give goes to the agent. Nothing here raises for what an agent says: it
becomes an Answer, or Broken. One table of byte strings (tests/transport/test_session.py) holds all of them
to its rules; the frames around the messages are those of `frames`.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from netdoctor.errors import ProtocolError, UnreadableReply
from netdoctor.facts.base import Missing, Why
from netdoctor.text import clean
from netdoctor.transport import frames, provide
from netdoctor.transport.base import Reply, Request

# Libraries and modules that an agent may ask for between two requests.
NEEDS_MAX = 8
# What an agent may send between two requests.
REPLY_BYTES_MAX = 4 * frames.FRAME_CAP_BYTES
EXCHANGES, EXCHANGES_MAX = 8, 64


@dataclass(frozen=True, slots=True)
class Greeting:
    """The agent is there. Before anything else it may say that its Python is too old."""

    hello: frames.Hello


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of the request: its result, or why there is none."""

    result: Any = None
    missing: Missing | None = None

    def reply(self, node: str) -> Reply:
        """The same, of a node."""
        return Reply(node=node, result=self.result, missing=self.missing)


@dataclass(frozen=True, slots=True)
class Send:
    """These bytes are the agent's, at once."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Broken:
    """The agent is out of step: no frame of it can be found any more, and its session is over."""

    why: str


Event = Greeting | Answer | Send | Broken


class _Ping(msgspec.Struct):
    """An agent's reply to ``ping``: its wall clock, seconds."""

    recv_s: float
    send_s: float


_decode_ping = msgspec.json.Decoder(_Ping).decode


@dataclass(slots=True)
class _Pending:
    """The request under way. Moments are monotonic."""

    op: str
    timeout_s: float
    until: float
    read: Callable[[bytes], Any]
    sent: float  # when the last frame was
    exchanges: int  # of clocks, still to go
    samples: list[list[float]]


class Conversation:
    """An agent's protocol. One request at a time; ``clock`` becomes pings by itself."""

    def __init__(
        self, marker: str, anchor_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """marker: of the run. anchor_s: wall clock less monotonic clock. clock: the moment, monotonic."""
        self._reader = frames.FrameReader(marker)
        self._anchor_s = anchor_s
        self._clock = clock
        self._pending: _Pending | None = None
        self._number = self._needs = 0
        self._allowed = REPLY_BYTES_MAX
        self.hello: frames.Hello | None = None
        self.broken = ""

    @property
    def noise(self) -> str:
        """The first characters around the agent's frames, sanitised."""
        return self._reader.noise

    @property
    def tail(self) -> str:
        """What was printed instead of a frame so far, sanitised."""
        return self._reader.tail

    @property
    def tail_bytes(self) -> bytes:
        """The same as it came."""
        return self._reader.tail_bytes

    @property
    def is_pending(self) -> bool:
        """Whether a request is under way."""
        return self._pending is not None

    def ask(
        self, op: str, args: bytes, timeout_s: float, read: Callable[[bytes], Any] = frames.decode_result
    ) -> bytes:
        """The bytes of a request. args: JSON. read: what makes a result of the JSON that comes back."""
        exchanges = _exchanges(args) if op == "clock" else 0
        now = self._clock()
        self._pending = _Pending(op, timeout_s, now + timeout_s, read, now, exchanges, [])
        self._needs, self._allowed = 0, REPLY_BYTES_MAX
        return self._request("ping", b"{}") if op == "clock" else self._request(op, args)

    def ask_for(self, request: Request) -> bytes:
        """The bytes of a request of the engine's."""
        return self.ask(
            request.op,
            msgspec.json.encode(dict(request.args)),
            request.timeout_s,
            reader_of(request.by_group),
        )

    def feed(self, data: bytes, at: float | None = None) -> Iterator[Event]:
        """What came of these bytes, which were there at this moment (monotonic; None for now)."""
        if self.broken:
            return
        try:
            self._allowed -= len(data)
            if self._allowed < 0:
                raise ProtocolError("the agent sends without end")
            for payload in self._reader.feed(data):
                yield from self._payload(payload, self._clock() if at is None else at)
        except ProtocolError as error:
            self.broken = str(error)
            if self._pending is not None:
                yield self._answer(Missing(Why.UNPARSABLE, self.broken))
            yield Broken(self.broken)

    def expired(self, now: float | None = None) -> Answer | None:
        """The answer that did not come in time; None where there is still time, or nothing was asked."""
        pending = self._pending
        if pending is None or (self._clock() if now is None else now) < pending.until:
            return None
        return self.late(f"no answer to {pending.op} within {pending.timeout_s:g} s")

    def late(self, detail: str = "no answer in time") -> Answer | None:
        """The answer that nobody waits for any longer. What comes of it later is passed over."""
        return self._ended(Why.TIMED_OUT, detail)

    def end(self, detail: str) -> Answer | None:
        """The answer of an agent that has ended; None where nothing was asked."""
        return self._ended(Why.LOST, detail)

    def _ended(self, why: Why, detail: str) -> Answer | None:
        return None if self._pending is None else self._answer(Missing(why, clean(detail, 400)))

    def _answer(self, answer: Any) -> Answer:
        self._pending = None
        return Answer(missing=answer) if isinstance(answer, Missing) else Answer(answer)

    def _request(self, op: str, args: bytes) -> bytes:
        self._number += 1
        return frames.request_frame(self._number, op, args)

    def _payload(self, payload: bytes, at: float) -> Iterator[Event]:
        try:
            frame = frames.decode_frame(payload)
            if frame.hello is not None:
                if self.hello is None:
                    self.hello = frame.hello
                    yield Greeting(frame.hello)
            elif frame.need is not None:
                self._needs += 1
                if self._needs > NEEDS_MAX:
                    raise ProtocolError("the agent asks for libraries without end")
                hello = self.hello or frames.Hello()
                yield Send(provide.provide_bytes(frame.need, hello.machine, hello.bits))
            elif frame.id is None:
                raise ProtocolError(f"the agent gave up: {clean(frame.detail, 200)}")
            elif frame.id == self._number and self._pending is not None:
                yield self._result(self._pending, frame, at)
        except UnreadableReply as error:  # costs one answer, and the next frame is found
            if self._pending is not None:
                yield self._answer(Missing(Why.UNPARSABLE, clean(str(error), 400)))

    def _result(self, pending: _Pending, frame: frames.Frame, at: float) -> Answer | Send:
        if not frame.ok:
            why = Why(frame.why) if frame.why in set(Why) else Why.FAILED
            return self._answer(Missing(why, clean(frame.detail, 400)))
        if pending.op != "clock":
            return self._answer(pending.read(bytes(frame.result)))
        try:
            ping = _decode_ping(frame.result)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UnreadableReply(f"the reply to a ping cannot be read: {error}") from error
        received = max(pending.sent, at)
        pending.samples.append(
            [self._anchor_s + pending.sent, ping.recv_s, ping.send_s, self._anchor_s + received]
        )
        pending.exchanges -= 1
        if not pending.exchanges:
            return self._answer({"samples": pending.samples})
        data = self._request("ping", b"{}")
        pending.sent = self._clock()
        return Send(data)


def reader_of(by_group: bool) -> Callable[[bytes], Any]:
    """What makes a result of its JSON: by_group as of Request."""
    return frames.decode_members if by_group else frames.decode_result


# Fatal Python error: init_fs_encoding: failed to get the Python codec of the filesystem encoding
# python3: error while loading shared libraries: libpython3.11.so.1.0: cannot open shared object file: …
_NO_START = re.compile(r"Fatal Python error|error while loading shared libraries")


def broken_python(printed: bytes) -> str:
    """The line in which an interpreter says that it cannot start, or ''."""
    lines = printed.decode("utf-8", "replace").splitlines()
    return next((clean(line.strip(), 200) for line in lines if _NO_START.search(line)), "")


def too_old(hello: frames.Hello, python: str) -> str:
    """Why an agent cannot run there; '' where it does."""
    if hello.old_python is None:
        return ""
    return f"{python} is Python {clean(hello.old_python, 20)}, 3.6 or newer is needed"


def _exchanges(args: bytes) -> int:
    found = msgspec.json.decode(args).get("exchanges", EXCHANGES)
    return max(1, min(int(found), EXCHANGES_MAX))
