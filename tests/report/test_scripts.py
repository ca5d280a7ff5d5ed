"""Long fixes as scripts: what they say, that they run as the commands do, and who gets none."""

import dataclasses
import os
import stat
import subprocess
from pathlib import Path

import pytest

from netdoctor.checks._shared import env
from netdoctor.engine.assemble.commands import _quote, _sudo
from netdoctor.model import JOB, Fix
from netdoctor.report.commands import LONGEST, SCRIPT, steps, to_type
from netdoctor.report.foreign import disowned
from netdoctor.report.formats.json_ import dumps
from netdoctor.report.formats.text import render
from netdoctor.report.model import CommandRecord, FixRecord, Report
from netdoctor.report.redact import redact
from netdoctor.report.save import load, save
from netdoctor.report.scripts import script, with_scripts
from tests.checks.test_fixes import constants, of, shells
from tests.report.build import sample_report

ASSIGN = env.each_its_own({"n1": "=eth1"}, "NCCL_SOCKET_IFNAME", "CONF", text="set it")


def record(shell: str, *nodes: str, root: bool = False, via: str = "ssh") -> CommandRecord:
    """A command as the engine makes it."""
    inner = _sudo(shell, root)
    line = inner if via == "control" else f"ssh {'-t ' if root else ''}{nodes[0]} {_quote(inner)}"
    if len(nodes) > 1:
        line = f'for n in {" ".join(nodes)}; do ssh "$n" {_quote(inner)}; done'
    return CommandRecord(run_on=nodes, shell=line, inner=shell if via == "control" else inner, via=via)


def given(fix: Fix, conf: Path, *nodes: str, root: bool = False, via: str = "ssh") -> FixRecord:
    def records(commands: object) -> tuple[CommandRecord, ...]:
        found = [one for one in commands if one.run_on != JOB]  # type: ignore[attr-defined]
        return tuple(record(c.shell.replace("CONF", str(conf)), *nodes, root=root, via=via) for c in found)

    return FixRecord(text=fix.text, commands=records(fix.commands), undo=records(fix.undo), needs_root=root)


def reporting(fix: FixRecord) -> Report:
    report = sample_report("not_ready")
    first, *rest = report.causes
    return dataclasses.replace(report, causes=(dataclasses.replace(first, fixes=(fix,)), *rest))


def lines_of(report: Report) -> list[str]:
    return [line.strip() for line in render(report, width=80).splitlines()]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to scan from, where ssh runs its command here and sudo as whoever asks."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in {"ssh": 'for last; do :; done; exec sh -c "$last"', "sudo": 'exec "$@"'}.items():
        (tools / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/asked\n{text}\n")
        (tools / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return tmp_path


def run(line: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=30)


def test_steps_are_the_command_when_they_are_joined() -> None:
    every = shells(iter([*constants().values(), *of("x; y && z 'a; b' $(c; d)")]))
    broken = {shell: steps(shell) for shell in every}
    assert all(" ".join(map(str.lstrip, lines)) == shell for shell, lines in broken.items())
    assert sum(len(lines) > 1 for lines in broken.values()) > 20
    assert steps("a && b; c 'd; e' \"f && g\" $(h; i) \\; j") == [
        "a &&",
        "b;",
        "c 'd; e' \"f && g\" $(h; i) \\; j",
    ]
    assert steps("for n in a b; do c; done; d") == ["for n in a b; do c; done;", "d"]


@pytest.mark.parametrize("how", ["ssh", "root", "loop", "control", "control root"])
def test_a_script_does_what_the_commands_do_and_takes_it_back(here: Path, how: str) -> None:
    conf = here / "nccl.conf"
    conf.write_text("# ours\nNCCL_SOCKET_IFNAME=eth0\nNCCL_DEBUG=WARN\n")
    nodes = ("n1", "n2", "n3", "n4") if how == "loop" else ("n1",)
    fix = given(ASSIGN, conf, *nodes, root="root" in how, via="control" if "control" in how else "ssh")
    report = save(reporting(fix))
    shown = report.causes[0].fixes[0].script
    assert SCRIPT.fullmatch(shown)
    before = conf.read_bytes()
    pasted = run("\n".join(one.shell for one in fix.commands))
    wanted = conf.read_bytes()
    asked = (here / "asked").read_text() if (here / "asked").exists() else ""
    conf.write_bytes(before)
    done = run(f"sh {shown}")
    assert (pasted.returncode, done.returncode, done.stderr) == (0, 0, "")
    assert conf.read_bytes() == wanted != before
    assert (here / "asked").read_text() == 2 * asked if asked else how == "control"
    assert run(f"sh {shown}").returncode == 0
    assert conf.read_bytes() == wanted
    assert run(f"sh {shown} --undo").returncode == 0
    assert conf.read_bytes() == before
    wrong = run(f"sh {shown} --und")
    assert (wrong.returncode, wrong.stderr) == (2, f"usage: sh {shown} [--undo]\n")
    assert conf.read_bytes() == before


def test_it_shows_what_it_changed_and_ends_as_the_command_does(here: Path) -> None:
    file = Path("/etc/hostname")
    long = f": {'x' * LONGEST}; cat {file} >/dev/null && sh -c 'exit 7'"
    report, texts = with_scripts(reporting(FixRecord(text="t", commands=(record(long, "n1"),))))
    (text,) = texts.values()
    assert f"was_1=$(cat {file} 2>/dev/null);" in text
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "not done: a command ended with 7\n")
    assert "--undo" not in text.replace("# undo", "")
    assert report.causes[0].fixes[0].script.endswith(".sh")


def test_one_node_of_a_loop_that_fails_is_told(here: Path) -> None:
    commands = (record(f"[ -e first ] || {{ : > first; exit 3; }}; : {'y' * LONGEST}", *"abcd"),)
    shown = save(reporting(FixRecord(text="t", commands=commands))).causes[0].fixes[0].script
    done = run(f"sh {shown}")
    assert (done.returncode, done.stderr) == (3, "not done: a command ended with 3\n")
    assert (here / "asked").read_text() == "ssh\n" * 4


def test_a_person_is_shown_the_script_and_nothing_long(here: Path) -> None:
    fix = given(ASSIGN, here / "nccl.conf", "n1")
    report = reporting(fix)
    assert any(len(line) > LONGEST for line in lines_of(report))
    saved = save(report)
    shown = saved.causes[0].fixes[0].script
    assert f"sh {shown}" in lines_of(saved)
    assert all(len(line) <= LONGEST for line in lines_of(saved))
    assert stat.S_IMODE(Path(shown).stat().st_mode) == 0o600
    assert f"sh {shown} --undo" in render(saved, width=80, verbosity=1)
    assert load() == saved
    # A name says what is in it: another fix never takes its place while somebody reads this one.
    other = given(ASSIGN, here / "other.conf", "n1")
    assert save(reporting(other)).causes[0].fixes[0].script != shown
    assert Path(shown).exists()
    os.unlink(shown)
    (here / "copy.json").write_bytes(dumps(saved))
    gone = load(here / "copy.json")
    assert gone.causes[0].fixes[0].script == ""
    assert any(len(line) > LONGEST for line in lines_of(gone))  # printed whole again


def test_one_script_that_is_gone_leaves_the_others_named(here: Path) -> None:
    first, second = (given(ASSIGN, here / name, "n1") for name in ("a.conf", "b.conf"))
    report = reporting(first)
    cause = dataclasses.replace(report.causes[0], fixes=(first, second))
    saved = save(dataclasses.replace(report, causes=(cause, *report.causes[1:])))
    lost, kept = (fix.script for fix in saved.causes[0].fixes)
    os.unlink(lost)
    assert [fix.script for fix in load().causes[0].fixes] == ["", kept]


def test_who_gets_no_script(here: Path) -> None:
    fix = given(ASSIGN, here / "nccl.conf", "n1")
    report = reporting(fix)

    def scripts(report: Report) -> set[str]:
        return {one.script for cause in report.causes for one in cause.fixes}

    saved = save(report)
    assert scripts(saved) > {""}
    assert scripts(disowned(saved, "joe")) == scripts(redact(saved)) == {""}
    assert scripts(save(report, here / "elsewhere.json")) == {""}
    (here / ".netdoctor").chmod(0o770)
    assert scripts(save(report)) == {""}
    for via in ("job", "console"):
        commands = tuple(dataclasses.replace(one, via=via) for one in fix.commands)
        assert script(report, report.causes[0], dataclasses.replace(fix, commands=commands, undo=())) is None
    hidden = dataclasses.replace(fix, commands=(record(f"echo {'x' * LONGEST}\x1b[1m", "n1"),))
    assert script(report, report.causes[0], hidden) is None
    for shell in ("ssh n1 'uptime -p'", "ssh n1 uptime; ssh n2 uptime"):  # what runs is not there, or twice
        unclear = FixRecord(text="t", commands=(CommandRecord(run_on=("n1",), shell=shell, inner="uptime"),))
        assert script(report, report.causes[0], unclear) is None
    short = FixRecord(text="t", commands=(record("uptime", "n1"),))
    assert scripts(save(reporting(short))) == {""}


def test_a_console_is_given_one_step_a_line(here: Path) -> None:
    shell = f"f=/etc/fstab; grep -q x $f && echo {'y' * LONGEST}"
    fix = FixRecord(
        text="t", commands=(CommandRecord(run_on=("n1",), shell="guard", inner=shell, via="console"),)
    )
    assert to_type(save(reporting(fix)).causes[0].fixes[0]) == steps(shell)
    assert len(steps(shell)) == 3


def test_what_a_node_says_ends_no_script(here: Path) -> None:
    """Its text is quoted in the commands, and stays so: no line of it ends the text, or is a command."""
    evil = "x\nEND\ntouch pwned\n'; touch pwned; END; $(touch pwned)"
    shell = f"echo {_quote(evil.replace(chr(10), ' '))} && END; : {'y' * LONGEST}"
    report = reporting(FixRecord(text=evil, commands=(record(shell, "n1"),)))
    report = dataclasses.replace(
        report, causes=(dataclasses.replace(report.causes[0], title=evil), *report.causes[1:])
    )
    shown = save(report).causes[0].fixes[0].script
    run(f"sh {shown}")
    assert not list(here.rglob("pwned"))
    assert run(f"sh {shown}").stdout.startswith("x END touch pwned ';")
