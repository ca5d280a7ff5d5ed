"""--write: all files or none, and nothing of anybody else's replaced."""

import json
import os
from pathlib import Path

import pytest

from netdoctor import launch
from netdoctor.errors import InputError
from netdoctor.launch import folder as folders
from tests.launch.build import evidence, planned, targets


def held(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir()} if place.exists() else {}


def test_a_plan_is_written_and_its_successor_takes_its_place(tmp_path: Path) -> None:
    place = tmp_path / "out"
    names = launch.write(planned(targets(3), evidence(3)), place)
    assert names == ["000-n1.sh", "001-n2.sh", "002-n3.sh", "plan.json"]
    assert os.access(place / "000-n1.sh", os.X_OK)
    assert json.loads((place / "plan.json").read_text())["schema"] == "netdoctor.plan/1"
    launch.write(planned(targets(2), evidence(2), "deepspeed"), place)
    assert set(held(place)) == {"hostfile", ".deepspeed_env", "run.sh", "plan.json"}
    (tmp_path / "empty").mkdir()
    launch.write(planned(targets(1)), tmp_path / "empty")
    assert {path.name for path in tmp_path.iterdir()} == {"out", "empty"}


def test_nothing_foreign_is_replaced(tmp_path: Path) -> None:
    plan = planned(targets(2), evidence(2))
    place = tmp_path / "out"

    def refused(match: str) -> None:
        before = held(place) if place.is_dir() else place.read_bytes()
        with pytest.raises(InputError, match=match):
            launch.write(plan, place)
        assert before == (held(place) if place.is_dir() else place.read_bytes())
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]

    launch.write(plan, place)
    (place / "notes.txt").write_text("mine")
    refused("notes.txt")
    (place / "notes.txt").unlink()
    (place / "000-n1.sh").write_text("edited")
    refused("was edited since")
    (place / "000-n1.sh").unlink()
    (place / "000-n1.sh").symlink_to("/etc/passwd")
    refused("was edited since")
    (place / "plan.json").write_text("{")
    refused("no plan of ours")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    place = link.parent / "file"
    place.write_text("mine")
    refused("no folder")
    with pytest.raises(InputError, match="no folder"):
        launch.write(plan, link)
    with pytest.raises(InputError, match="No such file"):
        launch.write(plan, tmp_path / "no" / "out")


def test_a_disk_that_fills_up_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "out"
    launch.write(planned(targets(2)), place)
    before = held(place)
    real, calls = folders._put, []

    def put(path: Path, data: bytes, mode: int) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(path, data, mode)

    monkeypatch.setattr(folders, "_put", put)
    with pytest.raises(InputError, match="No space left"):
        launch.write(planned(targets(3)), place)
    assert held(place) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
