"""Tasks of a job that call by themselves, whoever starts them: nothing is started from here."""

import errno
import itertools
import math
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from netdoctor import __version__
from netdoctor.errors import InputError
from netdoctor.facts.host import MEET, Login
from netdoctor.inventory import Inventory, Target, fold
from netdoctor.inventory.names import host_of
from netdoctor.text import clean
from netdoctor.transport import frames
from netdoctor.transport.base import Event, Limits, StartPlan
from netdoctor.transport.session import Conversation
from netdoctor.transport.tasks import calls, meeting
from netdoctor.transport.tasks.calling import NOTICED_S, Agent, Calling

ANYWHERE = ("0.0.0.0", "::")  # noqa: S104  # whoever comes has to show the secret
# Of an agent that nobody has asked anything yet.
EARLY_BYTES = 1 << 16
# How often what was left in a folder is looked at.
STANDS_S = 0.5
# Room for those that are dropped while others come.
MORE = 64
SOURCE = "--meet"


class Standing(Protocol):
    """What was left in a folder."""

    def check(self) -> None:
        """Raises InputError where it is somebody else's by now."""

    def withdraw(self) -> None:
        """Take it away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeetOptions:
    """Where tasks call, and how many."""

    rendezvous: meeting.Rendezvous
    key: str | None  # of meeting.secret()
    tasks: int | None  # None for as many as hosts are listed
    wait_s: float
    invite: Callable[[Path, Sequence[tuple[str, int]], str], Standing]  # leaves addresses and key in a folder
    are_members: bool = False  # of a gang: their ranks are 0 to tasks - 1


@dataclass(slots=True)
class _Participant:
    """A task that has called."""

    claim: str  # how it calls itself
    rank: int | None
    node: str
    address: str
    failure: str = ""
    has_left: bool = False
    early: bytearray = field(default_factory=bytearray)  # what it sent before it was asked anything


class MeetTransport(Calling[Agent]):
    """Serves whoever calls and knows the secret. Each task calls once: nobody can be started again."""

    kind, stage = MEET, "absent"

    def __init__(self, limits: Limits, options: MeetOptions) -> None:
        super().__init__()
        if options.key is None and options.rendezvous.folder is None:
            raise InputError(
                f"--meet PORT asks for a secret that tasks have, too: {meeting.SECRET} or --secret-file FILE"
            )
        self._limits, self._options = limits, options
        # Who was not let in, by why.
        self._refused: dict[str, list[str]] = {}
        self._remarks: list[str] = []
        self._max_participants = 0
        self._count = 0
        self._listed: frozenset[str] | None = None
        self._participants: dict[str, _Participant] = {}  # by the name of the node
        self._by_rank: dict[int | None, _Participant] = {}  # the newest
        self._claims: dict[str, _Participant] = {}  # and by what they call themselves
        self._has_started = False
        self._ports_text = ""

    @property
    def notes(self) -> Sequence[str]:
        """Who was not let in."""
        refused = [f"{clean(fold(names), 300)}: {why}" for why, names in self._refused.items()]
        return [*refused, *self._remarks, *(_strangers(self._listener) if self._listener else ())]

    def describe(self, target: Target) -> dict[str, Any]:
        """Who is waited for."""
        return {"transport": MEET, "host": target.host}

    def bound_s(self, targets: Sequence[Target]) -> float:
        """The longest that `start` can take: waiting for tasks, and their first answers."""
        return self._options.wait_s + self._limits.node_budget_s

    # Who comes

    def inventory(self) -> Inventory:
        """The nodes whose tasks call, by rank, and those that did not. Waits for them. Raises InputError."""
        count = self._options.tasks or 0
        self._gather(count, None)
        some = sorted(
            self._participants.values(),
            key=lambda one: (math.inf if one.rank is None else one.rank, one.node),
        )
        names = [one.node for one in some]
        names += itertools.islice(self._absent(count), max(0, count - len(names)))
        targets = [
            Target(id=name, host=host_of(name) or name, order=i, source=SOURCE)
            for i, name in enumerate(names)
        ]
        return Inventory(targets=tuple(targets), format=MEET, source=SOURCE)

    def _absent(self, count: int) -> Iterator[str]:
        """Names for those that have not called; members of a gang are known by their number."""
        here = {one.rank for one in self._participants.values()}
        numbers = [n for n in range(count) if n not in here] if self._options.are_members else []
        names = (meeting.member_name(n) for n in numbers)
        others = (f"absent{n}" for n in itertools.count(1))
        return (name for name in itertools.chain(names, others) if name not in self._participants)

    def _gather(self, count: int, listed: frozenset[str] | None) -> None:
        """Listen, and wait until so many have called, or too long. Raises InputError.

        listed: names, also without domains, and addresses; None where anybody counts who has the secret.
        """
        self._max_participants = self._count = count
        self._listed = listed
        rendezvous = self._options.rendezvous
        ports = range(rendezvous.port, rendezvous.port + 1) if rendezvous.port else None
        listener = self._listener = self._listen(
            count + MORE, ports, self._options.key or secrets.token_hex(32)
        )
        listener.room()
        port_of = {":" in str(host): int(port) for host, port in listener.endpoints}
        self._ports_text = f"port {' or '.join(str(port) for port in sorted(set(port_of.values())))}"
        standing: Standing | None = None
        try:
            if rendezvous.folder is not None:
                spots = [(a, port_of[":" in a]) for a in meeting.own_addresses() if (":" in a) in port_of]
                standing = self._options.invite(rendezvous.folder, spots, listener.secret)
            finish = time.monotonic() + self._options.wait_s
            looked = time.monotonic()
            while len(self._participants) < count and (left := finish - time.monotonic()) > 0:
                self._raise_interruption()
                if standing is not None and time.monotonic() - looked > STANDS_S:
                    standing.check()
                    looked = time.monotonic()
                for event in listener.events(min(left, NOTICED_S)):
                    self._before_start(event)
        except BaseException:
            self.close()
            raise
        finally:
            self._max_participants = 0
            if standing is not None:
                standing.withdraw()

    def _listen(self, most: int, ports: range | None, key: str) -> calls.Listener:
        self._marker = meeting.marker(key)
        return listen(self._options.rendezvous.host, most, ports, key, self._admit)

    def _admit(self, claim: str, address: str) -> str:
        """Why a task that has the secret is not let in, for it to read; '' where it is."""
        rank, release, node = meeting.read_claim(claim)
        if not node:
            return self._refuse("a task", "what it calls its node is not a name; it was not let in")
        known = self._participants.get(node)
        if known is not None and not known.has_left:
            return self._refuse(node, f"it {meeting.TWICE}; tasks of one name are one node (facts --name)")
        if self._options.are_members:
            other = self._by_rank.get(rank)
            if other is not None and other.node != node and not other.has_left:
                return self._refuse(node, f"it calls itself member {rank}, and so does another one (--rank)")
        if self._listed is not None and not {node, _without_domain(node), address} & self._listed:
            return self._refuse(node, "it called, and is not among the hosts that are listed")
        if known is None and len(self._participants) >= self._max_participants:
            return self._refuse(node, "it called late, or beside as many as --tasks says")
        participant = self._participants[node] = _Participant(claim, rank, node, address)
        self._by_rank[rank] = participant
        if release != __version__:
            participant.failure = f"its netdoctor is {release}, this is {__version__}; both have to be one"
            return participant.failure
        self._claims[claim] = participant
        return ""

    def _refuse(self, node: str, why: str) -> str:
        self._refused.setdefault(why, []).append(node)
        return why

    def _before_start(self, event: Any) -> None:
        """What happens before anybody is asked anything."""
        if isinstance(event, calls.Received):
            participant = self._claims[event.node]
            participant.early += event.data
            if len(participant.early) > EARLY_BYTES:
                participant.failure = "its agent speaks before it is asked"
                assert self._listener is not None
                self._listener.drop(event.node)
        elif isinstance(event, calls.Left):
            participant = self._claims[event.node]
            participant.has_left = True
            ended = calls.ALTERED if event.altered else "its task ended before it was asked anything"
            participant.failure = participant.failure or ended

    # Sessions

    def _start(self, plan: StartPlan) -> Iterator[Event]:
        """Send each task that has called its first request."""
        self._nodes = {t.id: Agent(t.id, "", t.python or "", plan.first[t.id]) for t in plan.targets}
        self._keep_open = plan.keep_open
        every = list(self._nodes.values())
        if self._has_started:
            self.close()
            yield from self._give_up(every, Login.LOST, "a task calls once; start the job again")
            return
        if self._listener is None:
            names = {name for t in plan.targets for name in (t.id, t.host, _without_domain(t.host))}
            self._gather(len(plan.targets), frozenset(names))
        self._has_started = True
        assert self._listener is not None
        finish = time.monotonic() + self._limits.node_budget_s
        joined = len(self._participants)
        for target, participant in zip(plan.targets, self._match(plan.targets), strict=True):
            node = self._nodes[target.id]
            if participant is None:
                detail = (
                    f"of {self._count} task{'s' * (self._count != 1)} {joined} called {self._ports_text} here"
                )
                detail += f" within {self._options.wait_s:g} s, and this one did not"
                yield self._fail(node, Login.STEP if joined else Login.NO_ANSWER, detail)
            elif participant.failure:
                outcome = Login.ALTERED if participant.failure == calls.ALTERED else Login.LOST
                yield self._fail(node, outcome, participant.failure)
            else:
                node.host, node.address = participant.claim, participant.address
                node.conversation = Conversation(self._marker, self._anchor)
                self._by_host[node.host] = node
        for participant in self._participants.values():
            if participant.claim not in self._by_host:
                self._listener.drop(participant.claim)
        self._waiting = {node.id for node in every if not node.progress.is_over}
        for node in list(self._by_host.values()):
            yield from self._from_agent(node, bytes(self._claims[node.host].early), time.monotonic())
        while self._waiting and time.monotonic() < finish:
            yield from self._events(finish)
        yield from self._give_up(every, Login.TIMEOUT, "its agent said nothing in time")
        if not plan.keep_open:
            self.close()

    def _match(self, targets: Sequence[Target]) -> list[_Participant | None]:
        """The participant of each: by its name; without a domain, or by address, where only one has that."""
        left = dict(self._participants)
        found = [left.pop(t.id, None) or left.pop(t.host, None) for t in targets]
        for by_address in (False, True):
            names_by: dict[str, list[str]] = {}
            for name, participant in left.items():
                key = participant.address if by_address else _without_domain(name)
                names_by.setdefault(key, []).append(name)
            for i, target in enumerate(targets):
                names = names_by.get(_without_domain(target.host), [])
                if found[i] is None and len(names) == 1:
                    found[i] = left.pop(names[0], None)
        for name in left if self._listed is not None else ():
            self._refuse(
                name, "it called, but does not match exactly one host of the list; it was not scanned"
            )
        return found

    def _hello(self, node: Agent, hello: frames.Hello) -> Iterator[Event]:
        node.python = clean(hello.executable, 200) or "python3"
        yield from super()._hello(node, hello)

    def close(self) -> None:
        """End all sessions and listeners; the tasks end with them."""
        listener, self._listener = self._listener, None
        if listener is not None:
            self._remarks += _strangers(listener)
            listener.close()
        for node in self._nodes.values():
            node.is_open = False


def listen(
    host: str,
    callers: Iterable[str] | int,
    ports: range | None,
    key: str,
    admit: Callable[[str, str], str] | None = None,
) -> calls.Listener:
    """A listener at the addresses of a host, or at all of this machine where that is ''. Raises InputError.

    The others are as for calls.Listener.
    """
    addresses = [address for address, _ in meeting.look_up(host, 1)] if host else list(ANYWHERE)
    if not addresses:
        raise InputError(f"--meet {clean(host, 80)}: this name has no address")
    failure = ""
    # A machine without IPv6 takes one of them alone.
    for some in (addresses, *([[one] for one in addresses] if not host else [])):
        try:
            return calls.Listener(callers, some, ports, key, admit)
        except OSError as error:
            failure = failure or error.strerror or str(error)
            if error.errno == errno.EADDRINUSE:  # at the other address nobody would look for us
                break
    where = f"port {ports.start}" if ports else "any port"
    raise InputError(f"--meet: cannot listen on {where} here: {failure}")


def _strangers(listener: calls.Listener) -> list[str]:
    """Who did not get as far as a name."""
    others = clean(fold(list(listener.others)), 200)
    wrong = f"who called from {others} did not show the secret, which is to be the same in all tasks"
    return [*([wrong] if others else []), *listener.notes]


def _without_domain(name: str) -> str:
    return name.partition(".")[0] if name[:1].isalpha() and ":" not in name else name
