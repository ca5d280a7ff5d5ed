from netdoctor.checks.meet.task import OUTCOMES, meet_task
from netdoctor.facts.host import MEET, Login, Session
from netdoctor.model import CONTROL, Status

from ..build import said


def test_a_task_that_answers_is_silent() -> None:
    assert said(meet_task(Session(outcome=Login.OK, transport=MEET))) == []


def test_every_other_end_is_unknown() -> None:
    for outcome in set(Login) - {Login.OK}:
        (one,) = said(meet_task(Session(outcome=outcome, transport=MEET, detail="of 3 tasks 2 called")))
        assert one.status is Status.UNKNOWN
        assert "of 3 tasks 2 called" in one.summary
        assert (outcome in OUTCOMES) == (one.cause is not None)


def test_a_call_that_never_arrives_or_is_changed_is_about_the_place_that_is_called() -> None:
    for outcome, culprit in (
        (Login.NO_ANSWER, CONTROL), (Login.ALTERED, CONTROL), (Login.LOST, "n1"), (Login.TIMEOUT, "n1"),
    ):  # fmt: skip
        (one,) = said(meet_task(Session(outcome=outcome, transport=MEET, detail="no call")))
        assert one.cause is not None
        assert one.cause.culprits == (culprit,), outcome
