from dataclasses import fields
from pathlib import Path

import pytest

import netdoctor.checks
from netdoctor.checks._shared.outcomes import Outcome, Outcomes, Step, outcomes
from netdoctor.compat import tomllib
from netdoctor.model import CONTROL, Cause, Fix, Kind, Status

TABLES = [
    ("net", "errors.toml"),
    ("rdma", "errors.toml"),
    ("net", "reach.toml"),
    ("ray", "nodes.toml"),
    ("slurm", "node.toml"),
    ("ssh", "login.toml"),
]
LATE = Outcome(cause=Cause("late", "<gate> is late for {nodes}"), fixes=("ask", "wait"), of_control=True)


def keys(of: type) -> set[str]:
    return {field.name for field in fields(of)}


@pytest.mark.parametrize(("family", "name"), TABLES)
def test_a_table_has_no_word_that_nobody_reads(family: str, name: str) -> None:
    raw = tomllib.loads((Path(netdoctor.checks.__path__[0]) / family / "data" / name).read_text("utf-8"))
    for outcome in raw["outcome"].values():
        assert outcome.keys() <= keys(Outcome)
        assert outcome["cause"].keys() <= keys(Cause)
    for step in raw["fix"].values():
        assert step.keys() <= keys(Step)
        assert step.get("more", {}).keys() <= keys(Fix) - keys(Step)


@pytest.mark.parametrize(("family", "name"), TABLES)
def test_an_outcome_names_fixes_that_are_there_and_all_of_them_are_named(family: str, name: str) -> None:
    table = outcomes(family, name)
    assert {one for outcome in table.outcome.values() for one in outcome.fixes} == table.fix.keys()


def test_a_command_goes_with_its_word_and_a_step_with_its_condition() -> None:
    steps = {
        "ask": Step(text="ask <gate>", look=("ssh <gate>", "date"), root=True, when="gate"),
        "wait": Step(text="wait", unless="gate"),
    }
    table = Outcomes(outcome={"late": LATE}, fix=steps)
    (ask,) = table.fixes("late", {"gate": "g{1}"})
    assert (ask.kind, ask.text, ask.root) == (Kind.LOOK, "ask g{1}", True)
    assert [one.shell for one in ask.commands] == ["ssh g{1}", "date"]
    assert [one.shell for one in steps["ask"].fix({"gate": ""}).commands] == ["date"]
    (wait,) = table.fixes("late", {"gate": ""})
    assert wait.text == "wait"
    finding = table.finding("late", {"gate": "g{1}"}, "late")
    assert finding.cause is not None
    assert (finding.status, finding.cause.culprits) == (Status.FAIL, (CONTROL,))
    assert finding.cause.title.format(nodes="n1") == "g{1} is late for n1"
