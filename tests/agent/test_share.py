"""The write test of folders, on real files: what is written is read by others, and gone in any case."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdoctor.agent.facts import places as facts_places
from netdoctor.agent.operations import share as op_share
from netdoctor.agent.system import mounts
from netdoctor.measure import sharing
from tests.scan.harness import until

from .harness import AgentProcess

TOKEN = "0123456789abcdef" * 2
OTHER = "f" * 32


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    op_share._close_all()


def test_one_writes_and_others_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_share, "UNCACHED_S", 0.1)
    here, link, file = tmp_path / "here", tmp_path / "link", tmp_path / "file"
    here.mkdir()
    link.symlink_to(here)
    file.write_text("mine")
    paths = [str(one) for one in (here, link, file, tmp_path / "none")]
    rows = op_share.share({"paths": paths, "token": TOKEN, "number": 3})
    # The second meets the first one's file, through a link to the folder, and leaves it alone.
    assert [(row["error"], row["step"]) for row in rows] == [
        ("", ""), ("EEXIST", "create"), ("ENOTDIR", "folder"), ("ENOENT", "folder"),
    ]  # fmt: skip
    (name,) = os.listdir(here)
    assert name.startswith(sharing.PREFIX)
    assert name == op_share.name_of(TOKEN, 3)
    assert (here / name).stat().st_mode & 0o777 == 0o600
    assert (here / name).stat().st_size == op_share.SIZE_BYTES
    # What others put there in another node's name is not taken for that node's, and a link is not followed.
    (here / op_share.name_of(TOKEN, 4)).write_bytes(op_share.content_of(TOKEN, 5))
    (here / op_share.name_of(TOKEN, 5)).symlink_to(file)
    reads = op_share.read({"token": TOKEN, "reads": {paths[0]: [3, 4, 5, 6], paths[3]: [3]}})
    errors = [row["error"] for row in reads]
    assert errors[:4] == ["", "other bytes", "ELOOP", "ENOENT"]
    assert errors[4] != ""
    assert op_share.remove({"token": TOKEN, "others": [4, 5, 6]}) == {}
    assert (os.listdir(here), file.read_text()) == ([], "mine")
    assert op_share.read({"token": TOKEN, "reads": {paths[0]: [3]}})[0]["error"] == facts_places.HUNG


def test_nothing_is_written_over(tmp_path: Path) -> None:
    target = tmp_path / "target"
    for make in (lambda at: at.symlink_to(target), lambda at: at.write_text("mine"), lambda at: at.mkdir()):
        place = tmp_path / op_share.name_of(TOKEN, 1)
        make(place)
        (row,) = op_share.share({"paths": [str(tmp_path)], "token": TOKEN, "number": 1})
        assert row["error"] == "EEXIST"
        op_share._close_all()
        assert place.is_symlink() or place.exists()
        assert not target.exists()
        place.rmdir() if place.is_dir() else place.unlink()
    for token in ("", "../x", "A" * 32, TOKEN + "/"):
        with pytest.raises(ValueError, match="token"):
            op_share.share({"paths": [str(tmp_path)], "token": token, "number": 1})


def test_a_cached_folder_is_waited_for_as_its_mount_says() -> None:
    for kind, options, seconds in (
        ("nfs4", "rw,vers=4.2", 60.0),
        ("nfs", "rw,acdirmin=3,acdirmax=5", 5.0),
        ("nfs", "rw,acdirmax=86400", 120.0),
        ("nfs4", "rw,actimeo=0", 0.0),
        ("ext4", "rw,acdirmax=9", 0.0),
    ):
        mount = mounts.Mount("/data", kind, "x:/e", "/", "rw", options)
        assert op_share.cached_s(mount) == seconds, (kind, options)
    assert op_share.cached_s(None) == 0.0


@pytest.mark.process
def test_every_end_of_an_agent_removes_its_file(tmp_path: Path) -> None:
    for end in (signal.SIGKILL, signal.SIGTERM, None):
        with AgentProcess() as agent:
            args = {"paths": [str(tmp_path)], "token": TOKEN, "number": 7}
            (row,) = agent.request("share", args)
            assert (row["error"], os.listdir(tmp_path)) == ("", [op_share.name_of(TOKEN, 7)])
            if end is None:
                assert agent.process.stdin is not None
                agent.process.stdin.close()
            else:
                agent.process.send_signal(end)
            agent.process.wait(timeout=20)
            # A child takes it away, which need not be through when the agent is killed.
            until(lambda: not os.listdir(tmp_path), "the file is left", 20)
