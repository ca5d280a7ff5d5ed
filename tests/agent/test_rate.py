"""The rate test of storage on real files: what is measured, what is bounded, and that nothing is left."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdoctor.agent import runtime
from netdoctor.agent.operations import rate as op_rate
from netdoctor.agent.operations import share as op_share
from netdoctor.measure.load import storage
from tests.scan.harness import until

from . import harness

TOKEN = "0123456789abcdef" * 2
MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own").mkdir()
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "own"))
    # Only an agent has the thread for it.
    monkeypatch.setattr(runtime, "normally", lambda function: function())
    yield
    op_rate._close_all()
    assert os.listdir(tmp_path / "own") == []


def steps(path: Path | str, *kinds: str, seconds: float = 0.3, part: int = 0) -> list[dict[str, Any]]:
    return [{"path": str(path), "kind": kind, "seconds": seconds, "part": part} for kind in kinds]


def opened(path: Path, number: int = 3, token: str = TOKEN) -> dict[str, dict[str, Any]]:
    args = {"path": str(path), "token": token, "number": number, "nodes": 2}
    return {row["path"]: row for row in op_rate.open_storage(args)}


def test_a_folder_is_written_read_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "path"
    (path / "mine").write_text("mine")
    rows = opened(path)
    assert {row["error"] for row in rows.values()} == {""}
    (name,) = set(os.listdir(path)) - {"mine"}
    assert name == f"{storage.PREFIX}{TOKEN}-3"
    assert (path / name).stat().st_mode & 0o777 == 0o700
    found = op_rate.run_storage(
        {"token": TOKEN, "steps": steps(path, "write", "read", "files") + steps("", "write")}
    )
    assert [(row["path"], row["kind"], row["error"]) for row in found] == [
        (str(path), "write", ""), (str(path), "read", ""), (str(path), "files", ""), ("", "write", ""),
    ]  # fmt: skip
    assert all(row["amount"] > 0 and 0.3 <= row["seconds"] < 5 for row in found), found
    (sample,) = (path / name).iterdir()
    assert sample.stat().st_size <= op_rate.SAMPLE_BYTES
    assert op_rate.close_storage({"token": TOKEN, "others": []}) == {}
    assert os.listdir(path) == ["mine"]
    assert op_rate.run_storage({"token": TOKEN, "steps": steps(path, "read")})[0]["error"] == "hangs"


def test_a_file_is_read_and_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "path/data"
    file.write_bytes(os.urandom(5 * MIB + 77))
    before = file.stat()
    assert opened(file)[str(file)]["file"] is True
    for part in (0, 1, 7):
        (row,) = op_rate.run_storage({"token": TOKEN, "steps": steps(file, "read", part=part)})
        assert (row["error"], row["amount"] >= 5 * MIB) == ("", True)
    for kind in ("write", "files"):
        (row,) = op_rate.run_storage({"token": TOKEN, "steps": steps(file, kind)})
        assert row["error"] in ("EBADF", "ENOTDIR"), row
    op_rate.close_storage({"token": TOKEN})
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert os.listdir(tmp_path / "path") == ["data"]


def test_what_cannot_be_measured_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "path/empty").touch()
    (tmp_path / "path/pipe").mkdir()
    os.mkfifo(tmp_path / "path/fifo")
    for i, (name, error) in enumerate((("none", "ENOENT"), ("empty", "empty"), ("fifo", "ENOTDIR"))):
        assert (
            opened(tmp_path / "path" / name, token=f"{i:032x}")[str(tmp_path / "path" / name)]["error"]
            == error
        )
    monkeypatch.setattr(op_rate, "MIN_BYTES", 1 << 60)
    assert opened(tmp_path / "path")[str(tmp_path / "path")]["error"] == "room"
    assert sorted(os.listdir(tmp_path / "path")) == ["empty", "fifo", "pipe"]
    for token in ("", "../x", "A" * 32, TOKEN + "/"):
        with pytest.raises(ValueError, match="token"):
            op_rate.open_storage({"path": str(tmp_path / "path"), "token": token, "number": 1})


def test_bytes_are_bounded_whatever_the_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_rate, "SAMPLE_BYTES", 8 * MIB)
    monkeypatch.setattr(op_rate, "MOVED_BYTES", {"write": 24 * MIB, "read": 24 * MIB, "files": 1 << 30})
    path = tmp_path / "path"
    opened(path)
    rows = op_rate.run_storage({"token": TOKEN, "steps": steps(path, "write", "read", seconds=99.0)})
    # To the end of the slice, and not of the time.
    assert all(row["full"] and row["seconds"] < op_rate.SECONDS_MAX for row in rows), rows
    (sample,) = (path / f"{storage.PREFIX}{TOKEN}-3").iterdir()
    assert sample.stat().st_size <= 8 * MIB


def test_what_others_have_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "path"
    old, new, odd = "a" * 32, "b" * 32, "c" * 32
    for token, number in ((old, 1), (new, 2), (odd, 3), (TOKEN, 5)):
        folder = path / f"{storage.PREFIX}{token}-{number}"
        folder.mkdir()
        (folder / "sample").write_bytes(b"x")
    (path / f"{storage.PREFIX}{odd}-3/letter").write_text("somebody's")
    (path / f"{storage.PREFIX}notes").mkdir()
    (path / f"{storage.PREFIX}{'d' * 32}-4").symlink_to(path / f"{storage.PREFIX}{new}-2")
    past = time.time() - 2 * op_rate.STALE_S
    for name in os.listdir(path):
        if new not in name and TOKEN not in name:
            os.utime(path / name, (past, past), follow_symlinks=False)
    opened(path)
    op_rate.close_storage({"token": TOKEN, "others": [5, 6]})
    assert sorted(os.listdir(path)) == sorted(
        [
            f"{storage.PREFIX}{new}-2",
            f"{storage.PREFIX}{odd}-3",
            f"{storage.PREFIX}notes",
            f"{storage.PREFIX}{'d' * 32}-4",
        ]
    )
    assert os.listdir(path / f"{storage.PREFIX}{odd}-3") == ["letter"]
    assert os.listdir(path / f"{storage.PREFIX}{new}-2") == ["sample"]


def test_the_names_are_those_of_the_experiment() -> None:
    assert op_rate.PREFIX == storage.PREFIX
    assert op_rate.Storage("/", TOKEN, 7, 0, 1).name == f"{storage.PREFIX}{TOKEN}-7"
    assert op_share.PREFIX != op_rate.PREFIX


@pytest.mark.process
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None])
def test_every_end_of_an_agent_removes_its_folder(tmp_path: Path, end: signal.Signals | None) -> None:
    """Killed, told to end, or without anybody that asks: also in the middle of a measurement."""
    path = tmp_path / "path"
    with harness.AgentProcess(env={**os.environ, "TMPDIR": str(tmp_path / "own")}) as agent:
        agent.request("open_storage", {"path": str(path), "token": TOKEN, "number": 1, "nodes": 1})
        agent.start("run_storage", {"token": TOKEN, "steps": steps(path, "write", seconds=5.0)})
        until(lambda: any(path.glob("*/sample")), "nothing is written", 20)
        if end is None:
            assert agent.process.stdin is not None
            agent.process.stdin.close()
        else:
            agent.process.send_signal(end)
        agent.process.wait(timeout=30)
        until(lambda: not os.listdir(path) and not os.listdir(tmp_path / "own"), "a folder is left", 30)


@pytest.mark.interpreters
@pytest.mark.parametrize("version", ["3.6", "3.8", "3.13"])
def test_other_pythons_measure_too(tmp_path: Path, version: str) -> None:
    python = harness.interpreters().get(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    path = tmp_path / "path"
    with harness.AgentProcess(python, env={**os.environ, "TMPDIR": str(tmp_path / "own")}) as agent:
        rows = agent.request("open_storage", {"path": str(path), "token": TOKEN, "number": 1, "nodes": 1})
        assert [row["error"] for row in rows] == ["", ""]
        found = agent.request("run_storage", {"token": TOKEN, "steps": steps(path, "write", "read", "files")})
        assert all(row["amount"] > 0 and not row["error"] for row in found), found
        assert agent.request("close_storage", {"token": TOKEN}) == {}
    assert os.listdir(path) == []
