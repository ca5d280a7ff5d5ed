"""The table of options: the command line, the environment, completion, pages and commands are made of it."""

from pathlib import Path
from typing import Any

import pytest

from netdoctor import cli
from netdoctor.cli import completion, environ
from netdoctor.cli.options import request_fields
from netdoctor.cli.parser import subcommands
from netdoctor.errors import InputError
from netdoctor.options import OPTIONS, Group, Option, ScanRequest
from netdoctor.scanning.reporting import verify_prefix
from tests.scanning.test_replay import SAID

# Values of the options that a report does not keep, too.
EXAMPLES: dict[str, Any] = SAID | {
    "format": "slurm",
    "accept_new": True,
    "checks_dir": (Path("/c/checks"),),
    "facts_uid": 1000,
    "save": Path("/r/report.json"),
}
# Of them --via cannot stand beside these, which stand for a way of their own.
WAYS = {"facts": "facts", "meet": "meet"}
DOCS = Path(__file__).resolve().parents[2] / "docs"


def scan(*words: str) -> dict[str, Any]:
    return request_fields(cli.build_parser("scan").parse_args(["scan", "n1", *words]))


def with_it(option: Option) -> ScanRequest:
    value = EXAMPLES[option.name]
    more: dict[str, Any] = {"via": WAYS[option.name]} if option.name in WAYS else {}
    return ScanRequest(**{"hosts": ("n1",), "save": None, **more, option.name: value})


def test_every_option_has_an_example() -> None:
    assert EXAMPLES.keys() == OPTIONS.keys()
    for name, value in EXAMPLES.items():
        assert value != getattr(ScanRequest(), name), name


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS.keys())
def test_it_is_typed_as_it_is_said_again(option: Option) -> None:
    beside = ["--meet", "29900"] if option.name == "tasks" else []
    read = scan(*option.argv(EXAMPLES[option.name]), *beside)
    assert read[option.name] == EXAMPLES[option.name]


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_verify_command_repeats_it_or_the_table_says_why_not(option: Option) -> None:
    words = verify_prefix(with_it(option))
    if option.name == "save":
        assert words == ("netdoctor", "scan", "--last", "--save", "/r/report.json")
    elif option.not_repeated:
        assert option.flag not in words
    if option.not_repeated:
        return
    beside = ["--meet", "29900"] if option.name == "tasks" else []
    read = request_fields(cli.build_parser("scan").parse_args([*words[1:], "--no-save", *beside]))
    assert read[option.name] == EXAMPLES[option.name]


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS.keys())
def test_what_a_report_keeps_keeps_the_rule_of_the_command_line(option: Option) -> None:
    for odd in ({"a": 1}, None, ["x", 7], "a\0b" if option.rule else 1):
        with pytest.raises(InputError):
            option.from_report(odd)
    assert option.from_report(option.to_report(EXAMPLES[option.name])) == EXAMPLES[option.name]


def test_completion_environment_and_pages_know_all_of_them() -> None:
    places = {place.path: place for place in completion.commands()}
    flags = {flag for one in places["scan"].options for flag in one.flags}
    variables = environ.twins(subcommands(cli.build_parser("scan"))["scan"])
    page = (DOCS / "options.md").read_text("utf-8")
    for option in OPTIONS.values():
        assert option.flag in flags
        assert option.variable in variables
        assert f"`{option.flag}" in page


def test_help_shows_those_of_every_day_and_all_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(flag: str) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.build_parser("scan").parse_args(["scan", flag])
        assert ended.value.code == 0
        return capsys.readouterr().out

    brief, whole = shown("-h"), shown("--help-all")
    for option in OPTIONS.values():
        assert (f"  {option.flag}" in brief or f", {option.flag}" in brief) == option.everyday, option.name
        assert f" {option.flag}" in whole
    assert 18 <= brief.count("\n  -") <= 26
    assert all(f"\n{group}:\n" in whole for group in Group if group is not Group.HOSTS)
    assert brief.count("  netdoctor scan ") == 3
