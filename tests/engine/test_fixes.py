"""Where a fix goes: what kind it is, how its commands get there, and that none runs anywhere else."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from netdoctor.engine.assemble.commands import guarded
from netdoctor.facts.host import Login
from netdoctor.model import (
    CONTROL,
    JOB,
    Cause,
    Command,
    Fix,
    Kind,
    after_reboot,
    in_hosts,
    in_job,
    look,
    placed,
    run,
)
from netdoctor.report import commands, describe
from netdoctor.report.formats.json_ import dumps, from_dict, loads, to_dict
from netdoctor.report.formats.text import render
from netdoctor.report.model import Report
from netdoctor.report.redact import redact
from netdoctor.tui.export import fixes_script
from tests.checks import build as healthy
from tests.core.fake import saying, store_of
from tests.engine.test_build import made, parses
from tests.hostile import HOSTILE

KEY = Cause("k", "{nodes} {has} it")


def told(*fixes: Fix, lost: Sequence[str] = (), node: str = "n1") -> Report:
    """A report of one cause with these fixes; netdoctor could not log in to the nodes in `lost`."""
    store = store_of(3)
    for i, name in enumerate(healthy.names(3), 1):
        outcome = Login.REFUSED if name in lost else Login.OK
        store.put("session", name, healthy.session(i, user="root", outcome=outcome, address=f"10.85.0.{i}"))
    check = saying("net.x", placed(KEY.fail("bad", fixes=fixes), node), after=())
    report = made(check, store=store)
    return replace(report, causes=tuple(cause for cause in report.causes if cause.key == "k"))


@pytest.mark.parametrize(
    ("fix", "lost", "kind", "ways", "script"),
    [
        (run("heal", "true"), (), "do", ["ssh"], "ssh n1 true"),
        (run("heal", "true", on=CONTROL), (), "do", ["control"], "true"),
        (run("heal", "true", risk="medium"), (), "do", ["ssh"], "# ssh n1 true"),
        (run("heal", "true", loses="the job that runs there"), (), "do", ["ssh"], "# ssh n1 true"),
        (after_reboot("heal", "true"), (), "do", ["ssh"], "# ssh n1 true"),
        (run("heal", "true"), ("n1",), "console", ["console"], "# case "),
        (look("read", "true"), (), "look", ["ssh"], "# ssh n1 true"),
        (look("read", "true"), ("n1",), "look", ["console"], "# case "),
        (in_job("heal", "true"), (), "job", ["job"], "# true"),
        (in_hosts("write it on line 3 of hosts.txt"), (), "hosts", [], None),
        (run("ask whoever runs the switch"), (), "owner", [], None),
        (
            Fix(text="heal", commands=(Command(run_on="n1", shell="true"), Command(run_on=JOB, shell="x=1"))),
            (),
            "do",
            ["ssh", "job"],
            "# ssh n1 true",
        ),
    ],
    ids=lambda value: value.text if isinstance(value, Fix) else None,
)
def test_a_fix_is_shown_and_exported_as_what_it_is(
    fix: Fix, lost: Sequence[str], kind: str, ways: list[str], script: str | None
) -> None:
    report = told(fix, lost=lost)
    record = report.causes[0].fixes[0]
    assert (record.kind, [command.via for command in record.commands]) == (kind, ways)
    exported = fixes_script(report, report.causes)
    assert parses(exported)
    active = [line for line in exported.splitlines() if line and not line.startswith("#")]
    assert active == ([script] if script and not script.startswith("#") else [])
    if script:
        assert f"\n{script}" in exported
    again = loads(dumps(report)).causes[0].fixes[0]
    assert again == record


def test_what_only_looks_is_no_fix_and_takes_no_effect() -> None:
    report = told(
        look("read it", "cat /proc/x"), run("heal it", "heal", undo="unheal"), in_job("or so", "y=1")
    )
    label, heal, other = (describe.fix_label(report, fix) for fix in report.causes[0].fixes)
    assert label == "read it [on n1]"
    assert heal == "heal it [on n1, no root, at once, survives reboot]"
    assert other == "or so [in the job's environment or script, no root, next launch]"
    text = render(report, width=100)
    assert [line.split()[0] for line in text.splitlines() if "read it" in line or "heal it" in line] == [
        "inspect",
        "fix",
    ]
    assert "or        or so" in text
    assert "ssh n1 unheal" in render(report, width=100, verbosity=1)
    assert report.causes[0].fixes[1].undo[0].shell == "ssh n1 unheal"


def test_who_is_in_gets_further_over_ssh() -> None:
    """A node without a Python lets one in; nobody needs its console to install one."""
    store = store_of(3)
    store.put("session", "n1", healthy.session(1, outcome=Login.INTERPRETER))
    check = saying("net.x", placed(KEY.fail("bad", fixes=run("install it", "dnf install x")), "n1"), after=())
    [cause] = [one for one in made(check, store=store).causes if one.key == "k"]
    assert (cause.fixes[0].kind, cause.fixes[0].commands[0].shell) == ("do", "ssh n1 'dnf install x'")


def test_a_scan_in_a_fix_is_that_of_this_report() -> None:
    store, again = store_of(3), ("netdoctor", "scan", "--last", "--save", "my report.json")
    fix = look("fewer", "netdoctor scan --last -j 2", on=CONTROL)
    check = saying("net.x", placed(KEY.fail("bad", fixes=fix), "n1"))
    [cause] = made(check, store=store, verify_prefix=again).causes
    assert cause.fixes[0].commands[0].shell == "netdoctor scan --last --save 'my report.json' -j 2"


def test_what_is_lost_is_said_where_the_fix_is_and_in_the_script() -> None:
    report = told(run("end it", "kill 7", risk="high", loses="what it was computing"))
    wanted = "RISK HIGH: end it [on n1, no root, at once, survives reboot, loses what it was computing]"
    assert wanted == describe.fix_label(report, report.causes[0].fixes[0])
    script = fixes_script(report, report.causes)
    assert "# ssh n1 'kill 7'" in script
    assert "not run by this script: risk high" in script


DIAGS = "infiniband-diags"


@pytest.mark.parametrize(
    ("shell", "needs"),
    [
        ("nvidia-smi -L; lspci -nn; dmesg | grep ethtool", ["lspci (pciutils)"]),
        ("sminfo; ibnetdiscover | head", [f"sminfo ({DIAGS})", f"ibnetdiscover ({DIAGS})"]),
        ("echo ibstat", []),
        ("systemctl enable --now opensm && sminfo", ["opensm (opensm)", f"sminfo ({DIAGS})"]),
    ],
)
def test_what_must_be_installed_first_is_said(shell: str, needs: list[str]) -> None:
    report = told(look("read it", shell))
    [fix] = report.causes[0].fixes
    assert list(fix.needs) == needs
    assert all(need in describe.fix_label(report, fix) for need in needs)


def test_later_fixes_are_comments_however_harmless() -> None:
    script = fixes_script(report := told(look("a", "a"), run("b", "b"), run("c", "c")), report.causes)
    assert all(line.startswith("#") for line in script.splitlines() if line)


def on_machine(name: str, addresses: str, line: str) -> str:
    """What a line prints on a machine of this name."""
    fake = f"uname() {{ echo {name}; }}; hostname() {{ echo '{addresses} '; }}; "
    return subprocess.run(["sh", "-c", fake + line], capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize(
    ("listed", "name", "addresses", "runs"),
    [
        (["node2"], "node2", "10.0.0.2", True),
        (["node2"], "node2.example.com", "10.0.0.2", True),
        (["node2.example.com"], "node2", "10.0.0.2", True),
        (["node2.example.com"], "node2.example.com", "10.0.0.2", True),
        (["node2.example.com"], "node2.other.org", "10.0.0.2", False),
        (["node2"], "node20", "10.0.0.2", False),
        (["node2"], "xnode2", "10.0.0.2", False),
        (["gpu7", "10.0.0.7"], "ip-10-0-0-7", "172.17.0.1 10.0.0.7", True),
        (["10.0.0.7"], "laptop", "10.0.0.70 110.0.0.7", False),
        (["fe80::1"], "n", "10.0.0.7 fe80::1", True),
        (["localhost", "127.0.0.1"], "localhost", "127.0.0.1", False),
    ],
)
def test_a_line_for_a_console_runs_nowhere_else(
    listed: list[str], name: str, addresses: str, runs: bool
) -> None:
    shells = ("true && echo ran", "false || echo ran", "echo ran # says so", "x=ran; echo $x")
    lines = [guarded(shell, {listed[0]: listed}) for shell in shells]
    # Listed beside another node, it runs on both.
    lines.append(both := guarded("echo ran", {"other": ["other"], listed[0]: listed}))
    assert on_machine(name, addresses, "\n".join(lines)) == "ran\n" * (5 if runs else 0)
    assert on_machine("other", "10.9.9.9", both) == "ran\n"


def test_the_line_in_the_docs_is_ours() -> None:
    text = (Path(__file__).parents[2] / "docs/fixes.md").read_text("utf-8")
    assert guarded("usermod -s /bin/bash ml", {"node2": ("node2", "10.0.0.12")}) in text.splitlines()
    assert all(f"`{kind}`" in text for kind in Kind)


def test_a_line_for_many_consoles_names_each_once() -> None:
    nodes = {f"n{i}": (f"n{i}", f"gpu{i}", f"10.0.0.{i}") for i in range(1, 5)}
    assert "10.0.0.1" in guarded("true", {"n1": nodes["n1"]})
    line = guarded("echo ran", nodes)
    assert "10.0.0." not in line
    assert on_machine("n4.example.com", "10.0.0.4", line) == "ran\n"


def test_a_hostile_name_stays_a_word_of_the_guard() -> None:
    lines = [
        guarded("echo ran", {name: [name, f"{name}.example.com", f".{name}"]}) for name in HOSTILE.values()
    ]
    assert parses("\n".join(lines))
    assert all(commands.display(line) == line for line in lines)
    assert "ran" not in on_machine("laptop", "10.0.0.7", "\n".join(lines))


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_console_line_of_a_scan_parses_and_names_the_node(shell: str) -> None:
    report = told(run("give the user a shell", "usermod -s /bin/bash root", root=True), lost=("n1",))
    [command] = report.causes[0].fixes[0].commands
    assert subprocess.run([shell, "-n", "-c", command.shell], check=False).returncode == 0
    assert command.inner == "usermod -s /bin/bash root"
    assert "*' n1 '*|*' n1.'*|*' 10.85.0.1 '*)" in command.shell
    (fix,) = report.causes[0].fixes
    assert "on the console of n1 (not here), root" in describe.fix_label(report, fix)
    # Whoever sits there types it; what is copied keeps its guard.
    assert commands.to_type(fix) == ["usermod -s /bin/bash root"]
    assert commands.fix_commands(fix) == [command.shell]


def test_a_report_from_before_kinds_is_read_as_what_it_meant() -> None:
    report = told(
        look("read", "a"), run("heal", "b"), in_job("set", "c=1"), run("here", "d", on=CONTROL), run("words")
    )
    data = to_dict(report)
    for fix in data["causes"][0]["fixes"]:
        del fix["kind"], fix["undo"], fix["loses"]
        for command in fix["commands"]:
            del command["via"]
    fixes = from_dict(data).causes[0].fixes
    assert [fix.kind for fix in fixes] == ["look", "do", "job", "do", "owner"]
    assert [c.via for fix in fixes for c in fix.commands] == ["ssh", "ssh", "job", "control"]


def test_a_report_without_names_says_still_how_commands_get_there() -> None:
    report = redact(told(run("heal", "heal", undo="unheal"), run("here", "d", on=CONTROL), lost=("n1",)))
    heal, here = report.causes[0].fixes
    assert (heal.kind, heal.commands[0].via, heal.undo[0].via) == ("console", "console", "console")
    assert here.commands[0].via == "control"
    assert "' n1 '" not in heal.commands[0].shell
    assert "10.85.0.1 " not in heal.commands[0].shell


def test_a_public_key_is_not_shown_to_strangers() -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
    text = dumps(redact(told(run("let it in", f"echo '{key}' >> keys"))), "all")
    assert key.split()[1].encode() not in text


def test_undo_goes_where_the_fix_went() -> None:
    fix = run("heal", "heal", undo="unheal")
    finding = placed(KEY.fail("bad", at="n1->n2", fixes=(fix,)), "n2")
    assert finding.cause is not None
    assert [command.run_on for command in finding.cause.fixes[0].undo] == ["n1"]
    assert run("by words alone", "", undo="unheal").undo == ()
