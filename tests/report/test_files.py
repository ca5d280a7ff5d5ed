"""Saving, loading, choosing outputs, and the commands on top."""

import argparse
import dataclasses
import errno
import io
import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from netdoctor.errors import InputError
from netdoctor.report.cli import add_parser
from netdoctor.report.formats.json_ import ReportError, dumps
from netdoctor.report.model import Report
from netdoctor.report.output import (
    FORMATS,
    UTF_8,
    Output,
    RenderOptions,
    deliver,
    emit,
    parse_output,
    parse_outputs,
    render,
)
from netdoctor.report.save import load, save, write_whole
from tests.report.build import sample_report, with_evidence

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


def test_saved_report_comes_back_and_knows_its_file(tmp_path: Path) -> None:
    path = tmp_path / ".netdoctor" / "last.json"
    saved = save(sample_report("not_ready"), path)
    assert saved.run.saved_to == str(path)
    assert load(path) == saved
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["last.json"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o644), (0o077, 0o600)])
def test_a_named_output_is_for_others_to_read_and_what_is_saved_is_not(
    tmp_path: Path, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        emit(sample_report("ready"), Output("prom", tmp_path / "netdoctor.prom"))
        save(sample_report("ready"), tmp_path / "saved.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "netdoctor.prom").stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "saved.json").stat().st_mode) == 0o600


def test_other_folders_are_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        save(sample_report("ready"), tmp_path / "missing" / "a.json")


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failed_save_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "a.json"
    save(sample_report("ready"), path)
    before = path.read_bytes()

    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, broken, full)
    with pytest.raises(OSError, match="No space"):
        save(sample_report("not_ready"), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_link_stays_a_link_and_a_pipe_a_pipe(tmp_path: Path) -> None:
    target, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(target)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    write_whole(Path("/dev/null"), b"gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_long_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    write_whole(path, b"x")
    assert path.read_bytes() == b"x"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(lambda p: None, "no such file", id="missing"),
        pytest.param(lambda p: p.mkdir(), "is a folder", id="folder"),
        pytest.param(os.mkfifo, "not a regular file", id="pipe"),
        pytest.param(lambda p: p.write_bytes(b""), "empty", id="empty"),
        pytest.param(lambda p: p.write_text("gpu1\n"), "a hosts file, not a report", id="hosts file"),
    ],
)
def test_loading_names_the_file_and_the_reason(tmp_path: Path, make, said: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "r.json"
    make(path)
    with pytest.raises(ReportError, match=said) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_outputs_are_parsed() -> None:
    assert parse_output("junit=report.xml") == Output("junit", Path("report.xml"))
    assert parse_output("json=a=b.json") == Output("json", Path("a=b.json"))
    assert parse_output("json") == parse_output("json=-") == Output("json")
    assert parse_outputs([]) == [Output("text")]
    assert len(parse_outputs(["text", "json=a", "junit=b"])) == 3


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["junitt"], "did you mean junit"),
        (["md=x"], "there are: text|did you mean"),
        ([""], "there are: text, short"),
        (["JSON"], "did you mean json"),
        (["json="], "the file is missing"),
        (["none=x"], "write: -o none"),
        (["json=a\0b"], "NUL"),
        (["text", "json"], "both go to stdout"),
        (["json", "json"], "both go to stdout"),
        (["none", "json"], "contradict"),
    ],
)
def test_clashing_outputs_are_refused(texts: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_outputs(texts)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_renders_and_is_written_whole(name: str, tmp_path: Path) -> None:
    report = sample_report("not_ready")
    shown = render(report, name)
    data = shown if isinstance(shown, bytes) else shown.encode()
    assert name == "none" or data.endswith(b"\n")
    emit(report, Output(name, tmp_path / "out"))
    if name != "none":
        assert (tmp_path / "out").read_bytes() == data


def test_files_have_no_colour_of_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    emit(sample_report("not_ready"), Output("text", tmp_path / "a"))
    assert b"\x1b" not in (tmp_path / "a").read_bytes()


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


TITLE = "größer µs ☃"


def titled(title: str) -> Report:
    report = sample_report("not_ready")
    return dataclasses.replace(report, causes=(dataclasses.replace(report.causes[0], title=title),))


def shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, encoding: str = "utf-8", color: str = "auto") -> str:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Terminal(raw, encoding=encoding))
    emit(titled(TITLE), Output("text"), RenderOptions(color=color))
    return raw.getvalue().decode(encoding)


def test_colour_on_a_terminal_unless_it_or_the_user_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[31;1mNOT READY" in shown_on_a_terminal(monkeypatch)
    assert "\x1b" not in shown_on_a_terminal(monkeypatch, color="never")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in shown_on_a_terminal(monkeypatch)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown_on_a_terminal(monkeypatch)
    assert "\x1b" in shown_on_a_terminal(monkeypatch, color="always")


@pytest.mark.parametrize(
    ("encoding", "title"),
    [("ascii", r"gr\xf6\xdfer \xb5s \u2603"), ("latin-1", r"größer µs \u2603"), ("utf-8", "größer µs ☃")],
)
def test_a_terminal_shows_the_letters_that_it_has(
    monkeypatch: pytest.MonkeyPatch, encoding: str, title: str
) -> None:
    assert f"FAIL  {title}  " in shown_on_a_terminal(monkeypatch, encoding, color="never")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("name", UTF_8)
def test_what_is_utf_8_by_itself_stays_so_on_any_stdout(
    monkeypatch: pytest.MonkeyPatch, encoding: str, name: str
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    emit(titled(TITLE), Output(name))
    assert (TITLE in raw.getvalue().decode("utf-8")) == (name != "prom")


class Reader(io.RawIOBase):
    """Takes so many bytes, and leaves."""

    def __init__(self, wants: int) -> None:
        self.wants = wants

    def writable(self) -> bool:
        return True

    def write(self, data: "Buffer") -> int:
        taken = min(self.wants, memoryview(data).nbytes)
        if not taken:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        self.wants -= taken
        return taken


@pytest.mark.parametrize(("wants", "code"), [(0, 5), (1000, 0), (1 << 20, 0)])
def test_a_reader_who_leaves_after_the_verdict_spoils_nothing(
    monkeypatch: pytest.MonkeyPatch, wants: int, code: int
) -> None:
    raw = Reader(wants)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8"))
    assert (
        deliver(sample_report("ready"), [Output("text")], RenderOptions(), save=None, redact=False)[0] == code
    )
    raw.wants = 1 << 20  # for what Python writes when the stream goes
    sys.stdout.flush()


def command(*argv: str) -> int:
    parser = argparse.ArgumentParser(prog="netdoctor")
    add_parser(parser.add_subparsers())
    args = parser.parse_args(argv)
    return int(args.run(args))


def test_show_prints_what_the_scan_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "last.json"
    report = save(with_evidence(sample_report("not_ready")), path)
    for flags, options in (
        ([], RenderOptions()),
        (["-v"], RenderOptions(verbosity=1)),
        (["-q"], RenderOptions(verbosity=-1)),
        (["--width", "60"], RenderOptions(width=60)),
        (["--all", "--color", "always"], RenderOptions(all_causes=True, color="always")),
    ):
        assert command("report", "show", str(path), *flags) == 0
        assert capsys.readouterr().out == render(report, "text", options)


def test_show_takes_the_last_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("report", "show") == 2
    assert "no such file; netdoctor scan writes it" in capsys.readouterr().err
    save(sample_report("ready"))
    assert command("report", "show") == 0
    assert capsys.readouterr().out.endswith("READY, exit 0, 11.8 s\n")


def test_a_file_that_is_no_report_is_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\x1b[31m.json"
    path.write_text("{")
    assert command("report", "show", str(path)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "\x1b" not in err
    assert err.count("\n") == 1
    assert "not JSON" in err


def test_convert_writes_several_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(dumps(sample_report("not_ready")))
    assert command("report", "convert", str(path)) == 2
    assert "-o FORMAT" in capsys.readouterr().err
    flags = ["-o", f"junit={tmp_path / 'j.xml'}", "-o", f"markdown={tmp_path / 'm.md'}", "-o", "json"]
    assert command("report", "convert", str(path), *flags) == 0
    assert (tmp_path / "j.xml").read_text().startswith("<?xml")
    assert (tmp_path / "m.md").read_text().startswith("## NOT READY")
    assert json.loads(capsys.readouterr().out)["schema"] == "netdoctor.report/1"
    assert command("report", "convert", str(path), "-o", f"json={tmp_path / 'no' / 'x'}") == 2


def test_schema_prints_the_packaged_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("schema", "report") == 0
    assert json.loads(capsys.readouterr().out)["title"] == "netdoctor.report/1"


def test_importing_the_report_is_light() -> None:
    code = (
        "import sys, netdoctor.report, netdoctor.report.output, netdoctor.report.cli;"
        "heavy = {'rich', 'textual', 'fabric', 'paramiko', 'asyncio', 'jsonschema', 'msgspec',"
        " 'ClusterShell', 'xml.etree.ElementTree', 'yaml'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_not_a_success(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(dumps(sample_report("ready")))
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "netdoctor", "report", "show", str(path)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 5
    assert "No space left" in done.stderr


def test_a_report_under_another_name_points_at_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--last` alone is by then another report, perhaps of another cluster."""
    monkeypatch.chdir(tmp_path)
    report = sample_report()
    again = ("netdoctor", "scan", "--last")
    settled = [dataclasses.replace(cause, settle_by="netdoctor scan --last -j 8") for cause in report.causes]
    save(dataclasses.replace(report, causes=tuple(settled)))
    kept = load()
    Path("six.json").write_bytes(Path(".netdoctor/last.json").read_bytes())
    for path in ("six.json", "a b.json"):
        Path("six.json").rename(path)
        found = load(Path(path))
        assert found.run.saved_to == path
        for cause, before in zip(found.causes, kept.causes, strict=True):
            assert cause.verify is not None
            assert before.verify is not None
            assert cause.verify.argv == (*again, "--save", path, *before.verify.argv[3:])
            assert shlex.split(cause.verify.shell) == list(cause.verify.argv)
            assert cause.settle_by == f"{shlex.join((*again, '--save', path))} -j 8"
        Path(path).rename("six.json")
    assert load() == load(Path(".netdoctor/last.json").absolute()) == kept
    text = str(render(load(Path("six.json")), "text"))
    assert "--last --save six.json --only" in text
    assert "report    six.json    netdoctor report show -v six.json" in text


@pytest.mark.parametrize(("said", "width"), [("70", 70), ("9", 40), ("", 100), ("wide", 100), ("0", 100)])
def test_an_exported_number_of_columns_holds_through_a_pipe(
    said: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", said)
    report = sample_report("not_ready")
    file = Output("text", tmp_path / "report.txt")
    deliver(report, [Output("text"), file], RenderOptions(), save=None, redact=False)
    assert capsys.readouterr().out == render(report, "text", RenderOptions(width=width))
    assert (tmp_path / "report.txt").read_text() == render(report, "text", RenderOptions(width=100))
    deliver(report, [Output("text")], RenderOptions(width=90), save=None, redact=False)
    assert capsys.readouterr().out == render(report, "text", RenderOptions(width=90))
