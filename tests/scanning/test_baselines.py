"""Named baselines: kept, shown, and held against scans; `netdoctor diff` and its exit code."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netdoctor import cli
from netdoctor.errors import InputError
from netdoctor.model import Finding, fail, warn
from netdoctor.report import baselines, summary
from netdoctor.report.formats.text import render
from netdoctor.report.model import Report
from netdoctor.report.save import load, save
from netdoctor.scanning import ScanRequest, judge_saved, kept_request
from tests.core.fake import hint, saying
from tests.scanning.ground import Ground

OLD = fail("n1", "n1 is old trouble", cause=hint("old", "n1"))
NEW = warn("n2", "n2 is new trouble", cause=hint("new", "n2"))


def scan(ground: Ground, *said: Finding, save_it: bool = True, **asked: Any) -> Report:
    ground.checks[1] = saying("net.one", *said)
    report = ground.scan(ScanRequest(hosts=("n[1-3]",), **asked))
    return save(report) if save_it else report


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.run(words)
    out, err = capsys.readouterr()
    return code, out, err


def test_causes_are_new_known_or_healed(ground: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    scan(ground, OLD)
    code, out, _ = command(capsys, "baseline", "save", "good")
    assert (code, "good: 1 run, the newest" in out, "1 cause known" in out) == (0, True, True)
    scan(ground)
    command(capsys, "baseline", "save", "good")
    against = baselines.resolve(Path("good"))
    assert against == baselines.FOLDER / "good"

    report = scan(ground, OLD, NEW, baseline=against)
    assert [(c.key, c.baseline) for c in report.causes] == [("old", "known"), ("new", "new")]
    assert (report.verdict.state, report.verdict.exit_code) == (
        "not_ready",
        1,
    )  # what is known stops a job, too
    assert report.baseline is not None
    assert (report.baseline.name, report.baseline.runs) == ("good", 2)
    shown = render(report)
    assert "    since     known: in the baseline good, 2 runs\n" in shown
    assert "    since     new: not in the baseline good, 2 runs\n" in shown
    again = judge_saved(load(), {"baseline": against}, Path("x"))
    assert [c.baseline for c in again.causes] == ["known", "new"]

    scan(ground, NEW)
    command(capsys, "baseline", "save", "bad")
    healed = scan(ground, baseline=baselines.resolve(Path("bad")))
    assert summary.healed(healed) == ["WARN net.one n2 is bad"]
    assert "\nfixed     WARN net.one n2 is bad\n" in render(healed)
    assert kept_request(load(), {}).baseline == baselines.resolve(Path("bad")).absolute()


def test_a_name_that_nobody_has_contacts_nobody(ground: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="no baseline is called 'good', and no file; there is none yet"):
        baselines.resolve(Path("good"))
    scan(ground)
    command(capsys, "baseline", "save", "good")
    for said in (
        ["diff", "god", ".netdoctor/last.json"],
        ["baseline", "rm", "god"],
        ["baseline", "show", "god"],
    ):
        code, _, err = command(capsys, *said)
        assert (code, "did you mean good?" in err) == (2, True)
    code, _, err = command(capsys, "baseline", "save", "../elsewhere")
    assert (code, "is not a name for a baseline" in err) == (2, True)
    assert command(capsys, "scan", "n1", "--baseline", "god")[0] == 2


def test_a_baseline_keeps_a_bounded_number_of_runs(
    ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    report = scan(ground, OLD)
    for second in range(baselines.RUNS_MAX + 2):
        run = {"finished": f"2026-01-01T00:00:{second:02}.000Z", "id": f"{second:032x}"}
        baselines.save("good", with_run(report, **run))
    (one,) = baselines.all_baselines()
    assert (one.name, len(one.files)) == ("good", baselines.RUNS_MAX)
    assert load(one.files[0]).run.finished == "2026-01-01T00:00:21.000Z"
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in one.files)
    assert not load(one.files[0]).facts
    code, out, _ = command(capsys, "baseline", "list")
    assert (code, out.split()[:3]) == (0, ["good", "20", "runs"])
    code, out, _ = command(capsys, "baseline", "show", "good")
    assert (code, out.count("run    "), "known  FAIL net.one n1 is bad" in out) == (0, 20, True)
    assert command(capsys, "baseline", "rm", "good")[:2] == (0, "good: 20 runs removed\n")
    assert baselines.all_baselines() == []


def with_run(report: Report, **fields: Any) -> Report:
    return replace(report, run=replace(report.run, **fields))


def test_diff_ends_with_1_for_worse(ground: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    scan(ground, OLD)
    code, _, err = command(capsys, "diff")
    assert (code, "nothing is older than" in err) == (2, True)
    scan(ground)
    code, out, _ = command(capsys, "diff")  # the last one against the one before it
    assert (code, out.splitlines()[-1]) == (0, "not worse, exit 0")
    assert "BETTER   [fixed]   FAIL    net.one          n1 is bad" in out
    scan(ground, NEW)
    code, out, _ = command(capsys, "diff", "-o", "json")
    assert (code, [c["key"] for c in json.loads(out)["causes"]["new"]]) == (1, ["new"])
    command(capsys, "baseline", "save", "good")
    code, out, _ = command(capsys, "diff", "good", ".netdoctor/last.json")
    assert (code, "nothing changed" in out) == (0, True)
    assert command(capsys, "diff", "a", "b", "c")[0] == 2
    hidden = with_run(load(), redacted=True)
    save(hidden, Path("hidden.json"))
    code, _, err = command(capsys, "diff", "good", "hidden.json")
    assert (code, "their nodes have other names" in err) == (2, True)
    assert command(capsys, "baseline", "save", "good", "hidden.json")[0] == 2
