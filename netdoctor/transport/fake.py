"""A transport without machines: answers are given beforehand, for tests and demonstrations."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import Session
from netdoctor.inventory.model import Target
from netdoctor.transport.base import Reply, Request, SessionEvent

Answers = Callable[[str, Request], Any]


class FakeTransport:
    """Answers at once and in a fixed order.

    sessions: by node; a node that is not there gets a session that is ok. replies: a function of node and
    request that returns a result or a `Missing`; or the fact groups of each node, ``{node: {group: value or
    Missing}}``, for requests of ``facts`` only. `calls` records what was asked.
    """

    def __init__(
        self,
        sessions: Mapping[str, Session] | None = None,
        replies: Answers | Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._sessions = dict(sessions or {})
        self._replies = replies if callable(replies) else _from_groups(replies or {})
        self._open: set[str] = set()
        self._at = 0.0
        self.calls: list[tuple[str, Request]] = []
        self.closed = False
        self.notes: tuple[str, ...] = ()

    def start(
        self,
        targets: Sequence[Target],
        first: Mapping[str, Request],
        *,
        keep_open: bool,
        collectors: Mapping[str, str],
    ) -> Iterator[SessionEvent | Reply]:
        """Yield a session for each target in order, and a reply after each that is ok."""
        for target in targets:
            session = self._session(target)
            self._at += 0.001
            yield SessionEvent(node=target.id, session=session, at=self._at)
            if session.outcome == "ok":
                self._open.add(target.id)
                yield self._reply(target.id, first[target.id])
                if not keep_open:
                    self._open.discard(target.id)

    def call(self, requests: Mapping[str, Request]) -> Iterator[Reply]:
        """Yield one reply per request, in order."""
        for node, request in requests.items():
            if node in self._open:
                yield self._reply(node, request)
            else:
                yield Reply(node=node, missing=Missing(Why.LOST, "no open session"))

    def lose(self, node: str) -> None:
        """Cut a node off: what follows is `lost`."""
        self._open.discard(node)

    def close(self) -> None:
        self._open.clear()
        self.closed = True

    def describe(self, target: Target) -> dict[str, Any]:
        session = self._session(target)
        return {
            "transport": "fake",
            "host": target.host,
            "address": session.address,
            "port": session.port,
            "user": session.user,
            "jump": [],
        }

    def _session(self, target: Target) -> Session:
        if target.id in self._sessions:
            return self._sessions[target.id]
        return Session(
            outcome="ok",
            stage="agent",
            address=target.host,
            port=target.port or 22,
            user=target.user or "user",
            interpreter=target.python or "python3",
            python_version="3.11.2",
            login_ms=10.0,
            first_byte_ms=20.0,
            transport="fake",
        )

    def _reply(self, node: str, request: Request) -> Reply:
        self.calls.append((node, request))
        answer = self._replies(node, request)
        if isinstance(answer, Missing):
            return Reply(node=node, missing=answer, elapsed_ms=1.0)
        return Reply(node=node, result=copy.deepcopy(answer), elapsed_ms=1.0)


def _from_groups(facts: Mapping[str, Mapping[str, Any]]) -> Answers:
    """Return the answers of agents that know the given fact groups and nothing else."""

    def answer(node: str, request: Request) -> Any:
        if request.op != "facts":
            return Missing(Why.NOT_COLLECTED, f"no answer to {request.op} was prepared")
        known = facts.get(node, {})
        result: dict[str, Any] = {}
        for group in request.args.get("groups", {}):
            value = known.get(group, Missing(Why.NOT_COLLECTED, f"no {group} was prepared"))
            if isinstance(value, Missing):
                result[group] = {"missing": {"why": str(value.why), "detail": value.detail}}
            else:
                result[group] = {"value": value}
        return result

    return answer
