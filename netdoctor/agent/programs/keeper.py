"""Starts a job's processes on a node, and ends every one of them: on request, or when its agent is gone.

Runs in the agent's interpreter. Its stdin begins with the number of bytes of this text, the text, and a line
of JSON (CONFIG of `operations/trial.py`); whatever comes behind it, a line or the end, is the request to end.
It says on its stdout, a line of JSON each, {"started": run, "pid"}, {"failed": run, "errno", "what"},
{"ended": run, "code"}, {"swept": how many were killed, "left": names of those that would not go}.

Processes of the job have the token in their environment, or descend from this one, which takes in what loses
its parent. So one that becomes a daemon, or has a session of its self_pid as torchrun's ranks have, is found.
"""

import ctypes
import errno
import json
import os
import resource
import select
import shutil
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.1
# A process that was killed is gone within moments, unless the kernel holds it.
KILLED_S = 4.0
LEFT_NAMED = 8


def prctl(option: int, value: int) -> None:
    try:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def say(**event: "Any") -> None:
    try:
        os.write(1, json.dumps(event).encode("ascii") + b"\n")
    except OSError:  # nobody reads any more
        pass


def read(path: str, most: int = 1 << 20) -> bytes:
    """Return the beginning of a file of /proc, nothing where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError:
        return b""


def parents() -> "dict[int, int]":
    """Return the parent of each process."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = read("/proc/%s/stat" % name, 4096).rpartition(b") ")[2].split()
            if len(fields) > 1 and fields[0] not in (b"Z", b"X"):
                found[int(name)] = int(fields[1])
    return found


def members(token: bytes) -> "list[int]":
    """Return the job's processes, zombies aside."""
    known = parents()
    found = []
    self_pid = os.getpid()
    for pid in known:
        above, steps = pid, 0
        while above not in (0, 1, self_pid) and steps < 100:
            above, steps = known.get(above, 0), steps + 1
        if pid != self_pid and (above == self_pid or token in read("/proc/%d/environ" % pid)):
            found.append(pid)
    return found


def become(run: "dict[str, Any]", config: "dict[str, Any]", fault: int) -> None:
    """Make the job's process of this forked child. Never returns."""
    what = "start"
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        for number, value in config["limits"]:
            try:
                resource.setrlimit(number, tuple(value))
            except (OSError, ValueError):
                pass
        os.umask(config["umask"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        what = "folder"
        os.chdir(config["cwd"])
        what = "start"
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(run["fd"], 1)
        os.dup2(run["fd"], 2)
        what = "command"
        os.execvpe(run["argv"][0], run["argv"], run["env"])
    except BaseException as e:
        number = getattr(e, "errno", None) or errno.EINVAL
        os.write(fault, json.dumps({"errno": number, "what": what}).encode("ascii"))
    finally:
        os._exit(127)


def start(index: int, run: "dict[str, Any]", config: "dict[str, Any]") -> "Optional[int]":
    """Start one process and say so; return its pid, None where it could not be started."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        become(run, config, writer)
    os.close(writer)
    os.close(run["fd"])
    failed = os.read(reader, 4096)
    os.close(reader)
    if failed:
        os.waitpid(pid, 0)
        say(failed=index, **json.loads(failed.decode("ascii")))
        return None
    say(started=index, pid=pid)
    return pid


def reap(running: "dict[int, int]") -> None:
    """Take note of what has ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except OSError:
            return
        if pid == 0:
            return
        index = running.pop(pid, None)
        if index is not None:
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            say(ended=index, code=code)


def signal_all(pids: "Any", number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def end(running: "dict[int, int]", token: bytes, grace_s: float, folder: "Optional[str]") -> None:
    """End the job: as Ctrl-C and schedulers do first, then for good. folder: the trial's, which goes."""
    for pid in list(running):
        for number in (signal.SIGTERM, signal.SIGCONT):
            try:
                os.killpg(pid, number)
            except OSError:
                pass
    until = time.monotonic() + grace_s
    while members(token) and time.monotonic() < until:
        reap(running)
        time.sleep(0.05)
    killed = set()  # type: set[int]
    until = time.monotonic() + KILLED_S
    while time.monotonic() < until:
        left = members(token)
        if not left:
            break
        signal_all(left, signal.SIGKILL)
        killed.update(left)
        reap(running)
        time.sleep(0.02)
    reap(running)
    names = [read("/proc/%d/comm" % pid, 64).decode("ascii", "replace").strip() for pid in members(token)]
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    say(swept=len(killed), left=names[:LEFT_NAMED])


def main() -> None:
    config = json.loads(sys.stdin.buffer.readline().decode("utf-8"))
    token = config["token"].encode("ascii")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    running = {}  # type: dict[int, int]
    for index, run in enumerate(config["runs"]):
        pid = start(index, run, config)
        if pid is not None:
            running[pid] = index
    stdin = sys.stdin.fileno()
    while not select.select([stdin], [], [], POLL_S)[0]:
        reap(running)
    reap(running)
    end(running, token, config["grace_s"], config["folder"])


if __name__ == "__main__":
    main()
