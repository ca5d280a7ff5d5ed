"""The agent's loop: read requests from stdin, answer on a private copy of stdout, outlive nobody."""

import os
import resource
import select
import signal
import sys
import threading
import time

from . import private, runtime, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# RLIMIT_DATA and not RLIMIT_AS: NVML reserves address space far beyond what it uses.
MEMORY_CAP_BYTES = 512 << 20
THREAD_STACK_BYTES = 2 << 20
MAX_RUNNING = 16
DEFAULT_DEADLINE_S = 300.0

# Operation -> (module, function) where that is not op_NAME.NAME; compiled when it is first needed.
OPERATIONS = {
    "facts": ("collect", "facts"),
    "unlisten": ("op_listen", "unlisten"),
    "udp_echo": ("op_listen", "udp_echo"),
    "path_mtu": ("op_mtu", "path_mtu"),
    "udp_loss": ("op_loss", "udp_loss"),
    "stream_serve": ("op_stream", "serve"),
    "stream_send": ("op_stream", "send"),
    "stream_receive": ("op_stream", "receive"),
    "converse": ("op_spawn", "converse"),
    "stop": ("op_spawn", "stop"),
}

collectors = {}  # type: dict[str, str]


def settle(deadline_s: float) -> None:
    """Make the process small, polite and mortal. The session's limits are read first."""
    for name in ("MEMLOCK", "NOFILE", "STACK", "NPROC", "CORE", "DATA", "AS"):
        number = getattr(resource, "RLIMIT_" + name, None)
        if number is not None:
            runtime.session_limits[name] = resource.getrlimit(number)
    # Soft limits only: a child that is part of an experiment may raise them again.
    for number, wanted in (
        (resource.RLIMIT_DATA, MEMORY_CAP_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        try:
            soft, hard = resource.getrlimit(number)
            if soft == resource.RLIM_INFINITY or soft > wanted:
                resource.setrlimit(number, (wanted, hard))
        except (OSError, ValueError):
            pass
    os.umask(0o077)
    try:
        threading.stack_size(THREAD_STACK_BYTES)
    except (ValueError, RuntimeError):
        pass
    runtime.keep_normal()
    try:
        os.nice(10)
    except OSError:
        pass
    try:
        runtime.login_directory = os.getcwd()
    except OSError:  # the directory is gone, or not ours to read
        pass
    try:
        os.chdir("/")  # keep no mount busy
    except OSError:
        pass

    def end(number: int, _: "Any") -> None:
        runtime.shut_down(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, end)
    # A broken pipe is met as EPIPE where we write; the signal itself would kill without clean-up.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    finish = time.monotonic() + deadline_s

    def watch() -> None:
        while True:
            left = finish - time.monotonic()
            if left <= 0:
                runtime.shut_down(124)
            # select() and not Event.wait(), which follows the wall clock on older Pythons.
            select.select([], [], [], min(left, 5.0))

    watcher = threading.Thread(target=watch)
    watcher.daemon = True
    watcher.start()
    # The kernel's own timer, default action: ends the process even if no Python code can run any more.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, deadline_s + 2.0)


def hello() -> "dict[str, Any]":
    """Return the first message of an agent."""
    return {
        "hello": {
            "python": "%d.%d.%d" % tuple(sys.version_info[:3]),
            "executable": sys.executable or "",
            "pid": os.getpid(),
            "uid": os.getuid(),
            "machine": os.uname().machine,
            "bits": 64 if sys.maxsize > 2**32 else 32,
        }
    }


class Agent:
    """Dispatches requests; each but `ping` runs in a thread of its own."""

    def __init__(self, channel: wire.Channel) -> None:
        self._channel = channel
        self._slots = threading.BoundedSemaphore(MAX_RUNNING)

    def send(self, message: "dict[str, Any]") -> None:
        try:
            self._channel.send(private.masked_in(message))
        except OSError:
            runtime.shut_down(0)  # nobody reads any more

    def fail(self, number: "Any", why: str, detail: str) -> None:
        self.send({"id": number, "ok": False, "why": why, "detail": detail[:1000]})

    def work(self, number: "Any", op: str, args: "dict[str, Any]") -> None:
        runtime.scope.request = number
        try:
            try:
                name, function = OPERATIONS.get(op) or ("op_" + op, op)
                module = runtime.module(name, "unknown operation " + repr(op)[:80])
                result = getattr(module, function)(args)
            except BaseException as e:
                why, detail = runtime.explain(e)
                self.fail(number, why, detail)
            else:
                self.send({"id": number, "ok": True, "result": result})
        finally:
            self._slots.release()

    def take(self, request: "Any", received: float) -> None:
        """Answer one request, at once or from a thread."""
        if not isinstance(request, dict):
            raise wire.BadFrame("a request is an object")
        if "provide" in request:
            runtime.provide(request)
            return
        number, op, args = request.get("id"), request.get("op"), request.get("args")
        if args is None:
            args = {}
        if op == "ping":
            result = {"recv_s": received, "send_s": 0.0, "mono_s": time.monotonic()}
            result["send_s"] = time.time()
            self.send({"id": number, "ok": True, "result": result})
        elif not isinstance(op, str):
            self.fail(number, "not_collected", "unknown operation " + repr(op)[:80])
        elif not isinstance(args, dict):
            self.fail(number, "failed", "args is not an object")
        elif not self._slots.acquire(blocking=False):
            self.fail(number, "failed", "%d requests are running already" % MAX_RUNNING)
        else:
            worker = threading.Thread(target=self.work, args=(number, op, args))
            worker.daemon = True
            worker.start()


def main(bundle: "dict[str, Any]") -> None:
    """Run until stdin ends, the deadline passes or a signal comes."""
    deadline = bundle.get("deadline_s")
    settle(float(deadline) if deadline else DEFAULT_DEADLINE_S)
    collectors.update(bundle.get("collectors") or {})
    if bundle.get("dial"):
        runtime.module("dial_back", "").call(bundle["dial"], str(bundle["marker"]))
    channel = wire.Channel.take_stdout(str(bundle["marker"]))
    agent = Agent(channel)
    runtime.set_asker(agent.send)
    agent.send(hello())
    stdin = sys.stdin.buffer
    code = 0
    try:
        while True:
            request = wire.read_frame(stdin)
            received = time.time()
            if request is None:
                break
            agent.take(request, received)
    except wire.BadFrame as e:
        agent.send({"id": None, "ok": False, "why": "unparsable", "detail": str(e)[:200]})
        code = 65
    except Exception as e:
        agent.fail(None, "failed", runtime.explain(e)[1])
        code = 70
    runtime.shut_down(code)
