"""The helper process: a driver of the Ray cluster, under the cluster's own Python, and messages with it."""

import contextlib
import ipaddress
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import msgspec

from netdoctor.errors import InputError, TransportError
from netdoctor.inventory.names import python_fault
from netdoctor.text import clean
from netdoctor.transport.ray import raycluster
from netdoctor.transport.ray.ray_driver import FATAL, HEAD, RELEASE, TABLE
from netdoctor.transport.ray.raycluster import ADDRESS, AUTO, Raylet

CLOSE_S = 1.5
# How soon an interruption is noticed.
NOTICED_S = 0.1
MESSAGE_BYTES_MAX = 64 << 20  # the table: some 700 bytes a node
ERROR_BYTES = 4096
NODES_AT_MOST = 50_000
_SHEBANG = re.compile(r"#!\s*(/\S+/)?(python[\w.]*)\s*$|#!\s*\S*/env\s+(python[\w.]*)\s*$")
# Longer than a shebang may be: pip writes two lines of shell.
_EXEC = re.compile(r"""'''exec' "?(/[^"]+?)"? "\$0" "\$@"\s*$""")
# What a node of Ray's died of, common.proto, NodeDeathInfo.Reason; these nobody asked for.
DIED = {2: "it ended unexpectedly", 3: "its machine was taken away"}


@dataclass(frozen=True, slots=True)
class RayOptions:
    """The cluster's address, and an interpreter with its Ray; None looks for one in `environ`'s PATH."""

    address: str
    python: str | None
    environ: Mapping[str, str]


class RayNode(msgspec.Struct, kw_only=True):
    """A row of Ray's own table of nodes."""

    id: str = msgspec.field(name="NodeID")
    alive: bool = msgspec.field(name="Alive")
    address: str = msgspec.field(name="NodeManagerAddress", default="")
    hostname: str | None = msgspec.field(name="NodeManagerHostname", default="")
    name: str | None = msgspec.field(name="NodeName", default="")
    reason: int | None = msgspec.field(name="DeathReason", default=0)
    death_message: str | None = msgspec.field(name="DeathReasonMessage", default="")
    resources: dict[str, float] | None = msgspec.field(name="Resources", default=None)

    @property
    def is_head(self) -> bool:
        return "node:__internal_head__" in (self.resources or {})

    @property
    def names(self) -> set[str]:
        """All that a hosts file may call it."""
        known = {self.address, self.hostname or "", self.name or ""}
        return {name.lower() for name in known | {(self.hostname or "").partition(".")[0]} if name}

    @property
    def death(self) -> str:
        """What Ray says of its end."""
        return clean(self.death_message or "", 300) or DIED.get(self.reason or 0, "no reason given")


class Table(msgspec.Struct):
    """What the helper says once it is connected."""

    ray: str
    python: str
    nodes: list[RayNode]


class HelperGone(TransportError):
    """The helper ended, or does not answer; the text says how."""


def interpreter(options: RayOptions, raylet: Raylet | None = None) -> str:
    """The Python that has the cluster's Ray: as said, else that of its raylet here, else that of the `ray` in
    PATH, else python3.

    Raises InputError.
    """
    if options.python is not None:
        if fault := python_fault(options.python):
            raise InputError(f"--ray-python {clean(options.python, 80)}: {fault.message}")
        return options.python
    if raylet is not None and raylet.python:
        return raylet.python
    path = options.environ.get("PATH")
    if (command := shutil.which("ray", path=path)) is not None:
        with contextlib.suppress(OSError), open(command, "rb") as file:
            for line in file.read(1024).decode("utf-8", "replace").splitlines()[:2]:
                if match := _SHEBANG.match(line):
                    folder, name, by_env = match.groups()
                    return shutil.which(by_env, path=path) or by_env if by_env else f"{folder}{name}"
                if match := _EXEC.match(line):
                    return match[1]
        sibling = Path(command).with_name("python3")
        if sibling.exists():
            return str(sibling)
    return shutil.which("python3", path=path) or "python3"


def in_order(address: str) -> tuple[int, bytes]:
    """A key that sorts addresses by their numbers."""
    with contextlib.suppress(ValueError):
        return 0, ipaddress.ip_address(address).packed
    return 1, address.encode("utf-8", "replace")


def checked(address: str) -> str:
    """An address of a cluster. Raises InputError: Ray would start a cluster of its own for `local`."""
    if address != AUTO and not ADDRESS.fullmatch(address):
        raise InputError(
            f"{clean(address, 80)!r} is not the address of a Ray cluster: write HOST:PORT of its "
            "head (6379 unless ray start has another), or auto where this machine is part of it"
        )
    return address


class Helper:
    """The process, from its start to its end. Raises InputError where it cannot be started."""

    def __init__(self, options: RayOptions, interrupted: Callable[[], None]) -> None:
        self._interrupted = interrupted
        here = raycluster.raylets()
        self.address = raycluster.head_of(checked(options.address), here)
        raycluster.require_node(here)
        self._raylet = raycluster.of_cluster(self.address, here) if here else None
        self._is_named, self._environ = options.python is not None, options.environ
        self.python = interpreter(options, self._raylet)
        self._release = ""
        self._errors = b""
        self._buffer = bytearray()
        text = (resources.files("netdoctor.transport.ray") / "ray_driver.py").read_bytes()
        first = "import sys;sys.path[:]=[p for p in sys.path if p];"
        program = f"{first}exec(compile(sys.stdin.buffer.read({len(text)}),'ray_driver','exec'))"
        # What is said to ray.init counts; and PYTHONPATH is netdoctor's own.
        left_out = ("RAY_ADDRESS", "PYTHONPATH", "PYTHONHOME")
        environment = {name: value for name, value in options.environ.items() if name not in left_out}
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(  # noqa: S603  # an interpreter that the user names, no shell
                [self.python, "-s", "-u", "-c", program, self.address],
                stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd="/", bufsize=0,
                start_new_session=True,  # Ctrl-C reaches the main process only
            )  # fmt: skip
        except OSError as e:
            how = "name the cluster's Python with --ray-python"
            raise InputError(f"{self.python}: {e.strerror}; {how}") from e
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._selector = selectors.DefaultSelector()
        for stream in (self._process.stdout, self._process.stderr):
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ)
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._waiting = bytearray(text)
        self._writing = False
        self._write()

    def table(self, within_s: float) -> Table:
        """Connect. Raises InputError with Ray's own words where that cannot be."""
        finish = time.monotonic() + within_s
        try:
            if self.address != AUTO:  # while Ray is imported
                raycluster.reach(self.address, within_s)
            for kind, _, payload in self.messages(finish):
                if kind == TABLE:
                    return _table(payload)
                if kind == RELEASE:
                    self._check_release(clean(payload.decode("utf-8", "replace"), 40))
                elif kind == FATAL:
                    raise InputError(self._no_cluster(payload.decode("utf-8", "replace")))
        except HelperGone as e:
            raise InputError(self._no_cluster(str(e))) from e
        raise InputError(self._no_cluster(self._silence(within_s)))

    def _check_release(self, release: str) -> None:
        """Ray takes no driver of another release, and some releases never say so."""
        self._release = release
        here = self._raylet.release if self._raylet is not None else ""
        if here and release != here:
            fix = (
                "leave --ray-python out" if self._is_named else "name the cluster's Python with --ray-python"
            )
            raise InputError(f"{self.python} has Ray {release}, and the cluster runs Ray {here}: {fix}")

    def _silence(self, within_s: float) -> str:
        if not self._release:
            return f"{self.python} has not imported Ray within {within_s:g} s (--timeout)"
        known = self._raylet is not None and self._raylet.release == self._release
        why = "its GCS hangs" if known else "its GCS hangs, or is of another release"
        return f"it takes connections, and gives Ray {self._release} no answer in {within_s:g} s: {why}"

    def _no_cluster(self, answer: str) -> str:
        if answer.startswith("no-ray: "):
            return f"{self.python} has no Ray: name the cluster's Python with --ray-python"
        if lacks := raycluster.lacking(self._raylet, self._environ):
            why = f"its raylet here was started with {lacks}, and this shell sets none of that"
            return f"Ray at {self.address} does not let netdoctor in: {why} ({clean(answer, 300)})"
        return f"no Ray cluster at {self.address} (asked with {self.python}): {clean(answer, 400)}"

    def send(self, kind: bytes, channel: int, payload: bytes = b"") -> None:
        """Queue a message; it goes out while `messages` waits."""
        self._waiting += HEAD.pack(kind, channel, len(payload)) + payload
        self._write()

    def messages(self, finish: float) -> Iterator[tuple[bytes, int, bytes]]:
        """Yield (kind, channel, payload) as they come, and nothing after `finish`. Raises HelperGone.

        Every now and then it yields an empty kind, for the caller to look at its clocks.
        """
        looked = time.monotonic()
        while True:
            yield from self._complete()
            self._interrupted()
            now = time.monotonic()
            left = finish - now
            if left <= 0:
                return
            if now - looked > NOTICED_S:
                looked = now
                yield b"", 0, b""
            ready = self._selector.select(min(left, NOTICED_S))
            for key, _ in ready:
                if key.fileobj is self._process.stdin:
                    self._write()
                else:
                    self._read(key.fileobj)

    def _complete(self) -> Iterator[tuple[bytes, int, bytes]]:
        while len(self._buffer) >= HEAD.size:
            kind, channel, length = HEAD.unpack_from(self._buffer)
            if length > MESSAGE_BYTES_MAX:
                raise HelperGone(f"the helper sent a message of {length} bytes")
            if len(self._buffer) < HEAD.size + length:
                return
            payload = bytes(memoryview(self._buffer)[HEAD.size : HEAD.size + length])
            del self._buffer[: HEAD.size + length]
            yield kind, channel, payload

    def _read(self, stream: object) -> None:
        source = self._process.stdout if stream is self._process.stdout else self._process.stderr
        assert source is not None
        try:
            data = os.read(source.fileno(), 1 << 18)
        except BlockingIOError:
            return
        if source is self._process.stderr:
            self._errors = (self._errors + data)[-ERROR_BYTES:]
            if not data:
                self._selector.unregister(source)
        elif data:
            self._buffer += data
        else:
            raise HelperGone(self.last_words())

    def _write(self) -> None:
        """Write what the pipe takes, and have the rest wait for room in it."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            while self._waiting:
                del self._waiting[: os.write(stdin.fileno(), self._waiting[: 1 << 16])]
        except BlockingIOError:
            pass
        except OSError:  # it is gone: reading says how
            self._waiting.clear()
        if bool(self._waiting) != self._writing:
            self._writing = not self._writing
            if self._writing:
                self._selector.register(stdin, selectors.EVENT_WRITE)
            else:
                self._selector.unregister(stdin)

    def last_words(self) -> str:
        """How it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        # The end of its stdout may be seen before what it said on its stderr.
        assert self._process.stderr is not None
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self._process.stderr.fileno(), 1 << 18):
                self._errors = (self._errors + more)[-ERROR_BYTES:]
        code = self._process.poll()
        how = "does not answer" if code is None else f"ended with status {code}"
        if code is not None and code < 0:
            how = f"was killed by signal {-code}"
        lines = self._errors.decode("utf-8", "replace").strip().splitlines()
        return f"netdoctor's driver of Ray {how}" + (f": {clean(lines[-1], 300)}" if lines else "")

    def close(self) -> None:
        """End it within two seconds: its Ray job goes with it, and so do the actors."""
        with contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._selector.close()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


def _table(payload: bytes) -> Table:
    try:
        table = msgspec.json.decode(payload, type=Table)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise InputError(f"Ray's table of nodes cannot be read: {clean(str(e), 200)}") from e
    if len(table.nodes) > NODES_AT_MOST:
        raise InputError(f"Ray's table has {len(table.nodes)} nodes, at most {NODES_AT_MOST} are read")
    return table
