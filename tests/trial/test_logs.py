"""The logs of a trial: bounded, with their end, and without harm from a full disk."""

from pathlib import Path

import pytest

from netdoctor.trial import logs as module
from netdoctor.trial.logs import Logs


def test_the_beginning_and_the_end_of_a_flood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILE_MAX", 100)
    monkeypatch.setattr(module, "TAIL_MAX", 50)
    logs = Logs(tmp_path / "x", 1)
    path = logs.path("n0", 0, 1)
    for i in range(100):
        logs.write(path, b"line %02d\n" % i)
    logs.close()
    text = path.read_text()
    assert text.startswith("line 00\nline 01\n")
    assert text.endswith("line 98\nline 99\n")
    assert "[netdoctor: 650 bytes of output were left out here]" in text
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_a_node_left_out_is_said_where_it_was(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "x", 1)
    logs.write(logs.path("n0", 0, 1), b"before", 17)
    logs.close()
    text = (tmp_path / "x" / "n0.log").read_text()
    assert text == "before\n[netdoctor: 17 bytes of output were left out here]\n"


def test_names_of_nodes_stay_in_the_folder(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "x", 2)
    for node in ("../../etc/passwd", "..", "a/b", "\x1b[2J", ""):
        assert logs.path(node, 1, 2).parent == tmp_path / "x"


def test_nodes_that_are_spelt_nearly_alike_have_files_of_their_own(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "x", 3)
    paths = [logs.path(node, 0, 1) for node in ("a:1", "a_1", "a/1")]
    assert len(set(paths)) == 3
    assert [logs.path(node, 0, 1) for node in ("a:1", "a_1", "a/1")] == paths


def test_a_full_disk_ends_the_logs_and_not_the_trial(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "x", 1)
    logs.write(Path("/dev/full"), b"text")
    logs.write(Path("/dev/full"), b"more")
    logs.close()
    assert logs.fault == "/dev/full: No space left on device"


def test_a_folder_that_is_there_is_not_written_into(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        Logs(tmp_path, 1)
