"""The live page of a trial: what it shows at any size, that it is bounded, and that q ends the job."""

import asyncio
import dataclasses
import time
from collections.abc import Callable

import pytest

from netdoctor.trial.following import Event, Follower, RunState
from netdoctor.trial.watching import BAD_MAX, picture_of
from netdoctor.tui.stage import screen_text
from netdoctor.tui.trial import page
from netdoctor.tui.trial.app import TrialApp
from netdoctor.tui.trial.page import Picture, Row
from tests.hostile import HOSTILE, each_of

RANKS = {f"gpu-a{n:02d}": 2 for n in range(1, 7)}


def job() -> Follower:
    """Six nodes of two ranks: steps, joined, waits, nothing yet, killed, lost."""
    found = Follower(RANKS, [1] * 6)
    for number in range(8):
        node = list(RANKS)[number // 2]
        if number < 6:
            found.event(node, Event(what="waits", rank=number, pid=number + 1, heard_s=1.0))
        if number < 4:
            joined = Event(what="joined", rank=number, pid=number + 1, world=12, backend="gloo", heard_s=3.0)
            found.event(node, joined)
        for step in (1, 9) if number < 2 else ():
            at = step / (4.0 + number)
            event = Event(what="step", rank=number, pid=number + 1, count=step, at=at, heard_s=5.0 + step)
            found.event(node, event)
    found.output("gpu-a01", 0, b"epoch 0\nstep 9: loss 0.25\n", 14.0)
    found.output("gpu-a05", 0, b"RuntimeError: out of memory\n", 9.0)
    found.run("gpu-a05", 0, RunState(state="ended", code=-9, at_s=9.0))
    found.lost["gpu-a06"] = "no answer: the session ended"
    return found


def shown(picture: Picture, width: int) -> list[str]:
    lines = [*page.head(picture, width), page.columns(width), *page.table(picture, width)]
    assert max(len(one.text) for one in lines) <= width
    return [one.text.rstrip() for one in lines]


def test_at_80_columns() -> None:
    assert shown(picture_of(job(), 15.2, 120.0, RANKS), 80) == [
        " TRYING   4 of 12 ranks joined, step 9, 4 steps/s                   15 of 120 s",
        "node                 state       ranks   first   steps steps/s  last line",
        "gpu-a05              failed        0/2                          killed: Runtim..",
        "gpu-a06              lost          0/2                          no answer: the..",
        "gpu-a04              starts        0/2",
        "gpu-a03              waits         0/2",
        "gpu-a02              joined        2/2",
        "gpu-a01              steps         2/2   6.0 s       9       4  step 9: loss 0..",
    ]


def test_at_60_columns() -> None:
    rows = shown(picture_of(job(), 15.2, 120.0, RANKS, "4 of 8 nodes"), 60)
    assert rows[0] == " TRYING   4 of 12 ranks joined, step 9          15 of 120 s"
    assert rows[1] == "node         state       ranks   first steps/s  last line"
    assert rows[-1] == "gpu-a01      steps         2/2   6.0 s       4  step 9: lo.."


def test_steps_that_stop_are_quiet() -> None:
    (row,) = [one for one in picture_of(job(), 60.0, 120.0, RANKS).rows if one.name == "gpu-a01"]
    assert row.state == "quiet"


def test_steps_of_a_log_alone() -> None:
    found = Follower(["n0"], [1])
    found.output("n0", 0, b"step 1\n", 2.0)
    found.output("n0", 0, b"step 11\n", 7.0)
    (row,) = picture_of(found, 8.0, 60.0, {"n0": 4}).rows
    assert (row.state, row.first_step_s, row.steps, row.rate, row.ranks) == ("steps", 2.0, 11, 2.0, 4)


def test_a_job_that_is_over_has_ended_and_not_failed() -> None:
    found = Follower(["n0", "n1"], [1, 1])
    found.run("n0", 0, RunState(state="ended", code=0))
    found.run("n1", 0, RunState(state="failed", errno=2, what="exec"))
    rows = {one.name: one for one in picture_of(found, 8.0, 60.0, {}).rows}
    assert (rows["n0"].state, rows["n1"].state, rows["n1"].last) == ("ended", "failed", "not started (exec)")


def thousands(bad: int) -> Follower:
    nodes = [f"gpu{n:04d}" for n in range(4096)]
    found = Follower(nodes, [1] * len(nodes))
    for number in range(8 * len(nodes)):
        node = nodes[number // 8]
        found.event(node, Event(what="joined", rank=number, pid=1 + number % 8, world=32768, heard_s=3.0))
    for node in nodes[:bad]:
        found.run(node, 0, RunState(state="ended", code=1))
    return found


@pytest.mark.parametrize(("bad", "rows", "left_out"), [(0, 1, 0), (3, 4, 0), (1000, BAD_MAX + 1, 800)])
def test_thousands_of_ranks_are_few_rows(bad: int, rows: int, left_out: int) -> None:
    found = thousands(bad)
    began = time.process_time()
    picture = picture_of(found, 10.0, 120.0, {})
    assert time.process_time() - began < 3.0
    assert (len(picture.rows), picture.left_out, picture.nodes) == (rows, left_out, 4096)
    assert [row.is_bad for row in picture.rows] == [True] * (rows - 1) + [False]
    assert picture.rows[-1].name.startswith(f"{4096 - bad} nodes gpu[")
    assert (picture.rows[-1].joined, picture.rows[-1].ranks) == (8 * (4096 - bad),) * 2
    assert len(shown(picture, 80)) == rows + 2 + (left_out > 0)


@each_of(HOSTILE)
def test_hostile_text_is_inert(attack: str) -> None:
    text = HOSTILE[attack]
    found = Follower([text], [1])
    found.output(text, 0, text.encode("utf-8", "surrogatepass") + b"\n", 1.0)
    found.lost[text] = text
    picture = dataclasses.replace(picture_of(found, 1.0, 60.0, {}), what=text)
    lines = [*page.head(picture, 80), *page.table(picture, 80)]
    assert not [c for one in lines for c in one.text if ord(c) < 32 or 127 <= ord(c) < 160]


# --- the application ---------------------------------------------------------------------------------------


class Trial:
    """A trial that does nothing but to be over when it is told, or asked to end."""

    def __init__(self, picture: Picture) -> None:
        self.picture, self.over, self.stops = picture, False, 0

    def stop(self) -> None:
        self.stops += 1

    def app(self) -> TrialApp:
        return TrialApp(lambda: self.picture, lambda: self.over, self.stop)


def drive(app: TrialApp, size: tuple[int, int], *steps: str | Callable[[], object]) -> list[str]:
    """Press keys or call functions; the last picture, empty where the application has left."""

    async def work() -> list[str]:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            for step in steps:
                if isinstance(step, str):
                    await pilot.press(step)
                else:
                    step()
                    app.draw()
                await pilot.pause()
            return screen_text(app) if app.is_running and not app._exit else []

    return asyncio.run(work())


@pytest.mark.parametrize("size", [(80, 24), (60, 16)])
def test_the_screen(size: tuple[int, int]) -> None:
    screen = drive(Trial(picture_of(job(), 15.2, 120.0, RANKS)).app(), size)
    assert len(screen) == size[1]
    assert screen[0].startswith(" TRYING   4 of 12 ranks joined")
    assert [row[1:8] for row in screen[2:8]] == [f"gpu-a{n:02d}" for n in (5, 6, 4, 3, 2, 1)]
    assert screen[-3:] == [" gpu-a05: killed: RuntimeError: out of memory", "", " q end the trial"]
    assert all(one.isascii() and len(one) <= size[0] for one in screen)


def test_it_follows_the_trial_and_leaves_when_that_is_over() -> None:
    trial = Trial(picture_of(job(), 15.2, 120.0, RANKS))

    def go_on() -> None:
        trial.picture = dataclasses.replace(trial.picture, seconds=16.2, joined=12)

    assert drive(trial.app(), (80, 24), go_on)[0].startswith(" TRYING   12 of 12 ranks joined")

    def end() -> None:
        trial.over = True

    app = trial.app()
    assert drive(app, (80, 24), end) == []
    assert (trial.stops, app.hurried) == (0, False)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_q_ends_the_trial_and_waits_for_it(key: str) -> None:
    trial = Trial(picture_of(job(), 15.2, 120.0, RANKS))
    app = trial.app()
    screen = drive(app, (80, 24), key)
    assert trial.stops == 1
    assert screen[0].startswith(" ENDING ")
    assert screen[-1] == " q ends the job on all nodes; q does not wait"


def test_a_second_q_does_not_wait() -> None:
    trial = Trial(picture_of(job(), 15.2, 120.0, RANKS))
    app = trial.app()
    assert drive(app, (80, 24), "q", "q") == []
    assert (trial.stops, app.hurried) == (1, True)


def test_the_row_under_the_cursor_is_read_in_full() -> None:
    screen = drive(Trial(picture_of(job(), 15.2, 120.0, RANKS)).app(), (60, 16), "down")
    assert screen[-3] == " gpu-a06: no answer: the session ended"


def test_rows_scroll_below_the_names_of_columns() -> None:
    rows = tuple(Row(name=f"n{n:03d}", state="failed", ranks=1, joined=0) for n in range(200))
    screen = drive(Trial(Picture(limit_s=60.0, rows=rows)).app(), (60, 16), "G")
    assert screen[1].split()[0] == "node"
    assert screen[-4].split()[0] == ">n199"
