from netdoctor.checks.ssh.speed import ssh_speed
from netdoctor.facts.host import Session
from netdoctor.model import Status

from ..build import cause, causes, found, name, session


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


def test_a_login_that_was_not_timed_is_not_green() -> None:
    findings = found(ssh_speed({"n1": session(login_ms=None), "n2": session(2)}))
    assert {target: one.status for target, one in findings.items()} == {"n1": Status.UNKNOWN}


def test_without_a_login_over_ssh_it_does_not_apply() -> None:
    (finding,) = ssh_speed({"n1": session(login_ms=None, transport="local")})
    assert finding.status is Status.SKIP


def test_a_failed_login_is_said_elsewhere() -> None:
    assert list(ssh_speed({"n1": session(outcome="auth", login_ms=None)})) == []
