"""What the command line says to those who mistype, and how wide it is."""

import re
import sys
from pathlib import Path

import pytest

from netdoctor import cli
from netdoctor.cli import environ
from netdoctor.cli.options import request_fields
from netdoctor.cli.parser import columns, fitting, subcommands, tree
from netdoctor.lab.api import FAULTS
from netdoctor.options import OPTIONS
from tests.core.test_options import EXAMPLES


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("scan h --profil quick", "netdoctor scan: there is no option --profil; did you mean --profile?"),
        ("scan h --fial-on=warn", "netdoctor scan: there is no option --fial-on; did you mean --fail-on?"),
        ("scan h -p quik", "'quik' is not one of the choices; did you mean quick?"),
        ("scann h", "no command is called 'scann'; did you mean scan?"),
        ("help scann", "no command is called 'scann'; did you mean scan?"),
        ("checks", "netdoctor checks: say which: list, explain"),
        ("checks explian x", "netdoctor checks: no command is called 'explian'; did you mean explain?"),
        ("checks explain net.ports x", "netdoctor checks explain: one word too many: 'x'"),
        ("report show --widht 8", "netdoctor report show: there is no option --widht; did you mean --width?"),
        ("report diff a b", "netdoctor report: no command is called 'diff'; did you mean netdoctor diff?"),
        ("lab brake", "netdoctor lab: no command is called 'brake'; did you mean break?"),
        ("schema reprot", "did you mean report?"),
        ("-v", "netdoctor: there is no option -v"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(line.split()) == 2
    told = capsys.readouterr().err.splitlines()
    assert said in told[0]
    command = told[0].partition(":")[0]
    assert told[1] == f"{command} -h shows how to use it"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("scan hosts.txt --require gpus", "gpu"),
        ("scan hosts.txt --env-file train.en", "train.env"),
        ("scan hosts.txt --expect expct.toml", "expect.toml"),
        ("scan hosts.txt --suppress expct.toml", "expect.toml"),
        ("scan hosts.txt --known-hosts known_host", "known_hosts"),
        ("scan hosts.txt --facts fact", "facts"),
        ("checks list --family nett", "net"),
        ("lint job.sbatc", "job.sbatch"),
        ("explain log sub/job.lgo", "sub/job.log"),
        ("report show reprot.json", "report.json"),
    ],
)
def test_files_and_names_that_are_nearly_right_are_offered(
    line: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hosts.txt").write_text("192.0.2.1\n")
    (tmp_path / "sub").mkdir()
    for name in (
        "train.env",
        "expect.toml",
        "known_hosts",
        "facts",
        "job.sbatch",
        "sub/job.log",
        "report.json",
    ):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert cli.run(line.split()) == 2
    assert capsys.readouterr().err.splitlines()[0].endswith(f"; did you mean {meant}?")


def test_a_file_in_a_folder_that_is_missing_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["lint", "jobs/train.sbatch"]) == 2
    assert "no such file or directory; there is no folder jobs\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "start"),
    [
        ("help", "usage: netdoctor [-h]"),
        ("help scan", "usage: netdoctor scan"),
        ("help report show", "usage: netdoctor report show"),
        ("version", "netdoctor "),
    ],
)
def test_help_and_version_are_commands_too(line: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(line.split()) == 0
    assert capsys.readouterr().out.startswith(start)


@pytest.mark.parametrize("width", [72, 80, 130])
@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_stays_within_the_width(command: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for parser in tree(cli.build_parser(command)):
        assert max(map(len, parser.format_help().splitlines())) <= width, parser.prog


@pytest.mark.parametrize(
    "line",
    [
        "checks list --width 60",
        "checks list --width 80 --family net,gpu",
        "checks explain net.ports --width 60",
        "checks explain bw.allreduce --width 80",
        "scan n[01-40],m1 --no-save --plan --width 70 -p full",
    ],
)
def test_lines_stay_within_the_width(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(line.split()) == 0
    width = int(re.findall(r"--width (\d+)", line)[0])
    shown = capsys.readouterr().out.splitlines()
    assert [one for one in shown if len(one) > width and "://" not in one] == []
    assert len(shown) > 10


def test_lines_that_nobody_looks_at_are_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For grep: a line for each check, also where readline has exported its COLUMNS."""
    monkeypatch.setenv("COLUMNS", "60")
    assert cli.run(["checks", "list", "--family", "net,rdzv"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert {line.split()[0].partition(".")[0] for line in shown} == {"net", "rdzv"}
    assert columns(None) is None


@pytest.mark.parametrize("terminal", [True, False])
def test_faults_of_the_lab_fit_the_terminal_and_are_whole_lines_in_a_pipe(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert cli.run(["lab", "faults"]) == 0
    shown = capsys.readouterr().out.splitlines()
    heads = [line for line in shown if not line.startswith(" ")]
    assert [line.split()[0] for line in heads] == list(FAULTS)
    if terminal:
        assert max(map(len, shown)) <= 80
    else:
        assert all(
            line.startswith(f"{name:18} {FAULTS[name].summary}")
            for name, line in zip(FAULTS, heads, strict=True)
        )
        assert max(map(len, shown)) > 80
        assert len(shown) <= 2 * len(FAULTS)


def test_the_plan_is_as_wide_as_an_exported_number_of_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hosts.txt").write_text("n[1-300]\n")
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run(["scan", str(tmp_path / "hosts.txt"), "--no-save", "--plan"]) == 0
    assert 60 < max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_the_plan_folds_nodes_that_are_logged_in_to_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("n[1-300]\nm1 port=44222\n")
    assert cli.run(["scan", str(hosts), "--no-save", "--plan", "--only", "host.*"]) == 0
    shown = capsys.readouterr().out
    assert "would log in to 301 nodes" in shown
    assert "\n  n[1-300]\n    transport ssh, port 22, " in shown
    assert "\n  m1\n    transport ssh, port 44222, " in shown


def test_lists_take_commas_and_may_be_given_again() -> None:
    parser = cli.build_parser("scan")
    checks, nodes = "--only net.ports,net.mtu --only ssh.* --skip a,b,", "-n n1,n[2-3] -n n5"
    line = f"scan h {checks} {nodes} --packages torch --packages x,y"
    said = request_fields(parser.parse_args(line.split()))
    assert said["only"] == ("net.ports", "net.mtu", "ssh.*")
    assert said["skip"] == ("a", "b")
    assert said["node"] == "n1,n[2-3],n5"
    assert said["packages"] == "torch,x,y"


def test_examples_that_do_not_fit_are_put_under_each_other() -> None:
    line = "  netdoctor checks explain net.ports          what a check looks at and why"
    assert fitting(line, 80) == [line]
    shown = ["  netdoctor checks explain net.ports", "      what a check looks at and why"]
    assert fitting(line, 50) == shown


def _parsed(line: list[str], variables: dict[str, str]) -> tuple[dict[str, object], list[str]]:
    parser = cli.build_parser("scan")
    told = environ.take(subcommands(parser)["scan"], line, variables)
    args = vars(parser.parse_args(line))
    return {name: value for name, value in args.items() if name not in ("run", "parser")}, told


# A value for each kind of option; what is not here is a switch.
VALUES = {name: OPTIONS[name].argv(value)[1] for name, value in EXAMPLES.items() if OPTIONS[name].rule}
VALUES |= {
    "json_detail": "all", "exit_style": "nagios", "color": "never", "theme": "dark", "width": "70",
    "glyphs": "box", "output": "short", "suppress": "netdoctor.toml",
}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("scan --exit-style nagios", 3),
        ("scan h --exit-style=nagios --nope", 3),
        ("scan h --exit-style nagios -p quik", 3),
        ("scan --exit-style default", 2),
    ],
)
def test_bad_input_is_no_verdict_for_nagios(line: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(line.split()) == code


def test_every_option_has_a_twin_in_the_environment() -> None:
    """What a variable says is what the option says; an empty one is none."""
    known = environ.twins(subcommands(cli.build_parser("scan"))["scan"])
    assert len(known) > 40
    nothing, _ = _parsed(["scan", "h"], dict.fromkeys(known, ""))
    assert nothing == _parsed(["scan", "h"], {})[0]
    variables, line = {}, ["scan", "h"]
    for name, action in known.items():
        flag = f"--{name.removeprefix('NETDOCTOR_').lower().replace('_', '-')}"
        assert flag in action.option_strings
        value = "1" if action.nargs == 0 else VALUES.get(action.dest, "text")
        variables[name] = value
        line += [flag] if action.nargs == 0 else [flag, value]
    typed, _ = _parsed(line, {})
    taken, told = _parsed(["scan", "h"], variables)
    assert taken == typed
    changed = {action.dest for action in known.values()}
    assert {name for name in typed if typed[name] != nothing[name]} == changed
    assert told == [f"from the environment: {', '.join(f'{k}={v}' for k, v in sorted(variables.items()))}"]


@pytest.mark.parametrize(
    ("line", "variables", "dest", "value"),
    [
        ("scan h --only c", {"NETDOCTOR_ONLY": "a,b"}, "only", ["c"]),
        ("scan h -o short", {"NETDOCTOR_OUTPUT": "json,prom=x"}, "output", ["short"]),
        ("scan h", {"NETDOCTOR_OUTPUT": "json,prom=x"}, "output", ["json", "prom=x"]),
        ("scan h -pfull", {"NETDOCTOR_PROFILE": "quick"}, "profile", "full"),
        ("scan h --save f", {"NETDOCTOR_NO_SAVE": "1"}, "no_save", False),
        ("scan h -v", {"NETDOCTOR_QUIET": "1"}, "quiet", False),
        ("scan h --no-strict", {"NETDOCTOR_STRICT": "1"}, "strict", False),
        ("scan h", {"NETDOCTOR_STRICT": "off"}, "strict", False),
        ("scan h", {"NETDOCTOR_VERBOSE": "2"}, "verbose", 2),
    ],
)
def test_what_is_typed_wins(line: str, variables: dict[str, str], dest: str, value: object) -> None:
    assert _parsed(line.split(), variables)[0][dest] == value


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("NETDOCTOR_PROFILE", "quik", "did you mean quick?"),
        ("NETDOCTOR_STRICT", "maybe", "none of 1 and 0"),
        ("NETDOCTOR_VERBOSE", "much", "is not a number"),
        ("NETDOCTOR_TIMEOUT", "\x1b[31m", "is not a time"),
    ],
)
def test_a_variable_that_cannot_be_read_is_bad_input(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert cli.run(["scan", "h"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"netdoctor scan: {name}: ")
    assert said in told
    assert "\x1b" not in told


def test_a_mistyped_variable_is_told_and_those_of_others_are_not() -> None:
    variables = {"NETDOCTOR_PROFIL": "full", "NETDOCTOR_TEST_NCCL": "x", "NETDOCTOR_SITE": "y"}
    _, told = _parsed(["scan", "h"], variables)
    assert told == ["NETDOCTOR_PROFIL is not an option; did you mean NETDOCTOR_PROFILE?"]
