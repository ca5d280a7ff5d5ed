"""Every key does what the table of keys says."""

import asyncio
import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from netdoctor.report import describe
from netdoctor.report.model import PathRecord, Report
from netdoctor.report.save import save
from netdoctor.tui.actions.menu import offered
from netdoctor.tui.actions.table import DO
from netdoctor.tui.app import NetdoctorApp
from netdoctor.tui.dialogs import Ask, Picker
from netdoctor.tui.events import Event, Phase
from netdoctor.tui.keys import ACTIONS, BY_ID, FOOTERS, HINTS, MOVES, VIEWS
from netdoctor.tui.runner import Request
from netdoctor.tui.stage import screen_text
from netdoctor.tui.state import State
from netdoctor.tui.where import Spot, Where
from tests.report.build import sample_report
from tests.tui.harness import NOON, FakeRunner, Step, application, began, drive, rich_report, type_text

WINDOW = (100, 30)


def press(*steps: Step, report: Report | None = None, **options: Any) -> NetdoctorApp:
    """The application after some keys, ended."""
    app = application(report or rich_report(), **options)
    drive(app, WINDOW, *steps)
    return app


def seen(steps: list[Step], look: Callable[[NetdoctorApp], Any], **options: Any) -> Any:
    """What `look` finds after the steps, while the application runs."""
    found: list[Any] = []
    press(*steps, lambda app, pilot: found.append(look(app)), **options)
    return found[0]


def after_each(steps: Sequence[Step], look: Callable[[NetdoctorApp], Any], **options: Any) -> list[Any]:
    """What `look` finds after each of the steps, in one application."""
    found: list[Any] = []

    def note(app: NetdoctorApp, pilot: Any) -> None:
        found.append(look(app))

    press(*(step for one in steps for step in (one, note)), **options)
    return found


def node(app: NetdoctorApp) -> str:
    return app.state.cells.nodes[app.matrix.node][-2:]


def scanning(request: Request, report: Report | None) -> list[Event]:
    return [began(rich_report()), Phase(NOON, "connect", 1, 4)]


BY_NODE = ("2", "t")  # the matrix with a row per node, also where there are few

# Screens


@pytest.mark.parametrize(
    ("key", "view"),
    [("1", "causes"), ("2", "matrix"), ("3", "pairs"), ("4", "node"), ("5", "diff"), ("6", "diff")],
)
def test_numbers_show_screens(key: str, view: str) -> None:
    assert press("2", key).where.view == view


@pytest.mark.parametrize("key", ["enter", "d"])
def test_open_and_back(key: str) -> None:
    assert press(key).where.view == "cause"
    app = press(key, "escape")
    assert app.where.view == "causes"


def test_the_second_pane_shows_what_the_cursor_is_on() -> None:
    def side(app: NetdoctorApp, pilot: Any) -> None:
        shown.append(app.side.lines[0].text.strip().partition("  ")[2] if app.side.display else "")

    shown: list[str] = []
    app = application(rich_report())
    drive(
        app,
        (120, 32),
        side,
        "down",
        side,
        "right_square_bracket",
        side,
        "left_square_bracket",
        side,
        "enter",
        side,
    )
    titles = [describe.title(cause) for cause in rich_report().causes]
    whole = [next(title for title in titles if title.startswith(one)) for one in shown[:4]]
    assert whole == [titles[n] for n in (0, 1, 2, 1)]
    assert shown[4] == ""  # the screen of a cause has the whole window


def test_back_returns_to_the_line_it_left() -> None:
    assert seen(["down", "enter", "escape"], lambda app: app.page.key) == ("cause", "sha256:2222")


def test_open_leads_on_everywhere() -> None:
    assert press("2", "enter").where.view == "cause"  # the cursor stands on the worst cell
    assert press(*BY_NODE, "g", *["left"] * 40, "enter").where.view == "node"
    assert press("3", "enter").where.view == "pair"
    assert press("4", "enter").where.view == "cause"
    assert press("G", "enter").where.view == "matrix"  # a family


def test_a_pass_opens_to_nothing_and_says_so() -> None:
    app = press("2", "G", *["left"] * 3, "enter")
    assert app.where.view in ("matrix", "evidence")


# Moving


@pytest.mark.parametrize("keys", [["down"], ["j"]])
def test_down(keys: list[str]) -> None:
    assert seen([*BY_NODE, *keys], node) == "04"


@pytest.mark.parametrize("keys", [["up"], ["k"]])
def test_up(keys: list[str]) -> None:
    assert seen([*BY_NODE, "down", "down", *keys], node) == "04"


@pytest.mark.parametrize(("key", "by"), [("left", -1), ("h", -1), ("right", 1), ("l", 1)])
def test_sideways(key: str, by: int) -> None:
    before = seen([*BY_NODE], lambda app: app.matrix.column)
    assert seen([*BY_NODE, key], lambda app: app.matrix.column) == before + by
    assert (
        seen(["2", "right", key], node) == {-1: "03", 1: "02"}[by]
    )  # where checks are rows, worst node first


@pytest.mark.parametrize("key", ["G", "end", "greater_than_sign"])
def test_bottom(key: str) -> None:
    assert seen([*BY_NODE, key], node) == "01"
    assert seen([key], lambda app: app.page.key) == ("family", "gpu")


@pytest.mark.parametrize("key", ["g", "home", "less_than_sign"])
def test_top(key: str) -> None:
    assert seen(["2", "G", key], node) == "03"
    assert seen(["G", key], lambda app: app.page.key) == ("cause", "sha256:1111")


@pytest.mark.parametrize(
    ("there", "back"), [("pagedown", "pageup"), ("ctrl+f", "ctrl+b"), ("ctrl+d", "ctrl+u")]
)
def test_pages(there: str, back: str) -> None:
    big = rich_report(1000)
    lines = seen(["2", "z", "z", "z", there], lambda app: app.matrix.line, report=big)
    assert lines > 0
    rows = ["2", "z", "plus", "plus"]
    *_, down, up = after_each([*rows, there, back], lambda app: app.matrix.line, report=big)
    assert down > 10
    assert up == 0
    assert seen([there], lambda app: app.page.key) != ("cause", "sha256:1111")


# Causes and problems


def test_next_and_previous_cause() -> None:
    keys = ["enter", "right_square_bracket", "left_square_bracket", "left_square_bracket"]
    assert after_each(keys, lambda app: app.cause and app.cause.id) == [1, 2, 1, 3]
    assert seen(["right_square_bracket"], lambda app: app.page.key) == ("cause", "sha256:2222")
    assert seen(["2", "right_square_bracket"], node) == "04"


def test_next_and_previous_problem() -> None:
    # gpu-a01 has only what waits
    assert after_each(["2", "n", "n", "n", "N"], node) == ["03", "04", "02", "03", "02"]


def test_problems_are_hits_after_a_filter() -> None:
    steps = ["2", "slash", *type_text("a01"), "enter", "n"]
    assert seen(steps, node) == "01"


def test_no_problem_is_said() -> None:
    assert "no node has trouble" in press("2", "n", report=sample_report("ready")).status


# Copying


def test_copy_fix() -> None:
    app = press("y")
    assert app.clipboard.startswith("ssh gpu-a03 'sudo firewall-cmd")
    assert app.clipboard.count("\n") == 0  # pasted, it waits for Enter
    assert "copied fix of [1]" in app.status


def test_copy_the_fix_under_the_cursor() -> None:
    report = rich_report()
    first = report.causes[0]
    fix = dataclasses.replace(
        first.fixes[0], commands=(dataclasses.replace(first.fixes[0].commands[0], shell="second"),)
    )
    causes = (dataclasses.replace(first, fixes=(first.fixes[0], fix)), *report.causes[1:])
    app = press("enter", "down", "y", report=dataclasses.replace(report, causes=causes))
    assert app.clipboard == "second"
    assert "fix 2 of 2" in app.status


def test_a_copy_says_where_its_line_belongs() -> None:
    app = press("down", "enter", "y")
    assert app.clipboard == "export NCCL_SOCKET_IFNAME=eth0,ens10f0np0"
    assert "fix of [2], 1 line, in train.env" in app.status


def test_copy_fix_from_the_matrix_and_without_one() -> None:
    assert press("2", "y").clipboard.startswith("ssh gpu-a03")
    report = rich_report()
    bare = dataclasses.replace(report, causes=(dataclasses.replace(report.causes[0], fixes=()),))
    app = press("y", report=bare)
    assert app.clipboard == ""
    assert "no command" in app.status


def test_copy_all_is_markdown() -> None:
    text = press("Y").clipboard
    assert text.startswith("### \\[1\\] FAIL gpu-a03 drops connections")
    assert "```sh" in text


def test_copy_verify_and_names() -> None:
    assert press("v").clipboard == "netdoctor scan --last --only net.ports --node gpu-a03"
    assert press("down", "c").clipboard == "gpu-a04"
    assert press("2", "space", "space", "c").clipboard == "gpu-a[03-04]"


def test_copy_of_changes(tmp_path: Path) -> None:
    app = application(rich_report())
    app.base, app.base_name = sample_report("ready"), "x.json"
    drive(app, WINDOW, "6", "y")
    assert app.clipboard.startswith("```\n")
    assert "NOT READY" in app.clipboard


def test_evidence() -> None:
    app = press("e")
    assert app.where.view == "evidence"
    assert [r.check for r in app.results] == ["net.ports"]
    assert press("2", "e").results[0].target == "gpu-a03"
    assert press("4", "down", "e").where.view == "evidence"


def test_evidence_is_that_of_the_node_one_stands_on() -> None:
    report = rich_report()
    first, *_ = [r for r in report.results if r.check == "net.ports"]
    twin = dataclasses.replace(first, target="gpu-a01", summary="seen here")
    cause = dataclasses.replace(report.causes[0], node_list=("gpu-a01", "gpu-a03"))
    both = dataclasses.replace(report, results=(*report.results, twin), causes=(cause, *report.causes[1:]))

    def on_its_name(app: NetdoctorApp, pilot: Any) -> None:
        app.point(Spot(None, "gpu-a01"))

    def targets(app: NetdoctorApp) -> list[str]:
        return [result.target for result in app.results]

    found = after_each([*BY_NODE, on_its_name, "e", "escape", "4", "e"], targets, report=both)
    assert (found[3], found[6]) == (["gpu-a01"], ["gpu-a01"])


def test_y_copies_what_its_name_in_the_last_line_says() -> None:
    def look(app: NetdoctorApp) -> tuple[bool, bool, str]:
        last = screen_text(app)[-1]
        return "y copy fix" in last, "y copy verify" in last, app.clipboard[:14]

    assert after_each(["enter", "down", "y"], look)[::2] == [
        (True, False, ""),
        (False, True, "netdoctor scan"),
    ]


# The matrix


def test_faults_only() -> None:
    keys = ["2", "f", "f", "f", "escape"]
    assert after_each(keys, lambda app: len(app.matrix.rows.order)) == [4, 3, 4, 3, 4]


def test_filter_narrows_while_typing_and_escape_restores() -> None:
    typing: list[Step] = [*BY_NODE, "G", "slash", *type_text("fail")]

    def look(app: NetdoctorApp) -> tuple[int, str]:
        return len(app.matrix.rows.order), app.where.filter

    assert after_each([*typing, "enter", "escape"], look)[-3:] == [(2, "fail"), (2, "fail"), (4, "")]
    assert seen([*typing, "escape"], lambda app: (len(app.matrix.rows.order), node(app))) == (4, "01")


# Keys to a screen, a filter of its lines, and what stands there with it and only without it.
FILTERS: list[tuple[list[str], str, str, str]] = [
    ([], "clock", "[3]", "[2]"),
    (["enter"], "verify", "verify", "fix   "),
    (["e"], "!net.ports", "nothing fits", "FAIL  net.ports"),
    (["3"], "a02", "gpu-a02", "gpu-a04"),
    (["3", "enter"], "a02", "gpu-a02", "gpu-a04"),
    (["2", "4"], "nccl.ifname", "nccl.ifname", "ssh.login"),
    (["5"], "clock", "the clock of", "drops"),
]


def test_every_list_has_a_filter() -> None:
    app, pictures = application(rich_report()), []
    app.base = sample_report("ready")

    def begin(app: NetdoctorApp, pilot: Any) -> None:
        app.where = Where()
        app.draw(top=True)

    def look(app: NetdoctorApp, pilot: Any) -> None:
        pictures.append((app.where, screen_text(app)))

    def typing(text: str) -> Step:
        return lambda app, pilot: setattr(app.main_filter, "value", text)

    steps: list[Step] = []
    for screen, typed, _, _ in FILTERS:
        steps += [begin, *screen, look, "slash", typing(typed), "enter", look, "escape", look]
    drive(app, WINDOW, *steps)
    for n, (screen, typed, kept, gone) in enumerate(FILTERS):
        (before, _), (during, lines), (after, _) = pictures[3 * n : 3 * n + 3]
        body = "\n".join(line for line in lines[3:-2] if "worst" not in line)  # heads of columns stay
        assert kept in body, screen
        assert gone not in body, screen
        assert f"filter: {typed}" in lines[1]
        assert during == dataclasses.replace(before, sought=typed)
        assert after == before


def test_no_letter_of_a_filter_is_a_key() -> None:
    """These would quit, run, export, stop, change the looks, and hold."""
    app = press("slash", *"qrRExTp", lambda app, pilot: None, runner=FakeRunner())
    assert app.where.sought == "qrRExTp"
    assert (app.runner.asked, app.files, app.exported, app.light) == ([], set(), [], False)


def test_zoom() -> None:
    keys = ["2", "z", "z", "z", "minus", "minus", "minus", "plus", "equals_sign", "plus"]
    zooms = after_each(keys, lambda app: app.where.zoom)
    assert zooms[:4] == ["rows", "overview", "groups", "rows"]
    assert zooms[4:] == ["groups", "overview", "overview", "groups", "rows", "rows"]


def test_cursor_stays_on_its_node_through_zoom_sort_and_filter() -> None:
    steps = ["2", "plus", "down", "down", "down", "z", "o", "O", "minus", "w", "z", "z"]
    nodes = after_each(steps, node, report=rich_report(90))
    assert nodes[4] != nodes[3]
    assert set(nodes[4:]) == {nodes[4]}


def test_cursor_stays_on_its_check_through_other_screens_and_sizes() -> None:
    async def narrow(app: NetdoctorApp, pilot: Any) -> None:
        await pilot.resize_terminal(80, 24)  # families instead of checks

    async def wide(app: NetdoctorApp, pilot: Any) -> None:
        await pilot.resize_terminal(*WINDOW)

    steps: list[Step] = [*BY_NODE, "left", "left", "1", "2", "4", "2", narrow, wide, "z", "plus", "t", "t"]
    checks = after_each(steps, lambda app: app.where.cursor and app.where.cursor.check)
    assert len(set(checks[1:4])) == 3
    assert set(checks[3:-2]) == {checks[3]}
    assert checks[-2] == checks[-1]  # one that has a row where checks are rows


def test_sort_and_reverse() -> None:
    def order(app: NetdoctorApp) -> list[str]:
        return [app.state.cells.nodes[r][-1] for r in app.matrix.rows.order]

    worst, listed = ["3", "4", "2", "1"], ["1", "2", "3", "4"]
    orders = after_each(["2", "o", "O", "O", "o", "o"], order)
    assert orders == [worst, listed, listed[::-1], listed, listed, worst]


def test_sort_by_the_check_under_the_cursor_from_the_palette() -> None:
    app = press("2", "G", "colon", *type_text("check time.skew"), "enter")
    assert app.where.by == "time.skew"
    assert seen(["2"], lambda app: app.act("sort-check") or app.where.by is not None)


def test_wide() -> None:
    assert seen(["2", "w"], lambda app: app.matrix.wide)
    app = application(rich_report())
    widths: list[bool] = []
    drive(app, (80, 24), *BY_NODE, lambda a, p: widths.append(a.matrix.layout_plan.families), "w",
          lambda a, p: widths.append(a.matrix.layout_plan.families))  # fmt: skip
    assert widths == [True, False]


def test_mark_and_range() -> None:
    assert seen([*BY_NODE, "space"], lambda app: (len(app.where.marks), node(app))) == (1, "04")
    assert seen([*BY_NODE, "space", "up", "space"], lambda app: len(app.where.marks)) == 0
    assert seen([*BY_NODE, "space", "down", "v"], lambda app: len(app.where.marks)) == 3


def test_tab_shows_one_check_in_the_overview() -> None:
    assert seen(["2", "z", "tab"], lambda app: app.where.colour) is not None
    assert "overview" in press("2", "tab").status


# Pairs and diff


def test_pairs_keys() -> None:
    kinds = ["net.ports", "bw.pair", "measure bw.allreduce.busbw", "net.ports"]
    assert after_each(["3", "tab", "tab", "tab"], lambda app: app.kind) == kinds
    assert seen(["3", "v"], lambda app: app.where.values)
    lines = drive(application(rich_report()), WINDOW, "3", "t")
    assert any("column connects to row" in line for line in lines)


def test_heads_of_pairs_stay_and_the_cursor_is_a_pair() -> None:
    def look(app: NetdoctorApp) -> tuple[str, str]:
        lines = screen_text(app)
        (pair,) = re.findall(r"^ pair +(\S+ -> \S+)", "\n".join(lines), re.MULTILINE)
        return lines[4], pair

    pictures = after_each(["3", "G", "g", "right", "right", "down"], look, report=rich_report(36))
    assert len({heads for heads, _ in pictures}) == 1
    assert [pair for _, pair in pictures] == [
        "gpu-a01 -> gpu-a03", "gpu-a36 -> gpu-a03", "gpu-a01 -> gpu-a03", "gpu-a01 -> gpu-a04",
        "gpu-a01 -> gpu-a05", "gpu-a02 -> gpu-a05",
    ]  # fmt: skip


def with_paths(report: Report) -> Report:
    """Each pair of it over two paths."""
    ways = tuple(PathRecord(path=path, status="pass", class_="open") for path in ("eth0", "eth1"))
    return dataclasses.replace(report, pairs=tuple(dataclasses.replace(p, paths=ways) for p in report.pairs))


def test_o_goes_through_the_paths_of_pairs() -> None:
    two = with_paths(rich_report())
    assert after_each(["3", "o", "o", "o"], lambda app: app.where.path, report=two) == [
        "",
        "eth0",
        "eth1",
        "",
    ]
    assert "one path" in press("3", "o").status


def test_base_is_chosen_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(sample_report("ready"), Path("yesterday.json"))
    lines = drive(application(rich_report()), WINDOW, "6", "b", "enter")
    assert any("READY -> NOT READY" in line for line in lines)
    app = press("6", "b", *type_text("none.json"), "enter")
    assert "no such file" in app.status


def test_a_link_to_nothing_is_no_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gone.json").symlink_to("nowhere")
    save(sample_report("ready"), Path("yesterday.json"))
    lines = drive(application(rich_report()), WINDOW, "6", "b")
    assert any("yesterday.json" in line for line in lines)
    assert not any("gone.json" in line for line in lines)


def test_changes_only() -> None:
    app = application(rich_report())
    app.base = rich_report()
    assert any("still" in line for line in drive(app, WINDOW, "6"))
    app = application(rich_report())
    app.base = rich_report()
    assert not any("still" in line for line in drive(app, WINDOW, "6", "f"))


# Running again


def asked(*steps: Step, report: Report | None = None) -> list[Request]:
    runner = FakeRunner()
    press(*steps, report=report, runner=runner)
    return runner.asked


def test_rerun_of_a_cell_a_row_a_column_and_marks() -> None:
    assert asked("2", "r") == [Request(checks=("net.ports",), nodes=("gpu-a03",))]
    assert asked(*BY_NODE, *["left"] * 60, "r") == [Request(checks=None, nodes=("gpu-a03",))]
    assert asked(*BY_NODE, "space", "space", "up", "r")[0].nodes == ("gpu-a03", "gpu-a04")
    assert asked("colon", *type_text("rerun net.ports"), "enter")[0] == Request(checks=("net.ports",))


def test_rerun_of_a_cause_takes_along_what_it_holds_up() -> None:
    (request,) = asked("r")
    assert request.checks == ("net.ports", "nccl.smoke", "bw.pair", "bw.rail", "bw.allreduce")
    assert set(request.nodes or ()) == {"gpu-a01", "gpu-a02", "gpu-a03", "gpu-a04"}


def test_rerun_on_other_screens() -> None:
    assert asked("4", "r") == [Request(nodes=("gpu-a01",))] or asked("4", "r")[0].nodes is not None
    assert asked("3", "r") == [Request(checks=("net.ports",))]
    assert asked("2", "4", "down", "r")[0].checks == ("net.ports",)


def test_rerun_of_what_is_not_green_and_of_everything() -> None:
    (request,) = asked("R")
    assert "net.ports" in (request.checks or ())
    assert "ssh.login" not in (request.checks or ())
    assert asked("ctrl+r") == [Request()]
    assert asked("R", report=sample_report("ready")) == []


def test_no_rerun_without_a_runner_and_during_a_scan() -> None:
    assert "does not say how" in press("r").status
    runner = FakeRunner(scanning)
    press("ctrl+r", lambda app, pilot: app.drain(), "ctrl+r", runner=runner)
    assert len(runner.asked) == 1


def test_costly_checks_ask_once_and_name_the_nodes() -> None:
    report = rich_report()
    costs = {"net.ports": "opens-port", "bw.allreduce": "loads-gpu"}
    checks = tuple(dataclasses.replace(c, cost=costs.get(c.id, c.cost)) for c in report.checks)
    report = dataclasses.replace(report, checks=checks)
    runner = FakeRunner()
    texts: list[str] = []

    def read(app: NetdoctorApp, pilot: Any) -> None:
        assert isinstance(app.screen, Ask)
        texts.append(" ".join(line.text for line in app.screen.text))

    press("2", "r", read, "n", "r", "y", "r", report=report, runner=runner)
    assert "net.ports" in texts[0]
    assert "gpu-a03" in texts[0]
    assert len(runner.asked) == 2  # refused, agreed, no longer asked


def test_what_comes_along_is_asked_about_and_not_what_is_shown() -> None:
    """One that agreed to ports did not agree to loaded GPUs."""
    runner = FakeRunner()
    texts: list[str] = []

    def read(app: NetdoctorApp, pilot: Any) -> None:
        assert isinstance(app.screen, Ask)
        texts.append(" ".join(line.text for line in app.screen.text))

    def more(app: NetdoctorApp, pilot: Any) -> None:
        runner.along["bw.pair"] = "loads-gpu"

    runner.along["net.ports"] = "opens-port"
    quiet = dataclasses.replace(rich_report(), checks=())  # whatever a report says that its checks cost
    press("2", "r", read, "y", "r", more, "r", read, "n", "r", "y", "r", report=quiet, runner=runner)
    assert "net.ports will open ports for" in texts[0]
    assert "net.ports, bw.pair will open ports and load GPUs for" in texts[1]
    assert len(runner.asked) == 4


def test_a_strangers_report_is_asked_about_first() -> None:
    runner = FakeRunner()
    runner.question = "Do you trust it?"
    press("2", "r", "escape", runner=runner)
    assert runner.asked == []
    press("2", "r", "y", "r", runner=runner)
    assert len(runner.asked) == 2


def test_pause_stop_and_follow() -> None:
    runner = FakeRunner(scanning)
    late: list[Event] = [(1, 0, "X")]

    def more(app: NetdoctorApp, pilot: Any) -> None:
        runner.events.extend(late)
        app.drain()

    app = press("2", "p", more, runner=runner, begin=Request())
    assert list(runner.events) == late  # held back
    app = press("2", "p", more, "p", more, runner=FakeRunner(scanning), begin=Request())
    assert not app.where.paused
    press("2", "x", runner=runner, begin=Request())
    assert runner.stopped == 1
    runner = FakeRunner(scanning)
    found: list[str] = []
    press("2", "F", more, lambda a, p: found.append(node(a)), runner=runner, begin=Request())
    assert found == ["02"]


def test_scan_keys_say_when_there_is_no_scan() -> None:
    for name in ("pause", "stop"):
        app = press(lambda app, pilot, name=name: app.act(name))
        assert "no scan" in app.status


def test_shell_runs_what_the_runner_names(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr("netdoctor.tui.stage.subprocess.run", lambda argv, **options: called.append(argv))
    monkeypatch.setattr(NetdoctorApp, "suspend", lambda self: __import__("contextlib").nullcontext())
    press("2", "s", runner=FakeRunner())
    assert called == [["true", "gpu-a03"]]
    runner = FakeRunner()
    runner.question = "Do you trust it?"
    press("2", "s", "n", runner=runner)
    assert len(called) == 1
    press("2", "s", "y", runner=runner)
    assert len(called) == 2


# Files


def test_export_to_a_file_and_to_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    press("E")
    script = Path("netdoctor-fixes.sh").read_text("utf-8")
    assert "ssh gpu-a03 'sudo" in script
    assert "# export NCCL_SOCKET_IFNAME" in script  # for the job, not for this shell
    assert os.system("sh -n netdoctor-fixes.sh") == 0
    press("E")
    assert Path("netdoctor-fixes-2.sh").exists()  # another session's file is left alone
    app = press("enter", "E", export_to_stdout=True)
    assert len(app.exported) == 1
    assert "[2]" not in app.exported[0]
    press("E", export=tmp_path / "mine.sh", export_to_stdout=True)
    assert (tmp_path / "mine.sh").stat().st_mode & 0o777 == 0o600


def test_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = press("ctrl+s")
    assert Path("netdoctor-report.json").exists()
    assert "saved" in app.status


# Help, palette, end


def test_help_lists_the_keys_of_the_screen_and_runs_one() -> None:
    assert isinstance(seen(["question_mark"], lambda app: app.screen), Picker)
    assert press("question_mark", *type_text("screen: matrix"), "enter").where.view == "matrix"
    assert press("question_mark", "escape").where.view == "causes"


def test_help_says_how_much_more_there_is() -> None:
    text = "\n".join(drive(application(rich_report()), (80, 24), "question_mark"))
    assert re.search(r"\d+ more below, esc closes", text)
    assert "next problem" not in text  # which is no key of this screen


def test_messages_are_shown_whole() -> None:
    lines = drive(application(rich_report()), (80, 24), "y")
    assert "select it with the mouse, or E writes a file" in " ".join(" ".join(lines).split())


@pytest.mark.parametrize("key", ["colon", "ctrl+p"])
def test_palette_runs_actions_and_goes_places(key: str) -> None:
    assert press(key, *type_text("screen: pairs"), "enter").where.view == "pairs"
    assert press(key, *type_text("cause clock"), "enter").cause.id == 3
    app = press(key, *type_text("node gpu-a04"), "enter")
    assert (app.where.view, app.state.cells.nodes[app.matrix.node]) == ("matrix", "gpu-a04")
    assert press(key, "q", "enter").is_running is False


def test_theme() -> None:
    assert press("T").theme == "textual-light"


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_quit(key: str) -> None:
    assert seen_end(key)


def seen_end(key: str, **options: Any) -> bool:
    app = application(rich_report(), **options)

    async def work() -> bool:
        async with app.run_test(size=WINDOW) as pilot:
            app.drain()
            await pilot.press(key)
            await pilot.pause()
            return app._exit

    return asyncio.run(work())


def test_quit_leaving_the_screen() -> None:
    app = application(rich_report())

    async def work() -> None:
        async with app.run_test(size=WINDOW) as pilot:
            await pilot.press("Q")

    asyncio.run(work())
    assert any("gpu-a03 drops" in line for line in app.left_behind)


def test_quit_asks_while_scanning() -> None:
    runner = FakeRunner(scanning)
    assert not seen_end("q", runner=runner, begin=Request())
    app = application(runner=FakeRunner(scanning), begin=Request())

    async def work() -> bool:
        async with app.run_test(size=WINDOW) as pilot:
            app.drain()
            await pilot.press("q", "y")
            return app._exit

    assert asyncio.run(work())


# The table itself


def test_every_action_has_a_function_and_every_function_an_action() -> None:
    assert set(DO) == set(BY_ID)


def test_ids_are_unique_and_footers_know_them() -> None:
    assert len(BY_ID) == len(ACTIONS)
    assert set(VIEWS) <= set(FOOTERS)
    for view, names in FOOTERS.items():
        assert all(BY_ID[name].hint or HINTS[view][name] for name in names)


def test_no_two_actions_share_a_key_on_one_screen() -> None:
    for view in VIEWS:
        keys = [key for action in ACTIONS if view in action.views for key in action.keys]
        keys += [key for _, names in MOVES for key in names]
        assert len(keys) == len(set(keys)), view


def test_no_key_of_tmux_or_screen_is_the_only_way() -> None:
    taken = {"ctrl+b", "ctrl+a"}
    for action in ACTIONS:
        assert not action.keys or set(action.keys) - taken
    for _, keys in MOVES:
        assert set(keys) - taken


def test_every_action_is_in_the_help_or_palette_of_some_screen() -> None:
    app = application(with_paths(rich_report()), runner=FakeRunner())
    shown: set[str] = set()

    def collect(app: NetdoctorApp, pilot: Any) -> None:
        for view in VIEWS:
            app.where = dataclasses.replace(app.where, view=view)
            shown.update(choice[0] for choice in offered(app, ""))
        app.state = dataclasses.replace(app.state, scanning=True)
        app.where = dataclasses.replace(app.where, view="matrix")
        shown.update(choice[0] for choice in offered(app, ""))
        app.state = State(message="hosts.txt could not be used")
        app.where = dataclasses.replace(app.where, view="causes")
        shown.update(choice[0] for choice in offered(app, ""))

    drive(app, WINDOW, collect)
    assert set(BY_ID) <= shown
