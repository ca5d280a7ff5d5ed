from netdoctor.checks.facts.file import FAULTS, facts_file
from netdoctor.facts.host import FILED, Login, Session
from netdoctor.model import Status
from netdoctor.scanning.factfile import Fault

from ..build import said


def test_what_was_written_is_silent() -> None:
    assert said(facts_file(Session(outcome=Login.OK, transport=FILED))) == []


def test_every_fault_is_unknown_with_a_cause_of_its_own() -> None:
    assert set(FAULTS) == set(Fault)
    for stage in (*Fault, "what a later release says"):
        (one,) = said(facts_file(Session(outcome=Login.LOST, transport=FILED, stage=stage, detail="n1:1: x")))
        assert one.status is Status.UNKNOWN
        assert "n1:1: x" in one.summary
        assert stage not in FAULTS or (one.cause and one.cause.key == f"facts-{stage.replace('_', '-')}")
