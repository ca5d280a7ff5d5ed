"""`netdoctor scan` over the room for scans: what was typed becomes a request, then and the next time."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdoctor import cli
from netdoctor.cli import tui as cli_tui
from netdoctor.facts.host import LimitFacts, Node
from netdoctor.facts.net import NetFacts
from netdoctor.facts.software import Job
from netdoctor.model import Finding, fail, run, skip
from netdoctor.report.history import reports
from netdoctor.report.model import Report
from netdoctor.report.save import load
from netdoctor.runner import ScanRunner
from netdoctor.scanning import ScanRequest
from netdoctor.tui.events import Began, Ended
from netdoctor.tui.runner import Request
from tests.checks import build as healthy
from tests.core.fake import hint, make, saying
from tests.scanning.ground import Ground, counting


def scan(line: str) -> int:
    return cli.run(["scan", "-q", "-o", "none", *shlex.split(line)])


def told(line: str) -> str:
    """The text report of a scan that ends with exit 0, its blanks made one."""
    assert cli.run(["scan", "-o", "text=said.txt", *shlex.split(line)]) == 0
    return " ".join(Path("said.txt").read_text().split())


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
    every = (("ssh.login", "host.x", "net.one"), ("n1", "n2", "n3"))
    assert cli.run([*cause.verify.argv[1:], "-q", "-o", "json=part.json"]) == 1
    part = load(Path("part.json"))
    assert (part.matrix.checks, part.matrix.nodes) == (("ssh.login", "host.x"), ("n2",))
    assert [target.id for target in part.targets] == ["n2"]
    assert (checks(), load().matrix.nodes) == every
    assert scan("--last") == 1
    assert (checks(), load().matrix.nodes) == every


def test_a_check_that_was_skipped_runs_when_it_is_named(ground: Ground) -> None:
    assert scan("n[1-3] --skip net.two") == 0
    assert scan("--last --only net.two") == 0
    assert checks() == ("ssh.login", "net.one", "net.two")
    assert load().verdict.state == "partial_pass", "what was looked at in parts is no whole"
    assert load().verdict.headline == "all 3 checks on all 3 nodes, in parts: pass"
    assert scan("--last") == 0
    assert load().run.replay["options"]["skip"] == ["net.two"]


# A part goes into the saved report


@pytest.fixture
def hurt(ground: Ground) -> Ground:
    """A saved report of two faults, of which host.x on n2 can be healed by `heal`."""
    for name, node in (("host.x", "n2"), ("host.y", "n3")):
        ground.checks.append(saying(name, fail(node, "bad", cause=hint(name, node)), scope="node"))
    assert scan("n[1-3]") == 1
    return ground


def heal(ground: Ground) -> None:
    place = [check.id for check in ground.checks].index("host.x")
    ground.checks[place] = saying("host.x", scope="node")


def titles() -> set[str]:
    return {cause.key for cause in load().causes}


def test_a_verify_command_heals_its_cause_and_no_other(hurt: Ground) -> None:
    heal(hurt)
    whole = load()
    text = told("--last --only host.x --node n2 -o json=part.json")
    part = json.loads(Path("part.json").read_text())
    assert "CHECKED 2 of 5 checks on 1 of 3 nodes: pass" in text
    assert "CHECKED, exit 0" in text
    assert part["verdict"]["state"] == "partial_pass"
    assert part["verdict"]["part"] == {"checks": 2, "of_checks": 5, "nodes": 1, "of_nodes": 3}
    assert "note .netdoctor/last.json has this beside the rest: NOT READY, 1 problem stops the launch" in text
    after = load()
    assert (titles(), after.verdict.state, after.verdict.part) == ({"host.y"}, "not_ready", None)
    assert (after.matrix.checks, after.matrix.nodes) == (whole.matrix.checks, whole.matrix.nodes)
    assert after.run.replay == whole.run.replay
    assert any(note.text.startswith("run again ") for note in after.notes)
    assert [load(one.path).verdict.headline for one in reports()] == [
        "1 problem stops the launch",
        "2 problems stop the launch",
    ]


def test_what_is_said_of_judging_holds_for_the_part_alone(hurt: Ground) -> None:
    assert scan("--last --only host.x --node n2 --fail-on never --strict --ssh-user ml") == 0
    after = load()
    assert (after.verdict.fail_on, after.verdict.exit_code, after.verdict.required) == ("fail", 1, ())
    assert after.run.replay["options"]["strict"] is False
    assert after.run.replay["options"]["ssh_user"] == "ml", "how to log in holds from now on"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        pytest.param("--master-port 29400", "the job is another one now (master_port)", id="port"),
        pytest.param("--env-file train.env", "the job is another one now (NCCL_IB_DISABLE)", id="variable"),
        pytest.param("--python /opt/bin/python3", "--python is another one", id="interpreter"),
    ],
)
def test_a_part_that_does_not_fit_leaves_the_report_as_it_was(hurt: Ground, line: str, why: str) -> None:
    heal(hurt)
    Path("train.env").write_text("NCCL_IB_DISABLE=1\n")
    before = Path(".netdoctor/last.json").read_bytes()
    text = told(f"--last --only host.x --node n2 {line}")
    assert f"note .netdoctor/last.json stays as it was, without this: {why}; netdoctor scan --last" in text
    assert Path(".netdoctor/last.json").read_bytes() == before


def test_a_part_of_another_list_of_nodes_does_not_fit(ground: Ground) -> None:
    def host_z(node: Node, limits: LimitFacts) -> Iterator[Finding]:
        """It has limits."""
        yield from ()

    ground.checks.append(make(host_z))
    hosts = Path("hosts.txt")
    hosts.write_text("n1\nn2\nn3\n")
    assert scan("hosts.txt") == 0
    hosts.write_text("n1\nn2 port=2222\nn3\n")
    assert "without this: listed differently now: n2" in told("--last --only net.one --node n1")
    text = told("--last --only net.one --node n2")
    assert "has this beside the rest: UNDECIDED" in text, "of another login nothing else is known"
    assert "has this beside the rest: READY" in told("--last --node n2")
    assert load().run.replay["targets"][1]["port"] == 2222
    hosts.write_text("n1\nn2 port=2222\n")
    assert "other nodes are listed now" in told("--last --node n2")


def test_paths_of_a_part_are_not_those_of_the_job(ground: Ground) -> None:
    """The paths are worked out from all nodes' facts; those of one node alone would leave the others none."""

    def net_z(node: Node, net: NetFacts, job: Job) -> Iterator[Finding]:
        """It has a network."""
        yield from ()

    for i in (1, 2, 3):
        facts = {"net": healthy.net(i), "host": healthy.host(i), "env": healthy.env()}
        ground.transport.facts[f"n{i}"] = facts
    ground.checks.append(make(net_z))
    assert scan("n[1-3]") == 0
    whole = load().facts["cluster"]["paths"]
    assert len(whole["value"]["paths"][0]["addresses"]) == 3
    assert scan("--last --only net.z --node n2") == 0
    assert load().facts["cluster"]["paths"] == whole


# The hosts file is read again


def test_last_reads_the_hosts_file_again(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Path("hosts.txt").absolute()
    hosts.write_text("n1\nn2 python=/old/python3\n")
    assert scan("hosts.txt n7 --fail-on never") == 0
    hosts.write_text("# mended\nn1\nn2 python=/new/python3\nn3\n")
    Path("elsewhere").mkdir()
    report = Path(".netdoctor/last.json").absolute()
    monkeypatch.chdir("elsewhere")
    text = told(f"--last --save {report}")
    assert f"note {hosts} has changed since the last scan and was read again: n3 new, n2 changed" in text
    after = load(report)
    assert after.matrix.nodes == ("n1", "n2", "n3", "n7")
    assert after.run.replay["targets"][1]["python"] == "/new/python3"
    assert after.verdict.fail_on == "never"
    assert "read again" not in told(f"--last --save {report}")


def test_the_whole_again_in_the_tui_reads_it_too_but_not_for_a_report_that_was_opened(ground: Ground) -> None:
    hosts, own = Path("hosts.txt"), Path(".netdoctor/last.json")
    hosts.write_text("n1\nn2\n")
    assert scan("hosts.txt") == 0
    Path("sent.json").write_bytes(own.read_bytes())
    hosts.write_text("n1\nn2\nn3\n")
    for path, nodes in ((own, ("n1", "n2", "n3")), (Path("sent.json"), ("n1", "n2"))):
        report = load(path)
        runner = ScanRunner(None, {"save": None, "environ": {}}, path)
        runner.adopt(report)
        runner.begin(Request(), report)
        assert runner._thread is not None
        runner._thread.join(20)
        ended = list(runner.events)[-1]
        assert isinstance(ended, Ended)
        assert ended.report.matrix.nodes == nodes


def test_a_hosts_file_that_is_broken_or_gone_since(
    ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = Path("hosts.txt")
    hosts.write_text("n1\nn2\n")
    assert scan("hosts.txt") == 0
    before = Path(".netdoctor/last.json").read_bytes()
    hosts.write_text("n1\nn2 prot=22\n")
    assert scan("--last") == 2
    assert "hosts.txt:2" in capsys.readouterr().err
    assert Path(".netdoctor/last.json").read_bytes() == before
    hosts.unlink()
    assert "hosts.txt cannot be found any more" in told("--last")
    assert load().matrix.nodes == ("n1", "n2")


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
        "no problem proven, required but not tested: net.x; not tested: the network on 1 of 3 nodes (busy)"
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


def test_the_screens_judge_by_what_is_expected(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ground.checks.append(counting())
    Path("hosts").write_text("n1 gpus=8\nn2 gpus=8\n")
    Path("nine.toml").write_text("\n[gpu]\ncount = 9\n")
    Path("eight.toml").write_text("gpu.count = 8\n")
    Path("broken.toml").write_text("[gpu]\ncount = 'nine'\n")
    monkeypatch.setattr(cli_tui, "no_terminal", lambda: None)
    # No screen is drawn for a file with a mistake, of a scan or of a report.
    assert scan("hosts") == 0
    for words in (["hosts"], ["--last"]):
        assert cli.run(["tui", *words, "--expect", "broken.toml"]) == 2
        assert "broken.toml: line 2: gpu.count is a whole number, or a list" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        shown = Shown(patch)
        assert cli.run(["tui", "hosts", "--expect", "nine.toml"]) == 0
        found = shown.events()[-1].report
    assert found.verdict.state == "not_ready"
    assert "nine.toml:3 expects 9" in next(one.summary for one in found.results if one.status == "fail")
    # A part that is measured again is held to the same; another file takes its place.
    for said, state in (({}, "not_ready"), ({"expect": Path("eight.toml")}, "ready")):
        runner = ScanRunner(None, {"save": None, "environ": {}, **said}, Path("hosts"))
        runner.adopt(found)
        runner.begin(Request(checks=("gpu.count",)), found)
        assert runner._thread is not None
        runner._thread.join(20)
        ended = list(runner.events)[-1]
        assert isinstance(ended, Ended), ended
        assert ended.report.verdict.state == state


def test_facts_are_held_to_the_file_that_is_given(ground: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    ground.checks.append(counting())
    Path("hosts").write_text("n1 gpus=8\nn2 gpus=8\n")
    Path("nine.toml").write_text("gpu.count = 9\n")
    Path("broken.toml").write_text("\ngpu = 9\n")
    assert scan("hosts") == 0
    saved = Path("saved.json")
    saved.write_bytes(Path(".netdoctor/last.json").read_bytes())
    assert scan("--facts saved.json --expect nine.toml") == 1
    assert scan("--facts saved.json --expect ''") == 0
    capsys.readouterr()
    assert scan("--facts saved.json --expect broken.toml") == 2
    assert "broken.toml: line 2: nobody knows 'gpu'; did you mean gpu.count?" in capsys.readouterr().err
    # What was expected then is expected again, unless another file is named.
    assert scan("hosts --expect nine.toml") == 1
    assert scan("--last") == 1
    assert scan("--last --expect ''") == 0
