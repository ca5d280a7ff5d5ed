"""What tasks of a job have written of their nodes, where that is all there is."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.facts.host import Login, Session
from netdoctor.model import Cause, Finding, look, seen, unknown

COMMAND = "one line of facts of this job, written within the hour"
AGAIN = look("let each task of the job run netdoctor facts again, then scan again")
WATCH = look("see in the job's log whether its task was started, and its messages; then let it write again")
BY_HAND = look("see who owns the file, and correct its owner and mode; --facts-uid trusts another user")

# By the word that Session.stage has for it.
FAULTS = {
    "absent": (Cause("facts-absent", "{nodes} wrote no facts"), WATCH),
    "old": (Cause("facts-old", "The facts of {nodes} are too old"), AGAIN),
    "early": (Cause("facts-early", "The facts of {nodes} have a time in the future"), AGAIN),
    "broken": (Cause("facts-broken", "The facts of {nodes} cannot be read"), WATCH),
    "format": (Cause("facts-format", "The facts of {nodes} are of another format"), AGAIN),
    "other_job": (Cause("facts-other-job", "The facts of {nodes} are of another job"), AGAIN),
    "twice": (Cause("facts-twice", "There are several facts of {nodes}"), AGAIN),
    "stranger": (Cause("facts-stranger", "The facts of {nodes} may come from somebody else"), BY_HAND),
    "unread": (Cause("facts-unread", "The files with the facts of {nodes} cannot be opened"), BY_HAND),
}


@check(after=(), via="facts")
def facts_file(session: Session) -> Iterator[Finding]:
    """Every node of the job has written facts that can be judged.

    Looks at:
        The lines that tasks of the job wrote with netdoctor facts: one for each node that is listed, that
        the job's node list names, or that its launcher counts. Each line must be of this job, recent,
        complete, and written by you.

    Matters because:
        Nothing is known of a node that wrote nothing; the job may wait for it for ever.

    Fix:
        Find in the job's log why its task wrote nothing, and run the task again. Do not trust a file that
        belongs to somebody else, or that everybody may write.
    """
    if session.outcome == Login.OK:
        return
    if session.stage not in FAULTS:
        yield unknown("", f"its facts cannot be used: {session.detail}")
        return
    cause, fix = FAULTS[session.stage]
    yield cause.unknown(
        session.detail,
        observed=session.stage.replace("_", " "),
        expected=COMMAND,
        seen=seen("scan --facts", session.detail),
        fixes=fix,
    )
