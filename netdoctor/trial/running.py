"""Runs a trial: starts a job's command on its nodes, follows it, and ends it everywhere."""

import base64
import binascii
import math
import re
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from typing import Any

import msgspec

from netdoctor.facts.base import Missing
from netdoctor.facts.host import Login
from netdoctor.inventory import Target
from netdoctor.launch.starting import Commands
from netdoctor.measure.common import read_as, replies
from netdoctor.text import clean
from netdoctor.transport.base import OWN_WORKER, Request, SessionEvent, Transport
from netdoctor.trial.following import Event, Follower, RunState, Stack
from netdoctor.trial.judging import HANGS_MOST_S, Ended, judge, may_go_on, signal_of
from netdoctor.trial.logs import Logs

START_S = 45.0
POLL_S = 1.0
ANSWER_S = 12.0
GRACE_S = 5.0
# Behind the grace: what a node's keeper takes to kill, and the agent to say so.
ENDING_S = 15.0
# After the first process that ends badly: what the others say of it.
ECHO_S = 3.0
# The largest piece of output that an answer may hold.
PIECE_MAX = 8 << 20
LOOK_EVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a trial goes. seconds: how long the job may run. steps: or so many of them, None for any number.
    cwd: where it is started. step: a pattern of log lines, its group 1 the number of a step. probe: whether
    Python processes say how far they are. env: of the job, on every node."""

    seconds: float
    cwd: str
    steps: int | None = None
    step: re.Pattern[bytes] | None = None
    probe: bool = True
    env: Mapping[str, str]


class _Output(msgspec.Struct):
    data: str = ""
    left_out: int = 0


class _Swept(msgspec.Struct):
    swept: int = 0
    left: list[str] = []


class _Answer(msgspec.Struct):
    """What `trial_poll` and `trial_end` of an agent say."""

    outputs: list[_Output] = []
    events: list[Any] = []
    runs: list[RunState | None] = []
    more: bool = False
    over: bool = False
    swept: _Swept | None = None
    seconds: float = 0.0
    addresses: list[tuple[str, str, int]] = []


class Trial:
    """One job on its nodes. Sessions are the transport's; `run` opens and leaves them."""

    def __init__(
        self,
        transport: Transport,
        targets: Sequence[Target],
        commands: Commands,
        terms: Terms,
        logs: Logs,
        update: Callable[[Follower, float], None] = lambda follower, seconds: None,
    ) -> None:
        """update: is called after each round of answers, with the seconds since the start."""
        self.transport = transport
        self.targets = tuple(targets)
        self.commands = commands
        self.terms = terms
        self.logs = logs
        self.update = update
        self.session = f"t{secrets.token_hex(8)}"
        nodes = [target.id for target in targets]
        self.follower = Follower(nodes, [len(commands.runs[node]) for node in nodes], terms.step)
        self.began = 0.0
        self.looked = 0.0
        self.shifts: dict[str, float] = {}  # when each node started the job, on the clock of `seconds`
        self.took = 0.0

    @property
    def seconds(self) -> float:
        """How long the job has run."""
        return time.monotonic() - self.began if self.began else 0.0

    def run(self) -> Ended:
        """All of it. What is lost, and what failed, is in `follower`.

        A KeyboardInterrupt ends the job everywhere and is an answer: Ended.INTERRUPT.
        """
        ended = Ended.INTERRUPT
        try:
            if self._connect():
                self.began = time.monotonic()
                self._start()
                ended = self._follow()
                if judge(self.follower, ended, self.seconds).hangs:
                    self._ask_where()
            else:
                ended = Ended.JOB
        except KeyboardInterrupt:
            pass
        finally:
            self.took = self.seconds
            self._end()
            self._note_signals()
            self.transport.close()
            self.logs.close()
        return ended

    def _connect(self) -> bool:
        """Log in everywhere; say whether all nodes are there. Nothing is started where one is not."""
        request = Request(op="ping", timeout_s=20.0)
        bound_s = self.transport.bound_s(self.targets)
        deadline_s = (
            bound_s + START_S + self.terms.seconds + ECHO_S + GRACE_S + 2 * ENDING_S + ANSWER_S + HANGS_MOST_S
        )
        first = {target.id: request for target in self.targets}
        for event in self.transport.start(
            self.targets, first, keep_open=True, collectors={}, deadline_s=deadline_s
        ):
            if isinstance(event, SessionEvent):
                why = clean(event.session.detail or str(event.session.outcome), 300)
                if event.session.outcome == Login.CONTROL:
                    self.follower.own_fault = why
                elif event.session.outcome != Login.OK:
                    self.follower.lost[event.node] = f"no login: {why}"
            elif event.missing is not None:
                self._lose(event.node, "no answer", event.missing)
        return not (self.follower.lost or self.follower.own_fault)

    def _lose(self, node: str, what: str, missing: Missing | None) -> None:
        """Note that a node cannot be asked, or that we cannot ask."""
        text = clean(missing.detail if missing is not None else "the answer could not be read", 300)
        if text.startswith(OWN_WORKER):
            self.follower.own_fault = self.follower.own_fault or text
        else:
            self.follower.lost[node] = f"{what}: {text}"

    def _start(self) -> None:
        programs = resources.files("netdoctor.agent.programs")
        keeper, probe = (programs.joinpath(f"{name}.py").read_text("utf-8") for name in ("keeper", "probe"))
        requests = {}
        for target in self.targets:
            node = target.id
            env = {**self.commands.env[node], **self.terms.env}
            args = {
                "session": self.session,
                "runs": [{"argv": run.argv, "env": run.env} for run in self.commands.runs[node]],
                "env": env,
                "cwd": self.terms.cwd,
                "keeper": keeper,
                "probe": probe if self.terms.probe else None,
                "grace_s": GRACE_S,
                "bin": _folder(target.python),
            }
            requests[node] = Request(op="trial", args=args, timeout_s=START_S)
        for reply in replies(self.transport, requests):
            if reply.missing is not None:
                self._lose(reply.node, "could not start it", reply.missing)
            else:
                runs = reply.result.get("runs") if isinstance(reply.result, dict) else None
                self._take_runs(reply.node, read_as(runs, list[RunState | None]) or [])

    def _follow(self) -> Ended:
        """Poll until something ends the trial."""
        bad_since: float | None = None
        while True:
            if self.follower.own_fault:
                return Ended.JOB
            if self.follower.bad() or self.follower.lost:
                bad_since = bad_since or time.monotonic()
                if time.monotonic() - bad_since >= ECHO_S or self.follower.is_over:
                    return Ended.JOB
            elif self.follower.is_over:
                return Ended.JOB
            elif self.seconds >= self.terms.seconds and not may_go_on(self.follower, self.seconds):
                return Ended.TIME
            elif self.terms.steps is not None and self.follower.steps() >= self.terms.steps:
                return Ended.STEPS
            self._poll()
            self.update(self.follower, self.seconds)

    def _poll(self) -> None:
        began = time.monotonic()
        look = self.seconds - self.looked >= LOOK_EVERY_S or (self.follower.steps_seen and not self.looked)
        self.looked = self.seconds if look else self.looked
        args = {"session": self.session, "wait_s": POLL_S, "look": look}
        request = Request(op="trial_poll", args=args, timeout_s=POLL_S + ANSWER_S)
        for reply in replies(self.transport, dict.fromkeys(self._open(), request)):
            if reply.missing is not None:
                self._lose(reply.node, "no answer", reply.missing)
            else:
                self._take(reply.node, reply.result)
        # Also where an agent answers at once what it should have waited with.
        time.sleep(max(0.0, min(0.1, began + 0.1 - time.monotonic())))

    def _ask_where(self) -> None:
        """Ask the ranks of a job that hangs where they are."""
        request = Request(op="trial_stacks", args={"session": self.session}, timeout_s=ANSWER_S)
        for reply in replies(self.transport, dict.fromkeys(self._open(), request)):
            found = reply.result.get("stacks") if isinstance(reply.result, dict) else None
            for stack in read_as(found, list[Stack]) or []:
                self.follower.stack(reply.node, stack)

    def _open(self) -> list[str]:
        return [node for node in self.follower.nodes if node not in self.follower.lost]

    def _take(self, node: str, result: Any) -> bool:
        """Take an agent's answer; say whether there is more to fetch."""
        answer = read_as(result, _Answer)
        if answer is None:
            self._lose(node, "no answer", None)
            return False
        shift_s = min(self.seconds - answer.seconds, self.shifts.get(node, math.inf)) if self.began else 0.0
        self.shifts[node] = shift_s
        for index, output in enumerate(answer.outputs[: len(self.follower.processes[node])]):
            self._take_output(node, index, output)
        for raw in answer.events[:5000]:
            if (event := read_as(raw, Event)) is not None:
                self.follower.event(node, event, shift_s)
        self._take_runs(node, answer.runs)
        if answer.swept is not None:
            self.follower.swept[node] = answer.swept.swept
            if answer.swept.left:
                self.follower.left[node] = [clean(name, 40) for name in answer.swept.left[:8]]
        for address, _, count in answer.addresses[:64]:
            addresses = self.follower.addresses.setdefault(node, {})
            addresses[clean(address, 60)] = max(count, addresses.get(clean(address, 60), 0))
        return answer.more

    def _take_output(self, node: str, index: int, output: _Output) -> None:
        data = b""
        if output.data:
            with suppress(binascii.Error, zlib.error, ValueError):
                data = zlib.decompressobj().decompress(base64.b64decode(output.data), PIECE_MAX)
        left_out = max(0, output.left_out)
        if data or left_out:
            processes = self.follower.processes[node]
            processes[index].left_out += left_out
            self.logs.write(self.logs.path(node, index, len(processes)), data, left_out)
            self.follower.output(node, index, data, self.seconds)

    def _note_signals(self) -> None:
        """Say in its log which signal ended a process, as a shell would: for those who explain the log.

        Not SIGKILL, which says nothing of who sent it.
        """
        for process in self.follower.bad():
            if (name := signal_of(process)) not in (None, "SIGKILL"):
                path = self.logs.path(process.node, process.index, len(self.follower.processes[process.node]))
                self.logs.write(path, f"[netdoctor: terminated with signal {name}]\n".encode())

    def _take_runs(self, node: str, runs: Iterable[RunState | None]) -> None:
        for index, state in enumerate(list(runs)[: len(self.follower.processes[node])]):
            if state is not None:
                self.follower.run(node, index, state, self.shifts.get(node, 0.0))

    def _end(self) -> None:
        """End the job on every node that can be asked, and fetch the rest of its output."""
        args = {"session": self.session}
        timeout_s = GRACE_S + ENDING_S
        left = dict.fromkeys(self.follower.nodes, Request(op="trial_end", args=args, timeout_s=timeout_s))
        if not self.began:
            return
        self.follower.closing = True
        for _ in range(8):
            if not left:
                break
            more = []
            for reply in replies(self.transport, left):
                if reply.missing is None and self._take(reply.node, reply.result):
                    more.append(reply.node)
            left = dict.fromkeys(
                more, Request(op="trial_poll", args={**args, "wait_s": 0}, timeout_s=ANSWER_S)
            )


def _folder(python: str | None) -> str | None:
    """The folder of an interpreter that is named by its path: the commands of its environment lie there."""
    return python.rpartition("/")[0] if python and python.startswith("/") else None
