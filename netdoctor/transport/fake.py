"""A transport without machines, for tests: nodes that live in a dictionary and answer at once, in order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import msgspec

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import Login, Session
from netdoctor.inventory.model import Target
from netdoctor.transport.base import Reply, Request, SessionEvent

Answer = Callable[[str, Request], Any]


@dataclass
class FakeTransport:
    """Nodes that log in and answer.

    sessions[node]: instead of a good login. facts[node]: by group a fact, a Missing, or what an agent would
    send; anything but a dictionary is the whole answer. answers[op]: a function from (node, request) to a raw
    result, a Missing, or None for silence. trip: called with (what, node) before each event; it may raise.
    asked: the (op, node) of every request after the first; closed: how often it was; started: the
    interpreters of each start.
    """

    sessions: dict[str, Session] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    trip: Callable[[str, str], None] = lambda what, node: None
    asked: list[tuple[str, str]] = field(default_factory=list)
    closed: int = 0
    notes: tuple[str, ...] = ()
    shut: set[str] = field(default_factory=set)
    started: list[list[str | None]] = field(default_factory=list)

    def session(self, target: Target) -> Session:
        """How the login of a node ends that `sessions` does not name."""
        return Session(outcome=Login.OK, stage="agent", address=target.host, transport="fake")

    def fact(self, target: Target, group: str) -> Any:
        """What a node says of a group that `facts` does not name."""
        return Missing(Why.NOT_COLLECTED, f"no {group} was prepared")

    def start(
        self,
        targets: Sequence[Target],
        first: Mapping[str, Request],
        *,
        keep_open: bool,
        collectors: Mapping[str, str],
        deadline_s: float = 300.0,
    ) -> Iterator[SessionEvent | Reply]:
        """Yield a session for each target, and a reply after each that is ok."""
        self.started.append([target.python for target in targets])
        for target in targets:
            self.trip("login", target.id)
            self.shut.discard(target.id)
            session = self.sessions.get(target.id) or self.session(target)
            yield SessionEvent(node=target.id, session=session)
            if session.outcome == Login.OK:
                self.trip("facts", target.id)
                yield _reply(target.id, self._first(target, first[target.id]))
            if session.outcome != Login.OK or not keep_open:
                self.lose(target.id)

    def _first(self, target: Target, request: Request) -> Any:
        said = self.facts.get(target.id, {})
        if not isinstance(said, dict):
            return said
        groups = [*request.args["groups"], *said]
        return {g: _raw(said[g] if g in said else self.fact(target, g)) for g in groups}

    def bound_s(self, targets: Sequence[Target]) -> float:
        return 1.0

    def call(self, requests: Mapping[str, Request], within_s: float | None = None) -> Iterator[Reply]:
        """Yield one reply per request, in order, but for silence."""
        for node, request in requests.items():
            self.asked.append((request.op, node))
            self.trip(request.op, node)
            answer: Any = Missing(Why.NOT_COLLECTED, f"no answer to {request.op} was prepared")
            if node in self.shut:
                answer = Missing(Why.LOST, "no open session")
            elif request.op in self.answers:
                answer = self.answers[request.op](node, request)
            if answer is not None:
                yield _reply(node, answer)

    def lose(self, node: str) -> None:
        """Cut a node off: what follows is `lost`."""
        self.shut.add(node)

    def interrupt(self, error: BaseException) -> None:
        """Whatever comes next raises it."""

        def raise_it(what: str, node: str) -> None:
            self.trip = lambda what, node: None
            raise error

        self.trip = raise_it

    def close(self) -> None:
        self.closed += 1
        self.trip("close", "")

    def describe(self, target: Target) -> dict[str, Any]:
        return {"transport": "fake", "host": target.host}


def _reply(node: str, answer: Any) -> Reply:
    return (
        Reply(node=node, missing=answer) if isinstance(answer, Missing) else Reply(node=node, result=answer)
    )


def _raw(fact: Any) -> Any:
    """A fact as an agent sends it."""
    if isinstance(fact, Missing):
        return {"missing": {"why": fact.why.value, "detail": fact.detail}}
    return {"value": msgspec.to_builtins(fact)} if is_dataclass(fact) else fact
