"""Nodes by Slurm: one srun starts an agent on each, beside the job, and the agents call this machine.

srun's own streams carry the agents' program to all of them at once, and back what a task says that cannot
call. A conversation they could not carry: srun sends its stdin to all tasks or to one, and mixes what they
print. And it sends nobody anything before all of its nodes have called it back: a task says that it runs
before it reads, and a step that waits for a silent node is started again without that.
"""

import contextlib
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
from dataclasses import dataclass, field, replace
from typing import Any

from netdoctor.facts.host import Login, Trouble
from netdoctor.inventory.model import COMMAND_LINE, Target
from netdoctor.inventory.nodeset import fold
from netdoctor.text import clean
from netdoctor.transport import bundle, here
from netdoctor.transport.base import Limits, Reply, Request, SessionEvent
from netdoctor.transport.session import Broken
from netdoctor.transport.ssh.sshconfig import TransportInputError, local_user
from netdoctor.transport.tasks import calls
from netdoctor.transport.tasks import slurm_output as words
from netdoctor.transport.tasks.calling import Agent, Calling

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
LINE_BYTES = 4096
SAID_MAX = 400
# Where one node cannot start a task, others may be told of in the next moment.
ABORT_S = 3.0
# A slurmstepd that cannot call srun gives up after 8 s; a prolog may take longer than its own node's share.
SILENT_S = 15.0
# A job that starts at once is not asked about.
QUEUED_S = 1.0
LATE = "no task of Slurm's called in time"
# srun: error: Unable to create step for job 12: More processors requested than permitted
_CORES = re.compile(r"rocessors requested|CPU count|Requested node configuration")
# salloc: error: Unable to allocate resources: Connection timed out
_NOT_FREE = re.compile(r"allocate resources: (?:Connection timed out|Requested nodes are busy|.*immediate)")
# What sh ends with where the interpreter is not there, or is no program.
_NO_PROGRAM = ("exit code 127", "exit code 126")
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
class _Node(Agent):
    """A node on its way. task: its number in the step; exit: how that ended, as srun says it; launch: Slurm
    could not start it; launched: srun has asked for it; runs: it has said so; silent: for how long it has
    not; tried: how this machine was dialled in vain; booked: what Slurm does with it; typed: it was named on
    the command line."""

    task: int = -1
    launched: bool = False
    exit: str = ""
    launch: str = ""
    runs: bool = False
    silent: str = ""
    tried: str = ""
    booked: str = ""
    typed: bool = False


@dataclass(eq=False, slots=True)
class _Stream:
    """A pipe of srun's: stdin, with what is still to be written, or an output, with half a line."""

    pipe: Any
    data: bytearray = field(default_factory=bytearray)


class SlurmTransport(Calling[_Node]):
    """Reaches the nodes of an allocation, or of one that it asks for."""

    kind, stage = "slurm", "step"

    def __init__(self, limits: Limits, options: SlurmOptions) -> None:
        super().__init__()
        self._limits = limits
        self._options = options
        self._notes: dict[str, None] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._streams: list[_Stream] = []
        self._granted = ""
        self._trouble: list[str] = []
        self._launch_failed = 0.0
        self._heard = 0.0
        self._number = self._waits = self._queued = self._reason = ""
        self._asks = 0.0
        self._cut_off: list[tuple[_Node, str, str]] = []
        self._tasks: dict[int, str] = {}
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

        Raises TransportInputError where nodes are named that the allocation has not, or on the command line
        such that Slurm does not know, or a partition that it has not.
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
        self._nodes = {
            t.id: _Node(t.id, t.host, t.python or DEFAULT_PYTHON, first[t.id], typed=t.source == COMMAND_LINE)
            for t in targets
        }
        self._by_host = {node.host: node for node in self._nodes.values()}
        yield from self._look_up()
        goes = self._left()
        if not goes:
            return
        try:
            marker = self._marker = secrets.token_hex(8)
            self._cut_off = []
            places = calls.own_addresses(self._booked[node.host].address for node in goes)
            self._board = calls.Board([node.host for node in goes], places or [ANYWHERE], self._ports())
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
            if self._launch_failed or any(node.silent for node in goes):
                yield from self._unlaunched([n for n in goes if n.launch])
                for node in goes:
                    self._board.drop(node.host)
                    node.is_open, node.talk, node.exit = False, None, ""
                    node.launched = node.runs = False
            elif cpus and any(_CORES.search(said) for said in self._trouble):
                cpus = 0  # some are Slurm's own
            else:
                yield from self._blame()
                break
            if not self._left():
                break
        yield from self._without_way_back()
        late = time.monotonic() >= finish
        outcome, said = Login.LOST, "the step ended each time it was started"
        if late and self._waits:
            outcome, said = Login.BUSY, f"Slurm started no step of ours beside the job's own: {self._waits}"
        elif late:
            outcome, said = Login.TIMEOUT, f"{LATE}, at {self._shown()}"
        yield from self._all([node for node in self._left() if not node.ended], outcome, said)
        if not keep_open:
            self.close()

    def _shown(self) -> str:
        """Where tasks call, for people."""
        places = self._board.places if self._board is not None else []
        return ", ".join(f"{address} port {port}" for address, port in places) or "any address"

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
        if self._options.partition and len(self._booked) < len(self._nodes):
            partition(self._options.partition, self._options.environ)
        ours = self._options.job is not None
        typed = [node.host for node in self._nodes.values() if node.typed and node.host not in self._booked]
        if typed and not ours:
            there = f" in partition {self._options.partition}" if where else ""
            raise TransportInputError(
                f"{fold(typed, 60)}: Slurm knows no such node{there}; sinfo -N lists them"
            )
        for node in self._nodes.values():
            booked = self._booked.get(node.host)
            if (why := words.standing(booked, ours=ours)) is not None:
                place = f" in partition {self._options.partition}" if where and booked is None else ""
                yield self._fail(node, why[0], why[1] + place)
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
        self._granted = self._number = self._waits = self._queued = self._reason = ""
        self._heard = time.monotonic()
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
            self._ask_why()
            if self._launch_failed:
                finish = min(finish, self._launch_failed + ABORT_S)
            elif self._silence(goes):
                return
            if self._process is not None and not self._outputs():
                return

    def _ask_why(self) -> None:
        """Have Slurm's own word for what an allocation waits for; it may change while it does."""
        if self._queued and time.monotonic() >= self._asks:
            asked = self._asked(["squeue", "--noheader", f"--jobs={self._queued}", "--format=%r"])
            self._reason = clean(asked[1], 100) or self._reason
            self._asks = time.monotonic() + 5 * QUEUED_S

    def _silence(self, goes: Sequence[_Node]) -> bool:
        """Whether some tasks have said nothing for so long that srun's way back from them must be closed."""
        silent = [n for n in goes if n.launched and not (n.runs or n.exit or n.failed)]
        some = any(node.runs for node in goes)
        wait_s = SILENT_S if some else LAUNCH_S
        if not silent or time.monotonic() < self._heard + wait_s:
            return False
        for node in silent:
            node.silent = f"Slurm started a task, and srun here heard nothing of it for {wait_s:g} s"
            self._cut(node, node.silent, self.stage)
        return True

    def _cut(self, node: _Node, said: str, stage: str) -> None:
        """A task runs and cannot call. Whether none at all can is known when all have been waited for."""
        node.failed = True
        self._waiting.discard(node.id)
        self._cut_off.append((node, said, stage))

    def _without_way_back(self) -> Iterator[SessionEvent]:
        some = any(node.told and not node.failed for node in self._nodes.values())
        trouble = Trouble.NETWORK if self._cut_off[1:] and not some else None
        for node, said, stage in self._cut_off:
            event = self._fail(node, Login.NO_WAY_BACK, said)
            yield replace(event, session=replace(event.session, stage=stage, trouble=trouble))
        self._cut_off = []

    def _outputs(self) -> list[_Stream]:
        return [one for one in self._streams if one.pipe is not getattr(self._process, "stdin", None)]

    def _gone(self, node: _Node, broken: Broken | None = None) -> Iterator[SessionEvent | Reply]:
        """An agent's connection has ended: with the whole step, it is started again."""
        for stream in self._outputs():  # why it was ended may stand there
            self._pull(stream)
        if self._launch_failed:
            node.is_open = False
        else:
            yield from super()._gone(node, broken)

    def _due(self, node: _Node, what: Any) -> Iterator[SessionEvent]:
        if not (node.is_open or node.failed or node.told or self._launch_failed):
            if node.tried:
                self._cut(node, node.tried, "connect")
            else:
                yield self._fail(node, *self._why_ended(node))

    def _told_of(self, node: _Node) -> str:
        return node.booked

    def _unlaunched(self, nodes: Sequence[_Node]) -> Iterator[SessionEvent | Reply]:
        for node in nodes:
            yield from self._all([node], Login.STEP, node.launch)

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
            self._granted, self._heard, self._queued = line.text, time.monotonic(), ""
        elif line.kind == "queued":
            self._queued, self._asks = line.text, time.monotonic() + QUEUED_S
        elif line.kind == "waits":
            self._waits = line.text
        elif line.kind == "launching":
            self._number, self._heard, self._waits = line.text, time.monotonic(), ""
            for node in nodes:
                node.launched = True
        elif line.kind == "runs":
            for node in [node for node in nodes if not node.runs]:
                node.runs, self._heard = True, time.monotonic()
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
                self._at(time.monotonic() + WORDS_S, node, None)  # that it ended may never be told, either
        elif line.kind == "task":
            self._tasks.setdefault(line.tasks[0], line.text[:SAID_MAX])
        elif line.kind == "error":
            self._trouble.append(line.text[:SAID_MAX])

    def _why_ended(self, node: _Node) -> tuple[Login, str]:
        """How it was with a task that has ended and never called."""
        said = self._tasks.get(node.task, "")
        if node.launch:
            return Login.STEP, node.launch
        if old := _OLD.search(said):
            return Login.OLD_PYTHON, f"{node.python} is Python {old[1]}, 3.6 or newer is needed"
        if node.exit.endswith(_NO_PROGRAM):
            return Login.INTERPRETER, said or f"{node.python}: {node.exit}"
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
            if node.tried:
                self._cut(node, node.tried, "connect")
            elif node.exit or self._cancelled or not refusal:
                yield self._fail(node, *self._why_ended(node))
            elif _NOT_FREE.search(refusal):
                outcome = Login.BUSY if words.in_turn(self._reason or "None") else Login.CONTROL
                why = f"the request waited for {self._reason}" if self._reason else refusal
                yield self._fail(node, outcome, f"no allocation within {self._options.wait_s:g} s: {why}")
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
                _signal(process.pid, signal_number)
            if _waited(process, pipes, wait_s):
                break
        else:
            process.wait()
        if process.returncode == -signal.SIGKILL and (left := self._granted or self._queued or self._number):
            self._asked(["scancel", left])
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


def _signal(session: int, number: signal.Signals) -> None:
    """Send a signal to all of a session: salloc gives its command a process group of its own."""
    for pid in [int(name) for name in os.listdir("/proc") if name.isdecimal()]:
        with contextlib.suppress(OSError):
            if os.getsid(pid) == session:
                os.kill(pid, number)


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


def _command(nodes: Sequence[_Node], marker: str) -> list[str]:
    """What each task runs: a line that says so, and the agent's first one, by the interpreter of its node."""
    pythons: dict[str, list[str]] = {}
    for node in nodes:
        pythons.setdefault(node.python, []).append(node.host)
    # Names have passed the inventory's rules: none of them is a pattern.
    cases = [f"{'|'.join(hosts)}) {bundle.command(python, marker)};;" for python, hosts in pythons.items()]
    starts = f'case "$SLURMD_NODENAME" in {" ".join(cases)} esac'
    if len(pythons) == 1:
        starts = bundle.command(nodes[0].python, marker)
    return ["/bin/sh", "-c", f'echo "netdoctor-task on $SLURMD_NODENAME"; {starts}']


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
