import shlex

import pytest

from netdoctor.checks.ssh_login import OUTCOMES, ssh_login
from netdoctor.facts.host import Login, Trouble
from netdoctor.model import Status

from .build import node, said, session

OURS = {"control", "timeout", "lost"}


def test_a_plain_login_says_nothing() -> None:
    assert list(ssh_login(node(), session())) == []


def test_a_dead_ipv6_address_beside_a_good_one_is_a_warning() -> None:
    facts = session(passed_over="2001:db8::1 port 22: no answer within 7 s")
    (finding,) = said(ssh_login(node(), facts))
    assert finding.status is Status.WARN
    assert "2001:db8::1" in finding.summary
    assert finding.cause is not None
    assert finding.cause.fixes[0].commands[0].shell == "getent ahosts n1"


@pytest.mark.parametrize("outcome", sorted(OUTCOMES))
def test_each_outcome_has_a_cause_a_title_and_a_fix(outcome: str) -> None:
    facts = session(outcome=outcome, detail="what happened", stage="connect", via="gate")
    (finding,) = ssh_login(node(), facts)
    assert finding.status is (Status.UNKNOWN if outcome in OURS else Status.FAIL)
    assert finding.cause is not None
    assert finding.cause.key == "ssh-" + outcome.replace("_", "-")
    assert finding.cause.fixes
    assert finding.cause.title.format(nodes="n1", s="s", has="has", **{"is": "is"})
    for fix in finding.cause.fixes:
        for command in fix.commands:
            assert shlex.split(command.shell)


def test_every_way_a_login_ends_has_its_words() -> None:
    assert set(OUTCOMES) == set(Login) - {Login.OK}


def test_cause_keys_are_distinct() -> None:
    assert len({cause.key for cause in OUTCOMES.values()}) == len(OUTCOMES)


def test_our_own_trouble_is_the_control_hosts() -> None:
    (finding,) = ssh_login(node(), session(outcome="control", detail="too many open files"))
    assert finding.cause is not None
    assert finding.cause.culprits == ("control",)


@pytest.mark.parametrize("trouble", list(Trouble))
def test_trouble_of_this_machine_has_its_own_cause_and_way_out(trouble: Trouble) -> None:
    facts = session(outcome="control", detail="what happened", trouble=trouble, user="ml")
    (finding,) = ssh_login(node(), facts)
    assert finding.status is Status.UNKNOWN
    assert finding.summary == "what happened"  # the same for every node, so that it is said once
    assert finding.cause is not None
    assert (finding.cause.key, finding.cause.culprits) == (f"ssh-control-{trouble}", ("control",))
    assert "{" not in finding.cause.title
    assert finding.cause.fixes
    assert all(command.run_on == "control" for fix in finding.cause.fixes for command in fix.commands)
    if trouble in (Trouble.SETTINGS, Trouble.KEYS):
        assert any("--user" in fix.text for fix in finding.cause.fixes)


def test_a_name_that_is_not_known_here_is_a_finding_here() -> None:
    (finding,) = ssh_login(node(), session(outcome="name", detail="n1: Name or service not known"))
    assert finding.status is Status.FAIL
    assert finding.cause is not None
    assert finding.cause.culprits == ("control",)


def test_the_jump_host_is_named() -> None:
    (finding,) = said(ssh_login(node(), session(outcome="jump", via="gate{1}")))
    assert finding.cause is not None
    assert "gate{1}" in finding.cause.title.format(nodes="n1")
    assert finding.cause.culprits == ("n1",)


def test_an_old_python_is_named_with_its_version() -> None:
    facts = session(outcome="old_python", interpreter="/opt/py/bin/python", python_version="3.5.2")
    (finding,) = ssh_login(node(), facts)
    assert finding.cause is not None
    assert "/opt/py/bin/python is Python 3.5.2" in finding.cause.fixes[0].text


def test_a_changed_key_is_compared_before_it_is_forgotten() -> None:
    facts = session(outcome="host_key_changed", port=44222, fingerprint="SHA256:abc")
    (finding,) = ssh_login(node(), facts)
    assert finding.cause is not None
    first, second = finding.cause.fixes
    assert "ssh-keygen -lf" in first.commands[0].shell
    assert second.commands[0].shell == (
        "ssh-keygen -R '[10.0.0.1]:44222' -f ~/.ssh/known_hosts && "
        "ssh-keyscan -p 44222 10.0.0.1 2>/dev/null >> ~/.ssh/known_hosts"
    )
    assert second.risk == "high"


def test_keys_are_kept_in_the_file_and_under_the_name_that_was_looked_up() -> None:
    facts = session(
        outcome="host_key_changed", address="10.0.0.1", known_as="gpu1", known_hosts="/home/ml/my hosts:4"
    )
    (finding,) = ssh_login(node(), facts)
    assert finding.cause is not None
    assert finding.cause.fixes[1].commands[0].shell == (
        "ssh-keygen -R gpu1 -f '/home/ml/my hosts' && "
        "ssh-keyscan 10.0.0.1 2>/dev/null | sed 's|^[^ ]*|gpu1|' >> '/home/ml/my hosts'"
    )
    facts = session(outcome="host_key_unknown", known_hosts="/a, /etc/ssh/ssh_known_hosts", known_as="x; rm")
    (finding,) = ssh_login(node(), facts)
    assert finding.cause is not None
    assert finding.cause.fixes[2].commands[0].shell == "ssh-keyscan 10.0.0.1 2>/dev/null >> /a"


def test_the_address_is_said_once() -> None:
    (finding,) = ssh_login(node(), session(outcome="refused", detail="10.0.0.1 port 22: connection refused"))
    assert finding.summary == "10.0.0.1 port 22: connection refused"
    (finding,) = ssh_login(node(), session(outcome="auth", user="ml", detail="user ml was refused"))
    assert finding.summary == "ml@10.0.0.1: user ml was refused"


@pytest.mark.parametrize("outcome", sorted(OUTCOMES))
def test_commands_can_be_pasted_as_they_are(outcome: str) -> None:
    (finding,) = ssh_login(node(line=3, source="hosts.txt"), session(outcome=outcome, via="gate", user="ml"))
    assert finding.cause is not None
    for fix in finding.cause.fixes:
        assert "console" not in fix.text
        for command in fix.commands:
            assert not {"HOSTS", "PORT", "USER", "FILE", "PATH"} & set(command.shell.split()), command.shell


def test_text_of_the_node_reaches_no_command() -> None:
    facts = session(outcome="auth", address="evil; reboot", user="u")
    (finding,) = ssh_login(node(host="$(reboot)"), facts)
    assert finding.cause is not None
    assert not any("reboot" in command.shell for fix in finding.cause.fixes for command in fix.commands)


def test_noise_is_tolerated_and_noted() -> None:
    (finding,) = ssh_login(node(), session(noise="Welcome!"))
    assert finding.status is Status.PASS
    assert finding.evidence[0].output == "Welcome!"


def test_an_outcome_of_a_later_version_is_unknown() -> None:
    (finding,) = ssh_login(node(), session(outcome="novel"))
    assert finding.status is Status.UNKNOWN
