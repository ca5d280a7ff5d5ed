"""First code that runs on a node: says hello, asks for the agent's modules, makes them importable as ndagent.

The text of this module is what every node compiles, so it is small, and imports what an interpreter has
anyway. What it asks for comes as code where the control host has it for this very interpreter, else as text,
which is compiled when it is imported: a request pays only for what it uses.
"""

import os
import sys
import zlib
from _thread import allocate_lock, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import IO, Any, Callable, Optional, Union  # noqa: F401

PACKAGE = "ndagent"
# importlib.machinery's, which that costs a millisecond to import.
Spec = type(sys.__spec__)  # type: Any
# The first byte of a frame that holds modules; JSON begins with none such.
PACKED = b"\0"
# The clock of main, and what works at the login's priority.
THREADS_KEPT = 2


def tag() -> str:
    """Return what code has to be made for: ``cpython-311-3495``, the interpreter and its magic number."""
    magic = getattr(sys.modules.get("_frozen_importlib_external"), "MAGIC_NUMBER", b"\0\0")
    return "%s-%d" % (sys.implementation.cache_tag, magic[0] | magic[1] << 8)


class Importer(object):
    """Finds `ndagent` and `ndagent.FOLDER.NAME` among what has arrived, and asks for what has not.

    Of no class of importlib.abc: importing that alone costs a node a fifth of what the rest does.
    folders: names of modules by folder, "" is that of those in none. ask: has one sent, says whether it came.
    """

    def __init__(self, folders: "dict[str, str]") -> None:
        self.folders = folders
        self.tag = tag()
        self.signals = signals()
        self.modules = {}  # type: dict[str, Union[bytes, str]]
        self.ask = None  # type: Optional[Callable[[str], bool]]

    def take(self, body: bytes) -> None:
        """Add the modules in a frame: text, or code that was made for this Python."""
        import marshal

        tag, _, packed = body[len(PACKED) :].partition(b"\n")
        if tag.decode() in ("", self.tag):
            self.modules.update(marshal.loads(zlib.decompress(packed)))

    def find_spec(self, fullname: str, path: "Any" = None, target: "Any" = None) -> "Any":
        package, _, name = fullname.partition(".")
        if package != PACKAGE:
            return None
        if name in self.folders:
            return Spec(fullname, self, origin="<agent>", is_package=True)
        folder, _, last = name.rpartition(".")
        known = last in self.folders.get(folder, "").split()
        if known and (name in self.modules or (self.ask is not None and self.ask(name))):
            return Spec(fullname, self, origin=origin(name))
        return None

    def create_module(self, spec: "Any") -> None:
        return None

    def exec_module(self, module: "ModuleType") -> None:
        name = module.__name__.partition(".")[2]
        if name not in self.folders:
            what = self.modules[name]  # type: Any
            if isinstance(what, bytes):
                import marshal

                code = marshal.loads(what)
            else:
                code = compile(what, origin(name), "exec", 0, True)
            exec(code, module.__dict__)


def origin(name: str) -> str:
    return "<agent>/" + name.replace(".", "/") + ".py"


def say(marker: str, text: str, stream: "Any") -> None:
    """Send one frame of ASCII JSON. stream: of dial_back, None for stdout."""
    data = ("\x1e%s %d\n%s\n" % (marker, len(text), text)).encode("ascii")
    while data:
        data = data[stream.write(data) if stream else os.write(1, data) :]


def plain(text: str, more: str = "") -> str:
    """Return a text without what JSON would have to escape."""
    return "".join([c for c in text if c.isalnum() or c in "/._+-" + more if c < "\x7f"])


def signals() -> "Any":
    """Return what `signal` is made of: it makes enumerations of a hundred numbers."""
    try:
        return __import__("_signal")
    except ImportError:
        return __import__("signal")


def room_for_threads(count: int) -> None:
    """Raise RuntimeError where the user may have no more processes: before hello it says why no agent is."""
    gate = allocate_lock()
    with gate:
        for _ in range(count):
            start_new_thread(wait, (gate,))


def wait(gate: "Any") -> None:
    with gate:
        pass


def next_body(stream: "IO[bytes]", code: int) -> bytes:
    """Return the body of the next frame; ends the agent, with that status, at the end of the stream."""
    head = stream.read(9)
    try:
        length = int(head, 16) if head else 0
    except ValueError:
        sys.exit("no length in " + repr(head))
    body = stream.read(min(length, 1 << 24))
    if len(head) < 9 or len(body) < length:
        sys.exit(code)
    return body


def start(bundle: "dict[str, Any]") -> None:
    """Say hello, get the modules, and hand over to main with what was said meanwhile."""
    sys.dont_write_bytecode = True
    # Whatever happens until main keeps a clock of its own: the kernel's timer ends this process.
    importer = Importer(bundle["folders"])
    signal = importer.signals
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, bundle["deadline_s"] + 2.0)
    room_for_threads(THREADS_KEPT)
    unasked, stream = 0, None
    if bundle["dial"]:
        unasked = bundle["dial"].get("unasked", 0)
        caller = {"__name__": PACKAGE + ".dial_back"}  # type: dict[str, Any]
        exec(compile(bundle["dial_back"], "<agent>/dial_back.py", "exec", 0, True), caller)
        stream = caller["call"](bundle["dial"], bundle["marker"])
    version = "%d.%d.%d" % sys.version_info[:3]
    hello = '{"hello": {"python": "%s", "tag": "%s", "executable": "%s", "machine": "%s"'
    hello %= (version, importer.tag, plain(sys.executable or ""), plain(os.uname().machine))
    hello += ', "pid": %d, "uid": %d, "bits": %d}}'
    say(bundle["marker"], hello % (os.getpid(), os.getuid(), 64 if sys.maxsize > 2**32 else 32), stream)
    early = []  # type: list[bytes]  # requests that came before the modules
    while not importer.modules:
        body = next_body(stream or sys.stdin.buffer, unasked)
        if body.startswith(PACKED):
            importer.take(body)
        else:
            early.append(body)
            # Not before: who waits for hello alone has no ear for more.
            say(bundle["marker"], '{"id": null, "need": "agent %s"}' % importer.tag, stream)
    sys.meta_path.insert(0, importer)
    try:
        main = __import__(PACKAGE + ".main", fromlist=["main"])
    except Exception as e:  # an interpreter without half of its library
        detail = plain("%s: %s" % (type(e).__name__, e), " :=()")[:300]
        say(bundle["marker"], '{"id": null, "ok": false, "why": "failed", "detail": "%s"}' % detail, stream)
        raise
    main.main(bundle, importer, early, stream)
