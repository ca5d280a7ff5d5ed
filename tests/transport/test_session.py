"""The conversation with an agent: one table of byte strings, for itself and for every way to the nodes."""

import itertools
import json
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import Login
from netdoctor.inventory.model import Target
from netdoctor.transport import frames, session
from netdoctor.transport.base import Limits, Reply, Request, SessionEvent, StartPlan
from netdoctor.transport.local import LocalTransport, _Agent
from netdoctor.transport.ray.ray_driver import DATA
from netdoctor.transport.ray.rayhelper import RayOptions
from netdoctor.transport.ray.transport import RayTransport
from netdoctor.transport.session import Answer, Broken, Conversation, Greeting, Send
from netdoctor.transport.ssh.agentlink import AgentLink
from netdoctor.transport.ssh.messages import Endpoint, NodePlan, Start, WireRequest
from netdoctor.transport.ssh.nodes import Worker
from netdoctor.transport.ssh.record import Record
from netdoctor.transport.ssh.transport import _reply
from netdoctor.transport.tasks import calls
from netdoctor.transport.tasks.meet import MeetOptions, MeetTransport, _Participant
from netdoctor.transport.tasks.meeting import Rendezvous
from netdoctor.transport.tasks.slurm import SlurmOptions, SlurmTransport, _Node

MARKER = "c0ffee"
OVER = "over"  # of a row: the session is over then


def frame(payload: object) -> bytes:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return b"\x1e" + MARKER.encode() + b" %d\n" % len(body) + body + b"\n"


def reply(number: int, result: object = 7) -> bytes:
    return frame({"id": number, "ok": True, "result": result})


def ping(number: int, **changes: Any) -> bytes:
    return reply(number, {"recv_s": 100.25, "send_s": 100.5, **changes})


HELLO = frame({"hello": {"python": "3.11.2", "executable": "/usr/bin/python3", "machine": "x86_64"}})
NEED = frame({"need": "pynvml"})


@dataclass(frozen=True)
class Row:
    """What an agent says to one request. then: of the request behind it: its number, or that all is over."""

    says: bytes
    expected: Any
    then: int | str = 2
    op: str = "echo"


def bad(detail: str) -> Missing:
    return Missing(Why.UNPARSABLE, detail)


BAD_PING = bad("the reply to a ping cannot be read")

ROWS: dict[str, Row] = {
    "a result": Row(reply(1, {"a": [1]}), {"a": [1]}),
    "noise around it": Row(b"motd \x1e\r\n" + reply(1) + b"more\x1e", 7),
    "in pieces after a late answer": Row(reply(0, 6) + reply(1), 7),
    "refused": Row(frame({"id": 1, "why": "no_permission", "detail": "not\nyours"}),
                   Missing(Why.NO_PERMISSION, "not yours")),
    "refused, nobody knows why": Row(frame({"id": 1, "why": "x", "detail": "d"}), Missing(Why.FAILED, "d")),
    "asks for a library": Row(NEED + reply(1), 7),
    "asks for as many as it may": Row(NEED * session.NEEDS_MAX + reply(1), 7),
    "asks without end": Row(NEED * (session.NEEDS_MAX + 1) + reply(1),
                            bad("the agent asks for libraries without end"), OVER),
    "gives up": Row(frame({"detail": "no room"}), bad("the agent gave up: no room"), OVER),
    "a frame without a length": Row(b"\x1ec0ffee abc\n", bad("a frame without a length"), OVER),
    "a frame too long": Row(b"\x1ec0ffee 99999999\n",
                            bad("a reply of 99999999 bytes, the limit is 8388608"), OVER),
    "greets once more": Row(HELLO + reply(1), 7),
    "no JSON": Row(frame(b"{"), bad("the agent's reply cannot be read:")),
    "a number that is none": Row(frame({"id": "1", "ok": True}),
                                 bad("the agent's reply cannot be read:")),
    "nested too deep": Row(frame(b'{"id":1,"ok":true,"result":' + b"[" * 80 + b"]" * 80 + b"}"),
                           bad("the result is nested more than 64 levels deep")),
    "too many values": Row(frame(b'{"id":1,"ok":true,"result":[' + b"1," * 200_001 + b"1]}"),
                           bad("the result has more than 200000 values")),
    "clocks": Row(ping(1) + ping(2) + ping(3), "samples", 4, "clock"),
    "a clock of another type": Row(ping(1, send_s=True), BAD_PING, 2, "clock"),
    "a clock that says half": Row(reply(1, {"recv_s": 1.0}), BAD_PING, 2, "clock"),
    "a clock that is not an object": Row(reply(1, [1, 2]), BAD_PING, 2, "clock"),
    "a clock that is refused": Row(frame({"id": 1, "why": "failed", "detail": "no clock"}),
                                   Missing(Why.FAILED, "no clock"), 2, "clock"),
    "half of the clocks": Row(ping(1) + ping(2, recv_s="x"), BAD_PING, 3, "clock"),
}  # fmt: skip


def requests(row: Row) -> list[Request]:
    args = {"exchanges": 3} if row.op == "clock" else {}
    return [Request(op=row.op, args=args, timeout_s=20.0), Request(op="echo", timeout_s=20.0)]


def script(row: Row) -> list[bytes]:
    """What the agent says to each of the two requests."""
    return [row.says, reply(row.then, "there") if isinstance(row.then, int) else b""]


# --- every way to a node, with an agent that is played --------------------------------------------------


class Player:
    """An agent that is played: it greets, and says its lines as it is asked for the first time and again."""

    def __init__(self, row: Row) -> None:
        self.lines, self.waiting = script(row), [HELLO]

    def hear(self, data: bytes) -> None:
        further = b'"ping"' in data and b'"id":1,' not in data
        if b'"op"' in data and self.lines and not further:
            self.waiting.append(self.lines.pop(0))


def alone(row: Row) -> list[Reply]:
    talk, found = Conversation(MARKER), []
    assert [type(event) for event in talk.feed(HELLO)] == [Greeting]
    for request, says in zip(requests(row), script(row), strict=True):
        if talk.broken:
            found.append(Reply(node="n", missing=Missing(Why.LOST, talk.broken)))
        else:
            talk.ask_for(request)
            found += [event.reply("n") for event in talk.feed(says) if isinstance(event, Answer)]
    return found


class LocalAgent(_Agent):
    """An agent without a process."""

    def __init__(self, row: Row) -> None:
        self.player, self.conversation, self._events = Player(row), Conversation(MARKER), deque()
        self.interrupted = lambda: None
        ready: Any = SimpleNamespace(select=lambda wait: [(SimpleNamespace(fileobj=None), 1)])
        self._selector = ready

    def send(self, data: bytes, finish: float) -> None:
        self.player.hear(data)

    def _read(self, stream: object) -> bytes:
        return self.player.waiting.pop(0)


def local(row: Row) -> list[Reply]:
    transport, agent = LocalTransport(Limits()), LocalAgent(row)
    assert isinstance(agent.next(math.inf), Greeting)
    transport._agents["n"] = agent
    return [one for request in requests(row) for one in transport.call({"n": request})]


class PlayedListener(Player):
    """A listener whose one caller is played."""

    notes: tuple[str, ...] = ()
    came = False

    def send(self, node: str, data: bytes) -> None:
        self.hear(data)

    def drop(self, node: str) -> None: ...

    def events(self, wait_s: float) -> Iterator[Any]:
        if not self.came:
            self.came = True
            yield calls.Joined("h", "10.0.0.1")
        while self.waiting:
            yield calls.Received("h", self.waiting.pop(0), 1.0)


def slurm(row: Row) -> list[Reply]:
    first, second = requests(row)
    transport = SlurmTransport(Limits(), SlurmOptions(job="1", nodes=("h",)))
    listener: Any = PlayedListener(row)
    transport._marker, transport._keep_open, transport._listener = MARKER, True, listener
    node = _Node("n", "h", "python3", first)
    transport._nodes, transport._by_host = {"n": node}, {"h": node}
    events = list(transport._attempt([node], math.inf))
    assert isinstance(events[0], SessionEvent)
    assert events[0].session.outcome is Login.OK
    return [*events[1:], *transport.call({"n": second}, 5.0)]  # type: ignore[list-item]


def meet(row: Row) -> list[Reply]:
    first, second = requests(row)
    options = MeetOptions(
        rendezvous=Rendezvous(port=1), key="0" * 64, tasks=1, wait_s=1.0, invite=lambda *_: None
    )
    transport = MeetTransport(Limits(), options)
    listener: Any = PlayedListener(row)
    listener.came, transport._marker, transport._listener = True, MARKER, listener
    transport._participants["n"] = transport._claims["h"] = _Participant("h", 0, "n", "10.0.0.1")
    events = list(transport.start([Target(id="n", host="n")], {"n": first}, keep_open=True, collectors={}))
    assert isinstance(events[0], SessionEvent)
    assert events[0].session.outcome is Login.OK
    return [*events[1:], *transport.call({"n": second}, 5.0)]  # type: ignore[list-item]


class PlayedHelper(Player):
    """A driver of Ray's with one actor."""

    def send(self, kind: bytes, channel: int, payload: bytes = b"") -> None:
        self.hear(payload)

    def messages(self, finish: float) -> Iterator[tuple[bytes, int, bytes]]:
        while self.waiting:
            yield DATA, 1, self.waiting.pop(0)

    def close(self) -> None: ...


def ray(row: Row) -> list[Reply]:
    first, second = requests(row)
    transport = RayTransport(RayOptions("10.0.0.1:6379", None, {}), Limits())
    helper: Any = PlayedHelper(row)
    transport._helper = helper
    there = SimpleNamespace(alive=True, address="10.0.0.1", id="x")
    rows: Any = SimpleNamespace(find=lambda target: there, at_address_of=lambda row: [row])
    plan = StartPlan(targets=[Target(id="n", host="n")], first={"n": first}, keep_open=True)
    started: Any = list(transport._serve(plan, rows, MARKER))
    assert started[0].session.outcome is Login.OK
    return [*started[1:], *transport.call({"n": second}, 5.0)]


class PlayedChannel(Player):
    """A channel of SSH."""

    closed = eof_received = refused = False

    def begin(self, command: str) -> None: ...

    def sendall(self, data: bytes) -> None:
        self.hear(data)

    def recv_stderr_ready(self) -> bool:
        return False

    def recv(self, most: int) -> bytes:
        return self.waiting.pop(0) if self.waiting else b""


def ssh(row: Row) -> list[Reply]:
    channel = PlayedChannel(row)
    way: Any = SimpleNamespace(is_active=lambda: True, open_session=lambda: channel, last_words="")
    wire: Any = SimpleNamespace(allow=lambda count: None, strange="", last_receive_s=1.0)
    endpoint = Endpoint(name="n", host="n", port=22, user="u", known_as="n")
    link = AgentLink(SimpleNamespace(), way, wire, MARKER, 0.0)
    assert link.start("", b"", Record(endpoint)).python == "3.11.2"
    told: list[tuple[Any, bytes]] = []

    def emit(message: Any, result: bytes = b"") -> None:
        told.append((message, result))

    start = Start([NodePlan(endpoint, "python3", 0)], [], True, MARKER, 0.0, 1, 1.0, 30.0)
    one = Worker(start, b"", emit)
    for request in requests(row):
        args = msgspec.Raw(json.dumps(request.args).encode())
        one._reply(0, 1, link, WireRequest(request.op, args, request.timeout_s))
    return [_reply("n", message, result) for message, result in told]


WAYS: dict[str, Callable[[Row], list[Reply]]] = {
    "alone": alone, "local": local, "slurm": slurm, "meet": meet, "ray": ray, "ssh": ssh,
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ROWS)
def test_every_way_takes_the_same_bytes_alike(way: str, name: str) -> None:
    row = ROWS[name]
    first, second = WAYS[way](row)
    if isinstance(row.expected, Missing):
        assert first.missing is not None
        assert first.missing.why == row.expected.why
        assert first.missing.detail.startswith(row.expected.detail)
    elif row.expected == "samples":
        assert [sample[1:3] for sample in first.result["samples"]] == [[100.25, 100.5]] * 3
    else:
        assert (first.result, first.missing) == (row.expected, None)
    if row.then == OVER:
        assert second.missing is not None
        assert second.missing.why is Why.LOST
    else:
        assert (second.result, second.missing) == ("there", None)


# --- the conversation alone ----------------------------------------------------------------------------


def test_moments_are_those_of_the_wire() -> None:
    now = iter([10.0, 10.5, 12.0])
    talk = Conversation(MARKER, 1000.0, lambda: next(now))
    list(talk.feed(HELLO, 1.0))
    talk.ask("clock", b'{"exchanges": 2}', 5.0)
    (again,) = talk.feed(ping(1), 10.25)
    assert isinstance(again, Send)
    (answer,) = talk.feed(ping(2), 10.0)  # a clock that was read before it was sent counts as that moment
    assert isinstance(answer, Answer)
    assert answer.result == {"samples": [[1010.0, 100.25, 100.5, 1010.25], [1010.5, 100.25, 100.5, 1010.5]]}


def test_a_request_expires_once_and_its_late_answer_is_nobody_s() -> None:
    talk = Conversation(MARKER, 0.0, lambda: 10.0)
    assert talk.expired(99.0) is None
    talk.ask("echo", b"{}", 5.0)
    assert talk.expired(14.9) is None
    found = talk.expired(15.0)
    assert found is not None
    assert found.missing == Missing(Why.TIMED_OUT, "no answer to echo within 5 s")
    assert talk.expired(99.0) is None
    assert list(talk.feed(reply(1))) == []
    talk.ask("echo", b"{}", 5.0)
    assert list(talk.feed(reply(2))) == [Answer(7)]


def test_what_ends_ends_what_was_asked() -> None:
    talk = Conversation(MARKER)
    assert talk.end("the agent ended") is None
    talk.ask("echo", b"{}", 5.0)
    assert talk.end("the agent ended") == Answer(missing=Missing(Why.LOST, "the agent ended"))


def test_bytes_without_end_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "REPLY_BYTES_MAX", 100)
    talk = Conversation(MARKER)
    talk.ask("echo", b"{}", 5.0)
    assert list(talk.feed(b"x" * 100)) == []
    answer, broken = talk.feed(b"x")
    assert isinstance(answer, Answer)
    assert broken == Broken("the agent sends without end")
    assert list(talk.feed(HELLO)) == []


def test_an_old_python_is_told_apart() -> None:
    assert session.too_old(frames.Hello(python="3.9.1"), "python3") == ""
    said = session.too_old(frames.Hello(old_python="2.7.18\n"), "python3")
    assert said == "python3 is Python 2.7.18, 3.6 or newer is needed"


PIECES = st.lists(
    st.one_of(
        st.sampled_from([HELLO, NEED, reply(1), reply(2), ping(1), frame({"detail": "x"}), b"\x1ec0ffee "]),
        st.binary(max_size=40),
        st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=5).map(
            lambda value: frame(json.dumps({"id": 1, "ok": True, "result": value}).encode())
        ),
    ),
    max_size=12,
)


@given(pieces=PIECES, cuts=st.lists(st.integers(1, 200), max_size=12), op=st.sampled_from(["echo", "clock"]))
@settings(max_examples=300, deadline=None)
def test_whatever_an_agent_says_one_request_has_one_answer_at_most(
    pieces: list[bytes], cuts: list[int], op: str
) -> None:
    """However its bytes are cut into pieces, and without a word to nobody."""
    data = b"".join(pieces)

    def events(parts: list[bytes]) -> list[Any]:
        talk = Conversation(MARKER, 0.0, lambda: 1.0)
        talk.ask(op, b"{}", 5.0)
        found = [event for part in parts for event in talk.feed(part, 1.0)]
        assert talk.is_pending != any(isinstance(event, Answer) for event in found)
        assert [event for event in found if isinstance(event, Broken)] == ([found[-1]] if talk.broken else [])
        return found

    whole = events([data])
    assert sum(isinstance(event, Answer) for event in whole) <= 1
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    parts = [data[a:b] for a, b in itertools.pairwise(places)]
    cut = events(parts)
    # Bytes that make no sense end a conversation before what stands in front of them in one piece is heard.
    if not any(isinstance(event, Broken) for event in whole):
        assert [e for e in cut if not isinstance(e, Send)] == [e for e in whole if not isinstance(e, Send)]
