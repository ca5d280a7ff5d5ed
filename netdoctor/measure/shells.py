"""What the users' login shells give beside the session that the agent has."""

from typing import TypeVar

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.launching import JobShells, ShellFacts
from netdoctor.measure.common import ask, read_as, token
from netdoctor.measure.declare import Context, experiment

T = TypeVar("T")
ASKING_S = 25.0  # op_shell: two shells of 10 s
THREE_S = 35.0  # three of them


@experiment(bound_s=ASKING_S)
def shells(context: Context) -> dict[str, ShellFacts | Missing]:
    """Every node starts the user's login shell and says what it sets; its start-up files run."""
    return _answers(context, "shell_env", ShellFacts, ASKING_S)


@experiment(bound_s=THREE_S)
def job_shells(context: Context) -> dict[str, JobShells | Missing]:
    """Every node starts shells as launchers and scripts do, one as a login, and says what they set."""
    return _answers(context, "job_shells", JobShells, THREE_S)


def _answers(context: Context, op: str, kind: type[T], seconds: float) -> dict[str, T | Missing]:
    args = {node: {"mark": token()} for node in context.participants.nodes}
    found: dict[str, T | Missing] = {}
    for reply in ask(context.transport, op, args, seconds):
        unread = reply.missing or Missing(Why.UNPARSABLE, "the answer could not be read")
        found[reply.node] = (read_as(reply.result, kind) if reply.missing is None else None) or unread
    return found
