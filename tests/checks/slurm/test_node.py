import shlex

import pytest

from netdoctor.checks.slurm.node import OUTCOMES, slurm_node
from netdoctor.facts.host import Login, Session, Trouble
from netdoctor.model import CONTROL, SUSPECTED, Status

from ..build import node

REASON = "drained: bad dimm [root@2026-11-20]"


def test_silent_where_a_task_answers() -> None:
    assert list(slurm_node(node(), Session(outcome=Login.OK, transport="slurm"))) == []


def test_a_node_that_is_being_drained_warns() -> None:
    (finding,) = slurm_node(node(), Session(outcome=Login.OK, detail="draining: fan", transport="slurm"))
    assert (finding.status, finding.observed) == (Status.WARN, "draining: fan")


CLASSES = [one for one in Login if one in OUTCOMES.outcome]


@pytest.mark.parametrize("outcome", CLASSES)
def test_each_class_has_a_cause_and_its_fix(outcome: Login) -> None:
    (finding,) = slurm_node(node(), Session(outcome=outcome, detail=REASON, transport="slurm"))
    assert finding.cause is not None
    suspected = finding.cause.confidence is SUSPECTED
    assert finding.status is (Status.UNKNOWN if suspected else Status.FAIL)
    assert (finding.summary, bool(finding.cause.fixes)) == (REASON, True)
    for command in (c for fix in finding.cause.fixes for c in fix.commands):
        assert shlex.split(command.shell)
        assert "NODE" not in command.shell.replace("NodeName", "")


@pytest.mark.parametrize("stage", ["step", "connect"])
@pytest.mark.parametrize("trouble", [None, Trouble.NETWORK])
def test_whoever_cannot_call_is_named_unless_none_can(stage: str, trouble: Trouble | None) -> None:
    cut = Session(outcome=Login.NO_WAY_BACK, stage=stage, detail="10.0.0.1 port 40: refused", trouble=trouble)
    (finding,) = slurm_node(node(), cut)
    assert finding.cause is not None
    assert (finding.status, finding.cause.confidence) == (Status.UNKNOWN, SUSPECTED)
    assert finding.cause.culprits == (() if trouble is None else (CONTROL,))
    assert "10.0.0.1 port 40: refused" in str(finding.observed)
    commands = [c for fix in finding.cause.fixes for c in fix.commands]
    assert commands
    assert all(shlex.split(command.shell) and "NODE" not in command.shell for command in commands)


def test_what_stands_in_no_command_becomes_none() -> None:
    odd = node(host="n1;PWN")
    for outcome in CLASSES:
        (finding,) = slurm_node(odd, Session(outcome=outcome, detail=REASON, transport="slurm"))
        assert finding.cause is not None
        assert not [c for fix in finding.cause.fixes for c in fix.commands if "PWN" in c.shell]


def test_an_outcome_of_another_way_is_unknown() -> None:
    (finding,) = slurm_node(node(), Session(outcome=Login.KEX, transport="slurm"))
    assert finding.status is Status.UNKNOWN
