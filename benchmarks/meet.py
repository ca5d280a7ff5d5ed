"""What it costs to judge tasks that call, beside plain TCP connections that carry the same bytes.

    python benchmarks/meet.py                  64, 256 and 1,000 tasks, 4 of them real ones
    python benchmarks/meet.py --tasks 1000 --real 16

One process plays the tasks, on loopback, by the real protocol: the secret, hello, the modules that an agent
asks for, the answer of a node of a synthetic cluster (tests/clusters.py). `netdoctor facts` processes are
among them. `plain` is an asyncio server to which as many connections send the same bytes, and which sends
what netdoctor does; `meet` the transport with first answers of all tasks; `scan` the whole command, profile
quick, with its start and the report. One task of a hundred dies in the middle of its answer, and as many
strangers come without the secret; with `scan` as many tasks never call, so that its wall time is what it
waits for them. Whoever judges starts with a soft limit of 256 descriptors. CPU is that of the judging process
alone; the run ends with an error where a task is not judged that should be.
"""

import argparse
import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from netdoctor.agent.dial_back import NO_RECORD, SIZE_BYTES, Signer, proof  # noqa: E402  # of this checkout
from netdoctor.transport import bundle  # noqa: E402
from netdoctor.transport.tasks import meeting  # noqa: E402
from tests import clusters  # noqa: E402

HERE = "127.0.0.1"
SECRET = "of this benchmark alone"
DESCRIPTORS = 256
WAIT_S = 20.0
OF = 100  # one of so many dies, never calls; as many strangers

Said = list[tuple[bool, int]]


def key() -> str:
    found = meeting.secret({meeting.SECRET: SECRET}, None)
    assert found is not None
    return found


class Tasks:
    """Those that are played. said: (whether the task sends, bytes) of a conversation, in its order."""

    def __init__(self, port: int, count: int, absent: bool) -> None:
        self.port, self.secret, self.said = port, key(), []  # type: int, str, Said
        replies = [body for _, body in clusters.replies(count, "healthy")]
        self.bodies = {i: body for i, body in enumerate(replies) if not (absent and i % OF == 7)}
        self.strangers, self.again = count // OF, 0

    async def all(self, plain: Said | None) -> None:
        while True:
            with suppress(OSError):
                (await asyncio.open_connection(HERE, self.port))[1].close()
                break
            await asyncio.sleep(0.05)
        talks = [self._until(i) if plain is None else self._plain(plain) for i in self.bodies]
        await asyncio.gather(*talks, *(self._stranger() for _ in range(self.strangers if not plain else 0)))

    async def _stranger(self) -> None:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(HERE, self.port)
            writer.write(b"netdoctor-task 1/1/stranger " + b"ab" * 16 + b"\n")
            await reader.read(300)
            writer.write(b"0" * 64 + b"\n")
            await reader.read(300)
            writer.close()

    async def _until(self, i: int) -> None:
        """As netdoctor facts does: who is not heard calls again."""
        while not await self._one(i):
            self.again += 1
            await asyncio.sleep(0.5)

    async def _one(self, i: int) -> bool:
        """A task's conversation to its end; False where it was closed before it began."""
        dies, marker = i % OF == 3, meeting.marker(self.secret)
        claim, mine = meeting.claim(i, clusters.name(i)), os.urandom(16).hex()
        said: Said = []
        reader, writer = await asyncio.open_connection(HERE, self.port, limit=1 << 22)

        def say(data: bytes) -> None:
            said.append((True, len(data)))
            writer.write(data)

        async def heard(data: Any) -> bytes:
            said.append((False, len(found := await data)))
            return bytes(found)

        def frame(body: bytes) -> bytes:
            return outgoing.records(b"\x1e%s %d\n%s\n" % (marker.encode(), len(body), body))

        async def body() -> bytes:
            """Of the next request, or of modules: one record, or several."""
            found = b""
            while len(found) < 9 or len(found) < 9 + int(found[:9], 16):
                head = await heard(reader.readexactly(len(NO_RECORD)))
                size = int.from_bytes(head[:SIZE_BYTES], "big")
                found += incoming.feed(head + await heard(reader.readexactly(size)))
            return found[9:]

        say(f"netdoctor-task {claim} {mine}\n".encode())
        if not (line := await heard(reader.readline())):
            writer.close()
            return False
        theirs = line.decode().split()[0]
        say(f"{proof(self.secret, 'task', claim, mine, theirs)}\n".encode())
        words = (claim, mine, theirs)
        incoming, outgoing = (Signer(side, self.secret, *words) for side in ("control", "task"))
        if not (line := await heard(reader.readline())).startswith(b"in "):
            if line:
                raise SystemExit(f"task {i} was not let in: {line.decode()}")
            writer.close()
            return False
        say(frame(b'{"hello": {"python": "3.11.7", "executable": "/usr/bin/python3", "machine": "x86_64"}}'))
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            asked = json.loads(await body())
            say(frame(b'{"id": null, "need": "agent %s"}' % bundle.own_tag().encode()))
            await body()
            answer = frame(b'{"id": %d, "ok": true, "result": %s}' % (asked["id"], self.bodies[i]))
            say(answer[: len(answer) // 2] if dies else answer)
            while not dies:
                asked = json.loads(await body())
                writer.write(frame(b'{"id": %d, "ok": false, "why": "not_collected"}' % asked["id"]))
        if not dies:
            self.said = said
        writer.close()
        return True

    async def _plain(self, script: Said) -> None:
        reader, writer = await asyncio.open_connection(HERE, self.port, limit=1 << 22)
        for sends, size in script:
            if sends:
                writer.write(b"x" * size)
            else:
                await reader.readexactly(size)
        await reader.read(1)
        writer.close()


async def plainly(port: int, count: int, script: Said) -> None:
    """A server that hears and says what netdoctor does, byte for byte."""
    left, done = count, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        with suppress(asyncio.IncompleteReadError):  # whoever looks whether anybody listens
            for sends, size in script:
                if sends:
                    await reader.readexactly(size)
                else:
                    writer.write(b"x" * size)
            left -= 1
        writer.close()
        if not left:
            done.set()

    async with await asyncio.start_server(serve, HERE, port, limit=1 << 22, backlog=1024):
        await done.wait()


def met(port: int, count: int) -> tuple[int, float]:
    """The transport alone: how many tasks have answered, and CPU seconds."""
    from netdoctor.facts.base import FACT_TYPES
    from netdoctor.scanning.meeting import invite
    from netdoctor.transport.base import Limits, Reply, Request
    from netdoctor.transport.tasks.meet import MeetOptions, MeetTransport

    began = time.process_time()
    place = meeting.Rendezvous(host=HERE, port=port)
    options = MeetOptions(rendezvous=place, key=key(), tasks=count, wait_s=60, invite=invite)
    transport = MeetTransport(Limits(node_budget_s=60), options)
    targets = transport.inventory().targets
    groups: dict[str, Any] = {
        one.group: {} for one in FACT_TYPES.values() if (one.scope, one.origin) == ("node", "agent")
    }
    request = Request(op="facts", args={"groups": groups}, timeout_s=60, by_group=True)
    first = dict.fromkeys((target.id for target in targets), request)
    answers = transport.start(targets, first, keep_open=False, collectors={})
    judged = sum(isinstance(one, Reply) and one.result is not None for one in answers)
    return judged, time.process_time() - began


def judge(way: str, port: int, count: int, script: Said) -> None:
    """What the child does, by itself: prints how many were heard, and CPU seconds, without imports."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    if way == "plain":
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        began = time.process_time()
        asyncio.run(asyncio.wait_for(plainly(port, count, script), 60))
        print(count, time.process_time() - began)
    else:
        print(*met(port, count))


@contextmanager
def real_tasks(port: int, count: int) -> Iterator[None]:
    """As many `netdoctor facts` processes; they end with whoever judges."""
    argv = [sys.executable, "-m", "netdoctor", "facts", "--meet", f"{HERE}:{port}", "--timeout", "60"]
    env = {**os.environ, meeting.SECRET: SECRET, "PYTHONPATH": str(ROOT)}
    real = [subprocess.Popen([*argv, "--name", f"real{n}"], env=env) for n in range(count)]
    try:
        yield
        if any(one.wait(60) for one in real):
            raise SystemExit("a real task was not taken")
    finally:
        for one in real:
            one.kill()
            one.wait()


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HERE, 0))
        return int(one.getsockname()[1])


def measured(way: str, count: int, real: int, script: Said) -> tuple[float, float, float, Said]:
    """(CPU s, wall s, MB, what a task said) of one way. Ends the program where not all were judged."""
    port = free_port()
    tasks = Tasks(port, count - real, absent=way == "scan")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        me = [sys.executable, __file__, "--judge", way, "--tasks", str(count), "--port", str(port)]
        if way == "plain":
            me += ["--script", json.dumps(script)]
        elif way == "scan":
            me = ["bash", "-c", f'ulimit -S -n {DESCRIPTORS}; exec "$@"', "bash", sys.executable]
            me += ["-m", "netdoctor", "scan", "--meet", f"{HERE}:{port}", "--tasks", str(count)]
            me += ["-q", "--no-save", "--profile", "quick", "--timeout", f"{WAIT_S:g}"]
            me += ["-o", f"json={report}", "--fail-on", "never"]
        env = {**os.environ, meeting.SECRET: SECRET, "PYTHONPATH": str(ROOT)}
        began = time.monotonic()
        child = subprocess.Popen(me, env=env, stdout=subprocess.PIPE, text=True)
        with real_tasks(port, real if way != "plain" else 0):
            asyncio.run(tasks.all(script if way == "plain" else None))
        assert child.stdout is not None
        out = child.stdout.read()
        used = os.wait4(child.pid, 0)[2]
        child.returncode = 0
        wall_s = time.monotonic() - began
        if way == "scan":
            found = msgspec.json.decode(report.read_bytes())
            rows = zip(*found["matrix"]["cells"], strict=True)  # of each node
            judged = sum("." in cells[found["matrix"]["checks"].index("meet.task") + 1 :] for cells in rows)
            cpu_s = used.ru_utime + used.ru_stime
        else:
            judged, cpu_s = int(out.split()[0]), float(out.split()[1])
    dead = sum(i % OF == 3 for i in tasks.bodies) if way != "plain" else 0
    expected = len(tasks.bodies) - dead + real
    if judged != expected:
        raise SystemExit(f"{way}, {count} tasks: {judged} judged, and not {expected}")
    if tasks.again:
        print(f"  {way}: {tasks.again} calls were closed, and made again")
    return cpu_s, wall_s, used.ru_maxrss / 1024, tasks.said


def main() -> None:
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shape)
    parser.add_argument("--tasks", type=int, nargs="+", default=[64, 256, 1000])
    parser.add_argument("--real", type=int, default=4, help="netdoctor facts processes among them")
    for word in ("judge", "port", "script"):
        parser.add_argument(f"--{word}", default="null", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge != "null":
        judge(options.judge, int(options.port), options.tasks[0], json.loads(options.script) or [])
        return
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))  # for those who play
    before: dict[str, float] = {}
    for count in options.tasks:
        title = f"{count} tasks, {options.real} real"
        print(f"\n{title:28}{'CPU s':>7}{'ms each':>9}{'x plain':>9}{'growth':>9}{'wall s':>8}{'MB':>6}")
        rows: dict[str, tuple[float, float, float]] = {}
        *rows["meet"], script = measured("meet", count, options.real, [])  # type: ignore[assignment]
        *rows["plain"], _ = measured("plain", count, 0, script)  # type: ignore[assignment]
        *rows["scan"], _ = measured("scan", count, options.real, [])  # type: ignore[assignment]
        for way in ("plain", "meet", "scan"):
            cpu_s, wall_s, memory_mb = rows[way]
            growth = f"{cpu_s / before[way]:.1f} x" if before else ""
            times = cpu_s / rows["plain"][0]
            print(f"  {way:26}{cpu_s:7.2f}{1000 * cpu_s / count:9.2f}{times:9.1f}{growth:>9}", end="")
            print(f"{wall_s:8.1f}{memory_mb:6.0f}", flush=True)
        before = {way: row[0] for way, row in rows.items()}


if __name__ == "__main__":
    main()
