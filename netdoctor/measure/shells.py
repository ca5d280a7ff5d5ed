"""What the users' login shells give beside the session that the agent has."""

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.launching import ShellFacts
from netdoctor.measure.common import ask, read_as, token
from netdoctor.measure.declare import Context, experiment

ASKING_S = 25.0  # op_shell: two shells of 10 s


@experiment(bound_s=ASKING_S)
def shells(context: Context) -> dict[str, ShellFacts | Missing]:
    """Every node starts the user's login shell and says what it sets; its start-up files run."""
    args = {node: {"mark": token()} for node in context.participants.nodes}
    found: dict[str, ShellFacts | Missing] = {}
    for reply in ask(context.transport, "shell_env", args, ASKING_S):
        unread = reply.missing or Missing(Why.UNPARSABLE, "the answer could not be read")
        found[reply.node] = (read_as(reply.result, ShellFacts) if reply.missing is None else None) or unread
    return found
