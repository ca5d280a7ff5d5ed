from netdoctor.checks.ssh_speed import ssh_speed
from netdoctor.facts.host import Session
from netdoctor.model import Status

from .build import cause, causes, name, session


def sessions(*times_ms: float) -> dict[str, Session]:
    return {name(i): session(i, login_ms=took) for i, took in enumerate(times_ms, start=1)}


def test_silent_when_quick() -> None:
    assert list(ssh_speed(sessions(80, 90, 4000))) == []


def test_the_slow_one_is_named() -> None:
    findings = list(ssh_speed(sessions(80, 10_200, 90)))
    assert causes(findings) == {"ssh-slow-login": {"n2"}}
    assert findings[0].status is Status.WARN
    assert "UseDNS" in cause(findings, "ssh-slow-login").fixes[0].commands[0].shell


def test_all_slow_is_this_machines_load() -> None:
    (finding,) = ssh_speed(sessions(6000, 7000, 8000))
    assert finding.status is Status.PASS


def test_one_slow_node_alone_blames_nobody() -> None:
    (finding,) = ssh_speed(sessions(9000))
    assert finding.status is Status.PASS


def test_without_times_there_is_nothing_to_say() -> None:
    assert list(ssh_speed({"n1": session(login_ms=None)})) == []
