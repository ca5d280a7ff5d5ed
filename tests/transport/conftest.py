"""A real sshd on loopback, as the current user, and short ways to log in to it."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from netdoctor.facts.host import Session
from netdoctor.inventory.model import Target
from netdoctor.transport.base import Limits, Reply, Request, SessionEvent, SshOptions
from netdoctor.transport.ssh.transport import SshTransport

SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if os.path.exists("/usr/sbin/sshd") else None)
KEYGEN = shutil.which("ssh-keygen")
USER = getpass.getuser()
FACTS = Request(op="facts", args={"groups": {"host": {}}}, timeout_s=20)
FAST = Limits(parallel=64, login_timeout_s=30, node_budget_s=45)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    assert KEYGEN is not None
    argv = [KEYGEN, "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return path


@dataclass
class Server:
    """A running sshd."""

    folder: Path
    port: int
    key: Path
    process: subprocess.Popen[bytes]
    host_key: Path

    @property
    def known_line(self) -> str:
        kind, blob = self.host_key.with_suffix(".pub").read_text().split()[:2]
        names = f"[127.0.0.1]:{self.port},[localhost]:{self.port},[127.0.0.*]:{self.port}"
        return f"{names} {kind} {blob}\n"

    def known_hosts(self) -> Path:
        path = self.folder / "known_hosts"
        path.write_text(self.known_line)
        return path

    def config(self, extra: str = "", hosts: Sequence[str] = ("*",)) -> Path:
        """Return an ssh config under which any name leads here."""
        path = self.folder / "ssh_config"
        path.write_text(
            extra
            + f"\nHost {' '.join(hosts)}\n  HostName 127.0.0.1\n  Port {self.port}\n  User {USER}\n"
            + f"  IdentityFile {self.key}\n  IdentitiesOnly yes\n"
            + f"  UserKnownHostsFile {self.known_hosts()}\n  GlobalKnownHostsFile none\n"
        )
        return path

    def log(self) -> str:
        return (self.folder / "log").read_text()


ServerMaker = Callable[..., Server]


def start_sshd(
    folder: Path, *lines: str, authorized: str | None = None, host_kinds: Sequence[str] = ("ed25519",)
) -> Server:
    """Start an sshd that keeps its files in `folder`; whoever asks for it ends its process."""
    assert SSHD is not None
    if os.getuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    folder.chmod(0o755)
    host_keys = [make_key(folder / f"host_{kind}", kind) for kind in host_kinds]
    key = make_key(folder / "id_ed25519")
    public = key.with_suffix(".pub").read_text()
    (folder / "authorized").write_text(authorized.format(key=public) if authorized else public)
    port = free_port()
    # Of most settings the first line counts, of this one the last.
    settings = [
        "MaxStartups 200:30:400",
        *lines,
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        *(f"HostKey {host_key}" for host_key in host_keys),
        f"AuthorizedKeysFile {folder / 'authorized'}",
        f"PidFile {folder / 'pid'}",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin yes",
        "UseDNS no",
        "PrintMotd no",
        "LogLevel VERBOSE",
    ]
    (folder / "sshd_config").write_text("\n".join(settings) + "\n")
    process = subprocess.Popen(
        [SSHD, "-D", "-f", str(folder / "sshd_config"), "-E", str(folder / "log")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    server = Server(folder, port, key, process, host_keys[0])
    for _ in range(200):
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return server
        time.sleep(0.02)
    process.terminate()
    raise AssertionError("sshd did not start: " + server.log())


@pytest.fixture(scope="session")
def sshd_maker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerMaker]:
    if SSHD is None or KEYGEN is None:
        pytest.skip("no OpenSSH server on this machine")
    running: list[Server] = []

    def make(*lines: str, authorized: str | None = None, host_kinds: Sequence[str] = ("ed25519",)) -> Server:
        folder = tmp_path_factory.mktemp("sshd")
        running.append(start_sshd(folder, *lines, authorized=authorized, host_kinds=host_kinds))
        return running[-1]

    yield make
    for server in running:
        server.process.terminate()
        server.process.wait()


@pytest.fixture(scope="session")
def server(sshd_maker: ServerMaker) -> Server:
    return sshd_maker()


def target(name: str, order: int = 0, **fields: object) -> Target:
    return Target(id=name, host=fields.pop("host", name), order=order, **fields)  # type: ignore[arg-type]


@dataclass
class Outcome:
    """What a run of the transport said about each node."""

    sessions: dict[str, Session]
    replies: dict[str, Reply]
    notes: tuple[str, ...] = ()

    @property
    def session(self) -> Session:
        (only,) = self.sessions.values()
        return only

    @property
    def reply(self) -> Reply:
        (only,) = self.replies.values()
        return only


def collect(events: Iterator[SessionEvent | Reply]) -> Outcome:
    """Gather events, and assert that each node is heard of exactly once."""
    outcome = Outcome({}, {})
    for event in events:
        if isinstance(event, SessionEvent):
            assert event.node not in outcome.sessions
            outcome.sessions[event.node] = event.session
        else:
            assert event.node not in outcome.replies
            assert outcome.sessions[event.node].outcome == "ok"
            outcome.replies[event.node] = event
    return outcome


def log_in(options: SshOptions, *targets: Target, limits: Limits = FAST, request: Request = FACTS) -> Outcome:
    """Log in once to each target and close."""
    transport = SshTransport(options, limits)
    try:
        first = {t.id: request for t in targets}
        outcome = collect(transport.start(targets, first, keep_open=False, collectors={}))
        outcome.notes = transport.notes
    finally:
        began = time.monotonic()
        transport.close()
        assert time.monotonic() - began < 2.0
    assert set(outcome.sessions) == {t.id for t in targets}
    return outcome
