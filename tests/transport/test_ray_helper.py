"""A driver that is hostile, broken or gone: told as our own trouble, bounded, and nothing is left."""

import contextlib
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdoctor.errors import InputError
from netdoctor.facts.host import Login, Session
from netdoctor.inventory import Target
from netdoctor.transport.base import Limits, Request, SessionEvent
from netdoctor.transport.ray import raycluster
from netdoctor.transport.ray.rayhelper import MESSAGE_BYTES_MAX, RayOptions
from netdoctor.transport.ray.transport import RayTransport

pytestmark = pytest.mark.process

TABLE = b'{"ray":"2","python":"3","nodes":[{"NodeID":"a","Alive":true,"NodeManagerAddress":"10.0.0.1"}]}'
TARGET = Target(id="n1", host="10.0.0.1")
ASK = {"n1": Request(op="facts")}


@pytest.fixture(autouse=True)
def _raylet(monkeypatch: pytest.MonkeyPatch) -> None:
    """One runs here, of another user."""
    monkeypatch.setattr(raycluster, "runs", lambda: True)


def message(kind: bytes, payload: bytes, channel: int = 0) -> bytes:
    return struct.pack(">cII", kind, channel, len(payload)) + payload


@contextlib.contextmanager
def driver(folder: Path, said: bytes, then: str, budget_s: float = 60.0) -> Iterator[RayTransport]:
    """A transport whose interpreter says these bytes, whatever it is told, and then does something."""
    program = folder / "python"
    program.write_text(f"#!{sys.executable}\nimport os, sys, time\nos.write(1, {said!r})\n{then}\n")
    program.chmod(0o755)
    transport = RayTransport(
        RayOptions("auto", str(program), dict(os.environ)), Limits(node_budget_s=budget_s)
    )
    try:
        yield transport
    finally:
        transport.close()
        transport.close()


WAIT = "sys.stdin.read()"
NO_TABLE = {
    "gone": (b"", "sys.exit(3)", "ended with status 3"),
    "gone with a word": (b"", "print('no \\x1b[31mroom', file=sys.stderr); sys.exit(1)", "no .*room"),
    "gone before its last word": (b"", "os.close(1); time.sleep(0.2); sys.exit('no room')", "no room"),
    "another's word": (message(b"F", b"Version mismatch: \x1b]0;x"), WAIT, "Version mismatch"),
    "no Ray": (message(b"F", b"no-ray: No module named 'ray'"), WAIT, "--ray-python"),
    "endless": (struct.pack(">cII", b"T", 0, MESSAGE_BYTES_MAX + 1), WAIT, "a message of"),
    "no JSON": (message(b"T", b"{" * 1000), WAIT, "cannot be read"),
    "no table": (message(b"T", b'{"ray":1}'), WAIT, "cannot be read"),
}


def test_without_a_table_it_is_the_users_to_put_right(tmp_path: Path) -> None:
    for name, (said, then, why) in NO_TABLE.items():
        with driver(tmp_path, said, then) as transport, pytest.raises(InputError, match=why) as caught:
            transport.inventory()
        assert str(caught.value).isprintable(), name


def test_without_a_raylet_here_ray_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver elsewhere gets no answer for half a minute, and the head is as it should be."""
    monkeypatch.setattr(raycluster, "runs", lambda: False)
    with driver(tmp_path, message(b"T", TABLE), WAIT) as transport, pytest.raises(InputError) as caught:
        transport.inventory()
    assert "no node of a Ray cluster runs on this machine" in str(caught.value)


def session(transport: RayTransport) -> Session:
    (event,) = transport.start([TARGET], ASK, keep_open=False, collectors={})
    assert isinstance(event, SessionEvent)
    return event.session


ENDS = {
    "died": (b"", "os.kill(os.getpid(), 9)", Login.CONTROL, "killed by signal 9"),
    "silent": (b"", "sys.stdin.read()", Login.TIMEOUT, "no answer in time"),
    "ended": (message(b"E", b'{"stage":"agent","detail":"x\\u001b"}', 1), WAIT, Login.SHELL, "x"),
    "dead": (message(b"E", b'{"stage":"dead","detail":"gone"}', 1), WAIT, Login.UNREACHABLE, "gone"),
    "late": (message(b"E", b'{"stage":"late","detail":"no actor"}', 1), WAIT, Login.TIMEOUT, "no actor"),
    "nonsense": (message(b"E", b"[", 1), WAIT, Login.SHELL, "agent ended"),
    "of nobody": (message(b"D", b"x", 77) + message(b"E", b"{}", 1), WAIT, Login.SHELL, "agent ended"),
    "noise": (message(b"D", b"\0" * (2 << 20), 1), WAIT, Login.SHELL, "MiB of output"),
    "unknown": (
        message(b"S", b"", 1) + message(b"?", b"", 1) + message(b"E", b"{}", 1),
        WAIT,
        Login.SHELL,
        "",
    ),
}


OPENED = """
told = b""
while b'"node_ids":["a"]' not in told:
    told += os.read(0, 65536)
"""


def test_another_release_than_that_of_the_cluster_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some releases wait for half a minute, and then say nothing."""
    here = [raycluster.Raylet(head="auto", release="2.44.1", keys=("RAY_USE_TLS",))]
    monkeypatch.setattr(raycluster, "raylets", lambda: here)
    monkeypatch.setattr(raycluster, "reach", lambda head, within_s: None)
    said = message(b"R", b"2.9.3")
    with driver(tmp_path, said, WAIT) as transport, pytest.raises(InputError, match=r"has Ray 2\.9\.3, and"):
        transport.inventory()
    said = message(b"R", b"2.44.1")
    with driver(tmp_path, said, WAIT, 0.3) as transport, pytest.raises(InputError) as caught:
        transport.inventory()
    assert "started with RAY_USE_TLS" in str(caught.value)
    assert "no answer in 0.3 s: its GCS hangs)" in str(caught.value)


def test_each_end_of_a_driver_is_told_apart(tmp_path: Path) -> None:
    for name, (said, then, outcome, why) in ENDS.items():
        # What is said of a node comes once the node was asked for.
        opened = f"{OPENED}\nos.write(1, {said!r})\n{then}"
        budget_s = 0.5 if name == "silent" else 60.0
        with driver(tmp_path, message(b"T", TABLE), opened, budget_s) as transport:
            found = session(transport)
        assert (found.outcome, found.transport) == (outcome, "ray"), (name, found)
        assert why in found.detail, (name, found)
        assert found.detail.isprintable(), name


def test_who_is_not_in_the_table_is_not_waited_for(tmp_path: Path) -> None:
    with driver(tmp_path, message(b"T", TABLE), WAIT) as transport:
        targets = [Target(id=f"x{i}", host=f"192.0.2.{i}") for i in range(1, 100)]
        requests = {target.id: Request(op="facts") for target in targets}
        events = list(transport.start(targets, requests, keep_open=False, collectors={}))
    assert {event.session.outcome for event in events if isinstance(event, SessionEvent)} == {Login.NAME}
    assert len(events) == 99


def test_an_interruption_reaches_who_waits(tmp_path: Path) -> None:
    with driver(tmp_path, message(b"T", TABLE), WAIT) as transport:
        waiting = transport.start([TARGET], ASK, keep_open=False, collectors={})
        transport.interrupt(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            next(waiting)
    assert [reply.missing is None for reply in transport.call({"n1": Request(op="clock")})] == [False]
