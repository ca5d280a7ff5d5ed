"""The line that says what goes on."""

import io
import time

from netdoctor.cli.progress import Progress
from netdoctor.engine.run import Progress as Event


def line(event: Event) -> str:
    progress = Progress(io.StringIO(), 4)
    progress.update(event)
    return progress._line()


def test_a_phase_counts_its_nodes() -> None:
    assert line(Event(phase="connect", done=1, total=4)) == "scan 00:00  connect 1/4"


def test_experiments_with_a_budget_count_down() -> None:
    ends = time.monotonic() + 12.5
    assert line(Event(phase="tcp", total=4, ends=ends)) == "scan 00:00  tcp 0/4  at most 13 s left"
    assert line(Event(phase="tcp", total=4, ends=time.monotonic() - 1)) == "scan 00:00  tcp 0/4"


def test_trouble_of_strangers_steers_no_terminal() -> None:
    progress = Progress(io.StringIO(), 9)
    for number in range(5):
        progress.update(
            Event(phase="connect", done=number, total=9, node=f"n{number}\x1b[2J", text="re\rfused")
        )
    shown = progress._line()
    assert shown.isprintable()
    assert shown.endswith("and 2 more")
