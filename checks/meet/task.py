"""Tasks of a job that call netdoctor by themselves."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.facts.host import Login, Session
from netdoctor.model import CONTROL, SUSPECTED, Cause, Finding, Fix, look, run, seen, unknown

_LOG = look("see in the job's log whether its task was started, and the messages of netdoctor facts there")
_WAY = run("open the port that --meet names to the nodes, or start netdoctor scan --meet on one of them")
_DIRECT = run("start netdoctor scan --meet where no proxy or relay is in between, or on one of the nodes")
OUTCOMES: dict[Login, tuple[Cause, tuple[Fix, ...]]] = {
    Login.NO_ANSWER: (
        Cause("meet-absent", "Not every task of the job on {nodes} connected", SUSPECTED),
        (_LOG, _WAY),
    ),
    Login.STEP: (
        Cause("meet-missing", "The task of {nodes} did not connect, and others of the job did", SUSPECTED),
        (_LOG, _WAY),
    ),
    Login.LOST: (Cause("meet-lost", "netdoctor lost its task on {nodes}", SUSPECTED), (_LOG,)),
    Login.ALTERED: (
        Cause("meet-altered", "Messages between netdoctor and tasks of the job are changed on the way"),
        (_DIRECT,),
    ),
    Login.TIMEOUT: (Cause("meet-timeout", "netdoctor ran out of time with {nodes}", SUSPECTED), (_LOG,)),
}


@check(after=(), via="meet")
def meet_task(session: Session) -> Iterator[Finding]:
    """A task of the job runs on every node, and connects to netdoctor.

    Looks at:
        The connection that netdoctor facts --meet opens from each task, and the answers of the agent there.

    Matters because:
        Nothing is known of a node whose task never connects; the job may wait for it for ever.

    Fix:
        The job's log has the messages of each task. If they are "no answer" or "no route", a firewall
        blocks the connection: open the port of --meet, or start netdoctor where the tasks reach it.
    """
    if session.outcome == Login.OK:
        return
    known = OUTCOMES.get(session.outcome)
    if known is None:
        yield unknown("", f"a task ended in a way that netdoctor does not know: {session.detail}")
        return
    cause, fixes = known
    yield cause.unknown(
        session.detail,
        culprits=(CONTROL,) if session.outcome in (Login.NO_ANSWER, Login.ALTERED) else (),
        observed=session.detail,
        expected="a task on the node that connects and answers",
        seen=seen("scan --meet", session.detail),
        fixes=fixes,
    )
