"""Hostile text in every string of a report, through every renderer, judged by the bytes that come out."""

import dataclasses
import html as escaping
import json
import re
import subprocess
from functools import cache
from xml.etree import ElementTree as ET

import jsonschema_rs
import pytest

from netdoctor.report import changes, commands
from netdoctor.report.diff import diff
from netdoctor.report.formats.github import render as github
from netdoctor.report.formats.html import render as html
from netdoctor.report.formats.json_ import dumps, loads
from netdoctor.report.formats.jsonl import render as jsonl
from netdoctor.report.formats.junit import render as junit
from netdoctor.report.formats.markdown import render as markdown
from netdoctor.report.formats.nagios import render as nagios
from netdoctor.report.formats.prom import render as prom
from netdoctor.report.formats.sarif import render as sarif
from netdoctor.report.formats.short import render as short
from netdoctor.report.formats.text import render as text
from netdoctor.report.model import CommandRecord, Report
from netdoctor.report.schema import report_schema
from tests.hostile import HOSTILE, each_of
from tests.report import strict
from tests.report.build import sample_report
from tests.report.filling import fill, paths, replace_text
from tests.report.test_html import Reader

REPORTS = {"filled": fill, "realistic": replace_text}
# C0 but the newline, DEL, C1, bidirectional controls, line separators.
STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

# The validator's own strings hold none.
SURROGATES = re.compile(rb"\\ud[89a-f][0-9a-f]{2}")
VALIDATOR = jsonschema_rs.Draft202012Validator(report_schema())

hostile = each_of(HOSTILE)
shaped = pytest.mark.parametrize("shape", REPORTS)


@cache
def report_with(shape: str, attack: str) -> Report:
    return REPORTS[shape](HOSTILE[attack])


def assert_inert(output: str | bytes) -> None:
    shown = output.decode() if isinstance(output, bytes) else output
    found = STEERS.search(shown)
    assert found is None, f"{found[0]!a} at {found.start()}: {shown[max(found.start() - 40, 0) :][:80]!a}"
    shown.encode()


def test_the_filling_leaves_no_string_out() -> None:
    marker = "MARKER"
    assert len(paths()) > 80
    flat = json.loads(dumps(fill(marker), "all"))
    assert json.dumps(flat).count(marker) >= len(paths()) - 10


@shaped
@pytest.mark.parametrize("width", [100, 80, 50])
@hostile
def test_text(shape: str, attack: str, width: int) -> None:
    shown = text(report_with(shape, attack), width=width, verbosity=2, all_causes=True)
    assert_inert(shown)
    assert shown.splitlines()[-1].startswith("NOT READY, exit 1, ")
    assert sum(line.startswith(("READY", "UNDECIDED")) for line in shown.splitlines()) == 0


@hostile
def test_text_in_colour_has_only_our_escape_codes(attack: str) -> None:
    shown = text(report_with("filled", attack), color=True, verbosity=2)
    assert_inert(re.sub(r"\x1b\[(?:0|2|1|3[1235];1)m", "", shown))


@shaped
@hostile
def test_short(shape: str, attack: str) -> None:
    report = report_with(shape, attack)
    shown = short(report)
    assert_inert(shown)
    assert len(shown.splitlines()) == len(report.causes)


@shaped
@pytest.mark.parametrize("detail", ["problems", "all"])
@hostile
def test_json_comes_back_as_it_was(shape: str, attack: str, detail: str) -> None:
    report = report_with(shape, attack)
    data = dumps(report, detail, facts=True)
    assert_inert(data)
    if shape == "realistic":
        VALIDATOR.validate(json.loads(SURROGATES.sub(b"?", data)))
    if detail == "problems":
        assert loads(data).causes == report.causes
        assert loads(data).facts == report.facts


@shaped
@hostile
def test_jsonl_has_one_object_per_line(shape: str, attack: str) -> None:
    data = jsonl(report_with(shape, attack))
    assert_inert(data)
    lines = [json.loads(line) for line in data.decode().splitlines()]
    assert (lines[0]["event"], lines[-1]["event"]) == ("start", "end")


@shaped
@pytest.mark.parametrize("by", ["node", "check"])
@hostile
def test_junit_parses(shape: str, attack: str, by: str) -> None:
    shown = junit(report_with(shape, attack), by=by)
    assert_inert(shown)
    root = ET.fromstring(shown)
    assert {element.tag for element in root.iter()} <= {
        "testsuites", "testsuite", "testcase", "failure", "error", "skipped", "system-out", "properties",
        "property",
    }  # fmt: skip


@shaped
@hostile
def test_markdown_does_nothing(shape: str, attack: str) -> None:
    shown = markdown(report_with(shape, attack))
    assert_inert(shown)
    outside = outside_of_fences(shown).replace("&#8203;", "\u200b")
    assert not re.search(r"<(?!/?$)", outside)
    assert not re.search(r"[@#][\w-]", outside.replace("## ", "").replace("### ", ""))
    assert not re.search(r"(?<!\\)[\[\]`*_|](?![|\-: ])", "\n".join(
        line for line in outside.splitlines() if not line.startswith("|")
    ))  # fmt: skip
    assert "://" not in outside
    rows = [line for line in outside.splitlines() if line.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 5 for line in rows)


@hostile
def test_markdown_draws_only_our_own_elements(attack: str) -> None:
    from markdown_it import MarkdownIt

    drawn = MarkdownIt("gfm-like", {"html": True}).enable(["strikethrough", "table"]).render(fill_md(attack))
    allowed = "h2|h3|p|ul|li|pre|code|table|thead|tbody|tr|th|td|br"
    assert re.sub(rf'</?(?:{allowed})(?: (?:class|style)="[a-z:-]*")?>', "", drawn).count("<") == 0


def fill_md(attack: str) -> str:
    return markdown(report_with("filled", attack))


def outside_of_fences(shown: str) -> str:
    """Markdown without its fenced blocks, every block ended by its own fence."""
    kept, fence = [], ""
    for line in shown.splitlines():
        opening = re.match(r"`{3,}", line)
        if fence:
            fence = "" if line == fence else fence
        elif opening:
            fence = opening[0]
        else:
            kept.append(line)
    assert not fence
    return "\n".join(kept)


@shaped
@hostile
def test_html_has_only_our_own_elements(shape: str, attack: str) -> None:
    report = report_with(shape, attack)
    shown = html(report)
    assert_inert(shown)
    page = Reader(shown)  # which knows our elements and attributes, and fails for others
    assert page.of("h1") == ["NOT READY"]
    assert len(page.attributes("article")) == len(report.causes)
    assert sum(tag == "style" for tag, _ in page.tags) == 1


@shaped
@hostile
def test_changes_between_reports(shape: str, attack: str) -> None:
    before, now, names = sample_report("ready"), report_with(shape, attack), (HOSTILE[attack], "b")
    for found, sides in ((diff(before, now), (before, now)), (diff(now, before), (now, before))):
        assert_inert(changes.text(found, *sides, names=names, width=100))
        assert_inert(data := changes.as_json(found, *sides, names=names))
        assert json.loads(data)["schema"] == changes.SCHEMA


@shaped
@hostile
def test_github_commands_are_only_ours(shape: str, attack: str) -> None:
    report = report_with(shape, attack)
    shown = github(report)
    assert_inert(shown)
    lines = [line for line in shown.splitlines() if line.lstrip().startswith("::")]
    assert lines[0] == "::group::netdoctor report"
    assert lines[1] == "::endgroup::"
    assert all(re.match(r"::(error|warning) (file=|title=)", line) for line in lines[2:])
    assert len(lines) == 2 + len(report.causes)
    assert "##[" not in shown


@shaped
@hostile
def test_prometheus_is_read_by_a_strict_reader(shape: str, attack: str) -> None:
    shown = prom(report_with(shape, attack), detail=True)
    assert_inert(shown)
    metrics = strict.prometheus(shown)
    assert metrics["netdoctor_ready"] == {(): 0.0}
    assert all(re.fullmatch("netdoctor_[a-z0-9_]+", name) for name in metrics)


@shaped
@hostile
def test_sarif_is_read_by_a_strict_reader(shape: str, attack: str) -> None:
    shown = sarif(report_with(shape, attack))
    assert_inert(shown)
    run = strict.sarif(shown)
    report = report_with(shape, attack)
    assert len(run["results"]) == len(report.causes) + len(report.suppressed)
    rules, (invocation,) = run["tool"]["driver"]["rules"], run["invocations"]
    told = [item["message"] for item in (*run["results"], *invocation["toolExecutionNotifications"])]
    told += [rule[name] for rule in rules for name in ("shortDescription", "help")]
    assert not any("](" in message["text"] for message in told), "no message holds a link"


@shaped
@hostile
def test_nagios_has_one_line_of_figures(shape: str, attack: str) -> None:
    shown = nagios(report_with(shape, attack))
    assert_inert(shown)
    assert strict.nagios(shown)[0] == "CRITICAL"
    assert len(shown.splitlines()) == 1 + len(report_with(shape, attack).causes)


@hostile
def test_a_command_is_shown_as_it_is_or_visibly_not(attack: str) -> None:
    raw = f"ssh gpu-a03 '{HOSTILE[attack]}'"
    shown = commands.display(raw)
    assert "\n" not in shown
    assert shown.isprintable()
    if shown != raw:
        assert shown.startswith("# ")
        done = subprocess.run(["sh", "-c", shown], capture_output=True, timeout=10, check=False, cwd="/")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("shell", ["printf 'a\\033[31m'", "echo 'größe' && ls", "true  ;  false"])
def test_an_honest_command_is_not_touched(shell: str) -> None:
    report = sample_report("not_ready")
    cause = report.causes[0]
    fix = dataclasses.replace(cause.fixes[0], commands=(CommandRecord(run_on=("control",), shell=shell),))
    report = dataclasses.replace(report, causes=(dataclasses.replace(cause, fixes=(fix,)),))
    assert f"      {shell}\n" in text(report)
    assert f"\n{shell}\n" in markdown(report)
    assert shell in escaping.unescape(junit(report))
