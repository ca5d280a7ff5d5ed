"""Facts and checks to one status per cell, whatever the facts, the checks and the findings are like."""

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdoctor.check import Check, CheckError, derived
from netdoctor.engine import judge as judge_module
from netdoctor.engine.judge import Judgement, count, judge
from netdoctor.facts.base import FACT_TYPES, Missing, Why
from netdoctor.facts.expected import Expectation, Expectations
from netdoctor.facts.host import HostFacts, LimitFacts, Node
from netdoctor.facts.net import PortMatrix
from netdoctor.model import (
    CLUSTER,
    CONTROL,
    HERE,
    Cause,
    Command,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    Measure,
    Status,
    fail,
    in_job,
    ok,
    pair,
    run,
    seen,
    skip,
    unknown,
    warn,
)
from tests.checks import build as healthy
from tests.core.fake import LOST, hint, login, make, saying, store_of

PLUGIN = "acme.checks"


def letters(judgement: Judgement, check: str) -> str:
    return "".join(judgement.cells[check][n].letter for n in judgement.nodes)


def judged(*checks: Check, nodes: int = 3, store: Any = None) -> Judgement:
    return judge(checks, healthy.names(nodes), store or store_of(nodes))


@pytest.mark.parametrize(
    ("said", "row"),
    [
        pytest.param((), "...", id="nothing said"),
        pytest.param((fail("n2", "x"),), ".X.", id="own node"),
        pytest.param((warn("n2", "x"), fail("n2", "y"), ok("n2", "z")), ".X.", id="worst of several"),
        pytest.param((fail("n2", "x"), unknown("n2", "y")), ".X.", id="fail outranks unknown"),
        pytest.param((unknown("n2", "x"), warn("n2", "y")), ".?.", id="unknown outranks warn"),
        pytest.param((skip("none here"),), "---", id="skip for all"),
        pytest.param((skip("none here", "n1"),), "-..", id="skip for one"),
        pytest.param((skip("none here"), ok("n2", "has one")), "-.-", id="a node's pass in a cluster's skip"),
        pytest.param((skip("none here"), fail("n2", "x")), "-X-", id="a node's fail in a cluster's skip"),
        pytest.param((fail(CLUSTER, "x"), skip("y")), "XXX", id="cluster fail then skip"),
        pytest.param((skip("y"), fail(CLUSTER, "x")), "XXX", id="cluster skip then fail"),
        pytest.param((ok(CLUSTER, "8 pairs"),), "...", id="a cluster's pass"),
        pytest.param((unknown(CLUSTER, "x", cause=hint("k", CLUSTER)),), "???", id="cluster unknown, cause"),
        pytest.param((fail(CLUSTER, "x", cause=hint("k", "n2")),), ".X.", id="cluster fail, one culprit"),
        pytest.param((unknown(CONTROL, "x"),), "???", id="control unknown is not a node's pass"),
        pytest.param((fail(CONTROL, "x"),), "...", id="control fail is not a node's fail"),
        pytest.param((fail(pair("n1", "n2"), "x"),), "XX.", id="pair without cause"),
        pytest.param((fail(pair("n1", "n2"), "x", cause=hint("k", "n2")),), ".X.", id="pair, one culprit"),
        pytest.param(
            (fail(pair("n1", "n2"), "x", cause=hint("k", "n1->n2")),), "XX.", id="pair, path culprit"
        ),
        pytest.param((fail(pair("n1", "n2"), "x", cause=hint("k", CLUSTER)),), "XX.", id="pair, cluster"),
        pytest.param((fail("n1", "x", cause=hint("k", "n3")),), "X..", id="own node, culprit elsewhere"),
    ],
)
def test_one_status_per_node(said: tuple[Finding, ...], row: str) -> None:
    assert letters(judged(login(), saying("net.x", *said)), "net.x") == row


def test_a_culprit_that_was_not_judged_leaves_the_trouble_to_the_ends() -> None:
    first = saying("net.a", fail("n3", "down"))
    second = saying("net.b", fail(pair("n1", "n2"), "x", cause=hint("k", "n3")), after=["net.a"])
    assert letters(judged(login(), first, second), "net.b") == "XXb"
    of_all = saying("net.b", fail(CLUSTER, "x", cause=hint("k", "n3")), after=["net.a"])
    assert letters(judged(login(), first, of_all), "net.b") == "..b"


@pytest.mark.parametrize(
    ("why", "letter"), [(why, "-" if why.is_skip else "?") for why in Why], ids=[why.value for why in Why]
)
@pytest.mark.parametrize("every", [False, True], ids=["node", "cluster"])
def test_missing_facts(why: Why, letter: str, every: bool) -> None:
    def one(limits: LimitFacts) -> Iterator[Finding]:
        """Fine."""
        yield from ()

    def all_nodes(nodes: Mapping[str, LimitFacts]) -> Iterator[Finding]:
        """Fine."""
        assert set(nodes) == {"n1", "n3"}
        yield from ()

    function = all_nodes if every else one
    function.__name__ = "host_x"
    limits: dict[str, Any] = {n: healthy.limits() for n in healthy.names(3)}
    limits["n2"] = Missing(why, "because")
    result = judged(login(), make(function), store=store_of(3, limits=limits))
    assert letters(result, "host.x") == f".{letter}."
    if letter == "-":
        assert result.reasons["host.x"]["n2"] == "because"
        gap = {} if why is Why.NOT_APPLICABLE else {"host.x": {"n2": "because"}}
        assert result.gaps == gap
    else:
        assert [f.summary for f in result.findings["host.x"]] == ["because"]


@pytest.mark.parametrize("first", [Why.NOT_APPLICABLE, Why.NOT_COLLECTED])
def test_what_does_not_apply_is_no_gap_whatever_else_was_not_collected(first: Why) -> None:
    def host_x(limits: LimitFacts, host: HostFacts) -> Iterator[Finding]:
        """Fine."""
        yield from ()

    (second,) = {Why.NOT_APPLICABLE, Why.NOT_COLLECTED} - {first}
    missing = {why: {"n1": Missing(why, why.value)} for why in (first, second)}
    store = store_of(1, limits=missing[first], host=missing[second])
    result = judged(login(), make(host_x), nodes=1, store=store)
    assert not result.gaps
    assert result.reasons["host.x"] == {"n1": "not_applicable"}


def test_what_a_check_says_does_not_apply() -> None:
    result = judged(login(), saying("net.x", skip("one node")))
    assert not result.gaps


def test_a_fact_of_the_run_is_missing_for_each_node() -> None:
    def net_x(ports: PortMatrix) -> Iterator[Finding]:
        """Fine."""
        yield from ()

    store = store_of(3)
    store.cluster["ports"] = LOST
    assert letters(judged(login(), make(net_x), store=store), "net.x") == "???"


def test_a_node_that_dropped_out_of_an_experiment_is_unknown_alone() -> None:
    def net_x(ports: PortMatrix, hosts: Mapping[str, HostFacts]) -> Iterator[Finding]:
        """Fine."""
        assert "n2" not in hosts
        yield from ()

    store = store_of(3)
    store.cluster["ports"] = PortMatrix()
    store.put("ports", "n2", LOST)
    assert letters(judged(login(), make(net_x), store=store), "net.x") == ".?."


def test_what_waits_is_blocked_by_the_root() -> None:
    store = store_of(3)
    store.put("session", "n1", healthy.session(1, outcome="refused"))
    store.put("session", "n2", healthy.session(2, outcome="control"))
    checks = (
        login(),
        saying("net.a", fail("n3", "down")),
        saying("net.b", after=["net.a"]),
        saying("net.c", after=["net.b"]),
    )
    result = judged(*checks, store=store)
    assert [letters(result, c.id) for c in checks] == ["X?.", "bbX", "bbb", "bbb"]
    assert result.blocked_by["net.c"] == {"n1": "ssh.login", "n2": "ssh.login", "n3": "net.a"}


def test_login_holds_back_what_waits_for_something_not_selected() -> None:
    store = store_of(2)
    store.put("session", "n1", healthy.session(1, outcome="refused"))
    result = judged(login(), saying("rdma.rate", after=["rdma.port"]), nodes=2, store=store)
    assert letters(result, "rdma.rate") == "b."


def test_warn_and_unknown_hold_nothing_up() -> None:
    first = saying("net.a", warn("n1", "slow"), unknown("n2", "?"))
    assert letters(judged(login(), first, saying("net.b", after=["net.a"])), "net.b") == "..."


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("origin", ["netdoctor.checks.x", PLUGIN])
@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(0), Odd(), RecursionError(), MemoryError()])
def test_a_check_that_raises_is_unknown_alone(
    error: BaseException, origin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def net_x(nodes: Mapping[str, HostFacts]) -> Iterator[Finding]:
        """Fine."""
        yield fail("n1", "said before")
        raise error

    result = judged(login(), make(net_x, origin=origin), saying("net.y", fail("n1", "bad")))
    assert letters(result, "net.x") == "???"
    assert letters(result, "net.y") == "X.."
    [finding] = result.findings["net.x"]
    assert finding.target == CLUSTER
    assert finding.cause is not None
    assert finding.cause.culprits == (CONTROL,)
    assert len(result.tracebacks) == 1
    assert capsys.readouterr() == ("", "")


def test_a_crash_on_every_node_is_one_traceback() -> None:
    def host_x(node: Node, host: HostFacts) -> Iterator[Finding]:
        """Fine."""
        raise ValueError(node.id)
        yield

    result = judged(login(), make(host_x), nodes=50)
    assert letters(result, "host.x") == "?" * 50
    assert [f.target for f in result.findings["host.x"]] == healthy.names(50)
    assert [t.splitlines()[0] for t in result.tracebacks] == [
        "check host.x crashed on n1, n2, n3 and 47 more"
    ]


def test_a_plug_in_that_prints_stays_off_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    def net_x(nodes: Mapping[str, HostFacts]) -> Iterator[Finding]:
        """Fine."""
        print("hello")
        yield from ()

    assert letters(judged(login(), make(net_x, origin=PLUGIN)), "net.x") == "..."
    assert capsys.readouterr().out == ""


def test_a_plug_in_that_hangs_costs_only_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_module, "FOREIGN_CHECK_S", 0.1)
    never = threading.Event()

    def net_x(node: Node, host: HostFacts) -> Iterator[Finding]:
        """Fine."""
        if node.id == "n2":
            never.wait(30)
        yield from ()

    result = judged(login(), make(net_x, origin=PLUGIN), saying("net.y"))
    never.set()
    assert letters(result, "net.x") == ".??"
    assert letters(result, "net.y") == "..."
    assert {f.cause.key for f in result.findings["net.x"] if f.cause} == {"check-hung-net.x"}


def test_a_machine_without_threads_costs_a_plug_in_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    result = judged(login(), saying("net.x", origin=PLUGIN), saying("net.y"))
    assert (letters(result, "net.x"), letters(result, "net.y")) == ("???", "...")


GOOD = fail("n1", "bad")


def spoiled(**changes: Any) -> Finding:
    from dataclasses import replace

    return replace(GOOD, **changes)


@pytest.mark.parametrize("scope", ["node", "cluster"])
@pytest.mark.parametrize("origin", ["netdoctor.checks.x", PLUGIN])
@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param(None, id="None"),
        pytest.param("fail", id="a string"),
        pytest.param(Finding, id="a class"),
        pytest.param(spoiled(status="fail"), id="status as text"),
        pytest.param(spoiled(summary=7), id="summary is a number"),
        pytest.param(spoiled(summary=None), id="no summary"),
        pytest.param(spoiled(observed=7), id="observed is a number"),
        pytest.param(spoiled(expected_from="peers"), id="origin as text"),
        pytest.param(spoiled(evidence=("x",)), id="evidence as text"),
        pytest.param(spoiled(evidence=None), id="no evidence"),
        pytest.param(
            spoiled(evidence=(Evidence(kind="file", where="n1", what="x", output=b"y"),)), id="bytes"
        ),
        pytest.param(spoiled(measures={"x": 3.0}), id="a bare number"),
        pytest.param(spoiled(measures={"x": Measure(value=float("nan"), unit="ms")}), id="NaN"),
        pytest.param(spoiled(cause="firewall"), id="cause as text"),
        pytest.param(spoiled(cause=hint("k", "ghost")), id="unknown culprit"),
        pytest.param(spoiled(cause=hint("k", "n1", fixes=(Fix(text="x", commands=[]),))), id="list in a fix"),
        pytest.param(
            spoiled(
                cause=hint("k", "n1", fixes=(Fix(text="x", commands=(Command(run_on="n1", shell=None),)),))
            ),
            id="no command",
        ),
        pytest.param(spoiled(cause=hint(7, "n1")), id="key is a number"),  # type: ignore[arg-type]
    ],
)
def test_nonsense_is_unknown(nonsense: object, origin: str, scope: str) -> None:
    result = judged(login(), saying("net.x", nonsense, origin=origin, scope=scope), saying("net.y"))
    assert set(letters(result, "net.x")) <= {"?", "."}
    assert letters(result, "net.x")[0] == "?"
    assert letters(result, "net.y") == "..."


@pytest.mark.parametrize(
    ("nonsense", "said"),
    [
        ({"status": "fail"}, "a finding's status is str, not Status"),
        ({"cause": "firewall"}, "a finding's cause is str, not a Cause"),
        ({"cause": hint(7, "n1")}, "a finding's cause.key is int, not str"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_with_a_plug_in_s_finding_is_said(nonsense: dict[str, Any], said: str) -> None:
    [finding] = judged(login(), saying("net.x", spoiled(**nonsense), origin=PLUGIN)).findings["net.x"]
    assert finding.summary == f"check net.x ended with TypeError: {said}"


@pytest.mark.parametrize("target", ["ghost", "n1->ghost", 7, "->n1"])
def test_a_finding_about_nobody_is_unknown(target: Any) -> None:
    assert letters(judged(login(), saying("net.x", spoiled(target=target))), "net.x") == "???"


def test_no_generator_at_all() -> None:
    def net_x(nodes: Mapping[str, HostFacts]) -> None:
        """Fine."""

    assert letters(judged(login(), make(net_x)), "net.x") == "???"  # type: ignore[arg-type]


def test_endless_findings_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_module, "FINDINGS_AT_MOST", 100)

    def net_x(nodes: Mapping[str, HostFacts]) -> Iterator[Finding]:
        """Fine."""
        while True:
            yield GOOD

    assert letters(judged(login(), make(net_x)), "net.x") == "???"


def test_as_many_findings_as_there_may_be_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_module, "FINDINGS_AT_MOST", 2)
    found = [fail("n1", "bad"), fail("n2", "bad"), fail("n3", "bad")]
    assert letters(judged(login(), saying("net.x", *found[:2])), "net.x") == "XX."
    assert letters(judged(login(), saying("net.x", *found)), "net.x") == "???"


def test_blocked_is_not_a_check_s_to_say() -> None:
    assert letters(judged(login(), saying("net.x", spoiled(status=Status.BLOCKED))), "net.x") == "?.."


def test_a_cause_without_culprits_blames_the_target() -> None:
    [finding] = judged(login(), saying("net.x", fail("n2", "x", cause=hint("k")))).findings["net.x"]
    assert finding.cause is not None
    assert finding.cause.culprits == ("n2",)


def test_only_the_judged_nodes_are_shown_and_peers_are_seen() -> None:
    def net_x(nodes: Mapping[str, HostFacts]) -> Iterator[Finding]:
        """Fine."""
        assert len(nodes) == 3
        yield fail("n2", "bad")
        yield fail(pair("n1", "n2"), "theirs", cause=hint("k", "n2"))
        yield fail(pair("n3", "n1"), "ours", cause=hint("k2", "n1"))
        yield fail(pair("n2", "n3"), "not ours")

    result = judge([login(), make(net_x)], healthy.names(3), store_of(3), judged=["n1"])
    assert result.nodes == ("n1",)
    assert result.cells["net.x"] == {"n1": Status.FAIL}
    assert [f.summary for f in result.findings["net.x"]] == ["ours"]


def test_one_node() -> None:
    assert letters(judged(login(), saying("net.x"), nodes=1), "net.x") == "."


def test_no_node() -> None:
    result = judge([login(), saying("net.x")], [], store_of(0))
    assert result.cells == {"ssh.login": {}, "net.x": {}}


NODES = 4
STATUSES = st.sampled_from(list(Status))
TARGETS = st.sampled_from([*healthy.names(NODES), "n1->n2", "n3->n1", "n4->n2", CLUSTER, CONTROL])
CULPRITS = st.lists(TARGETS, max_size=3).map(tuple)
FINDINGS = st.lists(
    st.builds(
        lambda target, status, key, culprits: Finding(
            target=target,
            status=status,
            summary=f"{target} {status}",
            cause=hint(key, *culprits) if key else None,
        ),
        TARGETS,
        STATUSES,
        st.sampled_from(["", "a", "b"]),
        CULPRITS,
    ),
    max_size=6,
)
IDS = ["net.a", "net.b", "net.c", "net.d"]
CHECKS = st.tuples(
    *(
        st.builds(
            lambda i, said, after, explains, required, scope: saying(
                i, *said, after=after, explains=explains, required=required, scope=scope
            ),
            st.just(check_id),
            FINDINGS,
            st.lists(st.sampled_from(["ssh.login", *IDS[:number]]), max_size=2),
            st.lists(st.sampled_from([*IDS, "net.*"]), max_size=2),
            st.booleans(),
            st.sampled_from(["node", "cluster"]),
        )
        for number, check_id in enumerate(IDS)
    )
)
SESSIONS = st.lists(st.sampled_from(["ok", "ok", "ok", "refused", "control"]), min_size=NODES, max_size=NODES)
HOSTS = st.lists(st.sampled_from([None, None, None, *Why]), min_size=NODES, max_size=NODES)


def random_judgement(checks: tuple[Check, ...], sessions: list[str], hosts: list[Why | None]) -> Judgement:
    store = store_of(NODES)
    for i, (outcome, why) in enumerate(zip(sessions, hosts, strict=True), start=1):
        store.put("session", f"n{i}", healthy.session(i, outcome=outcome))
        if why is not None:
            store.put("host", f"n{i}", Missing(why, f"n{i} {why}"))
    return judge([login(), *checks], healthy.names(NODES), store)


@settings(deadline=None)
@given(CHECKS, SESSIONS, HOSTS)
def test_the_matrix_is_always_complete(
    checks: tuple[Check, ...], sessions: list[str], hosts: list[Why | None]
) -> None:
    result = random_judgement(checks, sessions, hosts)
    assert list(result.cells) == ["ssh.login", *IDS]
    for check_id, row in result.cells.items():
        assert set(row) == set(result.nodes)
        for node, status in row.items():
            assert (status is Status.BLOCKED) == (node in result.blocked_by[check_id])
    assert sum(count(result.cells).values()) == NODES * 5
    assert not result.tracebacks
    for check in result.checks[1:]:
        for i, (outcome, why) in enumerate(zip(sessions, hosts, strict=True), start=1):
            status = result.cells[check.id][f"n{i}"]
            if outcome != "ok":
                assert status is Status.BLOCKED
            elif why is not None and not why.is_skip:
                assert status in (Status.UNKNOWN, Status.BLOCKED, Status.FAIL)
        row = set(result.cells[check.id].values())
        for finding in result.findings[check.id]:
            if finding.status is Status.UNKNOWN:
                assert row & {Status.UNKNOWN, Status.FAIL, Status.BLOCKED}
            if finding.status is Status.FAIL and finding.target not in (CLUSTER, CONTROL):
                assert row & {Status.FAIL, Status.BLOCKED}


def test_what_was_not_judged_in_time_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter)
    monkeypatch.setattr(judge_module, "time", clock)

    def host_slow(node: Node, host: HostFacts) -> Iterator[Finding]:
        """It takes 10 seconds a node."""
        now[0] += 10
        yield warn(HERE, "slow")

    later = saying("host.later", fail("n1", "nobody asks it any more"))
    store = store_of(3)
    store.put("host", "n3", Missing(Why.NOT_APPLICABLE, "not here"))
    result = judge([login(), make(host_slow), later], healthy.names(3), store, ends=20)
    assert now == [20.0]
    cells = {name: "".join(row[node].letter for node in result.nodes) for name, row in result.cells.items()}
    assert cells == {"ssh.login": "...", "host.slow": "!!-", "host.later": "??-"}
    assert result.stopped == "deadline"
    assert {f.cause.key for f in result.findings["host.later"] if f.cause} == {"unmeasured-stopped"}
    assert not result.tracebacks


def test_this_module_runs_without_threads_left() -> None:
    assert [t.name for t in threading.enumerate() if t.name == "foreign-check" and t.is_alive()] == []
    assert sys.stdout is not sys.stderr


def test_here_is_the_node_that_is_judged() -> None:
    cause = Cause("too-small", "{nodes} {is} too small")

    def net_x(host: HostFacts) -> Iterator[Finding]:
        """Fine."""
        yield cause.fail("too small", expected="large", seen=seen("look"), fixes=run("heal", "true"))

    def net_y(nodes: Mapping[str, HostFacts]) -> Iterator[Finding]:
        """Fine."""
        yield cause.warn("slow", at=pair("n2", "n1"), culprits=(HERE,), fixes=in_job("unset", "unset X"))
        yield skip("does not apply")

    result = judged(login(), make(net_x), make(net_y))
    assert letters(result, "net.x") == "XXX"
    for node, finding in zip(("n1", "n2", "n3"), result.findings["net.x"], strict=True):
        assert finding.cause is not None
        assert (finding.target, finding.evidence[0].where, finding.cause.culprits) == (node, node, (node,))
        assert finding.cause.fixes[0].commands[0].run_on == node
        assert finding.expected_from is ExpectedFrom.CONSTANT
    about_pair, about_all = result.findings["net.y"]
    assert about_pair.cause is not None
    assert about_pair.cause.culprits == ("n2",)
    assert about_pair.cause.fixes[0].commands[0].run_on == "job"
    assert about_all.target == CLUSTER


@dataclass(frozen=True)
class Names:
    found: tuple[str, ...]


def host_names(hosts: Mapping[str, HostFacts]) -> Names:
    return Names(tuple(hosts))


def names_of(node: HostFacts) -> Names:
    return Names((node.hostname,))


def test_what_checks_share_is_derived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdoctor.check.FACT_TYPES", dict(FACT_TYPES))
    calls: list[list[str]] = []

    def counted(hosts: Mapping[str, HostFacts]) -> Names:
        calls.append(list(hosts))
        return host_names(hosts)

    def net_x(names: Names) -> Iterator[Finding]:
        """Fine."""
        yield fail(names.found[0], "x")

    def net_y(names: Names) -> Iterator[Finding]:
        """Fine."""
        yield fail(names.found[1], "y")

    derived(counted)
    checks = [make(net_x), make(net_y)]
    result = judged(login(), *checks)
    assert [check.scope for check in checks] == ["cluster", "cluster"]
    assert [p.info.group for p in checks[0].needs] == ["host"]

    def net_z(some: Mapping[str, HostFacts] | None, names: Names) -> Iterator[Finding]:
        """Fine."""
        yield from ()

    assert [(p.info.group, p.optional) for p in make(net_z).needs] == [("host", False)]
    assert (letters(result, "net.x"), letters(result, "net.y")) == ("X..", ".X.")
    assert calls == [["n1", "n2", "n3"]]
    missing = store_of(3, host=dict.fromkeys(healthy.names(3), Missing(Why.TIMED_OUT, "late")))
    assert letters(judged(login(), *checks, store=missing), "net.x") == "???"
    with pytest.raises(CheckError, match="one node's"):
        derived(names_of)


def test_what_was_expected_and_not_compared_is_not_green() -> None:
    """Of a typed value that no check has looked at, whatever else is said of the node."""

    def cluster_x(hosts: Mapping[str, HostFacts], expect: Expectations | None = None) -> Iterator[Finding]:
        """X is as expected."""
        if expect:
            expect.for_values("cluster.x", {"n2": "1"})
        yield skip("no X here")
        yield ok("n2", "X is 1")

    def wished(**more: Any) -> Any:
        store = store_of(3)
        wish = Expectation(key="cluster.x", any_of=("1",), place="expect.toml:2", **more)
        store.cluster["wanted"] = Expectations(wishes=(wish,))
        return store

    check = make(cluster_x, expects={"cluster.x": str})
    assert letters(judged(login(), check), "cluster.x") == "-.-"
    for store, row in [
        (wished(), "?.?"),
        (wished(nodes=("n2",)), "-.-"),
        (wished(nodes=("n3", "n9")), "-.?"),
        (wished(of="a card that is nowhere"), "-.-"),
    ]:
        judgement = judged(login(), check, store=store)
        assert letters(judgement, "cluster.x") == row
        # Judged twice, as a saved report may be: nothing of the first time counts.
        assert letters(judged(login(), check, store=store), "cluster.x") == row
    found = judged(login(), check, store=wished()).findings["cluster.x"]
    assert [f.summary for f in found if f.target == "n1"] == [
        "cluster.x 1 is expected by expect.toml:2, and could not be compared: no X here"
    ]
    with pytest.raises(CheckError, match="not a key"):
        make(cluster_x, expects={"X": str})
