"""A job's own command, tried on this node: started, listened to, and ended with all that it started.

`trial` starts it and returns, `trial_poll` waits for what it says, `trial_end` ends it. The processes belong
to a keeper (programs/keeper.py), which outlives a killed agent for as long as it takes to end them.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import threading
import time
import zlib

from .. import runtime
from ..system import files, procs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What a process prints waits here for the control host. What is beyond is left out, and counted.
KEPT_BYTES = 4 << 20
POLLED_BYTES = 1 << 20
EVENTS_KEPT = 2000
STARTING_S = 20.0
# Ending: the grace, then what the keeper takes to kill.
KILLED_S = 6.0
RUNS_MAX = 64
# Where every node can have a folder of the same name: launchers hand PYTHONPATH on to other nodes.
FOLDER = "/tmp/netdoctor-try-"
MARK = "NETDOCTOR_TRY"
_KEEPER = "import sys;exec(compile(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())),'keeper','exec'))"
ADDRESSES_MAX = 64
STACK_BYTES = 16 << 10
STACKS_S = 0.5


class Output(object):
    """What one process has printed and nobody has fetched yet."""

    def __init__(self) -> None:
        self.parts = bytearray()
        self.left_out = 0

    def add(self, data: bytes) -> None:
        room = max(0, KEPT_BYTES - len(self.parts))
        self.parts += data[:room]
        self.left_out += max(0, len(data) - room)

    def take(self) -> "dict[str, Any]":
        data = bytes(self.parts[:POLLED_BYTES])
        del self.parts[:POLLED_BYTES]
        # What was left out stood behind all that is still here.
        left_out, self.left_out = (0, self.left_out) if self.parts else (self.left_out, 0)
        return {
            "data": base64.b64encode(zlib.compress(data, 1)).decode("ascii") if data else "",
            "left_out": left_out,
        }


class Trial(object):
    """One job's processes here."""

    def __init__(self, token: str, folder: "str | None", socket: "Any", grace_s: float) -> None:
        self.token = token
        self.grace_s = grace_s
        self.folder = folder
        self.socket = socket
        self.lock = threading.Lock()
        self.outputs = []  # type: list[Output]
        self.events = []  # type: list[Any]
        self.runs = {}  # type: dict[int, dict[str, Any]]
        self.swept = None  # type: Any
        self.over = threading.Event()
        self.keeper = None  # type: Any
        self.began = time.monotonic()

    def start(self, args: "dict[str, Any]", config: "dict[str, Any]") -> None:
        readers, writers = [], []
        try:
            for run in config["runs"]:
                reader, writer = os.pipe()
                readers.append(reader)
                writers.append(writer)
                run["fd"] = writer
                self.outputs.append(Output())
            argv = [sys.executable, "-E", "-S", "-s", "-c", _KEEPER]
            # Not one of the agent's children: those are killed when it ends, and this one has to end others.
            self.keeper = runtime.normally(lambda: self._keeper(argv, writers))
        except BaseException:
            for reader in readers:
                os.close(reader)
            raise
        finally:
            for writer in writers:
                os.close(writer)
        text = str(args["keeper"]).encode("utf-8")
        self.keeper.stdin.write(b"%d\n" % len(text) + text + json.dumps(config).encode("ascii") + b"\n")
        self.keeper.stdin.flush()
        runtime.thread(lambda: self._listen(readers))

    @staticmethod
    def _keeper(argv: "list[str]", writers: "list[int]") -> "Any":
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            pass_fds=writers,
            start_new_session=True,
        )

    def _listen(self, readers: "list[int]") -> None:
        """Read what the job, its probes and the keeper say until the keeper is gone."""
        keeper = self.keeper.stdout.fileno()
        numbers = {fd: index for index, fd in enumerate(readers)}
        poll = select.poll()
        for fd in [*readers, keeper] + ([self.socket.fileno()] if self.socket else []):
            poll.register(fd, select.POLLIN | select.POLLHUP)
        pending = b""
        ended = False
        while not ended:
            for fd, _ in poll.poll(500):
                if self.socket is not None and fd == self.socket.fileno():
                    self._hear()
                    continue
                data = os.read(fd, 1 << 16)
                if not data:
                    poll.unregister(fd)
                    ended = ended or fd == keeper
                elif fd == keeper:
                    *lines, pending = (pending + data).split(b"\n")
                    for line in lines:
                        self._note(json.loads(line.decode("ascii")))
                else:
                    with self.lock:
                        self.outputs[numbers[fd]].add(data)
        for fd in readers:
            self._rest(fd, self.outputs[numbers[fd]])
            os.close(fd)
        self._finish()

    def _rest(self, fd: int, output: Output) -> None:
        """What is still in the pipe; whoever holds its other end now was not the job's."""
        os.set_blocking(fd, False)
        try:
            data = os.read(fd, 1 << 16)
            while data:
                with self.lock:
                    output.add(data)
                data = os.read(fd, 1 << 16)
        except OSError:
            pass

    def _hear(self) -> None:
        try:
            event = json.loads(self.socket.recv(4096).decode("ascii", "replace"))
        except (OSError, ValueError, RecursionError):
            return
        if isinstance(event, dict):
            self._add(dict(event, heard_s=round(time.monotonic() - self.began, 3)))

    def _add(self, event: "dict[str, Any]") -> None:
        """Keep an event. Of a process's steps the newest counts, and its first three."""
        with self.lock:
            if event.get("what") == "step" and event.get("count", 0) > 3:
                same = [
                    e for e in self.events if e.get("what") == "step" and e.get("pid") == event.get("pid")
                ]
                for old in same:
                    if old.get("count", 0) > 3:
                        self.events.remove(old)
            if len(self.events) < EVENTS_KEPT:
                self.events.append(event)

    def _note(self, event: "dict[str, Any]") -> None:
        """Take what the keeper says."""
        with self.lock:
            for word in ("started", "failed", "ended"):
                if word in event:
                    state = dict(event, state=word, at_s=round(time.monotonic() - self.began, 3))
                    self.runs[int(event[word])] = state
            if "swept" in event:
                self.swept = event

    def end(self, wait_s: float) -> None:
        """Tell the keeper to end the job, and wait for it."""
        try:
            self.keeper.stdin.close()
        except OSError:
            pass
        self.over.wait(wait_s)

    def _finish(self) -> None:
        self.keeper.wait()
        if self.socket is not None:
            self.socket.close()
        self.over.set()

    def report(self) -> "dict[str, Any]":
        with self.lock:
            events, self.events = self.events, []
            return {
                "outputs": [output.take() for output in self.outputs],
                "events": events,
                "runs": self.states(),
                "more": any(output.parts for output in self.outputs),
                "over": self.over.is_set(),
                "swept": self.swept,
                "seconds": round(time.monotonic() - self.began, 3),
            }

    def states(self) -> "list[Any]":
        return [self.runs.get(index) for index in range(len(self.outputs))]

    def has_news(self) -> bool:
        return bool(self.events) or any(output.parts for output in self.outputs)

    def ended(self) -> int:
        return sum(1 for run in self.runs.values() if run["state"] != "started")


_trials = {}  # type: dict[str, Trial]


def _close_all() -> None:
    for one in list(_trials.values()):
        one.end(one.grace_s + KILLED_S)


runtime.at_exit(_close_all)


def trial(args: "dict[str, Any]") -> "dict[str, Any]":
    """Start a job's processes. args: {"session", "runs": [{"argv", "env"}], "env", "cwd", "keeper": text,
    "probe": text or None, "grace_s", "bin": folder to find commands in first, or None}.

    env: on top of the login's; that of a run on top of both. Without runs the node takes part, and nothing is
    started by us. Return {"runs": [state], "probe": whether processes can say how far they are}.
    """
    token = runtime.session_name(args)
    runs = list(args.get("runs") or [])
    if len(runs) > RUNS_MAX or token in _trials:
        raise ValueError("up to %d processes, and one trial of a name" % RUNS_MAX)
    cwd = str(args.get("cwd") or runtime.login_directory)
    if not os.path.isdir(cwd):
        raise runtime.Unavailable("failed", "there is no folder %s" % cwd)
    folder, socket = _make_folder(token, args.get("probe"))
    one = Trial(token, folder, socket, min(max(float(args.get("grace_s") or 5.0), 0.0), 60.0))
    env = _environment(args, folder if socket is not None else None, token)
    config = {
        "token": token,
        "runs": [{"argv": list(run["argv"]), "env": dict(env, **run.get("env") or {})} for run in runs],
        "cwd": cwd,
        "limits": [[_number(name), list(pair)] for name, pair in runtime.session_limits.items()],
        "umask": runtime.login_umask,
        "grace_s": one.grace_s,
        "folder": folder,
    }
    _trials[token] = one
    try:
        one.start(args, config)
    except BaseException:
        _trials.pop(token, None)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    until = time.monotonic() + STARTING_S
    while len(one.runs) < len(runs) and time.monotonic() < until and not one.over.is_set():
        time.sleep(0.005)
    # What it has printed by now is for `trial_poll`.
    return {"runs": one.states(), "probe": socket is not None}


def _number(name: str) -> int:
    import resource

    return int(getattr(resource, "RLIMIT_" + name))


def _make_folder(token: str, probe: "Any") -> "tuple[str | None, Any]":
    """Make the trial's folder with its probe and the socket that it speaks to; (None, None) without room."""
    import socket

    folder = FOLDER + token
    if not probe:
        return None, None
    try:
        os.mkdir(folder, 0o700)
    except OSError:
        return None, None
    try:
        with open(os.path.join(folder, "sitecustomize.py"), "w") as file:
            file.write(str(probe))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.setblocking(False)
        listener.bind(os.path.join(folder, "events"))
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        return None, None
    return folder, listener


def _environment(args: "dict[str, Any]", probe: "str | None", token: str) -> "dict[str, str]":
    env = dict(os.environ)
    env.update({str(name): str(value) for name, value in (args.get("env") or {}).items()})
    env[MARK] = token
    if args.get("bin"):
        env["PATH"] = str(args["bin"]) + os.pathsep + env.get("PATH", os.defpath)
    if env.get("PYTHONPATH"):
        env["PYTHONPATH"] = runtime.from_login(env["PYTHONPATH"])
    if probe is not None:
        rest = env.get("PYTHONPATH")
        env["PYTHONPATH"] = probe + (os.pathsep + rest if rest else "")
    env["PYTHONUNBUFFERED"] = "1"
    return env


def _trial_of(args: "dict[str, Any]") -> Trial:
    one = _trials.get(runtime.session_name(args))
    if one is None:
        raise runtime.Unavailable("failed", "no such trial")
    return one


def poll(args: "dict[str, Any]") -> "dict[str, Any]":
    """Wait up to args["wait_s"] for something new of args["session"], and return it.

    {"outputs": [{"data": base64 of zlib, "left_out": bytes}], "events", "runs": [state or None], "more":
    whether there is more output, "over": whether all is ended and gone, "swept", "seconds": since its start,
    "addresses": with args["look"], [own address, its peer, connections] of the job's TCP connections}.
    """
    one = _trial_of(args)
    ended = one.ended()
    until = time.monotonic() + min(max(float(args.get("wait_s") or 0.0), 0.0), 30.0)
    while time.monotonic() < until and one.ended() == ended and not one.over.is_set():
        time.sleep(0.02)
        if one.has_news():
            time.sleep(0.1)  # more of it comes with one answer
            break
    found = one.report()
    if args.get("look"):
        found["addresses"] = connections(one.token.encode("ascii"))
    return found


def end(args: "dict[str, Any]") -> "dict[str, Any]":
    """End the job here, and return what `poll` does."""
    one = _trial_of(args)
    one.end(one.grace_s + KILLED_S)
    return one.report()


def stacks(args: "dict[str, Any]") -> "dict[str, Any]":
    """Return where the ranks of args["session"] are: {"stacks": [{"pid", "state": letter of /proc, "text"}]}.

    Of those alone that have a probe which takes the signal; one that is stopped has no text.
    """
    import signal

    one = _trial_of(args)
    names = files.names(one.folder) if one.folder is not None else []
    pids = [int(name[6:]) for name in names if name.startswith("stack-") and name[6:].isdigit()][:RUNS_MAX]
    found = []
    for pid in pids:
        try:
            if one.token.encode("ascii") in files.read_bytes("/proc/%d/environ" % pid, 1 << 20):
                os.kill(pid, signal.SIGRTMAX - 2)
                found.append(pid)
        except OSError:
            continue
    time.sleep(STACKS_S if found else 0)
    return {
        "stacks": [
            {
                "pid": pid,
                "state": next(iter(procs.stat_fields(pid)), ""),
                "text": files.text_or_none("%s/stack-%d" % (one.folder, pid), STACK_BYTES) or "",
            }
            for pid in found
        ]
    }


def connections(token: bytes) -> "list[list[Any]]":
    """Return [own address, peer's address, how many] of the established TCP connections of the job."""
    inodes = set()  # type: set[str]
    for name in os.listdir("/proc"):
        try:
            if not name.isdigit() or token not in files.read_bytes("/proc/%s/environ" % name, 1 << 20):
                continue
            inodes |= socket_inodes(int(name))
        except OSError:
            continue
    counts = {}  # type: dict[tuple[str, str], int]
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (files.text_or_none(table, 32 << 20) or "").splitlines()[1:]:
            part = line.split()
            if len(part) > 9 and part[3] == "01" and part[9] in inodes:
                ends = tuple(address(part[i].partition(":")[0]) for i in (1, 2))
                counts[ends] = counts.get(ends, 0) + 1  # type: ignore[index,arg-type]
    return [[source, target, count] for (source, target), count in sorted(counts.items())][:ADDRESSES_MAX]


def socket_inodes(pid: int) -> "set[str]":
    """Return the inodes of a process's sockets. Raises OSError."""
    targets = [os.readlink("/proc/%d/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%d/fd" % pid)]
    return {target[8:-1] for target in targets if target.startswith("socket:[")}


def address(word: str) -> str:
    """Return an address of /proc/net/tcp: words of hex digits, each in host byte order."""
    import socket

    data = b"".join(int(word[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(word), 8))
    if len(data) == 16 and data.startswith(b"\0" * 10 + b"\xff\xff"):
        data = data[12:]
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)
