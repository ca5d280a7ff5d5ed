"""What is known of a tried job's processes and ranks, from what probes and logs say. No I/O."""

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from netdoctor.measure.ranks import ECHOES
from netdoctor.text import clean

LINE_MAX = 1 << 16
# Nothing that is looked for stands further behind; every line is looked at, whoever wrote it.
LOOKED_AT = 1000
TAIL_LINES = 20
RANKS_MAX = 100_000
# gpu7:123:456 [0] NCCL INFO comm 0x5 rank 3 nranks 8 cudaDev 0 ... - Init COMPLETE
_NCCL = re.compile(rb"NCCL INFO .*\brank (\d{1,6}) nranks (\d{1,6})\b.* Init COMPLETE")
# NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>; NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
# NCCL 2.28 without a device: "NET/IB : Using [RO]; OOB eth0:10.0.0.1<0>".
_NET = re.compile(rb"NCCL INFO NET/(IB|Socket|OFI|[\w-]{1,20}) : Using (?!(?:\[RO\])?;)(.{1,400})")
# iteration 12, step=12, "global_step": 12, iter 12: the counters of training loops.
_STEP = re.compile(
    rb"(?<![A-Za-z])(?:global[ _]?)?(?:step|iteration|iter)['\"]?\s{0,8}[:=#\[]?\s{0,12}(\d{1,9})(?![\w.])",
    re.IGNORECASE,
)
# [rank3]: ValueError: ..., torch.distributed.DistBackendError: ...
_ERROR = re.compile(
    rb"^(?:\[[\w-]{1,20}\]:? {0,4}){0,3}(?:[A-Za-z_]\w{0,80}\.){0,8}\w{0,80}(?:Error|Exception)\b"
)
# Launchers' own words about a rank of theirs, which say nothing of who began.
_OF_LAUNCHER = re.compile(rb"ChildFailedError|SignalException|RendezvousClosedError|CalledProcessError")
# torchrun's summary:   exitcode  : -9 (pid: 1234)
_KILLED = re.compile(rb"^ {0,8}exitcode {0,8}: -9\b")


class Event(msgspec.Struct):
    """What a probe says of its process. Untrusted."""

    what: str = ""
    rank: int | None = None
    pid: int = 0
    world: int = 0
    meets: str = ""
    backend: str = ""
    count: int = 0
    at: float = 0.0
    heard_s: float = 0.0


class RunState(msgspec.Struct):
    """What a keeper says of a process that it started. Untrusted."""

    state: str = ""
    code: int | None = None
    errno: int | None = None
    what: str = ""
    at_s: float = 0.0
    pid: int = 0


class Stack(msgspec.Struct):
    """Where a process is. Untrusted. text: of faulthandler, the innermost call first."""

    pid: int = 0
    state: str = ""
    text: str = ""


# File "/home/ann/train.py", line 72 in main
_FRAME = re.compile(r'File "([^"\n]{1,400})", line (\d{1,9}) in (\S{1,200})')
_LIBRARIES = ("/netdoctor-try-", "/site-packages/", "/dist-packages/", "/torch/", "<frozen", "/lib/python")
_C10D = "/torch/distributed/distributed_c10d.py"


STOPPED = "stopped by a signal"


def place_of(stack: Stack) -> str:
    """Where a process is in few words: the job's own innermost call, and the library's that it is in."""
    if stack.state in ("T", "t"):
        return STOPPED
    frames = [(file, line, name) for file, line, name in _FRAME.findall(stack.text)]
    frame = next((f for f in frames if not any(mark in f[0] for mark in _LIBRARIES)), None)
    if not frames:
        return ""
    file, line, name = frame or frames[0]
    inner = f"{frames[0][2]}, " if frame and frames[0] != frame else ""
    return clean(f"{inner}{name} ({file.rpartition('/')[2]}:{line})", 120)


def collective_of(stack: Stack) -> str:
    """The function of torch.distributed that a process is in; "" for none."""
    calls = [name for file, _, name in _FRAME.findall(stack.text) if file.endswith(_C10D)]
    return clean(calls[-1], 60) if calls else ""


@dataclass(slots=True)
class Rank:
    """One rank. Times in seconds since its node started the job."""

    number: int
    node: str
    # All nodes that have a rank of this number: where each has a group of its own, every node has a rank 0.
    nodes: set[str] = field(default_factory=set)
    waits_s: float | None = None  # when it called init_process_group
    given_world: int = 0  # its WORLD_SIZE then, and MASTER_ADDR:MASTER_PORT; where it goes by these
    meets: str = ""
    joined_s: float | None = None
    world: int = 0
    backend: str = ""
    first_step_s: float | None = None
    last_step_s: float | None = None
    longest_s: float = 0.0  # a step, the mean of those that were heard of together
    place_now: str = ""  # where it was at the end, if it was asked: ``barrier (job.py:72)``
    collective_now: str = ""  # the one that it is in then: ``barrier``
    steps: int = 0
    _first: tuple[int, float] | None = None
    _last: tuple[int, float] | None = None

    def step(self, count: int, at: float, heard_s: float) -> None:
        """A step has ended. at: by the rank's own monotonic clock."""
        if count < self.steps:
            return
        if self.first_step_s is None:
            self.first_step_s = heard_s
        elif self.last_step_s is not None:
            each_s = (heard_s - self.last_step_s) / max(1, count - self.steps)
            self.longest_s = max(self.longest_s, each_s)
        self.steps, self.last_step_s = count, heard_s
        self._first = self._first or (count, at)
        self._last = (count, at)

    @property
    def rate(self) -> float | None:
        """Steps a second, the first one aside; None before there are two."""
        if self._first is None or self._last is None or self._last[0] <= self._first[0]:
            return None
        took = self._last[1] - self._first[1]
        return (self._last[0] - self._first[0]) / took if took > 0 else None


@dataclass(slots=True)
class Process:
    """One process that was started on a node: a launcher, or a rank."""

    node: str
    index: int
    state: str = ""  # of RunState; "" before it was started
    code: int | None = None
    errno: int | None = None
    what: str = ""
    ended_s: float | None = None
    tail: list[str] = field(default_factory=list)
    echoes: bool = False  # it printed an error that only tells of another process
    raises: bool = False  # or one of its own
    error: str = ""  # the last of these
    kills: bool = False  # its launcher says that a rank was killed
    left_out: int = 0  # bytes of its output that nobody has
    _partial: bytes = b""

    @property
    def is_killed(self) -> bool:
        """Whether it, or a rank that it started, was killed by somebody or by the kernel."""
        return self.kills or self.code in (-signal.SIGKILL, 128 + signal.SIGKILL)

    @property
    def is_bad(self) -> bool:
        return self.state == "failed" or (self.state == "ended" and self.code != 0)


@dataclass(slots=True)
class Counted:
    """Steps that a node's log counts. Times as of `Rank`. longest_s: between two lines that count them."""

    first: int
    first_s: float
    last: int
    last_s: float
    longest_s: float = 0.0


class Follower:
    """Everything known of a job that is being tried."""

    def __init__(
        self, nodes: Iterable[str], runs: Iterable[int], step: re.Pattern[bytes] | None = None
    ) -> None:
        """runs: how many processes each node starts. step: the user's pattern, its group 1 the number."""
        self.nodes = tuple(nodes)
        self.processes = {
            node: [Process(node, index) for index in range(count)]
            for node, count in zip(self.nodes, runs, strict=True)
        }
        self.ranks: dict[int, Rank] = {}
        self._by_pid: dict[tuple[str, int], Rank] = {}
        self.lost: dict[str, str] = {}
        self.own_fault = ""  # what netdoctor itself could not do
        self.swept: dict[str, int] = {}
        self.left: dict[str, list[str]] = {}
        self.networks: dict[str, dict[str, int]] = {}  # what NCCL says it uses, by node
        self.addresses: dict[str, dict[str, int]] = {}  # own address, by node, with its connections
        self.probed = False
        self.log_steps: dict[str, Counted] = {}  # by node
        self.closing = False  # netdoctor ends the job: how processes end from now on says nothing
        self._step = step
        self._own_step = step is not None

    def event(self, node: str, event: Event, shift_s: float = 0.0) -> None:
        """Take a report of a probe. shift_s: when the node started the job, on the clock of the trial."""
        number = event.rank
        if number is None or not 0 <= number < RANKS_MAX:
            return
        self.probed = True
        heard_s = event.heard_s + shift_s
        rank = self.ranks.setdefault(number, Rank(number, node))
        rank.nodes.add(node)
        self._by_pid[node, event.pid] = rank
        if event.what == "waits" and rank.waits_s is None:
            rank.waits_s = heard_s
            rank.given_world, rank.meets = event.world, clean(event.meets, 120)
        elif event.what == "joined" and rank.joined_s is None:
            rank.waits_s = heard_s if rank.waits_s is None else rank.waits_s
            rank.joined_s, rank.world = heard_s, event.world
            rank.backend = clean(event.backend, 40)
        elif event.what == "step":
            rank.step(event.count, event.at, heard_s)

    def run(self, node: str, index: int, state: RunState, shift_s: float = 0.0) -> None:
        """Take how a process is, by its keeper. shift_s: as for `event`."""
        process = self.processes[node][index]
        if self.closing:
            return
        process.state, process.code, process.errno = state.state, state.code, state.errno
        process.what = clean(state.what, 40)
        if state.state in ("ended", "failed") and process.ended_s is None:
            process.ended_s = state.at_s + shift_s

    def stack(self, node: str, stack: Stack) -> None:
        """Take where a process of a node is."""
        if (rank := self._by_pid.get((node, stack.pid))) is not None:
            rank.place_now, rank.collective_now = place_of(stack), collective_of(stack)

    def output(self, node: str, index: int, data: bytes, at_s: float) -> None:
        """Take a piece of what a process printed."""
        process = self.processes[node][index]
        *lines, partial = (process._partial + data).replace(b"\r", b"\n").split(b"\n")
        process._partial = partial[-LINE_MAX:]
        for line in lines:
            if line.strip():
                self._line(process, line[:LOOKED_AT], at_s)
        lines_shown = [clean(line, 400) for line in lines[-TAIL_LINES:] if line.strip()]
        process.tail = [*process.tail, *lines_shown][-TAIL_LINES:]

    def _line(self, process: Process, line: bytes, at_s: float) -> None:
        node = process.node
        if b"NCCL INFO" in line:
            self._nccl(node, line, at_s)
            return
        if _ERROR.search(line) and not _OF_LAUNCHER.search(line):
            echo = ECHOES.search(line.decode("utf-8", "replace")) is not None
            process.echoes, process.raises = process.echoes or echo, process.raises or not echo
            if not echo:
                process.error = clean(line, 400)
        process.kills = process.kills or _KILLED.search(line) is not None
        found = (self._step or _STEP).search(line)
        if found:
            try:
                count = int(found[1])
            except (IndexError, ValueError):
                return
            counted = self.log_steps.setdefault(node, Counted(count, at_s, count, at_s))
            if count >= counted.last:
                counted.longest_s = max(counted.longest_s, at_s - counted.last_s)
                counted.last, counted.last_s = count, at_s

    def _nccl(self, node: str, line: bytes, at_s: float) -> None:
        if done := _NCCL.search(line):
            number, world = int(done[1]), int(done[2])
            # Smaller groups of some ranks number them anew.
            known = max((rank.world for rank in self.ranks.values()), default=0)
            if world >= known and not self.probed:
                rank = self.ranks.setdefault(number, Rank(number, node))
                rank.nodes.add(node)
                rank.world, rank.backend = world, "nccl"
                rank.joined_s = at_s if rank.joined_s is None else rank.joined_s
        elif net := _NET.search(line):
            word = f"{net[1].decode('ascii', 'replace')} {clean(net[2], 200)}"
            counts = self.networks.setdefault(node, {})
            if word in counts or len(counts) < 8:
                counts[word] = counts.get(word, 0) + 1

    @property
    def joined(self) -> list[Rank]:
        return [rank for rank in self.ranks.values() if rank.joined_s is not None]

    @property
    def world(self) -> int:
        """How many ranks there are to be, by those that have joined; 0 before any has."""
        return max((rank.world for rank in self.joined), default=0)

    @property
    def steps_seen(self) -> bool:
        """Whether the job's steps are known: by probes, else by the lines of its log."""
        return any(rank.first_step_s is not None for rank in self.ranks.values()) or bool(self._log_steps())

    def _log_steps(self) -> list[Counted]:
        """Steps that logs tell of: a counter has to have moved, or the user says what counts them."""
        if any(rank.first_step_s is not None for rank in self.ranks.values()):
            return []
        return [one for one in self.log_steps.values() if self._own_step or one.last > one.first]

    def first_step_s(self) -> float | None:
        """When the last rank had its first step."""
        values = [rank.first_step_s for rank in self.ranks.values() if rank.first_step_s is not None]
        return max(values or [one.first_s for one in self._log_steps()], default=None)

    def last_step_s(self) -> float | None:
        """When the rank that is furthest behind had its last step."""
        values = [rank.last_step_s for rank in self.ranks.values() if rank.last_step_s is not None]
        return min(values or [one.last_s for one in self._log_steps()], default=None)

    def steps(self) -> int:
        """How many steps the slowest rank has made."""
        values = [rank.steps for rank in self.ranks.values() if rank.first_step_s is not None]
        return min(values or [one.last for one in self._log_steps()], default=0)

    def rate(self) -> float | None:
        """Steps a second of the slowest rank, the first step aside."""
        rates = [rate for rank in self.ranks.values() if (rate := rank.rate) is not None]
        for one in self._log_steps():
            if one.last > one.first and one.last_s > one.first_s:
                rates.append((one.last - one.first) / (one.last_s - one.first_s))
        return min(rates, default=None)

    def longest_step_s(self) -> float:
        """The longest time between two steps, or between two lines of a log that count them; 0 if unknown."""
        values = [rank.longest_s for rank in self.ranks.values()]
        return max([*values, *(one.longest_s for one in self._log_steps())], default=0.0)

    def bad(self) -> list[Process]:
        """Processes that did not end well, the first first."""
        found = [one for all_ in self.processes.values() for one in all_ if one.is_bad]
        return sorted(found, key=lambda one: one.ended_s or 0.0)

    @property
    def is_over(self) -> bool:
        """Whether every process has ended."""
        started = [one for all_ in self.processes.values() for one in all_]
        return bool(started) and all(one.state in ("ended", "failed") for one in started)
