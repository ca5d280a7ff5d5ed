"""A start of the job's interpreter that does not get to a program."""

import pytest

from netdoctor.checks.sw.start import sw_start
from netdoctor.model import Finding, Status

from ..build_hw import python_start


def shell_of(finding: Finding) -> str:
    assert finding.cause
    return finding.cause.fixes[0].commands[0].shell


def test_one_that_starts_is_silent() -> None:
    assert not list(sw_start(python_start()))
    assert not list(sw_start(python_start(seconds=6.0)))


@pytest.mark.parametrize(
    ("code", "said", "words"),
    [
        (1, "SystemExit: 3", "ended with exit code 1: SystemExit: 3"),
        (5, "", "ended with exit code 5 and printed nothing"),
        (-11, "", "was killed by signal 11 and printed nothing"),
    ],
)
def test_how_it_ended_and_what_it_printed_last_are_told(code: int, said: str, words: str) -> None:
    (finding,) = sw_start(python_start(starts=False, code=code, said=said))
    assert finding.summary == f"/opt/train/bin/python {words}"
    assert finding.status is Status.FAIL
    assert finding.cause
    assert finding.cause.key == "python-start"
    assert "/opt/train/bin/python -v -c pass" in shell_of(finding)


@pytest.mark.parametrize(
    ("bare", "status"),
    [
        pytest.param(0.1, Status.FAIL, id="waits for something"),
        pytest.param(1.9, Status.UNKNOWN, id="slow without it, too"),
        pytest.param(None, Status.UNKNOWN, id="late without it, too"),
    ],
)
def test_one_that_does_not_end_is_held_against_a_bare_start(bare: float | None, status: Status) -> None:
    (finding,) = sw_start(python_start(starts=False, code=None, seconds=7.0, bare_s=bare))
    assert finding.status is status
    assert "did not end in 7 s" in finding.summary


def test_an_odd_path_stands_in_no_command() -> None:
    (finding,) = sw_start(python_start(executable="/tmp/a b;c", starts=False, code=1))
    assert "timeout 20 python3 -v" in shell_of(finding)
