"""The trial of a job in a report: saved and read back, redacted, and what diff says of two of them."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from netdoctor import cli
from netdoctor.report import changes, history
from netdoctor.report.diff import diff
from netdoctor.report.formats.html import render as html
from netdoctor.report.formats.text import render as text
from netdoctor.report.formats.trial import ladder_lines
from netdoctor.report.model import Report, TrialCause, TrialLadder, TrialRecord, TrialRung
from netdoctor.report.redact import redact
from netdoctor.report.save import load, save
from netdoctor.tui.pages import causes
from netdoctor.tui.state import Known, opened
from tests.hostile import HOSTILE, each_of
from tests.report.build import sample_report
from tests.report.test_html import Reader

STARTED = TrialRecord(
    state="started",
    headline="all 16 ranks joined, first step after 15.1 s, 8.63 steps/s",
    finished="2026-01-02T14:06:00.250Z",
    seconds=120.0,
    command=("torchrun", "train.py"),
    ended_by="time",
    nodes=4,
    world_size=16,
    joined=16,
    first_step_s=15.1,
    steps=900,
    steps_per_s=8.63,
    over=("TCP over the 4 nodes' planned addresses, such as 10.20.0.1",),
    ladder=TrialLadder(
        rungs=tuple(
            TrialRung(nodes=n, ranks=4 * n, state="started", steps_per_s=rate)
            for n, rate in ((1, 8.91), (2, 8.72), (4, 8.63))
        )
    ),
    logs=".netdoctor/try/20260102-140400",
)
FAILED = dataclasses.replace(
    STARTED,
    state="failed",
    headline="gpu-a03: its process was killed by SIGKILL",
    nodes_at_fault=("gpu-a03",),
    steps_per_s=None,
    causes=(TrialCause(title="the kernel ran out of memory on gpu-a03", confidence="certain"),),
    ladder=None,
)


def tried(trial: TrialRecord | None, finished: str = "", state: str = "ready") -> Report:
    report = sample_report(state)
    run = dataclasses.replace(report.run, id="0123456789abcdef", finished="2026-01-02T14:02:11.000Z")
    if trial is not None and finished:
        trial = dataclasses.replace(trial, finished=finished)
    return dataclasses.replace(report, run=run, trial=trial)


def slower(rate: float, from_nodes: int | None = None) -> TrialRecord:
    assert STARTED.ladder is not None
    *rungs, last = STARTED.ladder.rungs
    headline = "gpu-a04 is slow together with gpu-a01" if from_nodes else ""
    ladder = TrialLadder(
        rungs=(*rungs, dataclasses.replace(last, steps_per_s=rate)), from_nodes=from_nodes, headline=headline
    )
    return dataclasses.replace(STARTED, steps_per_s=rate, ladder=ladder)


def rows(before: TrialRecord | None, now: TrialRecord | None) -> tuple[bool, str]:
    """(whether it is worse, the lines about trials)."""
    old, new = tried(before), tried(now)
    found = diff(old, new)
    text = changes.text(found, old, new, names=("old", "new"), width=200)
    return found.is_worse, "\n".join(text.splitlines()[3:-2])


def test_a_report_keeps_it(tmp_path: Path) -> None:
    report = save(tried(STARTED), tmp_path / "report.json")
    assert load(tmp_path / "report.json").trial == report.trial == STARTED
    assert json.loads((tmp_path / "report.json").read_text())["trial"]["ladder"]["rungs"][2] == {
        "nodes": 4, "ranks": 16, "state": "started", "steps_per_s": 8.63,
    }  # fmt: skip


def test_its_names_are_redacted() -> None:
    trial = dataclasses.replace(
        FAILED,
        command=("python", "/home/ann/train.py"),
        ladder=dataclasses.replace(slower(4.0, 4).ladder or TrialLadder(), nodes_at_fault=("gpu-a04",)),
    )
    shown = str(redact(tried(trial)).trial)
    assert "node003" in shown
    assert not [name for name in ("gpu-a", "10.20", "ann/") if name in shown]


@pytest.mark.parametrize(
    ("before", "now", "worse", "texts"),
    [
        pytest.param(STARTED, STARTED, False, ["nothing changed"], id="the same"),
        pytest.param(STARTED, slower(8.0), False, ["nothing changed"], id="as fast, within the noise"),
        pytest.param(STARTED, None, False, ["nothing changed"], id="not tried again"),
        pytest.param(None, STARTED, False, ["OTHER", "not tried -> STARTED"], id="tried for the first time"),
        pytest.param(
            STARTED,
            FAILED,
            True,
            [
                "WORSE    trial     STARTED -> FAILED   gpu-a03: its process was killed by SIGKILL",
                "trial     the kernel ran out of memory on gpu-a03 (certain)",
                "trial     8.63 -> none steps/s",
            ],
            id="failed",
        ),
        pytest.param(
            FAILED, STARTED, False, ["BETTER   trial     FAILED -> STARTED", "none -> 8.63"], id="back"
        ),
        pytest.param(STARTED, slower(6.0), False, ["MOVED", "8.63 -> 6 steps/s  -30%"], id="a third slower"),
        pytest.param(
            STARTED,
            slower(4.0),
            True,
            ["WORSE", "8.63 -> 4 steps/s  -54%", "by nodes   1: 8.91 -> 8.91, 2: 8.72 -> 8.72, 4: 8.63 -> 4"],
            id="half as fast",
        ),
        pytest.param(
            STARTED,
            slower(7.5, 4),
            True,
            ["WORSE", "gpu-a04 is slow together with gpu-a01"],
            id="a ladder that breaks",
        ),
        pytest.param(
            STARTED,
            dataclasses.replace(slower(7.5, 2), world_size=8),
            True,
            ["WORSE", "gpu-a04 is slow together with gpu-a01"],
            id="a ladder that breaks on fewer nodes, so that the last rung has fewer ranks",
        ),
        pytest.param(
            dataclasses.replace(slower(7.5, 2), world_size=8), STARTED, False, ["BETTER"], id="it holds again"
        ),
        pytest.param(slower(4.0, 4), STARTED, False, ["BETTER", "4 -> 8.63 steps/s  +116%"], id="faster"),
        pytest.param(
            STARTED,
            dataclasses.replace(FAILED, command=("python", "other.py")),
            False,
            ["OTHER", "(another command, or other nodes)"],
            id="another job",
        ),
        pytest.param(
            STARTED,
            dataclasses.replace(STARTED, state="undecided", headline="no step was seen", steps_per_s=None),
            False,
            ["MOVED    trial     STARTED -> UNDECIDED   no step was seen"],
            id="what is not decided proves nothing",
        ),
    ],
)  # fmt: skip
def test_diff(before: TrialRecord | None, now: TrialRecord | None, worse: bool, texts: list[str]) -> None:
    found, shown = rows(before, now)
    assert found == worse, shown
    for one in texts:
        assert one in shown


def test_diff_as_json() -> None:
    old, new = tried(STARTED), tried(FAILED)
    data = json.loads(changes.as_json(diff(old, new), old, new, names=("old", "new")))
    assert (data["trial"]["before"]["state"], data["trial"]["now"]["state"]) == ("started", "failed")
    assert (data["trial"]["trend"], data["worse"]) == ("worse", True)
    assert json.loads(changes.as_json(diff(old, old), old, old, names=("a", "b")))["trial"] is None


def test_history_has_each_trial_once_and_not_the_scan_that_it_began_from(tmp_path: Path) -> None:
    last = tmp_path / ".netdoctor" / "last.json"
    save(tried(None), last)
    save(tried(STARTED), last)
    save(tried(FAILED, "2026-01-02T14:20:00.000Z"), last)
    kept = [load(one.path).trial for one in history.reports(last)]
    assert [one.state if one else None for one in kept] == ["failed", "started"]
    assert history.before(load(last), last) == history.reports(last)[1].path


def test_diff_compares_with_the_trial_before_also_behind_a_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    last = Path(".netdoctor", "last.json")
    save(tried(STARTED), last)
    between = tried(None)
    run = dataclasses.replace(between.run, id="f" * 16, finished="2026-01-02T14:10:00.000Z")
    save(dataclasses.replace(between, run=run), last)
    save(tried(FAILED, "2026-01-02T14:20:00.000Z"), last)
    assert len([name for name in os.listdir(".netdoctor/history") if name.endswith(".json")]) == 3
    assert cli.run(["diff", "--width", "120"]) == 1
    assert "STARTED -> FAILED" in capfd.readouterr().out


def test_the_ladder_as_bars() -> None:
    ladder = slower(4.02, 4).ladder
    assert ladder is not None
    assert ladder_lines(ladder, 80) == [
        "nodes  ranks   steps/s  of one  of below",
        f"    1      4      8.91    100%            {38 * '#'}",
        f"    2      8      8.72     98%       98%  {37 * '#'}",
        f"    4     16      4.02     45%       46%  {17 * '#'}",
    ]
    assert [len(line) for line in ladder_lines(ladder, 60)] == [40, 60, 60, 50]
    assert max(map(len, ladder_lines(ladder, 45))) <= 45


def test_a_ladder_of_a_stranger_is_bounded() -> None:
    rungs = [TrialRung(nodes=n, ranks=n, state="x" * 99, steps_per_s=-1e308 * (n % 2)) for n in range(9999)]
    lines = ladder_lines(TrialLadder(rungs=tuple(rungs)), 80)
    assert len(lines) < 40
    assert max(map(len, lines)) <= 80
    first = (
        TrialRung(nodes=1, ranks=1, state="failed"),
        TrialRung(nodes=2, ranks=2, state="started", steps_per_s=3.0),
    )
    assert ladder_lines(TrialLadder(rungs=first), 80)[1:] == [
        "    1      1    failed",
        f"    2      2         3                    {38 * '#'}",
    ]


@pytest.mark.parametrize("width", [100, 80, 60, 40])
def test_in_the_text_report(width: int) -> None:
    shown = text(tried(dataclasses.replace(slower(4.02, 4), state="failed")), width=width)
    assert "FAILED      all 16 ranks joined" in shown
    flat = " ".join(shown.split())
    assert "job torchrun train.py (2026-01-02 14:06 UTC, 4 nodes)" in flat
    assert "ladder gpu-a04 is slow together with gpu-a01" in flat
    assert "45% 46%" in flat
    assert max(map(len, shown.splitlines())) <= max(width, 80)


def test_in_the_page() -> None:
    page = Reader(html(tried(slower(4.02, 4))))
    assert [one for one in page.of("span") if one.startswith("STARTED all 16 ranks joined")]
    assert "gpu-a04 is slow together with gpu-a01" in page.of("dd")
    assert "badge w" in [one.get("class") for one in page.attributes("span")]  # though the last rung started
    bars = [one for one in page.attributes("rect") if one.get("class", "").startswith("rate")]
    assert [(one["width"], one["class"]) for one in bars] == [
        ("240.0", "rate"), ("234.9", "rate"), ("108.3", "rate f"),
    ]  # fmt: skip
    assert {"98%", "45%", "46%"} <= set(page.of("td"))
    assert "The job, tried" not in html(tried(None))


@pytest.mark.parametrize(("width", "small"), [(98, False), (78, False), (58, True)])
@pytest.mark.parametrize("state", ["ready", "not_ready"])
def test_on_the_first_screen(width: int, small: bool, state: str) -> None:
    report = tried(slower(4.02, 4), state=state)
    lines = [one.text for one in causes(opened(report), Known(report), width, 0.0, small=small)]
    assert any(one.startswith("  STARTED     all 16 ranks joined") for one in lines)
    assert any("45%" in one and "####" in one for one in lines)
    assert not [one for one in lines if len(one) > width and "ssh" not in one and "netdoctor" not in one]


@each_of(HOSTILE)
def test_hostile_text_is_inert(attack: str) -> None:
    report = tried(dataclasses.replace(FAILED, headline=HOSTILE[attack], found=(HOSTILE[attack],)))
    lines = [one.text for one in causes(opened(report), Known(report), 78, 0.0)]
    lines += changes.trial_lines(diff(tried(STARTED), report).trial)
    assert not [c for one in lines for c in one if ord(c) < 32 or 127 <= ord(c) < 160]
    Reader(html(report))
