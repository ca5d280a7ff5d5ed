"""Faults between netdoctor and a shell on the node: one cause, and the other nodes are judged as ever."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdoctor.lab import Lab
from tests.conftest import Maker
from tests.scan.faults import Case, case, found, hold, judge, put, together
from tests.scan.harness import Scanned, apply_fix, on_console, scan, verify

SILENT_PORT = "node2 drop peers=control ports=44222"

NO_LOGIN = [
    case("node2 sshd-down", "ssh-refused", "ssh.login", said="refused", fix="start the SSH server"),
    case(
        "node2 reject peers=control ports=44222 with=reset", "ssh-refused", "ssh.login",
        said="connection refused", fix="start the SSH server",
        excuse="what answers is a packet filter, which a person has to find",
    ),
    case("node2 not-ssh", "ssh-not-ssh", "ssh.login", said="HTTP/1.1 400", fix="ss -tlnp"),
    case("node2 frozen", "ssh-no-answer", "ssh.login", said="nothing was said", fix="reset it"),
    case(
        SILENT_PORT, "ssh-no-answer", "ssh.login", said="44222", fix="nc -vz -w 5",
        excuse="what stays silent is a packet filter, which a person has to find",
    ),
    case("node2 wrong-key", "ssh-auth", "ssh.login", said="was refused", fix="authorized_keys"),
    case("node2 host-key", "ssh-host-key-changed", "ssh.login", said="SHA256:", fix="ssh-keygen -lf"),
    case("node2 ssh-full", "ssh-too-many", "ssh.login", said="MaxStartups", fix="-j 2"),
    case("node2 login-shell", "ssh-shell", "ssh.login", said="not available", fix="usermod -s /bin/bash"),
    case(
        "node2 login-shell path=/bin/false", "ssh-shell", "ssh.login", said="status 1", fix="true; echo $?",
        excuse="what the shell does is looked at, and a person's to decide",
    ),
]  # fmt: skip


MESH: dict[str, Any] = {"check": "ssh.mesh", "args": ("--only", "ssh.mesh")}
NO_CLIENT = "what is missing is a package, and a node of the lab has no way to one"
BETWEEN = [
    case("node2 ssh-between", "mesh-auth-out", said="Permission denied", fix="authorized_keys", **MESH),
    case(
        "node2 ssh-between kind=unknown", "mesh-host-key-unknown-out", said="Host key verification failed",
        fix="known_hosts", **MESH,
    ),
    case(
        "node2 ssh-between kind=changed", "mesh-host-key-changed-out",
        said="REMOTE HOST IDENTIFICATION HAS CHANGED", fix="ssh-keygen -q -R", **MESH,
    ),
    case(
        "node2 ssh-between kind=port", "mesh-refused-out", said="Connection refused", fix="Port 44222", **MESH
    ),
    case(
        "node2 ssh-between kind=no-client", "mesh-no-client", said="no ssh", fix="openssh-client",
        excuse=NO_CLIENT, **MESH,
    ),
]  # fmt: skip


@pytest.mark.parametrize("cases", together(BETWEEN))
def test_nodes_that_log_in_nowhere(lab4: Lab, folder: Path, cases: tuple[Case, ...]) -> None:
    hold(lab4, folder, *cases)


@pytest.fixture
def own_known_hosts(lab4: Lab) -> Iterator[Lab]:
    """The lab, whose known_hosts a fix may change."""
    before = lab4.known_hosts.read_text()
    yield lab4
    lab4.known_hosts.write_text(before)


def others_are_judged(scanned: Scanned, *lost: str) -> None:
    report = scanned.report
    assert report["unhealthy_nodes"] == [*lost]
    assert [t["id"] for t in report["targets"] if not t["reached"]] == [*lost]
    nodes = report["matrix"]["nodes"]
    for row, check in zip(report["matrix"]["cells"], report["matrix"]["checks"], strict=True):
        if check != "ssh.login":
            assert {row[nodes.index(node)] for node in lost} == {"b"}, f"{check} waits for the login"
            others = {letter for node, letter in zip(nodes, row, strict=True) if node not in lost}
            assert others <= {".", "-", "!"}, f"{check} of the others: {row}"
    assert scanned.cell("net.ports", "node0") == "."
    assert all(cause["held"] == len(report["matrix"]["checks"]) - 1 for cause in report["causes"])


# Two nodes are left, so that they still have somebody to talk to.
@pytest.mark.parametrize("cases", together(NO_LOGIN, size=2))
def test_a_node_that_lets_nobody_in(own_known_hosts: Lab, folder: Path, cases: tuple[Case, ...]) -> None:
    others_are_judged(hold(own_known_hosts, folder, *cases), *(node for one in cases for node in one.nodes))


def test_a_changed_host_key_is_compared_and_then_replaced(own_known_hosts: Lab, folder: Path) -> None:
    lab = own_known_hosts
    put(lab, ("node2 host-key",))
    scanned = scan(lab, folder)
    cause = scanned.cause("ssh-host-key-changed")
    shown = on_console(lab, cause, 0)
    server, known = re.findall(r"SHA256:[\w+/]+", " ".join(cause["seen"]))[:2]
    assert server in shown
    assert known not in shown
    apply_fix(scanned, cause, 1)
    done = verify(scanned, cause)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_unknown_host_key_is_compared_and_then_remembered(own_known_hosts: Lab, folder: Path) -> None:
    lab = own_known_hosts
    lines = lab.known_hosts.read_text().splitlines(keepends=True)
    lab.known_hosts.write_text("".join(line for line in lines if lab.address("node2") not in line))
    scanned = scan(lab, folder)
    one = case((), "ssh-host-key-unknown", "ssh.login", said="not found in", fix="ssh-keygen -lf", id="x")
    (cause,) = judge(scanned, one.values[0])
    apply_fix(scanned, cause, 0)
    on_console(lab, cause, 1)
    apply_fix(scanned, cause, 2)
    done = verify(scanned, cause)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_login_shell_is_given_back(lab4: Lab, folder: Path) -> None:
    put(lab4, ("node2 login-shell",))
    scanned = scan(lab4, folder)
    cause = scanned.cause("ssh-shell")
    on_console(lab4, cause, 0)
    done = verify(scanned, cause)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_commands_that_look_can_be_pasted(lab4: Lab, folder: Path) -> None:
    put(lab4, ("node1 not-ssh", "node2 login-shell", SILENT_PORT.replace("node2", "node3")))
    scanned = scan(lab4, folder)
    assert set(found(scanned)) == {"ssh-not-ssh", "ssh-shell", "ssh-no-answer"}
    assert "nginx" in on_console(lab4, scanned.cause("ssh-not-ssh"), 0)
    apply_fix(scanned, scanned.cause("ssh-shell"), 1)


def test_an_address_is_said_once_and_a_console_is_named_once(lab4: Lab, folder: Path) -> None:
    put(lab4, ("node1 sshd-down", "node2 host-key"))
    scanned = scan(lab4, folder)
    (seen,) = [line for line in scanned.cause("ssh-refused")["seen"] if "refused" in line]
    assert seen.count(lab4.address("node1")) == 1
    assert "on its console" not in scanned.text
    assert "HOSTS" not in scanned.text
    for line in scanned.text.splitlines():
        assert "known_hosts:" not in line or "ssh-key" not in line


def test_shells_that_talk_or_take_their_time_are_no_fault(lab4: Lab, folder: Path) -> None:
    put(lab4, ("node1 shell-noise", "node2 slow-shell", "node3 slow-shell seconds=1"))
    scanned = scan(lab4, folder)
    assert (scanned.state, scanned.code) == ("ready", 0), scanned.summary()
    # Three seconds at each login are worth a word; a sentence at each login, or one second, is not.
    assert found(scanned) in ({}, {"ssh-slow": ("node2",)}), scanned.summary()
    assert "\x1b" not in scanned.text + scanned.stderr
    assert "Welcome" not in scanned.text


def test_a_shell_that_never_ends_is_the_nodes(lab4: Lab, folder: Path) -> None:
    """Where the others were far sooner; where all are slow, nobody is to blame."""
    put(lab4, ("node1 slow-shell seconds=1000",))
    scanned = scan(lab4, folder, "--timeout", "20")
    assert (scanned.state, scanned.code) == ("not_ready", 1), scanned.summary()
    assert found(scanned) == {"ssh-shell-hangs": ("node1",)}
    others_are_judged(scanned, "node1")
    assert "no program started in" in " ".join(scanned.text.split())
    cause = scanned.cause("ssh-shell-hangs")
    assert "sleep 1000" in on_console(lab4, cause, 1)
    put(lab4, tuple(f"{node} slow-shell seconds=1000" for node in lab4.nodes if node != "node1"))
    scanned = scan(lab4, folder, "--timeout", "12", "--only", "ssh.login")
    assert (scanned.state, scanned.code) == ("undecided", 3), scanned.summary()
    assert found(scanned) == {"ssh-timeout": tuple(lab4.nodes)}


def test_fewer_logins_at_once_are_advised_where_the_others_got_in_slowly(
    make_lab: Maker, folder: Path
) -> None:
    lab = make_lab(6)
    faults = [f"{node} slow-shell seconds=1000" for node in lab.nodes[2:]]
    put(lab, tuple(f"{node} slow-shell seconds=2" for node in lab.nodes[:2]) + tuple(faults))
    scanned = scan(lab, folder, "--timeout", "8", "-p", "quick")
    assert (scanned.state, scanned.code) == ("undecided", 3), scanned.summary()
    assert found(scanned) == {"ssh-timeout": tuple(lab.nodes[2:])}
    assert "netdoctor scan --last -j 2" in scanned.text
    assert scanned.cause("ssh-timeout")["verify"]["shell"].endswith(" -j 2")
    assert "-j 2 is half of those that succeeded in time" in " ".join(scanned.text.split())
    lab.heal()
    healed = scan(lab, folder, "-p", "quick")
    assert healed.code == 0
    assert "at once" not in healed.text


def test_nobody_lets_anybody_in(lab4: Lab, folder: Path) -> None:
    put(lab4, tuple(f"{node} sshd-down" for node in lab4.nodes))
    scanned = scan(lab4, folder)
    assert (scanned.state, scanned.code) == ("not_ready", 1)
    assert found(scanned) == {"ssh-refused": tuple(lab4.nodes)}
    assert "none of 4 nodes can be logged in to" in scanned.text


@pytest.mark.parametrize(
    ("faults", "keys"),
    [
        (("node1 host-key", "node2 wrong-key"), {"ssh-host-key-changed": ("node1",), "ssh-auth": ("node2",)}),
        (("node0 sshd-down", "node2 login-shell"), {"ssh-refused": ("node0",), "ssh-shell": ("node2",)}),
    ],
)
def test_two_faults(
    lab4: Lab, folder: Path, faults: tuple[str, ...], keys: dict[str, tuple[str, ...]]
) -> None:
    put(lab4, faults)
    scanned = scan(lab4, folder)
    assert (scanned.code, found(scanned)) == (1, keys), scanned.summary()
