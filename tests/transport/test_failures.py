"""Every way in which a login ends badly reads differently: one class, one stage, one line."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from netdoctor.facts.host import Login, Session, Trouble
from netdoctor.transport.base import Limits, SshOptions
from netdoctor.transport.ssh.login import Logins
from tests.scan.harness import forked_worker

from . import peers
from .conftest import Outcome, Server, ServerMaker, free_port, log_in, make_key, target

SHORT = Limits(parallel=8, login_timeout_s=3, node_budget_s=6)


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers without their imports; tests/transport/test_ssh.py has real ones."""
    monkeypatch.setattr("netdoctor.transport.ssh.transport.worker_process", forked_worker)


@pytest.fixture
def options(tmp_path: Path) -> SshOptions:
    key = make_key(tmp_path / "key")
    config = tmp_path / "config"
    config.write_text(
        f"Host *\n IdentityFile {key}\n IdentitiesOnly yes\n"
        f" UserKnownHostsFile {tmp_path}/known_hosts\n GlobalKnownHostsFile none\n"
    )
    return SshOptions(ssh_config=config)


def dial(options: SshOptions, port: int, host: str = "127.0.0.1", limits: Limits = SHORT) -> Session:
    began = time.monotonic()
    session = log_in(options, target("node", host=host, port=port), limits=limits).session
    assert time.monotonic() - began < limits.node_budget_s + 3
    assert session.detail
    assert session.detail.isprintable()
    return session


@pytest.mark.ssh
@pytest.mark.parametrize(
    ("behaviour", "outcome", "stage", "said"),
    [
        pytest.param(peers.silent, "no_answer", "banner", "nothing was said", id="silent"),
        pytest.param(
            peers.drips(peers.IDENT), "timeout", "banner", "speaks too slowly", id="a byte at a time"
        ),
        pytest.param(peers.drips(b"220 mail.example ESMTP\r\n"), "not_ssh", "banner", "220 ", id="slow mail"),
        pytest.param(peers.http, "not_ssh", "banner", "HTTP/1.1 400", id="web server"),
        pytest.param(
            peers.says(b"220 mail ESMTP\r\n", then_close=False), "not_ssh", "banner", "220 mail", id="mail"
        ),
        pytest.param(peers.says(b"\x16\x03\x01\x00\x02\x02\x28" * 9), "not_ssh", "banner", "", id="TLS"),
        pytest.param(
            peers.says(b"\x1b[2J\x1b]0;owned\x07\n"), "not_ssh", "banner", "", id="escape sequences"
        ),
        pytest.param(peers.floods(b"x"), "not_ssh", "banner", "", id="flood without lines"),
        pytest.param(peers.floods(b"hello\n"), "not_ssh", "banner", "much text", id="flood of lines"),
        pytest.param(peers.closes, "too_many", "banner", "closed the connection", id="closed"),
        pytest.param(peers.resets, "too_many", "banner", "", id="reset"),
        pytest.param(
            peers.says(b"Exceeded MaxStartups\r\n"), "too_many", "banner", "MaxStartups", id="MaxStartups"
        ),
        pytest.param(
            peers.says(b"Not allowed at this time\r\n"), "too_many", "banner", "Not allowed", id="penalty"
        ),
        pytest.param(
            peers.says(peers.IDENT, then_close=False),
            "kex_broken",
            "kex",
            "did not end",
            id="stalls in kex",
        ),
        pytest.param(peers.says(peers.IDENT), "kex_broken", "kex", "closed", id="closes in kex"),
        pytest.param(peers.says(peers.IDENT, b"\xff" * 4096), "kex_broken", "kex", "", id="garbage in kex"),
        pytest.param(peers.says(b"SSH-1.5-old\r\n"), "kex", "kex", "1.5", id="protocol 1"),
    ],
)
def test_peers(options: SshOptions, behaviour: peers.Behaviour, outcome: str, stage: str, said: str) -> None:
    with peers.peer(behaviour) as port:
        session = dial(options, port)
    assert (session.outcome, session.stage) == (outcome, stage), session
    assert said in session.detail
    assert (session.address, session.port) == ("127.0.0.1", port)


@pytest.mark.ssh
def test_refused(options: SshOptions) -> None:
    session = dial(options, free_port())
    assert (session.outcome, session.stage) == ("refused", "connect")


@pytest.mark.ssh
def test_dropped(options: SshOptions) -> None:
    with peers.full_queue() as port:
        session = dial(options, port)
    assert (session.outcome, session.stage) == ("no_answer", "connect")


@pytest.mark.ssh
@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 63 + ".invalid"])
def test_names(options: SshOptions, host: str) -> None:
    limits = Limits(login_timeout_s=10, node_budget_s=15)
    session = dial(options, 22, host, limits)
    if session.trouble == "names":
        pytest.skip("no name server answers this machine")
    assert (session.outcome, session.stage) == ("name", "resolve")


@pytest.mark.ssh
def test_no_route(options: SshOptions) -> None:
    limits = Limits(login_timeout_s=8, node_budget_s=10)
    session = dial(options, 22, "2001:db8::1", limits)
    if session.outcome == "no_answer":
        pytest.skip("this machine has a default route for IPv6")
    assert (session.outcome, session.stage) == ("unreachable", "connect")


@pytest.mark.ssh
def test_host_keys(sshd_maker: ServerMaker, tmp_path: Path) -> None:
    server = sshd_maker()
    known = tmp_path / "known"
    options = SshOptions(ssh_config=server.config(), known_hosts=known)
    (kind, blob) = server.host_key.with_suffix(".pub").read_text().split()[:2]
    (other_kind, other) = make_key(tmp_path / "other").with_suffix(".pub").read_text().split()[:2]
    (rsa_kind, rsa) = make_key(tmp_path / "rsa", "rsa").with_suffix(".pub").read_text().split()[:2]
    name = f"[127.0.0.1]:{server.port}"

    def outcome(text: str, accept_new: bool = False) -> Session:
        known.write_text(text)
        chosen = SshOptions(ssh_config=options.ssh_config, known_hosts=known, accept_new=accept_new)
        return log_in(chosen, target("node")).session

    unknown = outcome("")
    assert (unknown.outcome, unknown.stage) == ("host_key_unknown", "host_key")
    assert unknown.fingerprint
    assert unknown.fingerprint in unknown.detail
    assert unknown.key_type == kind
    assert unknown.known_hosts == str(known)
    changed = outcome(f"{name} {other_kind} {other}\n")
    assert changed.outcome == "host_key_changed"
    assert f"{known}:1" in changed.detail
    assert outcome(f"{name} {other_kind} {other}\n", accept_new=True).outcome == "host_key_changed"
    assert outcome(f"{name} {rsa_kind} {rsa}\n", accept_new=True).outcome == "host_key_changed"
    assert known.read_text() == f"{name} {rsa_kind} {rsa}\n"
    revoked = f"{name} {kind} {blob}\n@revoked * {kind} {blob}\n"
    assert outcome(revoked, accept_new=True).outcome == "host_key_revoked"
    assert outcome(f"{name} {kind} {blob}\n{name} {other_kind} {other}\n").outcome == "ok"
    assert outcome(f"127.0.0.1 {kind} {blob}\n").outcome == "ok"
    assert outcome(f"127.0.0.1 {other_kind} {other}\n").outcome == "host_key_unknown"
    assert outcome("", accept_new=True).outcome == "ok"
    assert known.read_text() == f"{name} {kind} {blob}\n"


@pytest.mark.ssh
def test_accept_new_makes_a_private_file(server: Server, tmp_path: Path) -> None:
    known = tmp_path / "new" / "known_hosts"
    config = server.config()
    config.write_text(
        config.read_text().replace(str(server.folder / "known_hosts"), str(known)) + "  HashKnownHosts yes\n"
    )
    assert log_in(SshOptions(ssh_config=config), target("node")).session.outcome == "host_key_unknown"
    assert not known.exists()
    nodes = [target(f"node{i}") for i in range(4)]
    outcome = log_in(SshOptions(ssh_config=config, accept_new=True), *nodes)
    assert {s.outcome for s in outcome.sessions.values()} == {"ok"}
    assert known.stat().st_mode & 0o777 == 0o600
    lines = known.read_text().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("|1|")
    assert log_in(SshOptions(ssh_config=config), target("node")).session.outcome == "ok"


@pytest.mark.ssh
def test_what_is_accepted_and_what_cannot_be_read_is_told(server: Server, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("half a line\n")

    def outcome(word: str) -> Outcome:
        config = server.config()
        text = config.read_text().replace(str(server.folder / "known_hosts"), str(known))
        config.write_text(f"{text}  StrictHostKeyChecking {word}\n")
        return log_in(SshOptions(ssh_config=config), target("node"))

    accepted = outcome("no")
    assert accepted.session.outcome == "ok"
    assert any(note.startswith(f"{known}:1: line skipped") for note in accepted.notes)
    assert any("unknown key" in note and "accepted" in note for note in accepted.notes)
    assert known.read_text() == "half a line\n"

    learned = outcome("accept-new")
    assert learned.session.outcome == "ok"
    assert not any("unknown key" in note for note in learned.notes)
    assert len(known.read_text().splitlines()) == 2
    assert outcome("yes").session.outcome == "ok"


@pytest.mark.ssh
def test_keys(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    config = server.config()

    def outcome(key: Path) -> Session:
        return log_in(SshOptions(ssh_config=config, key=key), target("node")).session

    wrong = outcome(make_key(tmp_path / "wrong"))
    assert (wrong.outcome, wrong.stage) == ("auth", "auth")
    assert str(tmp_path / "wrong") in wrong.detail
    locked = outcome(make_key(tmp_path / "locked", passphrase="secret"))
    assert (locked.outcome, locked.trouble) == ("control", Trouble.KEYS)
    assert "ssh-add" in locked.detail
    assert str(tmp_path / "locked") in locked.detail
    open_key = make_key(tmp_path / "open")
    open_key.chmod(0o644)
    opened = outcome(open_key)
    assert opened.outcome == "control"
    assert "chmod 600" in opened.detail
    (tmp_path / "junk").write_text("no key\n")
    (tmp_path / "junk").chmod(0o600)
    assert outcome(tmp_path / "junk").outcome == "control"
    assert outcome(make_key(tmp_path / "rsa", "rsa")).outcome == "auth"

    config.write_text(config.read_text().replace(str(server.key), "none"))
    nothing = log_in(SshOptions(ssh_config=config), target("node")).session
    assert (nothing.outcome, nothing.trouble) == ("control", Trouble.KEYS)
    assert nothing.detail.startswith("no key to offer")


@pytest.mark.ssh
def test_a_server_without_keys(sshd_maker: ServerMaker) -> None:
    server = sshd_maker("PubkeyAuthentication no", "PasswordAuthentication yes")
    session = log_in(SshOptions(ssh_config=server.config()), target("node")).session
    assert session.outcome == "auth"
    assert "password" in session.detail


@pytest.mark.ssh
def test_two_factors(sshd_maker: ServerMaker) -> None:
    server = sshd_maker("AuthenticationMethods publickey,password", "PasswordAuthentication yes")
    session = log_in(SshOptions(ssh_config=server.config()), target("node")).session
    assert session.outcome == "auth"
    assert "asks for more: password" in session.detail


@pytest.mark.ssh
def test_no_common_algorithm(sshd_maker: ServerMaker) -> None:
    server = sshd_maker("KexAlgorithms diffie-hellman-group18-sha512")
    session = log_in(SshOptions(ssh_config=server.config()), target("node")).session
    assert (session.outcome, session.stage) == ("kex", "kex")


@pytest.mark.ssh
@pytest.mark.parametrize(
    ("command", "outcome", "said"),
    [
        pytest.param(
            "echo This account is currently not available.; exit 1", "shell", "currently not available"
        ),
        pytest.param("exec cat >/dev/null", "timeout", "within", id="swallows"),
        pytest.param("echo menu: 1 2 3; sleep 60", "shell", "menu: 1 2 3", id="menu"),
        pytest.param("yes", "shell", "output around", id="flood"),
        pytest.param("yes >&2", "shell", "MiB on stderr", id="flood on stderr"),
        pytest.param("kill -9 $PPID; sleep 5", "lost", "cut", id="cut"),
        pytest.param("kill -9 $$", "shell", "killed", id="killed shell"),
        pytest.param("exit 0", "shell", "status 0", id="exits"),
        pytest.param("echo sh: 1: Cannot fork; exit 2", "process_limit", "Cannot fork", id="process limit"),
        pytest.param(
            "echo fork: retry: Resource temporarily unavailable >&2; sleep 60",
            *("process_limit", "retry"),
            id="process limit, waited for",
        ),
    ],
)
def test_shells(sshd_maker: ServerMaker, command: str, outcome: str, said: str) -> None:
    server = sshd_maker(f"ForceCommand {command}")
    limits = Limits(login_timeout_s=6, node_budget_s=5)
    began = time.monotonic()
    session = log_in(SshOptions(ssh_config=server.config()), target("node"), limits=limits).session
    assert time.monotonic() - began < 9
    assert session.outcome == outcome, session
    assert said in session.detail
    assert session.stage == "shell"


@pytest.mark.ssh
def test_no_session(sshd_maker: ServerMaker) -> None:
    server = sshd_maker("MaxSessions 0")
    session = log_in(SshOptions(ssh_config=server.config()), target("node")).session
    assert (session.outcome, session.stage) == ("shell", "channel")


@pytest.mark.ssh
def test_interpreters(server: Server, tmp_path: Path) -> None:
    old = tmp_path / "python2"
    old.write_text(
        '#!/bin/sh\nfor m; do :; done\nh=\'{"hello": {"old_python": "2.7.18", "executable": "py2"}}\'\n'
        'printf "\\036%s %d\\n%s\\n" "$m" "${#h}" "$h"\n'
    )
    old.chmod(0o755)
    plain = tmp_path / "notexec"
    plain.write_text("")
    broken = tmp_path / "broken"
    broken.write_text(f'#!/bin/sh\nshift\nPYTHONHOME=/no/such exec {sys.executable} "$@"\n')  # without -E
    broken.chmod(0o755)
    nodes = [
        target("gone", python="/no/such/python"),
        target("broken", python=str(broken)),
        target("nowhere", python="python9.99"),
        target("plain", python=str(plain)),
        target("old", python=str(old)),
        target("good"),
    ]
    outcome = log_in(SshOptions(ssh_config=server.config()), *nodes)
    outcomes = {node: session.outcome for node, session in outcome.sessions.items()}
    assert outcomes == {
        "gone": "interpreter",
        "broken": "broken_python",
        "nowhere": "interpreter",
        "plain": "interpreter",
        "old": "old_python",
        "good": "ok",
    }
    assert outcome.sessions["gone"].interpreter == "/no/such/python"
    assert "/no/such/python" in outcome.sessions["gone"].detail
    assert outcome.sessions["broken"].detail.startswith("Fatal Python error: ")
    assert outcome.sessions["old"].python_version == "2.7.18"
    assert set(outcome.replies) == {"good"}


DIALLING = """
import errno, socket
from netdoctor.transport.ssh import dial
from netdoctor.transport import here
def dialled(code): return dial._no_connection(OSError(code, 'x'), '10.0.0.1', 22)
def looked_up(code): return dial._no_address('node', socket.gaierror(code, 'x'))
for cut_off in (False, True):
    here.is_cut_off = lambda: cut_off
    for code in "ECONNREFUSED EHOSTUNREACH ENETUNREACH ETIMEDOUT EMFILE EADDRNOTAVAIL EACCES".split():
        failed = dialled(getattr(errno, code))
        print(cut_off, code, failed.outcome, failed.local_fault)
    for code in ("EAI_NONAME", "EAI_AGAIN"):
        failed = looked_up(getattr(socket, code))
        print(cut_off, code, failed.outcome, failed.local_fault)
"""


def test_errnos() -> None:
    """In a process of its own: the module loads gevent."""
    import subprocess
    import sys

    root = Path(__file__).resolve().parents[2]
    result = subprocess.run(
        [sys.executable, "-c", DIALLING],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert result.stdout.split("\n")[:-1] == [
        "False ECONNREFUSED refused None",
        "False EHOSTUNREACH unreachable None",
        "False ENETUNREACH unreachable None",
        "False ETIMEDOUT no_answer None",
        "False EMFILE control files",
        "False EADDRNOTAVAIL control None",
        "False EACCES control None",
        "False EAI_NONAME name None",
        "False EAI_AGAIN control names",
        "True ECONNREFUSED refused None",
        "True EHOSTUNREACH control network",
        "True ENETUNREACH control network",
        "True ETIMEDOUT no_answer None",
        "True EMFILE control files",
        "True EADDRNOTAVAIL control None",
        "True EACCES control None",
        "True EAI_NONAME name None",
        "True EAI_AGAIN control network",
    ]


def test_a_lookup_without_an_end_is_no_nodes_fault() -> None:
    """Silent name servers are this machine's trouble, and no wrong name."""
    logins = SimpleNamespace(_timeout_s=10.0)
    failed = Logins._slow_login(logins, SimpleNamespace(stage="resolve"), None, None)  # type: ignore[arg-type]
    assert (failed.outcome, failed.local_fault) == (Login.CONTROL, Trouble.NAMES)
    assert "10 s" in failed.detail
