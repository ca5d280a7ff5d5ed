"""Keys that an SSH agent holds: a real ssh-agent, near by and as far away as a forwarded one."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdoctor.facts.host import Trouble
from netdoctor.transport.base import Limits, Request, SshOptions
from tests import cheap

from .conftest import USER, Server, ServerMaker, log_in, make_key, target

AGENT, ADD = shutil.which("ssh-agent"), shutil.which("ssh-add")
SIGN = 13  # SSH_AGENTC_SIGN_REQUEST
pytestmark = [pytest.mark.ssh, pytest.mark.skipif(AGENT is None, reason="no ssh-agent on this machine")]


@pytest.fixture
def holding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of an agent without keys."""
    path = tmp_path_factory.mktemp("agent") / "socket"
    # Whoever is to confirm the use of a key says no.
    there = {**os.environ, "SSH_ASKPASS": "/bin/false", "SSH_ASKPASS_REQUIRE": "force"}
    running = subprocess.Popen([str(AGENT), "-D", "-a", str(path)], stdout=subprocess.DEVNULL, env=there)
    try:
        _wait_for(path)
        yield path
    finally:
        running.terminate()
        running.wait()


def _wait_for(path: Path) -> None:
    """Until an agent listens: its socket is there a moment before."""
    for _ in range(200):
        with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
            sock.connect(str(path))
            return
        time.sleep(0.02)
    raise TimeoutError(f"no agent at {path}")


def add(agent: Path, *keys: Path, ask: bool = False) -> None:
    """ask: the agent signs only where somebody says yes."""
    there = {**os.environ, "SSH_AUTH_SOCK": str(agent)}
    for key in keys:
        subprocess.run([str(ADD), "-q", *["-c"] * ask, str(key)], env=there, check=True)


def add_security_key(agent: Path) -> None:
    """A key whose private half is in a token."""

    def text(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    kind, public, handle = text(b"sk-ssh-ed25519@openssh.com"), text(bytes(32)), text(bytes(16))
    message = b"\x11" + kind + public + text(b"ssh:") + b"\x01" + handle + text(b"") + text(b"the token")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(agent))
        sock.sendall(text(message))
        assert _message(sock) == text(b"\x06")  # SSH_AGENT_SUCCESS


class Forwarded:
    """The way to an agent: each message takes `seconds`, the first signature `first_s` more.

    signs: where not, it hangs up when asked to. most: connections over which something may be asked.
    signed: signatures asked for. open_most: connections there were beside each other.
    """

    def __init__(
        self,
        folder: Path,
        agent: Path,
        seconds: float,
        *,
        signs: bool = True,
        first_s: float = 0,
        most: int = 99,
    ) -> None:
        self.path, self._agent, self._seconds = folder / "forwarded", agent, seconds
        self._signs, self._first_s, self._most = signs, first_s, most
        self.signed = self.open_now = self.open_most = 0
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Forwarded:
        self._listener.bind(str(self.path))
        self._listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, socket.socket(socket.AF_UNIX) as far, contextlib.suppress(OSError, EOFError):
            message = _message(near)
            far.connect(str(self._agent))
            with self._place() as has_place:
                while has_place:
                    time.sleep(self._seconds)
                    if message[4] == SIGN:
                        with self._lock:
                            self.signed += 1
                            first = self.signed == 1
                        if not self._signs:
                            return
                        time.sleep(self._first_s if first else 0)
                    far.sendall(message)
                    near.sendall(_message(far))
                    message = _message(near)

    @contextlib.contextmanager
    def _place(self) -> Iterator[bool]:
        with self._lock:
            has_place = self.open_now < self._most
            self.open_now += has_place
            self.open_most = max(self.open_most, self.open_now)
        try:
            yield has_place
        finally:
            with self._lock:
                self.open_now -= has_place


def _message(sock: socket.socket) -> bytes:
    head = _exactly(sock, 4)
    return head + _exactly(sock, int.from_bytes(head, "big"))


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def options(server: Server, agent: Path) -> SshOptions:
    """ssh config under which any name leads to the server, and only the agent has keys."""
    path = server.folder / "agent_config"
    path.write_text(
        f"Host *\n HostName 127.0.0.1\n Port {server.port}\n User {USER}\n IdentityAgent {agent}\n"
        f" IdentityFile {server.folder}/none\n"
        f" UserKnownHostsFile {server.known_hosts()}\n GlobalKnownHostsFile none\n"
    )
    return SshOptions(ssh_config=path)


PING = Request(op="ping")


def test_many_nodes_with_the_key_of_an_agent_far_away(holding: Path, tmp_path: Path) -> None:
    """A forwarded agent: nodes whose signatures wait for each other would run out of time, all but a few."""
    pytest.importorskip("asyncssh")
    with cheap.CheapEndpoints(tmp_path, 120) as endpoints:
        add(holding, tmp_path / "key")
        with Forwarded(tmp_path, holding, 0.2) as forwarded:
            config = tmp_path / "config"
            said = endpoints.ssh_config.read_text().replace(f"{tmp_path / 'key'}\n", f"{tmp_path}/none\n")
            config.write_text(said.replace("IdentitiesOnly yes", f"IdentityAgent {forwarded.path}"))
            targets = [target(address, i) for i, address in enumerate(endpoints.addresses)]
            limits = Limits(login_timeout_s=12, node_budget_s=24)
            outcome = log_in(SshOptions(ssh_config=config), *targets, limits=limits, request=PING)
    assert {s.outcome for s in outcome.sessions.values()} == {"ok"}
    assert forwarded.signed == 120
    assert 1 < forwarded.open_most <= 16


def test_each_key_is_offered_once(holding: Path, sshd_maker: ServerMaker, tmp_path: Path) -> None:
    """sshd hears six offers, and no more: the fifth is good. The service is granted while the agent signs."""
    server = sshd_maker()
    add(holding, *(make_key(tmp_path / f"other{i}") for i in range(4)), server.key)
    with Forwarded(tmp_path, holding, 0.1) as forwarded:
        session = log_in(options(server, forwarded.path), target("n1"), request=PING).session
    assert session.outcome == "ok", session.detail
    assert forwarded.signed == 5
    assert server.log().count("Failed publickey") == 4


def test_an_agent_that_takes_one_connection(holding: Path, server: Server, tmp_path: Path) -> None:
    add(holding, server.key)
    nodes = [target(f"n{i}", i) for i in range(12)]
    with Forwarded(tmp_path, holding, 0.02, most=1) as forwarded:
        outcome = log_in(options(server, forwarded.path), *nodes, request=PING)
    assert {s.outcome for s in outcome.sessions.values()} == {"ok"}
    assert (forwarded.signed, forwarded.open_most) == (12, 1)


@pytest.mark.parametrize(("denied", "other"), [("ed25519", "rsa"), ("rsa", "ed25519"), ("rsa", "rsa")])
def test_a_key_that_the_agent_does_not_sign_with_is_passed_over(
    denied: str, other: str, holding: Path, sshd_maker: ServerMaker, tmp_path: Path
) -> None:
    """As ssh does: next in turn are the agent's other keys."""
    server = sshd_maker()
    add(holding, make_key(tmp_path / "denied", denied), ask=True)
    add(holding, make_key(tmp_path / "other", other))
    told = options(server, holding)
    alone = log_in(told, target("n1"), request=PING).session
    assert (alone.outcome, alone.trouble) == ("control", Trouble.KEYS)  # perhaps it lets the denied one in
    refused = f"user {USER} was refused with agent key test"
    assert alone.detail.startswith(f"{refused}; not offered: agent key test: its agent did not sign")
    assert alone.offered == (tmp_path / "other.pub").read_text().rsplit(" ", 1)[0]

    both = [(tmp_path / f"{name}.pub").read_text() for name in ("denied", "other")]
    (server.folder / "authorized").write_text("".join(both))
    session = log_in(told, target("n1"), request=PING).session
    assert session.outcome == "ok", session.detail
    by_hand = ["ssh", "-F", str(told.ssh_config), "-o", "BatchMode=yes", "n1", "true"]
    real = subprocess.run(by_hand, capture_output=True, text=True, check=False)
    assert (real.returncode, "agent refused operation" in real.stderr) == (0, True), real.stderr


def test_an_agent_that_signs_nothing_is_no_fault_of_the_node(
    holding: Path, server: Server, tmp_path: Path
) -> None:
    add_security_key(holding)
    told = options(server, holding)
    session = log_in(told, target("n1"), request=PING).session
    assert (session.outcome, session.trouble) == ("control", Trouble.KEYS)
    assert "agent key the token: a security key" in session.detail

    add(holding, server.key, make_key(tmp_path / "rsa", "rsa"), ask=True)
    session = log_in(told, target("n1"), request=PING).session
    assert (session.outcome, session.trouble) == ("control", Trouble.KEYS)
    assert session.detail.count("did not sign") == 2

    with Forwarded(tmp_path, holding, 0, signs=False) as gone:
        session = log_in(options(server, gone.path), target("n1"), request=PING).session
    assert (session.outcome, session.trouble) == ("control", Trouble.KEYS)
    assert session.detail.count("its agent did not sign (lost ssh-agent)") == 2


@pytest.mark.thorough
def test_a_late_signature_is_nobody_elses(holding: Path, server: Server, tmp_path: Path) -> None:
    """The login that asked for it is over, and others still ask."""
    add(holding, server.key)
    nodes = [target(f"n{i}", i) for i in range(56)]
    limits = Limits(login_timeout_s=6, node_budget_s=12)
    with Forwarded(tmp_path, holding, 1, first_s=8) as forwarded:
        outcome = log_in(options(server, forwarded.path), *nodes, limits=limits, request=PING)
    told = Counter(s.outcome for s in outcome.sessions.values())
    assert told == {"timeout": 1, "ok": 55}, outcome.sessions
    (late,) = (s.detail for s in outcome.sessions.values() if s.outcome == "timeout")
    assert "others wait for the SSH agent" in late
