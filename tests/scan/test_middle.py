"""What happens in the middle of a scan: nodes freeze, agents are killed, a scan itself stands still."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from netdoctor.lab import Lab
from tests.scan.faults import put
from tests.scan.harness import Scanned, begin, finish, netdoctor, until

# Connections that nobody answers keep these busy for some seconds.
BUSY = "node3 drop"
ONLY = ("--only", "net.ports", "--only", "net.loss")


def test_what_freezes_in_the_middle_costs_itself(lab4: Lab, tmp_path: Path) -> None:
    """One scan stands still for ever; another meanwhile loses node2 to a freeze, and node1's agent."""
    folders = [tmp_path / name for name in ("still", "whole")]
    for folder in folders:
        folder.mkdir()
    put(lab4, (BUSY,))
    before = listeners(lab4)
    limit_s = bound_s(lab4, folders[0])
    still = begin(lab4, folders[0], *ONLY, "--master-port", "29501")
    try:
        until(lambda: listens(lab4, "node0", 29501), "the first scan's listener on node0")
        own = {still.pid, *(child.pid for child in psutil.Process(still.pid).children(recursive=True))}
        with stopped(own):
            scanned = lose(lab4, folders[1], limit_s)
            # Its time for the ports is over by itself, on every node.
            until(lambda: listeners(lab4) == before, "listeners are left on nodes", limit_s)
    finally:
        still.kill()
        still.communicate(timeout=30)
    assert scanned.code == 1, scanned.summary()  # for what node3 drops
    assert scanned.cause("unmeasured-lost")["node_list"] == ["node1", "node2"], scanned.summary()
    for node in ("node1", "node2"):
        assert scanned.cell("net.ports", node) == scanned.cell("net.loss", node) == "?", scanned.summary()
    assert scanned.report["healthy_nodes"] == ["node0"]


def lose(lab: Lab, folder: Path, limit_s: float) -> Scanned:
    """A scan that loses two nodes while it tests ports, ended within `limit_s`."""
    others = set(lab.pids("node1"))
    process = begin(lab, folder, *ONLY)
    until(lambda: listens(lab, "node2", 29500), "the second scan's listener on node2")
    send({pid for pid in set(lab.pids("node1")) - others if is_python(pid)}, signal.SIGKILL)
    with stopped(set(lab.pids("node2"))):
        return finish(process, folder, limit_s)


def bound_s(lab: Lab, folder: Path) -> float:
    """After how many seconds --plan says that the nodes are left."""
    argv = ("scan", "--ssh-config", str(lab.ssh_config), str(lab.hosts_file), *ONLY, "--plan")
    said = netdoctor(*argv, cwd=folder)
    found = re.search(r"leaves the nodes after (\d+) s", said.stdout)
    assert found, said.stderr
    return float(found[1])


def listeners(lab: Lab) -> dict[str, set[tuple[str, int]]]:
    return {node: set(lab.listeners(node)) for node in lab.nodes}


def listens(lab: Lab, node: str, port: int) -> bool:
    return any(found == port for _, found in lab.listeners(node))


def is_python(pid: int) -> bool:
    try:
        return "python" in psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return False


@contextmanager
def stopped(pids: set[int]) -> Iterator[None]:
    """These processes do nothing meanwhile."""
    try:
        send(pids, signal.SIGSTOP)
        yield
    finally:
        send(pids, signal.SIGCONT)


def send(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
