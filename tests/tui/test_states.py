"""Each state of the interface has its text, at 80 columns and in the small form."""

import asyncio
import contextlib
import dataclasses
import itertools
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from netdoctor.compat import UTC
from netdoctor.report.model import Note, Report
from netdoctor.tui.app import NetdoctorApp
from netdoctor.tui.events import Ended, Event, Failed, NodeDone, Phase
from netdoctor.tui.runner import Request
from netdoctor.tui.stage import screen_text
from netdoctor.tui.state import opened
from tests.report.build import sample_report
from tests.tui.harness import (
    NOON,
    FakeRunner,
    Step,
    application,
    began,
    drive,
    failing,
    healing,
    rich_report,
    settle,
    type_text,
    unreachable,
)

SMALL, MEDIUM = (60, 16), (80, 24)
both = pytest.mark.parametrize("size", [SMALL, MEDIUM], ids=["60x16", "80x24"])


def shown(report: Report | None, size: tuple[int, int], *steps: Step, **options: Any) -> str:
    return " ".join(" ".join(drive(application(report, **options), size, *steps)).split())


@both
def test_all_green(size: tuple[int, int]) -> None:
    text = shown(rich_report(state="ready"), size)
    assert "READY" in text
    assert "nothing to fix" in text
    assert "worst skew 0.8 +/- 0.3 ms" in text or size == SMALL


def test_all_green_offers_the_next_step() -> None:
    text = shown(rich_report(state="ready"), MEDIUM)
    assert "2 see the full matrix" in text
    assert "5 compare with another report" in text
    assert application(rich_report(state="ready")).where.view == "causes"


@both
def test_nobody_can_be_logged_in_to_is_one_cause(size: tuple[int, int]) -> None:
    text = shown(unreachable(), size)
    assert text.count("[1]") == 1
    assert "[2]" not in text
    if size == MEDIUM:
        assert "none of 4 nodes can be logged in to" in text
        assert "nothing else can be examined until this works" in text


@both
def test_interrupted(size: tuple[int, int]) -> None:
    text = shown(sample_report("undecided", interrupted=True), size)
    assert "the scan was interrupted" in text
    assert "UNDECIDED" in text


def test_unfinished_cells_are_question_marks() -> None:
    lines = drive(application(sample_report("undecided", interrupted=True)), MEDIUM, "2", "t")
    assert sum("?" in line.split()[-2] for line in lines if line.strip("|> ").startswith("gpu-a")) == 4


@both
def test_an_old_report_says_so(size: tuple[int, int]) -> None:
    text = shown(rich_report(), size, now=lambda: NOON + 3 * 86_400)
    assert "3 days old: Ctrl-R scans again" in text


def test_age_is_in_the_title() -> None:
    assert "3 days old" in drive(application(rich_report(), now=lambda: NOON + 3 * 86_400), (100, 30))[0]


@pytest.mark.parametrize("stamp", ["", "yesterday"])
def test_a_report_without_a_time_has_no_age(stamp: str) -> None:
    report = rich_report()
    odd = dataclasses.replace(report, run=dataclasses.replace(report.run, finished=stamp))
    text = shown(odd, MEDIUM, now=lambda: NOON + 3 * 86_400)
    assert "NOT READY" in text
    assert " old" not in text


def test_a_time_without_a_zone_is_utc() -> None:
    report = rich_report()
    odd = dataclasses.replace(report, run=dataclasses.replace(report.run, finished="2026-01-02T14:02:11"))
    assert "3 days old" in shown(odd, MEDIUM, now=lambda: NOON + 3 * 86_400)


@both
def test_a_crashed_plug_in_is_named(size: tuple[int, int]) -> None:
    report = dataclasses.replace(
        rich_report(), notes=(Note(level="warn", text="check acme.fans crashed on gpu-a01"),)
    )
    assert "check acme.fans crashed on gpu-a01" in shown(report, size)


@both
def test_nothing_for_a_filter(size: tuple[int, int]) -> None:
    text = shown(rich_report(), size, "2", "slash", *type_text("zebra"))
    if size == MEDIUM:
        assert "0 of 4 nodes; Esc clears" in text
    else:
        assert "matrix needs 80 columns" in text or "NOT READY" in text


def test_no_faults_for_the_fault_filter() -> None:
    assert "0 of 4 nodes have trouble" in shown(sample_report("ready"), MEDIUM, "2", "f")


@pytest.mark.parametrize("size", [(34, 6), (59, 16), (60, 15)])
def test_too_small_says_the_verdict_and_the_size(size: tuple[int, int]) -> None:
    text = shown(rich_report(), size)
    assert text.startswith("netdoctor: NOT READY, 3 causes.")
    assert f"Window {size[0]}x{size[1]} is too small" in text
    assert "60x16 needed" in text


def test_growing_the_window_restores_the_view() -> None:
    app = application(rich_report())
    seen: list[str] = []

    async def resize(app: NetdoctorApp, pilot: Any, size: tuple[int, int]) -> None:
        await pilot.resize_terminal(*size)
        await pilot.pause()
        seen.append(app.where.view)

    lines = drive(
        app,
        (100, 30),
        "2",
        lambda a, p: resize(a, p, (30, 8)),
        lambda a, p: resize(a, p, (100, 30)),
        lambda a, p: resize(a, p, (70, 24)),
        lambda a, p: resize(a, p, (100, 30)),
    )
    assert seen == ["matrix", "matrix", "causes", "matrix"]
    assert any("gpu-a03" in line for line in lines)


def test_the_small_form_shows_causes_only() -> None:
    lines = drive(application(rich_report()), (60, 20), "2")
    assert any("[1] FAIL net.ports" in line for line in lines)
    assert not any(line.strip() == "nodes" for line in lines)


def test_bad_input_is_shown_in_place_and_read_again() -> None:
    runner = FakeRunner(failing("hosts.txt could not be used\nline 7: number missing after slots="))
    app = application(runner=runner, begin=Request())
    text = " ".join(" ".join(drive(app, MEDIUM, "R")).split())
    assert "hosts.txt could not be used" in text
    assert "line 7: number missing" in text
    assert "exit would be 2" in text
    assert len(runner.asked) == 2


def test_bad_input_is_opened_in_an_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = FakeRunner(failing("hosts.txt could not be used"))
    runner.place = ("hosts.txt:7", ["touch", str(tmp_path / "edited")])
    app = application(runner=runner, begin=Request())
    monkeypatch.setattr(NetdoctorApp, "suspend", lambda self: contextlib.nullcontext())
    text = " ".join(drive(app, MEDIUM, settle, "enter"))
    assert "enter opens hosts.txt:7 in your editor" in text
    assert (tmp_path / "edited").exists()
    assert len(runner.asked) == 1  # R scans, not the editor's end
    runner.place = None
    text = " ".join(drive(application(runner=runner, begin=Request()), MEDIUM, settle, "enter"))
    assert "no editor: set EDITOR" in text
    assert "enter opens" not in text


def test_bad_input_is_read_as_another_format() -> None:
    runner = FakeRunner(failing("hosts.txt could not be used"))
    app = application(runner=runner, begin=Request())
    text = " ".join(drive(app, MEDIUM, settle, "tab", "d", "e", "e", "p", "enter", settle))
    assert "another format than deepspeed" in text
    assert runner.formats[0] == "deepspeed"
    assert len(runner.asked) == 2
    drive(application(runner=runner, begin=Request()), MEDIUM, settle, "tab", "escape", settle)
    assert len(runner.asked) == 3
    assert drive(application(rich_report()), MEDIUM, "tab") == drive(application(rich_report()), MEDIUM)


def test_a_failed_rerun_leaves_the_report() -> None:
    runner = FakeRunner(failing("hosts are gone"))
    app = application(rich_report(), runner=runner)
    text = " ".join(" ".join(drive(app, MEDIUM, "ctrl+r", settle)).split())
    assert "hosts are gone" in text
    assert "[1]" in text


def test_a_healed_cause_goes_and_the_others_stay() -> None:
    before = rich_report()
    after = dataclasses.replace(sample_report("ready"), causes=before.causes[1:])
    app = application(before, runner=FakeRunner(healing(after)))
    lines = drive(app, (100, 30), "enter", "r", settle)
    assert app.where.view == "causes"
    assert any("fixed: gpu-a03 drops connections" in line for line in lines)


def test_causes_keep_their_numbers_and_the_base_is_the_report_before() -> None:
    before = rich_report()
    moved = tuple(dataclasses.replace(c, id=c.id - 1) for c in before.causes[1:])
    results = tuple(r if not r.cause else dataclasses.replace(r, cause=r.cause - 1) for r in before.results)
    rows = zip(before.matrix.checks, before.matrix.cells, strict=True)
    healed = tuple("...." if check == "net.ports" else cells for check, cells in rows)
    matrix = dataclasses.replace(before.matrix, cells=healed)
    after = dataclasses.replace(before, causes=moved, results=results, matrix=matrix)
    app = application(before, runner=FakeRunner(healing(after)))
    diffs: list[str] = []

    def look(app: NetdoctorApp, pilot: Any) -> None:
        diffs.append("\n".join(screen_text(app)))

    drive(
        app, (100, 30), "5", look, "1", "right_square_bracket", "enter", "ctrl+r", settle, "5", look, "escape"
    )
    assert app.cause is not None
    assert (app.where.view, app.cause.id) == ("cause", 2)
    assert "no earlier report of these nodes" in diffs[0]
    assert "as it was before the last run" in diffs[1]
    assert re.search("fixed +FAIL +gpu-a03 drops", diffs[1])


@pytest.mark.parametrize(
    ("keys", "runner", "names"),
    [
        pytest.param(["slash"], FakeRunner(), ["enter keep", "esc clear"], id="filter"),
        pytest.param(
            [], FakeRunner(failing("no")), ["enter edit", "tab format", "R read again", "q quit"], id="input"
        ),
        pytest.param(
            [], FakeRunner(lambda *_: [began(rich_report())][:0]), ["? keys", "q quit"], id="nothing"
        ),
        pytest.param(["p"], FakeRunner(lambda *_: stream()), ["p go on", "x stop", "q quit"], id="held"),
    ],
)
def test_the_last_line_names_keys_in_every_state(
    keys: list[Step], runner: FakeRunner, names: list[str]
) -> None:
    app = (
        application(runner=runner, begin=Request())
        if not keys or keys == ["p"]
        else application(rich_report())
    )
    last = drive(app, MEDIUM, settle, *keys)[-1]
    assert [name for name in names if name not in last] == []
    assert "r re-run" not in last


def judged_anew(report: Report, check: str, node: str, summary: str) -> Report:
    """The report with another result of one cell, as a re-run brings it: the results are new objects."""
    results = [
        dataclasses.replace(r, summary=summary if (r.check, r.target) == (check, node) else r.summary)
        for r in report.results
    ]
    return dataclasses.replace(report, results=tuple(results))


@pytest.mark.parametrize("keys", [["2", "e"], ["enter", "e"]], ids=["of a cell", "of a cause"])
def test_evidence_after_a_rerun_is_that_of_the_new_report(keys: list[str]) -> None:
    before = rich_report()
    after = judged_anew(before, "net.ports", "gpu-a03", "only port 40211 now")
    app = application(before, runner=FakeRunner(healing(after)))
    lines = drive(app, (100, 30), *keys, "ctrl+r", settle)
    assert app.where.view == "evidence"
    assert any("only port 40211 now" in line for line in lines)
    assert not any("drops connections from its peers" in line for line in lines)


def test_evidence_of_a_cell_that_passes_now_is_no_longer_shown() -> None:
    before = rich_report()
    after = dataclasses.replace(before, results=tuple(r for r in before.results if r.check != "net.ports"))
    app = application(before, runner=FakeRunner(healing(after)))
    lines = drive(app, (100, 30), "2", "e", "ctrl+r", settle)
    assert any("a plain pass leaves none" in line for line in lines)
    assert app.cause is None


@pytest.mark.parametrize("end", [Ended(NOON + 3, rich_report()), Failed(NOON + 3, "hosts are gone")])
def test_the_end_of_a_scan_is_taken_in_though_the_picture_is_held(end: Event) -> None:
    runner = FakeRunner(lambda request, report: [began(rich_report())])
    app = application(runner=runner, begin=Request())

    def ends(app: NetdoctorApp, pilot: Any) -> None:
        assert app.where.paused
        runner.events.extend([(0, 0, "X"), end])

    drive(app, (100, 30), settle, "p", ends, settle, "q")
    assert not app.where.paused
    assert not app.state.scanning
    assert app.state.report is (end.report if isinstance(end, Ended) else None)
    assert app._exit  # without a question: there is no scan to stop


def test_order_and_colour_follow_their_checks_into_a_report_with_other_columns() -> None:
    before = rich_report()
    checks = [c for c in before.matrix.checks if c != "ssh.login"]
    rows = dict(zip(before.matrix.checks, before.matrix.cells, strict=True))
    matrix = dataclasses.replace(
        before.matrix, checks=tuple(checks), cells=tuple(rows[check] for check in checks)
    )
    after = dataclasses.replace(before, matrix=matrix)
    app = application(before, runner=FakeRunner(healing(after)))
    chosen: list[tuple[str | None, str | None, int]] = []

    def look(app: NetdoctorApp, pilot: Any) -> None:
        first = app.matrix.rows.order[0]
        chosen.append((app.where.by, app.where.colour, first))
        assert app.matrix.overview_letter(first) == app.letter("time.skew", "gpu-a02")

    def overview_of_the_skew(app: NetdoctorApp, pilot: Any) -> None:
        app.where = dataclasses.replace(app.where, by="time.skew", colour="time.skew", zoom="overview")
        app.draw()

    drive(app, (100, 30), "2", overview_of_the_skew, look, "ctrl+r", settle, look)
    assert chosen[0] == chosen[1]
    assert app.state.cells.checks == tuple(c for c in opened(before).cells.checks if c != "ssh.login")


def test_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = application(rich_report())
    styles: set[str] = set()

    def collect(app: NetdoctorApp, pilot: Any) -> None:
        from textual.filter import Monochrome

        assert any(isinstance(f, Monochrome) for f in app._filters)

    lines = drive(app, (100, 30), "2", collect)
    assert any(" X" in line for line in lines)  # letters carry the status
    assert not styles


def test_light_background() -> None:
    app = application(rich_report(), light=True)
    drive(app, (100, 30))
    assert app.theme == "textual-light"
    assert not app.current_theme.dark


def test_letters_have_different_looks_on_both_backgrounds() -> None:
    from netdoctor.tui.lines import STYLES
    from netdoctor.tui.looks import LOOKS

    for looks in LOOKS.values():
        used = {letter: str(looks[name]) for letter, name in STYLES.items() if letter != " "}
        assert used["X"] != used["."] != used["!"]
        assert set(STYLES.values()) <= set(looks)


# A scan that goes on

FAMILY_SIZES = [("ssh", 5), ("time", 2), ("net", 9), ("nccl", 6), ("sw", 7), ("gpu", 8), ("bw", 3)]


def stream() -> list[Event]:
    """A recorded scan: 64 nodes, of which one is slow and one refuses."""
    report = rich_report(64)
    events: list[Event] = [began(report), Phase(NOON, "connect", 0, 64)]
    names = report.matrix.nodes
    for n, name in enumerate(names[:62]):
        events += [Phase(NOON + 1 + n / 100, "connect", n + 1, 64), NodeDone(NOON + 1 + n / 100, name)]
        events += [(n, 0, "."), (n, 1, ".")]
    events += [NodeDone(NOON + 2, names[62], "refused"), (62, 0, "X"), Phase(NOON + 9, "connect", 63, 64)]
    return events


def live(extra: list[Event], size: tuple[int, int] = (100, 30), *steps: Step) -> list[str]:
    runner = FakeRunner(lambda request, report: [*stream(), *extra])
    app = application(runner=runner, begin=Request(), now=lambda: NOON + 9)
    return drive(app, size, settle, *steps)


def test_live_scan_shows_phases_slow_nodes_and_trouble() -> None:
    text = "\n".join(live([]))
    assert "SCANNING" in text
    assert "63/64" in text
    assert "left" not in text  # less than a second
    assert "about 00:06 left" in "\n".join(
        live([Phase(NOON + 9, "ports", 0, 4), Phase(NOON + 11, "ports", 1, 4)])
    )
    assert "waiting for gpu-a64 (usual 1.3 s)" in text
    assert "gpu-a63 refused" in text
    assert "x stop" in text


def test_live_scan_golden() -> None:
    from tests.tui.test_screens import FOLDER

    text = "\n".join(live([], (100, 30), "plus")) + "\n"
    text = text.replace("| 00:09", "- 00:09").replace("/ 00:09", "- 00:09").replace("\\ 00:09", "- 00:09")
    path = FOLDER / "live.txt"
    import os

    if os.environ.get("GOLDEN") == "write":
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def test_live_scan_ends_in_the_causes() -> None:
    report = rich_report(64)
    lines = live([Phase(NOON + 10, "judge", 0, 0), Ended(NOON + 11, report)])
    assert "NOT READY" in lines[0]
    assert any("[1] FAIL" in line for line in lines)


def test_live_scan_in_every_size_and_screen() -> None:
    for size in ((60, 20), (80, 24), (160, 50), (30, 5)):
        assert live([], size, "1", "2", "3", "4", "6", "enter", "2", "z", "f", "r", "y", "e", "E", "escape")


def test_the_cursor_never_jumps_while_results_arrive() -> None:
    runner = FakeRunner(lambda request, report: stream())
    app = application(runner=runner, begin=Request(), now=lambda: NOON + 9)
    seen: list[str] = []

    def more(app: NetdoctorApp, pilot: Any) -> None:
        seen.append(app.state.cells.nodes[app.matrix.node])
        runner.events.extend((n, 2, "!") for n in range(64))
        app.regrouped = 0
        app.drain()
        seen.append(app.state.cells.nodes[app.matrix.node])

    drive(app, (100, 30), settle, "plus", "down", "down", more, "z", more)
    assert len(set(seen)) == 1


def rows_of_checks(app: NetdoctorApp) -> list[str]:
    """What stands at the left of each row of the matrix."""
    return [" ".join(one.text[:28].split()) for one in app.page.lines[1:] if one.key is not None]


def test_a_live_scan_of_few_nodes_has_a_row_per_family_and_below_it_what_was_found() -> None:
    report = rich_report(4)
    runner = FakeRunner(lambda *_: [began(report), Phase(NOON, "connect", 0, 4)])
    app = application(runner=runner, begin=Request(), now=lambda: NOON + 9)
    pictures, keys, heads = [], [], []

    def more(*events: Event) -> Step:
        def step(app: NetdoctorApp, pilot: Any) -> None:
            runner.events.extend(events)
            app.drain()
            assert app.turned is not None
            pictures.append(rows_of_checks(app))
            keys.append((app.where.cursor, app.page.lines[app.page.at].text[:11].split()))
            heads.append(app.page.lines[0].text.split())

        return step

    steps = (more(), "down", "down", more((3, 0, "."), (2, 5, "X")))
    lines = drive(
        app, (100, 30), *steps, more((1, 9, "!")), more((0, 7, "X"), (0, 9, "!")), "down", more((0, 8, "X"))
    )
    checks = app.state.cells.checks
    assert pictures[0] == [f"{f} {n} check{'s' * (n > 1)}" for f, n in FAMILY_SIZES]
    for before, after in itertools.pairwise(pictures):
        assert [row for row in after if row in before] == before  # none goes, and none changes places
    assert [len(rows) for rows in pictures] == [7, 8, 9, 10, 11]
    assert {tuple(head) for head in heads} == {report.matrix.nodes}
    # The family that the cursor is on stays under it though a check of it has a row of its own now.
    assert [row for _, row in keys] == [["ssh"], ["net"], ["net"], ["net"], []]
    assert keys[-1][0] == (checks[7], "gpu-a01")
    assert any("X" in line and checks[5].partition(".")[2] in line for line in lines)


def test_no_family_is_green_before_all_of_it_has_spoken() -> None:
    report = rich_report(4)
    width = len(report.matrix.checks)
    events: list[Event] = [began(report), *((0, c, ".") for c in range(width)), (1, 0, "."), (1, 7, ".")]
    app = application(runner=FakeRunner(lambda *_: events), begin=Request(), now=lambda: NOON + 9)
    looks: list[tuple[str, str]] = []

    def look(app: NetdoctorApp, pilot: Any) -> None:
        assert app.turned is not None
        for one in app.turned.lines[1:]:
            cells = [style.removesuffix("+cursor") for text, style in one.spans if text.strip() == "."]
            looks.extend(itertools.pairwise([*cells, ""]))

    drive(app, (100, 30), settle, look)
    assert set(looks) == {("cell.pass", "dim"), ("dim", ""), ("cell.pass", "")}


@pytest.mark.parametrize("width", [100, 120])
def test_what_a_family_has_said_so_far_is_spelled_out(width: int) -> None:
    report = rich_report(4)
    events: list[Event] = [began(report), (0, 7, "."), (0, 8, ".")]
    app = application(runner=FakeRunner(lambda *_: events), begin=Request(), now=lambda: NOON + 9)
    text = "\n".join(drive(app, (width, 30), settle, "down", "down"))
    assert "2 pass, 7 not yet" in text
    if width == 120:
        assert re.search(r"net\.part1 +not yet", text)
        assert "more line" not in text


def test_nodes_are_shown_as_soon_as_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdoctor.tui.app.TICK_S", 3600)
    report = rich_report(4)
    runner = FakeRunner()
    app = application(runner=runner, begin=Request(), now=lambda: NOON)

    async def work() -> tuple[str, str]:
        async with app.run_test(size=(100, 30)) as pilot:
            before = "\n".join(screen_text(app))
            runner.events.append(began(report))
            await pilot.pause(0.2)
            return before, "\n".join(screen_text(app))

    before, after = asyncio.run(work())
    assert "reading the hosts" in before
    assert all(name in after for name in report.matrix.nodes)


def test_other_screens_say_what_they_wait_for() -> None:
    assert "this comes when the scan ends" in "\n".join(live([], (100, 30), "1"))
    app = application(runner=FakeRunner(), begin=Request(), now=lambda: NOON)
    assert "reading the hosts" in "\n".join(drive(app, (100, 30)))


def test_resize_during_a_scan() -> None:
    async def resize(app: NetdoctorApp, pilot: Any) -> None:
        for size in ((60, 20), (30, 5), (160, 50), (100, 30)):
            await pilot.resize_terminal(*size)
            await pilot.pause()

    lines = live([], (100, 30), resize)
    assert "SCANNING" in lines[0]


def test_rerun_shows_what_is_under_way_and_keeps_the_old_value_below() -> None:
    report = rich_report()
    part = dataclasses.replace(
        began(report, partial=True),
        nodes=("gpu-a03",),
        checks=(("net.paths", "net"), ("net.ports", "net")),
        requested=("net.ports",),
    )
    runner = FakeRunner(lambda request, known: [part, Phase(NOON + 2, "ports", 1, 4)])
    times = iter([NOON, NOON, NOON, NOON + 2])
    app = application(report, runner=runner, now=lambda: next(times, NOON + 4))
    lines = drive(app, MEDIUM, "2", "t", "w", "r", settle, settle)
    row = next(line for line in lines if "gpu-a03" in line and line.startswith("|>"))
    assert "~" in row
    assert any("net.ports   FAIL" in line for line in lines)
    assert lines[0].startswith(" RE-RUNNING   net.ports on gpu-a03")
    assert re.search(r"ports 1/4   [-|/\\] 00:04", lines[0])
    assert len(lines[0]) <= 79


def test_clock_of_the_title_is_utc_as_the_report_says() -> None:
    assert datetime.fromtimestamp(NOON, UTC).year == 2026
