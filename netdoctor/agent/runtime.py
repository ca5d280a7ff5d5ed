"""What operations share on a node: child processes, libraries asked for from the control host, clean-up."""

import os
import select
import sys
import time
import zlib
from _thread import _local as local
from _thread import allocate_lock as Lock
from _thread import stack_size, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Optional

__all__ = ["Lock", "stack_size"]  # of what is imported here, for other modules

SIGKILL = 9
OUTPUT_CAP_BYTES = 256 * 1024
PROVIDE_WAIT_S = 5.0
MODULE_WAIT_S = 15.0
LIBRARY_CAP_BYTES = 4 << 20
_SESSION = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")

# The limits of the login session, read before the agent changes its own: {name: (soft, hard)}.
session_limits = {}  # type: dict[str, tuple[int, int]]
# Where the login shell started us; relative entries of PYTHONPATH count from here.
login_directory = "/"
login_umask = 0o022
# The request that a thread works for: scope.request.
scope = local()


class Work(object):
    """What a thread does, or will do; it may be waited for."""

    def __init__(self) -> None:
        self._undone = Lock()
        self._undone.acquire()

    def do(self, target: "Callable[..., None]", args: "tuple[Any, ...]" = ()) -> None:
        try:
            target(*args)
        finally:
            self._undone.release()

    def is_alive(self) -> bool:
        return self._undone.locked()

    def join(self, timeout_s: float = -1) -> None:
        """Wait for its end: for ever without a time."""
        if self._undone.acquire(True, timeout_s):
            self._undone.release()


class Thread(Work):
    """A daemon thread, running from the start. `threading` costs more to import than all of them to run."""

    def __init__(self, target: "Callable[..., None]", *args: "Any") -> None:
        """Raises RuntimeError where no thread can be started."""
        Work.__init__(self)
        start_new_thread(self.do, (target, args))


class Unavailable(Exception):
    """A fact or an operation that cannot be had. why: a value of netdoctor.facts.Why."""

    def __init__(self, why: str, detail: str) -> None:
        Exception.__init__(self, detail)
        self.why = why
        self.detail = detail


def session_name(args: "dict[str, Any]") -> str:
    """Return args["session"]. Raises ValueError."""
    name = args.get("session")
    if not isinstance(name, str) or not 1 <= len(name) <= 80 or not set(name) <= _SESSION:
        raise ValueError("a session has a short name of letters, digits, dots and dashes")
    return name


def module(name: str, missing: str) -> "Any":
    """Return the agent's module FOLDER.NAME. Raises Unavailable, with `missing`, where there is none."""
    full = __name__.rpartition(".")[0] + "." + name
    try:
        if name.replace(".", "").isidentifier():
            return __import__(full, fromlist=["_"])
    except ImportError as e:
        if e.name != full:  # something that it imports itself
            raise
    raise Unavailable("not_collected", missing)


_WHYS = frozenset(
    ("not_applicable", "not_collected", "no_permission", "timed_out", "unparsable", "failed", "lost")
)


def explain(error: BaseException) -> "tuple[str, str]":
    """Return (why, detail) for an exception; one line, no traceback."""
    why = getattr(error, "why", None)
    if not isinstance(why, str) or why not in _WHYS:
        why = "no_permission" if isinstance(error, PermissionError) else "failed"
    if isinstance(error, Unavailable):
        return why, error.detail
    text = " ".join(str(error).split())[:500]
    kind = type(error).__name__
    return why, kind + ": " + text if text else kind


# --- children ---------------------------------------------------------------------------------------------


class _State(object):
    closing = False
    ask = None  # type: Optional[Callable[[dict[str, Any]], None]]
    importer = None  # type: Any  # the loader's


_state = _State()
_children = set()  # type: set[int]
_children_lock = Lock()
STARTING_S = 1.0  # for this long an end waits for a child that is being started; below the timer of settle()
_closers = []  # type: list[Callable[[], None]]


def at_exit(closer: "Callable[[], None]") -> None:
    """Register what must be closed when the agent ends."""
    _closers.append(closer)


# Also sbin, which a login shell may not have on PATH.
_SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"


class ToolResult:
    """Output of a child: text capped, undecodable bytes replaced. code is None when it was late."""

    def __init__(self, code: "Optional[int]", out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err


def from_login(search_path: str) -> str:
    """Return a search path whose relative entries count from where the login shell started."""
    parts = [os.path.join(login_directory, part) for part in search_path.split(os.pathsep) if part]
    return os.pathsep.join(parts)


def find_tool(name: str, path: str = _SYSTEM_PATH, root: str = "/") -> "Optional[str]":
    """Return the path of a program, by itself of one of the system's. path: folders to look into."""
    for folder in path.split(os.pathsep):
        found = os.path.join(folder, name)
        on_disk = os.path.join(root, found.lstrip("/"))
        if os.path.isabs(found) and os.path.isfile(on_disk) and os.access(on_disk, os.X_OK):
            return found
    return None


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, SIGKILL)
    except OSError:
        pass


def _start(argv: "list[str]", environment: "dict[str, str]", stdin: int) -> "Any":
    """Start a child with pipes in a session of its own; it ends with the agent. Raises OSError.

    stdin: as of subprocess.Popen.
    """
    import subprocess

    with _children_lock:
        if _state.closing:
            raise OSError("the agent is ending")
        child = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
        _children.add(child.pid)
    return child


def run_tool(
    argv: "list[str]", timeout_s: float = 5.0, environment: "Optional[dict[str, str]]" = None
) -> ToolResult:
    """Run a child in its own session: no stdin, bounded time and output. Raises OSError.

    environment: without one, the agent's own with LC_ALL=C.
    """
    import subprocess

    if environment is None:
        environment = dict(os.environ, LC_ALL="C", LANG="C")
        # Tools of the system want the system's libraries, whatever the job preloads.
        for name in ("LD_PRELOAD", "LD_LIBRARY_PATH"):
            environment.pop(name, None)
    child = _start(argv, environment, subprocess.DEVNULL)
    try:
        return _result_of(child, time.monotonic() + timeout_s)
    finally:
        # Also after a good end: a tool may have left something behind in its session.
        _kill_group(child.pid)
        try:
            child.wait(1)
        except subprocess.TimeoutExpired:
            pass
        forget_child(child.pid)
        child.stdout.close()
        child.stderr.close()


def _result_of(child: "Any", end: float) -> ToolResult:
    """Read what a child says, and wait for its end, until monotonic time `end`."""
    out, err = child.stdout.fileno(), child.stderr.fileno()
    collected = {out: bytearray(), err: bytearray()}
    poll = select.poll()
    for fd in collected:
        poll.register(fd, select.POLLIN | select.POLLHUP)
    unfinished = set(collected)
    while unfinished and time.monotonic() < end:
        for fd, _ in poll.poll(max(1, int((end - time.monotonic()) * 1000))):
            part = os.read(fd, 65536)
            if not part:
                poll.unregister(fd)
                unfinished.discard(fd)
            collected[fd] += part[: max(0, OUTPUT_CAP_BYTES - len(collected[fd]))]
    while not unfinished and child.poll() is None and time.monotonic() <= end:
        time.sleep(0.005)
    texts = [bytes(collected[fd]).decode("utf-8", "replace") for fd in (out, err)]
    return ToolResult(None if unfinished else child.poll(), *texts)


# --- work at the priority that the job would have ---------------------------------------------------------

_normal_work = []  # type: list[Callable[[], None]]
_normal_wake = Lock()  # free while there may be work


def keep_normal() -> None:
    """Start the thread that `normally` uses; to be called before the agent lowers its priority.

    Linux keeps a nice value per thread, and threads and children inherit that of the thread that makes them:
    what this one starts runs as a job would, without the privilege that raising a priority takes.
    """

    def serve() -> None:
        while True:
            _normal_wake.acquire()
            while _normal_work:
                _normal_work.pop(0)()

    Thread(serve)


def normally(function: "Callable[[], Any]") -> "Any":
    """Return function(), called in a thread whose priority was never lowered. Must not block for long."""
    box = []  # type: list[Any]
    work = Work()
    _normal_work.append(lambda: work.do(_catch, (function, box)))
    try:
        _normal_wake.release()
    except RuntimeError:  # free already: the thread has yet to look
        pass
    work.join()
    return _result(box)


def _catch(function: "Callable[[], Any]", box: "list[Any]") -> None:
    """Put what a function returns or raises into a box, for another thread."""
    try:
        box.append((True, function()))
    except BaseException as e:
        box.append((False, e))


def _result(box: "list[Any]") -> "Any":
    good, value = box[0]
    if not good:
        raise value
    return value


def normal_thread(target: "Callable[..., None]", *args: "Any") -> Thread:
    """Start a daemon thread at the priority that the agent had at login."""
    started = normally(lambda: Thread(target, *args))  # type: Thread
    return started


def shut_down(code: int) -> None:
    """End now: close listeners, kill children with their groups, leave without further ceremony."""
    _state.closing = True
    try:
        for closer in list(_closers):
            try:
                closer()
            except Exception:
                pass
        # One that is just being started is on the list then. Bounded: a signal may have come while this very
        # thread held it.
        _children_lock.acquire(True, STARTING_S)
        for pid in list(_children):
            _kill_group(pid)
    finally:
        os._exit(code)


def start_child(argv: "list[str]", env: "dict[str, str]") -> "Any":
    """Start a child with pipes in its own session, at normal priority; it ends with the agent.

    Raises OSError.
    """
    import subprocess

    return normally(lambda: _start(argv, env, subprocess.PIPE))


def fork_child() -> int:
    """Return the pid of a forked child in its own session that ends with the agent, 0 in the child.

    Raises OSError.
    """
    with _children_lock:
        if _state.closing:
            raise OSError("the agent is ending")
        pid = os.fork()
        if pid == 0:
            os.setsid()
        else:
            _children.add(pid)
    return pid


def end_child(pid: int) -> None:
    """Kill a forked child, and wait a moment for its end."""
    try:
        os.kill(pid, SIGKILL)
        end = time.monotonic() + 0.2
        while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < end:
            time.sleep(0.002)
    except OSError:
        pass
    forget_child(pid)


def run_forked(
    argv: "list[str]", environment: "dict[str, str]", timeout_s: float
) -> "tuple[Optional[int], str]":
    """Return a program's status, None when it was late, and its last output; as run_tool() otherwise.

    For what every scan runs: to import `subprocess` costs more than to start an interpreter. Raises OSError.
    """
    out, inner = os.pipe()
    try:
        pid = fork_child()
        if pid == 0:
            _become(argv, environment, inner)
    except BaseException:
        os.close(out)
        raise
    finally:
        os.close(inner)
    code, text = None, b""
    end = time.monotonic() + timeout_s
    try:
        while code is None and time.monotonic() < end:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            # What it left behind may keep the output open: its own end counts.
            while select.select([out], [], [], 0.0 if ended else 0.01)[0]:
                part = os.read(out, 65536)
                if not part:
                    time.sleep(0.0 if ended else 0.002)
                    break
                text = (text + part)[-OUTPUT_CAP_BYTES:]
                if time.monotonic() >= end:
                    break
    finally:
        os.close(out)
        _kill_group(pid)
        if code is None:
            end_child(pid)
        forget_child(pid)
    return code, text.decode("utf-8", "replace")


def _become(argv: "list[str]", environment: "dict[str, str]", out: int) -> None:
    """Make a program of this forked child: nothing to read, `out` for all that it says."""
    try:
        for fd, number in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (out, 2)):
            os.dup2(fd, number)
        os.execve(argv[0], argv, environment)
    except BaseException as e:  # whatever it is: a second agent must not go on from here
        os.write(2, str(e).encode("utf-8", "replace"))
    finally:
        os._exit(127)


def forget_child(pid: int) -> None:
    """Take a child that was waited for off the list to kill: its number may be somebody else's soon."""
    with _children_lock:
        _children.discard(pid)


# --- threads ----------------------------------------------------------------------------------------------


def thread(target: "Callable[[], None]") -> Thread:
    """Start a daemon thread that belongs to the same request as the caller."""
    request = getattr(scope, "request", None)

    def body() -> None:
        scope.request = request
        target()

    return Thread(body)


def join_until(work: Work, end: float) -> bool:
    """Wait for work until monotonic time `end`; say whether it ended.

    A lock's timeout follows the wall clock up to Python 3.10 where sem_clockwait is missing; short waits in a
    loop keep a clock step harmless.
    """
    pause = 0.001
    while work.is_alive():
        left = end - time.monotonic()
        if left <= 0:
            return False
        work.join(min(left, pause))
        pause = min(pause * 2, 0.05)
    return True


def bounded(function: "Callable[[], Any]", timeout_s: float) -> "Any":
    """Return function() from a thread of its own; raise Unavailable("timed_out") and abandon it when late."""
    box = []  # type: list[Any]
    work = thread(lambda: _catch(function, box))
    if not join_until(work, time.monotonic() + timeout_s) or not box:
        raise Unavailable("timed_out", "no answer within %g s" % timeout_s)
    return _result(box)


# --- libraries from the control host ----------------------------------------------------------------------

_provided = {}  # type: dict[str, dict[str, Any]]
_libraries = {}  # type: dict[str, Any]
_library_lock = Lock()
_awaiting = []  # type: list[Any]  # a lock of each thread that waits for the control host
# A lock's timeout may follow the wall clock: see join_until().
AWAIT_AGAIN_S = 0.5


def set_asker(ask: "Callable[[dict[str, Any]], None]", importer: "Any") -> None:
    """Tell how a message reaches the control host, and what modules of the agent that it sends go to."""
    _state.ask = ask
    _state.importer = importer
    importer.ask = _module_came


def provide(message: "dict[str, Any]") -> None:
    """Take what was asked for; called by the main thread."""
    name = message.get("provide")
    if "pack" in message:
        _state.importer.take(message["pack"])
    elif isinstance(name, str):
        _provided[name] = message
    for arrival in list(_awaiting):
        try:
            arrival.release()
        except RuntimeError:  # told already
            pass


def _await(need: str, came: "Callable[[], bool]", wait_s: float) -> bool:
    """Ask the control host for something, in a request's thread, and say whether it came."""
    request = getattr(scope, "request", None)
    if _state.ask is None or request is None:
        return False
    arrival = Lock()
    arrival.acquire()
    _awaiting.append(arrival)
    try:
        _state.ask({"id": request, "need": need})
        end = time.monotonic() + wait_s
        while not came():
            left = end - time.monotonic()
            if left <= 0:
                return False
            arrival.acquire(True, min(left, AWAIT_AGAIN_S))
        return True
    finally:
        _awaiting.remove(arrival)


def _module_came(name: str) -> bool:
    modules = _state.importer.modules
    if _await("agent " + _state.importer.tag + " " + name, lambda: name in modules, MODULE_WAIT_S):
        return True
    raise Unavailable("failed", "netdoctor's own module %s did not get to the node" % name)


def library(name: str) -> "Optional[ModuleType]":
    """Return pynvml or psutil: the node's own, else the control host's, else None."""
    with _library_lock:
        if name not in _libraries:
            try:
                module("system.site_path", "").own_path({})
                _libraries[name] = __import__(name)
            except Exception:  # absent, or a broken installation that is not ours to judge
                _drop(name)
                try:
                    _libraries[name] = _from_control(name)
                except Exception:
                    _drop(name)
                    _libraries[name] = None
        found = _libraries[name]  # type: Optional[ModuleType]
        return found


def _drop(name: str) -> None:
    for loaded in list(sys.modules):
        if loaded == name or loaded.startswith(name + "."):
            del sys.modules[loaded]


def _from_control(name: str) -> "Optional[ModuleType]":
    # Half of what a large one costs is compiling it: as the agent's own modules it may come as code.
    if not _await(name + " " + _state.importer.tag, lambda: name in _provided, PROVIDE_WAIT_S):
        return None
    encoded = _provided[name].get("files")
    if not isinstance(encoded, dict) or not encoded:
        return None
    from binascii import a2b_base64

    from . import provided

    content = {}
    for path, data in encoded.items():
        inflate = zlib.decompressobj()
        content[str(path)] = inflate.decompress(a2b_base64(data), LIBRARY_CAP_BYTES)
    return provided.load(name, content)
