"""What the command line says to those who mistype, and how wide it is."""

import re
from pathlib import Path

import pytest

from netdoctor import cli
from netdoctor.cli.options import given
from netdoctor.cli.parser import columns, fitting, tree


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("scan h --profil quick", "netdoctor scan: there is no option --profil; did you mean --profile?"),
        ("scan h --fial-on=warn", "netdoctor scan: there is no option --fial-on; did you mean --fail-on?"),
        ("scan h -p quik", "'quik' is none of the choices; did you mean quick?"),
        ("scann h", "no command is called 'scann'; did you mean scan?"),
        ("help", "did you mean netdoctor -h?"),
        ("version", "did you mean netdoctor --version?"),
        ("checks", "netdoctor checks: say which: list, explain"),
        ("checks explian x", "netdoctor checks: no command is called 'explian'; did you mean explain?"),
        ("checks explain net.ports x", "netdoctor checks explain: one word too many: 'x'"),
        ("report show --widht 8", "netdoctor report show: there is no option --widht; did you mean --width?"),
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


def test_lines_that_nobody_looks_at_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """For grep: a line for each check."""
    assert cli.run(["checks", "list", "--family", "net,rdzv"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert {line.split()[0].partition(".")[0] for line in shown} == {"net", "rdzv"}
    assert columns(None) is None


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
    said = given(parser.parse_args(line.split()))
    assert said["only"] == ("net.ports", "net.mtu", "ssh.*")
    assert said["skip"] == ("a", "b")
    assert said["node"] == "n1,n[2-3],n5"
    assert said["packages"] == "torch,x,y"


def test_examples_that_do_not_fit_are_put_under_each_other() -> None:
    line = "  netdoctor checks explain net.ports          what a check looks at and why"
    assert fitting(line, 80) == [line]
    shown = ["  netdoctor checks explain net.ports", "      what a check looks at and why"]
    assert fitting(line, 50) == shown
