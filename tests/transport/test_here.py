"""Trouble of the machine that netdoctor runs on is found there, and no node is blamed for it."""

from __future__ import annotations

import errno
import os
import pwd
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdoctor.facts.host import Login, Session, Trouble
from netdoctor.transport import here
from netdoctor.transport.base import Limits, SshOptions
from netdoctor.transport.ssh import keys, sshconfig
from netdoctor.transport.ssh.sshconfig import Resolver, TransportInputError
from netdoctor.transport.ssh.transport import SshTransport

from .conftest import log_in, target

IPV4_HEAD = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
IPV4 = "{}\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
IPV6 = f"{{}} 40 {'0' * 32} 00 {'0' * 32} 00000100 00000001 00000000 {{}}     {{}}\n"
LINK_LOCAL, GLOBAL, ANY = "fe80" + "0" * 28, "fd00" + "0" * 28, "0" * 32
UP, REJECT = "00000001", "00200200"


@pytest.mark.parametrize(
    ("ipv4", "ipv6", "cut_off"),
    [
        pytest.param("", IPV6.format(ANY, REJECT, "lo"), True, id="unshare -n"),
        pytest.param(IPV4.format("nosuch0"), "", False, id="a default route"),
        pytest.param("", IPV6.format(GLOBAL, UP, "nosuch0"), False, id="IPv6 alone"),
        pytest.param("", IPV6.format(LINK_LOCAL, UP, "nosuch0"), True, id="a cable that leads nowhere"),
        pytest.param("", IPV6.format(GLOBAL, REJECT, "nosuch0"), True, id="an unreachable route"),
        pytest.param("nonsense\n", "", False, id="what cannot be read proves nothing"),
    ],
)
def test_a_machine_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ipv4: str, ipv6: str, cut_off: bool
) -> None:
    (tmp_path / "route").write_text(IPV4_HEAD + ipv4)
    (tmp_path / "ipv6_route").write_text(ipv6)
    monkeypatch.setattr(here, "IPV4_ROUTES", str(tmp_path / "route"))
    monkeypatch.setattr(here, "IPV6_ROUTES", str(tmp_path / "ipv6_route"))
    assert here.is_cut_off() is cut_off
    monkeypatch.setattr(here, "IPV4_ROUTES", str(tmp_path / "no such file"))
    assert not here.is_cut_off()


def test_an_idle_bridge_is_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "_routed", lambda: iter(["docker0"]))
    monkeypatch.setattr(here, "_is_up", lambda device: False)
    assert here.is_cut_off()


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), Trouble.PROCESSES),
        (OSError(errno.EMFILE, "Too many open files"), Trouble.FILES),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), Trouble.MEMORY),
        (MemoryError(), Trouble.MEMORY),
        (FileNotFoundError(errno.ENOENT, "No such file"), None),
    ],
)
def test_no_process_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, trouble: Trouble | None
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise error

    (tmp_path / "config").write_text("Host *\n User root\n")
    monkeypatch.setattr(subprocess, "Popen", refuse)
    outcome = log_in(SshOptions(ssh_config=tmp_path / "config"), target("n0"), target("n1", 1))
    assert {(s.outcome, s.trouble) for s in outcome.sessions.values()} == {(Login.CONTROL, trouble)}
    assert all("did not start" in s.detail for s in outcome.sessions.values())


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Runs as uid 10001, which no passwd entry knows, without HOME and USER."""

    def nobody(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for call in ("getuid", "geteuid"):
        monkeypatch.setattr(os, call, lambda: 10001)
    for name in ("HOME", "USER"):
        monkeypatch.delenv(name, raising=False)
    sshconfig._login_name.cache_clear()
    yield monkeypatch
    sshconfig._login_name.cache_clear()


def test_a_user_without_name_and_home_is_told_what_to_say(stranger: pytest.MonkeyPatch) -> None:
    with pytest.raises(TransportInputError) as caught:
        Resolver(SshOptions()).resolve(target("node"))
    for word in ("uid 10001", "--ssh-user", "-e USER=", "HOME"):
        assert word in str(caught.value)
    endpoint = Resolver(SshOptions(user="ml")).resolve(target("node"))
    assert (endpoint.user, endpoint.keys, endpoint.user_known_hosts) == ("ml", (), ())
    with pytest.raises(TransportInputError, match="write the whole path"):
        Resolver(SshOptions(key=Path("~/key")))


@pytest.mark.parametrize(("name", "expected"), [("1500", "alice"), ("two words", "alice"), ("ml", "ml")])
def test_user_goes_before_a_passwd_name_that_no_server_knows(
    stranger: pytest.MonkeyPatch, name: str, expected: str
) -> None:
    entry = pwd.struct_passwd((name, "x", 10001, 10001, "", "/", "/bin/sh"))
    stranger.setattr(pwd, "getpwuid", lambda uid: entry)
    stranger.setenv("USER", "alice")
    stranger.setenv("HOME", "/nonexistent")
    assert Resolver(SshOptions()).resolve(target("node")).user == expected


@pytest.fixture
def locked_home(stranger: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """HOME, whose .ssh belongs to uid 1500 and is 0700: as the container sees a folder mounted into it."""
    folder = tmp_path / ".ssh"
    folder.mkdir(mode=0o700)
    real = os.stat

    def of_somebody_else(path: object, *args: object, **kwargs: object) -> object:
        if str(path).startswith(f"{folder}/"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        found = real(path, *args, **kwargs)  # type: ignore[call-overload]
        if str(path) == str(folder):
            return os.stat_result((stat.S_IFDIR | 0o700, 1, 1, 1, 1500, 1500, 0, 0, 0, 0))
        return found

    stranger.setattr(os, "stat", of_somebody_else)
    stranger.setenv("HOME", str(tmp_path))
    stranger.setenv("USER", "ml")
    return folder


def test_settings_that_may_not_be_read_are_one_finding_here(locked_home: Path) -> None:
    transport = SshTransport(SshOptions(), Limits())
    told = {
        outcome: transport._as_meant(Session(outcome=outcome, stage=stage, trouble=trouble))
        for outcome, stage, trouble in (
            (Login.NAME, "resolve", None),
            (Login.HOST_KEY_UNKNOWN, "host_key", None),
            (Login.AUTH, "auth", None),
            (Login.CONTROL, "auth", Trouble.KEYS),
        )
    }
    assert {(s.outcome, s.trouble) for s in told.values()} == {(Login.CONTROL, Trouble.SETTINGS)}
    (detail,) = {s.detail for s in told.values()}
    assert f"{locked_home} belongs to uid 1500 (mode 0700), and netdoctor runs as uid 10001" in detail
    # What has nothing to do with the settings stays what it is.
    for other in (
        Session(outcome=Login.OK, stage="agent"),
        Session(outcome=Login.INTERPRETER, stage="shell"),
        Session(outcome=Login.CONTROL, stage="connect", trouble=Trouble.NETWORK),
    ):
        assert transport._as_meant(other) is other
    transport.close()


def test_keys_and_agents_of_somebody_else_say_whose_they_are(
    locked_home: Path, tmp_path: Path, stranger: pytest.MonkeyPatch
) -> None:
    said = keys._load(f"{locked_home}/id_ed25519", ())
    assert isinstance(said, str)
    assert f"{locked_home} belongs to uid 1500" in said
    # Nobody can see whether there is a default key; that is told, and not passed over.
    (tmp_path / "config").write_text("")
    endpoint = Resolver(SshOptions(ssh_config=tmp_path / "config")).resolve(target("node"))
    assert f"{locked_home}/id_ed25519" in endpoint.keys
    assert "belongs to uid 1500" in str(keys._ask_agent(keys.AgentQueue(f"{locked_home}/agent")))
    nowhere = str(keys._ask_agent(keys.AgentQueue("/no/such")))
    assert "there is no socket; in a container it has to be mounted" in nowhere


def test_an_agent_that_talks_to_its_own_user_alone(tmp_path: Path, stranger: pytest.MonkeyPatch) -> None:
    path = tmp_path / "agent"
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(path))
        assert "connection refused" in str(keys._ask_agent(keys.AgentQueue(str(path))))
        assert f"answers uid {path.stat().st_uid} alone" in str(keys._hung_up(str(path)))
