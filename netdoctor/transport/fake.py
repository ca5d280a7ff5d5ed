"""A transport without machines, for tests: nodes that live in a dictionary and answer at once, in order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import msgspec

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import Login, Session
from netdoctor.inventory.model import Target
from netdoctor.transport.base import Event, Reply, Request, SessionEvent, StartPlan, Transport

Answer = Callable[[str, Request], Any]


@dataclass
class FakeTransport(Transport):
    """Nodes that log in and answer."""

    # By node: instead of a good login.
    sessions: dict[str, Session] = field(default_factory=dict)
    # By node, then group: a fact, a Missing, or what an agent would send. All but a dict is a whole answer.
    facts: dict[str, Any] = field(default_factory=dict)
    # By op: from (node, request) to a raw result, a Missing, or None for silence.
    answers: dict[str, Answer] = field(default_factory=dict)
    # Called with (what, node) before each event; it may raise.
    trip: Callable[[str, str], None] = lambda what, node: None
    requests: list[tuple[str, str]] = field(default_factory=list)  # (op, node) of all after the first
    closed: int = 0  # how often
    notes: tuple[str, ...] = ()
    shut: set[str] = field(default_factory=set)  # nodes without a session
    started: list[list[str | None]] = field(default_factory=list)  # the interpreters of each start

    def session(self, target: Target) -> Session:
        """How the login of a node ends that `sessions` does not name."""
        return Session(outcome=Login.OK, stage="agent", address=target.host, transport="fake")

    def fact(self, target: Target, group: str) -> Any:
        """What a node says of a group that `facts` does not name."""
        return Missing(Why.NOT_COLLECTED, f"no {group} was prepared")

    def _start(self, plan: StartPlan) -> Iterator[Event]:
        """Yield a session for each target, and a reply after each that is ok."""
        self.started.append([target.python for target in plan.targets])
        for target in plan.targets:
            self.trip("login", target.id)
            self.shut.discard(target.id)
            session = self.sessions.get(target.id) or self.session(target)
            yield SessionEvent(node=target.id, session=session)
            if session.outcome == Login.OK:
                self.trip("facts", target.id)
                yield _reply(target.id, self._first(target, plan.first[target.id]))
            if session.outcome != Login.OK or not plan.keep_open:
                self.lose(target.id)

    def _first(self, target: Target, request: Request) -> Any:
        facts = self.facts.get(target.id, {})
        if not isinstance(facts, dict):
            return facts
        groups = [*request.args["groups"], *facts]
        return {g: _raw(facts[g] if g in facts else self.fact(target, g)) for g in groups}

    def bound_s(self, targets: Sequence[Target]) -> float:
        return 1.0

    def _call(self, requests: Mapping[str, Request], finish: float) -> Iterator[Reply]:
        """Yield one reply per request, in order, but for silence."""
        for node, request in requests.items():
            self.requests.append((request.op, node))
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
