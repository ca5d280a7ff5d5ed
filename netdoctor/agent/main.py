"""The agent's loop: read requests from stdin, answer on a private copy of stdout, outlive nobody."""

import gc
import os
import resource
import select
import sys
import time

from . import runtime, wire
from .system import private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

# RLIMIT_DATA and not RLIMIT_AS: NVML reserves address space far beyond what it uses.
MEMORY_CAP_BYTES = 512 << 20
THREAD_STACK_BYTES = 2 << 20
MAX_RUNNING = 16
# Objects between two searches for cycles of them. Facts make few cycles, and a search goes through every
# module's: it costs a node more than to keep what it would find.
GARBAGE_OBJECTS = 10000
DEFAULT_DEADLINE_S = 300.0

# Operation -> (module of operations/, function) where that is not NAME.NAME; compiled when first needed.
OPERATIONS = {
    "unlisten": ("listen", "unlisten"),
    "udp_echo": ("listen", "udp_echo"),
    "path_mtu": ("mtu", "path_mtu"),
    "udp_loss": ("loss", "udp_loss"),
    "stream_serve": ("stream", "serve"),
    "stream_send": ("stream", "send"),
    "stream_receive": ("stream", "receive"),
    "converse": ("spawn", "converse"),
    "shell_env": ("shell", "shell_env"),
    "job_shells": ("shell", "job_shells"),
    "read_shared": ("share", "read"),
    "remove_shared": ("share", "remove"),
    "open_storage": ("rate", "open_storage"),
    "run_storage": ("rate", "run_storage"),
    "close_storage": ("rate", "close_storage"),
    "stop": ("spawn", "stop"),
    "trial_poll": ("trial", "poll"),
    "trial_end": ("trial", "end"),
    "trial_stacks": ("trial", "stacks"),
}

collectors = {}  # type: dict[str, str]


def settle(deadline_s: float, signal: "Any") -> None:
    """Make the process small, polite and mortal. The session's limits are read first.

    signal: the module, or `_signal`, which costs less.
    """
    for name in ("MEMLOCK", "NOFILE", "STACK", "NPROC", "CORE", "DATA", "AS"):
        number = getattr(resource, "RLIMIT_" + name, None)
        if number is not None:
            runtime.session_limits[name] = resource.getrlimit(number)
    # Soft limits only: a child that is part of an experiment may raise them again.
    for number, limit in ((resource.RLIMIT_DATA, MEMORY_CAP_BYTES), (resource.RLIMIT_CORE, 0)):
        try:
            soft, hard = resource.getrlimit(number)
            if soft == resource.RLIM_INFINITY or soft > limit:
                resource.setrlimit(number, (limit, hard))
        except (OSError, ValueError):
            pass
    if hasattr(gc, "set_threshold"):  # CPython
        gc.set_threshold(GARBAGE_OBJECTS)
    runtime.login_umask = os.umask(0o077)
    try:
        runtime.stack_size(THREAD_STACK_BYTES)
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

    runtime.Thread(watch)
    # The kernel's own timer, default action: ends the process even if no Python code can run any more.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, deadline_s + 2.0)


class Agent:
    """Dispatches requests; each but `ping` runs in a thread of its own."""

    def __init__(self, channel: wire.Channel) -> None:
        self._channel = channel
        self._running = 0
        self._lock = runtime.Lock()

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
                name, function = OPERATIONS.get(op) or (op, op)
                module = runtime.module("operations." + name, "unknown operation " + repr(op)[:80])
                result = getattr(module, function)(args)
            except BaseException as e:
                why, detail = runtime.explain(e)
                self.fail(number, why, detail)
            else:
                self.send({"id": number, "ok": True, "result": result})
        finally:
            with self._lock:
                self._running -= 1

    def take(self, request: "Any", received: float) -> None:
        """Answer one request, at once or from a thread."""
        if not isinstance(request, dict):
            raise wire.BadFrame("a request is an object")
        if "provide" in request or "pack" in request:
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
        elif self._running >= MAX_RUNNING:
            self.fail(number, "failed", "%d requests are running already" % MAX_RUNNING)
        else:
            with self._lock:
                self._running += 1
            runtime.Thread(self.work, number, op, args)


def main(
    bundle: "dict[str, Any]", importer: "Any", early: "Sequence[bytes]" = (), stream: "Any" = None
) -> None:
    """Run until stdin ends, the deadline passes or a signal comes.

    importer: of the loader, which has said hello. early: bodies of requests that it has read. stream: of
    dial_back, in place of stdin and stdout.
    """
    deadline = bundle.get("deadline_s")
    settle(float(deadline) if deadline else DEFAULT_DEADLINE_S, importer.signals)
    collectors.update(bundle.get("collectors") or {})
    channel = wire.Channel.take_stdout(str(bundle["marker"]), stream)
    agent = Agent(channel)
    runtime.set_asker(agent.send, importer)
    stdin = stream or sys.stdin.buffer
    code = 0
    try:
        for body in early:
            agent.take(wire.parse(body), time.time())
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
    except SystemExit as e:  # of the stream: what came is not netdoctor's
        code = e.code  # type: ignore[assignment]
    runtime.shut_down(code)
