"""Agents that call: who is let in, by a real agent and by raw sockets."""

import contextlib
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from netdoctor.agent.dial_back import NOT_REACHED, proof
from netdoctor.transport import bundle
from netdoctor.transport.session import Answer, Conversation, Greeting, Send
from netdoctor.transport.tasks import calls
from netdoctor.transport.tasks import slurm_output as slurm_words

HERE = "127.0.0.1"
MARKER = "c0ffee"
WHY = ("twice", "though nobody asked it to")
TASK_NONCE = "ab" * 16


@pytest.fixture
def listener() -> Iterator[calls.Listener]:
    one = calls.Listener(["n1", "n2"], [HERE], None)
    yield one
    one.close()


def agent(listener: calls.Listener, **changes: Any) -> "subprocess.Popen[bytes]":
    """A real agent that is told to call the listener."""
    dial = {
        "places": listener.endpoints,
        "secret": listener.secret,
        "node_from": ["TASK_NODE"],
        "within_s": 10.0,
    }
    packed = bundle.build_bundle(marker=MARKER, deadline_s=30, collectors={}, dial={**dial, **changes})
    argv, pipe = bundle.argv(sys.executable, MARKER), subprocess.PIPE
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env={"TASK_NODE": "n1"})
    assert process.stdin is not None
    process.stdin.write(packed)
    process.stdin.close()
    return process


def happens(listener: calls.Listener, wanted: Callable[[list[Any]], bool]) -> list[Any]:
    """Everything that the listener tells until that is so."""
    events: list[Any] = []
    finish = time.monotonic() + 30
    while not wanted(events):
        assert time.monotonic() < finish, events
        events += listener.events(0.1)
    return events


def answered(listener: calls.Listener, talk: Conversation, events: list[Any]) -> bool:
    """Whether its request is; what the agent asks for meanwhile it gets."""
    said = [found for one in events for found in talk.feed(one.data)]
    events.clear()
    for one in said:
        if isinstance(one, Send):
            listener.send("n1", one.data)
    return any(isinstance(one, Answer) and one.missing is None for one in said)


def ended(process: "subprocess.Popen[bytes]", listener: calls.Listener) -> tuple[int, str]:
    happens(listener, lambda events: process.poll() is not None)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as out, process.stderr:
        return process.returncode, out.read().decode()


def test_an_agent_that_knows_the_secret_is_served_and_leaves_with_its_connection(
    listener: calls.Listener,
) -> None:
    process = agent(listener)
    came, first, *_ = happens(listener, lambda events: len(events) >= 2)
    assert (came, first.node) == (calls.Joined("n1", HERE), "n1")
    talk = Conversation(MARKER)
    assert [type(event) for event in talk.feed(first.data)] == [Greeting]
    listener.send("n1", talk.ask("ping", b"{}", 30.0))
    happens(listener, lambda events: answered(listener, talk, events))
    listener.drop("n1")
    assert ended(process, listener) == (0, "")


def test_neither_side_takes_the_other_without_the_secret(listener: calls.Listener) -> None:
    code, out = ended(agent(listener, secret="0" * 64), listener)
    assert code == NOT_REACHED
    line = slurm_words.line(f"0: {out.strip()}")
    assert (line.kind, line.nodes) == ("tried", ("n1",))
    assert "somebody else answers there" in line.text
    assert "n1" not in listener._callers


def test_a_port_that_nobody_answers_is_said_with_its_number(listener: calls.Listener) -> None:
    with socket.socket() as taken:
        taken.bind((HERE, 0))
        port = taken.getsockname()[1]
        code, out = ended(agent(listener, places=[[HERE, port]]), listener)
    line = slurm_words.line(f"0: {out.strip()}")
    assert (code, line.kind, line.text) == (NOT_REACHED, "tried", f"{HERE} port {port}: Connection refused")


def introduced(listener: calls.Listener, node: str, secret: str) -> socket.socket:
    """A connection of somebody who says that it is this node."""
    one = socket.create_connection(tuple(listener.endpoints[0]))
    one.sendall(f"netdoctor-task {node} {TASK_NONCE}\n".encode())
    list(listener.events(1)), list(listener.events(1))
    theirs, _, _ = one.recv(300).decode().strip().partition(" ")
    one.sendall(f"{proof(secret, 'task', node, TASK_NONCE, theirs)}\n".encode())
    return one


def closed(one: socket.socket, listener: calls.Listener) -> bool:
    """Whether nothing comes any more, but for why it is not let in."""
    list(listener.events(1))
    one.settimeout(5)
    with contextlib.suppress(ConnectionResetError):
        answer, _, _ = one.recv(300).decode().strip().rpartition(" ")
        return answer in ("", *(f"it called {why}" for why in WHY)) and not one.recv(1)
    return True


def test_who_is_not_let_in(listener: calls.Listener) -> None:
    """A wrong proof, a node that nobody asked, one that is there already, and what speaks otherwise."""
    first = introduced(listener, "n2", listener.secret)
    assert list(listener.events(1)) == [calls.Joined("n2", HERE)]
    for node, secret in (("n1", "0" * 64), ("n9", listener.secret), ("n2", listener.secret)):
        assert closed(introduced(listener, node, secret), listener), node
    assert sorted(text.split(" called as ")[1] for text in listener.notes) == [
        "n2 twice; it was not let in",
        "n9 though nobody asked it to; it was not let in",
    ]
    for said in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"netdoctor-task n1 x\n",
        b"x" * 500,
        b"netdoctor-task n1;x ab\n",
    ):
        with socket.create_connection(tuple(listener.endpoints[0])) as one:
            one.sendall(said)
            list(listener.events(1))
            assert closed(one, listener), said
    assert "n1" not in listener._callers
    first.close()
    assert happens(listener, bool) == [calls.Left("n2")]


def test_strangers_are_few_and_stay_short(listener: calls.Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "STRANGERS_MAX", 3)
    guests = []
    for _ in range(5):
        guests.append(socket.create_connection(tuple(listener.endpoints[0])))
        list(listener.events(0.1))
    # Two are left to the kernel until there is room: at once where somebody leaves, else soon.
    guests[1].close()
    for _ in range(2):
        list(listener.events(0.1))
    assert len(listener._strangers) == 3
    monkeypatch.setattr(calls, "CROWDED_S", -1.0)
    for _ in range(3):
        list(listener.events(0.1))
    assert len(listener._strangers) == 1
    assert all(closed(guests[place], listener) for place in (0, 2, 3))
    monkeypatch.setattr(calls, "STRANGER_S", -1.0)
    assert closed(guests[4], listener)


def test_who_finds_no_descriptor_waits_and_is_taken(listener: calls.Listener) -> None:
    """Of a process that may have no more of them: said, not asked for again and again, made good."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    one = socket.create_connection(tuple(listener.endpoints[0]))
    began, turns = time.monotonic(), 0
    resource.setrlimit(resource.RLIMIT_NOFILE, (one.fileno() + 1, hard))
    try:
        while time.monotonic() - began < 0.5:
            list(listener.events(1))
            turns += 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert turns < 20
    assert [note.partition(":")[0] for note in listener.notes] == ["not all calls were taken at once"]
    for _ in range(3):
        list(listener.events(0.2))
    assert len(listener._strangers) == 1
    one.close()


def test_this_process_keeps_descriptors_for_itself(
    listener: calls.Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda number: (calls.FDS_RESERVED + 2,) * 2)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)  # root's would hold for all later tests
    listener.room()
    guests = [socket.create_connection(tuple(listener.endpoints[0])) for _ in range(3)]
    for _ in range(4):
        list(listener.events(0.1))
    assert len(listener._strangers) == 2
    assert list(listener.notes) == ["no more than 2 calls were taken at once: ulimit -Hn is too low"]
    for one in guests:
        one.close()
    for _ in range(4):
        list(listener.events(0.2))
    assert len(listener._strangers) == 0


def test_ports_are_taken_of_the_range_that_is_open() -> None:
    with socket.socket() as taken:
        taken.bind((HERE, 0))
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            calls.Listener(["n1"], [HERE], range(port, port + 1))
    one = calls.Listener(["n1"], [HERE], range(port, port + 1))
    assert one.endpoints == [[HERE, port]]
    one.close()
