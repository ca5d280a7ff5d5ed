"""Scans for the TUI: a thread, events, merging of what was measured again. No network."""

import argparse
import dataclasses
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from netdoctor.cli import build_parser
from netdoctor.cli import options as cli_options
from netdoctor.cli import tui as cli_tui
from netdoctor.engine.run import Options, Scan
from netdoctor.errors import InputError
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.host import HostFacts, Session
from netdoctor.facts.net import PortMatrix
from netdoctor.facts.software import Job
from netdoctor.model import Finding, Status, fail
from netdoctor.report.foreign import disowned
from netdoctor.report.model import Report
from netdoctor.report.save import load, save
from netdoctor.runner import ScanRunner
from netdoctor.scanning import ScanRequest, kept_request
from netdoctor.scanning.merging import RERUN
from netdoctor.scanning.part import widened as widen
from netdoctor.store import Store, merge
from netdoctor.tui.events import Began, Ended, Failed, NodeDone, Phase
from netdoctor.tui.runner import Request
from netdoctor.tui.state import State, fold
from tests.core.fake import FakeTransport, login, make, saying, store_of, targets
from tests.report.build import sample_report
from tests.scanning.ground import Ground as Cluster

LOST = Session(outcome="refused", stage="tcp", detail="refused")


class Ground(Cluster):
    """The cluster, and the runner of `netdoctor tui` on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        super().__init__(monkeypatch, folder)
        self.runner = scanning("n[1-3]")

    def run(self, request: Request, report: Report | None) -> list[Any]:
        self.transport = FakeTransport(
            sessions=self.transport.sessions, facts=self.transport.facts, answers=self.transport.answers
        )
        self.runner.begin(request, report)
        assert self.runner._thread is not None
        self.runner._thread.join(20)
        events = list(self.runner.events)
        self.runner.events.clear()
        return events


def arguments(*words: str) -> argparse.Namespace:
    return build_parser("tui").parse_args(["tui", *words])


def scanning(*words: str) -> ScanRunner:
    """The runner of `netdoctor tui` on hosts."""
    said = cli_options.request_fields(arguments(*words))
    return ScanRunner(ScanRequest(**said), said)


def showing(path: Path, report: Report, *words: str) -> ScanRunner:
    """The runner of `netdoctor tui` on a report in a file."""
    runner = ScanRunner(None, {**cli_options.request_fields(arguments(*words)), "save": path}, path)
    runner.adopt(report)
    return runner


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ground:
    return Ground(monkeypatch, tmp_path)


def test_a_scan_tells_what_happens_and_saves_its_report(ground: Ground) -> None:
    events = ground.run(Request(), None)
    assert isinstance(events[0], Began)
    assert events[0].nodes == ("n1", "n2", "n3")
    assert [check for check, _ in events[0].checks] == ["ssh.login", "net.one", "net.two"]
    assert {e.node for e in events if isinstance(e, NodeDone)} == {"n1", "n2", "n3"}
    assert {e.name for e in events if isinstance(e, Phase)} >= {"connect", "judge"}
    assert (0, 0, ".") in events  # a node's login is known before the end
    assert isinstance(events[-1], Ended)
    assert events[-1].report.verdict.state == "ready"
    assert load().matrix == events[-1].report.matrix
    state = fold(State(), events)
    assert state.report is events[-1].report


def test_what_is_shown_early_is_what_is_judged_later(ground: Ground) -> None:
    ground.transport.sessions["n2"] = LOST
    events = ground.run(Request(), None)
    early = fold(State(), events[:-1]).cells
    late = fold(State(), events).cells
    assert early.nodes == late.nodes
    assert early.checks == late.checks
    for row in range(3):
        for column in range(3):
            if early.letter(row, column) != " ":
                assert early.letter(row, column) == late.letter(row, column)
    assert early.letter(1, 0) == "X"


def test_a_partial_run_is_merged_and_saved(ground: Ground) -> None:
    ground.transport.sessions["n2"] = LOST
    first = ground.run(Request(), None)[-1].report
    assert first.verdict.state == "not_ready"
    ground.transport.sessions.clear()
    events = ground.run(Request(checks=("ssh.login",), nodes=("n2",)), first)
    assert events[0].partial
    assert events[0].nodes == ("n2",)
    after = events[-1].report
    assert isinstance(events[-1], Ended)
    assert after.verdict.state == "ready"
    assert after.causes == ()
    assert after.matrix.nodes == first.matrix.nodes
    assert after.matrix.checks == first.matrix.checks
    assert any(note.text.startswith(RERUN) for note in after.notes)
    assert load().verdict == after.verdict
    # Everything that waited for the login came along.
    assert {check for check, _ in events[0].checks} == {"ssh.login", "net.one", "net.two"}


def test_a_report_without_facts_is_run_as_a_whole(ground: Ground) -> None:
    first = ground.run(Request(), None)[-1].report
    bare = dataclasses.replace(first, facts={})
    events = ground.run(Request(checks=("net.one",), nodes=("n1",)), bare)
    assert not events[0].partial


def test_bad_input_and_defects_are_told_as_events(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(*args: object, **kwargs: object) -> None:
        raise InputError("hosts.txt:7: number missing")

    monkeypatch.setattr("netdoctor.scanning.plan.make_transport", bad)
    (event,) = ground.run(Request(), None)
    assert isinstance(event, Failed)
    assert event.text == "hosts.txt:7: number missing"

    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("\x1b[31mno")

    monkeypatch.setattr("netdoctor.scanning.plan.make_transport", broken)
    (event,) = ground.run(Request(), None)
    assert event.text.startswith("netdoctor broke (ZeroDivisionError")
    assert "\x1b" not in event.text


def test_a_report_from_a_file_is_asked_about_and_ones_own_is_not(ground: Ground, tmp_path: Path) -> None:
    report = ground.run(Request(), None)[-1].report
    own = showing(Path(".netdoctor/last.json"), report)
    assert (own.question, own.cannot) == ("", "")
    assert own.ssh("n1") == ["ssh", "n1"]
    assert own.ssh("elsewhere") is None
    foreign = showing(tmp_path / "x.json", report)
    assert "3 nodes" in foreign.question
    assert "n1" in foreign.question


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("ssh_config", "/evil/config", "the ssh config /evil/config"),
        ("known_hosts", "/evil/k", "the known hosts /evil/k"),
        ("ssh_key", "/evil/id", "the key /evil/id"), ("python", "/evil/py", "the interpreter /evil/py"),
        ("jump", "evil", "the jump host evil"),
    ],
)  # fmt: skip
def test_also_ones_own_is_asked_about_where_it_decides_what_runs(
    ground: Ground, field: str, value: str, words: str
) -> None:
    report = ground.run(Request(), None)[-1].report
    replay = {**report.run.replay, "options": {**report.run.replay["options"], field: value}}
    report = dataclasses.replace(report, run=dataclasses.replace(report.run, replay=replay))
    own = Path(".netdoctor/last.json")
    assert words in showing(own, report).question
    said = showing(own, report, f"--{field.replace('_', '-')}", "mine")
    assert said.question == ""


def test_somebody_elses_report_runs_nothing(ground: Ground) -> None:
    report = disowned(ground.run(Request(), None)[-1].report, "uid 12345")
    runner = showing(Path(".netdoctor/last.json"), report)
    assert "belongs to somebody else" in runner.cannot
    assert runner.ssh("n1") is None
    assert runner.will_run(Request(), report) == {}
    runner.begin(Request(), report)
    assert runner._thread is not None
    runner._thread.join(20)
    (event,) = runner.events
    assert isinstance(event, Failed)


def test_a_report_that_does_not_say_how_it_was_made_cannot_be_run(ground: Ground) -> None:
    runner = showing(Path("x.json"), sample_report())
    assert "does not say how it was made" in runner.cannot


@pytest.mark.parametrize(
    ("target", "options", "word"),
    [
        ({"host": "-oProxyCommand=touch x"}, {}, "begin with '-'"),
        ({"host": "a;b"}, {}, "host"),
        ({"id": "\x1b[2Jn1"}, {}, "node"),
        ({"user": "-x"}, {}, "user"),
        ({"python": "a b; c"}, {}, "interpreter"),
        ({"port": 99999}, {}, "port"),
        ({}, {"ssh_user": "-oX=y"}, "ssh_user"),
        ({}, {"jump": "-x"}, "jump"),
        ({}, {"timeout": "long"}, "timeout"),
        ({}, {"ssh_config": 7}, "ssh_config"),
    ],
)
def test_a_reports_word_is_checked_like_a_hosts_file(
    ground: Ground, target: dict[str, Any], options: dict[str, Any], word: str
) -> None:
    report = ground.run(Request(), None)[-1].report
    replay = {
        "targets": [{**report.run.replay["targets"][0], **target}],
        "options": {**report.run.replay["options"], **options},
    }
    odd = dataclasses.replace(report, run=dataclasses.replace(report.run, replay=replay))
    runner = showing(Path("x.json"), odd)
    assert word in runner.cannot
    assert runner.ssh("n1") is None


def test_no_code_is_loaded_from_where_a_strangers_report_says(ground: Ground) -> None:
    report = ground.run(Request(), None)[-1].report
    kept = {**report.run.replay, "options": {**report.run.replay["options"], "checks_dir": ["/evil"]}}
    odd = dataclasses.replace(report, run=dataclasses.replace(report.run, replay=kept))
    assert kept_request(odd, {}).checks_dir == ()


def test_which_checks_come_along() -> None:
    checks = [login(), saying("net.one"), saying("net.two", after=("net.one",))]
    report = sample_report("ready", nodes=2)
    cells = {"ssh.login": "..", "net.one": "X.", "net.two": "b."}
    matrix = dataclasses.replace(
        report.matrix, checks=tuple(cells), cells=tuple(cells.values()), nodes=("n1", "n2")
    )
    report = dataclasses.replace(report, matrix=matrix)

    def widened(*wanted: str, node: str = "n1") -> set[str]:
        return set(widen(report, checks, wanted, (node,)) or ())

    assert widened("net.one") == {"net.one", "net.two"}
    assert widened("net.two") == {"net.one", "net.two"}
    assert widened("net.one", node="n2") == {"net.one"}
    assert widen(report, checks, None, ("n1",)) is None


def test_what_will_run_is_known_before_with_what_it_costs(ground: Ground) -> None:
    ground.checks[1:2] = [saying("net.one", fail("n2", "shut"), cost="opens-port")]
    ground.checks.append(saying("bw.pair", after=("net.one",), cost="loads-gpu", profile="full"))
    report = ground.run(Request(), None)[-1].report
    report = dataclasses.replace(report, checks=())  # whatever a file says that they cost
    assert ground.runner.will_run(Request(checks=("net.two",), nodes=("n1",)), report) == {
        "net.two": "read-only"
    }
    everything = {"ssh.login": "read-only", "net.one": "opens-port", "net.two": "read-only"}
    assert ground.runner.will_run(Request(), report) == everything
    assert ground.runner.will_run(Request(nodes=("n1",)), report) == everything
    bare = dataclasses.replace(report, facts={})
    assert ground.runner.will_run(Request(checks=("net.two",)), bare) == everything
    matrix = dataclasses.replace(
        report.matrix, checks=(*report.matrix.checks, "bw.pair"), cells=(*report.matrix.cells, ".b.")
    )
    wide = dataclasses.replace(report, matrix=matrix)
    will = ground.runner.will_run(Request(checks=("bw.pair",), nodes=("n2",)), wide)
    assert will == {"net.one": "opens-port", "bw.pair": "loads-gpu"}


def test_a_check_costs_what_its_experiments_cost(ground: Ground) -> None:
    def net_walls(nodes: Mapping[str, HostFacts], ports: PortMatrix | None) -> Iterator[Finding]:
        """No wall."""
        yield from ()

    ground.checks.append(make(net_walls))
    report = ground.run(Request(), None)[-1].report
    assert ground.runner.will_run(Request(checks=("net.walls",)), report) == {"net.walls": "opens-port"}


def test_what_cannot_begin_will_not_run(ground: Ground) -> None:
    assert ground.runner.will_run(Request(), sample_report()) == {}


# What the engine and the store do for it


def test_preview_says_what_one_node_says_by_itself() -> None:
    checks = [login(), saying("net.one"), saying("net.two", fail("n1", "bad"), scope="node")]
    scan = Scan(targets(2), checks, Job(master_node="n1"), Options())
    scan.store = store_of(2)
    assert scan.preview("n1") == {"ssh.login": Status.PASS, "net.two": Status.FAIL}
    scan.store.put("session", "n2", LOST)
    assert scan.preview("n2") == {"ssh.login": Status.FAIL, "net.two": Status.BLOCKED}
    scan.store = Store()
    assert scan.preview("n1") == {}


def test_merge_takes_newer_facts_and_keeps_what_was_not_asked() -> None:
    old, new = store_of(2), Store()
    late = Missing(Why.STOPPED, "stopped")
    new.put("host", "n1", late)
    new.put("session", "n2", LOST)
    merged = merge(old, new)
    assert merged.get("host", "n1") == old.get("host", "n1")
    assert merged.get("session", "n2") == LOST
    assert old.get("session", "n2") != LOST


def test_merge_forgets_who_dropped_out_of_a_measurement_that_was_repeated() -> None:
    old, new = store_of(2), Store()
    old.cluster["ports"] = Missing(Why.FAILED, "x")
    old.put("ports", "n1", Missing(Why.LOST, "gone"))
    new.cluster["ports"] = object()
    merged = merge(old, new)
    assert merged.cluster_fact("ports") is new.cluster["ports"]
    assert "ports" not in merged.node


def test_merge_keeps_addresses_of_nodes_that_were_not_asked() -> None:
    old, new = store_of(2), Store()
    old.cluster["job"] = Job(master_node="n1", data_addresses={"n1": "10.0.0.1", "n2": "10.0.0.2"})
    new.cluster["job"] = Job(master_node="n1", data_addresses={"n2": "10.0.0.3"})
    assert merge(old, new).cluster_fact("job").data_addresses == {"n1": "10.0.0.1", "n2": "10.0.0.3"}


def test_closing_waits_for_the_scan(ground: Ground) -> None:
    def trip(what: str, node: str) -> None:
        time.sleep(0.05)

    ground.transport = FakeTransport(trip=trip)
    ground.runner.begin(Request(), None)
    ground.runner.close()
    assert ground.runner._thread is not None
    assert not ground.runner._thread.is_alive()


def test_a_report_is_found_by_its_name_or_its_content(tmp_path: Path) -> None:
    path = tmp_path / "odd.name"
    save(sample_report(), path)
    assert cli_tui._saved(arguments(str(path))) == path
    assert cli_tui._saved(arguments("gpu[1-4]")) is None
    assert cli_tui._saved(arguments("a.json", "b")) is None
    assert cli_tui._saved(arguments("--last")) == Path(".netdoctor/last.json")
