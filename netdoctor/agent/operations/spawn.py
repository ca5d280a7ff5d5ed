"""Ranks of a torch experiment: children in the job's interpreter that are told what to do line by line.

`spawn` starts them and returns, `converse` hands them a line and waits for what they say, `stop` ends them.
A rank dies with the agent: its stdin ends, its parent-death signal fires, its own timer runs out.
"""

import json
import os
import re
import resource
import select
import signal
import sys
import threading
import time

from .. import runtime
from ..system import private, procs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional

MAX_RANKS = 16
MAX_SESSIONS = 4
# Experiments may be given a day; the agent's own deadline ends its ranks sooner.
MAX_SECONDS = 4 * 86400.0
CODE_CAP_BYTES = 256 * 1024
LINE_CAP_BYTES = 256 * 1024
EVENTS_CAP = 2000
STDERR_KEPT_BYTES = 8192
# A client of the GPU driver that is killed can leave the GPU stuck: asked first, killed then.
TERM_GRACE_S = 1.5

# What a rank inherits of the login session. Never everything: tokens and passwords live there too.
_INHERITED = re.compile(
    r"(PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TMPDIR|LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|PYTHONHOME"
    r"|PYTHONNOUSERSITE|VIRTUAL_ENV|CONDA_PREFIX|CONDA_DEFAULT_ENV|OMP_NUM_THREADS|MKL_NUM_THREADS"
    r"|(NCCL|GLOO|UCX|FI|CUDA|TORCH_NCCL|TORCH_DISTRIBUTED|NVIDIA|TP)_\w+|ROCR?_VISIBLE_DEVICES"
    r"|HIP_VISIBLE_DEVICES)\Z"
)

# Runs first in the child: gives back the session's limits, ties the child to its parent, and reads the rank's
# code from stdin, so that it shows in no process list. An old empty entry of sys.path would be "/", our cwd.
_STARTER = """\
import json, os, resource, signal, sys
sys.path[:] = [p for p in sys.path if p]
head = json.loads(sys.stdin.buffer.readline().decode())
for number, value in head["limits"]:
    try:
        resource.setrlimit(number, tuple(value))
    except (OSError, ValueError):
        pass
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
except Exception:
    pass
if os.getppid() != head["parent"]:
    os._exit(1)
signal.signal(signal.SIGALRM, signal.SIG_DFL)
signal.setitimer(signal.ITIMER_REAL, head["seconds"])
code = sys.stdin.buffer.read(head["size"]).decode()
exec(compile(code, "netdoctor-rank", "exec"), {"__name__": "__main__", "CONFIG": head["config"]})
"""


def environment(job: "Mapping[str, Any]", session: "Mapping[str, str]") -> "dict[str, str]":
    """Return a rank's environment: the session's by allow-list, the job's by the same list on top."""
    found = {}
    for source in (session, job):
        for name, value in source.items():
            if (
                _INHERITED.match(name)
                and not private.is_secret(name)
                and isinstance(value, str)
                and "\0" not in value
            ):
                found[name] = value
    if found.get("PYTHONPATH"):
        found["PYTHONPATH"] = runtime.from_login(found["PYTHONPATH"])
    found["PYTHONUNBUFFERED"] = "1"
    return found


def process_state(pid: int) -> "Optional[str]":
    """Return the letter of /proc/PID/stat: R, S, D, T (stopped), Z… None when there is no such process."""
    return next(iter(procs.stat_fields(pid)), None)


class Rank(object):
    """One child."""

    def __init__(self, head: "dict[str, Any]", code: bytes, argv: "list[str]", env: "dict[str, str]") -> None:
        self.events = []  # type: list[Any]
        self.dropped = 0
        self.errors = b""
        self.last_output = time.monotonic()
        self.finished = {}  # type: dict[str, bool]
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self.process = runtime.start_child(argv, env)
        self.pid = self.process.pid
        assert self.process.stdin is not None
        os.set_blocking(self.process.stdin.fileno(), False)
        runtime.thread(self._listen)
        head["parent"] = os.getpid()
        self.write(json.dumps(head).encode("ascii") + b"\n" + code)

    def write(self, data: bytes, timeout_s: float = 5.0) -> bool:
        """Give the rank a line; say whether it took it."""
        end = time.monotonic() + timeout_s
        view = memoryview(data)
        assert self.process.stdin is not None
        with self._write_lock:
            while view:
                try:
                    view = view[os.write(self.process.stdin.fileno(), view) :]
                except BlockingIOError:
                    left = end - time.monotonic()
                    if left <= 0 or self.ended.is_set():
                        return False
                    select.select([], [self.process.stdin], [], min(left, 0.25))
                except (OSError, ValueError):
                    return False
        return True

    def _listen(self) -> None:
        """Read what the rank says until it is gone."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        out, err = self.process.stdout.fileno(), self.process.stderr.fileno()
        pending = b""
        poll = select.poll()
        for fd in (out, err):
            poll.register(fd, select.POLLIN | select.POLLHUP)
        still = {out, err}
        while still:
            for fd, _ in poll.poll(500):
                try:
                    part = os.read(fd, 65536)
                except OSError:
                    part = b""
                if not part:
                    poll.unregister(fd)
                    still.discard(fd)
                elif fd == err:
                    self.errors = (self.errors + part)[-STDERR_KEPT_BYTES:]
                else:
                    self.last_output = time.monotonic()
                    pending += part
                    lines = pending.split(b"\n")
                    pending = lines.pop()[-LINE_CAP_BYTES:]
                    for line in lines:
                        self._take(line)
            # A grandchild may hold the pipes open: the rank's own end counts.
            if self.process.poll() is not None and not poll.poll(0):
                break
        self.process.wait()
        self.ended.set()

    def _take(self, line: bytes) -> None:
        try:
            event = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict):
            return
        with self._lock:
            if event.get("event") == "alive":
                self.events = [e for e in self.events if e.get("event") != "alive"]
            if len(self.events) >= EVENTS_CAP:
                self.dropped += 1
            else:
                self.events.append(event)
            if event.get("end") is not None:
                self.finished[str(event["end"])] = True

    def report(self) -> "dict[str, Any]":
        """Return what `converse` says of it, with the events since the last time."""
        code = self.process.poll()
        running = not self.ended.is_set() and code is None
        with self._lock:
            events, self.events = self.events, []
        return {
            "pid": self.pid,
            "running": running,
            "code": code,
            "state": process_state(self.pid) if running else None,
            "silent_s": round(time.monotonic() - self.last_output, 3),
            "events": events,
            "stderr": "" if running else self.errors.decode("utf-8", "replace"),
        }

    def signal_group(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except OSError:
            pass


class Group(object):
    """The ranks that one `spawn` started."""

    def __init__(self, gentle: bool) -> None:
        self.ranks = []  # type: list[Rank]
        self.gentle = gentle

    def stop(self, grace_s: float = TERM_GRACE_S) -> int:
        """End all ranks with their groups; return how many were still running."""
        running = [rank for rank in self.ranks if not rank.ended.is_set()]
        if self.gentle and running:
            for rank in running:
                rank.signal_group(signal.SIGTERM)
                rank.signal_group(signal.SIGCONT)
            end = time.monotonic() + grace_s
            while time.monotonic() < end and not all(rank.ended.is_set() for rank in running):
                time.sleep(0.02)
        for rank in self.ranks:
            rank.signal_group(signal.SIGKILL)
        end = time.monotonic() + 2.0
        for rank in self.ranks:
            while not rank.ended.is_set() and time.monotonic() < end:
                time.sleep(0.005)
            runtime.forget_child(rank.pid)
        return len(running)


_groups = {}  # type: dict[str, Group]
_lock = threading.Lock()


def _close_all() -> None:
    for group in list(_groups.values()):
        group.stop(1.0)


runtime.at_exit(_close_all)


def spawn(args: "dict[str, Any]") -> "dict[str, Any]":
    """Start ranks. args: {"session", "code": text, "ranks": [config], "env", "seconds": hard limit,
    "python": interpreter (default: the agent's own), "gentle": TERM before KILL}.

    Return {"ranks": [{"pid"}]}. A rank that ends within the first moments is met by `converse`.
    """
    name = runtime.session_name(args)
    code = str(args.get("code") or "").encode("utf-8")
    configs = list(args.get("ranks") or [])
    if not code or len(code) > CODE_CAP_BYTES:
        raise ValueError("the code of a rank has up to %d bytes" % CODE_CAP_BYTES)
    if not 1 <= len(configs) <= MAX_RANKS:
        raise ValueError("1 to %d ranks" % MAX_RANKS)
    seconds = min(max(float(args.get("seconds") or 60.0), 1.0), MAX_SECONDS)
    python = args.get("python") or sys.executable
    job_env = args.get("env")
    env = environment(job_env if isinstance(job_env, dict) else {}, os.environ)
    group = Group(bool(args.get("gentle")))
    with _lock:
        for old in [n for n, g in _groups.items() if all(rank.ended.is_set() for rank in g.ranks)]:
            del _groups[old]
        if name in _groups or len(_groups) >= MAX_SESSIONS:
            raise ValueError("such a session, or too many, are running already")
        _groups[name] = group
    # A rank is no part of the agent: it has the limits of the login.
    limits = [
        [getattr(resource, "RLIMIT_" + name), list(pair)] for name, pair in runtime.session_limits.items()
    ]
    try:
        for config in configs:
            head = {"limits": limits, "seconds": seconds, "size": len(code), "config": config}
            argv = [str(python), "-c", _STARTER]
            own_env = dict(env)
            extra = config.get("env") if isinstance(config, dict) else None
            if isinstance(extra, dict):
                own_env.update(environment(extra, {}))
            group.ranks.append(Rank(head, code, argv, own_env))
    except BaseException:
        group.stop(0.0)
        with _lock:
            _groups.pop(name, None)
        raise
    return {"ranks": [{"pid": rank.pid} for rank in group.ranks]}


def converse(args: "dict[str, Any]") -> "dict[str, Any]":
    """Hand every rank a line and wait for what it says. args: {"session", "say": object or None,
    "until": the word that ends it ("end" of an event), "wait_s"}.

    Return {"ranks": [{"pid", "running", "code", "state", "silent_s", "events", "stderr"}], "done"}: at once
    when every rank has said the word or one has ended, else after wait_s.
    """
    name = runtime.session_name(args)
    group = _groups.get(name)
    if group is None:
        raise runtime.Unavailable("failed", "no such session")
    end = time.monotonic() + min(max(float(args.get("wait_s") or 1.0), 0.0), 60.0)
    say = args.get("say")
    if say is not None:
        line = json.dumps(say).encode("ascii") + b"\n"
        for rank in group.ranks:
            rank.write(line)
    until = str(args.get("until") or "")
    pause = 0.001
    while True:
        done = all(rank.finished.get(until) for rank in group.ranks)
        if done or any(rank.ended.is_set() for rank in group.ranks) or time.monotonic() >= end:
            break
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)
    return {"ranks": [rank.report() for rank in group.ranks], "done": done}


def stop(args: "dict[str, Any]") -> "dict[str, Any]":
    """End the ranks of args["session"], or all. Return {"killed": how many were still running}."""
    session = args.get("session")
    killed = 0
    for name, group in list(_groups.items()):
        if session in (None, name):
            killed += group.stop()
            with _lock:
                _groups.pop(name, None)
    return {"killed": killed}
