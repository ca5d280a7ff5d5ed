"""A real Ray cluster of four lab nodes, head on the first, brought up once."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
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

    def start(self, node: str, *more: str, limits: Sequence[str] = ()) -> None:
        """ray start, with these options last; limits: those of prlimit."""
        head = self.lab.nodes[0]
        own, first = self.lab.address(node), self.lab.address(head)
        how = "--head --port=6379 --include-dashboard=false" if node == head else f"--address={first}:6379"
        line = f"{START.format(own=own)} {how} {' '.join(more)}"
        done = self.run(node, *(["prlimit", *limits] if limits else []), "sh", "-c", line)
        assert done.returncode == 0, done.stdout + done.stderr

    def scan(self, folder: Path, *args: str) -> Scanned:
        """`scan --via ray` on the head, held to what every report promises. folder: for what it writes."""
        argv = ["--python", "/usr/bin/python3", *args]
        argv += ["-o", "text", "-o", "json=report.json", "-o", "junit=report.xml"]
        head = self.lab.nodes[0]
        done = self.netdoctor(*argv)
        for name in ("report.json", "report.xml"):
            (folder / name).write_text(self.run(head, "cat", f"/root/run/{name}").stdout)
        text = (folder / "report.json").read_text("utf-8")
        assert text, done.stderr
        report = json.loads(text)
        scanned = Scanned(done.returncode, done.stdout, report, done.stderr, folder, argv)
        check_promises(scanned)
        return scanned

    def netdoctor(self, *args: str) -> "subprocess.CompletedProcess[str]":
        """The command line of the page with these options, on the head."""
        here = 'mkdir -p /root/run && cd /root/run && rm -rf .netdoctor report.* && exec "$0" "$@"'
        python = str(Path(sys._base_executable).resolve())  # type: ignore[attr-defined]
        done = self.run(self.lab.nodes[0], "sh", "-c", here, python, "-m", *_line(), *args)
        assert "Traceback" not in done.stderr + done.stdout, done.stderr
        return done

    def raylets(self, node: str) -> list[int]:
        return [pid for pid in self.processes("raylet/raylet", node) if "_socket_name" in command(pid)]

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
    lab = make_lab(4, gpus=2, hcas=1)
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
