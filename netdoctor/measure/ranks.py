"""Ranks of a torch experiment on several nodes: started together, led step by step, ended together.

A rank that dies, freezes, or cannot reach the others is told from those that only wait for it: by how its
process ended, by its heartbeat, and by how far it came. Nothing here waits without a bound.
"""

import re
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

import msgspec

from netdoctor.facts.bandwidth import RankFault, RankTrouble
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.software import Job
from netdoctor.measure.common import Caller, read_as, reason, replies, token
from netdoctor.transport.base import Request

# Importing torch takes a second where it is cached, and many from a busy network file system.
IMPORT_S = 90.0
# How long one store operation or one collective may take; a healthy one of ours takes seconds at most. More
# with every rank: the store answers one after the other, each connects to the others, a ring passes all.
TIMEOUT_S = 15.0
COLLECTIVE_S = 30.0
RANK_S = 0.02
POLL_S = 1.0
# Between two questions to the same agents, also where one answers at once what it should have waited with.
PAUSE_S = 0.2
# A rank says twice a second that it lives. Importing holds the interpreter's lock for seconds at a time.
SILENT_S = 5.0
SILENT_IMPORT_S = 30.0
# After the first failure: who only echoes it says so soon.
ECHO_S = 1.5
SPAWN_S = 15.0
ENDING_S = 6.0
# A question to an agent about its ranks is given up so long after it should have been answered.
ANSWER_S = SILENT_S + 1.0
# The longest that starting, joining and ending may take, each with a look at who is to blame.
LOOK_S = POLL_S + ANSWER_S + ECHO_S + 0.2 + ANSWER_S
START_S = SPAWN_S + IMPORT_S + LOOK_S
STOP_S = 0.3 + ANSWER_S + ENDING_S + LOOK_S
# As much as an agent keeps. torch writes why it aborts above two stack traces.
STDERR_CHARS = 8192

# What ranks get of the environment that the user says the job has.
_PASSED_ON = re.compile(r"(NCCL|GLOO|UCX|FI|CUDA|TORCH_NCCL|TP)_\w+\Z|LD_LIBRARY_PATH\Z|LD_PRELOAD\Z")

# How far from the root a rank is that only tells of another's trouble; smaller is nearer.
ECHO = 4
# What a rank says when another one went away, or did not come: gloo, the store, torch's ProcessGroupNCCL
# (getNcclErrorDetailStr, the watchdog), NCCL itself (socketProgress), gloo in a collective that somebody else
# did not enter ("Timed out waiting 30000ms for recv operation to complete", unbound_buffer.cc).
ECHOES = re.compile(
    r"closed by (remote )?peer|connection reset|broken pipe|wait timeout|ncclRemoteError"
    r"|Timed out waiting \d+ms for (recv|send) operation"
    r"|remote process exited|watchdog caught collective operation timeout|retrieving ncclUniqueId",
    re.IGNORECASE,
)
# NCCL dialled somebody who did not answer.
_DIAL = re.compile(r"connect to \S+ (returned|failed)")
# What the store's server in rank 0 dies of when there are more connections than descriptors.
_FILES = re.compile(r"Too many open files")
# The GPU or its driver, as torch and NCCL put it. A peer that goes away does not cause it.
_DEVICE = re.compile(r"CUDA error|CUDA out of memory|Cuda failure|unhandled cuda error|CUDA driver error")


def passed_on(job: Job) -> dict[str, str]:
    """What ranks get of the job's environment."""
    return {name: value for name, value in job.env.items() if _PASSED_ON.match(name)}


def store_s(world: int) -> float:
    """How long one operation of the store may take with so many ranks, and so reaching it."""
    return TIMEOUT_S + world * RANK_S


def collective_s(world: int) -> float:
    """How long one collective may take with so many ranks."""
    return COLLECTIVE_S + world * RANK_S


def join_s(world: int) -> float:
    """The longest that joining so many ranks may take."""
    return TIMEOUT_S + 5.0 + 2 * store_s(world) + LOOK_S


@cache
def program() -> str:
    """The text that every rank runs."""
    return resources.files("netdoctor.agent.programs").joinpath("rank.py").read_text("utf-8")


class Failed(Exception):
    """Ranks did not do their part. troubles: those to blame first; the others echo it."""

    def __init__(self, troubles: Sequence[RankTrouble]) -> None:
        super().__init__("; ".join(f"{t.node}: {t.what}" for t in troubles))
        self.troubles = tuple(troubles)


def pause(began: float, end: float) -> None:
    """Wait before agents are asked again; began, end: of the last question and of all, monotonic seconds."""
    time.sleep(max(0.0, min(began + PAUSE_S, end) - time.monotonic()))


class Event(msgspec.Struct):
    """A line that a rank said."""

    event: str
    stage: str = ""
    step: int | None = None
    done: int = 0
    result: Any = None
    kind: str = ""
    text: str = ""
    name: str | None = None
    torch: str = ""
    dialling: list[tuple[str, int]] = []


class ProcessState(msgspec.Struct):
    """What an agent says about one of its ranks."""

    running: bool
    code: int | None = None
    state: str | None = None
    silent_s: float = 0.0
    events: list[Any] = []
    stderr: str = ""


@dataclass(slots=True)
class Rank:
    """What is known of one rank."""

    node: str
    number: int
    stage: str = "start"
    running: bool = True
    code: int | None = None
    silent_s: float = 0.0
    stopped: int = 0  # how often it was seen stopped by a signal, one after the other
    error: Event | None = None
    stderr: str = ""
    torch: str = ""
    dialling: list[tuple[str, int]] = field(default_factory=list)
    results: dict[int, Any] = field(default_factory=dict)

    def take(self, state: ProcessState) -> None:
        self.running, self.code, self.silent_s = state.running, state.code, state.silent_s
        self.stopped = self.stopped + 1 if state.state in ("T", "t") else 0
        self.stderr = state.stderr[-STDERR_CHARS:] or self.stderr
        for raw in state.events[:5000]:
            event = read_as(raw, Event)
            if event is None:
                continue
            if event.event in ("stage", "alive"):
                self.stage = event.stage[:40]
                self.dialling = event.dialling
            elif event.event == "imported":
                self.stage, self.torch = "imported", event.torch[:60]
            elif event.event == "error" and self.error is None:
                self.error = event
            elif event.event == "result" and event.step is not None:
                self.results[event.step] = event.result


class Ranks:
    """All ranks of one experiment.

    layout: node of each rank, ranks of a node next to each other. limit_s: when a rank ends by itself,
    whatever happens here.
    """

    def __init__(
        self,
        transport: Caller,
        layout: Sequence[str],
        addresses: Mapping[str, str],
        backend: str,
        environments: Mapping[str, Mapping[str, str]],
        limit_s: float = 600.0,
    ) -> None:
        self.transport = transport
        self.ranks = [Rank(node, number) for number, node in enumerate(layout)]
        self.nodes = tuple(dict.fromkeys(layout))
        self._by_node: dict[str, list[Rank]] = {node: [] for node in self.nodes}
        for rank in self.ranks:
            self._by_node[rank.node].append(rank)
        self.addresses = addresses
        self.backend = backend
        self.environments = environments
        self.limit_s = limit_s
        self.session = token()[:16]
        self.number = 0
        self.lost: dict[str, str] = {}
        self.port_busy: str | None = None
        self.port = 0
        self.end = 0.0

    def on_node(self, node: str) -> list[Rank]:
        return self._by_node[node]

    def start(self) -> None:
        """Start every rank and wait until torch is imported everywhere. Raises Failed."""
        requests = {}
        for node in self.nodes:
            configs = [
                {"rank": rank.number, "world": len(self.ranks), "backend": self.backend, "device": device}
                for device, rank in enumerate(self.on_node(node))
            ]
            requests[node] = Request(
                op="spawn",
                args={
                    "session": self.session,
                    "code": program(),
                    "ranks": configs,
                    "env": dict(self.environments.get(node, {})),
                    "seconds": self.limit_s,
                    "gentle": self.backend == "nccl",
                },
                timeout_s=SPAWN_S,
            )
        for reply in replies(self.transport, requests):
            if reply.missing is not None:
                self.lost[reply.node] = reason(reply)
        if self.lost:
            raise Failed([self._silent(node, "start") for node in self.lost])
        self._lead(None, "imported", IMPORT_S)

    def join(self, address: str, port: int) -> None:
        """Open the store on rank 0's node and form the group. Raises Failed."""
        common: dict[str, Any] = {
            "address": address,
            "store_s": store_s(len(self.ranks)),
            "group_s": collective_s(len(self.ranks)),
            "name": self.session,
        }
        first = [self.ranks[0].node]
        found = self.step("host", TIMEOUT_S + 5.0, first, port=port, **common)
        result = found[0] if isinstance(found[0], dict) else {}
        number = result.get("port")
        if not isinstance(number, int) or not 0 < number < 65536:
            raise Failed(
                [RankTrouble(node=first[0], rank=0, what=RankFault.ERROR, detail="no port", during="store")]
            )
        self.port, busy = number, result.get("busy")
        self.port_busy = str(busy)[:200] if busy else None
        # Gloo waits five times its time-out for an answer to a connect (pair.h waitUntil): we do not.
        self.step("join", 2 * store_s(len(self.ranks)), port=number, **common)

    def step(
        self,
        do: str,
        timeout_s: float,
        nodes: Iterable[str] | None = None,
        per_node: Mapping[str, Mapping[str, Any]] | None = None,
        **args: Any,
    ) -> list[Any]:
        """Have the ranks do something; the result of each, None for those not asked. Raises Failed.

        per_node: arguments for the ranks of one node each. What names many ranks belongs there: sent to all
        nodes, it grows with the square of the world.
        """
        self.number += 1
        self._lead(
            {"do": do, "step": self.number, **args}, str(self.number), timeout_s, nodes, per_node or {}
        )
        return [rank.results.get(self.number) for rank in self.ranks]

    def stop(self) -> None:
        """End every rank, whatever it does."""
        if self.ranks and all(rank.running for rank in self.ranks) and not self.lost:
            self._ask({n: self._converse({"do": "end", "step": 0}, "never", 0.3) for n in self.nodes})
        requests = {
            n: Request(op="stop", args={"session": self.session}, timeout_s=ENDING_S)
            for n in self.nodes
            if n not in self.lost
        }
        for _ in replies(self.transport, requests):
            pass

    def _converse(self, say: Mapping[str, Any] | None, until: str, wait_s: float) -> Request:
        return Request(
            op="converse",
            args={"session": self.session, "say": say, "until": until, "wait_s": wait_s},
            timeout_s=wait_s + ANSWER_S,
        )

    def _ask(self, requests: Mapping[str, Request]) -> set[str]:
        """Nodes whose ranks have all said the word."""
        done = set()
        for reply in replies(self.transport, requests):
            if reply.missing is not None:
                self.lost[reply.node] = reason(reply)
                continue
            result = reply.result if isinstance(reply.result, dict) else {}
            local = self.on_node(reply.node)
            states = read_as(result.get("ranks"), list[ProcessState])
            if states is None or len(states) != len(local):
                self.lost[reply.node] = "the answer could not be read"
                continue
            for rank, one in zip(local, states, strict=True):
                rank.take(one)
            if result.get("done") is True:
                done.add(reply.node)
        return done

    def _lead(
        self,
        say: dict[str, Any] | None,
        until: str,
        timeout_s: float,
        nodes: Iterable[str] | None = None,
        per_node: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        waiting = dict.fromkeys(self.nodes if nodes is None else nodes)
        self.end = end = time.monotonic() + timeout_s
        while waiting:
            began = time.monotonic()
            wait_s = min(POLL_S, max(end - began, 0.05))
            commands = {n: say and {**say, **per_node.get(n, {})} for n in waiting}
            done = self._ask({n: self._converse(commands[n], until, wait_s) for n in waiting})
            say = None
            for node in done:
                waiting.pop(node, None)
            if waiting and self._is_bad(waiting):
                self._echoes(waiting)
                raise Failed(self._blame(waiting, until))
            if waiting and time.monotonic() >= end:
                raise Failed(self._blame(waiting, until))
            if waiting:
                pause(began, end)

    def _is_bad(self, nodes: Iterable[str]) -> bool:
        return any(n in self.lost for n in nodes) or any(
            not rank.running or rank.error is not None or self._is_frozen(rank)
            for n in nodes
            for rank in self.on_node(n)
        )

    def _is_frozen(self, rank: Rank) -> bool:
        limit = SILENT_IMPORT_S if rank.stage in ("start", "import") else SILENT_S
        # Stopped twice in a row: a debugger may stop a process for a moment.
        return rank.running and (rank.stopped >= 2 or rank.silent_s > limit)

    def _echoes(self, nodes: Iterable[str]) -> None:
        """Look once more, so that a rank that was killed is not hidden behind those that noticed first."""
        nodes_left = [n for n in nodes if n not in self.lost]
        end = time.monotonic() + ECHO_S
        while nodes_left and time.monotonic() < end:
            self._ask({n: self._converse(None, "never", 0.2) for n in nodes_left})
            nodes_left = [n for n in nodes_left if n not in self.lost]
            if all(not rank.running for n in nodes_left for rank in self.on_node(n)):
                return
            time.sleep(0.2)

    def _silent(self, node: str, during: str) -> RankTrouble:
        return RankTrouble(
            node=node,
            rank=self.on_node(node)[0].number,
            what=RankFault.SILENT,
            detail=self.lost[node],
            during=during,
        )

    def _blame(self, waiting: Iterable[str], until: str) -> list[RankTrouble]:
        """Who did not do its part, those at the root of it first and marked so."""
        found: list[tuple[int, RankTrouble]] = []
        late: list[RankTrouble] = []
        for node in waiting:
            if node in self.lost:
                found.append((1, self._silent(node, self.on_node(node)[0].stage)))
                continue
            for rank in self.on_node(node):
                weight, fault, detail = self._state(rank, time.monotonic() >= self.end)
                one = RankTrouble(
                    node=node, rank=rank.number, what=fault, detail=detail[:400], during=rank.stage
                )
                if weight is not None:
                    found.append((weight, one))
                elif not self._is_through(rank, until):
                    late.append(one)
        root = min((weight for weight, _ in found), default=ECHO)
        if root == ECHO and late:
            # Alive and waiting: those that came least far are the ones that the others wait for.
            order = ("start", "import", "imported", "store", "peers", "group", "mesh", "ready")
            far = [order.index(t.during) if t.during in order else len(order) for t in late]
            behind = [replace(t, first=f == min(far)) for t, f in zip(late, far, strict=True)]
            return [*behind, *(replace(one, first=False) for _, one in found)]
        return [replace(one, first=weight == root) for weight, one in sorted(found, key=lambda item: item[0])]

    @staticmethod
    def _is_through(rank: Rank, until: str) -> bool:
        if until == "imported":
            return rank.stage not in ("start", "import")
        return until in {str(step) for step in rank.results}

    def _state(self, rank: Rank, late: bool) -> tuple[int | None, RankFault, str]:
        """(weight, fault, detail): a smaller weight is nearer to the root, None is alive and well."""
        error = rank.error
        if error is not None and error.stage in ("import", "device"):
            return 0, RankFault(error.stage), f"{error.kind}: {error.text}"
        if not rank.running and error is None:
            return _ended(rank)
        if self._is_frozen(rank):
            text = (
                "its process is stopped"
                if rank.stopped >= 2
                else f"no sign of life for {rank.silent_s:.0f} s"
            )
            return 1, RankFault.FROZEN, text
        if error is not None:
            fault = _STAGE_FAULTS.get(error.stage, RankFault.ERROR)
            detail = f"{error.kind}: {error.text}"
            if _DEVICE.search(error.text):
                return 1, RankFault.DEVICE, detail
            if _DIAL.search(error.text):
                return 2, RankFault.CONNECT, detail
            echo = error.stage == "peers" or ECHOES.search(error.text)
            return (ECHO if echo else 2), fault, detail
        if late and rank.dialling:
            ends = dict.fromkeys(rank.dialling)
            names = {address: node for node, address in self.addresses.items()}
            text = ", ".join(f"{names.get(a, a)} ({a}:{port})" for a, port in list(ends)[:4])
            return 3, RankFault.CONNECT, f"no answer from {text}"
        return None, RankFault.STUCK, f"still waiting in stage {rank.stage}"


_STAGE_FAULTS = {"store": RankFault.STORE, "group": RankFault.CONNECT, "mesh": RankFault.CONNECT}
_ABORTS = (
    (_FILES, 0, RankFault.FILES),
    (_DEVICE, 1, RankFault.DEVICE),
    (_DIAL, 2, RankFault.CONNECT),
    (ECHOES, ECHO, RankFault.ERROR),
)


def _ended(rank: Rank) -> tuple[int, RankFault, str]:
    """(weight, fault, detail) of a process that is gone without a word of its own."""
    lines = _lines(rank.stderr)
    if rank.code == -signal.SIGABRT:
        # torch ends the process of a rank whose NCCL operations fail, mostly because of another rank.
        for pattern, weight, fault in _ABORTS:
            last = next((line for line in lines if pattern.search(line)), None)
            if last is not None:
                return weight, fault, last
    if rank.code is not None and rank.code < 0:
        return 0, RankFault.KILLED, f"its process was killed by signal {-rank.code}"
    return 0, RankFault.EXITED, how_it_ended(rank)


def how_it_ended(process: Rank | ProcessState) -> str:
    """The status of a process that is gone, and the last line that it wrote."""
    last = _lines(process.stderr)[-1:]
    return " ".join((f"its process ended with status {process.code}", *last))[:400]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def only_import(troubles: Sequence[RankTrouble]) -> bool:
    """Whether torch is there and has nothing to compute with (a stand-in, a build without distributed)."""
    return bool(troubles) and all(
        t.what == RankFault.IMPORT and ("torch.distributed" in t.detail or "without distributed" in t.detail)
        for t in troubles
    )


NO_DISTRIBUTED = Missing(Why.NOT_EXAMINED, "the nodes' torch has no torch.distributed")
