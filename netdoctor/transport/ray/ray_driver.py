"""Runs under the cluster's own Python: an actor on each node starts an agent, and bytes pass between the two.

netdoctor sends the text of this file to `python -c`, with nothing else of netdoctor: the standard library and
Ray, Python 3.8 and up. A message is its kind (one byte), the number of a node and its length (four bytes
each, big endian), and that many bytes. In: ``bundle``, ``open``, ``write``, ``close``; out: ``release``,
``table``, ``fatal``, ``started``, ``data``, ``ended``. The end of its stdin ends it, and its end ends its
Ray job, by which all its actors go; an agent ends with its pipe.
"""

import asyncio
import json
import os
import select
import struct
import subprocess
import sys
import threading
from typing import Any

HEAD = struct.Struct(">cII")
BUNDLE, OPEN, WRITE, CLOSE = b"B", b"O", b"W", b"C"
RELEASE, TABLE, FATAL, STARTED, DATA, ENDED = b"R", b"T", b"F", b"S", b"D", b"E"
# Below max_direct_call_object_size (100 KiB): what is larger takes the way over the object store, and that
# needs ports between nodes which a firewall may close.
CHUNK_BYTES = 64 * 1024
MESSAGE_BYTES_MAX = 16 << 20
ERROR_BYTES = 4096
ATTEMPTS = 4
DETAIL_CHARACTERS = 1000
DIED = "Ray missed it while an actor was placed there, and does not say why"
KEYS = (
    "NodeID", "Alive", "NodeManagerAddress", "NodeManagerHostname", "NodeName", "DeathReason",
    "DeathReasonMessage", "Resources",
)  # fmt: skip


class Out:
    """The way to netdoctor: a private copy of fd 1, so that no print of Ray's gets between messages."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        self._lock = threading.Lock()
        os.dup2(2, 1)

    def send(self, kind: bytes, node: int, payload: bytes = b"") -> None:
        data = memoryview(HEAD.pack(kind, node, len(payload)) + payload)
        with self._lock:
            while data:
                data = data[os.write(self._fd, data) :]

    def say(self, kind: bytes, node: int, what: Any) -> None:
        self.send(kind, node, json.dumps(what).encode("ascii"))


def environment() -> "dict[str, str]":
    """What Ray's node was started with: that of a worker hides GPUs from actors that ask for none."""
    pid = os.environ.get("RAY_RAYLET_PID") or str(os.getppid())
    try:
        with open("/proc/" + pid + "/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environ)
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if b"=" in entry)
    found = {name: value for name, _, value in pairs}
    if "RAY_LD_PRELOAD" in found:  # Ray's own allocator, which it takes back from its workers, too
        found.pop("LD_PRELOAD", None)
    return found


def agents(ray: Any) -> Any:
    """The class of the actors."""

    class Agent:
        """An agent as a child process. `begin` and `write` come in order; one `read` waits beside them."""

        child: Any = None
        errors = b""

        def begin(self, argv: "list[str]") -> str:
            """Start it. Returns what stood in the way, or nothing."""
            argv[0] = argv[0] or sys.executable
            pipe = subprocess.PIPE
            try:
                self.child = subprocess.Popen(
                    argv, stdin=pipe, stdout=pipe, stderr=pipe, cwd="/", env=environment(), bufsize=0,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as e:
                return argv[0] + ": " + str(e.strerror)
            return ""

        def write(self, data: bytes) -> None:
            view = memoryview(data)
            try:
                while view:
                    view = view[self.child.stdin.write(view) :]
            except OSError:  # it is gone: `read` says so
                pass

        def close(self) -> None:
            self.child.stdin.close()

        def more_errors(self) -> bytes:
            data = os.read(self.child.stderr.fileno(), CHUNK_BYTES)
            self.errors = (self.errors + data)[-ERROR_BYTES:]
            return data

        @ray.method(concurrency_group="out")  # type: ignore[untyped-decorator]
        def read(self) -> bytes:
            """The next bytes; nothing at the end."""
            out, err = self.child.stdout.fileno(), self.child.stderr.fileno()
            watched = [out, err]
            while True:
                ready = select.select(watched, [], [])[0]
                if err in ready and not self.more_errors():
                    watched.remove(err)
                if out in ready:
                    return os.read(out, CHUNK_BYTES)

        @ray.method(concurrency_group="out")  # type: ignore[untyped-decorator]
        def last_words(self) -> str:
            """What it said on its stderr, once its stdout has ended."""
            while select.select([self.child.stderr], [], [], 0.2)[0] and self.more_errors():
                pass
            return self.errors.decode("utf-8", "replace")

    return ray.remote(
        num_cpus=0, num_gpus=0, max_restarts=0, max_task_retries=0, concurrency_groups={"out": 1}
    )(Agent)


class Driver:
    """All nodes. Runs in an event loop; messages come from a thread that reads stdin."""

    def __init__(self, ray: Any, out: Out) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.pinned = NodeAffinitySchedulingStrategy
        self.ray = ray
        self.agents = agents(ray)
        self.out = out
        self.queues: "dict[int, asyncio.Queue[bytes | None]]" = {}
        self.bundle = b""
        self.tasks: "set[Any]" = set()

    def take(self, kind: bytes, node: int, payload: bytes) -> None:
        """A message from netdoctor."""
        if kind == BUNDLE:
            self.bundle = payload
        elif kind == OPEN:
            self.queues[node] = asyncio.Queue()
            self.begin(self.node(node, json.loads(payload.decode("ascii")), self.queues[node]))
        elif node in self.queues:
            self.queues[node].put_nowait(payload if kind == WRITE else None)

    def begin(self, work: Any) -> Any:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def node(self, node: int, plan: "dict[str, Any]", queue: "asyncio.Queue[bytes | None]") -> None:
        """From the actor to the end of its agent."""
        stage, writing = "actor", None
        try:
            # The actor is kept until the end: it goes with its last handle.
            actor, failure = await asyncio.wait_for(self.placed(plan), plan["within_s"])
            if failure:
                return self.ended(node, "interpreter", failure)
            stage = "agent"
            self.out.send(STARTED, node)
            writing = self.begin(self.write(actor, queue))
            while True:
                data = await actor.read.remote()
                if not data:
                    break
                self.out.send(DATA, node, data)
            self.ended(node, stage, await actor.last_words.remote())
        except asyncio.TimeoutError:
            self.ended(node, "late", "Ray started no actor there within %g s" % plan["within_s"])
        except Exception as e:
            row = self.dead(plan["node_ids"])
            if row is not None:
                self.ended(node, "dead", row["DeathReasonMessage"] or DIED)
            else:
                self.ended(node, stage, _words(e))
        finally:
            if writing is not None:
                writing.cancel()

    async def placed(self, plan: "dict[str, Any]") -> "tuple[Any, str]":
        """An actor on its machine, and what kept it from starting an agent there.

        A raylet that was started anew is there twice until Ray misses the first: who answers first is taken.
        """
        every_s = plan["within_s"] / (ATTEMPTS + 1)
        tries = [self.begin(self.on(node_id, plan["argv"], every_s)) for node_id in plan["node_ids"]]
        error: "Exception | None" = None
        try:
            for first in asyncio.as_completed(tries):
                try:
                    return await first  # type: ignore[no-any-return]
                except Exception as e:
                    error = e
        finally:
            for one in tries:
                one.cancel()
        raise error or ValueError("no node is named")

    async def on(self, node_id: str, argv: "list[str]", every_s: float) -> "tuple[Any, str]":
        """The same on one node of Ray's.

        Ray asks any node to place an actor without resources: one that hangs keeps the actors of others
        waiting, and one that dies takes them along. So another is asked for after some time, or a failure.
        """
        pinned = self.pinned(node_id, soft=False)
        pending: "set[Any]" = set()
        left = ATTEMPTS
        try:
            while True:
                if left:
                    left -= 1
                    pending.add(self.begin(self.attempt(pinned, argv)))
                done, pending = await asyncio.wait(
                    pending, timeout=every_s if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                errors = {one: one.exception() for one in done}
                for one, error in errors.items():
                    if error is None:
                        return one.result()  # type: ignore[no-any-return]
                if errors and (not (left or pending) or self.dead([node_id]) is not None):
                    raise next(iter(errors.values()))
        finally:
            for one in pending:
                one.cancel()

    async def attempt(self, pinned: Any, argv: "list[str]") -> "tuple[Any, str]":
        actor = self.agents.options(scheduling_strategy=pinned).remote()
        return actor, await _future(actor.begin.remote(list(argv)))

    def dead(self, node_ids: "list[str]") -> "dict[str, Any] | None":
        """The row of a node that Ray has as dead by now; None where one of them is alive."""
        rows = [row for row in table(self.ray) if row["NodeID"] in node_ids]
        return None if any(row["Alive"] for row in rows) else next(iter(rows), None)

    async def write(self, actor: Any, queue: "asyncio.Queue[bytes | None]") -> None:
        data: "bytes | None" = self.bundle
        try:
            while data is not None:
                for start in range(0, len(data), CHUNK_BYTES):
                    await actor.write.remote(data[start : start + CHUNK_BYTES])
                data = await queue.get()
            await actor.close.remote()
        except Exception:  # whoever reads meets the same, and tells
            pass

    def ended(self, node: int, stage: str, detail: str) -> None:
        self.queues.pop(node, None)
        self.out.say(ENDED, node, {"stage": stage, "detail": detail[-DETAIL_CHARACTERS:]})


def _future(ref: Any) -> "asyncio.Future[Any]":
    return asyncio.wrap_future(ref.future())


def _words(error: BaseException) -> str:
    """Ray's own words for an error, without the traceback of another process that may follow."""
    text = str(error).split("Traceback (most recent call last)")[0]
    return " ".join(text.split())[:DETAIL_CHARACTERS] or type(error).__name__


def table(ray: Any) -> "list[dict[str, Any]]":
    """Ray's own table of its nodes, dead ones among them."""
    return [{key: row.get(key) for key in KEYS} for row in ray.nodes()]


def read_exactly(count: int) -> bytes:
    data = sys.stdin.buffer.read(count)
    if len(data) < count:
        raise EOFError
    return data


def main() -> None:
    out = Out()
    address = sys.argv[1]
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    driver: "Driver | None" = None

    def take(kind: bytes, node: int, payload: bytes) -> None:
        if driver is not None:
            driver.take(kind, node, payload)

    def listen() -> None:
        try:
            while True:
                kind, node, length = HEAD.unpack(read_exactly(HEAD.size))
                if length > MESSAGE_BYTES_MAX:
                    break
                loop.call_soon_threadsafe(take, kind, node, read_exactly(length))
        except (EOFError, OSError):
            pass
        if driver is None:  # who waits for Ray hears nothing else
            os._exit(0)
        loop.call_soon_threadsafe(loop.stop)

    threading.Thread(target=listen, daemon=True).start()
    try:
        import ray
    except ImportError as e:
        out.send(FATAL, 0, ("no-ray: %s" % e).encode("utf-8", "replace"))
        return
    out.send(RELEASE, 0, ray.__version__.encode("utf-8", "replace"))
    try:
        ray.init(
            address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=False,
            namespace="netdoctor",
        )  # fmt: skip
        found = table(ray)
    except BaseException as e:  # Ray ends the process itself where it finds no node of its own
        out.send(FATAL, 0, _words(e).encode("utf-8", "replace"))
        return
    driver = Driver(ray, out)
    out.say(TABLE, 0, {"ray": ray.__version__, "python": sys.version.split()[0], "nodes": found})
    loop.run_forever()
    # Actors first: the end of the job takes them, too, but says it only some time later.
    for task in driver.tasks:
        task.cancel()
    ray.shutdown()
    os._exit(0)


if __name__ == "__main__":
    main()
