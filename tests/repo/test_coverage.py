"""docs/coverage.md names nothing that is not there."""

import re
from pathlib import Path

import pytest

from netdoctor.cli import COMMANDS, build_parser
from netdoctor.engine.registry import load_builtin

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text("utf-8").splitlines()
    if re.match(r"\|.*\| (yes|part|no) \|", line)
]


# Commands whose -h shows the options of every day.
BRIEF = ("scan", "gate", "tui")


def test_every_row_says_what_does_it_or_why_not() -> None:
    assert len(ROWS) == 128
    assert len({row[0] for row in ROWS}) == len(ROWS)
    for what, state, here in ROWS:
        assert here, what
        assert state != "yes" or re.search(r"`|\]\(", here), what


def test_checks_exist() -> None:
    named = {name for row in ROWS for name in re.findall(r"`([a-z]+\.[a-z-]+)`", row[2])}
    assert len(named) > 40
    assert named <= load_builtin().keys()


def test_pages_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE.read_text("utf-8")):
        assert (PAGE.parent / target).is_file(), target


def test_commands_and_options_exist(capsys: pytest.CaptureFixture[str]) -> None:
    named = re.findall(r"`netdoctor ([a-z]+)(?: (--?[a-z-]+)[^`]*)?`", PAGE.read_text("utf-8"))
    for command, option in named:
        assert command in COMMANDS
        with pytest.raises(SystemExit):
            build_parser(command).parse_args([command, "--help-all" if command in BRIEF else "-h"])
        assert re.search(rf"(^|[ ,\[]){re.escape(option)}\b", capsys.readouterr().out), (command, option)
