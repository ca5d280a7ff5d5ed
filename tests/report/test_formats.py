"""JUnit, Markdown, GitHub, Prometheus: what they say, and that all renderings agree on counts."""

import dataclasses
import json
import re
from collections import Counter
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdoctor.report import words
from netdoctor.report.github import render as github
from netdoctor.report.html import render as html
from netdoctor.report.json_ import dumps, loads
from netdoctor.report.jsonl import render as jsonl
from netdoctor.report.junit import render as junit
from netdoctor.report.markdown import render as markdown
from netdoctor.report.model import Counts, Matrix, MeasureRecord, Report, Verdict
from netdoctor.report.prom import render as prom
from netdoctor.report.text import render as text
from tests.report.build import STATUS, sample_report

LETTERS = ".!Xb-?"


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
        results=(),
    )


@given(reports())
@settings(max_examples=60, deadline=None)
def test_all_renderings_agree(report: Report) -> None:
    counts = {status: words.count(report.verdict.counts, status) for status in words.STATUSES}
    state, code = report.verdict.state, report.verdict.exit_code
    word = {"ready": "READY", "not_ready": "NOT READY", "undecided": "UNDECIDED"}[state]

    shown = text(report)
    for status, n in counts.items():
        assert n == 0 or re.search(rf"\b{n} {status}\b", shown)
    assert re.search(rf"^{word}, exit {code}, ", shown, re.MULTILINE)
    assert shown in github(report).replace("::group::netdoctor report\n", "")

    data = json.loads(dumps(report))
    assert data["verdict"]["counts"] == counts
    assert (data["verdict"]["state"], data["verdict"]["exit_code"]) == (state, code)
    assert loads(dumps(report)) == report
    assert json.loads(jsonl(report).splitlines()[-1])["verdict"]["counts"] == counts

    root = ET.fromstring(junit(report, by="node"))
    suites = [suite for suite in root if suite.get("name") != "causes"]

    def total(name: str) -> int:
        return sum(int(suite.get(name, "")) for suite in suites)

    assert total("tests") == sum(counts.values())
    assert total("failures") == counts["fail"]
    assert total("errors") == counts["unknown"]
    assert total("skipped") == counts["skip"] + counts["blocked"]
    told = {p.get("name"): p.get("value") for p in root.iter("property")}
    assert {status: int(told[status] or -1) for status in counts} == counts
    assert (told["verdict"], told["exit_code"]) == (word, str(code))

    metrics = prom(report)
    for status, n in counts.items():
        assert f'netdoctor_results{{status="{status}"}} {n}\n' in metrics
    assert f"netdoctor_ready {int(state == 'ready')}\n" in metrics
    assert f"netdoctor_exit_code {code}\n" in metrics

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
        "causes",
    ]
    failed = [case for case in root.iter("testcase") if case.find("failure") is not None]
    assert ("gpu-a03", "net.ports: net.ports is as expected.") in {
        (case.get("classname"), case.get("name")) for case in failed
    }
    skipped = {e.get("message") for e in root.iter("skipped")}
    assert "blocked by [1] gpu-a03 drops connections that come from the other nodes" in skipped
    assert "the node has no MIG device" in skipped


def test_junit_has_a_case_per_cause() -> None:
    (suite,) = [s for s in ET.fromstring(junit(sample_report("not_ready"))) if s.get("name") == "causes"]
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "ssh gpu-a03 'sudo firewall-cmd" in (failure.text or "")
    assert suite.find("testcase/system-out") is not None


def test_junit_warnings_fail_under_fail_on_warn() -> None:
    report = sample_report("not_ready")
    report = dataclasses.replace(report, verdict=dataclasses.replace(report.verdict, fail_on="warn"))
    types = Counter(e.get("type") for e in ET.fromstring(junit(report)).iter("failure"))
    assert types["warn"] == 2


def test_junit_folds_large_clusters() -> None:
    root = ET.fromstring(junit(sample_report("not_ready", nodes=65)))
    cases = [case for suite in root if suite.get("name") != "causes" for case in suite]
    assert len(cases) == 44
    assert {"all 65 nodes", "gpu-a03", "gpu-a65"} <= {case.get("classname") for case in cases}
    assert len(list(ET.fromstring(junit(sample_report("ready", nodes=64))).iter("testcase"))) == 64 * 40


def test_junit_suite_totals_add_up() -> None:
    for suite in ET.fromstring(junit(sample_report("undecided"))):
        assert int(suite.get("tests", "")) == len(suite.findall("testcase"))
        assert int(suite.get("errors", "")) == len(suite.findall("testcase/error"))


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
    assert "| held | bandwidth | 3 | waits for \\[1\\] |" in shown


def test_github_annotates_the_line_of_the_first_node() -> None:
    lines = github(sample_report("not_ready")).splitlines()
    assert any(
        line.startswith("::error file=hosts.txt,line=3,title=[1] FAIL net.ports::gpu-a03 drops connections")
        for line in lines
    )
    assert sum(line.startswith("::warning ") for line in lines) == 1


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


def test_prometheus_lists_cells_only_when_asked() -> None:
    report = sample_report("not_ready")
    assert "netdoctor_cell" not in prom(report)
    assert prom(report, detail=True).count("netdoctor_cell{") == 20
