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
from enum import IntEnum
from typing import Any

from netdoctor.facts.host import Login, Trouble
from netdoctor.inventory.model import COMMAND_LINE, Target
from netdoctor.inventory.nodeset import fold
from netdoctor.text import clean
from netdoctor.transport import bundle, here
from netdoctor.transport.base import Event, Limits, SessionEvent, StartPlan
from netdoctor.transport.session import Broken
from netdoctor.transport.ssh.sshconfig import TransportInputError, local_user
from netdoctor.transport.tasks import calls
from netdoctor.transport.tasks import slurm_output as output
from netdoctor.transport.tasks.calling import Agent, Calling, Progress

DEFAULT_PYTHON = "python3"
CLOSE_S = 1.5
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
TEXT_MAX = 400
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


class TaskState(IntEnum):
    """What srun has said of a node's task. Each replaces those before it, and never one behind it."""

    UNSTARTED = 0
    LAUNCHED = 1  # srun has asked for it
    RUNNING = 2  # it has said so
    EXITED = 3
    SILENT = 4  # launched, and nothing was heard of it for long
    CANNOT_CALL = 5  # it dialled this machine in vain
    NOT_LAUNCHED = 6  # Slurm could not start it


@dataclass(eq=False, slots=True)
class _Task:
    """A node's task in one step."""

    state: TaskState = TaskState.UNSTARTED
    text: str = ""  # what srun says of that
    number: int = -1  # in the step

    def become(self, state: TaskState, text: str = "") -> bool:
        """Go on to a state; whether it is another one."""
        if state <= self.state:
            return False
        self.state, self.text = state, text
        return True


@dataclass(eq=False, slots=True)
class _Node(Agent):
    """A node on its way."""

    task: _Task = field(default_factory=_Task)
    slurm_note: str = ""  # what Slurm does with it, where it is ours and being drained


class StepState(IntEnum):
    """How far a step is, as srun and salloc say it."""

    REQUESTED = 0
    QUEUED = 1  # for an allocation
    GRANTED = 2
    WAITING = 3  # for the job's own steps
    LAUNCHED = 4
    FAILED = 5  # a node's task could not be started, and all end with that


@dataclass(eq=False, slots=True)
class _Step:
    """One run of srun's."""

    state: StepState = StepState.REQUESTED
    since: float = field(default_factory=time.monotonic)  # of the state, or of the last task that runs
    waits_for: str = ""  # where it waits, why
    to_cancel: str = ""  # the allocation, or else the step, by Slurm's number
    reason: str = ""  # squeue's, for an allocation that waits
    ask_at: float = 0.0  # when squeue is asked next
    errors: list[str] = field(default_factory=list)
    last_lines: dict[int, str] = field(default_factory=dict)  # by number of the task

    def become(self, state: StepState, waits_for: str = "") -> None:
        """Go on to a state; a failed step stays one."""
        if self.state is not StepState.FAILED:
            self.state, self.since, self.waits_for = state, time.monotonic(), waits_for


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
        self._step = _Step()
        self._rows: dict[str, output.Row] = {}  # of sinfo, by node

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know: tasks that were turned away, nodes that are being drained."""
        return [*self._notes, *(self._listener.notes if self._listener else ())]

    def describe(self, target: Target) -> dict[str, Any]:
        """What `start` would run for this target."""
        if self._options.job:
            asks = f"srun --jobid={self._options.job} --overlap, one task per node"
        else:
            ask = output.Ask((target.host,), math.ceil(self._options.wait_s), 1, self._options.partition)
            argv = [w for w in ask.argv() if not w.startswith(("--nodelist", "--nodes", "--time"))]
            asks = f"{shlex.join(argv)} for a few minutes, then srun, one task per node"
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

    def _start(self, plan: StartPlan) -> Iterator[Event]:
        """Start a task on each node that Slurm lets us, and send each its first request.

        Raises TransportInputError where nodes are named that the allocation has not, or on the command line
        such that Slurm does not know, or a partition that it has not.
        """
        hosts = Counter(target.host for target in plan.targets)
        if twice := [host for host, count in hosts.items() if count > 1]:
            raise TransportInputError(f"{fold(twice, 60)}: Slurm knows a node by one name; list it once")
        foreign = [host for host in hosts if self._options.job and host not in self._options.nodes]
        if foreign:
            has = fold(self._options.nodes, 60)
            raise TransportInputError(
                f"{fold(foreign, 60)}: not in job {self._options.job}, which has {has}; leave it out, or ask "
                "for an allocation that has it"
            )
        return self._serve_steps(plan)

    def _serve_steps(self, plan: StartPlan) -> Iterator[Event]:
        self.close()
        finish = time.monotonic() + self.bound_s(plan.targets)
        self._keep_open = plan.keep_open
        self._nodes = {
            t.id: _Node(t.id, t.host, t.python or DEFAULT_PYTHON, plan.first[t.id]) for t in plan.targets
        }
        self._by_host = {node.host: node for node in self._nodes.values()}
        yield from self._look_up({t.host for t in plan.targets if t.source == COMMAND_LINE})
        if not (nodes := self._left()):
            return
        try:
            ours = calls.own_addresses(self._rows[node.host].address for node in nodes)
            hosts = [node.host for node in nodes]
            self._listener = calls.Listener(hosts, ours or [ANYWHERE], self._ports())
        except OSError as e:
            yield from self._give_up(nodes, Login.CONTROL, f"no port to listen on here: {e.strerror or e}")
            return
        self._marker = secrets.token_hex(8)
        packed = self._bundle(plan, self._listener)
        yield from self._attempts(packed, plan.deadline_s, finish)
        yield from self._without_way_back()
        yield from self._give_up(self._left(), *self._why_late(time.monotonic() >= finish))
        if not plan.keep_open:
            self.close()

    def _bundle(self, plan: StartPlan, listener: calls.Listener) -> bytes:
        dial = {
            "places": listener.endpoints,
            "secret": listener.secret,
            "node_from": ["SLURMD_NODENAME"],
            "within_s": DIAL_S,
        }
        return bundle.build_bundle(
            marker=self._marker, deadline_s=plan.deadline_s, collectors=plan.collectors, dial=dial
        )

    def _attempts(self, packed: bytes, deadline_s: float, finish: float) -> Iterator[Event]:
        """Start a step, and start it again without the nodes that ended it."""
        cpus = self._options.cpus
        for _ in range(TRIES):
            nodes = self._left()
            try:
                self._spawn(nodes, packed, deadline_s, cpus)
            except OSError as e:
                yield from self._give_up(nodes, Login.CONTROL, here.no_process(e)[1])
                return
            yield from self._attempt(nodes, finish)
            if not self._left() or time.monotonic() >= finish:
                return
            self._stop()
            states = {node.task.state for node in nodes}
            if self._step.state is StepState.FAILED or TaskState.SILENT in states:
                for node in nodes:
                    yield from self._out_of_step(node)
            elif cpus and any(_CORES.search(error) for error in self._step.errors):
                cpus = 0  # some are Slurm's own
            else:
                yield from self._why_over()
                return
            if not self._left():
                return

    def _out_of_step(self, node: _Node) -> Iterator[Event]:
        """Make a node ready for the next step, if Slurm can start a task there."""
        assert self._listener is not None
        if node.task.state is TaskState.NOT_LAUNCHED:
            yield from self._give_up([node], Login.STEP, node.task.text)
        self._listener.drop(node.host)
        node.is_open, node.conversation = False, None
        if not node.progress.is_over:
            node.task = _Task()

    def _why_late(self, late: bool) -> tuple[Login, str]:
        if late and self._step.state is StepState.WAITING:
            why = self._step.waits_for
            return Login.BUSY, f"Slurm started no step of ours beside the job's own: {why}"
        if late:
            return Login.TIMEOUT, f"{LATE}, at {self._endpoints_text()}"
        return Login.LOST, "the step ended each time it was started"

    def _endpoints_text(self) -> str:
        """Where tasks call, for people."""
        endpoints = self._listener.endpoints if self._listener is not None else []
        return ", ".join(f"{address} port {port}" for address, port in endpoints) or "any address"

    # What Slurm knows of nodes

    def _look_up(self, by_command_line: set[str]) -> Iterator[Event]:
        """Ask Slurm what it knows of the nodes; those that it keeps off, and those of others, end here."""
        partition_name = self._options.partition
        words = [f"--partition={partition_name}"] if partition_name else []
        in_partition = f" in partition {partition_name}" if partition_name else ""
        code, text, errors = _query(
            [
                *output.SINFO,
                *words,
                f"--nodes={fold(list(self._by_host), None)}",
                f"--format={output.FORMAT}",
            ],
            self._options.environ,
        )
        if code:
            why = f"Slurm does not answer: {errors or 'sinfo ended with status ' + str(code)}"
            yield from self._give_up(list(self._nodes.values()), Login.CONTROL, why)
            return
        self._rows = output.read_rows(text)
        if partition_name and len(self._rows) < len(self._nodes):
            partition(partition_name, self._options.environ)
        ours = self._options.job is not None
        unknown = [host for host in self._by_host if host in by_command_line and host not in self._rows]
        if unknown and not ours:
            raise TransportInputError(
                f"{fold(unknown, 60)}: Slurm knows no such node{in_partition}; sinfo -N lists them"
            )
        for node in self._nodes.values():
            row = self._rows.get(node.host)
            if (why_not := output.why_no_task(row, ours=ours)) is not None:
                yield self._fail(node, why_not[0], why_not[1] + (in_partition if row is None else ""))
            elif row is not None and row.state in output.STILL_OURS:
                node.slurm_note = row.text

    def _ports(self) -> range | None:
        return output.port_range(_query(["scontrol", "show", "config"], self._options.environ)[1])

    # A step

    def _spawn(self, nodes: Sequence[_Node], packed: bytes, deadline_s: float, cpus: int) -> None:
        """Start srun, under salloc where there is no allocation. Raises OSError."""
        hosts = [node.host for node in nodes]
        argv = output.step(hosts, _command(nodes, self._marker), self._options.job, cpus)
        if self._options.job is None:
            gpus = {self._rows[host].gpus for host in hosts}
            if len(gpus) > 1:
                note = f"Slurm's books have {min(gpus)} to {max(gpus)} GPUs a node: {min(gpus)} are asked for"
                self._notes[note] = None
            ask = output.Ask(
                nodes=tuple(hosts),
                wait_s=max(1, math.ceil(self._options.wait_s)),
                minutes=self._minutes(hosts, deadline_s),
                partition=self._options.partition,
                gpus=min(gpus),
            )
            argv = [*ask.argv(), *argv]
        self._step, self._cancelled = _Step(), None
        self._times.clear()
        assert self._listener is not None
        process = subprocess.Popen(  # noqa: S603  # as above
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=output.environment(self._options.environ),
            start_new_session=True,
            bufsize=0,
        )
        self._process = process
        self._listener.room()  # after srun has taken our limits for those of the tasks
        self._streams = []
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            stream = _Stream(pipe, bytearray(packed) if pipe is process.stdin else bytearray())
            self._listener.selector.register(pipe, 2 if pipe is process.stdin else 1, stream)
            self._streams.append(stream)

    def _minutes(self, hosts: Sequence[str], deadline_s: float) -> int:
        """What is asked for: as long as the scan may take, or as the partition lets it."""
        limits = [m for host in hosts if (m := self._rows[host].minutes) is not None]
        return max(1, min([math.ceil((deadline_s + LAUNCH_S) / 60), *limits]))

    def _attempt(self, nodes: Sequence[_Node], finish: float) -> Iterator[Event]:
        """Serve until every node is through, or the step is over."""
        self._waiting = {node.id for node in nodes}
        while self._waiting and time.monotonic() < finish:
            yield from self._events(finish)
            self._ask_why()
            if self._step.state is StepState.FAILED:
                finish = min(finish, self._step.since + ABORT_S)
            elif self._silence(nodes):
                return
            if self._process is not None and not self._outputs():
                return

    def _ask_why(self) -> None:
        """Have Slurm's own word for what an allocation waits for; it may change while it does."""
        step = self._step
        if step.state is StepState.QUEUED and time.monotonic() >= step.ask_at:
            argv = ["squeue", "--noheader", f"--jobs={step.to_cancel}", "--format=%r"]
            step.reason = clean(_query(argv, self._options.environ)[1], 100) or step.reason
            step.ask_at = time.monotonic() + 5 * QUEUED_S

    def _silence(self, nodes: Sequence[_Node]) -> bool:
        """Whether some tasks have said nothing for so long that srun's way back from them must be closed."""
        states = [(n, n.task.state) for n in nodes]
        silent = [n for n, state in states if state is TaskState.LAUNCHED and not n.progress.is_over]
        wait_s = SILENT_S if any(state > TaskState.LAUNCHED for _, state in states) else LAUNCH_S
        if not silent or time.monotonic() < self._step.since + wait_s:
            return False
        for node in silent:
            text = f"Slurm started a task, and srun here heard nothing of it for {wait_s:g} s"
            node.task.become(TaskState.SILENT, text)
            self._cut_off(node)
        return True

    def _cut_off(self, node: _Node) -> None:
        """A task runs and cannot call. Whether none at all can is known when all have been waited for."""
        node.progress = Progress.CUT_OFF
        self._waiting.discard(node.id)

    def _without_way_back(self) -> Iterator[SessionEvent]:
        nodes = [node for node in self._nodes.values() if node.progress is Progress.CUT_OFF]
        some = any(n.progress in (Progress.LOGGED_IN, Progress.ANSWERED) for n in self._nodes.values())
        local_fault = Trouble.NETWORK if nodes[1:] and not some else None
        for node in nodes:
            event = self._fail(node, Login.NO_WAY_BACK, node.task.text)
            stage = "connect" if node.task.state is TaskState.CANNOT_CALL else self.stage
            yield replace(event, session=replace(event.session, stage=stage, trouble=local_fault))

    def _outputs(self) -> list[_Stream]:
        return [one for one in self._streams if one.pipe is not getattr(self._process, "stdin", None)]

    def _agent_ended(self, node: _Node, broken: Broken | None = None) -> Iterator[Event]:
        """An agent's connection has ended: with the whole step, it is started again."""
        for stream in self._outputs():  # why it was ended may stand there
            self._pull(stream)
        if self._step.state is StepState.FAILED:
            node.is_open = False
        else:
            yield from super()._agent_ended(node, broken)

    def _due(self, node: _Node, what: Any) -> Iterator[SessionEvent]:
        is_awaited = node.progress is Progress.AWAITED and not node.is_open
        if is_awaited and self._step.state is not StepState.FAILED:
            yield from self._never_called(node)

    def _never_called(self, node: _Node) -> Iterator[SessionEvent]:
        if node.task.state is TaskState.CANNOT_CALL:
            self._cut_off(node)
        else:
            yield self._fail(node, *self._why_ended(node))

    def _note_of(self, node: _Node) -> str:
        return node.slurm_note

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
            self._take(output.line(raw[:LINE_BYTES].decode("utf-8", "replace")))
        if not data:
            self._shut(stream)

    def _shut(self, stream: _Stream) -> None:
        if self._listener is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._listener.selector.unregister(stream.pipe)
        with contextlib.suppress(OSError):
            stream.pipe.close()
        self._streams.remove(stream)

    def _take(self, line: output.Line) -> None:
        """The one place where a line of srun or salloc changes the states of the step and its tasks."""
        step, now = self._step, time.monotonic()
        nodes = [self._by_host[host] for host in line.nodes if host in self._by_host]
        match line.kind:
            case "queued":
                step.become(StepState.QUEUED)
                step.to_cancel, step.ask_at = line.text, now + QUEUED_S
            case "granted":
                step.become(StepState.GRANTED)
                step.to_cancel = line.text
            case "waits":
                step.become(StepState.WAITING, line.text)
            case "launching":
                step.become(StepState.LAUNCHED)
                step.to_cancel = step.to_cancel or line.text
                for node in nodes:
                    node.task.become(TaskState.LAUNCHED)
            case "runs":
                for node in nodes:
                    if node.task.become(TaskState.RUNNING) and step.state is not StepState.FAILED:
                        step.since = now
            case "launch":
                step.become(StepState.FAILED)
                for node in nodes:
                    node.task.become(TaskState.NOT_LAUNCHED, line.text)
            case "exit":
                numbers = line.tasks if len(line.tasks) == len(line.nodes) else [-1] * len(line.nodes)
                number_of = dict(zip(line.nodes, numbers, strict=True))
                for node in nodes:
                    node.task.number = number_of[node.host]
                    node.task.become(TaskState.EXITED, line.text)
                    self._at(now + WORDS_S, node, None)
            case "tried":
                for node in nodes:
                    node.task.become(TaskState.CANNOT_CALL, line.text)
                    self._at(now + WORDS_S, node, None)  # that it ended may never be told, either
            case "cancelled":
                self._cancelled = f"Slurm cancelled the step {line.text.lower()}".strip()
            case "task":
                step.last_lines.setdefault(line.tasks[0], line.text[:TEXT_MAX])
            case "error":
                step.errors.append(line.text[:TEXT_MAX])

    def _why_ended(self, node: _Node) -> tuple[Login, str]:
        """How it was with a task that has ended and never called."""
        task, last_line = node.task, self._step.last_lines.get(node.task.number, "")
        if task.state is TaskState.NOT_LAUNCHED:
            return Login.STEP, task.text
        if old := _OLD.search(last_line):
            return Login.OLD_PYTHON, f"{node.python} is Python {old[1]}, 3.6 or newer is needed"
        how = task.text if task.state is TaskState.EXITED else ""
        if how.endswith(_NO_PROGRAM):
            return Login.INTERPRETER, last_line or f"{node.python}: {how}"
        if self._cancelled:
            return Login.LOST, self._cancelled
        said_last = f": {last_line}" if last_line else ""
        return Login.STEP, f"the task never called: {how or 'it ended'}{said_last}"

    def _why_over(self) -> Iterator[SessionEvent]:
        """The step is over, and no task called from these."""
        step = self._step
        refusal = next((error for error in step.errors if not error.startswith("Job step")), "")
        for node in self._left():
            if node.progress is not Progress.AWAITED:  # it called, and was lost; its answer says so
                continue
            if node.task.state >= TaskState.EXITED or self._cancelled or not refusal:
                yield from self._never_called(node)
            elif _NOT_FREE.search(refusal):
                outcome = Login.BUSY if output.in_turn(step.reason or "None") else Login.CONTROL
                why = f"the request waited for {step.reason}" if step.reason else refusal
                yield self._fail(node, outcome, f"no allocation within {self._options.wait_s:g} s: {why}")
            else:
                yield self._fail(node, Login.CONTROL, f"Slurm refuses: {refusal}")

    # Sessions

    def _left(self) -> list[_Node]:
        """The nodes that a step still has to be started on."""
        return [
            node
            for node in self._nodes.values()
            if not (node.progress.is_over or node.is_open)
            and (self._keep_open or node.progress is not Progress.ANSWERED)
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
        if process.returncode == -signal.SIGKILL and self._step.to_cancel:
            _query(["scancel", self._step.to_cancel], self._options.environ)
        for stream in pipes:
            if self._listener is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._listener.selector.unregister(stream.pipe)
            stream.pipe.close()

    def close(self) -> None:
        """End all sessions, listeners and steps within two seconds."""
        listener, self._listener = self._listener, None
        if listener is not None:
            self._notes.update(listener.notes)
            listener.close()  # agents leave when they see the end, and the step with them
        self._stop()
        for node in self._nodes.values():
            node.is_open = False


def _query(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str, str]:
    """(status, output, what it complained of) of a command of Slurm's."""
    try:
        done = subprocess.run(  # noqa: S603  # names have passed the inventory's rules; no shell
            argv,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=ASKING_S,
            env=output.environment(environ),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, "", f"{argv[0]} took more than {ASKING_S:g} s"
    except OSError as e:
        return 1, "", here.no_process(e)[1]
    return done.returncode, done.stdout.decode("utf-8", "replace"), clean(done.stderr, 300)


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
    path = environ.get("PATH")
    return next((n for n in ("srun", "sinfo", "scontrol") if shutil.which(n, path=path) is None), "")


def partition(name: str, environ: Mapping[str, str]) -> str:
    """The nodes of a partition, folded. Raises TransportInputError where Slurm has none of that name."""
    argv = [*output.SINFO, f"--partition={name}", f"--format={output.FORMAT}"]
    code, text, errors = _query(argv, environ)
    found = output.read_rows(text)
    if code or not found:
        raise TransportInputError(
            f"--partition {name}: {errors or 'Slurm has no nodes in it; sinfo -s lists them'}"
        )
    return fold(list(found), None)
