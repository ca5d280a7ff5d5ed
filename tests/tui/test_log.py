"""A log beside a report: causes of both in one list."""

from pathlib import Path

import pytest

from netdoctor.cli.tui_log import NOTHING, causes
from netdoctor.errors import InputError
from netdoctor.report.model import Cause
from netdoctor.tui.events import Ended
from netdoctor.tui.runner import Request
from netdoctor.tui.state import State, opened
from tests.hostile import HOSTILE
from tests.report.build import sample_report
from tests.tui.harness import SIZES, FakeRunner, application, drive

SHM = "[rank3]: Error while creating shared memory segment /dev/shm/nccl-1YsMbG (size 7340384)\n"


def log(folder: Path, text: str = SHM) -> tuple[Cause, ...]:
    (folder / "rank_3.log").write_text(text, "utf-8", "surrogateescape")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return causes(["rank_3.log"])


def app(found: tuple[Cause, ...], runner: FakeRunner | None = None):
    started = application(sample_report(), runner=runner)
    started.state = opened(sample_report(), State(log=found))
    started.known = type(started.known)(started.state.report, found)
    return started


@pytest.mark.pilot
@pytest.mark.parametrize("size", ["80", "60x16"])
def test_causes_of_both_are_in_one_list(size: str, tmp_path: Path):
    found = log(tmp_path)
    assert [(c.key, c.checks, c.status) for c in found[:1]] == [("log:shm_too_small", ("host.shm",), "fail")]
    place = (60, 16) if size == "60x16" else SIZES[size]
    picture = "\n".join(drive(app(found), place))
    assert "[1] FAIL" in picture
    steps = ["end"] if size == "60x16" else []
    whole = picture + "\n".join(drive(app(found), place, *steps))
    assert "[L1] FAIL" in whole
    assert "/dev/shm is too small" in whole
    first = "\n".join(drive(app(found), place, open_log))
    assert "[L1] FAIL" in first
    picture = first + "\n".join(drive(app(found), place, open_log, *["pagedown"] * len(steps)))
    assert "rank_3.log:1" in picture
    assert "Error while creating shared" in " ".join(picture.split())


def open_log(shown, _pilot) -> None:
    shown.show_view("cause", cause=shown.known.key_of(shown.state.log[0]))


@pytest.mark.pilot
def test_checks_that_decide_are_run_from_the_log_and_the_log_stays(tmp_path: Path):
    found = log(tmp_path)
    runner = FakeRunner(lambda request, report: [Ended(1.0, sample_report())])
    started = app(found, runner)
    picture = "\n".join(drive(started, SIZES["100"], open_log, "r", "escape"))
    checks = tuple(c for c in ("host.shm",) if c in started.state.cells.checks) or None
    assert runner.asked == [Request(checks=checks)]
    assert started.state.log == found
    assert "[L1]" in picture
    assert "+1 log" in picture


@pytest.mark.pilot
def test_hostile_logs_steer_nothing(tmp_path: Path):
    lines = [SHM.replace("nccl-1YsMbG", f"nccl-{text}[/b][red]") for text in HOSTILE.values()]
    found = log(tmp_path, "".join(lines).replace("\ud800", "?"))
    for size in ((80, 24), (60, 16)):
        for line in drive(app(found), size, open_log):
            assert "\x1b" not in line
            assert line.isprintable(), ascii(line)
    picture = "\n".join(drive(app(found), SIZES["160"], open_log))
    assert "[/b][red]" in picture


def test_what_nobody_knows_is_told_and_blamed_on_nobody(tmp_path: Path):
    (only,) = log(tmp_path, "all is well\n")
    assert (only.title, only.status, only.confidence) == (NOTHING, "unknown", "")
    with pytest.raises(InputError, match="no such file"):
        causes([str(tmp_path / "missing.log")])
