"""Tasks of a job that call by themselves, whoever starts them: nothing is started from here."""

import itertools
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netdoctor import __version__
from netdoctor.errors import InputError
from netdoctor.facts.host import MEET, Login
from netdoctor.inventory import Inventory, Target
from netdoctor.text import clean
from netdoctor.transport import calls, frames, meeting
from netdoctor.transport.base import Limits, Reply, Request, SessionEvent
from netdoctor.transport.calling import NOTICED_S, Agent, Calling

ANYWHERE = ("0.0.0.0", "::")  # noqa: S104  # whoever comes has to show the secret
# Of an agent that nobody has asked anything yet.
EARLY_MAX = 4
# A task that calls beside those that were counted is told of, and not served.
MORE = 64
SOURCE = "--meet"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeetOptions:
    """place: as of meeting.place(). key: of meeting.secret(). tasks: how many there are, None for those of
    the hosts that are listed. invite: for a folder, leaves addresses and key there, and returns what takes
    them away."""

    place: meeting.Place
    key: str | None
    tasks: int | None
    wait_s: float
    invite: Callable[[Path, Sequence[tuple[str, int]], str], Callable[[], None]]


@dataclass(slots=True)
class _Guest:
    """A task that has called. host: its claim. early: what it said before it was asked."""

    host: str
    rank: int | None
    node: str
    address: str
    trouble: str = ""
    early: list[calls.Said] = field(default_factory=list)


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
        self._notes: dict[str, None] = {}
        self._guests: dict[str, _Guest] = {}  # by the name of the node
        self._claims: dict[str, _Guest] = {}  # and by what they call themselves
        self._met = False
        self._where = ""

    @property
    def notes(self) -> Sequence[str]:
        """Who was not let in."""
        return [*self._notes, *(self._board.notes if self._board else ())]

    def describe(self, target: Target) -> dict[str, Any]:
        """Who is waited for."""
        return {"transport": MEET, "host": target.host}

    def bound_s(self, targets: Sequence[Target]) -> float:
        """The longest that `start` can take: waiting for tasks, and their first answers."""
        return self._options.wait_s + self._limits.node_budget_s

    # Who comes

    def inventory(self) -> Inventory:
        """The nodes whose tasks call, by rank, and those that did not. Waits for them. Raises InputError."""
        count = self._options.tasks
        if not count:
            raise InputError("--meet: say how many tasks there are (--tasks N), or name the hosts")
        self._gather(count)
        some = sorted(
            self._guests.values(), key=lambda one: (math.inf if one.rank is None else one.rank, one.node)
        )
        names = [one.node for one in some]
        absent = (name for n in itertools.count(1) if (name := f"absent{n}") not in self._guests)
        names += itertools.islice(absent, max(0, count - len(names)))
        targets = [Target(id=name, host=name, order=i, source=SOURCE) for i, name in enumerate(names)]
        return Inventory(targets=tuple(targets), format=MEET, source=SOURCE)

    def _gather(self, count: int) -> None:
        """Listen, and wait until so many have called, or too long. Raises InputError."""
        place = self._options.place
        ports = range(place.port, place.port + 1) if place.port else None
        board = self._board = self._listen(count + MORE, ports, self._options.key or secrets.token_hex(32))
        board.room()
        heard = {":" in str(host): int(port) for host, port in board.places}
        self._where = f"port {' or '.join(str(port) for port in sorted(set(heard.values())))}"
        withdraw: Callable[[], None] = lambda: None  # noqa: E731
        try:
            if place.folder is not None:
                spots = [(a, heard[":" in a]) for a in meeting.own_addresses() if (":" in a) in heard]
                withdraw = self._options.invite(place.folder, spots, board.secret)
            finish = time.monotonic() + self._options.wait_s
            while len(self._guests) < count and (left := finish - time.monotonic()) > 0:
                self._raise_interruption()
                for event in board.events(min(left, NOTICED_S)):
                    self._heard(board, event)
        except BaseException:
            self.close()
            raise
        finally:
            withdraw()

    def _listen(self, most: int, ports: range | None, key: str) -> calls.Board:
        host = self._options.place.host
        wanted = [address for address, _ in meeting.looked_up(host, 1)] if host else list(ANYWHERE)
        if not wanted:
            raise InputError(f"--meet {clean(host, 80)}: this name has no address")
        trouble = ""
        marker = meeting.marker(key)
        for some in (wanted, *([[one] for one in wanted] if not host else [])):  # a machine without IPv6
            try:
                return calls.Board(most, some, ports, marker, key)
            except OSError as error:
                trouble = trouble or error.strerror or str(error)
        where = f"port {ports.start}" if ports else "any port"
        raise InputError(f"--meet: cannot listen on {where} here: {trouble}")

    def _heard(self, board: calls.Board, event: Any) -> None:
        """What happens before anybody is asked anything."""
        if isinstance(event, calls.Came):
            rank, release, node = meeting.claimed(event.node)
            if not node or node in self._guests:
                again = (
                    f"{clean(node, 60)} calls a second time; tasks of one name are one node (facts --name)"
                )
                self._notes[again if node else "a task has a name that is none; it was not let in"] = None
                board.drop(event.node)
                return
            guest = self._guests[node] = _Guest(event.node, rank, node, event.address)
            self._claims[guest.host] = guest
            if release != __version__:
                guest.trouble = f"its netdoctor is {release}, this is {__version__}; both have to be one"
                board.drop(event.node)
        elif isinstance(event, calls.Said) and event.node in self._claims:
            guest = self._claims[event.node]
            guest.early.append(event)
            if len(guest.early) > EARLY_MAX:
                guest.trouble = "its agent speaks before it is asked"
                board.drop(event.node)
        elif isinstance(event, calls.Gone) and event.node in self._claims:
            guest = self._claims[event.node]
            guest.trouble = guest.trouble or event.trouble or "its task ended before it was asked anything"

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
            self._gather(len(targets))
        self._met = True
        board = self._board
        assert board is not None
        finish = time.monotonic() + self._limits.node_budget_s
        came = len(self._guests)
        for target, guest in zip(targets, self._seated(targets), strict=True):
            node = self._nodes[target.id]
            if guest is None:
                said = f"of {len(targets)} tasks {came} called {self._where} here"
                said += f" within {self._options.wait_s:g} s, and this one did not"
                yield self._fail(node, Login.NO_ANSWER, said)
            elif guest.trouble:
                yield self._fail(node, Login.LOST, guest.trouble)
            else:
                node.host, node.address = guest.host, guest.address
                self._by_host[guest.host] = node
        for guest in self._guests.values():
            if guest.host not in self._by_host:
                board.drop(guest.host)
        self._waiting = {node.id for node in self._nodes.values() if not node.failed}
        for node in list(self._by_host.values()):
            for event in self._claims[node.host].early:
                yield from self._frame(node, event)
        while self._waiting and time.monotonic() < finish:
            yield from self._events(finish)
        late = [node for node in self._nodes.values() if not node.ended and not node.failed]
        yield from self._all(late, Login.TIMEOUT, "its agent said nothing in time")
        if not keep_open:
            self.close()

    def _seated(self, targets: Sequence[Target]) -> list[_Guest | None]:
        """The guest of each node: by its name, or by that without a domain where only one has that."""
        left = dict(self._guests)
        found = [left.pop(t.id, None) or left.pop(t.host, None) for t in targets]
        short: dict[str, list[str]] = {}
        for name in left:
            short.setdefault(_bare(name), []).append(name)
        for i, target in enumerate(targets):
            alike = short.get(_bare(target.host), [])
            if found[i] is None and len(alike) == 1:
                found[i] = left.pop(alike[0], None)
        for name in left:
            self._notes[f"{clean(name, 60)} called, and is not listed; it was not looked at"] = None
        return found

    def _hello(self, node: Agent, hello: frames.Hello) -> Iterator[SessionEvent | Reply]:
        node.python = clean(hello.executable, 200) or "python3"
        yield from super()._hello(node, hello)

    def close(self) -> None:
        """End all sessions and listeners; the tasks end with them."""
        board, self._board = self._board, None
        if board is not None:
            self._notes.update(board.notes)
            board.close()
        for node in self._nodes.values():
            node.is_open = False


def _bare(name: str) -> str:
    return name.partition(".")[0] if name[:1].isalpha() and ":" not in name else name
