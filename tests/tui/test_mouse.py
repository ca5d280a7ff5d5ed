"""The mouse does what keys do."""

from typing import Any

from textual.selection import SELECT_ALL

from netdoctor.tui.app import NetdoctorApp
from netdoctor.tui.stage import screen_text
from tests.tui.harness import application, drive, rich_report

WINDOW = (100, 30)


async def click(app: NetdoctorApp, pilot: Any, text: str, *, times: int = 1, at: int = 0) -> None:
    """Click on a text where it stands on the screen."""
    for y, line in enumerate(screen_text(app)):
        if text in line:
            await pilot.click(offset=(line.index(text) + at, y), times=times)
            await pilot.pause()
            return
    raise AssertionError(f"{text!r} is not on the screen")


def clicked(report: Any, *steps: Any) -> NetdoctorApp:
    app = application(report)
    drive(app, WINDOW, *steps)
    return app


def test_tabs_and_footer() -> None:
    assert clicked(rich_report(), lambda a, p: click(a, p, "2 Matrix")).where.view == "matrix"
    assert clicked(rich_report(), lambda a, p: click(a, p, "3 Pairs")).where.view == "pairs"
    app = clicked(rich_report(), "2", lambda a, p: click(a, p, "z zoom"))
    assert app.where.zoom == "overview"


def test_a_click_moves_and_a_second_one_opens() -> None:
    found: list[int] = []

    def look(app: NetdoctorApp, pilot: Any) -> None:
        found.append(app.matrix.node)

    app = clicked(rich_report(), "2", "t", lambda a, p: click(a, p, "gpu-a02"), look)
    assert found == [1]
    app = clicked(rich_report(), "2", "t", lambda a, p: click(a, p, "gpu-a02", times=2))
    assert app.where.view == "node"
    app = clicked(rich_report(), lambda a, p: click(a, p, "[2] FAIL", times=2))
    assert (app.where.view, app.cause.id) == ("cause", 2)
    app = clicked(rich_report(), lambda a, p: click(a, p, "[2] FAIL"))
    assert app.where.view == "causes"


def test_a_click_on_a_cell_of_a_check_goes_to_its_node() -> None:
    async def cell(app: NetdoctorApp, pilot: Any) -> None:
        lines = screen_text(app)
        x = next(line.index("gpu-a04") for line in lines if "gpu-a04" in line)
        await pilot.click(offset=(x + 2, next(y for y, line in enumerate(lines) if " skew " in line)))

    app = clicked(rich_report(), "2", cell)
    assert app.where.cursor == ("time.skew", "gpu-a04")
    app = clicked(rich_report(), "2", lambda a, p: click(a, p, "ports", times=2))
    assert (app.where.view, app.cause.id) == ("cause", 1)


def test_a_click_on_a_head_sorts_by_that_check() -> None:
    app = clicked(rich_report(), "2", "t", lambda a, p: click(a, p, "nccl-", at=1))
    assert app.where.by is not None
    assert app.where.by.startswith("nccl.")


def test_overview_and_empty_places() -> None:
    app = clicked(rich_report(1000), "2", "minus", lambda a, p: p.click(offset=(14, 4)))
    assert app.matrix.node == 2
    assert clicked(rich_report(), "2", lambda a, p: p.click(offset=(5, 18))).where.view == "matrix"
    assert clicked(rich_report(), lambda a, p: p.click(offset=(50, 27))).where.view == "causes"


def test_pages_can_be_selected() -> None:
    texts: list[str] = []

    def select(app: NetdoctorApp, pilot: Any) -> None:
        found = app.page.get_selection(SELECT_ALL)
        assert found is not None
        texts.append(found[0])

    clicked(rich_report(), "enter", select)
    assert "ssh gpu-a03 'sudo firewall-cmd" in texts[0]


def test_answers_can_be_clicked() -> None:
    from tests.tui.harness import FakeRunner

    runner = FakeRunner()
    runner.question = "Do you trust it?"
    app = application(rich_report(), runner=runner)
    drive(app, WINDOW, "2", "r", lambda a, p: click(a, p, "y  yes"))
    assert len(runner.asked) == 1
