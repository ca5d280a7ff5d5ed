"""Nodes by Slurm: one srun starts an agent on each, beside the job, and the agents call this machine.

srun's own streams carry the agents' program to all of them at once, and back what a task says that cannot
call. A conversation they could not carry: srun sends its stdin to all tasks or to one, and mixes what they
print.
"""

import contextlib
import heapq
import math
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import Login, Session
from netdoctor.inventory.model import Target
from netdoctor.inventory.nodeset import fold
from netdoctor.text import clean
from netdoctor.transport import bundle, calls, frames, here, provide
from netdoctor.transport import slurm_words as words
from netdoctor.transport.base import Interruptible, Limits, Reply, Request, SessionEvent
from netdoctor.transport.sshconfig import TransportInputError, local_user

DEFAULT_PYTHON = "python3"
CLOSE_S = 1.5
NOTICED_S = 0.25
ASKING_S = 15.0
# slurmctld gives a node that does not answer MessageTimeout (10 s) before it ends the step, which is then
# started again without that node.
LAUNCH_S = 30.0
TRIES = 3
# What a task said last may come after the line that it has ended.
WORDS_S = 0.5
DIAL_S = 10.0
# Where no way to any of the nodes is known here.
ANYWHERE = "0.0.0.0"  # noqa: S104  # whoever comes has to show the secret
CLOCK_AT_ONCE = 16
NEEDS_MAX = 8
LINE_BYTES = 4096
SAID_MAX = 400
# Where one node cannot start a task, others may be told of in the next moment.
ABORT_S = 3.0
LATE = "no task of Slurm's called in time"
# srun: error: Unable to create step for job 12: More processors requested than permitted
_CORES = re.compile(r"rocessors requested|CPU count|Requested node configuration")
# salloc: error: Unable to allocate resources: Connection timed out
_NOT_FREE = re.compile(r"allocate resources: (?:Connection timed out|Requested nodes are busy|.*immediate)")
_OLD = re.compile(r'^\{"hello": \{"old_python": "(\d+\.\d+\.\d+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions:
    """Where the tasks run. job: the allocation that netdoctor is in, with its nodes and their fewest CPUs.

    Without one, whole nodes are asked for, at most wait_s long. environ: what the tasks inherit.
    """

    job: str | None = None
    nodes: tuple[str, ...] = ()
    cpus: int = 0
    partition: str | None = None
    wait_s: float = 30.0
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Node:
    """A node on its way. first: its first request; told: its session is out; ended: it has its first answer.

    failed: it will have none. task: its number in the step; exit: how that ended, as srun says it; launch:
    Slurm could not start it; tried: how this machine was dialled in vain; booked: what Slurm does with it.
    """

    id: str
    host: str
    python: str
    first: Request
    told: bool = False
    ended: bool = False
    failed: bool = False
    is_open: bool = False
    number: int = 0
    needs: int = 0
    address: str = ""
    task: int = -1
    exit: str = ""
    launch: str = ""
    tried: str = ""
    booked: str = ""
    hello: frames.Hello = field(default_factory=frames.Hello)
    pending: "_Pending | None" = None


@dataclass(eq=False, slots=True)
class _Pending:
    """A request that is under way. samples: of the clock, with exchanges still to go."""

    request: Request
    sent: float
    exchanges: int = 0
    samples: list[list[float]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Stream:
    """A pipe of srun's: stdin, with what is still to be written, or an output, with half a line."""

    pipe: Any
    data: bytearray = field(default_factory=bytearray)


class SlurmTransport(Interruptible):
    """Reaches the nodes of an allocation, or of one that it asks for."""

    def __init__(self, limits: Limits, options: SlurmOptions) -> None:
        self._limits = limits
        self._options = options
        self._notes: dict[str, None] = {}
        self._nodes: dict[str, _Node] = {}
        self._by_host: dict[str, _Node] = {}
        self._board: calls.Board | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._streams: list[_Stream] = []
        self._granted = ""
        self._trouble: list[str] = []
        self._cancelled: str | None = None
        self._launch_failed = 0.0
        self._waiting: set[str] = set()
        self._keep_open = False
        self._tasks: dict[int, str] = {}
        self._times: list[tuple[float, int, _Node, Any]] = []
        self._turn = 0
        self._anchor = time.time() - time.monotonic()
        self._booked: dict[str, words.Booked] = {}

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know: tasks that were turned away, nodes that are being drained."""
        return [*self._notes, *(self._board.notes if self._board else ())]

    def describe(self, target: Target) -> dict[str, Any]:
        """What `start` would run for this target."""
        if self._options.job:
            asks = f"srun --jobid={self._options.job} --overlap, one task a node"
        else:
            ask = words.Ask((target.host,), math.ceil(self._options.wait_s), 1, self._options.partition)
            argv = [w for w in ask.argv() if not w.startswith(("--nodelist", "--nodes", "--time"))]
            asks = f"{shlex.join(argv)} for a few minutes, then srun, one task a node"
        return {
            "transport": "slurm",
            "host": target.host,
            "user": local_user(),
            "python": target.python or DEFAULT_PYTHON,
            "asks": asks,
        }

    def bound_s(self, targets: Sequence[Target]) -> float:
        """The longest that `start` can take: asking Slurm, waiting for nodes, and two starts that fail."""
        wait_s = 0.0 if self._options.job else self._options.wait_s
        return ASKING_S + wait_s + LAUNCH_S + self._limits.node_budget_s

    def start(
        self,
        targets: Sequence[Target],
        first: Mapping[str, Request],
        *,
        keep_open: bool,
        collectors: Mapping[str, str],
        deadline_s: float = 300.0,
    ) -> Iterator[SessionEvent | Reply]:
        """Start a task on each node that Slurm lets us, and send each its first request.

        Raises TransportInputError where nodes are named that the allocation has not.
        """
        hosts = Counter(target.host for target in targets)
        if twice := [host for host, count in hosts.items() if count > 1]:
            raise TransportInputError(f"{fold(twice, 60)}: Slurm knows a node by one name; list it once")
        foreign = [host for host in hosts if self._options.job and host not in self._options.nodes]
        if foreign:
            has = fold(self._options.nodes, 60)
            raise TransportInputError(
                f"{fold(foreign, 60)}: not in job {self._options.job}, which has {has}; leave it out, or ask "
                "for an allocation that has it"
            )
        return self._start(targets, first, keep_open, collectors, deadline_s)

    def _start(
        self,
        targets: Sequence[Target],
        first: Mapping[str, Request],
        keep_open: bool,
        collectors: Mapping[str, str],
        deadline_s: float,
    ) -> Iterator[SessionEvent | Reply]:
        self.close()
        finish = time.monotonic() + self.bound_s(targets)
        self._nodes = {t.id: _Node(t.id, t.host, t.python or DEFAULT_PYTHON, first[t.id]) for t in targets}
        self._by_host = {node.host: node for node in self._nodes.values()}
        yield from self._look_up()
        goes = self._left()
        if not goes:
            return
        try:
            marker = secrets.token_hex(8)
            places = calls.own_addresses(self._booked[node.host].address for node in goes)
            self._board = calls.Board(
                [node.host for node in goes], places or [ANYWHERE], self._ports(), marker
            )
        except OSError as e:
            yield from self._all(goes, Login.CONTROL, f"no port to listen on here: {e.strerror or e}")
            return
        dial = {
            "places": self._board.places,
            "secret": self._board.secret,
            "node_from": ["SLURMD_NODENAME"],
            "within_s": DIAL_S,
        }
        packed = bundle.build_bundle(marker=marker, deadline_s=deadline_s, collectors=collectors, dial=dial)
        self._keep_open = keep_open
        cpus = self._options.cpus
        for _ in range(TRIES):
            goes = self._left()
            try:
                self._spawn(goes, marker, packed, deadline_s, cpus)
            except OSError as e:
                yield from self._all(goes, Login.CONTROL, here.no_process(e)[1])
                return
            yield from self._attempt(goes, finish)
            if not self._left() or time.monotonic() >= finish:
                break
            self._stop()
            if self._launch_failed:
                yield from self._all([n for n in goes if n.launch], Login.STEP)
                for node in goes:
                    self._board.drop(node.host)
                    node.is_open, node.pending, node.exit = False, None, ""
            elif cpus and any(_CORES.search(said) for said in self._trouble):
                cpus = 0  # some are Slurm's own
            else:
                yield from self._blame()
                break
            if not self._left():
                break
        late = time.monotonic() >= finish
        outcome, said = (
            (Login.TIMEOUT, LATE) if late else (Login.LOST, "the step ended each time it was started")
        )
        yield from self._all([node for node in self._left() if not node.ended], outcome, said)
        if not keep_open:
            self.close()

    # Slurm's books

    def _look_up(self) -> Iterator[SessionEvent | Reply]:
        """Ask Slurm what it knows of the nodes; those that it keeps off, and those of others, end here."""
        hosts = fold(list(self._by_host), None)
        where = [f"--partition={self._options.partition}"] if self._options.partition else []
        code, out, errors = self._asked(
            [*words.SINFO, *where, f"--nodes={hosts}", f"--format={words.FORMAT}"]
        )
        if code:
            said = f"Slurm does not answer: {errors or 'sinfo ended with status ' + str(code)}"
            yield from self._all(list(self._nodes.values()), Login.CONTROL, said)
            return
        self._booked = words.books(out)
        ours = self._options.job is not None
        for node in self._nodes.values():
            booked = self._booked.get(node.host)
            if (why := words.standing(booked, ours=ours)) is not None:
                yield self._fail(node, *why)
            elif booked is not None and booked.state in words.STILL_OURS:
                node.booked = booked.shown

    def _ports(self) -> range | None:
        return words.port_range(self._asked(["scontrol", "show", "config"])[1])

    def _asked(self, argv: Sequence[str]) -> tuple[int, str, str]:
        """(status, output, what it complained of) of a command of Slurm's."""
        environ = words.environment(self._options.environ)
        try:
            done = subprocess.run(  # noqa: S603  # names have passed the inventory's rules; no shell
                argv,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=ASKING_S,
                env=environ,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 1, "", f"{argv[0]} took more than {ASKING_S:g} s"
        except OSError as e:
            return 1, "", here.no_process(e)[1]
        return done.returncode, done.stdout.decode("utf-8", "replace"), clean(done.stderr, 300)

    # A step

    def _spawn(self, goes: Sequence[_Node], marker: str, packed: bytes, deadline_s: float, cpus: int) -> None:
        """Start srun, under salloc where there is no allocation. Raises OSError."""
        hosts = [node.host for node in goes]
        argv = words.step(hosts, _command(goes, marker), self._options.job, cpus)
        if self._options.job is None:
            known = [self._booked[host].gpus for host in hosts]
            if len(set(known)) > 1:
                said = (
                    f"Slurm's books have {min(known)} to {max(known)} GPUs a node: {min(known)} are asked for"
                )
                self._notes[said] = None
            ask = words.Ask(
                nodes=tuple(hosts),
                wait_s=max(1, math.ceil(self._options.wait_s)),
                minutes=self._minutes(hosts, deadline_s),
                partition=self._options.partition,
                gpus=min(known),
            )
            argv = [*ask.argv(), *argv]
        self._trouble, self._cancelled, self._launch_failed, self._tasks = [], None, 0.0, {}
        self._granted = ""
        self._times.clear()
        assert self._board is not None
        process = subprocess.Popen(  # noqa: S603  # as above
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=words.environment(self._options.environ),
            start_new_session=True,
            bufsize=0,
        )
        self._process = process
        self._board.room()  # after srun has taken our limits for those of the tasks
        self._streams = []
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            stream = _Stream(pipe, bytearray(packed) if pipe is process.stdin else bytearray())
            self._board.selector.register(pipe, 2 if pipe is process.stdin else 1, stream)
            self._streams.append(stream)

    def _minutes(self, hosts: Sequence[str], deadline_s: float) -> int:
        """What is asked for: as long as the scan may take, or as the partition lets it."""
        may = [m for host in hosts if (m := self._booked[host].minutes) is not None]
        return max(1, min([math.ceil((deadline_s + LAUNCH_S) / 60), *may]))

    def _attempt(self, goes: Sequence[_Node], finish: float) -> Iterator[SessionEvent | Reply]:
        """Serve until every node is through, or the step is over."""
        self._waiting = {node.id for node in goes}
        while self._waiting and time.monotonic() < finish:
            yield from self._events(finish)
            if self._launch_failed:
                finish = min(finish, self._launch_failed + ABORT_S)
            if self._process is not None and not self._outputs():
                return

    def _outputs(self) -> list[_Stream]:
        return [one for one in self._streams if one.pipe is not getattr(self._process, "stdin", None)]

    def _events(self, finish: float) -> Iterator[SessionEvent | Reply]:
        """What came of what happens next, of agents, of srun, and of the clock."""
        self._raise_interruption()
        assert self._board is not None
        now = time.monotonic()
        until = min(finish, now + NOTICED_S, self._times[0][0] if self._times else math.inf)
        for event in self._board.events(until - now):
            if isinstance(event, _Stream):
                self._serve(event)
            elif isinstance(event, calls.Came):
                self._by_host[event.node].address = event.address
            elif isinstance(event, calls.Said):
                yield from self._frame(self._by_host[event.node], event)
            elif isinstance(event, calls.Gone):
                yield from self._gone(self._by_host[event.node], event.trouble)
        now = time.monotonic()
        while self._times and self._times[0][0] <= now:
            _, _, node, what = heapq.heappop(self._times)
            if isinstance(what, _Pending):
                if node.pending is what:
                    node.pending = None
                    why = f"no answer to {what.request.op} within {what.request.timeout_s:g} s"
                    yield self._answer(node, Missing(Why.TIMED_OUT, why))
            elif not (node.is_open or node.failed or node.told or self._launch_failed):
                yield self._fail(node, *self._why_ended(node))

    def _at(self, when: float, node: _Node, what: Any) -> None:
        self._turn += 1
        heapq.heappush(self._times, (when, self._turn, node, what))

    # What agents say

    def _frame(self, node: _Node, event: calls.Said) -> Iterator[SessionEvent | Reply]:
        assert self._board is not None
        pending = node.pending
        try:
            frame = frames.decode_frame(event.payload)
            if frame.hello is not None and not node.is_open:
                yield from self._hello(node, frame.hello)
            elif frame.need is not None and node.needs < NEEDS_MAX:
                node.needs += 1
                data = provide.provide_bytes(frame.need, node.hello.machine, node.hello.bits)
                self._board.send(node.host, data)
            elif frame.id is None and frame.hello is None:
                raise frames.AgentTrouble(f"the agent gave up: {clean(frame.detail, 200)}")
            elif frame.id == node.number and pending is not None:
                yield from self._result(node, pending, frame, event.at)
        except frames.Unreadable as e:
            if pending is not None:
                node.pending = None
                yield self._answer(node, Missing(Why.UNPARSABLE, str(e)))
        except frames.AgentTrouble as e:
            self._board.drop(node.host)
            yield from self._gone(node, str(e))

    def _hello(self, node: _Node, hello: frames.Hello) -> Iterator[SessionEvent | Reply]:
        node.is_open, node.hello = True, hello
        if not node.told:
            node.told = True
            yield SessionEvent(node=node.id, session=self._session(node, Login.OK, node.booked))
        if node.ended:  # before the step was started again
            self._waiting.discard(node.id)
        else:
            self._ask(node, node.first)

    def _result(self, node: _Node, pending: _Pending, frame: frames.Frame, at: float) -> Iterator[Reply]:
        if frame.ok and pending.request.op == "clock":
            there = _ping(bytes(frame.result))
            pending.samples.append(
                [self._anchor + pending.sent, *there, self._anchor + max(pending.sent, at)]
            )
            pending.exchanges -= 1
            if pending.exchanges > 0:
                self._send(node, pending)
                return
            answer: Any = {"samples": pending.samples}
        elif frame.ok:
            answer = frames.decode_result(bytes(frame.result))
        else:
            why = Why(frame.why) if frame.why in set(Why) else Why.FAILED
            answer = Missing(why, clean(frame.detail, 400))
        node.pending = None
        yield self._answer(node, answer)

    def _gone(self, node: _Node, trouble: str) -> Iterator[SessionEvent | Reply]:
        """An agent's connection has ended."""
        for stream in self._outputs():  # why it was ended may stand there
            self._pull(stream)
        node.is_open = False
        if self._launch_failed:  # with the whole step, which is started again
            return
        said = trouble or self._cancelled or "the agent ended"
        if node.pending is not None:
            node.pending = None
            yield self._answer(node, Missing(Why.UNPARSABLE if trouble else Why.LOST, said))
        elif not node.told and not node.failed:
            yield self._fail(node, Login.LOST, said)

    def _answer(self, node: _Node, answer: Any) -> Reply:
        node.ended = True
        self._waiting.discard(node.id)
        if not self._keep_open and self._board is not None:
            self._board.drop(node.host)
            node.is_open = False
        if isinstance(answer, Missing):
            return Reply(node=node.id, missing=answer)
        return Reply(node=node.id, result=answer)

    def _ask(self, node: _Node, request: Request) -> None:
        exchanges, node.needs = 0, 0
        if request.op == "clock":
            exchanges = max(1, min(int(request.args.get("exchanges", 8)), 64))
        node.pending = _Pending(request, time.monotonic(), exchanges)
        self._at(time.monotonic() + request.timeout_s, node, node.pending)
        self._send(node, node.pending)

    def _send(self, node: _Node, pending: _Pending) -> None:
        assert self._board is not None
        node.number += 1
        clock = pending.request.op == "clock"
        args = b"{}" if clock else msgspec.json.encode(dict(pending.request.args))
        data = frames.request_frame(node.number, "ping" if clock else pending.request.op, args)
        pending.sent = time.monotonic()
        self._board.send(node.host, data)

    # What srun says

    def _serve(self, stream: _Stream) -> None:
        if stream in self._outputs():
            self._pull(stream)
            return
        try:
            del stream.data[: os.write(stream.pipe.fileno(), memoryview(stream.data)[: 1 << 16])]
        except BlockingIOError:
            return
        except OSError:
            stream.data.clear()
        if not stream.data:
            self._shut(stream)

    def _pull(self, stream: _Stream) -> None:
        """Read what there is of one of srun's outputs."""
        try:
            data = os.read(stream.pipe.fileno(), 1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, rest = (bytes(stream.data) + data).split(b"\n")
        if not data or len(rest) > LINE_BYTES:
            lines, rest = [*lines, rest], b""
        stream.data = bytearray(rest)
        for raw in lines:
            self._line(words.line(raw[:LINE_BYTES].decode("utf-8", "replace")))
        if not data:
            self._shut(stream)

    def _shut(self, stream: _Stream) -> None:
        if self._board is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._board.selector.unregister(stream.pipe)
        with contextlib.suppress(OSError):
            stream.pipe.close()
        self._streams.remove(stream)

    def _line(self, line: words.Line) -> None:
        nodes = [self._by_host[host] for host in line.nodes if host in self._by_host]
        if line.kind == "granted":
            self._granted = line.text
        elif line.kind == "cancelled":
            self._cancelled = f"Slurm cancelled the step {line.text.lower()}".strip()
        elif line.kind == "launch":
            self._launch_failed = self._launch_failed or time.monotonic()
            for node in nodes:
                node.launch = line.text
        elif line.kind == "exit":
            numbers = line.tasks if len(line.tasks) == len(line.nodes) else [-1] * len(line.nodes)
            number_of = dict(zip(line.nodes, numbers, strict=True))
            for node in nodes:
                node.exit, node.task = line.text, number_of[node.host]
                self._at(time.monotonic() + WORDS_S, node, None)
        elif line.kind == "tried":
            for node in nodes:
                node.tried = line.text
        elif line.kind == "task":
            self._tasks.setdefault(line.tasks[0], line.text[:SAID_MAX])
        elif line.kind == "error":
            self._trouble.append(line.text[:SAID_MAX])

    def _why_ended(self, node: _Node) -> tuple[Login, str]:
        """How it was with a task that has ended and never called."""
        said = self._tasks.get(node.task, "")
        if node.launch:
            return Login.STEP, node.launch
        if node.tried:
            return Login.NO_WAY_BACK, node.tried
        if old := _OLD.search(said):
            return Login.OLD_PYTHON, f"{node.python} is Python {old[1]}, 3.6 or newer is needed"
        if "execve()" in said:
            return Login.INTERPRETER, said
        if self._cancelled:
            return Login.LOST, self._cancelled
        how = node.exit or "it ended"
        return Login.STEP, f"the task never called: {how}" + (f": {said}" if said else "")

    def _blame(self) -> Iterator[SessionEvent]:
        """The step is over, and no task called from these."""
        refusal = next((said for said in self._trouble if not said.startswith("Job step")), "")
        for node in self._left():
            if node.told:  # it called, and was lost; its answer says so
                continue
            if node.exit or self._cancelled or not refusal:
                yield self._fail(node, *self._why_ended(node))
            elif _NOT_FREE.search(refusal):
                yield self._fail(node, Login.BUSY, f"not free within {self._options.wait_s:g} s: {refusal}")
            else:
                yield self._fail(node, Login.CONTROL, f"Slurm refuses: {refusal}")

    # Sessions

    def _left(self) -> list[_Node]:
        """The nodes that a step still has to be started on."""
        return [
            node
            for node in self._nodes.values()
            if not (node.failed or node.is_open) and (self._keep_open or not node.ended)
        ]

    def _all(self, nodes: Sequence[_Node], outcome: Login, said: str = "") -> Iterator[SessionEvent | Reply]:
        for node in nodes:
            if node.told and not node.ended:
                yield self._answer(node, Missing(Why.LOST, said or node.launch))
            elif not node.told:
                yield self._fail(node, outcome, said or node.launch)

    def _fail(self, node: _Node, outcome: Login, said: str) -> SessionEvent:
        node.failed = node.told = True
        self._waiting.discard(node.id)
        return SessionEvent(node=node.id, session=self._session(node, outcome, said))

    def _session(self, node: _Node, outcome: Login, said: str = "") -> Session:
        return Session(
            outcome=outcome,
            stage="agent" if outcome == Login.OK else "step",
            detail=clean(said, 400),
            address=node.address or None,
            user=local_user(),
            interpreter=node.python,
            python_version=clean(node.hello.python, 20) or None,
            noise=self._board.noise(node.host) if self._board is not None else "",
            transport="slurm",
        )

    # Requests

    def call(self, requests: Mapping[str, Request], within_s: float | None = None) -> Iterator[Reply]:
        """Send one request to each named node with an open session; clocks a few at a time."""
        began = time.monotonic()
        clocks = [node for node, request in requests.items() if request.op == "clock"]
        longest = max((request.timeout_s for request in requests.values()), default=0.0)
        longest = longest * (1 + len(clocks) / CLOCK_AT_ONCE) + NOTICED_S
        return self._replies(requests, began + (longest if within_s is None else min(longest, within_s)))

    def _replies(self, requests: Mapping[str, Request], finish: float) -> Iterator[Reply]:
        clocks: list[tuple[_Node, Request]] = []
        self._waiting = set(requests)
        for name, request in requests.items():
            node = self._nodes.get(name)
            if node is None or not node.is_open:
                self._waiting.discard(name)
                yield Reply(node=name, missing=Missing(Why.LOST, self._cancelled or "no open session"))
            elif request.op == "clock":
                clocks.append((node, request))
            else:
                self._ask(node, request)
        at_once = 0
        while self._waiting and time.monotonic() < finish:
            while clocks and at_once < CLOCK_AT_ONCE:
                at_once += 1
                self._ask(*clocks.pop())
            for event in self._events(finish):
                at_once -= 1  # counts for clocks alone, which are never asked with others
                if isinstance(event, Reply):
                    yield event
        for name in sorted(self._waiting):
            self._nodes[name].pending = None
            yield Reply(node=name, missing=Missing(Why.TIMED_OUT, "no answer in time"))
        self._waiting = set()

    # The end

    def _stop(self) -> None:
        """End srun, and the allocation that was asked for; its step ends with the agents."""
        process, self._process = self._process, None
        if process is None:
            return
        self._streams, pipes = [], self._streams
        for signal_number, wait_s in (
            (None, CLOSE_S / 2),
            (signal.SIGTERM, CLOSE_S / 2),
            (signal.SIGKILL, 0.5),
        ):
            if signal_number is not None:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal_number)
            if _waited(process, pipes, wait_s):
                break
        else:
            process.wait()
        if self._granted and process.returncode == -signal.SIGKILL:
            self._asked(["scancel", self._granted])
        self._granted = ""
        for stream in pipes:
            if self._board is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._board.selector.unregister(stream.pipe)
            stream.pipe.close()

    def close(self) -> None:
        """End all sessions, listeners and steps within two seconds."""
        board, self._board = self._board, None
        if board is not None:
            self._notes.update(board.notes)
            board.close()  # agents leave when they see the end, and the step with them
        self._stop()
        for node in self._nodes.values():
            node.is_open = False


def _waited(process: "subprocess.Popen[bytes]", pipes: Sequence[_Stream], wait_s: float) -> bool:
    """Whether a process ended in time; what it prints meanwhile is thrown away, so that it can."""
    finish = time.monotonic() + wait_s
    while process.poll() is None:
        if (left := finish - time.monotonic()) <= 0:
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(left, 0.05))
        for stream in pipes:
            with contextlib.suppress(OSError, ValueError):
                if stream.pipe.readable():
                    os.read(stream.pipe.fileno(), 1 << 18)
    return True


def _ping(raw: bytes) -> tuple[float, float]:
    try:
        there = msgspec.json.decode(raw, type=dict[str, float])
        return there["recv_s"], there["send_s"]
    except (msgspec.MsgspecError, KeyError, RecursionError) as e:
        raise frames.Unreadable(f"the reply to a ping cannot be read: {e}") from e


def _command(nodes: Sequence[_Node], marker: str) -> list[str]:
    """What each task runs: the agent's first line, by the interpreter of its node."""
    pythons: dict[str, list[str]] = {}
    for node in nodes:
        pythons.setdefault(node.python, []).append(node.host)
    if len(pythons) == 1 and not nodes[0].python.startswith("~/"):
        return bundle.argv(nodes[0].python, marker)
    # Names have passed the inventory's rules: none of them is a pattern.
    cases = [f"{'|'.join(hosts)}) {bundle.command(python, marker)};;" for python, hosts in pythons.items()]
    return ["/bin/sh", "-c", f'case "$SLURMD_NODENAME" in {" ".join(cases)} esac']


def missing(environ: Mapping[str, str]) -> str:
    """The first of Slurm's commands that is not here, or ''."""
    place = environ.get("PATH")
    return next(
        (name for name in ("srun", "sinfo", "scontrol") if shutil.which(name, path=place) is None), ""
    )


def partition(name: str, environ: Mapping[str, str]) -> str:
    """The nodes of a partition, folded. Raises TransportInputError where Slurm has none of that name."""
    transport = SlurmTransport(Limits(), SlurmOptions(environ=environ))
    code, out, errors = transport._asked([*words.SINFO, f"--partition={name}", f"--format={words.FORMAT}"])
    found = words.books(out)
    if code or not found:
        raise TransportInputError(
            f"--partition {name}: {errors or 'Slurm has no nodes in it; sinfo -s lists them'}"
        )
    return fold(list(found), None)
