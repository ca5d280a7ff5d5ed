"""How long a transport may take: for logging in, and for a call that is given less time than its requests."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from netdoctor.facts.base import Why
from netdoctor.inventory.model import Target
from netdoctor.transport.base import Limits, Request, SshOptions
from netdoctor.transport.local import LocalTransport
from netdoctor.transport.ssh.transport import SLACK_S, SshTransport

from .conftest import FACTS, FAST, Server, collect, target

LIMITS = Limits(parallel=4, login_timeout_s=3.0, node_budget_s=10.0)


def bound_s(folder: Path, targets: list[Target], config: str = "") -> float:
    """Rounds of logins that this takes at the most, in seconds beyond what the transport itself needs."""
    path = folder / "ssh_config"
    path.write_text(config)
    transport = SshTransport(SshOptions(ssh_config=path), LIMITS)
    try:
        return transport.bound_s(targets) - SLACK_S
    finally:
        transport.close()


def nodes(count: int, **changes: int) -> list[Target]:
    return [Target(id=f"n{i}", host=f"n{i}", order=i, **changes) for i in range(count)]


@pytest.mark.parametrize(
    ("count", "config", "seconds"),
    [
        pytest.param(1, "", 10.0, id="one node"),
        pytest.param(4, "", 10.0, id="all at once"),
        pytest.param(9, "", 40.0, id="three rounds of four, and one's own"),
        pytest.param(4, "Host *\n HostName gate", 10.0, id="few at one address"),
        pytest.param(9, "Host *\n HostName gate", 50.0, id="more than one address takes"),
        pytest.param(9, "Host *\n ProxyCommand nc %h %p", 50.0, id="more than one ProxyCommand's host takes"),
        pytest.param(65, "", 183.0, id="one more name than is looked up at once"),
        pytest.param(4, "Host n*\n ProxyJump a,b", 16.0, id="two jump hosts before"),
    ],
)
def test_logging_in_takes_so_long_at_the_most(
    tmp_path: Path, count: int, config: str, seconds: float
) -> None:
    assert bound_s(tmp_path, nodes(count), config) == seconds


def test_local_logs_in_one_after_the_other() -> None:
    assert LocalTransport(LIMITS).bound_s(nodes(3)) == 30.0


@pytest.mark.thorough
def test_a_local_call_ends_in_the_time_it_is_given() -> None:
    transport = LocalTransport(Limits())
    try:
        collect(transport.start([target("localhost")], {"localhost": FACTS}, keep_open=True, collectors={}))
        os.kill(transport._agents["localhost"].process.pid, signal.SIGSTOP)  # from now on it answers nobody
        began = time.monotonic()
        (reply,) = transport.call({"localhost": Request(op="ping", timeout_s=60.0)}, within_s=0.3)
        assert time.monotonic() - began < 10
    finally:
        transport.close()
    assert reply.missing is not None
    assert reply.missing.why is Why.TIMED_OUT


@pytest.mark.ssh
def test_a_call_over_ssh_ends_in_the_time_it_is_given(server: Server) -> None:
    transport = SshTransport(SshOptions(ssh_config=server.config()), FAST)
    both = [target("a"), target("b")]
    common = {"token": "t" * 32, "session": "s"}
    # Nobody sends to this receiver, which waits for streams as long as it may.
    serve = Request(op="stream_serve", args={**common, "address": "127.0.0.1", "ttl_s": 60.0})
    wait = Request(op="stream_receive", args={**common, "wait_s": 30.0}, timeout_s=40.0)
    try:
        collect(transport.start(both, dict.fromkeys("ab", FACTS), keep_open=True, collectors={}))
        (served,) = transport.call({"b": serve})
        began = time.monotonic()
        replies = {reply.node: reply for reply in transport.call({"a": FACTS, "b": wait}, within_s=3.0)}
        assert time.monotonic() - began < 15
        (again,) = transport.call({"a": FACTS})
    finally:
        transport.close()
    assert served.missing is replies["a"].missing is again.missing is None
    assert replies["b"].missing is not None
    assert replies["b"].missing.why is Why.TIMED_OUT
