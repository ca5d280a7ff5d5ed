"""Tasks of a job that call by themselves, whoever starts them: nothing is started from here."""

import itertools
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from netdoctor.transport.base import Limits, Reply, Request, SessionEvent
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
    """place: as of meeting.place(). key: of meeting.secret(). tasks: how many there are, None for those of
    the hosts that are listed. invite: for a folder, leaves addresses and key there."""

    place: meeting.Place
    key: str | None
    tasks: int | None
    wait_s: float
    invite: Callable[[Path, Sequence[tuple[str, int]], str], Standing]


@dataclass(slots=True)
class _Guest:
    """A task that has called. host: its claim. gone: and ended. early: what it said before it was asked."""

    host: str
    rank: int | None
    node: str
    address: str
    trouble: str = ""
    gone: bool = False
    early: bytearray = field(default_factory=bytearray)


class MeetTransport(Calling[Agent]):
    """Serves whoever calls and knows the secret. Each task calls once: nobody can be started again."""

    kind, stage = MEET, "absent"

    def __init__(self, limits: Limits, options: MeetOptions) -> None:
        super().__init__()
        if options.key is None and options.place.folder is None:
            raise InputError(
                f"--meet PORT asks for a secret that tasks have, too: {meeting.SECRET} or --secret-file FILE"
            )
        self._limits, self._options = limits, options
        # Who was not let in, by why.
        self._turned: dict[str, list[str]] = {}
        self._remarks: list[str] = []
        self._most = 0
        self._count = 0
        self._listed: frozenset[str] | None = None
        self._guests: dict[str, _Guest] = {}  # by the name of the node
        self._claims: dict[str, _Guest] = {}  # and by what they call themselves
        self._met = False
        self._where = ""

    @property
    def notes(self) -> Sequence[str]:
        """Who was not let in."""
        turned = [f"{clean(fold(names), 300)}: {why}" for why, names in self._turned.items()]
        return [*turned, *self._remarks, *(_of_board(self._board) if self._board else ())]

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
            self._guests.values(), key=lambda one: (math.inf if one.rank is None else one.rank, one.node)
        )
        names = [one.node for one in some]
        absent = (name for n in itertools.count(1) if (name := f"absent{n}") not in self._guests)
        names += itertools.islice(absent, max(0, count - len(names)))
        targets = [
            Target(id=name, host=host_of(name) or name, order=i, source=SOURCE)
            for i, name in enumerate(names)
        ]
        return Inventory(targets=tuple(targets), format=MEET, source=SOURCE)

    def _gather(self, count: int, listed: frozenset[str] | None) -> None:
        """Listen, and wait until so many have called, or too long. Raises InputError.

        listed: names, also without domains, and addresses; None where anybody counts who has the secret.
        """
        self._most = self._count = count
        self._listed = listed
        place = self._options.place
        ports = range(place.port, place.port + 1) if place.port else None
        board = self._board = self._listen(count + MORE, ports, self._options.key or secrets.token_hex(32))
        board.room()
        heard = {":" in str(host): int(port) for host, port in board.places}
        self._where = f"port {' or '.join(str(port) for port in sorted(set(heard.values())))}"
        standing: Standing | None = None
        try:
            if place.folder is not None:
                spots = [(a, heard[":" in a]) for a in meeting.own_addresses() if (":" in a) in heard]
                standing = self._options.invite(place.folder, spots, board.secret)
            finish = time.monotonic() + self._options.wait_s
            looked = time.monotonic()
            while len(self._guests) < count and (left := finish - time.monotonic()) > 0:
                self._raise_interruption()
                if standing is not None and time.monotonic() - looked > STANDS_S:
                    standing.check()
                    looked = time.monotonic()
                for event in board.events(min(left, NOTICED_S)):
                    self._heard(event)
        except BaseException:
            self.close()
            raise
        finally:
            self._most = 0
            if standing is not None:
                standing.withdraw()

    def _listen(self, most: int, ports: range | None, key: str) -> calls.Board:
        host = self._options.place.host
        wanted = [address for address, _ in meeting.looked_up(host, 1)] if host else list(ANYWHERE)
        if not wanted:
            raise InputError(f"--meet {clean(host, 80)}: this name has no address")
        trouble = ""
        self._marker = meeting.marker(key)
        for some in (wanted, *([[one] for one in wanted] if not host else [])):  # a machine without IPv6
            try:
                return calls.Board(most, some, ports, key, self._admit)
            except OSError as error:
                trouble = trouble or error.strerror or str(error)
        where = f"port {ports.start}" if ports else "any port"
        raise InputError(f"--meet: cannot listen on {where} here: {trouble}")

    def _admit(self, claim: str, address: str) -> str:
        """Why a task that has the secret is not let in, for it to read; '' where it is."""
        rank, release, node = meeting.claimed(claim)
        if not node:
            return self._away("a task", "what it calls its node is no name; it was not let in")
        known = self._guests.get(node)
        if known is not None and not known.gone:
            return self._away(node, "it called a second time; tasks of one name are one node (facts --name)")
        if self._listed is not None and not {node, _bare(node), address} & self._listed:
            return self._away(node, "it called, and is not among the hosts that are listed")
        if known is None and len(self._guests) >= self._most:
            return self._away(node, "it called late, or beside as many as --tasks says")
        guest = self._guests[node] = _Guest(claim, rank, node, address)
        if release != __version__:
            guest.trouble = f"its netdoctor is {release}, this is {__version__}; both have to be one"
            return guest.trouble
        self._claims[claim] = guest
        return ""

    def _away(self, node: str, why: str) -> str:
        self._turned.setdefault(why, []).append(node)
        return why

    def _heard(self, event: Any) -> None:
        """What happens before anybody is asked anything."""
        if isinstance(event, calls.Heard):
            guest = self._claims[event.node]
            guest.early += event.data
            if len(guest.early) > EARLY_BYTES:
                guest.trouble = "its agent speaks before it is asked"
                assert self._board is not None
                self._board.drop(event.node)
        elif isinstance(event, calls.Gone):
            guest = self._claims[event.node]
            guest.gone = True
            guest.trouble = guest.trouble or "its task ended before it was asked anything"

    # Sessions

    def start(
        self,
        targets: Sequence[Target],
        first: Mapping[str, Request],
        *,
        keep_open: bool,
        collectors: Mapping[str, str],
        deadline_s: float = 300.0,
    ) -> Iterator[SessionEvent | Reply]:
        """Send each task that has called its first request."""
        self._nodes = {t.id: Agent(t.id, "", t.python or "", first[t.id]) for t in targets}
        self._keep_open = keep_open
        if self._met:
            self.close()
            yield from self._all(
                list(self._nodes.values()), Login.LOST, "a task calls once; start the job again"
            )
            return
        if self._board is None:
            names = {name for t in targets for name in (t.id, t.host, _bare(t.host))}
            self._gather(len(targets), frozenset(names))
        self._met = True
        board = self._board
        assert board is not None
        finish = time.monotonic() + self._limits.node_budget_s
        came = len(self._guests)
        for target, guest in zip(targets, self._seated(targets), strict=True):
            node = self._nodes[target.id]
            if guest is None:
                said = f"of {self._count} task{'s' * (self._count != 1)} {came} called {self._where} here"
                said += f" within {self._options.wait_s:g} s, and this one did not"
                yield self._fail(node, Login.NO_ANSWER, said)
            elif guest.trouble:
                yield self._fail(node, Login.LOST, guest.trouble)
            else:
                node.host, node.address = guest.host, guest.address
                node.talk = Conversation(self._marker, self._anchor)
                self._by_host[guest.host] = node
        for guest in self._guests.values():
            if guest.host not in self._by_host:
                board.drop(guest.host)
        self._waiting = {node.id for node in self._nodes.values() if not node.failed}
        for node in list(self._by_host.values()):
            yield from self._from_agent(node, bytes(self._claims[node.host].early), time.monotonic())
        while self._waiting and time.monotonic() < finish:
            yield from self._events(finish)
        late = [node for node in self._nodes.values() if not node.ended and not node.failed]
        yield from self._all(late, Login.TIMEOUT, "its agent said nothing in time")
        if not keep_open:
            self.close()

    def _seated(self, targets: Sequence[Target]) -> list[_Guest | None]:
        """The guest of each node: by its name; without a domain, or by address, where only one has that."""
        left = dict(self._guests)
        found = [left.pop(t.id, None) or left.pop(t.host, None) for t in targets]
        for by_address in (False, True):
            alike: dict[str, list[str]] = {}
            for name, guest in left.items():
                alike.setdefault(guest.address if by_address else _bare(name), []).append(name)
            for i, target in enumerate(targets):
                some = alike.get(_bare(target.host), [])
                if found[i] is None and len(some) == 1:
                    found[i] = left.pop(some[0], None)
        for name in left if self._listed is not None else ():
            self._away(name, "it called, and no host of the list is it alone; it was not looked at")
        return found

    def _hello(self, node: Agent, hello: frames.Hello) -> Iterator[SessionEvent | Reply]:
        node.python = clean(hello.executable, 200) or "python3"
        yield from super()._hello(node, hello)

    def close(self) -> None:
        """End all sessions and listeners; the tasks end with them."""
        board, self._board = self._board, None
        if board is not None:
            self._remarks += _of_board(board)
            board.close()
        for node in self._nodes.values():
            node.is_open = False


def _of_board(board: calls.Board) -> list[str]:
    """Who did not get as far as a name."""
    others = clean(fold(list(board.others)), 200)
    wrong = f"who called from {others} did not show the secret, which is to be the same in all tasks"
    return [*([wrong] if others else []), *board.notes]


def _bare(name: str) -> str:
    return name.partition(".")[0] if name[:1].isalpha() and ":" not in name else name
