"""The transports without SSH."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import Login, Session
from netdoctor.transport.base import Limits, Request, SshOptions, Transport
from netdoctor.transport.fake import FakeTransport
from netdoctor.transport.local import LocalTransport
from netdoctor.transport.ssh.transport import SshTransport

from .conftest import FACTS, collect, target

ROOT = Path(__file__).resolve().parents[2]


def test_local_brings_facts_and_leaves_nothing() -> None:
    transport: Transport = LocalTransport(Limits())
    outcome = collect(
        transport.start([target("localhost")], {"localhost": FACTS}, keep_open=True, collectors={})
    )
    assert outcome.session.outcome == "ok", outcome.session
    assert outcome.session.transport == "local"
    assert outcome.reply.result["host"]["value"]["uid"] == os.getuid()
    (clock,) = transport.call({"localhost": Request(op="clock", args={"exchanges": 4})})
    assert clock.missing is None, clock
    for sent, there, back, received in clock.result["samples"]:
        assert sent <= there + 0.001
        assert there <= back <= received + 0.001
    (unknown,) = transport.call({"localhost": Request(op="no-such-thing")})
    assert unknown.missing is not None
    assert unknown.missing.why is Why.NOT_COLLECTED
    pid = transport._agents["localhost"].process.pid  # type: ignore[attr-defined]
    began = time.monotonic()
    transport.close()
    transport.close()
    assert time.monotonic() - began < 2
    assert not Path(f"/proc/{pid}").exists()
    (late,) = transport.call({"localhost": FACTS})
    assert late.missing is not None
    assert late.missing.why is Why.LOST


@pytest.mark.thorough
def test_local_is_interrupted_from_another_thread() -> None:
    transport = LocalTransport(Limits())
    try:
        collect(transport.start([target("localhost")], {"localhost": FACTS}, keep_open=True, collectors={}))
        pid = transport._agents["localhost"].process.pid
        os.kill(pid, signal.SIGSTOP)  # from now on it answers nobody
        threading.Timer(0.2, transport.interrupt, [KeyboardInterrupt()]).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            list(transport.call({"localhost": Request(op="ping", timeout_s=30.0)}))
        assert time.monotonic() - began < 5
    finally:
        transport.close()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("python", "outcome"), [("/no/such/python", "interpreter"), ("/bin/true", "shell"), ("/bin/sh", "shell")]
)
def test_local_names_what_is_wrong_with_an_interpreter(python: str, outcome: str) -> None:
    transport = LocalTransport(Limits(node_budget_s=5))
    try:
        nodes = [target("localhost", python=python)]
        session = collect(
            transport.start(nodes, {"localhost": FACTS}, keep_open=False, collectors={})
        ).session
    finally:
        transport.close()
    assert session.outcome == outcome
    assert session.detail


def test_fake_answers_what_it_was_given() -> None:
    down = Session(outcome=Login.REFUSED, stage="connect", detail="no")
    transport: Transport = FakeTransport(
        {"b": down},
        {"a": {"host": {"value": {"hostname": "a"}}, "gpu": Missing(Why.NOT_APPLICABLE, "none")}},
    )
    first = {n: Request(op="facts", args={"groups": {"host": {}, "gpu": {}}}) for n in "ab"}
    outcome = collect(transport.start([target("a"), target("b")], first, keep_open=True, collectors={}))
    assert outcome.sessions["b"] is down
    assert outcome.sessions["a"].outcome == "ok"
    assert outcome.replies["a"].result == {
        "host": {"value": {"hostname": "a"}},
        "gpu": {"missing": {"why": "not_applicable", "detail": "none"}},
    }
    replies = {r.node: r for r in transport.call({"a": Request(op="listen"), "b": Request(op="listen")})}
    assert replies["a"].missing
    assert replies["a"].missing.why is Why.NOT_COLLECTED
    assert replies["b"].missing
    assert replies["b"].missing.why is Why.LOST


@pytest.mark.parametrize(
    "transport",
    [
        pytest.param(lambda: SshTransport(SshOptions(), Limits()), id="ssh"),
        pytest.param(lambda: LocalTransport(Limits()), id="local"),
        pytest.param(FakeTransport, id="fake"),
    ],
)
def test_every_transport_is_a_whole_one(transport: Callable[[], Transport]) -> None:
    asked = {name for name in vars(Transport) if not name.startswith("_")}
    assert {"start", "call", "close", "describe", "interrupt", "notes", "bound_s"} == asked
    assert {name for name in asked if not hasattr(transport(), name)} == set()


def test_a_fake_is_interrupted_where_it_is_asked_next() -> None:
    transport = FakeTransport()
    transport.interrupt(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        list(transport.call({"a": FACTS}))
    assert [reply.node for reply in transport.call({"a": FACTS})] == ["a"]


@pytest.mark.parametrize(
    "module",
    [
        "netdoctor.transport.base",
        "netdoctor.transport.ssh.transport",
        "netdoctor.transport.local",
        "netdoctor.transport.fake",
    ],
)
def test_the_main_process_loads_nothing_heavy(module: str) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=env
    ).stdout.split()
    assert not {"paramiko", "fabric", "gevent", "asyncio", "cryptography"} & set(loaded)
