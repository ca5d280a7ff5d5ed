"""`-o jsonl` while the scan runs."""

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from netdoctor import cli
from netdoctor.engine.run import Progress
from netdoctor.facts.host import Login, Session
from netdoctor.model import fail
from netdoctor.report.save import load
from netdoctor.scanning.live import Live
from tests.core.fake import saying
from tests.report import strict
from tests.report.build import sample_report
from tests.scanning.ground import Ground


def seen(path: Path, wanted: str) -> list[dict[str, Any]]:
    """The events in a file as soon as one of them has this text in it, within ten seconds."""
    ends = time.monotonic() + 10
    while wanted not in path.read_text():
        assert time.monotonic() < ends, f"no {wanted} in {path.read_text()}"
        time.sleep(0.001)
    return strict.jsonl(path.read_bytes())


def test_events_are_there_when_they_happen(ground: Ground) -> None:
    """The file has what happened while the scan goes on, and what the JSON report has at its end."""
    ground.checks.append(saying("net.x", fail("n2", "bad")))
    ground.transport.sessions["n2"] = Session(outcome=Login.REFUSED, stage="connect")
    path, before = Path("events.jsonl"), []
    path.write_text("of an earlier scan\n")

    def look(what: str, node: str) -> None:
        if (what, node) == ("login", "n3"):
            before.extend(seen(path, '"node":"n2"'))

    ground.transport.trip = look
    assert cli.run(["scan", "-q", "n[1-3]", "-o", "jsonl=events.jsonl", "-o", "json=report.json"]) == 1
    assert [event["event"] for event in before[:3]] == ["start", "progress", "node"]
    assert [target["id"] for target in before[0]["targets"]] == ["n1", "n2", "n3"]
    nodes = {event["node"]: event["reached"] for event in before if event["event"] == "node"}
    assert nodes == {"n1": True, "n2": False}
    events, report = strict.jsonl(path.read_bytes()), json.loads(Path("report.json").read_text())
    assert events[: len(before)] == before
    for kind, field in (("result", "results"), ("cause", "causes"), ("measure", "measures")):
        found = [event for event in events if event["event"] == kind]
        assert found == [{"event": kind, **item} for item in report[field]]
    end = events[-1]
    assert end == {"event": "end", **{name: report[name] for name in end if name != "event"}}
    assert end["run"]["id"] == before[0]["run"]["id"]
    assert path.stat().st_mode == Path("report.json").stat().st_mode


def test_an_interrupted_scan_leaves_whole_lines_and_an_end(ground: Ground) -> None:
    def stop(what: str, node: str) -> None:
        if (what, node) == ("login", "n2"):
            ground.transport.interrupt(KeyboardInterrupt())
            raise KeyboardInterrupt

    ground.transport.trip = stop
    assert cli.run(["scan", "-q", "n[1-3]", "-o", "jsonl=events.jsonl"]) == 130
    events = strict.jsonl(Path("events.jsonl").read_bytes())
    assert (events[0]["event"], events[-1]["event"]) == ("start", "end")
    assert (events[-1]["run"]["complete"], events[-1]["verdict"]["exit_code"]) == (False, 130)


def test_redacted_events_come_when_the_report_is_there(ground: Ground) -> None:
    def look(what: str, node: str) -> None:
        assert not Path("events.jsonl").exists()

    ground.transport.trip = look
    assert cli.run(["scan", "-q", "secret[1-3]", "--redact", "-o", "jsonl=events.jsonl"]) == 0
    assert "secret" not in Path("events.jsonl").read_text()
    assert strict.jsonl(Path("events.jsonl").read_bytes())[-1]["event"] == "end"


def test_a_pipe_gets_each_line_at_once(ground: Ground) -> None:
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    got: list[bytes] = []

    def look(what: str, node: str) -> None:
        ends = time.monotonic() + 10
        while (what, node) == ("login", "n2") and b'"node":"n1"' not in b"".join(got):
            assert time.monotonic() < ends
            try:
                got.append(os.read(reader, 1 << 16))
            except BlockingIOError:
                time.sleep(0.001)

    ground.transport.trip = look
    assert cli.run(["scan", "-q", "n[1-3]", "-o", "jsonl=pipe"]) == 0  # the pipe holds what is left
    while piece := os.read(reader, 1 << 16):
        got.append(piece)
    os.close(reader)
    assert strict.jsonl(b"".join(got))[-1]["event"] == "end"


@pytest.mark.parametrize(
    ("fails_at", "error", "raised"),
    [
        (0, OSError(errno.ENOSPC, "full"), True),
        (2, OSError(errno.ENOSPC, "full"), True),
        (0, BrokenPipeError(), True),
        (2, BrokenPipeError(), False),
    ],
)
def test_what_cannot_be_written_is_told_at_the_end(fails_at: int, error: OSError, raised: bool) -> None:
    """A reader that leaves after a part took what it wanted, as with everything else that is printed."""
    written: list[bytes] = []

    def write(line: bytes) -> None:
        if len(written) == fails_at:
            raise error
        written.append(line)

    live = Live(write)
    live.begin(sample_report("ready"))
    for done in range(5):
        live.update(Progress(phase="connect", done=done, total=5))
    if raised:
        with pytest.raises(type(error)):
            live.end(sample_report("ready"), "problems")
    else:
        live.end(sample_report("ready"), "problems")
    assert len(written) == fails_at


def test_a_file_that_cannot_be_written_is_bad_input(ground: Ground) -> None:
    Path("sub").mkdir()
    assert cli.run(["scan", "-q", "n[1-3]", "-o", "jsonl=sub"]) == 2
    assert ground.transport.started == []
    assert not Path(".netdoctor").exists()


def test_a_scan_saves_the_same_beside_its_events(ground: Ground) -> None:
    assert cli.run(["scan", "-q", "n[1-3]", "-o", "jsonl=events.jsonl"]) == 0
    assert load().run.id == strict.jsonl(Path("events.jsonl").read_bytes())[0]["run"]["id"]
