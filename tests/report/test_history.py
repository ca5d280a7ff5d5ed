"""Earlier reports beside the last one: bounded, private, in order."""

import dataclasses
import os
import stat
from pathlib import Path

import pytest

from netdoctor.report import history
from netdoctor.report.history import before, reports
from netdoctor.report.model import Report
from netdoctor.report.save import load, save
from tests.report.build import sample_report


def ended(second: int, state: str = "ready", id: str = "0123456789abcdef") -> Report:
    report = sample_report(state)
    finished = f"2026-01-02T03:04:{second:02d}.500Z"
    return dataclasses.replace(report, run=dataclasses.replace(report.run, id=id, finished=finished))


@pytest.fixture
def last(tmp_path: Path) -> Path:
    return tmp_path / ".netdoctor" / "last.json"


def test_a_report_outlives_the_next_one_and_is_as_private(last: Path) -> None:
    first, second = save(ended(1, "not_ready"), last), save(ended(2), last)
    assert load(last) == second
    assert [one.finished for one in reports(last)] == [second.run.finished, first.run.finished]
    assert load(reports(last)[1].path).causes == first.causes
    folder = last.parent / "history"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.path.stat().st_mode) for one in reports(last)} == {0o600}
    assert before(second, last) == reports(last)[1].path
    assert before(first, last) is None


def test_the_oldest_are_forgotten_by_number_and_by_size(last: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT_MAX", 3)
    for second in range(5):
        save(ended(second), last)
    assert [one.finished[17:19] for one in reports(last)] == ["04", "03", "02"]
    monkeypatch.setattr(history, "BYTES_MAX", 1)
    save(ended(9), last)
    assert [one.finished[17:19] for one in reports(last)] == ["09", "04"]


def test_without_second_names_the_bytes_are_written_again(
    last: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object, **options: object) -> None:
        raise OSError("no hard links here")

    monkeypatch.setattr(os, "link", refused)
    save(ended(1, "not_ready"), last)
    save(ended(2), last)
    assert [load(one.path).verdict.state for one in reports(last)] == ["ready", "not_ready"]


def test_only_the_usual_place_has_a_history(tmp_path: Path) -> None:
    save(ended(1), tmp_path / "mine.json")
    assert os.listdir(tmp_path) == ["mine.json"]


@pytest.mark.parametrize("id", ["../../x/..", "", "ZZZZZZZZ"])
def test_a_stranger_s_run_names_no_file(last: Path, id: str) -> None:
    save(ended(1, id=id), last)
    assert reports(last) == []
    assert os.listdir(last.parent) == ["last.json"]


def test_a_link_in_its_place_is_not_followed(last: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    last.parent.mkdir()
    (last.parent / "history").symlink_to(elsewhere)
    saved = save(ended(1), last)
    assert load(last) == saved
    assert os.listdir(elsewhere) == []
