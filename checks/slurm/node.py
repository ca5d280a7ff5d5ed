"""A task of Slurm's on the node, and the agent in it."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.outcomes import outcomes
from netdoctor.checks._shared.text import is_host_name
from netdoctor.facts.host import Login, Node, Session
from netdoctor.model import Finding, Status, seen, unknown

OUTCOMES = outcomes("slurm", "node.toml")


@check(after=(), via="slurm", source="https://slurm.schedmd.com/sinfo.html#SECTION_NODE-STATE-CODES")
def slurm_node(node: Node, session: Session) -> Iterator[Finding]:
    """Slurm starts a task on the node, and netdoctor's agent answers from it.

    Looks at:
        The node's state and reason in Slurm (sinfo), one task in a step of the allocation, and the
        connection from that task to this machine.

    Matters because:
        A job gets no node that Slurm has taken out. If no test task starts on a node, no task of the job
        does.

    Fix:
        Each cause has its own fix. Give a node back with State=RESUME, after its problem is fixed.
    """
    text = session.detail or session.outcome.replace("_", " ")
    words = {"node": node.host if is_host_name(node.host) else ""}
    running = session.outcome == Login.OK
    outcome = Login.DRAINED if running else session.outcome  # a job that has a node keeps it meanwhile
    if running and not session.detail:
        return
    if session.outcome == Login.NO_WAY_BACK:
        # Tasks that cannot call: the node's, unless none can.
        dialled = session.stage == "connect"
        text = f"its task ran, but could not connect to {session.detail}" if dialled else session.detail
        yield OUTCOMES.finding(
            ("cut_off" if dialled else "silent") + ("_here" if session.trouble is not None else ""),
            words,
            text,
            observed=text,
            expected="a connection from the task to netdoctor here"
            if dialled
            else "messages of the task, by srun",
            seen=seen("the task, by srun" if dialled else "srun", text),
        )
    elif outcome not in OUTCOMES.outcome:
        yield unknown(node.id, f"a task ended in a way that netdoctor does not know: {text}")
    else:
        yield OUTCOMES.finding(
            outcome,
            words,
            text,
            Status.WARN if running else None,
            observed=text,
            expected="a node that Slurm gives to jobs, and a task on it that answers",
            seen=seen("sinfo, srun", text),
        )
