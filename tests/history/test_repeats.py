"""Nodes that fail again: records of scans, what is said of them, and a published trace replayed."""

import dataclasses
import json
import random
import stat
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from netdoctor.cli import run
from netdoctor.report import repeats
from netdoctor.report.formats.text import render
from netdoctor.report.model import Part, Report
from netdoctor.report.repeats import DAY_S, Failure, Record, by_node, failures, phrase, record_of, repeaters
from netdoctor.report.save import save
from tests.hostile import HOSTILE, each_of
from tests.report.build import sample_report

TRACE = Path(__file__).with_name("stepfun.csv")
NOW = datetime.now(timezone.utc).replace(microsecond=0)


def stamp(days_ago: float) -> str:
    return (NOW - timedelta(days=days_ago)).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def scan(days_ago: float, bad: dict[str, dict[str, str]] | None = None, profile: str = "launch") -> Record:
    good = ",".join(sorted({"n1", "n2", "n3"} - (bad or {}).keys()))
    return Record(at=stamp(days_ago), profile=profile, good=good, bad=bad or {})


def ecc(days_ago: float, repair: str = "reset-gpu") -> Record:
    return scan(days_ago, {"n2": {"gpu-ecc": repair}})


THIRD = ["n2: third gpu-ecc in 30 days"]
LOST = {"n2": {"ssh-refused": ""}}


def said(*records: Record) -> list[str]:
    nodes = by_node(failures(records))
    return [f"{name}: {phrase(nodes[name], NOW.timestamp())}" for name in repeaters(nodes, NOW.timestamp())]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([scan(20), scan(10), scan(0)], [], id="healthy"),
        pytest.param([ecc(20), ecc(10), ecc(0)], [], id="one failure that lasts"),
        pytest.param([ecc(20), scan(19), ecc(10), scan(9), ecc(0)], THIRD, id="three"),
        pytest.param([ecc(40), scan(39), ecc(10), scan(9), ecc(0)], [], id="the first is long ago"),
        pytest.param([ecc(20), scan(19), ecc(10), scan(9)], [], id="two"),
        pytest.param(
            [ecc(20), scan(19), ecc(10), scan(9), ecc(3), scan(2)],
            THIRD, id="usable now",
        ),
        pytest.param(
            [ecc(20), scan(19), scan(10, {"n2": {"ssh-refused": ""}}), scan(9), ecc(0)],
            ["n2: third failure in 30 days"], id="of several causes",
        ),
        pytest.param(
            [scan(20, {"n2": {"a": "", "b": "", "c": ""}}), scan(19)], [],
            id="three causes at once are one failure",
        ),
        pytest.param(
            [ecc(20), scan(19, profile="quick"), ecc(18), scan(17, profile="quick"), ecc(16)], [],
            id="a smaller scan proves no repair",
        ),
        pytest.param(
            [ecc(20), scan(19, LOST), ecc(10), scan(9, LOST), ecc(0)], [],
            id="a node that cannot be asked is not repaired",
        ),
    ],
)  # fmt: skip
def test_who_fails_again(records: list[Record], expected: list[str]) -> None:
    shuffled = records[:]
    random.Random(7).shuffle(shuffled)
    assert said(*shuffled) == expected


def report_of(state: str, days_ago: float, **changes: object) -> Report:
    report = sample_report(state)
    run_ = dataclasses.replace(report.run, finished=stamp(days_ago), id=f"{int(days_ago * 10):016x}")
    return dataclasses.replace(report, run=run_, **changes)  # type: ignore[arg-type]


def test_a_report_is_recorded_by_what_is_its_nodes_own() -> None:
    record = record_of(report_of("not_ready", 0))
    assert record is not None
    assert record.bad["gpu-a03"]["firewall-inbound"] is not None
    every = report_of("not_ready", 0)
    cause = dataclasses.replace(every.causes[0], node_list=every.matrix.nodes)
    together = record_of(dataclasses.replace(every, causes=(cause,)))
    assert together is not None
    assert together.bad == {}
    suspected = dataclasses.replace(every.causes[0], confidence="suspected")
    assert record_of(dataclasses.replace(every, causes=(suspected,))).bad == {}  # type: ignore[union-attr]


@pytest.mark.parametrize("change", ["part", "incomplete", "redacted", "foreign"])
def test_what_does_not_look_at_everything_is_no_record(change: str) -> None:
    report = report_of("ready", 0)
    if change == "part":
        part = Part(checks=1, of_checks=9, nodes=1, of_nodes=1)
        report = dataclasses.replace(report, verdict=dataclasses.replace(report.verdict, part=part))
    else:
        changes = {
            "incomplete": {"complete": False},
            "redacted": {"redacted": True},
            "foreign": {"foreign": "x"},
        }
        report = dataclasses.replace(report, run=dataclasses.replace(report.run, **changes[change]))  # type: ignore[arg-type]
    assert record_of(report) is None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".netdoctor" / "history"


def three_times() -> Report:
    """Saves scans in which gpu-a03 fails, is well, and fails again; returns the last report."""
    for days, state in ((20, "not_ready"), (19, "ready"), (10, "not_ready"), (9, "ready"), (1, "not_ready")):
        save(report := report_of(state, days))
    return report


def test_saved_scans_are_kept_as_lines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_times()
    assert len(repeats.records()) == 5
    assert stat.S_IMODE((folder / repeats.NAME).stat().st_mode) == 0o600
    monkeypatch.setattr(repeats, "BYTES_MAX", (folder / repeats.NAME).stat().st_size)
    save(report_of("ready", 0))
    kept = repeats.records()
    assert 1 < len(kept) < 6
    assert kept[-1].at == stamp(0)


def test_reports_from_before_there_were_records_count(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three_times()
    (folder / repeats.NAME).unlink()
    assert run(["history"]) == 1
    assert "third firewall-inbound" in capsys.readouterr().out


def test_lines_that_are_none_are_left_out(folder: Path) -> None:
    three_times()
    with (folder / repeats.NAME).open("ab") as file:
        file.write(b'{"at": "never", "profile": "quick"}\n{"at": 3}\n[[[\n\xff\n{"at": "2026-')
    assert len(repeats.records()) == 5


@pytest.mark.parametrize("good", ["n[", "n1,,n2", "n[1-99999999]", "n[1-9999][1-9999][1-9999]"])
def test_a_damaged_list_of_nodes_costs_no_report(folder: Path, good: str) -> None:
    report = three_times()
    line = json.dumps({"at": stamp(5), "profile": "launch", "good": good})
    with (folder / repeats.NAME).open("a") as file:
        file.write(f"{line}\n")
    assert len(repeats.records()) == 6
    assert "third firewall-inbound" in next(repeats.notes(report, repeats.records())).text


@pytest.mark.parametrize("name", ["fd00::1", "gpu-a01.site.example", "10.0.0.7", "n1"])
def test_every_kind_of_name_comes_back(name: str) -> None:
    report = report_of("ready", 0, healthy_nodes=(name, "n2"))
    record = record_of(report)
    assert record is not None
    began = scan(3, {name: {"gpu-ecc": ""}})
    assert [one.ended is not None for one in failures([began, record])] == [True]


def test_a_link_in_the_place_of_the_records_is_not_followed(folder: Path, tmp_path: Path) -> None:
    save(report_of("ready", 2))
    (folder / repeats.NAME).unlink()
    (tmp_path / "theirs").write_bytes(b"")
    (folder / repeats.NAME).symlink_to(tmp_path / "theirs")
    save(report_of("ready", 1))
    assert (tmp_path / "theirs").read_bytes() == b""


def test_a_report_says_who_fails_again(folder: Path) -> None:
    report = three_times()
    notes = list(repeats.notes(report, repeats.records()))
    assert [note.text for note in notes][:1] == [
        "gpu-a03 fails again: third firewall-inbound in 30 days; netdoctor history"
    ]
    assert "third firewall-inbound in 30 days" in render(dataclasses.replace(report, notes=tuple(notes)))
    healthy = list(repeats.notes(report_of("ready", 0), repeats.records()))
    assert "usable now" in healthy[0].text
    assert list(repeats.notes(report_of("ready", 0), [])) == []


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["history"]) == 2
    assert "scan first" in capsys.readouterr().err
    save(report_of("ready", 21))
    assert run(["history"]) == 0
    assert capsys.readouterr().out == "1 scan: 0 nodes failed, 0 again and again\n"
    three_times()
    assert run(["history", "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    row = next(one for one in found["nodes"] if one["node"] == "gpu-a03")
    assert (row["failures"], row["in_30_days"], row["back"]) == (3, 3, None)
    assert (row["since"], row["last"]) == (stamp(20)[:10], stamp(1)[:10])
    assert row["again"] == "third firewall-inbound in 30 days"
    assert run(["history", "gpu-a03"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[:3] == ["node", "failures", "30"]
    assert len(lines) == 4
    assert run(["history", "gpu-a01"]) == 0


def test_events_of_schedulers_count(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def local(days: float) -> str:
        return (NOW - timedelta(days=days)).astimezone().strftime("%Y-%m-%dT%H:%M:%S")

    rows = [f"{n}|NODE_FAIL|gpu09|{local(n)}" for n in (3, 5)]
    rows += [f"8|COMPLETED||{local(8)}", "9|RUNNING|None assigned|Unknown"]
    (tmp_path / "jobs.txt").write_text("\n".join(["JobID|State|FailedNode|End", *rows]) + "\n")
    about = {"kind": "Node", "name": "gpu09"}
    items: list[dict[str, object]] = [
        {"involvedObject": about, "type": "Normal", "reason": "NodeNotReady", "lastTimestamp": stamp(1)},
        {"involvedObject": about, "type": "Normal", "reason": "NodeReady", "lastTimestamp": stamp(0)},
        {
            "involvedObject": {"kind": "Pod", "name": "p"},
            "type": "Warning",
            "reason": "X",
            "lastTimestamp": stamp(0),
        },
    ]
    for item in items:
        item["metadata"] = {"creationTimestamp": stamp(50)}
    (tmp_path / "events.json").write_text(json.dumps({"items": items}))
    assert run(["history", "--events", "jobs.txt"]) == 0
    assert run(["history", "--events", "jobs.txt", "--events", "events.json"]) == 1
    assert "gpu09" in capsys.readouterr().out
    for text in (
        "",
        "{",
        '{"items": 3}',
        "JobID|State\n",
        '{"items": [{}]}',
        "State|FailedNode|End\nNODE_FAIL|n\n",
    ):
        (tmp_path / "odd").write_text(text)
        assert run(["history", "--events", "odd"]) == 2, text


@each_of(HOSTILE)
def test_hostile_names_print_nothing_but_text(attack: str) -> None:
    from netdoctor.cli.nodes.history import _row, _table

    one = Failure(HOSTILE[attack], HOSTILE[attack], 0.0, 1.0, HOSTILE[attack])
    nodes = by_node([one])
    for line in _table([_row(one.node, nodes[one.node], 2.0, False)], 1):
        assert line.isprintable()


def test_good_hosts_without_those_that_fail_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    three_times()
    save(report_of("ready", 0))
    assert run(["hosts", "good", "--to", "plain", "--yes-exclude"]) == 0
    both = capsys.readouterr().out
    assert run(["hosts", "good", "--without-repeaters", "--yes-exclude"]) == 0
    found = capsys.readouterr()
    assert ("gpu-a03" in both, "gpu-a03" in found.out) == (True, False)
    assert "fails again, so left out: gpu-a03, third firewall-inbound in 30 days" in found.err


def test_a_published_trace_replayed() -> None:
    """StepFun's: named at the third failure in 30 days, right where the node fails again in the next 180."""
    rows = [line.split(",") for line in TRACE.read_text().splitlines() if not line.startswith("#")]
    faults = [Failure(node, kind, float(a) * DAY_S, float(b) * DAY_S) for node, a, b, kind in rows]
    assert len(faults) == 584
    end, watched = max(one.ended or 0.0 for one in faults), 180 * DAY_S
    right = wrong = unknown = 0
    for node, found in by_node(faults).items():
        for one in found.failures:
            if node in repeaters({node: found}, one.began):
                later = [f for f in found.failures if f.began > one.began]
                again = bool(later) and later[0].began - (one.ended or 0.0) <= watched
                right += again
                wrong += not again and (one.ended or 0.0) + watched <= end
                unknown += not again and (one.ended or 0.0) + watched > end
                break
    assert (right, wrong, unknown) == (36, 4, 10)
    assert right / (right + wrong) >= 0.85
    assert wrong / (end / DAY_S) <= 0.84


def test_many_records_are_read_in_no_time() -> None:
    many = [scan(n % 300, {f"n{n % 50}": {"gpu-ecc": ""}}) for n in range(3000)]
    started = time.monotonic()
    failures(many)
    assert time.monotonic() - started < 5
