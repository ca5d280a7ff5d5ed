"""JUnit, Markdown, GitHub, Prometheus: what they say, and that all renderings agree on counts."""

import dataclasses
import json
import re
import shlex
from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdoctor.report import summary
from netdoctor.report.foreign import disowned
from netdoctor.report.formats.drain import kubectl, slurm
from netdoctor.report.formats.github import render as github
from netdoctor.report.formats.html import render as html
from netdoctor.report.formats.json_ import dumps, loads
from netdoctor.report.formats.jsonl import render as jsonl
from netdoctor.report.formats.junit import render as junit
from netdoctor.report.formats.markdown import render as markdown
from netdoctor.report.formats.nagios import render as nagios
from netdoctor.report.formats.prom import render as prom
from netdoctor.report.formats.sarif import render as sarif
from netdoctor.report.formats.text import render as text
from netdoctor.report.model import (
    Against,
    Counts,
    Gap,
    Healed,
    Matrix,
    MeasureRecord,
    Note,
    Report,
    Suppressed,
    Verdict,
)
from tests.report import strict
from tests.report.build import STATUS, sample_report

LETTERS = ".!Xb-?"
STATES = ("ready", "not_ready", "undecided")
VERDICT_CASE = ("netdoctor", "verdict")


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """Reports with any matrix, and counts and verdict that follow from it."""
    nodes = draw(st.integers(1, 6))
    checks = draw(st.integers(1, 5))
    row = st.text(alphabet=LETTERS, min_size=nodes, max_size=nodes)
    cells = tuple(draw(st.lists(row, min_size=checks, max_size=checks)))
    letters = Counter("".join(cells))
    named = {STATUS[letter]: letters[letter] for letter in LETTERS}
    counts = Counts(pass_=named.pop("pass"), **named)
    state = "not_ready" if counts.fail else "undecided" if counts.unknown else "ready"
    code = {"not_ready": 1, "undecided": 3, "ready": 0}[state]
    base = sample_report("ready", nodes=nodes)
    return dataclasses.replace(
        base,
        verdict=Verdict(state=state, exit_code=code, fail_on="fail", counts=counts),
        matrix=Matrix(checks=base.matrix.checks[:checks], nodes=base.matrix.nodes, cells=cells),
        healthy_nodes=(),
        results=(),
    )


@given(reports())
@settings(max_examples=60, deadline=None)
def test_all_renderings_agree(report: Report) -> None:
    counts = {status: summary.count(report.verdict.counts, status) for status in summary.STATUSES}
    state, code = report.verdict.state, report.verdict.exit_code
    word = {"ready": "READY", "not_ready": "NOT READY", "undecided": "UNDECIDED"}[state]

    shown = text(report)
    for status, n in counts.items():
        assert n == 0 or re.search(rf"\b{n} {status}\b", text(report, verbosity=1))
    assert re.search(rf"^{word}, exit {code}, ", shown, re.MULTILINE)
    assert shown in github(report).replace("::group::netdoctor report\n", "")

    data = json.loads(dumps(report))
    assert data["verdict"]["counts"] == counts
    assert (data["verdict"]["state"], data["verdict"]["exit_code"]) == (state, code)
    assert loads(dumps(report)) == report
    assert json.loads(jsonl(report).splitlines()[-1])["verdict"]["counts"] == counts

    cases = strict.junit(junit(report, by="node"))
    assert cases.pop(VERDICT_CASE) == "pass"
    inapplicable = sum(name == "does not apply" for _, name in cases)
    assert (inapplicable > 0) == (counts["skip"] > 0)
    outcomes = Counter(cases.values())
    assert outcomes.total() == sum(counts.values()) - counts["skip"] + inapplicable
    assert outcomes["failure"] == counts["fail"]
    assert outcomes["error"] == counts["unknown"]
    assert outcomes["skipped"] == inapplicable + counts["blocked"]
    folded = strict.junit(junit(report, by="check"))
    assert ({"failure", "error"} & set(folded.values()) == set()) == (state == "ready")
    told = {p.get("name"): p.get("value") for p in ET.fromstring(junit(report)).iter("property")}
    assert {status: int(told[status] or -1) for status in counts} == counts
    assert (told["verdict"], told["exit_code"]) == (word, str(code))

    run = strict.sarif(sarif(report))
    assert run["invocations"][0]["exitCode"] == code
    assert run["invocations"][0]["executionSuccessful"] == (state != "undecided")
    found, _ = strict.nagios(nagios(report))
    good = "WARNING" if counts["warn"] else "OK"
    assert found == {"ready": good, "not_ready": "CRITICAL", "undecided": "UNKNOWN"}[state]

    metrics = strict.prometheus(prom(report))
    assert metrics["netdoctor_results"] == {(("status", status),): n for status, n in counts.items()}
    assert metrics["netdoctor_ready"] == {(): int(state == "ready")}
    assert metrics["netdoctor_exit_code"] == {(): code}
    assert set(metrics["netdoctor_gaps"].values()) == {0}

    closing = f"{word}, exit {code}, "
    assert closing in (drawn := html(report))
    assert all(f"{n} {status}" in drawn for status, n in counts.items())

    drawn = markdown(report)
    assert all(f"{n} {status}" in drawn for status, n in counts.items())
    assert f"{word}, exit {code}, " in drawn


def test_junit_names_family_node_and_check() -> None:
    root = ET.fromstring(junit(sample_report("not_ready")))
    assert [suite.get("name") for suite in root] == [
        "ssh",
        "time",
        "net",
        "nccl",
        "sw",
        "gpu",
        "bw",
        "verdict",
    ]
    failed = [case for case in root.iter("testcase") if case.find("failure") is not None]
    assert ("gpu-a03", "net.ports: net.ports is as expected.") in {
        (case.get("classname"), case.get("name")) for case in failed
    }
    skipped = {e.get("message") for e in root.iter("skipped")}
    assert "blocked by [1] gpu-a03 drops connections that come from the other nodes" in skipped
    assert "gpu.part7 on gpu-a01: the node has no MIG device" in skipped


def test_junit_tells_a_cause_with_its_fix_in_its_first_failure() -> None:
    shown = junit(sample_report("not_ready"))
    bodies = [failure.text or "" for failure in ET.fromstring(shown).iter("failure")]
    assert sum("ssh gpu-a03 'sudo firewall-cmd" in body for body in bodies) == 1
    assert sum("export NCCL_SOCKET_IFNAME=" in body for body in bodies) == 1
    assert Counter(strict.junit(shown).values()) == {"pass": 142, "skipped": 17, "failure": 2}
    assert shown.count("chronyc makestep") == 1, "a warning passes, and says so"


@pytest.mark.parametrize("nodes", [4, 65])
def test_junit_names_stay_from_run_to_run(nodes: int) -> None:
    """What is measured stands in the text; cases are the same in every state of the cluster."""
    names = {state: set(strict.junit(junit(sample_report(state, nodes=nodes)))) for state in STATES}
    assert names["ready"] == names["not_ready"] == names["undecided"]


def test_junit_is_green_for_ready_alone() -> None:
    """Trouble without a cell of its own, and a requirement that nobody looked at, are no green either."""
    ready = sample_report("ready")
    assert {"failure", "error"}.isdisjoint(strict.junit(junit(ready)).values())
    missed = dataclasses.replace(ready.verdict, state="undecided", exit_code=3, headline="required: sw")
    cases = strict.junit(junit(dataclasses.replace(ready, verdict=missed)))
    assert [key for key, outcome in cases.items() if outcome == "error"] == [VERDICT_CASE]
    part = dataclasses.replace(ready, verdict=dataclasses.replace(ready.verdict, state="partial_pass"))
    assert strict.junit(junit(part))[VERDICT_CASE] == "skipped"
    here = dataclasses.replace(sample_report("not_ready").causes[0], node_list=(), nodes="this machine")
    verdict = dataclasses.replace(ready.verdict, state="not_ready", exit_code=1)
    cases = strict.junit(junit(dataclasses.replace(ready, verdict=verdict, causes=(here,))))
    assert [key for key, outcome in cases.items() if outcome == "failure"] == [
        ("netdoctor", "net.ports: firewall-inbound sha256:1111")
    ]


def test_junit_warnings_fail_under_fail_on_warn() -> None:
    report = sample_report("not_ready")
    report = dataclasses.replace(report, verdict=dataclasses.replace(report.verdict, fail_on="warn"))
    types = Counter(e.get("type") for e in ET.fromstring(junit(report)).iter("failure"))
    assert types["warn"] == 1


def test_junit_folds_large_clusters() -> None:
    shown = junit(sample_report("not_ready", nodes=65))
    cases = strict.junit(shown)
    # gpu.part7 does not apply on one node, and is a case of the others.
    assert len(cases) == 40 + 1 + 1
    assert cases["gpu", "does not apply"] == "skipped"
    assert cases["net", "net.ports: net.ports is as expected."] == "failure"
    assert "fail: gpu-a03" in shown
    assert len(strict.junit(junit(sample_report("ready", nodes=64)))) == 64 * 40 + 1


@pytest.mark.parametrize(("fail_on", "outcome"), [("fail", "skipped"), ("warn", "failure")])
def test_junit_folds_a_warning_beside_a_blocked_node(fail_on: str, outcome: str) -> None:
    report = sample_report("ready")
    report = dataclasses.replace(
        report,
        verdict=dataclasses.replace(report.verdict, fail_on=fail_on),
        matrix=Matrix(checks=("time.skew",), nodes=report.matrix.nodes, cells=("!b..",)),
    )
    assert strict.junit(junit(report, by="check"))["time", "time.skew: time.skew is as expected."] == outcome


@pytest.mark.parametrize("by", ["node", "check"])
def test_junit_tells_of_a_family_once_what_does_not_apply(by: str) -> None:
    """Which checks and why; where only if that is not everywhere."""
    report = sample_report("ready", nodes=4)
    checks, cells = report.matrix.checks, list(report.matrix.cells)
    cells[checks.index("gpu.part5")] = cells[checks.index("gpu.part6")] = "----"
    report = dataclasses.replace(report, matrix=dataclasses.replace(report.matrix, cells=tuple(cells)))
    root = ET.fromstring(junit(report, by=by))
    assert [e.get("message") for e in root.iter("skipped")] == [
        "gpu.part5, gpu.part6; gpu.part7 on gpu-a01: the node has no MIG device"
    ]
    parts = {f"gpu.part{n}" for n in (5, 6)}
    assert not [c for c in root.iter("testcase") if (c.get("name") or "").partition(":")[0] in parts]


@pytest.mark.parametrize("nodes", [4, 65])
def test_junit_has_the_time_of_the_run_once(nodes: int) -> None:
    """A step measures for many checks: no case has a time of its own, and none is without a number."""
    root = ET.fromstring(junit(sample_report("not_ready", nodes=nodes)))
    times = {(c.get("classname"), c.get("name")): c.attrib["time"] for c in root.iter("testcase")}
    assert times.pop(VERDICT_CASE) == "11.800"
    assert times
    assert set(times.values()) == {"0.000"}
    suites = {suite.get("name"): suite.attrib["time"] for suite in root}
    assert suites.pop("verdict") == root.get("time") == "11.800"
    assert set(suites.values()) == {"0.000"}


def test_markdown_fences_are_longer_than_what_they_hold() -> None:
    report = sample_report("not_ready")
    verify = report.causes[0].verify
    assert verify is not None
    cause = dataclasses.replace(
        report.causes[0], verify=dataclasses.replace(verify, shell="echo '`````' '```'")
    )
    assert "``````sh\necho '`````' '```'\n``````\n" in markdown(dataclasses.replace(report, causes=(cause,)))


def test_markdown_has_verdict_causes_and_table() -> None:
    shown = markdown(sample_report("not_ready"))
    assert shown.startswith("## NOT READY\n\n2 problems stop the launch, 1 will cause trouble\n")
    assert "### \\[1\\] FAIL gpu-a03 drops connections" in shown
    assert "```sh\nnetdoctor scan --last --only net.ports --node gpu-a03\n```" in shown
    assert "| blocked | bandwidth | 3 | by \\[1\\] |" in shown


TROUBLE: dict[str, Any] = {"key": "k", "status": "fail", "title": "was slow", "checks": ("net.mtu",)}
ACCEPTED = Suppressed(
    **TROUBLE, fingerprint="f", nodes="n", node_list=("n",), reason="r", until=None, place="netdoctor.toml:1"
)


@pytest.mark.parametrize(
    "more",
    [
        {"notes": (Note(level="info", text="the end"),)},
        {"baseline": Against(name="b", runs=1, finished="", healed=(Healed(**TROUBLE),))},
        {"suppressed": (ACCEPTED,)},
        {},
    ],
    ids=lambda more: next(iter(more), "nothing"),
)
def test_markdown_ends_with_the_verdict_in_a_paragraph_of_its_own(more: dict[str, Any]) -> None:
    *_, remarks, verdict = markdown(dataclasses.replace(sample_report(), **more)).split("\n\n")
    assert verdict == "NOT READY, exit 1, 11.8 s\n"
    assert remarks.startswith("- ") == bool(more)


@pytest.mark.parametrize(
    ("see", "shown"),
    [
        ("https://docs.kernel.org/a_b/c.html#d", "<https://docs.kernel.org/a_b/c.html#d>"),
        ("https://docs.kernel.org/> ![x](https://h/x)", "https:&#8203;//docs.kernel.org/&gt; !"),
    ],
)
def test_markdown_keeps_addresses_of_the_catalogue_whole(see: str, shown: str) -> None:
    report = sample_report("not_ready")
    report = dataclasses.replace(report, causes=(dataclasses.replace(report.causes[0], see=see),))
    assert f"\n- see: {shown}" in markdown(report).replace("\\!", "!")
    assert "see: https:&#8203;//" in markdown(disowned(report, "uid 12"))


@pytest.mark.parametrize(("status", "word"), [("unknown", "try"), ("fail", "settle")])
def test_markdown_says_what_to_try_or_what_would_settle_a_cause(status: str, word: str) -> None:
    report = sample_report("not_ready")
    cause = dataclasses.replace(report.causes[0], status=status, settle_by="log in by hand")
    assert f"\n- {word}: log in by hand\n" in markdown(dataclasses.replace(report, causes=(cause,)))


def test_github_annotates_the_line_of_the_first_node() -> None:
    lines = github(sample_report("not_ready")).splitlines()
    assert any(
        line.startswith("::error file=hosts.txt,line=3,title=[1] FAIL net.ports::gpu-a03 drops connections")
        for line in lines
    )
    assert sum(line.startswith("::warning ") for line in lines) == 1


def test_github_annotations_bring_the_fix() -> None:
    lines = github(sample_report("not_ready")).splitlines()
    error = next(line for line in lines if line.startswith("::error"))
    assert "%0Assh gpu-a03 'sudo firewall-cmd --permanent" in error
    assert error.endswith("%0Anetdoctor scan --last --only net.ports --node gpu-a03")
    report = sample_report("not_ready")
    heals = report.causes[0].fixes[0]
    looks = dataclasses.replace(heals, kind="look", text="see what it is")
    for fixes, said in (((looks, heals), "%0Afix: "), ((looks,), "%0Ainspect: ")):
        cause = dataclasses.replace(report.causes[0], fixes=fixes)
        assert said in github(dataclasses.replace(report, causes=(cause,)))


def test_prometheus_counts_the_nodes_with_a_gap_by_family() -> None:
    report = sample_report("ready")
    gaps = [Gap(family="bw", what="x", reason=why, nodes=report.matrix.nodes[:2]) for why in ("a", "b")]
    report = dataclasses.replace(report, verdict=dataclasses.replace(report.verdict, gaps=tuple(gaps)))
    found = strict.prometheus(prom(report))["netdoctor_gaps"]
    assert (found[("family", "bw"),], found[("family", "net"),]) == (2, 0)


def test_github_shows_ten_of_a_level() -> None:
    report = sample_report("not_ready")
    causes = tuple(dataclasses.replace(report.causes[0], id=n) for n in range(1, 30))
    lines = github(dataclasses.replace(report, causes=causes)).splitlines()
    assert sum(line.startswith("::error ") for line in lines) == 10


def test_github_escapes_its_own_syntax() -> None:
    report = sample_report("not_ready")
    cause = dataclasses.replace(report.causes[0], title="100% lost, a:b", checks=("a,b:c%",))
    line = next(
        line
        for line in github(dataclasses.replace(report, causes=(cause,))).splitlines()
        if line.startswith("::error")
    )
    assert "title=[1] FAIL a%2Cb%3Ac%25::100%25 lost, a:b%0A" in line


def test_github_without_a_hosts_file_has_no_place() -> None:
    report = sample_report("not_ready")
    report = dataclasses.replace(report, run=dataclasses.replace(report.run, hosts_source={}))
    assert "::error title=" in github(report)


@pytest.mark.parametrize(
    ("name", "unit", "value", "series"),
    [
        ("time.skew", "ms", 2410.0, 'netdoctor_clock_skew_seconds{node="gpu-a04"} 2.41'),
        ("bw.tcp", "Gbit/s", 9.5, 'netdoctor_bw_tcp_bits_per_second{node="gpu-a04"} 9500000000'),
        ("bw.pair", "GB/s", 46.1, 'netdoctor_bw_pair_bytes_per_second{node="gpu-a04"} 46100000000'),
        ("ready", "", 1.0, 'netdoctor_measure_ready{node="gpu-a04"} 1'),
    ],
)
def test_prometheus_uses_base_units(name: str, unit: str, value: float, series: str) -> None:
    report = dataclasses.replace(
        sample_report("not_ready"),
        measures=(MeasureRecord(name=name, target="gpu-a04", value=value, unit=unit),),
    )
    assert f"{series}\n" in prom(report)


def test_sarif_points_at_lines_of_the_hosts_file() -> None:
    run = strict.sarif(sarif(sample_report("not_ready")))
    first, _, third = run["results"]
    assert (first["ruleId"], first["level"], third["level"]) == ("net.ports", "error", "warning")
    place = first["locations"][0]
    assert place["logicalLocations"] == [{"name": "gpu-a03", "kind": "resource"}]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "hosts.txt"}, "region": {"startLine": 3},
    }  # fmt: skip
    assert first["partialFingerprints"] == {"netdoctorCause/v1": "sha256:1111"}
    assert "\nfix: on gpu-a03, root" in first["message"]["text"]
    assert "\nssh gpu-a03 'sudo firewall-cmd" in first["message"]["text"]
    assert len(run["tool"]["driver"]["rules"]) == 40
    report = sample_report("not_ready")
    elsewhere = dataclasses.replace(report.run, hosts_source={"path": "/etc/h [x](y) %.txt"})
    named = strict.sarif(sarif(dataclasses.replace(report, run=elsewhere)))
    uri = named["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "file:///etc/h%20%5Bx%5D%28y%29%20%25.txt"
    nowhere = dataclasses.replace(report.run, hosts_source={"path": "-"})
    bare = strict.sarif(sarif(dataclasses.replace(report, run=nowhere)))
    assert "physicalLocation" not in bare["results"][0]["locations"][0]
    for line in (-3, 0, None):
        damaged = tuple(dataclasses.replace(one, line=line) for one in report.targets)
        of_no_line = strict.sarif(sarif(dataclasses.replace(report, targets=damaged)))
        assert "physicalLocation" not in of_no_line["results"][0]["locations"][0]


def test_sarif_without_results_says_why_it_is_not_clean() -> None:
    report = sample_report("ready")
    verdict = dataclasses.replace(report.verdict, state="undecided", exit_code=3, headline="required: sw")
    (said,) = strict.sarif(sarif(dataclasses.replace(report, verdict=verdict)))["invocations"]
    assert not said["executionSuccessful"]
    assert said["toolExecutionNotifications"][0]["level"] == "error"
    assert "UNDECIDED: required: sw" in said["toolExecutionNotifications"][0]["message"]["text"]


def test_nagios_has_figures_and_causes() -> None:
    report = sample_report("not_ready")
    state, figures = strict.nagios(nagios(report))
    assert state == "CRITICAL"
    assert figures["fail"] == "2;;;0"
    assert figures["nodes_ready"] == "2;;;0;4"
    assert figures["skew_max"] == "0.000800s;;;0"
    assert "[1] FAIL net.ports gpu-a03 drops connections" in nagios(report)
    cut = sample_report("ready", interrupted=True)
    assert strict.nagios(nagios(cut))[0] == "UNKNOWN"
    part = dataclasses.replace(report, causes=(), verdict=sample_report("ready").verdict)
    part = dataclasses.replace(part, verdict=dataclasses.replace(part.verdict, state="partial_pass"))
    assert strict.nagios(nagios(part))[0] == "OK"


def test_nodes_that_need_hands_are_taken_out_and_no_others() -> None:
    report = sample_report("not_ready")
    assert (
        slurm(report) == "# 0 of 4 nodes to be taken out; 2 not usable, but can be fixed in place: "
        "netdoctor report show\n"
    )
    first, second, *rest = report.causes
    title = "GPUs of gpu-a01 'fell' \"off\" the bus; $(reboot)"
    heavy = dataclasses.replace(
        first, key="gpu-xid", title=title, action="replace", node_list=("gpu-a01", "-w", "a;b")
    )
    light = dataclasses.replace(
        second, action="reboot", node_list=("gpu-a01", "gpu-a02"), confidence="likely"
    )
    report = dataclasses.replace(report, causes=(heavy, light, *rest), healthy_nodes=())
    head, *lines = slurm(report).splitlines()
    assert head.startswith("# 2 of 4 nodes to be taken out")
    (_, _, *one), (_, _, *two) = map(shlex.split, lines)
    assert one == [
        "NodeName=gpu-a01",
        "State=DRAIN",
        "Reason=netdoctor gpu-xid (replace): GPUs of gpu-a01 fell off the bus; $(reboot)",
    ]
    assert two[0] == "NodeName=gpu-a02"
    # A warning leaves a node usable: -o hosts has it, and nobody is to be told two things.
    usable = dataclasses.replace(report, healthy_nodes=("gpu-a01", "gpu-a02"), unhealthy_nodes=("gpu-a03",))
    assert (
        slurm(usable)
        == kubectl(usable)
        == (
            "# 0 of 4 nodes to be taken out; 1 not usable, but can be fixed in place, 2 usable, but in need "
            "of manual work: netdoctor report show\n"
        )
    )
    assert kubectl(report).splitlines()[1] == (
        "kubectl cordon gpu-a01 && kubectl label node gpu-a01 --overwrite netdoctor/replace=gpu-xid"
    )
    doubted = dataclasses.replace(heavy, confidence="suspected")
    assert len(slurm(dataclasses.replace(report, causes=(doubted,))).splitlines()) == 1
    for run in ({"foreign": "uid 1000"}, {"redacted": True}):
        shown = dataclasses.replace(report, run=dataclasses.replace(report.run, **run))  # type: ignore[arg-type]
        assert (
            slurm(shown)
            == kubectl(shown)
            == "# no commands from a report that is redacted, or somebody else's\n"
        )


def test_prometheus_has_series_for_every_node() -> None:
    metrics = strict.prometheus(prom(sample_report("not_ready")))
    ready = {dict(labels)["node"]: value for labels, value in metrics["netdoctor_node_ready"].items()}
    assert ready == {"gpu-a01": 1, "gpu-a02": 1, "gpu-a03": 0, "gpu-a04": 0}
    assert metrics["netdoctor_node_results"][("node", "gpu-a03"), ("status", "fail")] == 1
    assert set(metrics["netdoctor_cause_node"]) == {
        (("key", "clock-skew"), ("node", "gpu-a02"), ("status", "warn")),
        (("key", "firewall-inbound"), ("node", "gpu-a03"), ("status", "fail")),
        (("key", "ifname-missing"), ("node", "gpu-a04"), ("status", "fail")),
    }
    large = strict.prometheus(prom(sample_report("not_ready", nodes=1000)))
    assert sum(len(values) for values in large.values()) < 1_000 * 6 + 200


def test_prometheus_lists_cells_only_when_asked() -> None:
    report = sample_report("not_ready")
    assert "netdoctor_cell" not in prom(report)
    assert prom(report, detail=True).count("netdoctor_cell{") == 20
