"""Fixed seeds of the hostile report; `make fuzz` draws fresh ones."""

import shlex

import pytest

from tests.fuzz import report


def test_each_format_is_looked_at() -> None:
    assert report.LOOKS.keys() == report.FORMATS.keys()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_a_hostile_report_does_nothing(seed: int) -> None:
    assert report.run(seed, 8.0) > 10


@pytest.mark.parametrize(
    "shell",
    [
        "ssh n1 $(PWN)",
        "ssh n1;PWN",
        'ssh n1 "`PWN`"',
        "ssh n1 | PWN",
        "ls > PWN",
        "a 'b';PWN;''",
        "ssh -oPWN=x n1",
        "a 'b",
    ],
)
def test_what_a_shell_would_run_is_seen(shell: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        report.assert_harmless(shell)


@pytest.mark.parametrize("text", [text for text in report.SHELL if not text.startswith("-")])
def test_what_is_quoted_is_none(text: str) -> None:
    report.assert_harmless(f"ssh n1 {shlex.quote(text)} && ls | wc")
