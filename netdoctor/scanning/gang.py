"""Nodes of a job that start together or not at all: the first judges all, and tells the others how it ends.

Each calls twice. First as any task that is asked (meeting.py); then, once that is over, to hear the verdict,
at the same port and with a secret made of the first, so that neither is taken for the other. Nobody hears
of a start before all others have called for it, under the names by which they were asked: who is lost before,
or was put in the place of one that was asked, keeps all from starting.
"""

import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from netdoctor.agent import dial_back
from netdoctor.errors import InputError
from netdoctor.inventory.nodeset import fold
from netdoctor.inventory.task import Task
from netdoctor.options import ScanRequest
from netdoctor.scanning import meeting as rooms
from netdoctor.text import clean
from netdoctor.transport.tasks import attending, calls, meeting
from netdoctor.transport.tasks.meet import listen

# How long a member that was asked calls for the verdict; and the judge waits for all to call.
VERDICT_S, TOGETHER_S = 60.0, 20.0
# A member that was not asked may hear of a refusal all the same.
LATE_S = 5.0
TRY_S = 0.3
HEARD_S = 5.0  # for one that has called to read the verdict, or to leave
TEXT_MAX, LINES_MAX, LINE_MAX = 1 << 16, 60, 300
UNDECIDED = 3
NOT_ASKED = "-"  # in place of a name


class Verdict(Struct, frozen=True):
    """What all members end with. code: 0 starts, with these variables for the command.

    lines: what was found, as who judges has printed it.
    """

    code: Annotated[int, Meta(ge=0, le=255)]
    why: str = ""
    lines: tuple[str, ...] = ()
    variables: dict[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node of the gang: number rank of count, its name in reports, and where the first of them judges."""

    rank: int
    count: int
    name: str
    rendezvous: meeting.Rendezvous
    key: str

    @property
    def other_ranks(self) -> frozenset[str]:
        """The numbers of those that hear the verdict, as they call themselves."""
        return frozenset(str(rank) for rank in range(1, self.count))

    def absent(self, nodes: Iterable[str]) -> frozenset[str]:
        """Those of the others that never said how they are called, by the names of all nodes."""
        names = frozenset(nodes)
        return frozenset(one for one in self.other_ranks if meeting.member_name(int(one)) in names)


def take_part(member: Member, request: ScanRequest) -> Verdict:
    """Be asked, and hear how it ends; whatever keeps us from hearing that is a refusal. Raises InputError."""
    finish, why = time.monotonic() + request.timeout, ""
    name = member.name
    call = _caller(member, name, request)
    while True:
        is_over = False
        try:
            why = call(max(0.0, finish - time.monotonic()), why)
        except attending.NotWanted as error:
            if (other := _other_name(member, name, error)) is not None:
                name, call = other, _caller(member, other, request)
                continue
            why, is_over = str(error), True
        is_over = is_over or not why or time.monotonic() >= finish
        wait_s = VERDICT_S if not why else LATE_S if is_over else TRY_S
        if (verdict := hear(member, NOT_ASKED if why else name, wait_s)) is not None:
            return verdict
        if is_over:
            where = f"{member.rendezvous.host} port {member.rendezvous.port}"
            silent = f"it was asked everything, and then heard no verdict for {VERDICT_S:g} s"
            return Verdict(UNDECIDED, f"member 0 does not judge at {where}: {why or silent}")
        time.sleep(TRY_S)


def _other_name(member: Member, name: str, error: attending.NotWanted) -> str | None:
    """What to be called where another member of this node has our name."""
    is_taken = meeting.TWICE in str(error) and name == member.name
    return f"{name}-{member.rank}" if is_taken else None


def _caller(member: Member, name: str, request: ScanRequest) -> Callable[[float, str], str]:
    task = Task(rank=member.rank, world=member.count)
    return rooms.caller(name, task, rendezvous=member.rendezvous, key=member.key, request=request)


@contextmanager
def attendance(member: Member, request: ScanRequest) -> Iterator[None]:
    """Be asked like the others by what this process does meanwhile; it finds it absent where that fails.

    Raises InputError at the end.
    """
    is_over = threading.Event()
    failures: list[InputError] = []

    def attend(name: str) -> None:
        finish, why = time.monotonic() + request.timeout, "it has not called yet"
        call = _caller(member, name, request)
        try:
            while why and not is_over.wait(TRY_S) and (left := finish - time.monotonic()) > 0:
                why = call(left, why)
        except attending.NotWanted as error:
            if (other := _other_name(member, name, error)) is not None:
                attend(other)
        except InputError as error:  # of an interpreter that is not there, say
            failures.append(error)

    thread = threading.Thread(target=attend, args=(member.name,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(HEARD_S)  # its agent is to be gone before anything starts
    if failures:
        raise failures[0]


def hear(member: Member, name: str, within_s: float) -> Verdict | None:
    """The verdict, from who has our secret; None where nobody tells it in time.

    name: by which this member was asked, or NOT_ASKED: then it hears of a refusal alone.
    """
    finish = time.monotonic() + within_s
    while True:
        spots = meeting.look_up(member.rendezvous.host, member.rendezvous.port)
        left = max(TRY_S, finish - time.monotonic())
        if spots and (verdict := _hear_once(member, name, [list(spot) for spot in spots], left)) is not None:
            return verdict
        if time.monotonic() >= finish:
            return None
        time.sleep(TRY_S)


def _hear_once(member: Member, name: str, spots: list[list[str | int]], left: float) -> Verdict | None:
    stream = None
    try:
        stream = dial_back.connect(spots, f"{member.rank}/{name}", _second(member.key), left, {})
        if stream is None:
            return None
        stream.connection.settimeout(TOGETHER_S + HEARD_S)
        size = int.from_bytes(stream.read(4), "big")
        return msgspec.json.decode(stream.read(min(size, TEXT_MAX)), type=Verdict) if size else None
    except (dial_back.NotLetIn, OSError, msgspec.MsgspecError, SystemExit):  # altered on the way, too
        return None
    finally:
        if stream is not None:
            stream.connection.close()


def tell(member: Member, verdict: Verdict, nodes: Sequence[str] | None) -> Verdict:
    """Tell all other members, and return what they hear: a refusal where not all came to hear of a start.

    nodes: the names of all that were asked or waited for; None where nobody knows. Raises InputError where
    this port cannot be listened at: then nobody hears anything, and nobody starts.
    """
    left = set(member.other_ranks)
    if verdict.code:  # nobody waits for those that never called
        left -= member.absent(nodes or ())
    if not left:
        return verdict
    here: dict[str, str] = {}  # the claim of each, by its number

    def admit(claim: str, _: str) -> str:
        rank, _, name = claim.partition("/")
        if rank not in member.other_ranks or rank in here:
            return "it is no other member, or called twice"
        was_asked = name != NOT_ASKED if nodes is None else name in nodes
        return "" if verdict.code or was_asked else "it was not asked by who judges"

    port = member.rendezvous.port
    listener = listen("", member.count, range(port, port + 1), _second(member.key), admit)
    try:
        if verdict.code == 0:
            _gather(listener, here, member.count - 1)
            if missing := left - here.keys():
                verdict = Verdict(UNDECIDED, f"{_members(missing)} left before all could start")
        verdict = _short(verdict)
        packed = msgspec.json.encode(verdict)
        content = len(packed).to_bytes(4, "big") + packed
        for claim in here.values():
            listener.send(claim, content)
        # Those that come now hear of a refusal; whoever has heard it leaves.
        finish = time.monotonic() + (HEARD_S if left <= here.keys() else TOGETHER_S)
        while left and (wait_s := finish - time.monotonic()) > 0:
            for event in listener.events(wait_s):
                if isinstance(event, calls.Joined):
                    here[event.node.partition("/")[0]] = event.node
                    listener.send(event.node, content)
                elif isinstance(event, calls.Left):
                    left.discard(event.node.partition("/")[0])
        return verdict
    finally:
        listener.close()


def _gather(listener: calls.Listener, here: dict[str, str], count: int) -> None:
    """Let so many come, as long as they are waited for."""
    finish = time.monotonic() + TOGETHER_S
    while len(here) < count and (wait_s := finish - time.monotonic()) > 0:
        for event in listener.events(wait_s):
            if isinstance(event, calls.Joined):
                here[event.node.partition("/")[0]] = event.node
            elif isinstance(event, calls.Left):
                here.pop(event.node.partition("/")[0], None)


def _members(ranks: Iterable[str]) -> str:
    return clean(fold([f"member{rank}" for rank in sorted(ranks, key=int)], 60), 200)


def _short(verdict: Verdict) -> Verdict:
    """The verdict with no more text than others take."""
    lines = [clean(line, LINE_MAX) for line in verdict.lines[:LINES_MAX]]
    variables = verdict.variables if sum(map(len, verdict.variables.values())) < TEXT_MAX // 2 else {}
    return Verdict(verdict.code, clean(verdict.why, LINE_MAX), tuple(lines), variables)


def _second(key: str) -> str:
    """The secret of those who come for the verdict."""
    return hmac.new(bytes.fromhex(key), b"netdoctor gang verdict", hashlib.sha256).hexdigest()
