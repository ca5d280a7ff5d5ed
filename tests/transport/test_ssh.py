"""The SSH transport against a real sshd: logging in, asking, and leaving nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from netdoctor.facts.base import Why
from netdoctor.transport.base import Limits, Request, SessionEvent, SshOptions
from netdoctor.transport.ssh.sshconfig import TransportInputError
from netdoctor.transport.ssh.transport import SshTransport
from tests import cheap

from .conftest import FACTS, FAST, USER, Server, ServerMaker, collect, free_port, log_in, target

pytestmark = pytest.mark.ssh
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def transport(server: Server) -> Iterator[SshTransport]:
    transport = SshTransport(SshOptions(ssh_config=server.config()), FAST)
    yield transport
    began = time.monotonic()
    transport.close()
    transport.close()
    assert time.monotonic() - began < 2


def agents_of(server: Server) -> list[int]:
    """Return the agents that this sshd started: processes below it that run our bootstrap."""
    parents: dict[int, int] = {}
    agents = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path(f"/proc/{entry}/stat").read_text()
            command = Path(f"/proc/{entry}/cmdline").read_bytes()
        except OSError:
            continue
        parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
        if b"ndagent_loader" in command:
            agents.append(int(entry))

    def below(pid: int) -> bool:
        while pid > 1 and pid != server.process.pid:
            pid = parents.get(pid, 0)
        return pid == server.process.pid

    return [pid for pid in agents if below(pid)]


def wait_for_none(server: Server, seconds: float) -> list[int]:
    finish = time.monotonic() + seconds
    while (left := agents_of(server)) and time.monotonic() < finish:
        time.sleep(0.1)
    return left


def test_logs_in_and_brings_facts(server: Server) -> None:
    outcome = log_in(SshOptions(ssh_config=server.config()), target("node1"))
    session = outcome.session
    assert session.outcome == "ok", session
    assert (session.address, session.port, session.user) == ("127.0.0.1", server.port, USER)
    assert session.stage == "agent"
    assert session.server_version is not None
    assert session.server_version.startswith("SSH-2.0-OpenSSH")
    assert session.fingerprint is not None
    assert session.python_version is not None
    assert session.login_ms
    assert session.first_byte_ms
    assert outcome.reply.result["host"]["value"]["uid"] == os.getuid()
    assert wait_for_none(server, 5) == []


def test_serves_requests_over_open_sessions(server: Server, transport: SshTransport) -> None:
    nodes = [target(f"n{i}", i) for i in range(3)]
    outcome = collect(transport.start(nodes, {n.id: FACTS for n in nodes}, keep_open=True, collectors={}))
    assert {s.outcome for s in outcome.sessions.values()} == {"ok"}
    assert len(agents_of(server)) == 3
    before = time.time()
    clock = {
        r.node: r for r in transport.call({n.id: Request(op="clock", args={"exchanges": 5}) for n in nodes})
    }
    for reply in clock.values():
        assert reply.missing is None, reply
        assert len(reply.result["samples"]) == 5
        for sent, there, back, received in reply.result["samples"]:
            assert before - 1 < sent <= there + 0.001
            assert there <= back <= received + 0.001
            assert received - sent < 2
    (odd,) = transport.call({"n0": Request(op="no-such-thing")})
    assert odd.missing is not None
    assert odd.missing.why is Why.NOT_COLLECTED
    replies = {r.node: r for r in transport.call({"n1": FACTS, "stranger": FACTS})}
    assert replies["n1"].missing is None
    assert replies["stranger"].missing is not None
    assert replies["stranger"].missing.why is Why.LOST
    transport.close()
    assert wait_for_none(server, 5) == []
    (late,) = transport.call({"n0": FACTS})
    assert late.missing is not None


def test_modules_go_unasked_to_nodes_like_those_before(server: Server, tmp_path: Path) -> None:
    """What the agents read: the loader, then the first one a request and its modules, the next one both at
    once. A node with another interpreter says so, and is sent none unasked."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ntee "{tmp_path}/$$" | {sys.executable} "$@"\n')
    python.chmod(0o755)
    nodes = [target(f"n{i}", i, python=str(python)) for i in range(3)]
    transport = SshTransport(SshOptions(ssh_config=server.config()), replace(FAST, parallel=1))
    try:
        found = collect(transport.start(nodes, {n.id: FACTS for n in nodes}, keep_open=False, collectors={}))
    finally:
        transport.close()
    assert {reply.missing for reply in found.replies.values()} == {None}
    read = []
    for file in sorted((p for p in tmp_path.iterdir() if p != python), key=lambda p: p.stat().st_mtime_ns):
        data, kinds = file.read_bytes(), ""
        while data:
            size = 9 + int(data[:8], 16)
            body, data = data[9:size], data[size:]
            kinds += "modules " if body[:1] == b"\0" else "request " if body[:1] == b"{" else "loader "
        read.append(kinds.split())
    asked, unasked = ["loader", "request", "modules"], ["loader", "modules", "request"]
    assert read == [asked, unasked, unasked]


COLLECTOR_SLOW = "import time\ndef collect(args):\n    time.sleep(args.get('s', 0)); return {'slept': True}\n"
COLLECTOR_DIE = "import os\ndef collect(args):\n    os._exit(3)\n"
COLLECTOR_BIG = "def collect(args):\n    return {'text': 'x' * args['bytes']}\n"
COLLECTOR_NOISE = (
    "import os\ndef collect(args):\n    os.write(2, b'e' * 5000000); print('noise'); return {'ok': True}\n"
)


def test_bounds_and_survives_odd_replies(server: Server, transport: SshTransport) -> None:
    collectors = {
        "slow": COLLECTOR_SLOW,
        "die": COLLECTOR_DIE,
        "big": COLLECTOR_BIG,
        "noise": COLLECTOR_NOISE,
    }
    nodes = [target("n0"), target("n1")]
    outcome = collect(
        transport.start(nodes, {n.id: FACTS for n in nodes}, keep_open=True, collectors=collectors)
    )
    assert {s.outcome for s in outcome.sessions.values()} == {"ok"}, outcome

    def ask(group: str, timeout_s: float = 30, **args: object) -> object:
        request = Request(op="facts", args={"groups": {group: args}}, timeout_s=timeout_s)
        (reply,) = transport.call({"n0": request})
        return reply.missing.why if reply.missing else reply.result[group].get("value")

    assert ask("slow", timeout_s=0.5, s=2) is Why.TIMED_OUT
    # The late answer to the first request is not taken for the answer to this one.
    assert ask("slow", s=0) == {"slept": True}
    big = ask("big", bytes=6 << 20)
    assert isinstance(big, dict)
    assert len(big["text"]) == 6 << 20
    assert ask("big", bytes=9 << 20) is Why.FAILED
    assert ask("noise") == {"ok": True}
    assert ask("die") is Why.LOST
    assert ask("slow", s=0) is Why.LOST
    (other,) = transport.call({"n1": FACTS})
    assert other.missing is None


COLLECTOR_NEED = (
    "import ndagent.runtime as r\n"
    "def collect(args):\n"
    "    r._from_control('psutil'); m = r._from_control('pynvml'); n = r._from_control('no-such')\n"
    "    return {'nvml': hasattr(m, 'nvmlInit'), 'other': n is not None}\n"
)


def test_sends_libraries_on_request(server: Server, transport: SshTransport) -> None:
    request = Request(op="facts", args={"groups": {"need": {}}})
    collectors = {"need": COLLECTOR_NEED}
    events = transport.start([target("n0")], {"n0": request}, keep_open=False, collectors=collectors)
    outcome = collect(events)
    assert outcome.reply.result["need"]["value"] == {"nvml": True, "other": False}


def test_skips_what_a_noisy_shell_prints(sshd_maker: ServerMaker) -> None:
    server = sshd_maker(
        r'ForceCommand printf "Welcome \033[31mto\n\036fake 3\nthe node\n"; sh -c "$SSH_ORIGINAL_COMMAND"'
    )
    outcome = log_in(SshOptions(ssh_config=server.config()), target("node"))
    assert outcome.session.outcome == "ok", outcome.session
    assert outcome.session.noise.startswith("Welcome")
    assert "the node" in outcome.session.noise
    assert outcome.session.noise.isprintable()
    assert outcome.reply.missing is None


def test_config_decides_where_to_go(server: Server, tmp_path: Path) -> None:
    owned = tmp_path / "owned"
    config = server.config(
        f'Match exec "touch {owned}"\n  Port 1\nHost alias\n  HostName localhost\n  AddressFamily inet\n'
    )
    options = SshOptions(ssh_config=config)
    outcome = log_in(options, target("alias"), target("other"))
    assert {s.outcome for s in outcome.sessions.values()} == {"ok"}, outcome.sessions
    assert not owned.exists()
    transport = SshTransport(options, FAST)
    assert any("exec" in note for note in transport.notes)
    described = transport.describe(target("alias"))
    assert (described["host"], described["port"], described["user"]) == ("localhost", server.port, USER)
    assert described["keys"] == [str(server.key)]
    transport.close()


def test_bad_config_is_told_before_contact(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host a\n  HostName -oProxyCommand=x\nHost b\n  User 'x y'\n")
    transport = SshTransport(SshOptions(ssh_config=config), FAST)
    with pytest.raises(TransportInputError) as caught:
        transport.start([target("a"), target("b")], {}, keep_open=False, collectors={})
    assert f"{config}:2" in str(caught.value)
    assert f"{config}:4" in str(caught.value)
    transport.close()


def jump_config(server: Server, jump: Server, how: str, extra: str = "") -> SshOptions:
    config = server.folder / "jump_config"
    known = server.folder / "jump_known"
    known.write_text(server.known_line + jump.known_line)
    config.write_text(
        f"{extra}\nHost gate\n HostName 127.0.0.1\n Port {jump.port}\n IdentityFile {jump.key}\n"
        f"Host n*\n HostName 127.0.0.1\n Port {server.port}\n {how}\n IdentityFile {server.key}\n"
        f"Host *\n User {USER}\n IdentitiesOnly yes\n"
        f" UserKnownHostsFile {known}\n GlobalKnownHostsFile none\n"
    )
    return SshOptions(ssh_config=config)


def accepted(server: Server) -> int:
    return server.log().count("Accepted publickey")


def test_jump_host_is_shared(sshd_maker: ServerMaker) -> None:
    server, jump = sshd_maker(), sshd_maker()
    nodes = [target(f"n{i}", i) for i in range(6)] + [target("n-closed", 6, port=free_port())]
    outcome = log_in(jump_config(server, jump, "ProxyJump gate"), *nodes)
    closed = outcome.sessions.pop("n-closed")
    assert {s.outcome for s in outcome.sessions.values()} == {"ok"}, outcome.sessions
    assert {s.via for s in outcome.sessions.values()} == {"gate"}
    assert (closed.outcome, closed.stage) == ("refused", "connect")
    assert accepted(jump) == 1
    assert accepted(server) == 6


def test_jump_host_that_dies_is_the_reason_for_all(sshd_maker: ServerMaker, server: Server) -> None:
    jump = sshd_maker()
    nodes = [target(f"n{i}", i) for i in range(3)]
    first = {n.id: FACTS for n in nodes}
    transport = SshTransport(jump_config(server, jump, "ProxyJump gate"), FAST)
    outcome = collect(transport.start(nodes, first, keep_open=True, collectors={}))
    assert {s.outcome for s in outcome.sessions.values()} == {"ok"}, outcome.sessions
    for session in psutil.Process(jump.process.pid).children(recursive=True):
        session.kill()
    found = {(reply.missing.why, reply.missing.detail) for reply in transport.call(first) if reply.missing}
    assert found == {(Why.JUMP, "jump host gate: the connection was lost")}
    transport.close()


def test_jump_host_that_fails_is_named(sshd_maker: ServerMaker, server: Server) -> None:
    jump = sshd_maker("AllowTcpForwarding no")
    options = jump_config(server, jump, "ProxyJump gate")
    prohibited = log_in(options, target("n1")).session
    assert prohibited.outcome == "jump"
    assert "prohibited" in prohibited.detail
    dead = SshOptions(ssh_config=options.ssh_config, jump=f"{USER}@127.0.0.1:{free_port()}")
    outcome = log_in(dead, target("n1"), target("n2"))
    for session in outcome.sessions.values():
        assert session.outcome == "jump"
        assert "refused" in session.detail
        assert "127.0.0.1" in session.detail
    unknown = sshd_maker()
    strange = SshOptions(ssh_config=options.ssh_config, jump=f"127.0.0.1:{unknown.port}")
    session = log_in(strange, target("n1")).session
    assert session.outcome == "jump"
    assert "host_key_unknown" in session.detail
    assert session.fingerprint is not None


def test_many_nodes_behind_one_proxy_command(sshd_maker: ServerMaker, server: Server) -> None:
    """The host that each of the commands logs in to refuses, here everyone, where ten logins are going on."""
    gate = sshd_maker("MaxStartups 10:100:10")
    secrets = f"-i {gate.key} -o UserKnownHostsFile={gate.known_hosts()} -o IdentityAgent=none"
    # Each login takes as long as to a host that is far away.
    slow = "-o 'KnownHostsCommand=/bin/sleep 0.2'"
    command = f"ssh -F none {secrets} {slow} -p {gate.port} -W %h:%p {USER}@127.0.0.1"
    nodes = [target(f"n{i}", i) for i in range(24)]
    patient = Limits(node_budget_s=60, login_timeout_s=60)
    outcome = log_in(jump_config(server, gate, f"ProxyCommand {command}"), *nodes, limits=patient)
    assert {s.outcome for s in outcome.sessions.values()} == {"ok"}, outcome.sessions
    assert accepted(gate) == 24


def test_two_jump_hosts(sshd_maker: ServerMaker, server: Server) -> None:
    first, second = sshd_maker(), sshd_maker()
    extra = f"Host gate2\n HostName 127.0.0.1\n Port {second.port}\n IdentityFile {second.key}\n"
    options = jump_config(server, first, "ProxyJump gate,gate2", extra)
    known = server.folder / "jump_known"
    known.write_text(known.read_text() + second.known_line)
    outcome = log_in(options, target("n1"), target("n2"))
    assert {s.outcome for s in outcome.sessions.values()} == {"ok"}, outcome.sessions
    assert accepted(first) == accepted(second) == 1


RELAY = """
import socket, sys, threading, os
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def up():
    while True:
        d = os.read(0, 65536)
        if not d: s.shutdown(1); return
        s.sendall(d)
threading.Thread(target=up, daemon=True).start()
while True:
    d = s.recv(65536)
    if not d: break
    os.write(1, d)
"""


def test_proxy_command_runs_without_a_shell(server: Server, tmp_path: Path) -> None:
    relay = tmp_path / "relay.py"
    relay.write_text(RELAY)
    options = jump_config(server, server, f"ProxyCommand {sys.executable} {relay} %h %p 2>/dev/null")
    outcome = log_in(options, target("n1"), target("n2"))
    assert {s.outcome for s in outcome.sessions.values()} == {"ok"}, outcome.sessions
    # Its stderr is read, whatever it has to say: nobody waits for room in a pipe.
    relay.write_text("import os; [os.write(2, b'chatter ' * 1000) for _ in range(25)]" + RELAY)
    chatty = jump_config(server, server, f"ProxyCommand {sys.executable} {relay} %h %p")
    assert log_in(chatty, target("n1")).session.outcome == "ok"
    for then in ("sys.exit(1)", "time.sleep(60)"):
        text = "'chatter ' * 25_000 + chr(10) + 'no way through' + chr(10)"
        relay.write_text(f"import sys, time; sys.stderr.write({text}); sys.stderr.flush(); {then}")
        session = log_in(chatty, target("n1"), limits=Limits(login_timeout_s=3, node_budget_s=6)).session
        assert session.outcome == "jump"
        assert session.detail.endswith("no way through")
    relay.write_text("raise SystemExit('No user exists for uid 10001')")
    session = log_in(chatty, target("n1")).session
    assert session.outcome == "control"
    assert "ProxyJump" in session.detail
    gone = jump_config(server, server, "ProxyCommand /no/such/program %h %p")
    session = log_in(gone, target("n1")).session
    assert session.outcome == "jump"
    assert "/no/such/program" in session.detail
    with pytest.raises(TransportInputError, match="needs a shell"):
        log_in(jump_config(server, server, "ProxyCommand nc %h %p; touch x"), target("n1"))


def test_no_proxy_command_outlives_the_scan(server: Server, tmp_path: Path) -> None:
    """Neither where its login failed nor where it went well, whatever it ignores."""
    relay, pids = tmp_path / "relay.py", tmp_path / "pids"
    deaf = "import os, signal, time, subprocess\nsignal.signal(15, signal.SIG_IGN)\nsignal.signal(1, 1)\n"
    deaf += "child = subprocess.Popen(['sleep', '60']).pid\n"
    deaf += f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}} {{child}} ')\n"
    options = jump_config(server, server, f"ProxyCommand {sys.executable} {relay} %h %p")
    limits = Limits(login_timeout_s=3, node_budget_s=6)
    for text, outcome in ((deaf + "time.sleep(60)", "jump"), (deaf + RELAY + "time.sleep(60)", "ok")):
        relay.write_text(text)
        assert log_in(options, target("n1"), limits=limits).session.outcome == outcome
        started = pids.read_text().split()
        pids.unlink()
        assert len(started) == 2
        assert [pid for pid in started if is_alive(pid)] == []


def is_alive(pid: str) -> bool:
    """Whether a process runs; a zombie does not."""
    finish = time.monotonic() + 2
    while time.monotonic() < finish:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state in "ZX":
            return False
        time.sleep(0.05)
    return True


SCAN = """
import sys, time
from pathlib import Path
from netdoctor.inventory.model import Target
from netdoctor.transport.base import *
from netdoctor.transport.ssh.transport import SshTransport
limits = Limits(node_budget_s=60, login_timeout_s=20)
t = SshTransport(SshOptions(ssh_config=Path(sys.argv[1])), limits)
n = [Target(id=h, host=h, order=i) for i, h in enumerate(sys.argv[2].split(","))]
r = Request(op="facts", args={"groups": {"host": {}}})
seen = {}
for e in t.start(n, {x.id: r for x in n}, keep_open=True, collectors={}):
    if isinstance(e, SessionEvent):
        kind = e.session.outcome
    else:
        kind = str(e.missing.why) if e.missing else "reply"
    seen[kind] = seen.get(kind, 0) + 1
print(*(f"{k}={v}" for k, v in sorted(seen.items())), len(t._workers), flush=True)
if sys.argv[3] == "stay":
    time.sleep(60)
t.close()
"""


def scan_process(
    config: Path, nodes: Sequence[str], stay: bool, limit: str | None = None
) -> subprocess.Popen[str]:
    """limit: words for the shell's ulimit."""
    argv = [sys.executable, "-c", SCAN, str(config), ",".join(nodes), "stay" if stay else "go"]
    if limit is not None:
        argv = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *argv]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)


def test_nothing_stays_when_the_main_process_is_killed(sshd_maker: ServerMaker) -> None:
    server = sshd_maker()
    process = scan_process(server.config(), ["n0", "n1", "n2", "n3"], stay=True)
    assert process.stdout is not None
    assert process.stdout.readline().split()[:2] == ["ok=4", "reply=4"]
    assert len(agents_of(server)) == 4
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert wait_for_none(server, 5) == []


def test_a_worker_that_dies_is_never_a_node_s_fault(server: Server, transport: SshTransport) -> None:
    nodes = [target("n0"), target("n1")]
    first = {n.id: Request(op="facts", args={"groups": {"slow": {"s": 5}}}) for n in nodes}
    events = transport.start(nodes, first, keep_open=True, collectors={"slow": COLLECTOR_SLOW})
    seen = [next(events), next(events)]
    assert all(isinstance(e, SessionEvent) and e.session.outcome == "ok" for e in seen)
    transport._workers[0].process.kill()
    rest = list(events)
    assert len(rest) == 2
    for reply in rest:
        assert not isinstance(reply, SessionEvent)
        assert reply.missing is not None
        assert reply.missing.why is Why.FAILED
        assert "netdoctor's own worker" in reply.missing.detail
    (late,) = transport.call({"n0": FACTS})
    assert late.missing is not None


def test_a_worker_that_cannot_start(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    session = log_in(SshOptions(ssh_config=server.config()), target("n0")).session
    assert session.outcome == "control"
    assert "netdoctor's own worker" in session.detail


def test_close_is_quick_while_logins_hang(server: Server) -> None:
    from . import peers

    with peers.peer(peers.silent) as port:
        transport = SshTransport(SshOptions(ssh_config=server.config()), FAST)
        nodes = [target("good"), *(target(f"hung{i}", i, host="127.0.0.1", port=port) for i in range(20))]
        events = transport.start(nodes, {n.id: FACTS for n in nodes}, keep_open=True, collectors={})
        first = next(events)
        assert isinstance(first, SessionEvent)
        began = time.monotonic()
        transport.close()
        assert time.monotonic() - began < 2


@pytest.mark.weekly
def test_more_nodes_than_descriptors(tmp_path: Path) -> None:
    pytest.importorskip("asyncssh")
    with cheap.CheapEndpoints(tmp_path, 300, faulty=True) as endpoints:
        # The soft limit is raised where the hard one allows it, by whoever needs it.
        soft = scan_process(endpoints.ssh_config, endpoints.addresses, stay=False, limit="-Sn 256")
        told = soft.communicate(timeout=120)[0].split()
        assert told[:5] == ["lost=3", "no_answer=3", "ok=294", "refused=3", "reply=291"]
        # Where it does not, sessions that stay open are spread over more workers.
        some = endpoints.of_kind("healthy")[:60]
        hard = scan_process(endpoints.ssh_config, some, stay=False, limit="-n 48")
        assert hard.communicate(timeout=120)[0].split()[:2] == ["ok=60", "reply=60"]


SLOW_NAMES = """
import _socket, time
ask = _socket.getaddrinfo
def slow(host, *rest, **named):
    text = host.decode() if isinstance(host, bytes) else host
    if text.endswith(".slow"):
        time.sleep(2)
        host = text[:-5]
    return ask(host, *rest, **named)
_socket.getaddrinfo = slow
"""


@pytest.mark.thorough
def test_many_names_that_take_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two name servers is dead: each answer takes a while, and no more are asked at a time than
    there are threads."""
    pytest.importorskip("asyncssh")
    (tmp_path / "sitecustomize.py").write_text(SLOW_NAMES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with cheap.CheapEndpoints(tmp_path, 150) as endpoints:
        config = tmp_path / "config"
        config.write_text("Host *\n StrictHostKeyChecking no\n" + endpoints.ssh_config.read_text())
        targets = [target(f"{address}.slow", i) for i, address in enumerate(endpoints.addresses)]
        limits = Limits(login_timeout_s=5, node_budget_s=10)
        (tmp_path / "learned").touch()
        options = SshOptions(ssh_config=config, known_hosts=tmp_path / "learned")
        outcome = log_in(options, *targets, limits=limits, request=Request(op="ping"))
    assert {s.outcome for s in outcome.sessions.values()} == {"ok"}


def test_many_nodes_behind_one_address(sshd_maker: ServerMaker) -> None:
    """sshd begins to refuse where ten logins are going on: by default some of the others, here every one."""
    server = sshd_maker("MaxStartups 10:100:10")
    nodes = [target(f"n{i}", i) for i in range(24)]
    outcome = log_in(
        SshOptions(ssh_config=server.config()),
        *nodes,
        limits=Limits(node_budget_s=60, login_timeout_s=60),
        request=Request(op="ping"),
    )
    assert {s.outcome for s in outcome.sessions.values()} == {"ok"}
    assert all(r.missing is None for r in outcome.replies.values())
    assert accepted(server) == 24
