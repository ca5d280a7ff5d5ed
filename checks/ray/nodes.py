"""Nodes as Ray has them: in its table, alive, and starting an actor."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.facts.host import Login, Node, Session
from netdoctor.model import CONTROL, SUSPECTED, Cause, Finding, Fix, in_hosts, look, ok, seen

LOGS = "tail -n 40 /tmp/ray/session_latest/logs/raylet.err /tmp/ray/session_latest/logs/raylet.out"
RAYLET = look("see its raylet's last words, then start it again: ray start --address=HEAD:PORT", LOGS)
HANGS = look(
    "see whether its raylet runs, state T or D is one that hangs, and what it said last",
    "ps -o pid,stat,etime,comm -C raylet",
    LOGS,
)
STATUS = look("see what Ray knows, then scan again", "ray status", on=CONTROL)
PYTHON = in_hosts("name another interpreter on its line of the hosts file: python=PATH, or leave it to Ray")
JOIN = look(
    "start Ray there (ray start --address=HEAD:PORT), or take it off the list", "ray status", on=CONTROL
)

UNKNOWN = Cause("ray-unknown-node", "Ray does not know {nodes}")
DEAD = Cause("ray-node-dead", "Ray has {nodes} as dead")
ACTOR = Cause("ray-actor", "Ray cannot start an actor on {nodes}")
INTERPRETER = Cause("ray-interpreter", "{nodes} {has} no Python at the place asked for")
OLD_PYTHON = Cause("ray-old-python", "The Python of {nodes} is too old for netdoctor")
# What is only suspected may be our own trouble, and blames no node.
LATE = Cause(
    "ray-late",
    "Ray has started no actor on {nodes} in time",
    SUSPECTED,
    settle_by="scan again with a longer --timeout: does it need longer, or is it never started?",
)
DRIVER = Cause("ray-driver", "netdoctor's own driver of Ray broke off", SUSPECTED, settle_by="scan again")

OUTCOMES: dict[str, tuple[Cause, Fix | tuple[Fix, ...]]] = {
    Login.NAME: (UNKNOWN, JOIN),
    Login.UNREACHABLE: (DEAD, RAYLET),
    Login.SHELL: (ACTOR, RAYLET),
    Login.INTERPRETER: (INTERPRETER, PYTHON),
    Login.OLD_PYTHON: (OLD_PYTHON, PYTHON),
    Login.TIMEOUT: (LATE, (HANGS, STATUS)),
    Login.CONTROL: (DRIVER, STATUS),
}


@check(
    after=(),
    via="ray",
    source="https://docs.ray.io/en/releases-2.44.1/ray-core/api/doc/ray.nodes.html",
)
def ray_nodes(node: Node, session: Session) -> Iterator[Finding]:
    """Ray has every node alive in its table, and starts an actor on it.

    Looks at:
        Ray's own table of nodes, and one actor pinned to each of them (NodeAffinitySchedulingStrategy, no
        CPU, no GPU) that starts netdoctor's agent.

    Matters because:
        A placement group waits for ever for a node that is dead or never joined, and an actor that cannot be
        started there ends the job with RayActorError.

    Fix:
        Read the raylet's log on the node, and start Ray there again with the address of the head.
    """
    if session.outcome == Login.OK:
        if session.noise:
            yield ok(node.id, "the agent runs", evidence=(seen("printed at its start", session.noise),))
        return
    cause, fix = OUTCOMES.get(session.outcome, (DRIVER, STATUS))
    ours = cause.confidence is SUSPECTED
    yield (cause.unknown if ours else cause.fail)(
        session.detail or session.outcome.replace("_", " "),
        culprits=(CONTROL,) if cause is DRIVER else (),
        observed=session.outcome.replace("_", " "),
        expected="alive in Ray's table, and an actor that starts",
        seen=seen(f"Ray, {session.stage}", session.detail),
        fixes=fix,
    )
