"""Shells that come to no end, or give jobs other settings."""

from dataclasses import replace
from typing import Any

import pytest

from netdoctor.checks.env.shell import env_shell
from netdoctor.facts.host import Session
from netdoctor.facts.launching import JobShells, ShellAnswer
from netdoctor.model import Finding, Status

from ..build import job

PYTHON = {"python3": "/usr/bin/python3"}
PLAIN = ShellAnswer(
    way="sh -c", seconds=0.01, variables={"NCCL_DEBUG": "WARN", "PATH": "/usr/bin"}, tools=PYTHON
)
BASH = replace(PLAIN, way="bash -c")
LOGIN = replace(PLAIN, way="bash -l -c", variables={"NCCL_DEBUG": "WARN", "PATH": "/usr/local/bin:/usr/bin"})
LATE = ShellAnswer(way="bash -l -c", error="no answer in 10 s", late=True, seconds=10.0)


def judged(*shells: ShellAnswer, session: Session | None = None, **of_job: Any) -> list[Finding]:
    return list(env_shell(JobShells(shells=shells), job(**of_job), session))


def test_shells_that_agree_are_silent() -> None:
    assert judged(PLAIN, BASH, LOGIN) == []
    (finding,) = judged(PLAIN)
    assert (finding.status, finding.summary) == (Status.SKIP, "there is no bash")


@pytest.mark.parametrize(
    ("late", "launcher", "status"),
    [
        pytest.param(LATE, None, Status.FAIL, id="late"),
        pytest.param(LATE, "srun", Status.FAIL, id="late, and the job is sbatch's"),
        pytest.param(LATE, "pdsh", Status.WARN, id="late, and the job is started otherwise"),
        pytest.param(
            replace(LATE, error="it ended with status 3 before it answered", late=False, seconds=0.1),
            *(None, Status.FAIL),
            id="ends",
        ),
        pytest.param(replace(LATE, error="ENOMEM", late=False), None, Status.UNKNOWN, id="not asked"),
    ],
)
def test_one_that_runs_no_command(late: ShellAnswer, launcher: str | None, status: Status) -> None:
    (finding,) = judged(PLAIN, BASH, late, launcher=launcher)
    assert finding.status is status
    assert finding.summary.startswith(f"bash -l -c runs no command: {late.error}")


def test_on_a_node_where_all_shells_are_slow_it_stays_open() -> None:
    (finding,) = judged(replace(PLAIN, seconds=4.0), LATE)
    assert finding.status is Status.UNKNOWN
    (finding,) = judged(replace(LATE, way="sh -c"), LATE)
    assert (finding.status, finding.summary) == (
        Status.UNKNOWN,
        "sh -c did not show its settings: no answer in 10 s",
    )


@pytest.mark.parametrize(
    ("variables", "tools", "names"),
    [
        ({"NCCL_DEBUG": "INFO"}, PYTHON, "NCCL_DEBUG"),
        ({}, PYTHON, "NCCL_DEBUG"),
        ({"NCCL_DEBUG": "WARN", "LD_LIBRARY_PATH": "/opt/cuda/lib64"}, PYTHON, "LD_LIBRARY_PATH"),
        ({"NCCL_DEBUG": "WARN"}, {"python3": "/opt/conda/bin/python3"}, "python3"),
        ({"NCCL_DEBUG": "WARN"}, {}, "python3"),
    ],
)
def test_what_one_gives_and_another_does_not(
    variables: dict[str, str], tools: dict[str, str], names: str
) -> None:
    other = replace(LOGIN, variables=variables, tools=tools)
    (finding,) = judged(PLAIN, BASH, other, launcher="srun")
    assert finding.status is Status.WARN
    assert f"bash -l -c has other values of {names} than sh -c" in finding.summary
    assert "sbatch" in finding.summary
    (open_,) = judged(PLAIN, other)
    assert open_.cause
    assert (open_.status, open_.cause.confidence) == (Status.WARN, "suspected")
    (told,) = judged(PLAIN, other, launcher="torchrun")
    assert told.status is Status.PASS


def test_what_the_job_sets_or_names_is_no_difference() -> None:
    of_job = {"NCCL_DEBUG": "INFO"}
    other = replace(BASH, variables=of_job, tools={"python3": "/x/python3"})
    named = Session(outcome="ok", interpreter="/opt/venv/bin/python")
    assert judged(PLAIN, other, session=named, env=of_job, env_from={"NCCL_DEBUG": "job.env:1"}) == []
