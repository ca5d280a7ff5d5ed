"""A hostile machine: netdoctor runs where the disk is full, limits are low, pipes end and signals come.

Every case is one run under a few moves of the table, and its nodes are healthy. So: a documented exit code,
never "not ready", no traceback; files are the old ones or whole new ones; soon after nothing is left of it,
here or on nodes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from netdoctor.lab import Lab, missing_requirements, up
from netdoctor.report.save import load

REPO = Path(__file__).resolve().parents[2]
STRANGER_ID = 64321
# A user that no passwd entry knows. Files are no obstacle to it, so that it can run what is root's.
STRANGER = [
    "setpriv", "--reuid", str(STRANGER_ID), "--regid", str(STRANGER_ID), "--clear-groups",
    "--inh-caps", "+dac_override", "--ambient-caps", "+dac_override",
]  # fmt: skip
ENDS_S = 90.0
LEFT_S = 5.0
TMPFS_BYTES = 1 << 20
READY, UNDECIDED, BAD_INPUT, BROKEN = 0, 3, 2, 5
STOPPING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup, which children inherit
    STOPPING.remove(signal.SIGHUP)
JUMPY = """
import random, time
_real, _random, _by = time.time, random.Random(%d), [0.0]
def _jumpy():
    if _random.random() < 0.1:
        _by[0] = _random.choice((-1e9, -86400.0, -1.0, 0.0, 3600.0, 1e8))
    return _real() + _by[0]
time.time = _jumpy
"""


@dataclass
class Ground:
    """What all cases share. scan_s: how long a scan takes here when nothing is in its way."""

    lab: Lab
    folder: Path
    tmpfs: Path
    before: dict[str, tuple[frozenset[int], frozenset[tuple[str, int]]]]
    last: bytes = b""
    scan_s: float = 5.0


@dataclass
class Case:
    """One run. codes: exit codes that its moves allow. during: done to the processes while they run.

    wounded: it may be killed, so that its temporary files and its last words are lost.
    """

    ground: Ground
    folder: Path
    argv: list[str]
    env: dict[str, str]
    is_scan: bool
    around: list[list[str]] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    codes: set[int] = field(default_factory=lambda: {READY})
    during: list[Callable[[list[subprocess.Popen[bytes]]], None]] = field(default_factory=list)
    stdout: str = "file"
    stderr: str = "file"
    owner: int = 0
    runs: int = 1
    wounded: bool = False

    def command(self) -> list[str]:
        limited = ["prlimit", *self.limits] if self.limits else []
        outer = sorted(self.around, key=lambda words: words[0] != "unshare")  # while it is root
        before = [word for words in (*outer, limited) for word in words]
        return [*before, sys.executable, "-m", "netdoctor", *self.argv]


Move = Callable[[Case, random.Random], None]


# What is missing, or too small


def full_disk(case: Case, rng: random.Random) -> None:
    """Folder and TMPDIR lie on a file system with room for nothing, for a little, or for half a report."""
    place = Path(tempfile.mkdtemp(dir=case.ground.tmpfs))
    shutil.copytree(case.folder, place, dirs_exist_ok=True)
    case.folder = place
    free = os.statvfs(place)
    room = rng.choice((0, 4096, 40960, 90112))
    with contextlib.suppress(OSError), (place / "filler").open("wb") as filler:
        filler.write(bytes(max(0, free.f_bavail * free.f_frsize - room)))
    case.codes |= {BAD_INPUT, BROKEN}


def no_home(case: Case, rng: random.Random) -> None:
    for name in ("HOME", "USER", "LOGNAME"):
        case.env.pop(name, None)


def nobody(case: Case, rng: random.Random) -> None:
    """A user without a passwd entry, whose folder it is."""
    if STRANGER not in case.around:
        case.around.append(STRANGER)
    case.owner = STRANGER_ID


def few_processes(case: Case, rng: random.Random) -> None:
    nobody(case, rng)
    case.limits.append(f"--nproc={rng.choice((1, 1, 2, 3))}")
    case.codes.add(UNDECIDED)


def few_descriptors(case: Case, rng: random.Random) -> None:
    case.limits.append(f"--nofile={rng.choice((64, 64, 32, 24))}")
    case.codes.add(UNDECIDED)


def little_memory(case: Case, rng: random.Random) -> None:
    case.limits.append(f"--as={512 << 20}")
    case.codes.add(UNDECIDED)


def no_network(case: Case, rng: random.Random) -> None:
    case.around.append(["unshare", "-n"])
    if case.is_scan:
        case.codes = (case.codes - {READY}) | {UNDECIDED}


def latin_1(case: Case, rng: random.Random) -> None:
    case.env["LC_ALL"] = rng.choice(("C", "POSIX", "en_US.ISO-8859-1"))
    case.env |= {"PYTHONUTF8": "0", "PYTHONIOENCODING": rng.choice(("latin-1", "ascii"))}


def jumping_clock(case: Case, rng: random.Random) -> None:
    place = tempfile.mkdtemp(dir=case.ground.folder)  # its own: the case's may be full
    Path(place, "sitecustomize.py").write_text(JUMPY % rng.randrange(1 << 30))
    case.env["PYTHONPATH"] = f"{place}{os.pathsep}{case.env['PYTHONPATH']}"


def closed_stdout(case: Case, rng: random.Random) -> None:
    case.stdout = rng.choice(("nobody", "a line", "closed", "full"))
    case.codes.add(BROKEN)


def closed_stderr(case: Case, rng: random.Random) -> None:
    case.stderr = rng.choice(("nobody", "closed", "full"))


# What happens meanwhile


def _later(case: Case, rng: random.Random) -> float:
    return rng.uniform(0, case.ground.scan_s * 1.1 if case.is_scan else 0.6)


def _send(processes: list[subprocess.Popen[bytes]], number: int) -> None:
    for process in processes:
        process.send_signal(number)


def stopped(case: Case, rng: random.Random) -> None:
    """A signal in whatever phase, and a second one now and then."""
    number, delay, again = rng.choice(STOPPING), _later(case, rng), rng.choice((None, None, 0.0, 0.3))

    def stop(processes: list[subprocess.Popen[bytes]]) -> None:
        time.sleep(delay)
        _send(processes, number)
        if again is not None:
            time.sleep(again)
            _send(processes, number)

    case.during.append(stop)
    # Before Python has got to us the signal does what it does by itself.
    case.codes |= {128 + number, -number, UNDECIDED}
    case.wounded = case.wounded or again is not None


def killed(case: Case, rng: random.Random) -> None:
    delay = _later(case, rng)

    def kill(processes: list[subprocess.Popen[bytes]]) -> None:
        time.sleep(delay)
        _send(processes, signal.SIGKILL)

    case.during.append(kill)
    case.codes.add(-signal.SIGKILL)
    case.wounded = True


def frozen(case: Case, rng: random.Random) -> None:
    delay, seconds = _later(case, rng), rng.uniform(0.1, 3)

    def freeze(processes: list[subprocess.Popen[bytes]]) -> None:
        time.sleep(delay)
        _send(processes, signal.SIGSTOP)
        time.sleep(seconds)
        _send(processes, signal.SIGCONT)

    case.during.append(freeze)
    case.codes.add(UNDECIDED)


def two_at_once(case: Case, rng: random.Random) -> None:
    case.runs = 2
    case.codes.add(UNDECIDED)


MOVES: tuple[Move, ...] = (
    killed, full_disk, few_processes, no_network, stopped, closed_stdout, little_memory, no_home,
    jumping_clock, few_descriptors, two_at_once, latin_1, nobody, closed_stderr, frozen, killed, stopped,
)  # fmt: skip

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("report", "show", "-v"),
    ("scan", "--facts", ".netdoctor/last.json", "--no-save"),
    ("report", "convert", ".netdoctor/last.json", "-o", "junit=out.xml"),
    ("scan", "--plan", "HOSTS"),
    ("checks", "list"),
    ("schema", "report"),
)


def draw(ground: Ground, seed: int, number: int) -> tuple[Case, list[str]]:
    """The case of this number: each move has its turn, and others join it."""
    rng = random.Random(f"{seed}/{number}")
    first = MOVES[(seed + number) % len(MOVES)]
    moves = list(dict.fromkeys([first, *rng.sample(MOVES, rng.choice((0, 0, 1, 2)))]))
    is_scan = rng.random() < 0.6 or first in (killed, two_at_once, no_network)
    hosts = ["--ssh-config", str(ground.lab.ssh_config), str(ground.lab.hosts_file)]
    if is_scan:
        argv = ["scan", *(["--last"] if rng.random() < 0.2 else hosts), "-o", "text", "-o", "json=out.json"]
        argv += rng.choice((["-p", "quick"], [], []))
    else:
        command = rng.choice(COMMANDS)
        argv = [word for one in command for word in (hosts if one == "HOSTS" else [one])]
    folder = ground.folder / f"case{number}"
    (folder / ".netdoctor").mkdir(parents=True)
    (folder / ".netdoctor" / "last.json").write_bytes(ground.last)
    (folder / "out.json").write_bytes(ground.last)
    case = Case(ground=ground, folder=folder, argv=argv, env=environment(), is_scan=is_scan)
    for move in moves:
        move(case, rng)
    for path in (case.folder, *case.folder.rglob("*")):
        os.chown(path, case.owner, case.owner)
    case.env |= {"TMPDIR": str(case.folder), "NETDOCTOR_CASE": f"{os.getpid()}/{seed}/{number}"}
    return case, [move.__name__ for move in moves]


def environment() -> dict[str, str]:
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(Path.home()),
        "USER": "root",
        "PYTHONPATH": str(REPO),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
    }


# Running one


def play(case: Case) -> None:
    """Run it, and hold it to what is promised. Raises AssertionError."""
    logs = [case.ground.folder / f"{case.folder.name}.{i}" for i in range(case.runs)]
    processes = [_begin(case, log) for log in logs]
    try:
        for act in case.during:
            act(processes)
        for process in processes:
            process.wait(ENDS_S)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"it did not end within {ENDS_S:g} s") from None
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
    for process, log in zip(processes, logs, strict=True):
        said = "".join(Path(f"{log}.{name}").read_text("utf-8", "replace") for name in ("out", "err"))
        told = f"exit {process.returncode}, allowed {sorted(case.codes)}\n{said[-4000:]}"
        if signal.SIGINT + 128 in case.codes and _is_python_s_own(said):
            continue
        assert process.returncode in case.codes, told
        assert "Traceback" not in said, told
        assert "netdoctor broke" not in said, told
    _files_are_whole(case)
    _nothing_is_left(case)


def _is_python_s_own(said: str) -> bool:
    """Whether an interrupt came before Python had got to netdoctor: then it tells so, and exits with 1."""
    return said.rstrip().endswith("KeyboardInterrupt") and f"{REPO}/netdoctor/" not in said


def _begin(case: Case, log: Path) -> subprocess.Popen[bytes]:
    with contextlib.ExitStack() as stack:
        ends = [
            stack.enter_context(_stream(case.stdout, Path(f"{log}.out"))),
            stack.enter_context(_stream(case.stderr, Path(f"{log}.err"))),
        ]
        closed = [number for number, how in ((1, case.stdout), (2, case.stderr)) if how == "closed"]
        command = case.command()
        if closed:
            shell = "exec " + '"$@" ' + " ".join(f"{number}>&-" for number in closed)
            command = ["sh", "-c", shell, "sh", *command]
        return subprocess.Popen(
            command, cwd=case.folder, env=case.env, stdin=subprocess.DEVNULL, stdout=ends[0], stderr=ends[1]
        )


@contextlib.contextmanager
def _stream(how: str, file: Path) -> Iterator[int]:
    """Something to write to: a file, a full device, or a pipe whose reader leaves at once or after a line."""
    file.touch()
    if how in ("nobody", "a line"):
        reader, writer = os.pipe()
        if how == "a line":
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
            # `head` keeps the other end for a line, and is nobody's child of ours for longer.
            subprocess.Popen(["head", "-n", "1"], stdin=reader, stdout=subprocess.DEVNULL)
        os.close(reader)
    else:
        writer = os.open("/dev/full" if how == "full" else file, os.O_WRONLY)
    try:
        yield writer
    finally:
        os.close(writer)


def _files_are_whole(case: Case) -> None:
    saved = case.folder / ".netdoctor" / "last.json"
    if saved.read_bytes() != case.ground.last:
        report = load(saved)
        assert 0 <= report.run.duration_ms < ENDS_S * 1000, f"a scan of {report.run.duration_ms} ms"
    json.loads((case.folder / "out.json").read_bytes())
    crashes = [path.read_text() for path in case.folder.rglob("*.traceback")]
    assert not crashes, crashes[0][-4000:]
    if not case.wounded:
        left = [str(path) for path in case.folder.rglob("*.tmp")]
        assert not left, f"left behind: {left}"


def _nothing_is_left(case: Case) -> None:
    """On this machine and on the nodes; a node's listeners and processes end with the session."""
    ground, end = case.ground, time.monotonic() + LEFT_S
    while True:
        here = [one for one in psutil.process_iter(["pid", "cmdline"]) if _is_of(one, case)]
        there: list[object] = []
        for node, (pids, listeners) in ground.before.items():
            there += set(ground.lab.pids(node)) - pids
            there += set(ground.lab.listeners(node)) - listeners
        if not here and not there:
            return
        left = f"left after {LEFT_S:g} s: {[one.info for one in here]}, on nodes {there}"
        assert time.monotonic() < end, left
        time.sleep(0.1)


def _is_of(process: psutil.Process, case: Case) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        mine = process.environ().get("NETDOCTOR_CASE") == case.env["NETDOCTOR_CASE"]
        return mine and process.status() != psutil.STATUS_ZOMBIE
    return False


# All of them


@contextlib.contextmanager
def ground() -> Iterator[Ground]:
    """Two healthy nodes, a small file system, and a report of a scan that nothing disturbed."""
    with tempfile.TemporaryDirectory(prefix="netdoctor-fuzz-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        tmpfs = folder / "tmpfs"
        tmpfs.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "none", str(tmpfs)], check=True)
        stack.callback(subprocess.run, ["umount", "-l", str(tmpfs)], check=True)
        lab = up(2, state_dir=folder / "lab", subnet=f"10.103.{os.getpid() % 250}")
        stack.callback(lab.down)
        before = {node: (frozenset(lab.pids(node)), frozenset(lab.listeners(node))) for node in lab.nodes}
        made = Ground(lab=lab, folder=folder, tmpfs=tmpfs, before=before)
        plain = folder / "plain"
        plain.mkdir()
        argv = [sys.executable, "-m", "netdoctor", "scan"]
        argv += ["--ssh-config", str(lab.ssh_config), str(lab.hosts_file)]
        began = time.monotonic()
        subprocess.run(argv, cwd=plain, env=environment(), check=True, capture_output=True)
        made.scan_s = time.monotonic() - began
        made.last = (plain / ".netdoctor" / "last.json").read_bytes()
        yield made


def run(seed: int, seconds: float) -> int:
    """Play cases drawn from `seed` until `seconds` are over, and return how many; needs root and a lab.

    Raises AssertionError that names seed, case and moves.
    """
    missing = missing_requirements()
    assert not missing, f"no lab on this machine: {'; '.join(missing)}"
    number = 0
    with ground() as made:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            case, moves = draw(made, seed, number)
            try:
                play(case)
            except AssertionError as error:
                said = f"seed {seed}, case {number}, {' + '.join(moves)}: {' '.join(case.command())}"
                raise AssertionError(f"{said}\n{error}") from None
            shutil.rmtree(case.folder)
            number += 1
    return number
