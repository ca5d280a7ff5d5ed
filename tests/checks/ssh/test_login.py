import os
import pwd
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from netdoctor.checks._shared.edits import append
from netdoctor.checks.ssh.login import OUTCOMES, one_login, ssh_login
from netdoctor.facts.host import Login, Session, Trouble, fewer_at_once
from netdoctor.model import Kind, Status

from ..build import host, node, said, session

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0Gxw3Sv1Wjvh1q0R1yv3bqS8uY0o1xqk7o4fZb2c3d"
OURS = {"control", "timeout", "lost"}
CLASSES = sorted(one for one in Login if one in OUTCOMES.outcome)


def test_a_plain_login_says_nothing() -> None:
    assert list(one_login(node(), session())) == []


def test_a_dead_ipv6_address_beside_a_good_one_is_a_warning() -> None:
    facts = session(passed_over="2001:db8::1 port 22: no answer within 7 s")
    (finding,) = said(one_login(node(), facts))
    assert finding.status is Status.WARN
    assert "2001:db8::1" in finding.summary
    assert finding.cause is not None
    assert finding.cause.fixes[0].commands[0].shell == "getent ahosts n1"


@pytest.mark.parametrize("outcome", CLASSES)
def test_each_outcome_has_a_cause_a_title_and_a_fix(outcome: str) -> None:
    facts = session(outcome=outcome, detail="what happened", stage="connect", via="gate")
    (finding,) = one_login(node(), facts)
    assert finding.status is (Status.UNKNOWN if outcome in OURS else Status.FAIL)
    assert finding.cause is not None
    assert finding.cause.key == "ssh-" + outcome.replace("_", "-")
    assert finding.cause.fixes
    assert finding.cause.title.format(nodes="n1", s="s", has="has", **{"is": "is"})
    for fix in finding.cause.fixes:
        for command in fix.commands:
            assert shlex.split(command.shell)


def test_every_way_a_login_ends_has_its_words() -> None:
    of_others = {Login.DRAINED, Login.DOWN, Login.BUSY, Login.STEP, Login.NO_WAY_BACK, Login.ALTERED}
    assert set(CLASSES) == set(Login) - {Login.OK} - of_others


def test_cause_keys_are_distinct() -> None:
    assert len({one.cause.key for one in OUTCOMES.outcome.values()}) == len(OUTCOMES.outcome)


def test_our_own_trouble_is_the_control_hosts() -> None:
    (finding,) = one_login(node(), session(outcome="control", detail="too many open files"))
    assert finding.cause is not None
    assert finding.cause.culprits == ("control",)


@pytest.mark.parametrize("trouble", list(Trouble))
def test_trouble_of_this_machine_has_its_own_cause_and_way_out(trouble: Trouble) -> None:
    facts = session(outcome="control", detail="what happened", trouble=trouble, user="ml")
    (finding,) = one_login(node(), facts)
    assert finding.status is Status.UNKNOWN
    assert finding.summary == "what happened"  # the same for every node, so that it is said once
    assert finding.cause is not None
    assert (finding.cause.key, finding.cause.culprits) == (f"ssh-control-{trouble}", ("control",))
    assert "{" not in finding.cause.title
    assert finding.cause.fixes
    assert all(command.run_on == "control" for fix in finding.cause.fixes for command in fix.commands)
    if trouble in (Trouble.SETTINGS, Trouble.KEYS):
        assert any("--user" in fix.text for fix in finding.cause.fixes)


@pytest.mark.skipif(shutil.which("ssh-agent") is None, reason="no ssh-agent on this machine")
@pytest.mark.skipif(os.getuid() != 0, reason="ssh-add reads one's own folder: root puts another there")
@pytest.mark.parametrize(
    "begin", ["unset SSH_AUTH_SOCK", "export SSH_AUTH_SOCK=/gone", 'eval "$(ssh-agent -s)"']
)
def test_an_encrypted_key_is_unlocked_with_an_agent_or_without(begin: str, tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespace may be made here")
    (finding,) = one_login(node(), session(outcome="control", trouble=Trouble.KEYS))
    assert finding.cause is not None
    unlock = finding.cause.fixes[0]
    home, ask = tmp_path / "home", tmp_path / "ask"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    key = home / ".ssh/id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-C", "mine", "-f", key], check=True)
    ask.write_text("#!/bin/sh\necho secret\n")
    ask.chmod(0o700)
    script = (
        f"mount --bind {home} {pwd.getpwuid(0).pw_dir} || exit\n"
        f"{begin}; before=$SSH_AGENT_PID; trap 'kill $SSH_AGENT_PID' EXIT\n"
        f"{unlock.commands[0].shell}\n"
        "echo agents: ${before:-none}, $SSH_AGENT_PID; ssh-add -l\n"
        f"{unlock.undo[0].shell}\n"
        "ssh-add -l"
    )
    there = {**os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
    there.pop("SSH_AGENT_PID", None)
    typed = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], check=False, capture_output=True, text=True, env=there
    )
    assert typed.stdout.count("mine (ED25519)") == 1, typed
    assert typed.stdout.endswith("The agent has no identities.\n")
    before, after = typed.stdout.partition("agents: ")[2].partition("\n")[0].split(", ")
    assert (before == after) == ("eval" in begin)  # one that runs is taken


def test_a_name_that_is_not_known_here_is_a_finding_here() -> None:
    (finding,) = one_login(node(), session(outcome="name", detail="n1: Name or service not known"))
    assert finding.status is Status.FAIL
    assert finding.cause is not None
    assert finding.cause.culprits == ("control",)


def test_the_jump_host_is_named() -> None:
    (finding,) = said(one_login(node(), session(outcome="jump", via="gate{1}")))
    assert finding.cause is not None
    assert "gate{1}" in finding.cause.title.format(nodes="n1")
    assert finding.cause.culprits == ("n1",)


def test_an_old_python_is_named_with_its_version() -> None:
    facts = session(outcome="old_python", interpreter="/opt/py/bin/python", python_version="3.5.2")
    (finding,) = one_login(node(), facts)
    assert finding.cause is not None
    assert "/opt/py/bin/python is Python 3.5.2" in finding.cause.fixes[0].text


def test_a_changed_key_is_compared_before_it_is_forgotten() -> None:
    facts = session(outcome="host_key_changed", port=44222, fingerprint="SHA256:abc", host_key=KEY)
    (finding,) = one_login(node(), facts)
    assert finding.cause is not None
    first, second = finding.cause.fixes
    assert "ssh-keygen -lf" in first.commands[0].shell
    assert second.commands[0].shell == (
        "ssh-keygen -R '[10.0.0.1]:44222' -f ~/.ssh/known_hosts; "
        + append_command("[10.0.0.1]:44222", "~/.ssh/known_hosts")
    )
    assert second.risk == "high"


def test_keys_are_kept_in_the_file_and_under_the_name_that_was_looked_up() -> None:
    facts = session(
        outcome="host_key_changed",
        address="10.0.0.1",
        known_as="gpu1",
        known_hosts="/home/ml/my hosts:4",
        host_key=KEY,
    )
    (finding,) = one_login(node(), facts)
    assert finding.cause is not None
    assert finding.cause.fixes[1].commands[0].shell == (
        "ssh-keygen -R gpu1 -f '/home/ml/my hosts'; " + append_command("gpu1", "'/home/ml/my hosts'")
    )
    files = "/a, /etc/ssh/ssh_known_hosts"
    facts = session(outcome="host_key_unknown", known_hosts=files, host_key=KEY)
    (finding,) = one_login(node(), facts)
    assert finding.cause is not None
    assert finding.cause.fixes[2].commands[0].shell == append_command("10.0.0.1", "/a")


def append_command(name: str, file: str) -> str:
    return f"key='{name} {KEY}'; " + append('"$key"', file)


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"known_as": "x; rm"}, id="a name that is none"),
        pytest.param({"host_key": ""}, id="no key, as in a report of before"),
        pytest.param({"host_key": "ssh-rsa $(reboot)"}, id="a key that is none"),
        pytest.param({"host_key": f"{KEY}' ; reboot"}, id="more than a key"),
    ],
)
def test_only_the_key_that_was_compared_is_remembered(odd: dict[str, str]) -> None:
    (finding,) = one_login(node(), session(outcome="host_key_unknown", **{"host_key": KEY, **odd}))
    assert finding.cause is not None
    acting = [c.shell for fix in finding.cause.fixes if fix.kind is not Kind.LOOK for c in fix.commands]
    assert acting == []
    assert "--accept-new" in finding.cause.fixes[-1].text


def test_a_key_that_is_remembered_twice_stands_there_once(tmp_path: Path) -> None:
    file = tmp_path / "known"
    facts = session(outcome="host_key_unknown", port=44222, host_key=KEY, known_hosts=str(file))
    (finding,) = one_login(node(), facts)
    assert finding.cause is not None
    for _ in range(2):
        subprocess.run(["sh", "-c", finding.cause.fixes[2].commands[0].shell], check=True)
        assert file.read_text() == f"[10.0.0.1]:44222 {KEY}\n"


def test_the_address_is_said_once() -> None:
    (finding,) = one_login(node(), session(outcome="refused", detail="10.0.0.1 port 22: connection refused"))
    assert finding.summary == "10.0.0.1 port 22: connection refused"
    (finding,) = one_login(node(), session(outcome="auth", user="ml", detail="user ml was refused"))
    assert finding.summary == "ml@10.0.0.1: user ml was refused"


def test_a_name_is_corrected_where_it_was_listed() -> None:
    for one, where in (
        (node(line=3, source="hosts.txt"), "in line 3 of hosts.txt,"),
        (node(source="command line"), "in its line of the hosts file,"),
    ):
        (finding,) = one_login(one, session(outcome="name"))
        assert finding.cause is not None
        assert where in finding.cause.fixes[0].text


@pytest.mark.parametrize("outcome", CLASSES)
def test_commands_can_be_pasted_as_they_are(outcome: str) -> None:
    (finding,) = one_login(node(line=3, source="hosts.txt"), session(outcome=outcome, via="gate", user="ml"))
    assert finding.cause is not None
    for fix in finding.cause.fixes:
        assert "console" not in fix.text
        for command in fix.commands:
            assert not {"HOSTS", "PORT", "USER", "FILE", "PATH"} & set(command.shell.split()), command.shell


def test_a_key_behind_a_jump_host_is_compared_by_hand() -> None:
    """ssh-keyscan takes no jump host, and no name that a shell would read."""
    ways = {"gate": node(), "": node(host="$(reboot)")}
    for via, one in ways.items():
        facts = session(outcome="host_key_unknown", via=via, address="" if not via else "10.0.0.1")
        (finding,) = one_login(one, facts)
        assert finding.cause is not None
        assert [c.shell for fix in finding.cause.fixes for c in fix.commands] == ["ssh n1 true"]
    (finding,) = one_login(node(), session(outcome="host_key_unknown"))
    assert finding.cause is not None
    assert "ssh-keyscan 10.0.0.1" in finding.cause.fixes[0].commands[0].shell


def test_text_of_the_node_reaches_no_command() -> None:
    facts = session(outcome="auth", address="evil; reboot", user="u")
    (finding,) = one_login(node(host="$(reboot)"), facts)
    assert finding.cause is not None
    assert not any("reboot" in command.shell for fix in finding.cause.fixes for command in fix.commands)


OFFERED = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"


@pytest.mark.parametrize(("user", "first"), [("root", ""), ("ml", "control")])
def test_the_very_key_that_was_refused_is_let_in(user: str, first: str, tmp_path: Path) -> None:
    (finding,) = one_login(node(), session(outcome="auth", user=user, offered=OFFERED))
    assert finding.cause is not None
    way, other, elsewhere = finding.cause.fixes
    # Of root a node seldom takes a password, so its console comes first.
    assert way.commands[0].run_on == first
    typed = (way if not first else other).commands[0].shell.replace(f"~{user}", str(tmp_path / "home"))
    for _ in range(2):
        run = subprocess.run(["sh", "-c", f"chown() {{ :; }}; {typed}"], check=False, capture_output=True)
        assert (run.returncode, run.stderr) == (0, b"")
    keys = tmp_path / "home/.ssh/authorized_keys"
    assert keys.read_text() == f"{OFFERED}\n"
    assert keys.stat().st_mode & 0o777 == 0o600
    assert "ssh-copy-id" not in str(finding.cause.fixes)
    assert elsewhere.kind is Kind.HOSTS


@pytest.mark.parametrize("offered", ["", "ssh-rsa AAAA'; reboot; '", f"{OFFERED}\nx", "x"])
def test_what_is_no_key_goes_into_no_command(offered: str) -> None:
    (finding,) = one_login(node(), session(outcome="auth", user="root", offered=offered))
    assert finding.cause is not None
    assert not any(fix.commands for fix in finding.cause.fixes)


def test_a_full_server_is_asked_by_fewer_and_told_to_take_more() -> None:
    (finding,) = one_login(node(), session(outcome="too_many"))
    assert finding.cause is not None
    again, more = finding.cause.fixes
    assert again.commands[0].shell == "netdoctor scan --last -j 2"
    # Reloaded only when it can be read, under the name that the distribution has for it, and taken back.
    said = more.commands[0].shell
    assert said.index("sshd -t") < said.index("systemctl reload ssh ") < said.index("systemctl reload sshd")
    assert "rm -f /etc/ssh/sshd_config.d/zz-netdoctor-startups.conf && " in more.undo[0].shell


@pytest.mark.skipif(SSHD is None, reason="no OpenSSH server on this machine")
@pytest.mark.parametrize("own", ["", "MaxStartups 2:50:4\n", "  maxstartups 2\n"])
def test_a_full_server_takes_more_whatever_its_own_file_says(own: str, tmp_path: Path) -> None:
    (finding,) = one_login(node(), session(outcome="too_many"))
    assert finding.cause is not None
    more = finding.cause.fixes[1]
    if os.getuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    main, drop_ins = tmp_path / "sshd_config", tmp_path / "sshd_config.d"
    drop_ins.mkdir()
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (drop_ins / "50-site.conf").write_text("MaxStartups 3\n")
    text = f"Include {drop_ins}/*.conf\n#MaxStartups 10:30:100\n{own}HostKey {key}\n"
    main.write_text(text)

    def paste(line: str) -> str:
        """Return what sshd makes of it afterwards."""
        there = line.replace("/etc/ssh", str(tmp_path)).replace("sshd -t", f"sshd -t -f {main}")
        there = there.replace("systemctl", "true")
        subprocess.run(["sh", "-ec", there], check=True)
        told = subprocess.run([str(SSHD), "-T", "-f", main], check=True, capture_output=True, text=True)
        (set_,) = [line for line in told.stdout.splitlines() if line.startswith("maxstartups ")]
        return set_

    assert paste(more.commands[0].shell) == "maxstartups 100:30:200"
    assert paste(more.commands[0].shell) == "maxstartups 100:30:200"
    assert paste(more.undo[0].shell) != "maxstartups 100:30:200"
    assert main.read_text() == text


def test_where_a_node_was_named_is_where_to_correct_it() -> None:
    for listed, place in (
        (node(line=3, source="hosts.txt"), "line 3 of hosts.txt"),
        (node(source="command line"), "its line of the hosts file"),
    ):
        (finding,) = one_login(listed, session(outcome="name"))
        assert finding.cause is not None
        assert any(fix.text.startswith(f"correct the name in {place},") for fix in finding.cause.fixes)


def test_noise_is_tolerated_and_noted() -> None:
    (finding,) = one_login(node(), session(noise="Welcome!"))
    assert finding.status is Status.PASS
    assert finding.evidence[0].output == "Welcome!"


def test_an_outcome_of_a_later_version_is_unknown() -> None:
    (finding,) = one_login(node(), session(outcome="novel"))
    assert finding.status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("waited_ms", "others_ms", "key"),
    [
        pytest.param(57_000.0, (200.0, 900.0), "ssh-shell-hangs", id="the others were far sooner"),
        pytest.param(57_000.0, (200.0, 20_000.0), "ssh-timeout", id="one other nearly did not"),
        pytest.param(57_000.0, (), "ssh-timeout", id="alone"),
        pytest.param(4_000.0, (200.0,), "ssh-timeout", id="little patience"),
        pytest.param(None, (200.0,), "ssh-timeout", id="of an older report"),
    ],
)
def test_a_login_that_starts_no_program_is_held_against_the_others(
    waited_ms: float | None, others_ms: tuple[float, ...], key: str
) -> None:
    sessions = {f"n{i}": session(i, first_byte_ms=ms) for i, ms in enumerate(others_ms, start=2)}
    late = {"outcome": "timeout", "stage": "shell", "first_byte_ms": waited_ms}
    sessions["n1"] = session(1, **late)
    sessions["n9"] = session(9, outcome="refused", stage="connect", first_byte_ms=None)
    findings = {one.target: one for one in ssh_login({n: node(id=n) for n in sessions}, sessions)}
    assert findings.keys() == {"n1", "n9"}
    cause = findings["n1"].cause
    assert cause
    assert cause.key == key
    assert findings["n1"].status is (Status.FAIL if key == "ssh-shell-hangs" else Status.UNKNOWN)


def test_one_that_was_at_the_door_still_is_no_shell_that_hangs() -> None:
    facts = session(outcome="timeout", stage="auth", first_byte_ms=None)
    (finding,) = one_login(node(), facts, 200.0)
    assert finding.status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("late", "first_byte_ms", "number"),
    [
        pytest.param(40, 6_000.0, 10, id="the others were slow"),
        pytest.param(40, 300.0, None, id="the others were quick"),
        pytest.param(3, 6_000.0, None, id="few are late"),
    ],
)
def test_fewer_logins_at_once_are_advised_where_they_are_in_each_others_way(
    late: int, first_byte_ms: float, number: int | None
) -> None:
    """Of 20 that got in the answers of all came."""
    good = {f"n{i}": session(i, first_byte_ms=first_byte_ms) for i in range(20)}
    slow = {f"n{i}": session(i, outcome="timeout", stage="kex") for i in range(20, 20 + late)}
    sessions = {**good, **slow}
    hosts = {name: host() for name in good}
    findings = list(ssh_login({name: node(id=name) for name in sessions}, sessions, hosts))
    assert len(findings) == late
    for finding in findings:
        assert finding.cause
        first = finding.cause.fixes[0].commands[0].shell
        assert (first == f"netdoctor scan --last -j {number}") is (number is not None)


def test_a_handshake_without_an_end_is_no_nodes_fault_where_all_are_slow() -> None:
    """With 140 logins at once on two cores the last ones hung in the key exchange, of healthy servers."""
    hangs = {"outcome": "kex_broken", "stage": "kex", "detail": "the key exchange did not end within 15 s"}
    odd = {"n1": session(1, **hangs), "n2": session(2, **{**hangs, "detail": "the server closed it"})}
    slow = {f"n{i}": session(i, outcome="timeout", stage="auth") for i in range(10, 20)}

    def keys(**good: Session) -> list[str]:
        sessions = {**odd, **slow, **good}
        found = {one.target: one for one in ssh_login({n: node(id=n) for n in sessions}, sessions)}
        return [found[name].cause.key for name in odd]  # type: ignore[union-attr]

    assert keys() == keys(n30=session(30, first_byte_ms=9_000.0)) == ["ssh-timeout", "ssh-kex-broken"]
    assert keys(n30=session(30, first_byte_ms=200.0)) == ["ssh-kex-broken"] * 2


def test_answers_that_came_too_late_count_as_those_that_did_not_get_in() -> None:
    sessions = {f"n{i}": session(i, first_byte_ms=6_000.0) for i in range(60)}
    assert fewer_at_once(sessions, {f"n{i}" for i in range(24)}) == 12
    assert fewer_at_once(sessions, {f"n{i}" for i in range(57)}) is None
    assert fewer_at_once(sessions, ()) is None
    assert fewer_at_once({}, ()) is None
