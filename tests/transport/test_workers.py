"""Several ssh workers: they end, and are ended."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from netdoctor.transport.base import Limits, Reply, Request, SessionEvent, SshOptions
from netdoctor.transport.ssh.transport import SshTransport

from .conftest import FACTS, Server, log_in, target
from .test_ssh import SCAN

pytestmark = pytest.mark.ssh
ROOT = Path(__file__).resolve().parents[2]
NODES = [target(f"n{i}", i) for i in range(6)]
# Each worker takes a share of what an address may be asked at once, and waits for its turn.
LIMITS = Limits(node_budget_s=20, login_timeout_s=10)


@pytest.fixture(autouse=True)
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three workers for six nodes."""
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr("netdoctor.transport.ssh.transport.NODES_PER_WORKER", 2)


def workers() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):  # sshd's, too, which end meanwhile
        with contextlib.suppress(psutil.NoSuchProcess):
            if "netdoctor.transport.ssh.ssh_worker" in " ".join(process.cmdline()):
                found.append(process)
    return found


@pytest.fixture
def transport(server: Server) -> Iterator[SshTransport]:
    files = len(os.listdir("/proc/self/fd"))
    transport = SshTransport(SshOptions(ssh_config=server.config()), LIMITS)
    yield transport
    began = time.monotonic()
    transport.close()
    assert time.monotonic() - began < 2
    assert workers() == []
    assert len(os.listdir("/proc/self/fd")) == files


def started(transport: SshTransport) -> None:
    events = list(
        transport.start(NODES, dict.fromkeys((n.id for n in NODES), FACTS), keep_open=True, collectors={})
    )
    assert [e.session.outcome for e in events if isinstance(e, SessionEvent)] == ["ok"] * 6
    assert all(e.result for e in events if isinstance(e, Reply))


def answers(transport: SshTransport) -> dict[str, str]:
    """What each node that did not answer a call says of itself."""
    return {
        r.node: r.missing.detail if r.missing else ""
        for r in transport.call(dict.fromkeys((n.id for n in NODES), FACTS))
    }


def test_each_is_our_child_in_a_session_of_its_own(transport: SshTransport) -> None:
    started(transport)
    assert len(transport._workers) == 3
    found = workers()
    assert {p.pid for p in found} == {w.process.pid for w in transport._workers}
    assert {p.ppid() for p in found} == {os.getpid()}
    for pid in (p.pid for p in found):
        assert os.getsid(pid) == pid  # Ctrl-C reaches the main process only
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        ours = {os.readlink(f"/proc/{pid}/fd/{n}") for n in range(3)}
        for other in {p.pid for p in found} - {pid}:  # whoever dies is seen to
            held = (f"/proc/{other}/fd/{n}" for n in os.listdir(f"/proc/{other}/fd"))
            assert not ours & {os.readlink(fd) for fd in held if os.path.lexists(fd)} - {
                os.readlink(f"/proc/{pid}/fd/2")
            }
    assert set(answers(transport).values()) == {""}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_one_that_dies_takes_its_own_nodes_only(transport: SshTransport, how: signal.Signals) -> None:
    started(transport)
    first = transport._workers[0]
    calls = transport.call({n.id: Request(op="facts", args={"groups": {"host": {}}}) for n in NODES})
    os.kill(first.process.pid, how)
    said = {r.node: r.missing.detail if r.missing else "" for r in calls}
    lost = {node: detail for node, detail in said.items() if detail}
    assert set(lost) <= set(first.nodes)
    said = answers(transport)
    assert {node for node, detail in said.items() if detail} == set(first.nodes)
    assert first.last_words == f"netdoctor's own worker was killed by signal {int(how)}"


def test_one_that_hangs_is_killed_at_the_end(transport: SshTransport) -> None:
    started(transport)
    os.kill(transport._workers[1].process.pid, signal.SIGSTOP)


def test_nothing_stays_when_the_main_process_is_killed(server: Server) -> None:
    program = (
        "import os, netdoctor.transport.ssh.transport as ssh\n"
        "os.cpu_count, ssh.NODES_PER_WORKER = lambda: 3, 2\n" + SCAN
    )
    argv = [sys.executable, "-c", program, str(server.config()), ",".join(n.id for n in NODES), "stay"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["ok=6", "reply=6", "3"]
        left = psutil.Process(process.pid).children(recursive=True)
        assert len(left) >= 3
        process.kill()
    _, alive = psutil.wait_procs(left, timeout=5)
    assert alive == []


def test_a_second_start_has_new_ones(transport: SshTransport) -> None:
    started(transport)
    before = {p.pid for p in workers()}
    started(transport)
    assert len(workers()) == 3
    assert not before & {p.pid for p in workers()}


def test_where_none_can_start_the_reason_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    outcome = log_in(SshOptions(ssh_config=server.config()), *NODES)
    assert {s.detail for s in outcome.sessions.values()} == {"netdoctor's own worker ended with status 1"}
    assert {s.outcome for s in outcome.sessions.values()} == {"control"}


def test_an_interruption_while_they_import_leaves_nothing(transport: SshTransport) -> None:
    transport.interrupt(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        started(transport)
    finish = time.monotonic() + 5
    while [p for p in workers() if p.status() != psutil.STATUS_ZOMBIE] and time.monotonic() < finish:
        time.sleep(0.05)


def test_few_descriptors_are_enough(transport: SshTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (110, 1024))
    started(transport)
    assert len(workers()) == 3
