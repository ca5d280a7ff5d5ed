"""What the users' login shells give beside the session that the agent has."""

from netdoctor.facts.base import Missing, Why
from netdoctor.facts.launching import ShellFacts
from netdoctor.measure.common import read_as, replies, token
from netdoctor.measure.declare import Context, experiment
from netdoctor.transport.base import Request

ASKING_S = 25.0  # op_shell: two shells of 10 s


@experiment(bound_s=ASKING_S)
def shells(context: Context) -> dict[str, ShellFacts | Missing]:
    """Every node starts the user's login shell and says what it sets; its start-up files run."""
    request = Request(op="shell_env", args={"mark": token()}, timeout_s=ASKING_S)
    found: dict[str, ShellFacts | Missing] = {}
    for reply in replies(context.transport, dict.fromkeys(context.participants.nodes, request)):
        unread = reply.missing or Missing(Why.UNPARSABLE, "the answer could not be read")
        found[reply.node] = (read_as(reply.result, ShellFacts) if reply.missing is None else None) or unread
    return found
