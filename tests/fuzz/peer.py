"""Scans of three healthy nodes with hostile ones beside them: what strangers do costs nobody else anything.

Every case is drawn from a seed: which moves of `hostile_peer` stand beside the three, and how each plays out.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from netdoctor.facts.base import FACT_TYPES
from tests.checks.test_unread import DATA, judged
from tests.checks.test_unread import NODE as LIAR
from tests.fuzz.hostile_peer import MOVES, changed, serving
from tests.scan.harness import REPO, Scanned, check_promises, environment
from tests.transport.conftest import USER, Server, start_sshd

HEALTHY = ("well1", "well2", "well3")
# Judged of a node alone, so that what others say of themselves changes nothing.
OWN = ("ssh.login", "host.shm", "host.memlock", "host.nofile", "host.disk", "host.memory", "time.sync")
BESIDE = 10
MEMORY_MAX = 300 << 20
TIMEOUT_S = 15
LEFT_S = 5.0
LIES = 30
SAID_BY_NODES = {info.group for info in FACT_TYPES.values() if info.origin == "agent"}
HONEST = judged(DATA)
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass
class Site:
    """A real sshd that three names lead to, and where scans of it run."""

    server: Server
    folder: Path

    def scan(self, ports: dict[str, int], *args: str) -> tuple[Scanned, float, int]:
        """Scan the three and whoever listens on `ports`: the report, its seconds, the most memory of all."""
        hosts = [*HEALTHY, *ports]
        config = self.folder / "config"
        own = "".join(
            f"Host {name}\n Port {port}\n StrictHostKeyChecking no\n" for name, port in ports.items()
        )
        config.write_text(
            f"{own}Host {' '.join(HEALTHY)}\n Port {self.server.port}\n"
            f"Host *\n HostName 127.0.0.1\n User {USER}\n IdentityFile {self.server.key}\n"
            f" UserKnownHostsFile {self.server.known_hosts()}\n GlobalKnownHostsFile none\n"
        )
        argv = [sys.executable, "-m", "netdoctor", "scan", *hosts, "--ssh-config", str(config), *args]
        argv += ["--timeout", str(TIMEOUT_S), "--no-save"]
        plan = subprocess.run(
            [*argv, "--plan"], capture_output=True, text=True, env=environment(), cwd=self.folder
        )
        bound_s = float(re.findall(r"after (\d+) s at the latest", plan.stdout)[0])
        argv += ["-o", "text", "-o", "json=report.json", "-o", "junit=report.xml"]
        began = time.monotonic()
        pipe = subprocess.PIPE
        with subprocess.Popen(
            argv, stdout=pipe, stderr=pipe, text=True, env=environment(), cwd=self.folder
        ) as process:
            peak = Peak(process.pid)
            try:
                text, errors = process.communicate(timeout=bound_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(f"the scan did not end within its bound of {bound_s:.0f} s") from None
        took = time.monotonic() - began
        assert process.returncode in (0, 1, 3), f"exit {process.returncode}\n{text}\n{errors}"
        assert "Traceback" not in text + errors, errors
        report = json.loads((self.folder / "report.json").read_text("utf-8"))
        scanned = Scanned(process.returncode, text, report, errors, self.folder, argv)
        check_promises(scanned)
        return scanned, took, peak.bytes

    def at_work(self) -> list[str]:
        """What runs on the three nodes: children of their sshd's sessions."""
        found = []
        for child in psutil.Process(self.server.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                found.append(" ".join(child.cmdline())[:80])
        return found


class Peak:
    """The most memory that a process and its children have had at one time, looked at ten times a second."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._process = psutil.Process(pid)
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        with contextlib.suppress(psutil.Error):
            while True:
                total = 0
                for process in (self._process, *self._process.children(recursive=True)):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        total += process.memory_info().rss
                self.bytes = max(self.bytes, total)
                time.sleep(0.1)


@contextlib.contextmanager
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "sshd")
        place.mkdir()
        server = start_sshd(place)
        try:
            yield Site(server, Path(folder))
        finally:
            server.process.terminate()
            server.process.wait()


def own_cells(scanned: Scanned) -> dict[tuple[str, str], str]:
    return {(check, node): scanned.cell(check, node) for check in OWN for node in HEALTHY}


def hold(where: Site, scanned: Scanned, peak: int, alone: dict[tuple[str, str], str]) -> None:
    """What is so after every scan."""
    assert own_cells(scanned) == alone, scanned.summary()
    assert peak < MEMORY_MAX, f"{peak >> 20} MiB"
    found = CONTROL_CHARACTERS.search(scanned.text)
    assert not found, repr(scanned.text[max(0, found.start() - 80) : found.end() + 20])
    assert not list(where.folder.rglob("OWNED"))
    end = time.monotonic() + LEFT_S
    while left := where.at_work():
        assert time.monotonic() < end, f"left on a healthy node: {left}"
        time.sleep(0.1)


def one_lie(rng: random.Random) -> None:
    """Judge a healthy cluster in which one node says of itself what it likes: the others stay as they are."""
    data = copy.deepcopy(DATA)
    rate = rng.choice((0.0005, 0.002, 0.01, 0.05))
    for group in SAID_BY_NODES & data["node"].keys():
        fact = data["node"][group][LIAR]
        if "value" in fact:
            fact["value"] = changed(fact["value"], rng, rate)
    told = judged(data)
    assert not told.tracebacks, told.tracebacks[0]
    for check in told.checks:
        if check.scope == "node":
            for node in set(told.nodes) - {LIAR}:
                assert told.cells[check.id][node] is HONEST.cells[check.id][node], (check.id, node)


def one_case(where: Site, rng: random.Random, alone: dict[tuple[str, str], str], seed: str) -> str:
    """Scan once; returns what stood beside the three."""
    moves = rng.choices(MOVES, k=BESIDE)
    profile = ["-p", "launch", "--skip", "bw.*"] if rng.random() < 0.25 else ["-p", "quick"]
    names = [f"{move.__name__}{number}".replace("_", "-") for number, move in enumerate(moves)]
    with contextlib.ExitStack() as servers:
        ports = {
            name: servers.enter_context(serving(move, f"{seed}:{name}"))
            for name, move in zip(names, moves, strict=True)
        }
        try:
            scanned, took, peak = where.scan(ports, *profile)
            hold(where, scanned, peak, alone)
        except Exception as error:
            error.add_note(f"beside: {' '.join(names)} ({' '.join(profile)})")
            raise
    return f"{took:.0f} s, {peak >> 20} MiB, exit {scanned.code}: {' '.join(names)}"


def run(seed: int, seconds: float, say: bool = False) -> int:
    """Run cases drawn from `seed` until `seconds` are over; returns how many.

    Raises AssertionError, which names seed and case.
    """
    end = time.monotonic() + seconds
    cases = 0
    with site() as where:
        scanned, _, _ = where.scan({}, "-p", "quick")
        alone = own_cells(scanned)
        assert set(alone.values()) <= set(".!X-"), scanned.summary()
        while time.monotonic() < end:
            name = f"{seed}:{cases}"
            try:
                said = one_case(where, random.Random(name), alone, name)
            except Exception as error:
                notes = "\n".join(error.__notes__)
                raise AssertionError(f"seed {seed}, case {cases}: {error}\n{notes}") from error
            if say:
                print(name, said, flush=True)
            for number in range(LIES):
                try:
                    one_lie(random.Random(f"{name}:{number}"))
                except Exception as error:
                    raise AssertionError(f"seed {seed}, case {cases}, lie {number}: {error}") from error
            cases += 1
    return cases


if __name__ == "__main__":
    sys.path.insert(0, str(REPO))
    print(run(int(sys.argv[1]), float(sys.argv[2]), say=True), "cases")
