"""Scans that do not end by themselves: interrupts, deadlines, kill -9; and those that never begin."""

import contextlib
import json
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from netdoctor.lab import Lab
from tests.scan.faults import put
from tests.scan.harness import NETDOCTOR, begin, environment, finish, netdoctor, scan, until

# After a signal; what a person with a hanging scan is promised, and room for a busy machine.
PROMISED_S, ROOM_S = 3.0, 7.0


def running(lab: Lab) -> dict[str, set[int]]:
    return {node: set(lab.pids(node)) for node in lab.nodes}


def agents_run(lab: Lab, before: dict[str, set[int]], *nodes: str) -> bool:
    """Whether a Python of ours runs on each node."""
    return all(any(_is_python(pid) for pid in set(lab.pids(node)) - before[node]) for node in nodes)


def _is_python(pid: int) -> bool:
    try:
        return "python" in psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_a_valid_report_of_what_is_known(
    lab4: Lab, folder: Path, number: signal.Signals, code: int
) -> None:
    before = running(lab4)
    put(lab4, ("node2 frozen",))
    process = begin(lab4, folder)
    until(lambda: agents_run(lab4, before, "node0", "node1", "node3"), "agents on the nodes")
    process.send_signal(number)
    sent = time.monotonic()
    scanned = finish(process, folder)
    assert time.monotonic() - sent < PROMISED_S + ROOM_S
    assert scanned.code == code, scanned.summary()
    assert not scanned.report["run"]["complete"]
    assert scanned.state in ("undecided", "not_ready")
    assert "interrupted" in scanned.text
    assert scanned.report["verdict"]["counts"]["unknown"] > 0
    assert scanned.cell("ssh.login", "node2") in "?X"


def test_a_second_interrupt_is_no_traceback(lab4: Lab, folder: Path) -> None:
    before = running(lab4)
    put(lab4, ("node2 frozen",))
    process = begin(lab4, folder)
    until(lambda: agents_run(lab4, before, "node0"), "an agent on a node")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr


def test_a_deadline_is_kept_and_said(lab4: Lab, folder: Path) -> None:
    put(lab4, ("node2 frozen",))
    scanned = scan(lab4, folder, "--deadline", "2")
    assert scanned.code in (1, 3), scanned.summary()
    assert scanned.state == {1: "not_ready", 3: "undecided"}[scanned.code]
    assert "stopped by the deadline" in scanned.text
    assert not scanned.report["run"]["complete"]
    # Nobody waited long enough to say that node2 does not answer, nor anything about its services.
    assert scanned.cell("net.ports", "node2") in "?b"
    assert scanned.report["healthy_nodes"] == [] or "node2" not in scanned.report["healthy_nodes"]


@pytest.mark.parametrize("moment", ["login", "ports"])
def test_kill_9_leaves_nothing_on_any_node(lab4: Lab, folder: Path, moment: str) -> None:
    before = running(lab4)
    listening = {node: set(lab4.listeners(node)) for node in lab4.nodes}
    # Either keeps the scan busy for some seconds: a login that hangs, or connections that nobody answers.
    put(lab4, ("node2 slow-shell seconds=8" if moment == "login" else "node2 drop",))
    process = begin(lab4, folder)
    if moment == "login":
        until(lambda: agents_run(lab4, before, "node0", "node1", "node3"), "agents on the nodes")
    else:
        until(lambda: set(lab4.listeners("node0")) > listening["node0"], "listeners on node0")
    own = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate(timeout=30)
    # What the shell of node2 itself does (`sleep` in its start-up file) ends with it.
    most_s = 13 if moment == "login" else 7
    until(lambda: all(set(lab4.pids(n)) <= before[n] for n in lab4.nodes), "processes are left", most_s)
    left = {node: set(lab4.listeners(node)) - listening[node] for node in lab4.nodes}
    assert left == {node: set() for node in lab4.nodes}
    assert not [child for child in own if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def test_a_finished_scan_leaves_nothing_either(lab4: Lab, folder: Path) -> None:
    before = running(lab4)
    listening = {node: set(lab4.listeners(node)) for node in lab4.nodes}
    scan(lab4, folder)
    until(lambda: all(set(lab4.pids(n)) <= before[n] for n in lab4.nodes), "processes are left", 10)
    assert {node: set(lab4.listeners(node)) for node in lab4.nodes} == listening


def test_two_scans_at_once_do_not_accuse_each_other(lab4: Lab, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    first = begin(lab4, folders[0])
    time.sleep(0.3)
    second = begin(lab4, folders[1])
    for process, folder in zip((first, second), folders, strict=True):
        scanned = finish(process, folder)
        assert (scanned.code, scanned.keys) == (0, []), scanned.summary()


def test_a_typo_in_the_hosts_file_contacts_nobody(lab4: Lab, folder: Path) -> None:
    """Not even the nodes that are written rightly, nor one that is dead."""
    put(lab4, ("node1 sshd-down",))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        hosts = folder / "hosts.txt"
        hosts.write_text(f"node0\nnode1\n127.0.0.1:{port}\nnode[2-\nnode3 prot=22\n")
        done = netdoctor("scan", "--ssh-config", str(lab4.ssh_config), "hosts.txt", cwd=folder)
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()
    assert done.returncode == 2
    assert done.stdout == ""
    assert "hosts.txt:4" in done.stderr
    assert "hosts.txt:5" in done.stderr
    assert not (folder / ".netdoctor").exists()


def test_output_that_cannot_be_written_is_found_before_anybody_is_contacted(lab4: Lab, folder: Path) -> None:
    done: subprocess.CompletedProcess[str] = netdoctor(
        "scan", "--ssh-config", str(lab4.ssh_config), str(lab4.hosts_file), "-o", "json=no/such/x.json",
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == 2
    assert "no/such" in done.stderr


def test_name_servers_that_never_answer_are_this_machines_trouble(folder: Path) -> None:
    """Three of them, which glibc asks for 30 s: longer than a login may take."""
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespace may be made here")
    servers = ("127.0.61.1", "127.0.61.2", "127.0.61.3")
    (folder / "resolv.conf").write_text("".join(f"nameserver {server}\n" for server in servers))
    nodes = [f"gpu{i}.example.org" for i in (1, 2, 3)]
    command = shlex.join([*NETDOCTOR, "scan", *nodes, "-o", "json=report.json", "-o", "text"])
    with contextlib.ExitStack() as silent:
        for server in servers:
            silent.enter_context(socket.socket(type=socket.SOCK_DGRAM)).bind((server, 53))
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", f"mount --bind resolv.conf /etc/resolv.conf && exec {command}"],
            check=False,
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment(),
            timeout=120,
        )
    assert done.returncode == 3, done.stdout + done.stderr
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert [cause["key"] for cause in report["causes"]] == ["ssh-control-names"]
    assert report["verdict"]["state"] == "undecided"
    assert report["unhealthy_nodes"] == []
    assert "cat /etc/resolv.conf" in done.stdout
