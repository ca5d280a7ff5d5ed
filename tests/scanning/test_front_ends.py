"""`netdoctor scan` over the room for scans: what was typed becomes a request, then and the next time."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from netdoctor import cli
from netdoctor.cli import tui as cli_tui
from netdoctor.model import fail, run, skip
from netdoctor.report.model import Report
from netdoctor.report.save import load
from netdoctor.rerun import ScanRunner
from netdoctor.scanning import ScanRequest
from netdoctor.tui.events import Began, Ended
from netdoctor.tui.runner import Request
from tests.core.fake import hint, saying
from tests.scanning.ground import Ground


def scan(line: str) -> int:
    return cli.run(["scan", "-q", "-o", "none", *shlex.split(line)])


def checks() -> tuple[str, ...]:
    """Those of the report that was saved last."""
    return load().matrix.checks


def test_last_is_what_was_asked_for_last(ground: Ground) -> None:
    ground.checks.append(saying("net.x", fail("n2", "bad")))
    assert scan("n[1-3] --skip net.one --node n[1-2] --fail-on never --deadline 500") == 0
    assert scan("--last") == 0
    assert checks() == ("ssh.login", "net.two", "net.x")
    assert load().matrix.nodes == ("n1", "n2")
    assert load().run.replay["options"]["deadline"] == 500
    assert scan("--last --fail-on fail") == 1
    assert scan("--last") == 1


def test_what_a_verify_command_leaves_out_is_back_with_the_next_last(ground: Ground) -> None:
    """Also the nodes that it did not have to contact."""
    hurt = hint("bad", "n2", fixes=(run("heal it", "heal", on="n2"),))
    ground.checks.append(saying("host.x", fail("n2", "bad", cause=hurt), scope="node"))
    assert scan("n[1-3] --skip net.two") == 1
    (cause,) = load().causes
    assert cause.verify is not None
    assert cause.verify.shell == "netdoctor scan --last --only host.x --node n2"
    assert cli.run([*cause.verify.argv[1:], "-q", "-o", "none"]) == 1
    assert (checks(), load().matrix.nodes) == (("ssh.login", "host.x"), ("n2",))
    assert [target.id for target in load().targets] == ["n2"]
    assert scan("--last") == 1
    assert (checks(), load().matrix.nodes) == (("ssh.login", "host.x", "net.one"), ("n1", "n2", "n3"))


def test_a_check_that_was_skipped_runs_when_it_is_named(ground: Ground) -> None:
    assert scan("n[1-3] --skip net.two") == 0
    assert scan("--last --only net.two") == 0
    assert checks() == ("ssh.login", "net.two")


def test_strict_stays_until_it_is_taken_back(ground: Ground) -> None:
    ground.checks.append(saying("net.x", skip("not looked at", "n2", gap="busy")))
    assert scan("n[1-3] --strict") == 3
    assert scan("--last") == 3
    assert scan("--facts .netdoctor/last.json") == 3
    assert scan("--last --no-strict") == 0
    assert scan("--last") == 0


def test_what_is_required_stays_until_it_is_taken_back(
    ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    ground.checks.append(saying("net.x", skip("not looked at", "n2", gap="busy")))
    assert scan("n[1-3] --require ssh,net") == 3
    headline = (
        "no problem proven, required and not examined: net; not seen: the network on 1 of 3 nodes (busy)"
    )
    assert load().verdict.headline == headline
    assert scan("--last --only net.one") == 0, "what --only leaves aside is nothing that was asked for"
    assert scan("--last") == 3
    assert scan("--last --require ssh") == 0
    assert scan("--last --require ''") == 0
    assert scan("n1 --require ssh,disk") == 2
    assert "netdoctor: --require disk: no checks are called so; take of: net, ssh" in capsys.readouterr().err


def test_a_plug_in_s_check_that_last_asks_for_says_what_is_missing(
    ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scan("n[1-3] --only net.two") == 0
    del ground.checks[-1]
    assert scan("--last") == 2
    told = capsys.readouterr().err
    assert "net.two" in told
    assert "--checks-dir" in told


def test_facts_are_judged_again_with_the_profile_of_their_report(ground: Ground) -> None:
    ground.checks.append(saying("bw.pair", fail("n2", "slow"), profile="full"))
    assert scan("n[1-3] --profile full") == 1
    assert scan("--facts .netdoctor/last.json") == 1
    assert scan("--facts .netdoctor/last.json --profile launch") == 0
    assert scan("--facts .netdoctor/last.json --last") == 2


# The TUI, without its screens


class Shown:
    """Stands in for the screens: notes what they would be given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.first: ScanRequest | None = None
        self.said: dict[str, Any] = {}
        monkeypatch.setattr(cli_tui, "show", self.show)

    def show(
        self, args: object, said: dict[str, Any], first: ScanRequest | None, *report: object
    ) -> tuple[int, Report | None]:
        self.said, self.first = said, first
        return 0, None

    def events(self) -> list[Any]:
        runner = ScanRunner(self.first, self.said)
        runner.begin(Request(), None)
        assert runner._thread is not None
        runner._thread.join(20)
        return list(runner.events)


def test_the_last_scan_is_watched_on_its_own_nodes(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scan("n[1-3] --only net.two") == 0
    shown = Shown(monkeypatch)
    assert scan("--last --tui") == 0
    events = shown.events()
    assert isinstance(events[0], Began)
    assert events[0].nodes == ("n1", "n2", "n3")
    assert [check for check, _ in events[0].checks] == ["ssh.login", "net.two"]
    assert isinstance(events[-1], Ended)
    assert events[-1].report.run.replay == load().run.replay
    assert events[-1].report.run.saved_to == ".netdoctor/last.json"


def test_hosts_are_watched_as_they_are_named(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch)
    assert scan("n1 n2 --tui --save mine.json --strict") == 0
    events = shown.events()
    assert events[0].nodes == ("n1", "n2")
    assert Path("mine.json").exists()
    assert events[-1].report.run.replay["options"]["strict"] is True
