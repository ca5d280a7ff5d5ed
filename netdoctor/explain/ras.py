"""What NCCL's RAS says of a running job, as text (2.24) or JSON (2.28.7): who is dead, silent, behind.

Formats: NVIDIA/nccl src/ras/client_support.cc rasClientRunComms, rasDumpCommsToJSON, tags v2.24.3-1 to
v2.30.7-1. Pure.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

SIZE_MAX = 8 << 20
LISTED_MAX = 10
# Of ncclResult_t, as RAS words them.
ERRORS = (
    *("", "Unhandled CUDA error", "System error", "Internal error", "Invalid argument"),
    *("Invalid usage", "Remote process error"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A process of the job."""

    host: str = ""
    pid: int = 0
    gpu: str = ""
    rank: int | None = None  # in its communicator, None where only the process is known

    @property
    def process(self) -> tuple[str, int]:
        return self.host, self.pid

    def __str__(self) -> str:
        process = f"process {self.pid} on node {self.host}" if self.host else ""
        details = ", ".join(part for part in (f"GPU {self.gpu}" if self.gpu else "", process) if part)
        name = "a process" if self.rank is None else f"rank {self.rank}"
        return f"{name} ({details})" if details else name


@dataclass(slots=True, kw_only=True)
class Communicator:
    """A communicator; text names only the ranks of small groups."""

    name: str  # its hash
    size: int = 0  # ranks in it, 0 if not known
    missing: list[Member] = field(default_factory=list)
    members: dict[int, Member] = field(default_factory=dict)
    launched: dict[str, dict[int, int]] = field(default_factory=dict)  # [operation][rank]: how many
    others: dict[str, int] = field(
        default_factory=dict
    )  # [operation]: how many the ranks without a name have
    states: dict[int, str] = field(default_factory=dict)  # of ranks that are not as most are
    errors: dict[int, str] = field(default_factory=dict)  # that ranks reported


@dataclass(slots=True, kw_only=True)
class Status:
    """The answer."""

    dead: list[Member] = field(default_factory=list)  # not reached for a minute
    silent: list[Member] = field(default_factory=list)  # did not answer this time
    communicators: list[Communicator] = field(default_factory=list)


def is_status(head: bytes) -> bool:
    """Whether a file begins as ncclras' output does. head: its first 4096 bytes."""
    if head.lstrip()[:1] == b"{":
        return b'"nccl_version"' in head and b'"communicators' in head
    return b"Job summary\n===" in head or b"\nCommunicators... (" in head


_NO_COMMA = re.compile(r'("nvml_dev": -?\d{1,9})(\n {1,40}"status")')


def read(text: str) -> Status:
    """A status from ncclras' output. What is not understood is left out; a damaged JSON says nothing."""
    text = text[:SIZE_MAX].replace("\r\n", "\n")
    if text.lstrip().startswith("{"):
        try:
            # 2.28 leaves out a comma where a rank is missing.
            return _from_json(json.loads(_NO_COMMA.sub(r"\1,\2", text)))
        except (ValueError, RecursionError):
            return Status()
    return _from_text(text)


# --- JSON ------------------------------------------------------------------------------------------


def _from_json(data: Any) -> Status:
    status = Status()
    for one in map(_dict, _list(_dict(data).get("communicators"))):
        comm = Communicator(name=str(one.get("hash", ""))[:40], size=_int(one.get("size")))
        for row in map(_dict, _list(one.get("ranks"))):
            member = _member(row)
            rank = member.rank or 0
            comm.members[rank] = member
            state = _dict(row.get("status"))
            for key in ("init_state", "async_error"):
                code = _int(state.get(key))
                if 0 < code < 7:
                    comm.errors[rank] = ERRORS[code]
            if _int(state.get("init_state")) == 7:
                comm.states[rank] = "INIT"
            elif state.get("abort_flag") is True:
                comm.states[rank] = "ABORT"
            elif state.get("finalize_called") is True:
                comm.states[rank] = "FINALIZE"
            for name, number in _dict(row.get("collective_counts")).items():
                comm.launched.setdefault(str(name)[:40], {})[rank] = _int(number)
        for row in map(_dict, _list(one.get("missing_ranks"))):
            member, state = _member(row), _dict(row.get("status"))
            comm.missing.append(member)
            if state.get("considered_dead") is True:
                status.dead.append(member)
            elif state.get("unresponsive") is True:
                status.silent.append(member)
        if len(set(comm.states.values())) == 1 and len(comm.states) == len(comm.members):
            comm.states.clear()
        status.communicators.append(comm)
    return status


def _member(row: Mapping[str, Any]) -> Member:
    gpu = _int(row.get("nvml_dev", row.get("cuda_dev")))
    return Member(
        host=str(row.get("host", ""))[:100],
        pid=_int(row.get("pid")),
        gpu=str(gpu),
        rank=_int(row.get("rank")),
    )


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _int(value: Any) -> int:
    return value if isinstance(value, int) and abs(value) < 1 << 63 else 0


# --- text ------------------------------------------------------------------------------------------

_PROCESS = re.compile(r"  Process (\d{1,9}) on node (\S{1,100}) managing GPUs? (.{1,80})")
_HEAD = re.compile(r"#\d{1,6}-\d{1,6} \(([0-9a-f]{1,32})\) ([A-Z]{2,20})")
# Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213
_RANK = re.compile(
    r"  Rank (\d{1,7})(?: (?:has|reported) (?P<text>.{1,80}?))? -- "
    r"(?:GPU (?P<gpu>.{1,40}?) managed by process (?P<pid>\d{1,9}) on node (?P<host>\S{1,100})|\[process)"
)
_MISSING = re.compile(r"  The missing ranks?: ([\d,\s-]{1,400})")
_OPERATION = re.compile(r"  Communicator ranks have different (?:(\w{1,40}|collective) )?operation counts")
_COUNT = re.compile(r"launched up to operation (\d{1,19})")
_GROUP = re.compile(r"  (\d{1,7}) ranks? (?:have|reported) (.{1,80})")


def _from_text(text: str) -> Status:
    reader = _Text()
    for line in text.splitlines():
        reader.line(line[:500])
    return reader.status


class _Text:
    """Sections, and in them groups of ranks with what is true of all of a group."""

    def __init__(self) -> None:
        self.status = Status()
        self.comms: dict[str, Communicator] = {}
        self.comm: Communicator | None = None
        self.section = ""
        self.operation = ""
        self.amount = 0
        self.group = ""  # the text about all ranks of a group

    def line(self, line: str) -> None:
        if head := _HEAD.match(line):
            self.comm = self.comms.get(head[1])
            if self.comm is None:
                self.comm = self.comms[head[1]] = Communicator(name=f"0x{head[1]}")
                self.status.communicators.append(self.comm)
            self.section, self.operation, self.group = head[2], "", ""
        elif line in ("DEAD", "INCOMPLETE", "TIMEOUT"):
            self.comm, self.section = None, line
        elif self.comm is None:
            if process := _PROCESS.match(line):
                member = Member(pid=int(process[1]), host=process[2], gpu=process[3].strip())
                if self.section == "DEAD":
                    self.status.dead.append(member)
                elif self.section == "INCOMPLETE":
                    self.status.silent.append(member)
        elif found := _OPERATION.match(line):
            self.operation, self.amount = found[1] or "collective", 0
        elif found := _MISSING.match(line):
            self.comm.missing += [Member(rank=int(n)) for n in re.findall(r"\d{1,7}", found[1])]
        elif group := _GROUP.match(line):
            self.group = group[2]
            self._count(self.comm, int(group[1]), group[2])
        elif rank := _RANK.match(line):
            member = Member(
                rank=int(rank[1]), pid=int(rank["pid"] or 0), host=rank["host"] or "", gpu=rank["gpu"] or ""
            )
            self._rank(self.comm, member, rank["text"] or self.group)

    def _count(self, comm: Communicator, amount: int, text: str) -> None:
        """How much several ranks have launched; their names follow only where they are few."""
        if self.operation and amount > self.amount:
            count = _COUNT.search(text)
            comm.others[self.operation] = int(count[1]) if count else 0
            self.amount = amount
            comm.size = max(comm.size, amount)

    def _rank(self, comm: Communicator, member: Member, text: str) -> None:
        rank = member.rank or 0
        comm.members[rank] = member
        if self.section == "INCOMPLETE":
            comm.missing.append(member)
        elif self.section == "ERROR":
            comm.errors[rank] = text.removeprefix("reported ")
        elif self.operation:
            count = _COUNT.search(text)
            comm.launched.setdefault(self.operation, {})[rank] = int(count[1]) if count else 0
        elif "status " in text:
            comm.states[rank] = text.partition("status ")[2][:20]


# --- in words --------------------------------------------------------------------------------------


def lines(status: Status) -> Iterator[str]:
    """What is wrong, as lines of a log, the root of it first."""
    largest = max(status.communicators, key=_extent, default=None)
    dead = {one.process for one in status.dead}
    unreachable = [
        (_with_ranks(status.dead, largest), "is dead: not reached for a minute"),
        (_with_ranks([s for s in status.silent if s.process not in dead], largest), "does not answer"),
    ]
    for members, words in unreachable:
        for member in members[:LISTED_MAX]:
            yield f"{_speaker(member)}NCCL RAS: {member} {words}"
        if len(members) > LISTED_MAX:
            yield f"NCCL RAS: {len(members) - LISTED_MAX} processes more: {words}"
    for comm in status.communicators:
        yield from _faults_of(comm, comm is largest, bool(status.dead or status.silent))


def _extent(comm: Communicator) -> int:
    return max(comm.size, len(comm.members) + len(comm.missing))


def _with_ranks(members: Iterable[Member], comm: Communicator | None) -> list[Member]:
    """Processes with their ranks in the largest communicator, each once."""
    missing = comm.missing if comm else []
    ranks = {one.process: one for one in missing if one.host}
    members = list(members)
    if len(members) == len(missing) == 1 and not missing[0].host:  # releases that give only the rank
        ranks[members[0].process] = replace(members[0], rank=missing[0].rank)
    found: dict[tuple[str, int], Member] = {}
    for one in members:
        found.setdefault(one.process, ranks.get(one.process, one))
    return list(found.values())


def _speaker(member: Member) -> str:
    return f"[rank{member.rank}]: " if member.rank is not None else ""


def _faults_of(comm: Communicator, is_largest: bool, missing: bool) -> Iterator[str]:
    def line_of(rank: int, words: str) -> str:
        member = comm.members.get(rank, Member(rank=rank))
        return f"{_speaker(member) if is_largest else ''}NCCL RAS: communicator {comm.name}: {member} {words}"

    for rank, error in sorted(comm.errors.items())[:LISTED_MAX]:
        yield line_of(rank, f"reported {error}")
    # One that is running is not odd beside one that is not.
    halted = {rank: state for rank, state in comm.states.items() if state != "RUNNING"} or comm.states
    for rank, state in sorted(halted.items())[:LISTED_MAX]:
        yield line_of(rank, f"has status {state}, unlike the others")
    if comm.missing or missing:
        return  # the others wait for those; that some came further than others says nothing
    levels = {name: _levels(comm, name) for name in comm.launched}
    late = {name: groups for name, groups in levels.items() if len(groups) > 1}
    crossed = _crossed(late)
    for name, groups in late.items():
        count = min((min(groups), max(groups)), key=lambda count: (not groups[count], len(groups[count])))
        ranks = groups[count]
        other = min(groups) if count == max(groups) else max(groups)
        line = f"launched {name} {count} times, others {other} times"
        if crossed:
            line += ": another sequence of collectives"
        if 0 < len(ranks) <= LISTED_MAX:
            more = f" (so did ranks {', '.join(map(str, ranks[1:]))})" if len(ranks) > 1 else ""
            yield line_of(ranks[0], line + more)
        else:
            yield f"NCCL RAS: communicator {comm.name}: {len(ranks) or 'some'} ranks {line}"


def _levels(comm: Communicator, name: str) -> dict[int, list[int]]:
    """Ranks by how many they have launched; an empty list stands for those that are not named."""
    groups: dict[int, list[int]] = {}
    for rank, count in sorted(comm.launched[name].items()):
        groups.setdefault(count, []).append(rank)
    if name in comm.others:
        groups.setdefault(comm.others[name], [])
    return groups


def _crossed(late: Mapping[str, Mapping[int, Sequence[int]]]) -> bool:
    """Whether a rank is behind in one operation and ahead in another."""
    behind = {rank for groups in late.values() for rank in groups[min(groups)]}
    ahead = {rank for groups in late.values() for rank in groups[max(groups)]}
    return bool(behind & ahead)
