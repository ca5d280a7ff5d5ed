"""Whether a command starts: every verdict under every rule, and gate over a cluster in a dictionary."""

import itertools
import json
import math
import os
import shlex
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netdoctor import cli
from netdoctor.compat import instant
from netdoctor.facts.host import Login, Session
from netdoctor.inventory import Target
from netdoctor.inventory.task import Task
from netdoctor.model import fail, warn
from netdoctor.report.model import Cause, Counts, Report, Run, Verdict
from netdoctor.scanning import ScanRequest, load_own, prepare
from netdoctor.scanning.gate import Act, Rules, decide, stale
from netdoctor.scanning.record import keep_request
from tests.checks import build
from tests.core.fake import hint, login, plain, saying
from tests.scanning import test_pool
from tests.scanning.ground import Ground, counting

NODES = ("n1", "n2", "n3", "n4")
REPLAY = keep_request(ScanRequest(), [Target(id=node, host=node, order=i) for i, node in enumerate(NODES)])
HEALTHY = {"healthy_nodes": NODES}
ONE_BAD = {"healthy_nodes": NODES[:3], "unhealthy_nodes": NODES[3:]}
ONE_OPEN = {"healthy_nodes": NODES[:3], "undecided_nodes": NODES[3:]}
REFUSED, STARTED, LESS = Act.REFUSE, Act.START, Act.EXCLUDE


def cause(status: str = "fail", key: str = "drop", nodes: tuple[str, ...] = ("n4",)) -> Cause:
    return Cause(
        id=1, key=key, fingerprint="f", status=status, title="it is bad", checks=("net.one",),
        nodes=",".join(nodes), node_list=nodes, confidence="certain",
    )  # fmt: skip


def report(
    state: str, code: int, *causes: Cause, fail_on: str = "fail", ended_by: str = "end", **more: Any
) -> Report:
    run = Run(
        id="1", started="", finished="", duration_ms=1, complete=ended_by == "end", ended_by=ended_by,
        profile="quick", replay=REPLAY,
    )  # fmt: skip
    verdict = Verdict(state=state, exit_code=code, fail_on=fail_on, counts=Counts())
    return Report(run=run, verdict=verdict, causes=causes, **more)


OWN = cause("unknown", "check-crashed-net.one", ())
LOST = cause("unknown", "unmeasured-lost")
LEAST = Rules(exclude_bad=True, min_nodes=1)
# What is found, what may start all the same, and what comes of it: an exit code where nothing starts.
TABLE: list[tuple[Report, Rules, Act, int]] = [
    (report("ready", 0), Rules(), STARTED, 0),
    (report("partial_pass", 0), Rules(), STARTED, 0),
    (report("ready", 4, fail_on="warn"), Rules(on_undecided=True, on_crash=True), REFUSED, 4),
    (report("not_ready", 1, cause(), **ONE_BAD), Rules(on_undecided=True, on_crash=True), REFUSED, 1),
    (report("not_ready", 0, cause(), fail_on="never", **ONE_BAD), Rules(), STARTED, 0),
    (report("undecided", 3, LOST, **ONE_OPEN), Rules(), REFUSED, 3),
    (report("undecided", 3, LOST, **ONE_OPEN), Rules(on_crash=True), REFUSED, 3),
    (report("undecided", 3, LOST, **ONE_OPEN), Rules(on_undecided=True), STARTED, 0),
    (report("undecided", 3, OWN, **HEALTHY), Rules(), REFUSED, 3),
    (report("undecided", 3, OWN, **HEALTHY), Rules(on_crash=True), STARTED, 0),
    (report("undecided", 3, OWN, LOST, **ONE_OPEN), Rules(on_crash=True), REFUSED, 3),
    (report("undecided", 3, OWN, ended_by="deadline"), Rules(on_crash=True), REFUSED, 3),
    (report("not_ready", 1, OWN, cause(), **ONE_BAD), Rules(on_crash=True), REFUSED, 1),
    (report("undecided", 130, ended_by="interrupt"), Rules(on_undecided=True), REFUSED, 130),
    (report("undecided", 143, fail_on="never", ended_by="interrupt"), Rules(), REFUSED, 143),
    # On the good nodes alone: four fifths of four are four, so --min-nodes has to say three.
    (report("not_ready", 1, cause(), **ONE_BAD), Rules(exclude_bad=True), REFUSED, 1),
    (report("not_ready", 1, cause(), **ONE_BAD), Rules(exclude_bad=True, min_nodes=3), LESS, 1),
    (report("not_ready", 1, cause(), **ONE_BAD), Rules(exclude_bad=True, min_nodes=4), REFUSED, 1),
    (report("undecided", 3, LOST, **ONE_OPEN), Rules(exclude_bad=True, min_nodes=3), LESS, 3),
    # Nobody's fault, the cluster's beside a node's, all of them, a scan that was cut short.
    (report("not_ready", 1, cause(nodes=()), **HEALTHY), LEAST, REFUSED, 1),
    (
        report("not_ready", 1, cause(), cause(nodes=()), **ONE_BAD),
        LEAST,
        REFUSED,
        1,
    ),
    (report("not_ready", 1, cause(), unhealthy_nodes=NODES), LEAST, REFUSED, 1),
    (
        report("not_ready", 1, cause(), ended_by="deadline", **ONE_BAD),
        LEAST,
        REFUSED,
        1,
    ),
]  # fmt: skip


def test_each_verdict_under_its_rules() -> None:
    for found, rules, act, code in TABLE:
        decision = decide(found, rules)
        assert (decision.act, decision.code) == (act, code), (found.verdict, rules, decision)
        assert decision.nodes == {STARTED: NODES, LESS: NODES[:3], REFUSED: ()}[act]


def test_whatever_is_found_nothing_starts_that_was_not_allowed_to() -> None:
    """All states, exit codes, causes, ends and rules, also those that no scan makes."""
    states = ("ready", "undecided", "not_ready", "of a later release")
    ends, causes = ("end", "deadline", "interrupt"), ((), (OWN,), (LOST,), (cause(),), (cause(nodes=()), OWN))
    rules = [
        *(Rules(on_undecided=u, on_crash=c) for u, c in itertools.product((False, True), (False, True))),
        *(
            Rules(on_undecided=u, exclude_bad=True, min_nodes=m)
            for u, m in itertools.product((False, True), (None, 1, 3))
        ),
    ]
    for state, code, ended_by, said, fail_on, about in itertools.product(
        states, (0, 1), ends, causes, ("fail", "never"), (HEALTHY, ONE_BAD, ONE_OPEN, {})
    ):
        found = report(state, code, *said, fail_on=fail_on, ended_by=ended_by, **about)
        green = code == 0 and ended_by != "interrupt" and (fail_on == "never" or state == "ready")
        own = said == (OWN,) and ended_by == "end"
        for rule in rules:
            decision = decide(found, rule)
            told = (found.verdict, ended_by, said, about, rule, decision)
            if decision.act is STARTED:
                open_ = state == "undecided" and ended_by != "interrupt"
                assert green or (open_ and (rule.on_undecided or (rule.on_crash and own))), told
            elif decision.act is LESS:
                allowed = set(about.get("healthy_nodes", ()))
                allowed |= set(about.get("undecided_nodes", ())) if rule.on_undecided else set()
                assert (rule.exclude_bad, ended_by, green) == (True, "end", False), told
                assert set(decision.nodes) < set(NODES), told
                assert set(decision.nodes) <= allowed, told
                assert len(decision.nodes) >= (rule.min_nodes or math.ceil(len(NODES) * 0.8)), told
            else:
                assert (green, decision.code != 0) == (False, True), told


class Started(BaseException):
    """Instead of the command: what would have run, and with what."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The environments of all commands that were started; what it sets of signals is put back."""
    came: list[dict[str, str]] = []

    def become(file: str, argv: list[str], environment: dict[str, str]) -> None:
        assert [file, *argv[1:]] == ["true", "--last", "x y"]
        assert signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
        came.append(environment)
        raise Started

    before = signal.getsignal(signal.SIGPIPE)
    monkeypatch.setattr("netdoctor.cli.gate.os.execvpe", become)
    for name in [name for name in os.environ if name.startswith(("NETDOCTOR_", "MASTER_", "NCCL_"))]:
        monkeypatch.delenv(name)
    yield came
    signal.signal(signal.SIGPIPE, before)


def gate(line: str) -> int | None:
    """Run gate in front of a command; the exit code, None where the command was started."""
    try:
        return cli.run(["gate", *shlex.split(line), "--", "true", "--last", "x y"])
    except Started:
        return None


def test_what_is_expected_of_nodes_holds_a_command_back(
    ground: Ground, started: list[dict[str, str]], capfd: pytest.CaptureFixture[str]
) -> None:
    ground.checks.append(counting())
    Path("hosts").write_text("n1 gpus=8\nn2 gpus=8\n")
    Path("eight.toml").write_text("gpu.count = 8\n")
    Path("nine.toml").write_text("\n[gpu]\ncount = 9\n")
    Path("broken.toml").write_text("[gpu]\ncuont = 9\n")
    assert gate("hosts --expect eight.toml") is None
    assert gate("hosts --expect nine.toml") == 1
    assert "8 GPUs, nine.toml:3 expects 9" in capfd.readouterr().err
    # Neither is a file with a mistake what --on-crash is for.
    assert gate("hosts --expect broken.toml --on-crash run") == 2
    told = "broken.toml: line 2: nobody knows 'gpu.cuont'; did you mean gpu.count?"
    assert told in capfd.readouterr().err
    # A name for good in netdoctor.toml, and another file for once; by what an earlier scan saw, too.
    Path("netdoctor.toml").write_text('expect = "nine.toml"\n')
    assert gate("hosts") == 1
    assert gate("hosts --expect eight.toml") is None
    assert gate("hosts --expect ''") is None
    assert gate("hosts --max-age 10m") == 1, "that scan looked for something else"
    assert len(started) == 3


def test_a_command_starts_or_does_not(
    ground: Ground,
    started: list[dict[str, str]],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert gate("n[1-4] --hosts-out good") is None
    told = {name: value for name, value in started[-1].items() if name.startswith("NETDOCTOR_GATE_")}
    assert [told[f"NETDOCTOR_GATE_{name}"] for name in ("VERDICT", "NODES", "NNODES")] == [
        "ready", "n1,n2,n3,n4", "4",
    ]  # fmt: skip
    assert Path("good").read_text().splitlines() == ["n1", "n2", "n3", "n4"]
    out, err = capfd.readouterr()
    assert (out, err) == ("", "netdoctor gate: READY, starts on 4 nodes\n")

    bad = fail("n4", "is bad", cause=hint("bad", "n4"))
    ground.checks[1] = saying("net.one", bad)
    for line, code in {
        "n[1-4]": 1,
        "n[1-4] --refuse-code 75": 75,
        "n[1-4] --on-undecided run --on-crash run": 1,
        "n[1-4] --exclude-bad": 1,
        "n[1-4] --exclude-bad --min-nodes 4": 1,
        "n[1-4] --min-nodes 3": 2,
        "n[1-4] --exclude-bad --fail-on never": 2,
        "n[1-4] --hosts-out .netdoctor": 2,
        "n[1-4] --hosts-out .netdoctor/last.json": 2,
        "n[1-4] --hosts-out nobody=good": 2,
        "n[1-4] --hosts-out deepspeed=good": 2,
        "n[1-4 --on-crash run": 2,
    }.items():
        assert gate(line) == code, line
        out, err = capfd.readouterr()
        assert out == ""
        assert "netdoctor" in err.splitlines()[-1], err
    monkeypatch.setenv("NETDOCTOR_REFUSE_CODE", "76")
    assert gate("n[1-4]") == 76
    assert len(started) == 1
    monkeypatch.delenv("NETDOCTOR_REFUSE_CODE")
    assert gate("n[1-4] -o json=found.json") == 1
    assert capfd.readouterr().err.count("FAIL net.one") == 2  # on stderr beside the file, too
    assert gate("n[1-4] -o none") == 1
    assert "FAIL net.one" not in capfd.readouterr().err
    assert json.loads(Path("found.json").read_text())["verdict"]["state"] == "not_ready"
    assert gate("n[1-4] --fail-on never --deadline 60") is None
    monkeypatch.setattr("netdoctor.cli.gate.LONGEST", 10)
    assert gate("n[1-4] --fail-on never") is None
    assert "too long for an environment; take --hosts-out" in capfd.readouterr().err
    assert "NETDOCTOR_GATE_NODES" not in started[-1]
    assert started[-1]["NETDOCTOR_GATE_NNODES"] == "4"


def test_the_good_nodes_are_looked_at_alone(
    ground: Ground, started: list[dict[str, str]], capfd: pytest.CaptureFixture[str]
) -> None:
    ground.transport.sessions["n2"] = Session(outcome=Login.REFUSED, stage="tcp")
    assert gate("n[1-4] --exclude-bad --min-nodes 3 --hosts-out slurm=good") is None
    assert [len(one) for one in ground.transport.started] == [4, 3]
    assert started[0]["NETDOCTOR_GATE_NODES"] == "n1,n3,n4"
    assert Path("good").read_text() == "n1,n[3-4]\n"
    err = capfd.readouterr().err
    assert "FAIL ssh.login" in err
    assert "NOT READY with n2; scans the others alone" in err
    # What is said of them when they are alone decides.
    ground.checks[1] = saying("net.one", warn("n1", "slow", cause=hint("slow", "n1")))
    assert gate("n[1-4] --exclude-bad --min-nodes 3 --fail-on warn") == 4
    assert [len(one) for one in ground.transport.started] == [4, 3, 4, 3]
    assert "not started, READY with warnings" in capfd.readouterr().err
    assert len(started) == 1


def test_what_tasks_or_a_report_have_written_decides(
    ground: Ground, started: list[dict[str, str]], capfd: pytest.CaptureFixture[str]
) -> None:
    Path("facts").mkdir()
    for i, node in enumerate(NODES):
        said = test_pool.line(node, own=Task(), now=time.time(), facts={"host": plain(build.host(i))})
        Path(f"facts/{node}.facts.jsonl").write_bytes(said)
    assert gate("--facts facts --hosts-out good") is None
    assert started[-1]["NETDOCTOR_GATE_NODES"] == "n1,n2,n3,n4"
    assert not ground.transport.started
    assert json.loads(Path(".netdoctor/last.json").read_text())["run"]["profile"] == "launch"
    # The report of that by itself, and what is no report of these nodes as they are now.
    Path(".netdoctor/last.json").rename("kept.json")
    assert gate("--facts kept.json") is None
    assert started[-1]["NETDOCTOR_GATE_NODES"] == "n1,n2,n3,n4"
    assert not Path(".netdoctor/last.json").exists()
    found = json.loads(Path("kept.json").read_text())
    for field, value in {"started": "2020-01-01T00:00:00Z", "complete": False, "redacted": True}.items():
        Path("other.json").write_text(json.dumps({**found, "run": {**found["run"], field: value}}))
        assert gate("--facts other.json --on-undecided run --refuse-code 75") == 75, field
        assert "not started, other.json does not show the present state: " in capfd.readouterr().err
    ground.checks[1] = saying("net.one", fail("n4", "is bad", cause=hint("bad", "n4")))
    assert gate("--facts kept.json") == 1
    assert gate("--facts kept.json --fail-on never -q") is None
    assert gate("--facts facts") == 1
    for wrong in ("kept.json --exclude-bad", "facts --max-age 1h", "facts --via slurm", "nowhere"):
        assert gate(f"--facts {wrong}") == 2, wrong
    # Who wrote nothing that counts is left out, and the others are judged by themselves.
    ground.checks[1] = saying("net.one")
    Path("facts/n3.facts.jsonl").write_bytes(b"")
    capfd.readouterr()
    assert gate("--facts facts") == 1
    before = len(started)
    assert gate("--facts facts --facts-nodes 5 --exclude-bad --min-nodes 3 --hosts-out good") is None
    assert started[before]["NETDOCTOR_GATE_NODES"] == "n1,n2,n4"
    assert Path("good").read_text().split() == ["n1", "n2", "n4"]


def test_what_netdoctor_breaks_is_no_node_s(
    ground: Ground,
    started: list[dict[str, str]],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def trip(what: str, node: str) -> None:
        raise RuntimeError("our own")

    ground.transport.trip = trip
    monkeypatch.setenv("NETDOCTOR_GATE_NODES", "of an earlier gate")
    assert gate("n[1-4] --refuse-code 1 --on-undecided run") == 5
    assert gate("n[1-4] --refuse-code 1 --on-crash run") is None
    told = {name: value for name, value in started[0].items() if name.startswith("NETDOCTOR_")}
    assert told == {"NETDOCTOR_GATE_VERDICT": "crashed"}
    assert capfd.readouterr().err.count("netdoctor broke (RuntimeError: our own)") == 2
    # What is known to be bad stays out, though the scan of the others breaks.
    ground.transport.trip = lambda what, node: (
        trip(what, node) if len(ground.transport.started) == 4 else None
    )
    ground.transport.sessions["n2"] = Session(outcome=Login.REFUSED, stage="tcp")
    assert gate("n[1-4] --exclude-bad --min-nodes 3 --on-crash run --refuse-code 9") == 9
    assert [len(one) for one in ground.transport.started] == [4, 4, 4, 3]
    ground.transport.sessions.clear()
    # A renderer that breaks neither starts nor stops anything.
    ground.transport.trip = lambda what, node: None
    monkeypatch.setattr("netdoctor.report.output.render", lambda *a: 1 / 0)
    assert gate("n[1-4]") is None
    ground.checks[1] = saying("net.one", fail("n4", "is bad", cause=hint("bad", "n4")))
    assert gate("n[1-4] --on-crash run") == 1
    assert "could not be shown" in capfd.readouterr().err


def test_what_cannot_run_contacts_nobody(ground: Ground, capfd: pytest.CaptureFixture[str]) -> None:
    Path("plain").write_text("text")
    for command, code in (("no-such-command", 127), ("./plain", 126), ("./no/such", 127), ("/tmp", 126)):
        assert cli.run(["gate", "n1", "--", command]) == code, command
        assert f"gate: {command}" in capfd.readouterr().err
    assert cli.run(["gate", "n1", "true"]) == 2
    assert cli.run(["gate", "n1", "--"]) == 2
    assert "HOSTS -- COMMAND" in capfd.readouterr().err
    assert ground.transport.started == []


def test_a_dry_run_says_what_would_start(
    ground: Ground, started: list[dict[str, str]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert gate("n1 --dry-run --hosts-out good") == 0
    out, err = capfd.readouterr()
    assert shlex.split(out)[-3:] == ["true", "--last", "x y"]
    assert "would start on 1 node" in err
    assert (started, Path("good").exists()) == ([], False)


@pytest.mark.parametrize(
    ("words", "profile"),
    [
        ("n[1-2]", "launch"), ("n1", "quick"), ("--local", "quick"), ("n[1-2] -p quick", "quick"),
        ("n1 -p launch", "launch"), ("n[1-2] --node n1", "launch"),
    ],
)  # fmt: skip
def test_several_nodes_are_looked_at_as_a_scan_does(
    ground: Ground,
    started: list[dict[str, str]],
    capfd: pytest.CaptureFixture[str],
    words: str,
    profile: str,
) -> None:
    """A gate that dials no port would start a job on a cluster that scan calls NOT READY."""
    blocked = saying("net.ports", fail("n2", "drops connections"), profile="launch")
    ground.checks = [login(), saying("net.one"), *[blocked] * ("n[1-2]" in words)]
    code = gate(words)
    found = load_own(Path(".netdoctor/last.json")).run.profile
    says = capfd.readouterr().err
    assert found == profile
    assert ("net.ports" in says and code == 1 and not started) == (words == "n[1-2]")
    assert ("(quick: ports not tested)" in says) == (words == "n[1-2] -p quick")


def test_a_saved_report_stands_for_a_scan_only_while_it_is_the_same(
    ground: Ground,
    started: list[dict[str, str]],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)  # a job's TMPDIR is part of what it is
    hosts = Path("hosts.txt")
    hosts.write_text("n[1-4]\n")
    asked = ScanRequest(hosts=("hosts.txt",))
    for scans in (1, 1):  # the second time by the report of the first
        assert gate("hosts.txt --max-age 10m") is None
        assert len(ground.transport.started) == scans
    err = capfd.readouterr().err
    assert "gate: by .netdoctor/last.json, begun 2" in err
    saved = load_own(Path(".netdoctor/last.json"))
    begun = instant(saved.run.started).timestamp()

    def why(found: Report = saved, later_s: float = 1, touched: float = -1, **other: Any) -> str:
        plan = prepare(replace(asked, **other))
        return stale(found, plan, now=begun + later_s, max_age_s=600, touched={"hosts.txt": begun + touched})

    def with_run(**fields: Any) -> Report:
        return replace(saved, run=replace(saved.run, **fields))

    assert why() == ""
    assert why(parallel=3, deadline=60.0, timeout=5.0) == ""
    assert why(with_run(profile="full")) == why(profile="quick") == ""
    for answer, said in (
        (why(later_s=601), "too old"),
        (why(later_s=-1), "future"),
        (why(with_run(started="at noon")), "too old"),
        (why(touched=0), "hosts.txt has changed"),
        (why(with_run(foreign="uid 7")), "not our own"),
        (why(with_run(redacted=True)), "redacted"),
        (why(replace(saved, tool=replace(saved.tool, version="0.0.1"))), "another release"),
        (why(with_run(complete=False)), "cut short"),
        (why(with_run(ended_by="deadline")), "cut short"),
        (why(with_run(replay={})), "other hosts"),
        (why(with_run(replay={"targets": [3], "options": 4})), "other hosts"),
        (why(with_run(replay={**saved.run.replay, "options": {}})), "was another one"),
        (why(replace(saved, facts={})), "what the job was"),
        (why(hosts=("n[1-3]",)), "other hosts"),
        (why(hosts=("n[4,1-3]",)), "other hosts"),
        (why(hosts=("n[1-3]", "n4 port=2222")), "other hosts"),
        (why(with_run(profile="quick")), "profile was quick"),
        (why(only=("net.one",)), "--only was"),
        (why(node="n1"), "--node was"),
        (why(strict=True), "--strict was"),
        (why(fail_on="warn"), "--fail-on was"),
        (why(master_port=29400), "--master-port was"),
        (why(environ={"NCCL_SOCKET_IFNAME": "eth9"}), "NCCL_SOCKET_IFNAME"),
    ):
        assert said in answer
    ground.checks.append(saying("net.three"))
    assert why() == "it looked at less"

    # One that says no is looked at again, and so is one of somebody else.
    ground.checks[1] = saying("net.one", fail("n4", "is bad", cause=hint("bad", "n4")))
    assert gate("hosts.txt --max-age 10m") == 1
    assert gate("hosts.txt --max-age 10m") == 1
    assert "it lets nothing start" in capfd.readouterr().err
    Path(".netdoctor/last.json").write_text("no report")
    assert gate("hosts.txt --max-age 10m") == 1
    assert len(ground.transport.started) == 4
