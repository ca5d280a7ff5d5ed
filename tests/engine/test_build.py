"""The report of an outcome: verdict, exit code, cells, results, causes with commands that a shell accepts."""

import argparse
import json
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdoctor.check import Check
from netdoctor.engine.assemble.report import Context, Remote, build
from netdoctor.engine.judge import Judgement, judge
from netdoctor.engine.run import Outcome
from netdoctor.facts.accelerators import AcceleratorFacts
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts
from netdoctor.inventory import load as load_hosts
from netdoctor.inventory import restrict
from netdoctor.model import (
    BY_LETTER,
    CLUSTER,
    CONSTANT,
    CONTROL,
    PEERS,
    Command,
    Confidence,
    Evidence,
    Finding,
    Fix,
    Status,
    fail,
    ok,
    pair,
    skip,
    unknown,
    warn,
)
from netdoctor.report.formats.json_ import dumps, loads
from netdoctor.report.formats.text import render
from netdoctor.report.model import Cause, Part, Report, Run
from netdoctor.report.output import FORMATS
from netdoctor.report.output import render as shown_as
from netdoctor.report.summary import verdict_in_scope
from netdoctor.store import Store
from tests.checks import build as healthy
from tests.checks import build_hw
from tests.core.fake import hint, login, make, saying, store_of
from tests.engine.test_judge import CHECKS, HOSTS, SESSIONS, random_judgement

RUN = Run(id="x", started="", finished="", duration_ms=1, complete=True, ended_by="end", profile="launch")


def made(
    *checks: Check, nodes: int = 3, store: Store | None = None, ended_by: str = "end", **context: Any
) -> Report:
    store = store or store_of(nodes)
    judgement = judge([login(), *checks], healthy.names(nodes), store)
    run = replace(context.pop("run", RUN), ended_by=ended_by, complete=ended_by == "end")
    return build(Outcome(store=store, judgement=judgement, ended_by=ended_by), Context(run=run, **context))


def test_every_measured_clock_is_a_measure() -> None:
    """A thousand good clocks are worth a plot; a check tells only of those that are wrong."""
    offsets = {"n1": 0.0, "n2": 0.002, "n3": 3.0}
    report = made(
        saying("time.skew"), store=store_of(3, clock={node: healthy.clock(s) for node, s in offsets.items()})
    )
    assert {m.target: round(m.value) for m in report.measures if m.name == "time.skew"} == {
        "n1": -1, "n2": 1, "n3": 2999,
    }  # fmt: skip
    assert made(store=store_of(3, clock={"n1": healthy.clock(0.0)})).measures == ()


BAD, RISK, OPEN = fail("n1", "bad"), warn("n1", "risky"), unknown("n1", "unreadable")
GAP = skip("not looked at", "n2", gap="busy")


@pytest.mark.parametrize(
    ("said", "options", "state", "code"),
    [
        pytest.param((), {}, "ready", 0, id="ready"),
        pytest.param((RISK,), {}, "ready", 0, id="warn"),
        pytest.param((RISK,), {"fail_on": "warn"}, "ready", 4, id="warn, fail on warn"),
        pytest.param((BAD,), {}, "not_ready", 1, id="fail"),
        pytest.param((BAD,), {"fail_on": "never"}, "not_ready", 0, id="fail, never"),
        pytest.param((OPEN,), {}, "undecided", 3, id="unknown"),
        pytest.param((BAD, unknown("n2", "x")), {}, "not_ready", 1, id="fail outranks unknown"),
        pytest.param(
            (OPEN, warn("n2", "x")), {"fail_on": "warn"}, "undecided", 3, id="unknown outranks warn"
        ),
        pytest.param((), {"ended_by": "deadline"}, "undecided", 3, id="deadline"),
        pytest.param((), {"ended_by": "interrupt"}, "undecided", 130, id="interrupt"),
        pytest.param((BAD,), {"ended_by": "interrupt"}, "not_ready", 130, id="interrupt outranks fail"),
        pytest.param((BAD,), {"ended_by": "interrupt", "interrupted_code": 143}, "not_ready", 143, id="TERM"),
        pytest.param(
            (BAD,), {"ended_by": "interrupt", "fail_on": "never"}, "not_ready", 130, id="130, never"
        ),
        pytest.param((skip("none"),), {}, "ready", 0, id="skip"),
        pytest.param((skip("none"),), {"strict": True}, "ready", 0, id="does not apply, strict"),
        pytest.param((OPEN,), {"strict": True}, "undecided", 3, id="unknown, strict"),
        pytest.param((GAP,), {}, "ready", 0, id="gap"),
        pytest.param((GAP,), {"strict": True}, "undecided", 3, id="gap, strict"),
        pytest.param((GAP,), {"require": ("net",)}, "undecided", 3, id="gap, required"),
        pytest.param(
            (ok(CLUSTER, "fine", gap="of a part"),),
            {"require": ("net",)},
            "undecided",
            3,
            id="pass of a part",
        ),
        pytest.param((GAP,), {"require": ("ssh",)}, "ready", 0, id="gap, another required"),
        pytest.param((GAP, BAD), {"require": ("net",)}, "not_ready", 1, id="fail outranks a required gap"),
        pytest.param((), {"require": ("bw",)}, "undecided", 3, id="required, left out by the profile"),
        pytest.param((skip("none"),), {"require": ("net",)}, "ready", 0, id="does not apply, required"),
        pytest.param(
            (unknown(CLUSTER, "x", cause=hint("k", CLUSTER)),), {}, "undecided", 3, id="cluster unknown"
        ),
        pytest.param((unknown(CONTROL, "x"),), {}, "undecided", 3, id="control unknown"),
        pytest.param((fail(CONTROL, "x"),), {}, "not_ready", 1, id="control fail"),
        pytest.param((fail(CLUSTER, "x", cause=hint("k", CLUSTER)),), {}, "not_ready", 1, id="cluster fail"),
    ],
)
def test_verdict_and_exit_code(
    said: tuple[Finding, ...], options: dict[str, Any], state: str, code: int
) -> None:
    verdict = made(saying("net.x", *said), **options).verdict
    assert (verdict.state, verdict.exit_code) == (state, code)
    assert verdict.headline or state == "not_ready"


def part(checks: int = 2, nodes: int = 3) -> Part:
    return Part(checks=checks, of_checks=43, nodes=nodes, of_nodes=6)


@pytest.mark.parametrize(
    ("said", "options", "state", "code", "headline"),
    [
        pytest.param((), {}, "partial_pass", 0, "2 of 43 checks on 3 of 6 nodes: pass", id="pass"),
        pytest.param(
            (RISK,), {}, "partial_pass", 0,
            "2 of 43 checks on 3 of 6 nodes: 1 problem will cause trouble", id="warn",
        ),
        pytest.param(
            (RISK,), {"fail_on": "warn"}, "partial_pass", 4,
            "2 of 43 checks on 3 of 6 nodes: 1 problem will cause trouble", id="warn, fail on warn",
        ),
        pytest.param(
            (BAD,), {}, "not_ready", 1,
            "1 problem stops the launch; looked at 2 of 43 checks on 3 of 6 nodes", id="fail",
        ),
        pytest.param(
            (skip("none", "n1"),), {}, "partial_pass", 0, "2 of 43 checks on 3 of 6 nodes: 5 pass, 1 skip",
            id="does not apply somewhere",
        ),
        pytest.param(
            (skip("no torch", gap="no torch"),), {}, "undecided", 3,
            "no problem proven; looked at 2 of 43 checks on 3 of 6 nodes; not tested: the network (no torch)",
            id="what was asked for could not be looked at",
        ),
    ],
)  # fmt: skip
def test_a_part_never_says_ready(
    said: tuple[Finding, ...], options: dict[str, Any], state: str, code: int, headline: str
) -> None:
    report = made(saying("net.x", *said), part=part(), **options)
    verdict = report.verdict
    assert (verdict.state, verdict.exit_code, verdict.headline) == (state, code, headline)
    assert loads(dumps(report)).verdict.part == part()
    for format in FORMATS:
        text = shown_as(report, format)
        shown = text.decode() if isinstance(text, bytes) else text
        shown = re.sub("^# HELP .*", "", shown, flags=re.MULTILINE)
        assert not re.search(r"(?<!NOT )\bREADY\b|netdoctor_ready 1|\"ready\"", shown), format
    short = str(shown_as(report, "short"))
    assert ("CHECKED" if state == "partial_pass" else "net") in short


@pytest.mark.parametrize(
    ("checks", "words"),
    [
        pytest.param({"net.x": RISK}, "1 problem will cause trouble", id="alone"),
        pytest.param(
            {"net.x": RISK, "bw.x": BAD}, "1 problem stops the launch, 1 will cause trouble", id="and a fail"
        ),
        pytest.param(
            {"net.x": RISK, "bw.x": OPEN},
            "no problem proven, 1 question could not be answered, 1 problem will cause trouble",
            id="and an unknown",
        ),
    ],
)
def test_what_will_cause_trouble_is_said_to_be_a_problem(checks: dict[str, Finding], words: str) -> None:
    """In the engine's headline, and in the report's own where the engine gave none."""
    report = made(*(saying(check, one) for check, one in checks.items()))
    assert report.verdict.headline.partition(";")[0] == words
    bare = replace(report, verdict=replace(report.verdict, headline=""))
    if report.verdict.state != "undecided":
        assert f"   {words}\n" in render(bare)


def test_one_result_is_one_result() -> None:
    report = made(nodes=1)
    assert report.verdict.headline == "1 check passes on 1 node"
    assert "READY       1 check passes on 1 node\n" in render(report)
    alone = made(nodes=1, part=part(checks=1, nodes=1)).verdict.headline
    assert alone == "1 of 43 checks on 1 of 6 nodes: passes"


def test_an_optional_check_s_unknown_decides_nothing() -> None:
    assert made(saying("net.x", OPEN, required=False)).verdict.exit_code == 0


def test_a_gap_is_named_and_ready_stays() -> None:
    """What was not tested, why, where: in the headline and in JSON, and nothing where nothing is missing."""
    same = skip("it is busy with something", gap="in use")
    report = made(saying("net.x", replace(same, target="n2")), saying("sw.x", same), saying("bw.x", same))
    words = "not tested: the network on 1 of 3 nodes, the job's Python, the all-reduce (in use)"
    assert report.verdict.headline.endswith(f"; {words}")
    assert f"READY       {report.verdict.headline.partition(';')[0]}\n" in render(report)
    assert " ".join(words.replace(":", "").split()) in " ".join(render(report).split())
    (net, sw, bw) = json.loads(dumps(report))["verdict"]["gaps"]
    assert net == {
        "family": "net",
        "what": "the network",
        "reason": "in use",
        "nodes": ["n2"],
        "checks": ["net.x"],
    }
    assert (sw["family"], bw["family"]) == ("sw", "bw")
    assert "not tested" not in made(saying("net.x", skip("none"))).verdict.headline
    (rdma,) = made(saying("bw.rdma", same)).verdict.gaps
    assert (rdma.family, rdma.what) == ("bw", "the rates of RDMA")


def test_in_a_container_it_is_said_what_is_not_seen() -> None:
    store = store_of(3, host={"n2": healthy.host(2, container="docker")})
    report = made(saying("sw.x", skip("no torch", gap="no torch")), store=store)
    (note,) = [note.text for note in report.notes]
    assert note == "scanned from inside a container: n2; what is outside of it is not visible"
    assert not made(saying("sw.x"), store=store).notes


def test_an_optional_check_s_unknown_counts_where_its_family_is_required() -> None:
    check = saying("net.x", OPEN, required=False)
    assert made(check, require=("net",)).verdict.exit_code == 3
    assert made(check, require=("net",)).undecided_nodes == ("n1",)
    assert made(check, strict=True).verdict.exit_code == 3


def test_what_is_required_is_what_could_have_been_measured() -> None:
    """Why a fact is missing decides, not what is said about it."""

    def verdict(why: Why, **options: Any) -> tuple[str, str]:
        store = store_of(3, host={"n2": Missing(why, "busy: by somebody")})
        told = made(saying("net.x", scope="node"), store=store, **options).verdict
        return told.state, told.headline

    every: dict[str, Any] = {"strict": True}
    assert verdict(Why.NOT_APPLICABLE, **every)[0] == "ready"
    assert verdict(Why.NOT_EXAMINED)[0] == verdict(Why.NOT_COLLECTED)[0] == "ready"
    assert verdict(Why.NOT_COLLECTED, **every)[0] == "undecided"
    wanted = "required but not tested: net.x; not tested: the network on 1 of 3 nodes (busy)"
    assert verdict(Why.NOT_EXAMINED, **every) == ("undecided", f"no problem proven, {wanted}")


def test_what_was_left_out_is_a_gap_only_where_it_is_required() -> None:
    quick = replace(RUN, profile="quick")
    assert not made(run=quick).verdict.gaps
    (gap,) = made(run=quick, require=("bw",)).verdict.gaps
    assert (gap.reason, gap.nodes) == ("left out by profile quick", ("n1", "n2", "n3"))
    assert made(run=quick, strict=True).verdict.state == "ready", "what nobody asked for is no gap"
    (gap,) = made(run=replace(quick, skipped=("bw.*",)), require=("bw",)).verdict.gaps
    assert gap.reason == "left out by --skip"
    assert not made(run=replace(quick, selected=("ssh.*",)), require=("bw",)).verdict.gaps


BEYOND_QUICK = tuple(
    saying(check, profile=profile, required=required)
    for check, profile, required in (
        ("time.skew", "launch", True), ("net.ports", "launch", True), ("net.loss", "launch", False),
        ("rdma.errors", "launch", False), ("bw.tcp", "full", False), ("gpu.work", "full", False),
        ("site.dust", "full", False),
    )
)  # fmt: skip
WITHOUT_GPU = GpuFacts(nvml="no_library")


@pytest.mark.parametrize(
    ("profile", "ran", "nodes", "words"),
    [
        (
            "quick",
            0,
            3,
            "quick: ports, clocks, packet loss, link errors, rates, speed of GPUs and 1 more not tested",
        ),
        ("quick", 0, 1, "quick: link errors, speed of GPUs, site.dust not tested"),
        ("launch", 4, 3, "launch: rates, speed of GPUs, site.dust not tested"),
        ("full", 7, 3, ""),
    ],
)
def test_what_the_profile_leaves_out_stands_behind_the_verdict(
    profile: str, ran: int, nodes: int, words: str
) -> None:
    run = replace(RUN, profile=profile)
    report = made(*BEYOND_QUICK[:ran], nodes=nodes, run=run, of_profile_full=BEYOND_QUICK)
    assert report.verdict.state == "ready"
    passing, _, scope = report.verdict.headline.partition("; ")
    assert (int(passing.partition(" ")[0]), scope) == (ran + 1, words)
    assert verdict_in_scope(report) == (f"READY ({words})" if words else "READY")
    left_out = words.partition(": ")[2].replace("not tested", f"(not in profile {profile})")
    assert " ".join(f"{'not tested' if words else ''} {left_out}".split()) in " ".join(render(report).split())
    for name in ("nagios", "markdown", "html"):
        assert " ".join(words.split()) in " ".join(shown_as(report, name).split()), name
    by_what = {one["what"]: one["checks"] for one in json.loads(dumps(report))["verdict"]["not_tested"]}
    assert by_what.get("rates") == (["bw.tcp"] if nodes > 1 and profile != "full" else None)
    assert ('netdoctor_not_tested{profile="quick",what="ports"} 1' in shown_as(report, "prom")) == (
        profile == "quick" and nodes > 1
    )
    # A verdict that is no is about what was found.
    bad = made(
        *BEYOND_QUICK[:ran],
        saying("net.x", fail("n1", "x")),
        nodes=nodes,
        run=run,
        of_profile_full=BEYOND_QUICK,
    )
    assert "not tested" not in bad.verdict.headline + verdict_in_scope(bad)
    assert bad.verdict.not_tested == report.verdict.not_tested


@pytest.mark.parametrize(
    ("require", "state", "missed"),
    [
        (("net",), "undecided", {"net.ports"}), (("time", "net"), "undecided", {"net.ports", "time.skew"}),
        (("host",), "ready", set()), (("rdma",), "undecided", set()), ((), "ready", set()),
    ],
)  # fmt: skip
def test_what_is_required_of_a_family_is_more_than_its_quick_checks(
    require: tuple[str, ...], state: str, missed: set[str]
) -> None:
    """net.interface, which is quick, is no answer to --require net; nor is what --skip leaves."""
    checks = saying("net.interface"), saying("host.shm"), saying("time.sync")
    quick = made(*checks, run=replace(RUN, profile="quick"), of_profile_full=BEYOND_QUICK, require=require)
    skipping = replace(RUN, skipped=("net.ports", "time.skew", "rdma.*"))
    skipped = made(*checks, run=skipping, of_profile_full=BEYOND_QUICK, require=require)
    for report, by in ((quick, "profile quick"), (skipped, "--skip")):
        verdict = report.verdict
        assert (verdict.state, verdict.exit_code) == (state, 3 if state == "undecided" else 0)
        assert {check for gap in verdict.gaps for check in gap.checks} == missed
        assert {gap.reason for gap in verdict.gaps} <= {f"left out by {by}"}
    alone = made(
        *checks, nodes=1, run=replace(RUN, profile="quick"), of_profile_full=BEYOND_QUICK, require=require
    )
    assert alone.verdict.state == ("undecided" if require == ("rdma",) else "ready"), "ports take two nodes"


@pytest.mark.parametrize(
    ("other", "absent"),
    [
        (WITHOUT_GPU, True),
        (replace(WITHOUT_GPU, nvml="mismatch"), False),
        (replace(WITHOUT_GPU, pci=(build_hw.pci(0),)), False),
        (replace(WITHOUT_GPU, blocked=("/dev/nvidia0",)), False),
        (AcceleratorFacts(kfd=("gfx942",)), False),
        (AcceleratorFacts(others={"Gaudi": 8}), False),
        (Missing(Why.TIMED_OUT, "no answer"), False),
    ],
)
def test_that_no_node_has_a_gpu_is_said(other: Any, absent: bool) -> None:
    """Only where every node says so, of any make."""
    names = healthy.names(3)
    gpus, others = dict.fromkeys(names, WITHOUT_GPU), dict.fromkeys(names, AcceleratorFacts())
    where: dict[str, Any] = others if isinstance(other, AcceleratorFacts) else gpus
    where["n2"] = other
    report = made(saying("gpu.visible", skip("none")), store=store_of(3, gpu=gpus, accelerators=others))
    assert report.verdict.headline.endswith("; no GPU on any node") == absent
    assert (report.verdict.absent == ("GPU",)) == absent
    assert ('netdoctor_absent{what="GPU"} 1' in shown_as(report, "prom")) == absent
    assert not made(saying("net.x"), store=store_of(3, gpu=gpus, accelerators=others)).verdict.absent


@pytest.mark.parametrize(
    ("count", "words"), [(4, "none of 4 nodes can be logged in to"), (1, "cannot be logged in to")]
)
def test_nobody_can_be_logged_in_to(count: int, words: str) -> None:
    store = store_of(count)
    for i in range(1, count + 1):
        store.put("session", f"n{i}", healthy.session(i, outcome="refused"))
    report = made(saying("net.x"), saying("net.y"), nodes=count, store=store)
    assert words in report.verdict.headline
    assert len(report.causes) == 1
    assert report.causes[0].held == 2 * count
    assert report.verdict.exit_code == 1


def test_an_unknown_login_is_undecided() -> None:
    store = store_of(2)
    store.put("session", "n2", healthy.session(2, outcome="control"))
    report = made(saying("net.x"), nodes=2, store=store)
    assert report.verdict.exit_code == 3
    assert report.matrix.cells == (".?", ".b")
    assert report.undecided_nodes == ("n2",)


def test_one_result_for_each_bad_cell_and_pair() -> None:
    firewall = hint("firewall", "n3", title="{nodes} drop{s} connections")
    pairs = [fail(pair(a, "n3"), "TCP 29500: filtered", cause=firewall) for a in ("n1", "n2")]
    report = made(saying("net.x", *pairs), saying("net.y", after=["net.x"]))
    assert [(r.check, r.target, r.status, r.cause) for r in report.results] == [
        ("net.x", "n1->n3", "fail", 1),
        ("net.x", "n2->n3", "fail", 1),
        ("net.x", "n3", "fail", 1),
        ("net.y", "n3", "blocked", 1),
    ]
    assert report.results[2].summary == "n3 drops connections"


def test_several_findings_about_one_node_are_one_result() -> None:
    report = made(saying("net.x", warn("n1", "a"), fail("n1", "b"), fail("n1", "c"), fail("n1", "b")))
    [result] = report.results
    assert (result.status, result.summary) == ("fail", "b (and 2 more)")


def test_a_cluster_s_fail_is_not_lost_behind_another_node_s_skip() -> None:
    def host_x(host: HostFacts) -> Iterator[Finding]:
        """Fine."""
        yield skip("none here") if host.hostname == "n1" else fail(CLUSTER, "bad")

    report = made(make(host_x), nodes=2)
    assert report.matrix.cells[1] == "-X"
    assert {(r.target, r.status) for r in report.results} >= {(CLUSTER, "fail"), ("n1", "skip")}


@pytest.mark.parametrize(
    ("template", "culprits", "title"),
    [
        ("{nodes} drop{s} it", ["n1"], "n1 drops it"),
        ("{nodes} drop{s} it", ["n1", "n2", "n3"], "n[1-3] drop it"),
        (
            "{nodes} {is} {was} {has} {does} {its} pass{es}",
            ["n1", "n2"],
            "n[1-2] are were have do their pass",
        ),
        ("on {nodes}", ["n1->n2"], "on n1 -> n2"),
        ("on {nodes}", ["n1->n3", "n2->n3"], "on n[1-2] -> n3"),
        ("on {nodes}", ["n1->n2", "n1->n3"], "on n1 -> n[2-3]"),
        ("{nodes}", [CLUSTER], "the cluster"),
        ("{nodes}", [CONTROL], "the control host"),
        (
            "{{x}} {y} {nodes.__class__} {s:>999999999} {",
            ["n1"],
            "{x} {y} {nodes.__class__} {s:>999999999} {",
        ),
    ],
)
def test_titles(template: str, culprits: list[str], title: str) -> None:
    cause = hint("k", *culprits, title=template)
    assert made(saying("net.x", fail("n1", "x", cause=cause))).causes[0].title == title


def test_titles_stay_short_with_many_nodes() -> None:
    odd = healthy.names(200)[::3]
    report = made(saying("net.x", *(fail(n, "x", cause=hint("k", n)) for n in odd)), nodes=200)
    assert len(report.causes[0].title) < 100
    assert len(report.causes[0].node_list) == len(odd)


def test_what_was_seen_is_folded_and_has_no_line_twice() -> None:
    evidence = (Evidence(kind="file", where="n1", what="/etc/x", output="bad line\nmore"),)
    names = healthy.names(100)
    said = [fail(n, "64 MiB", evidence=evidence if n == "n1" else ()) for n in names]
    [cause] = made(saying("host.x", *said), nodes=100).causes
    assert cause.seen[0] == "n[1-100]: 64 MiB"
    assert "n1, /etc/x: bad line" in cause.seen
    assert len(set(cause.seen)) == len(cause.seen)


def test_evidence_that_is_part_of_other_evidence_is_not_said_again() -> None:
    lines = ("127.0.1.1 n1", "127.0.1.1 n1; 10.0.0.2 n2")
    evidence = tuple(Evidence(kind="file", where="n1", what="/etc/hosts", output=line) for line in lines)
    [cause] = made(saying("net.x", fail("n1", "bad", evidence=evidence))).causes
    assert [line for line in cause.seen if "hosts" in line] == [f"n1, /etc/hosts: {lines[1]}"]


@pytest.mark.parametrize(
    ("target", "summary", "seen"),
    [
        ("n1", "64 MiB", "n1: 64 MiB"),
        ("n1", "n1 has 64 MiB", "n1 has 64 MiB"),
        ("n1", "n11 has more", "n1: n11 has more"),
        (pair("n1", "n2"), "n2 drops what n1 sends", "n2 drops what n1 sends"),
        (CLUSTER, "two releases", "two releases"),
        (CONTROL, "no room on /", "no room on /"),
    ],
)
def test_what_was_seen_names_its_node_once(target: str, summary: str, seen: str) -> None:
    assert made(saying("net.x", fail(target, summary))).causes[0].seen == (seen,)


def test_a_bound_that_is_a_constant_says_where_it_comes_from() -> None:
    source = "https://docs.example/bound"
    for origin, own, see in (
        (CONSTANT, None, source),
        (CONSTANT, "https://docs.example/cause", "https://docs.example/cause"),
        (PEERS, None, None),
    ):
        cause = replace(hint("k", "n1"), see=own)
        small = fail("n1", "64 MiB", expected="128 MiB", expected_from=origin, cause=cause)
        assert made(saying("net.x", small, source=source)).causes[0].see == see


def test_what_was_seen_is_cut_and_says_so() -> None:
    said = [fail(n, f"{n} has {i} MiB") for i, n in enumerate(healthy.names(100))]
    [cause] = made(saying("host.x", *said), nodes=100).causes
    assert len(cause.seen) <= 8
    assert any("more; -v shows all results" in line for line in cause.seen)
    # One more takes no more room than the words that there is one.
    [cause] = made(saying("host.x", *said[:7]), nodes=7).causes
    assert cause.seen == tuple(one.summary for one in said[:7])


def parses(line: str) -> bool:
    return subprocess.run(["sh", "-n", "-c", line], check=False, capture_output=True).returncode == 0


SHELLS = [
    "systemctl restart sshd",
    "firewall-cmd --permanent --add-port=1-65535/tcp && firewall-cmd --reload",
    "cd /tmp && rm -f x",
    "ulimit -l unlimited",
    "echo 'a && b' > /etc/x",
    "printf 'it is %s\\n' \"$HOME\" | tee /etc/x",
    "printf 'a && b'",
    "if true; then echo yes; fi",
    "sed -i 's/^#Port 22/Port 44222/' /etc/ssh/sshd_config",
    "rm /dev/shm/nccl-*",
    "! grep -q x /etc/x && echo 'it'\"'\"'s gone'",
]


def fixing(shell: str, run_on: list[str], *, root: bool, nodes: int = 5, **remote: Any) -> list[str]:
    fix = Fix(text="x", commands=tuple(Command(run_on=n, shell=shell) for n in run_on), root=root)
    store = store_of(nodes)
    for i in range(1, nodes + 1):
        store.put("session", f"n{i}", healthy.session(i, user="ml", **remote.pop("session", {})))
    bad = [fail(n, "x", cause=hint("k", n, fixes=(fix,))) for n in healthy.names(nodes)]
    report = made(saying("net.x", *bad), nodes=nodes, store=store, remote=Remote(**remote))
    return [command.shell for command in report.causes[0].fixes[0].commands]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("run_on", [["n1"], ["n1", "n2", "n3", "n4"], [CONTROL], ["job"]], ids=str)
@pytest.mark.parametrize("root", [False, True])
def test_every_command_is_one_that_a_shell_accepts(shell: str, run_on: list[str], root: bool) -> None:
    for line in fixing(shell, run_on, root=root):
        assert parses(line), line


@pytest.mark.parametrize("shell", SHELLS)
def test_what_runs_on_the_node_is_what_the_fix_says(shell: str) -> None:
    """`sudo` and `ssh` taken away, the node's shell gets the fix's own words."""
    [line] = fixing(shell, ["n1"], root=True)
    words = shlex.split(line)
    assert words[:3] == ["ssh", "-t", "n1"]  # sudo may ask, and asks on a terminal only
    inner = words[3]
    assert parses(inner)
    if inner.startswith("sudo sh -c "):
        assert shlex.split(inner)[3] == shell
    else:
        assert inner.replace("sudo ", "") == shell
        assert all(part.startswith("sudo ") for part in inner.split(" && "))


def test_shell_built_ins_go_through_a_shell() -> None:
    assert fixing("ulimit -l unlimited", ["n1"], root=True) == [
        "ssh -t n1 'sudo sh -c '\"'\"'ulimit -l unlimited'\"'\"''"
    ] or ("sudo sh -c" in fixing("ulimit -l unlimited", ["n1"], root=True)[0])


def test_above_three_nodes_it_is_one_loop_also_with_ports_and_users() -> None:
    nodes = ["n1", "n2", "n3", "n4"]
    assert len(fixing("true", nodes[:3], root=False)) == 3
    [plain] = fixing("true", nodes, root=False)
    assert plain == 'for n in n1 n2 n3 n4; do ssh "$n" true; done'
    where = {n: ("-p", "44222", f"ml@{n}") for n in nodes}
    [line] = fixing("true", nodes, root=False, destination=where, ssh=("ssh", "-F", "my config"))
    assert line == "for n in ml@n1 ml@n2 ml@n3 ml@n4; do ssh -F 'my config' -p 44222 \"$n\" true; done"
    assert parses(line)


def test_a_destination_cannot_become_an_option() -> None:
    [line] = fixing("true", ["n1"], root=False, destination={"n1": ("-oProxyCommand=x",)})
    assert shlex.split(line) == ["ssh", "--", "-oProxyCommand=x", "true"]


def test_on_this_machine_no_ssh() -> None:
    assert fixing("true", ["n1"], root=False, session={"transport": "local"}) == ["true"]


@pytest.mark.parametrize("run_on", [CONTROL, "job"])
def test_who_logs_in_from_here_does_so_as_the_scan_did(run_on: str) -> None:
    where: dict[str, Any] = {"destination": {"n1": ("-p", "44222", "ml@n1")}, "ssh": ("ssh", "-F", "x")}
    for shell, told in (
        ("ssh n1 hostname", "ssh -F x -p 44222 ml@n1 hostname"),
        ("ssh stranger hostname", "ssh stranger hostname"),
        ("ping n1 -c 3", "ping n1 -c 3"),
    ):
        assert fixing(shell, [run_on], root=False, **where) == [told]


@pytest.mark.parametrize("root_here", [False, True])
def test_who_is_root_here_needs_no_sudo_here(root_here: bool) -> None:
    fix = Fix(
        text="x", commands=tuple(Command(run_on=n, shell="mount -a") for n in (CONTROL, "n1")), root=True
    )
    check = saying("net.x", fail("n1", "x", cause=hint("k", "n1", fixes=(fix,))))
    store = store_of(3)
    store.put("session", "n1", healthy.session(1, user="ml"))
    [told] = made(check, store=store, root_here=root_here).causes[0].fixes
    here, there = ("mount -a" if root_here else "sudo mount -a"), "ssh -t n1 'sudo mount -a'"
    assert [command.shell for command in told.commands] == [here, there]


@pytest.mark.parametrize("count", [1, 3, 40])
def test_verify_names_checks_and_nodes_that_our_own_parser_takes(count: int) -> None:
    from netdoctor.cli import build_parser

    culprits = healthy.names(50)[:count]
    said = [fail(n, "x", cause=hint("k", n, verify=("net.*",))) for n in culprits]
    verify = made(saying("net.x", *said), nodes=50).causes[0].verify
    assert verify is not None
    assert parses(verify.shell)
    assert shlex.split(verify.shell) == list(verify.argv)
    args: argparse.Namespace = build_parser("scan").parse_args(list(verify.argv[1:]))
    assert args.only == ["net.*"]
    inventory = load_hosts(["n[1-50]"])
    assert list(restrict(inventory, args.node)) == culprits


@pytest.mark.parametrize(
    ("say", "fail_on", "asked"),
    [
        (fail, "fail", []),
        (warn, "fail", ["--fail-on", "warn"]),
        (warn, "never", ["--fail-on", "warn"]),
        (fail, "never", ["--fail-on", "fail"]),
    ],
)
def test_a_verify_is_not_green_while_nothing_is_healed(
    say: Callable[..., Finding], fail_on: str, asked: list[str]
) -> None:
    found = saying("host.x", say("n1", "low", cause=hint("k", "n1")))
    verify = made(found, fail_on=fail_on).causes[0].verify
    assert verify is not None
    assert list(verify.argv[-2:]) == (asked or ["--node", "n1"])


def test_a_part_s_verify_names_the_part_s_node() -> None:
    """Also where no other node was contacted, and it would ask all of them."""
    alone = saying("net.x", fail("n1", "bad", cause=hint("k", "n1")))
    for narrowed, more in ((part(nodes=1), ("--node", "n1")), (None, ())):
        verify = made(alone, nodes=1, part=narrowed).causes[0].verify
        assert verify is not None
        assert verify.argv == ("netdoctor", "scan", "--last", "--only", "net.x", *more)


def test_verify_names_every_check_that_saw_it() -> None:
    slow = [
        saying(name, fail("n1", "slow", cause=hint("k", "n1", verify=(name,)))) for name in ("bw.a", "bw.b")
    ]
    verify = made(*slow).causes[0].verify
    assert verify is not None
    assert verify.argv[-6:] == ("--only", "bw.a", "--only", "bw.b", "--node", "n1")


@pytest.mark.parametrize("names", [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"], ["a.b.c", "x-1"]])
def test_verify_names_nodes_however_they_are_called(names: list[str]) -> None:
    store = Store()
    for i, name in enumerate([*names, "other"], start=1):
        store.put("node", name, healthy.node(i, id=name, host=name))
        store.put("session", name, healthy.session(i))
        store.put("host", name, healthy.host(i))
    check = saying("net.x", *(fail(n, "x", cause=hint("k", n)) for n in names))
    outcome = Outcome(store=store, judgement=judge([login(), check], [*names, "other"], store))
    verify = build(outcome, Context(run=RUN)).causes[0].verify
    assert verify is not None
    expr = verify.argv[verify.argv.index("--node") + 1]
    assert list(restrict(load_hosts([*names, "other"]), expr)) == names


def test_verify_of_what_could_not_be_looked_at_looks_at_all() -> None:
    store = store_of(3)
    store.put("host", "n2", Missing(Why.LOST, "gone"))
    verify = made(saying("net.x"), store=store).causes[0].verify
    assert verify is not None
    assert verify.argv == ("netdoctor", "scan", "--last", "--node", "n2")


def test_why_comes_from_the_manual() -> None:
    def net_x(nodes: Mapping[str, HostFacts]) -> Iterator[Finding]:
        """All is well.

        Looks at:
            This.

        Matters because:
            A ring is as slow
            as its slowest link.

        Fix:
            That.
        """
        yield fail("n1", "bad")

    assert made(make(net_x)).causes[0].why == "A ring is as slow as its slowest link."


def _report(
    checks: tuple[Check, ...], sessions: list[str], hosts: list[Why | None], **context: Any
) -> Report:
    judgement = random_judgement(checks, sessions, hosts)
    return build(Outcome(store=store_of(4), judgement=judgement), Context(run=RUN, **context))


@pytest.mark.thorough
@settings(deadline=None)
@given(CHECKS, SESSIONS, HOSTS, st.booleans(), st.sampled_from(["fail", "warn", "never"]))
def test_any_report_agrees_with_itself(
    checks: tuple[Check, ...], sessions: list[str], hosts: list[Why | None], strict: bool, fail_on: str
) -> None:
    judgement = random_judgement(checks, sessions, hosts)
    report = _report(checks, sessions, hosts, strict=strict, fail_on=fail_on)
    letters = Counter("".join(report.matrix.cells))
    counts = report.verdict.counts
    told = {"pass": counts.pass_, "warn": counts.warn, "fail": counts.fail, "blocked": counts.blocked}
    told |= {"skip": counts.skip, "unknown": counts.unknown}
    assert told == {status.value: letters[letter] for letter, status in BY_LETTER.items()}
    assert sum(told.values()) == 4 * 5
    _verdict_follows(report, judgement if strict else None, fail_on)
    _results_follow(report)
    assert [c.id for c in report.causes] == list(range(1, len(report.causes) + 1))
    nodes = [*report.healthy_nodes, *report.unhealthy_nodes, *report.undecided_nodes]
    assert sorted(nodes) == sorted(report.matrix.nodes)
    assert loads(dumps(report, facts=True)).verdict == report.verdict
    assert render(report)


def _verdict_follows(report: Report, strict: Judgement | None, fail_on: str) -> None:
    required = {c.id for c in report.checks if c.required}
    rows = dict(zip(report.matrix.checks, report.matrix.cells, strict=True))
    open_question = any("?" in row for check, row in rows.items() if check in required)
    fails = any(c.status == "fail" for c in report.causes)
    assert not any("X" in row for row in rows.values()) or fails
    if strict is not None:
        open_question |= any("?" in row for row in rows.values())
        open_question |= any(
            strict.cells[check][node] is Status.SKIP for check in strict.gaps for node in strict.gaps[check]
        )
    assert report.verdict.state == ("not_ready" if fails else "undecided" if open_question else "ready")
    warns = fail_on == "warn" and any(c.status == "warn" for c in report.causes)
    usual = 1 if fails else 3 if open_question else 4 if warns else 0
    assert report.verdict.exit_code == (0 if fail_on == "never" else usual)


def _results_follow(report: Report) -> None:
    by_target = {(r.check, r.target): r for r in report.results}
    assert len(by_target) == len(report.results)
    known = {c.id for c in report.causes}
    for check, row in zip(report.matrix.checks, report.matrix.cells, strict=True):
        for node, letter in zip(report.matrix.nodes, row, strict=True):
            if letter != ".":
                assert by_target[check, node].status == BY_LETTER[letter].value
            if letter in "X!?b":
                assert by_target[check, node].cause in known
    assert {r.cause for r in report.results} - {None} <= known


@pytest.mark.thorough
@settings(deadline=None)
@given(CHECKS, SESSIONS, HOSTS)
def test_same_input_same_report(
    checks: tuple[Check, ...], sessions: list[str], hosts: list[Why | None]
) -> None:
    def stable(report: Report) -> tuple[tuple[Cause, ...], Any]:
        return report.causes, [replace(r, duration_ms=None) for r in report.results]

    assert stable(_report(checks, sessions, hosts)) == stable(_report(checks, sessions, hosts))


def test_confidence_is_told() -> None:
    doubtful = hint("k", "n1", confidence=Confidence.SUSPECTED, settle_by="look there")
    [cause] = made(saying("net.x", fail("n1", "x", cause=doubtful))).causes
    assert (cause.confidence, cause.settle_by) == ("suspected", "look there")


def test_a_crash_is_a_note_and_a_cause_on_the_control_host() -> None:
    def net_x(nodes: Mapping[str, HostFacts]) -> Iterator[Finding]:
        """Fine."""
        raise ValueError("x")
        yield

    report = made(make(net_x))
    assert report.verdict.exit_code == 3
    assert report.causes[0].nodes == "the control host"
    assert [n.text for n in report.notes] == ["check net.x crashed on n1, n2, n3"]
