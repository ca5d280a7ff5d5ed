"""Every screen as text lines, at every size, against files that a person has looked at.

`GOLDEN=write pytest tests/tui/test_screens.py` writes them again; look at them before you commit.
"""

import dataclasses
import os
import re
import unicodedata
from pathlib import Path

import pytest

from netdoctor.report.model import Report
from netdoctor.tui.app import NetdoctorApp
from netdoctor.tui.stage import screen_text
from netdoctor.tui.widgets import Page
from tests.report.build import sample_report
from tests.tui.harness import SIZES, Step, application, drive, rich_report, unreachable

FOLDER = Path(__file__).parent / "golden"


def _base(app: NetdoctorApp, pilot: object) -> None:
    app.base, app.base_name = sample_report("ready"), "yesterday.json"
    app.draw()


SCREENS: dict[str, tuple[Report, list[Step]]] = {
    "causes": (rich_report(), []),
    "causes-1000": (rich_report(1000), []),
    "ready": (rich_report(state="ready"), []),
    "undecided": (sample_report("undecided"), []),
    "unreachable": (unreachable(), []),
    "cause": (rich_report(), ["enter"]),
    "evidence": (rich_report(), ["2", "4", "4", "1", "enter", "e"]),
    "matrix-checks": (rich_report(), ["2"]),
    "matrix-rows": (rich_report(), ["2", "t"]),
    "matrix-groups": (rich_report(1000), ["2"]),
    "matrix-overview": (rich_report(1000), ["2", "minus"]),
    "matrix-wide": (rich_report(), ["2", "t", "w"]),
    "matrix-marked": (rich_report(), ["2", "t", "space", "space"]),
    "pairs": (rich_report(), ["3"]),
    "pairs-64": (rich_report(64), ["3"]),
    "pair": (rich_report(), ["3", "down", "down", "enter"]),
    "heat": (rich_report(8), ["3", "tab", "v"]),
    "curve": (rich_report(), ["3", "tab", "tab"]),
    "node": (rich_report(), ["2", "4"]),
    "diff": (rich_report(), [_base, "6"]),
    "help": (rich_report(), ["question_mark"]),
    "palette": (rich_report(), ["colon", "s", "k", "e", "w"]),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SCREENS)
def test_screen(name: str, size: str) -> None:
    report, steps = SCREENS[name]
    width, height = SIZES[size]
    lines = drive(application(report), (width, height), *steps)
    text = "\n".join(lines) + "\n"
    assert len(lines) == height
    assert all(len(line) <= width for line in lines)
    bad = {c for c in text if unicodedata.east_asian_width(c) in "AWF"}
    assert not bad, f"characters of ambiguous width: {bad}"
    path = FOLDER / f"{name}@{size}.txt"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def test_no_golden_file_is_left_over() -> None:
    wanted = {f"{name}@{size}.txt" for name in SCREENS for size in SIZES}
    assert {path.name for path in FOLDER.glob("*@*.txt")} == wanted


@pytest.mark.parametrize(
    "size", [(60, 16), (61, 17), (79, 24), (99, 24), (139, 30), (140, 30), (300, 100), (20, 5), (1, 1)]
)
def test_any_size_draws_something_that_fits(size: tuple[int, int]) -> None:
    drawn: list[str] = []

    def look(app: NetdoctorApp, pilot: object) -> None:
        lines = screen_text(app)
        assert len(lines) == size[1]
        assert all(len(line) <= size[0] for line in lines)
        drawn.append(app.where.view)

    drive(application(rich_report(8)), size, look, "enter", look, "2", look, "3", look, "4", look, "6", look)
    if size[0] >= 80:
        assert drawn == ["causes", "cause", "matrix", "pairs", "node", "diff"]
    assert len(drawn) == 6


def test_a_wide_window_shows_the_cause_beside_the_matrix() -> None:
    app = application(rich_report())
    lines = drive(app, (160, 50), "2", "n")
    assert any("enter opens the cause" in line for line in lines)
    assert app.screen_stack == [] or app.query_one("#side", Page).lines


def test_commands_are_drawn_whole_though_broken() -> None:
    lines = drive(application(rich_report()), (80, 50), "enter")
    text = " ".join(line.strip("| ") for line in lines)
    assert (
        "ssh gpu-a03 'sudo firewall-cmd --permanent --zone=trusted --add-source=10.20.0.0/24 && sudo" in text
    )


@pytest.mark.parametrize("state", ["ready", "not_ready"])
def test_what_was_not_tested_is_read_to_its_end(state: str) -> None:
    """It is the last of the headline, which takes the lines that it needs."""
    report = rich_report(state=state)
    gap = "not tested: the job's Python, the all-reduce (no torch in /bin/python3; --python /opt/v has it)"
    verdict = dataclasses.replace(report.verdict, headline=f"some words before it; {gap}")
    screen = drive(application(dataclasses.replace(report, verdict=verdict)), (80, 30))
    assert gap in " ".join(" ".join(line.strip("| ") for line in screen).split())


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (120, 32), (160, 45), (200, 50)])
def test_nothing_of_the_causes_ends_in_two_dots(size: tuple[int, int]) -> None:
    for report in (rich_report(), rich_report(state="ready"), unreachable(), rich_report(1000)):
        lines = drive(application(report), size)
        assert not [line for line in lines if ".." in line.replace("...", "")]


def test_each_node_stands_below_the_causes_where_there_are_lines_for_it() -> None:
    few = drive(application(rich_report()), (100, 30))
    row = next(line for line in few if "nodes  " in line and "gpu-a04" in line)
    assert row.strip("| ").split() == [
        "nodes",
        "b",
        "gpu-a01",
        "!",
        "gpu-a02",
        "X",
        "gpu-a03",
        "X",
        "gpu-a04",
    ]
    many = "\n".join(drive(application(rich_report(1000)), (160, 50)))
    assert "32  [2] gpu-a[0700-0731]" in many
    assert "without a cause" in many
    small = drive(application(rich_report()), (80, 24))
    assert not any(line.strip("| ").startswith("nodes ") for line in small)


def test_a_list_of_versions_breaks_between_its_items() -> None:
    lines = drive(application(rich_report()), (160, 45))
    assert any("Python 3.11.9" in line for line in lines)
    healthy = "\n".join(drive(application(rich_report(state="ready")), (80, 24)))
    assert "(gpu-a04 -> gpu-a01)" in " ".join(healthy.replace("|", " ").split())


def test_the_second_pane_says_how_many_more_results_there_are() -> None:
    report = unreachable(40)
    results = tuple(dataclasses.replace(r, summary=f"refused by {r.target}") for r in report.results)
    lines = drive(application(dataclasses.replace(report, results=results)), (160, 45))
    assert any("more results (e opens)" in line for line in lines)


@pytest.mark.parametrize("steps", [[], ["e"]], ids=["second pane", "evidence"])
def test_results_that_say_the_same_are_said_once(steps: list[Step]) -> None:
    report = unreachable(40)
    first, *others = report.results
    other = dataclasses.replace(first, summary="no answer", duration_ms=3.0)
    timed = [dataclasses.replace(r, duration_ms=float(n)) for n, r in enumerate(others)]
    screen = "\n".join(
        drive(application(dataclasses.replace(report, results=(other, *timed))), (160, 45), *steps)
    )
    assert "ssh.login  gpu-a01  [1]" in screen
    assert screen.count("no answer") == 1
    assert "ssh.login  gpu-a[02-40] (39)  [1]" in screen
    assert len(re.findall(r"says +refused", screen)) == 1
    assert "more result" not in screen
    whole = "\n".join(drive(application(report), (160, 45), *steps))
    assert "ssh.login  all 40 nodes  [1]" in whole


def test_beside_a_verdict_without_causes_stands_every_check() -> None:
    report = rich_report(state="ready")
    checks = [check.id for check in report.checks]
    screen = drive(application(report), (160, 70))
    assert any("what was looked at" in line for line in screen)
    beside = "\n".join(line[len(line) // 3 :] for line in screen)
    assert [check for check in checks if f" {check} " not in beside] == []
    short = "\n".join(drive(application(report), (160, 45)))
    assert "more lines" in short
    assert "what was looked at" not in "\n".join(drive(application(report), (100, 45)))


def test_beside_a_family_stand_all_its_checks() -> None:
    report = rich_report(state="ready")
    here = "\n".join(drive(application(report), (160, 45), "down", "down", "down"))
    ssh = [check.id for check in report.checks if check.family == "ssh"]
    assert len(ssh) > 1
    assert "checks of ssh" in here
    assert [check for check in ssh if f" {check} " not in here] == []
    assert "checks of time" not in here


def test_a_number_stays_with_its_unit() -> None:
    lines = drive(application(rich_report(state="ready")), (160, 45))
    assert any(re.search(r"slowest pair [0-9.]+ GB/s \(", line) for line in lines)


def test_the_second_pane_has_what_was_observed_where_there_is_room() -> None:
    screen = "\n".join(drive(application(rich_report()), (160, 45)))
    assert "observed" in screen
    assert "drops connections from its peers" in screen
    assert "observed" not in "\n".join(drive(application(rich_report()), (120, 24)))


def test_keys_that_need_a_fix_are_named_only_where_there_is_one() -> None:
    assert "y copy fix" in drive(application(rich_report()), (160, 45))[-1]
    no_fix = drive(application(unreachable()), (160, 45))[-1]
    assert "copy fix" not in no_fix
    assert "verify" not in no_fix
    assert "e evidence" in no_fix
    ready = drive(application(rich_report(state="ready")), (160, 45))[-1]
    assert ready.split() == ["enter", "open", "/", "filter", "?", "keys", "q", "quit"]
