"""From findings to causes: what is grouped, what explains what, and that nothing is lost on the way."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings

from netdoctor.check import Check
from netdoctor.engine.diagnose import Group, diagnose
from netdoctor.engine.judge import Judgement, judge
from netdoctor.facts.base import Missing, Why
from netdoctor.model import (
    CLUSTER,
    CONTROL,
    Action,
    Command,
    Confidence,
    Finding,
    Fix,
    Status,
    fail,
    pair,
    unknown,
    warn,
)
from tests.checks import build as healthy
from tests.core.fake import LOST, hint, login, saying, store_of
from tests.counting import calls
from tests.engine.test_judge import CHECKS, HOSTS, SESSIONS, random_judgement


def causes(*checks: Check, nodes: int = 4) -> list[Group]:
    return diagnose(judge([login(), *checks], healthy.names(nodes), store_of(nodes)))


def keys(groups: list[Group]) -> list[str]:
    return [group.key for group in groups]


def test_a_healthy_cluster_has_no_cause() -> None:
    assert causes(saying("net.a"), saying("net.b")) == []


def test_one_key_over_several_checks_is_one_cause_with_the_specific_fix_first() -> None:
    wide, narrow = Fix(text="open all"), Fix(text="change this table")
    groups = causes(
        saying("net.ports", fail("n3", "drops", cause=hint("firewall", "n3", fixes=(wide,)))),
        saying("net.rules", fail("n3", "nft", cause=hint("firewall", "n3", fixes=(narrow, wide)))),
        saying("rdzv.reach", fail(pair("n1", "n3"), "x", cause=hint("firewall", "n3"))),
    )
    assert keys(groups) == ["firewall"]
    assert groups[0].checks == ("net.ports", "net.rules", "rdzv.reach")
    assert groups[0].culprits == ("n3",)
    assert groups[0].fixes == (narrow, wide)


def test_a_cause_has_one_word_for_what_is_to_be_done() -> None:
    """The gravest that a check names; else what status and first fix say."""
    restart, setting = Fix(text="restart", reboot=True), Fix(text="set it")
    named = {
        "drain": [
            fail("n1", "x", cause=replace(hint("a", "n1"), action=Action.RESET_GPU)),
            fail("n2", "x", cause=replace(hint("a", "n2"), action=Action.DRAIN)),
        ],
        "reboot": [fail("n1", "x", cause=hint("a", "n1", fixes=(restart, setting)))],
        "reconfigure": [fail("n1", "x", cause=hint("a", "n1", fixes=(setting, restart)))],
        "retry": [unknown("n1", "x", cause=hint("a", "n1", fixes=(setting,)))],
        "ignore": [warn("n1", "x", cause=hint("a", "n1"))],
    }
    for word, findings in named.items():
        (group,) = causes(saying("net.a", *findings))
        assert group.action == word


def test_many_pairs_with_equal_hints_are_one_cause() -> None:
    pairs = [fail(pair(a, "n3"), "x", cause=hint("firewall", "n3")) for a in ("n1", "n2", "n4")]
    assert keys(causes(saying("net.ports", *pairs))) == ["firewall"]


def test_two_faults_on_two_nodes_are_two_causes() -> None:
    groups = causes(
        saying("net.a", fail("n1", "x", cause=hint("a", "n1")), fail("n2", "y", cause=hint("b", "n2")))
    )
    assert sorted(keys(groups)) == ["a", "b"]


def test_a_node_named_alone_and_in_a_pair_counts_once() -> None:
    groups = causes(
        saying(
            "net.a",
            fail(pair("n1", "n2"), "x", cause=hint("k", "n1->n2")),
            fail("n2", "y", cause=hint("k", "n2")),
        )
    )
    assert groups[0].culprits == ("n2",)


def test_unmeasured_nodes_are_never_culprits_of_a_failure() -> None:
    groups = causes(saying("host.a", fail("n1", "small"), unknown("n2", "unreadable"), warn("n3", "tight")))
    assert [(g.key, g.status, g.culprits) for g in groups] == [
        ("host.a", Status.FAIL, ("n1",)),
        ("host.a-unknown", Status.UNKNOWN, ("n2",)),
        ("host.a-warn", Status.WARN, ("n3",)),
    ]
    same = [fail("n1", "x", cause=hint("k", "n1")), unknown("n2", "y", cause=hint("k", "n2"))]
    groups = causes(saying("host.a", *same))
    assert [(g.status, g.culprits) for g in groups] == [
        (Status.FAIL, ("n1",)),
        (Status.UNKNOWN, ("n2",)),
    ]
    assert len({g.fingerprint for g in groups}) == 2


def test_a_failure_takes_its_symptoms_along() -> None:
    groups = causes(
        saying("net.a", fail("n1", "down"), explains=["bw.*"]),
        saying("bw.x", fail("n1", "slow"), fail(pair("n1", "n2"), "slow"), warn("n3", "slow")),
    )
    assert keys(groups) == ["net.a", "bw.x-warn"]
    assert groups[0].explained == [("bw.x", "n1"), ("bw.x", "n1->n2")]


def test_of_a_check_s_failures_only_those_that_say_so_follow_from_another() -> None:
    groups = causes(
        saying("net.a", fail("n1", "down")),
        saying(
            "bw.x",
            fail("n1", "slow", cause=hint("slow", "n1", follows=("net.a",))),
            fail("n1", "wrong sums", cause=hint("wrong", "n1")),
        ),
    )
    assert sorted(keys(groups)) == ["net.a", "wrong"]
    assert groups[0].explained == [("bw.x", "n1")]


def test_a_symptom_of_the_cluster_belongs_to_any_node_s_failure() -> None:
    groups = causes(
        saying("net.a", fail("n1", "down"), explains=["bw.*"]), saying("bw.x", fail(CLUSTER, "did not end"))
    )
    assert keys(groups) == ["net.a"]


def test_a_sure_culprit_is_not_explained_by_the_other_end() -> None:
    groups = causes(
        saying("net.a", fail("n1", "down"), explains=["net.b"]),
        saying("net.b", fail(pair("n1", "n2"), "x", cause=hint("k", "n2"))),
    )
    assert sorted(keys(groups)) == ["k", "net.a"]


def test_a_cause_that_blames_no_node_is_explained_on_one_node_alone() -> None:
    ours = hint("k", CONTROL)
    groups = causes(
        saying("net.a", fail("n1", "down"), explains=["net.b"]),
        saying("net.b", fail("n1", "x", cause=ours), fail("n2", "y", cause=ours)),
    )
    assert [(g.key, g.explained) for g in groups] == [("net.a", [("net.b", "n1")]), ("k", [])]


def test_a_suspected_culprit_is() -> None:
    doubtful = hint("k", "n2", confidence=Confidence.SUSPECTED)
    groups = causes(
        saying("net.a", fail("n1", "down"), explains=["net.b"]),
        saying("net.b", fail(pair("n1", "n2"), "x", cause=doubtful)),
    )
    assert keys(groups) == ["net.a"]


def test_a_warning_explains_nothing() -> None:
    groups = causes(saying("net.a", warn("n1", "odd"), explains=["bw.*"]), saying("bw.x", fail("n1", "slow")))
    assert keys(groups) == ["bw.x", "net.a-warn"]


def test_a_hint_can_opt_out_of_explaining() -> None:
    quiet = hint("k", "n1", explains=False)
    groups = causes(
        saying("net.a", fail("n1", "x", cause=quiet), explains=["bw.*"]), saying("bw.x", fail("n1", "slow"))
    )
    assert sorted(keys(groups)) == ["bw.x", "k"]


def test_a_chain_ends_at_what_stands_for_itself() -> None:
    groups = causes(
        saying("net.a", fail("n1", "1"), explains=["net.b"]),
        saying("net.b", fail("n1", "2"), explains=["net.c"]),
        saying("net.c", fail("n1", "3")),
    )
    assert keys(groups) == ["net.a"]
    assert groups[0].explained == [("net.b", "n1"), ("net.c", "n1")]


@pytest.mark.parametrize("more", [(), ("bw.*",)], ids=["two", "three"])
def test_circles_leave_the_earlier_one(more: tuple[str, ...]) -> None:
    groups = causes(
        saying("net.a", fail("n1", "1"), explains=["net.b", *more]),
        saying("net.b", fail("n1", "2"), explains=["net.a"]),
        saying("bw.c", fail("n1", "3"), explains=["net.a"]),
    )
    assert keys(groups) == (["net.a", "bw.c"] if not more else ["net.a"]) or keys(groups) == ["bw.c"]
    assert groups[0].status is Status.FAIL


def test_two_causes_that_explain_parts_of_each_other_keep_a_failure() -> None:
    groups = causes(
        saying(
            "net.a",
            fail("n1", "1", cause=hint("a", "n1")),
            warn("n2", "2", cause=hint("a", "n2")),
            explains=["net.b"],
        ),
        saying(
            "net.b",
            fail("n1", "3", cause=hint("b", "n1")),
            warn("n3", "4", cause=hint("b", "n3")),
            explains=["net.a"],
        ),
    )
    assert [(g.key, g.status) for g in groups] == [("a", Status.FAIL), ("b", Status.WARN)]
    assert groups[0].explained == [("net.b", "n1")]


def test_a_lost_node_is_one_cause_with_all_that_is_unknown_about_it() -> None:
    store = store_of(3, limits={n: healthy.limits() for n in ("n1", "n3")})
    store.put("limits", "n2", LOST)
    store.put("host", "n2", LOST)
    checks = [login(), saying("net.a", unknown("n2", "ports were not tested: gone")), saying("host.b")]
    groups = diagnose(judge(checks, healthy.names(3), store))
    assert keys(groups) == ["unmeasured-lost"]
    assert groups[0].culprits == ("n2",)


def test_nobody_can_be_logged_in_to_is_one_cause() -> None:
    store = store_of(50)
    for i in range(1, 51):
        store.put("session", f"n{i}", healthy.session(i, outcome="refused"))
        store.put("host", f"n{i}", Missing(Why.FAILED, "no login"))
    checks = [login(), *(saying(f"net.{c}") for c in "abcdefgh")]
    groups = diagnose(judge(checks, healthy.names(50), store))
    assert keys(groups) == ["ssh-refused"]
    assert len(groups[0].blocked) == 50 * 8


def test_order_is_fail_unknown_warn_then_by_weight() -> None:
    groups = causes(
        saying("host.w", warn("n1", "w")),
        saying("host.u", unknown("n1", "u")),
        saying("net.small", fail("n1", "s")),
        saying("net.big", fail("n2", "b"), explains=["bw.*"]),
        saying("bw.x", fail("n2", "slow")),
    )
    assert keys(groups) == ["net.big", "net.small", "host.u-unknown", "host.w-warn"]


def test_a_blocked_cell_has_one_cause() -> None:
    groups = causes(
        saying("net.a", fail("n1", "x", cause=hint("a", "n1")), fail("n2", "y", cause=hint("b", "n2"))),
        saying("net.b", after=["net.a"]),
    )
    assert {g.key: g.blocked for g in groups} == {"a": [("net.b", "n1")], "b": [("net.b", "n2")]}


def test_a_pair_s_cell_has_a_cause_also_where_the_culprit_is_blocked() -> None:
    groups = causes(
        saying("net.a", fail("n1", "down")),
        saying("net.b", warn(pair("n1", "n2"), "slow", cause=hint("k", "n1")), after=["net.a"]),
    )
    assert {g.key: g.cells for g in groups} == {"net.a": [("net.a", "n1")], "k": [("net.b", "n2")]}


def test_the_fingerprint_is_of_key_and_culprits_not_of_values() -> None:
    def of(summary: str, culprit: str = "n1") -> str:
        return causes(saying("net.a", fail("n1", summary, cause=hint("k", culprit))))[0].fingerprint

    assert of("3 ms") == of("4 ms") != of("3 ms", "n2")


def test_a_summary_s_braces_stay() -> None:
    groups = causes(saying("net.a", fail("n1", "{nodes} {0}")))
    assert groups[0].title == "{nodes}: {{nodes}} {{0}}"


@settings(deadline=None)
@given(CHECKS, SESSIONS, HOSTS)
def test_nothing_is_lost(checks: tuple[Check, ...], sessions: list[str], hosts: list[Why | None]) -> None:
    judgement = random_judgement(checks, sessions, hosts)
    groups = diagnose(judgement)
    said = [
        (check, finding)
        for check, findings in judgement.findings.items()
        for finding in findings
        if finding.status in (Status.FAIL, Status.WARN, Status.UNKNOWN)
    ]
    members = [(check, id(finding)) for group in groups for check, finding in group.members]
    assert not Counter(members) - Counter((check, id(finding)) for check, finding in said)
    explained = {item for group in groups for item in group.explained}
    for check, finding in said:
        assert (check, id(finding)) in members or (check, finding.target) in explained
    assert len(members) <= len(said)
    _each_cell_once(judgement, groups)
    worst = {finding.status for _, finding in said}
    assert (Status.FAIL in worst) == (Status.FAIL in {g.status for g in groups})
    if said:
        assert groups
    for group in groups:
        assert group.culprits
        assert group.status is max((f.status for _, f in group.members), key=lambda s: s.rank)
        if group.explained and group.key not in ("unmeasured-lost", "unmeasured-jump", "unmeasured-stopped"):
            assert group.status is Status.FAIL


def _each_cell_once(judgement: Judgement, groups: list[Group]) -> None:
    cells = [cell for group in groups for cell in group.cells]
    held = [cell for group in groups for cell in group.blocked]
    assert len(cells) == len(set(cells))
    assert len(held) == len(set(held))
    trouble = (Status.FAIL, Status.WARN, Status.UNKNOWN)
    rows = judgement.cells.items()
    assert set(cells) == {(c, n) for c, row in rows for n, s in row.items() if s in trouble}
    assert set(held) == {(c, n) for c, row in rows for n, s in row.items() if s is Status.BLOCKED}


def bad_all_over(count: int) -> Judgement:
    """Every node fails ten checks, and each of 32 pairs of every node one more."""
    names = healthy.names(count)
    shared = hint("k", "n7", fixes=(Fix(text="x", commands=(Command(run_on="n7", shell="true"),)),))
    pairs = [
        fail(pair(a, names[(i + o) % count]), "x", cause=shared)
        for i, a in enumerate(names)
        for o in range(1, 33)
    ]
    all_bad = [
        saying(f"host.c{i}", *(fail(n, f"bad {n}") for n in names), explains=["host.*"]) for i in range(10)
    ]
    return judge([login(), saying("net.p", *pairs), *all_bad], names, store_of(count))


@pytest.mark.thorough
def test_work_grows_with_the_nodes_and_their_pairs_and_no_faster() -> None:
    few, many = bad_all_over(250), bad_all_over(1000)
    assert len(diagnose(many)) == 2
    assert calls(lambda: diagnose(many)) < 4.5 * calls(lambda: diagnose(few))


def test_control_troubles_meet_only_each_other() -> None:
    groups = causes(
        saying("ctl.a", fail(CONTROL, "few descriptors"), explains=["net.*"]),
        saying("net.b", fail("n1", "x"), Finding(target=CONTROL, status=Status.WARN, summary="y")),
    )
    assert keys(groups) == ["ctl.a", "net.b"]
