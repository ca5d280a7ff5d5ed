"""Runs the real `netdoctor scan` against a lab and holds every report to the same promises."""

import contextlib
import json
import os
import secrets
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import psutil

from netdoctor.lab import Lab
from netdoctor.report.schema import report_schema
from tests.forks import Worker

NETDOCTOR = [sys.executable, "-m", "netdoctor"]
REPO = Path(__file__).resolve().parents[2]
NEXT = "--- next block ---"


@contextlib.contextmanager
def changed(lab: Lab, node: str, do: str, undo: str) -> Iterator[None]:
    """A node that is otherwise while this lasts, where no lab fault does it. do, undo: for its shell."""
    lab.run(node, ["sh", "-euc", do], check=True)
    try:
        yield
    finally:
        lab.run(node, ["sh", "-euc", undo], check=True)


@dataclass
class Scanned:
    """One finished scan: exit code, the text that was printed, the JSON report, stderr."""

    code: int
    text: str
    report: dict[str, Any]
    stderr: str
    folder: Path
    argv: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        return str(self.report["verdict"]["state"])

    @property
    def keys(self) -> list[str]:
        return [cause["key"] for cause in self.report["causes"]]

    def cause(self, key: str) -> dict[str, Any]:
        found = [cause for cause in self.report["causes"] if cause["key"] == key]
        assert len(found) == 1, f"no single cause {key}: {self.summary()}"
        return dict(found[0])

    def causes(self, status: str) -> list[dict[str, Any]]:
        return [cause for cause in self.report["causes"] if cause["status"] == status]

    def cell(self, check: str, node: str) -> str:
        matrix = self.report["matrix"]
        return str(matrix["cells"][matrix["checks"].index(check)][matrix["nodes"].index(node)])

    def summary(self) -> str:
        lines = [f"exit {self.code} {self.state}"]
        lines += [f"{c['status']} {c['key']}: {c['title']} {list(c['seen'])}" for c in self.report["causes"]]
        return "\n".join(lines) + "\n" + self.stderr


def environment() -> dict[str, str]:
    """A plain environment: nothing of the caller's NCCL or MASTER settings reaches the scan."""
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(Path.home()),
        "PYTHONPATH": str(REPO),
        "LC_ALL": "C.UTF-8",
    }


@cache
def _forks() -> tuple[subprocess.Popen[bytes], str]:
    """Who runs netdoctor, and where to ask. Ends with this process, whose end closes its standard input."""
    place = f"netdoctor-forks-{secrets.token_hex(8)}"  # an abstract socket: nothing of it is left
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{place}")
        listener.listen()
        argv = [sys.executable, "-m", "tests.forks", "runs", str(listener.fileno())]
        given: Any = {"pass_fds": [listener.fileno()], "stdin": subprocess.PIPE, "env": environment()}
        return subprocess.Popen(argv, **given), place


def forked() -> list[str]:
    """What a shell runs for `netdoctor`: no process of its own, but for what streams and environment are."""
    return [sys.executable, "-IS", str(REPO / "tests/forked.py"), _forks()[1]]


def shell(folder: Path, text: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a shell text as it stands on a page, where `netdoctor` is ours."""
    head = f'netdoctor() {{ {shlex.join(forked())} "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", head + text],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment() | env,
        stdin=subprocess.DEVNULL,
        timeout=180,
    )


def shell_parts(folder: Path, lab: Lab, texts: Sequence[str]) -> list[str]:
    """What each of some shell texts prints, one after the other in one shell that stops at an error."""
    text = "set -eu\n" + f"\necho '{NEXT}'\n".join(texts)
    done = shell(folder, text, NETDOCTOR_SSH_CONFIG=str(lab.ssh_config))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return [part.strip() for part in done.stdout.split(NEXT)]


@cache
def _workers() -> socket.socket:
    """Who starts ssh workers. Ends with this process, which holds the only other end."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = [sys.executable, "-m", "tests.forks", "workers", str(there.fileno())]
    subprocess.Popen(argv, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL, env=environment())
    there.close()
    return here


def forked_worker(env: Mapping[str, str], errors: int) -> Worker:
    """`netdoctor.transport.ssh.transport.worker_process`, without the imports."""
    return Worker(_workers(), env, errors)


def netdoctor(*args: str, cwd: Path, timeout: float = 90, **env: str) -> subprocess.CompletedProcess[str]:
    """`netdoctor ARGS`, run to its end."""
    forks, place = _forks()
    job = json.dumps({"args": args, "cwd": str(cwd), "env": environment() | env}).encode()
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server,
        open(os.devnull, "rb") as nothing,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        server.connect(f"\0{place}")
        server.settimeout(timeout)
        socket.send_fds(server, [job], [stream.fileno() for stream in (nothing, out, err)])
        try:
            code = int(server.recv(64))
        except TimeoutError:
            for late in psutil.Process(forks.pid).children(recursive=True):
                late.kill()
            code = None
        said = [stream.seek(0) or stream.read() for stream in (out, err)]
        if code is None:
            raise subprocess.TimeoutExpired([*NETDOCTOR, *args], timeout, "".join(said))
        return subprocess.CompletedProcess([*NETDOCTOR, *args], code, *said)


def scan(lab: Lab, folder: Path, *args: str, hosts: str | None = None, **env: str) -> Scanned:
    """Scan the lab from `folder`, then check what every report promises.

    The JSON validates against the published schema, JUnit parses, `report show` of the saved report prints
    the text of the scan, the matrix is complete, and the exit code is the report's.
    """
    argv = _argv(lab, *args, hosts=hosts)
    done = netdoctor(*argv, cwd=folder, **env)
    return _finished(folder, argv, done.returncode, done.stdout, done.stderr)


def _argv(lab: Lab, *args: str, hosts: str | None = None) -> list[str]:
    argv = ["scan", "--ssh-config", str(lab.ssh_config), hosts or str(lab.hosts_file), *args]
    return [*argv, "-o", "text", "-o", "json=report.json", "-o", "junit=report.xml"]


def _finished(folder: Path, argv: list[str], code: int, stdout: str, stderr: str) -> Scanned:
    assert "Traceback" not in stderr + stdout, stderr
    assert (folder / "report.json").exists(), f"exit {code}\n{stdout}\n{stderr}"
    report = json.loads((folder / "report.json").read_text("utf-8"))
    scanned = Scanned(code, stdout, report, stderr, folder, argv)
    check_promises(scanned)
    return scanned


def begin(lab: Lab, folder: Path, *args: str) -> subprocess.Popen[str]:
    """A scan that runs while the test does something to it."""
    return subprocess.Popen(
        [*NETDOCTOR, *_argv(lab, *args)],
        cwd=folder,
        text=True,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str], folder: Path, timeout: float = 90) -> Scanned:
    """What a scan that was begun said in the end, held to the same promises."""
    stdout, stderr = process.communicate(timeout=timeout)
    return _finished(folder, [], process.returncode, stdout, stderr)


def until(true: Callable[[], bool], what: str, timeout: float = 60) -> None:
    """Wait for something to become true; a busy machine may take its time."""
    end = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < end, f"not within {timeout:g} s: {what}"
        time.sleep(0.05)


@cache
def _schema() -> Any:
    jsonschema_rs.meta.validate(schema := report_schema())
    return jsonschema_rs.Draft202012Validator(schema)


def check_promises(scanned: Scanned) -> None:
    report = scanned.report
    _schema().validate(report)
    ET.parse(scanned.folder / "report.xml")
    assert scanned.code == report["verdict"]["exit_code"]
    matrix = report["matrix"]
    assert len(matrix["cells"]) == len(matrix["checks"])
    assert all(len(row) == len(matrix["nodes"]) and set(row) <= set(".!Xb-?") for row in matrix["cells"])
    counts = report["verdict"]["counts"]
    assert sum(counts.values()) == sum(len(row) for row in matrix["cells"])
    saved = scanned.folder / ".netdoctor" / "last.json"
    if saved.exists():
        shown = netdoctor("report", "show", cwd=scanned.folder)
        assert shown.stdout == scanned.text
    for cause in report["causes"]:
        for fix in cause["fixes"]:
            for command in fix["commands"]:
                assert not (error := _unparsable(command["shell"])), f"{command['shell']}: {error}"


@cache
def _unparsable(shell: str) -> str:
    """What a shell that only parses says against a command."""
    done = subprocess.run(["sh", "-n", "-c", shell], capture_output=True, text=True, check=False)
    return done.stderr or f"status {done.returncode}" if done.returncode else ""


# The report of a verify command alone. The saved one has it beside the rest, other faults among it.
PART = "part.json"


def verify(scanned: Scanned, cause: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run the verify command that the report printed, as printed. What it says of its part is in PART."""
    words = shlex.split(cause["verify"]["shell"])
    assert words[0] == "netdoctor"
    return netdoctor(*words[1:], "-o", "text", "-o", f"json={PART}", cwd=scanned.folder)


def on_console(lab: Lab, cause: dict[str, Any], number: int = 0) -> str:
    """Type a fix on the node's own console, for a node that nobody can log in to; what it printed."""
    said = ""
    for command in cause["fixes"][number]["commands"]:
        for node in command["run_on"]:
            done = lab.run(node, ["sh", "-c", command["shell"]], capture_output=True, text=True)
            assert done.returncode == 0, f"{command['shell']}\n{done.stdout}\n{done.stderr}"
            said += done.stdout
    return said


def apply_fix(scanned: Scanned, cause: dict[str, Any], number: int = 0) -> None:
    """Run a printed fix by hand: the very shell lines, here, as a person would paste them."""
    for command in cause["fixes"][number]["commands"]:
        assert command["run_on"] != ["job"], "a job command is for the launch script, not for a shell"
        reached = {target["id"] for target in scanned.report["targets"] if target["reached"]}
        assert set(command["run_on"]) <= {*reached, "control"}, "a command for a console is not for here"
        done = subprocess.run(
            ["sh", "-c", command["shell"]],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=scanned.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, f"{command['shell']}\n{done.stdout}\n{done.stderr}"
