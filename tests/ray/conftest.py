"""A real Ray cluster of four lab nodes, head on the first, brought up once."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from tests.conftest import Maker
from tests.scan.harness import REPO, Scanned, check_promises
from tests.slurm.conftest import site

# What a node takes for itself: 30 % of the machine's memory without a word, and CPUs by the same count.
START = "ray start --node-ip-address={own} --object-store-memory=80000000 --num-cpus=1 --disable-usage-stats"
TORCH = "2.6.0+cu124", "12.4", "2.21.5"


@dataclass(frozen=True)
class Ray:
    """A lab with Ray on it; netdoctor runs on its first node. python: the interpreter with Ray."""

    lab: Lab
    site: Path
    python: str

    def run(self, node: str, *argv: str, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
        path = f"{Path(self.python).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        settings = {"PATH": path, "HOME": "/root", "PYTHONPATH": str(self.site), "LC_ALL": "C.UTF-8"}
        plain = ["env", "-i", *(f"{name}={value}" for name, value in settings.items())]
        return self.lab.run(node, [*plain, *argv], capture_output=True, text=True, timeout=timeout)

    def start(self, node: str) -> None:
        head = self.lab.nodes[0]
        own, first = self.lab.address(node), self.lab.address(head)
        how = "--head --port=6379 --include-dashboard=false" if node == head else f"--address={first}:6379"
        done = self.run(node, "sh", "-c", f"{START.format(own=own)} {how}")
        assert done.returncode == 0, done.stdout + done.stderr

    def scan(self, folder: Path, *args: str) -> Scanned:
        """`scan --via ray` on the head, held to what every report promises. folder: for what it writes."""
        argv = ["-m", *_line(), "--python", "/usr/bin/python3", *args]
        argv += ["-o", "text", "-o", "json=report.json", "-o", "junit=report.xml"]
        here = 'mkdir -p /root/run && cd /root/run && rm -rf .netdoctor report.* && exec "$0" "$@"'
        python = str(Path(sys._base_executable).resolve())  # type: ignore[attr-defined]
        head = self.lab.nodes[0]
        done = self.run(head, "sh", "-c", here, python, *argv)
        assert "Traceback" not in done.stderr + done.stdout, done.stderr
        for name in ("report.json", "report.xml"):
            (folder / name).write_text(self.run(head, "cat", f"/root/run/{name}").stdout)
        text = (folder / "report.json").read_text("utf-8")
        assert text, done.stderr
        report = json.loads(text)
        scanned = Scanned(done.returncode, done.stdout, report, done.stderr, folder, argv)
        check_promises(scanned)
        return scanned

    def processes(self, word: str, *on: str) -> list[int]:
        """What runs on the nodes with this word in its command line."""
        return [pid for node in on or self.lab.nodes for pid in self.lab.pids(node) if word in command(pid)]


def _line() -> list[str]:
    """The command line of docs/engines.md."""
    page = (REPO / "docs" / "engines.md").read_text("utf-8").partition("\n## Ray\n")[2]
    return shlex.split(page.partition("```sh\n")[2].partition("```")[0])


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
    except OSError:
        return ""


@pytest.fixture(scope="module")
def ray(make_lab: Maker, site: Path) -> Iterator[Ray]:
    interpreter = os.environ.get("NETDOCTOR_TEST_RAY_PYTHON", "")
    if not interpreter:
        pytest.skip("NETDOCTOR_TEST_RAY_PYTHON names no interpreter with Ray")
    lab = make_lab(4, gpus=2)
    found = Ray(lab, site, interpreter)
    try:
        lab.install_torch(*TORCH)
        first, *rest = lab.nodes
        found.start(first)
        with ThreadPoolExecutor(len(rest)) as pool:
            list(pool.map(found.start, rest))
        yield found
    finally:
        for pid in found.processes("ray"):
            os.kill(pid, signal.SIGKILL)
        lab.down()


__all__ = ["Ray", "command", "ray", "site"]
