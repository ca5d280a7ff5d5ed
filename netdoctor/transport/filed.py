"""Answers that tasks of a job have written down: as agents give them, and nobody is asked anything more."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netdoctor.errors import ProtocolError
from netdoctor.facts.base import Why
from netdoctor.facts.host import Login, Session
from netdoctor.inventory.model import Target
from netdoctor.transport.base import Event, Reply, Request, SessionEvent, StartPlan, Transport, missing_reply
from netdoctor.transport.frames import decode_members

# Of a group of facts that is asked for and not in the file.
UNSAID = {
    "missing": {"why": Why.FAILED.value, "detail": "not in the file: another release or profile wrote it"}
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of one node. facts: JSON, an agent's answer to ``facts``, where the session is ``ok``."""

    session: Session
    facts: bytes = b"{}"


class FiledTransport(Transport):
    """Gives the answers of nodes that have written them."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = answers

    def _start(self, plan: StartPlan) -> Iterator[Event]:
        """Yield what each node has written."""
        for target in plan.targets:
            answer = self._answers[target.id]
            yield SessionEvent(node=target.id, session=answer.session)
            if answer.session.outcome != Login.OK:
                continue
            try:
                found = decode_members(answer.facts)
                absent = dict.fromkeys(plan.first[target.id].args["groups"], UNSAID)
                yield Reply(node=target.id, result={**absent, **found})
            except (ProtocolError, TypeError) as error:
                yield missing_reply(target.id, Why.UNPARSABLE, str(error))

    def bound_s(self, targets: Sequence[Target]) -> float:
        """Nobody is waited for; it has to be more than no time."""
        return 60.0 + len(targets)

    def _call(self, requests: Mapping[str, Request], finish: float) -> Iterator[Reply]:
        """Nobody is there to be asked."""
        for node in requests:
            yield missing_reply(node, Why.NOT_COLLECTED, "its facts come from a file")

    def close(self) -> None:
        """Nothing is open."""

    def describe(self, target: Target) -> dict[str, Any]:
        """Where its facts come from."""
        return {"transport": "facts", "host": target.host, "file": self._answers[target.id].session.detail}
