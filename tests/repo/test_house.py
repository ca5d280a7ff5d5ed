"""What scripts/house.py counts, which CI and `make lint` run."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / "scripts" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_room_s_lines_are_those_of_its_files(house: ModuleType) -> None:
    files = [path for top in house.PRODUCT for path in (ROOT / top).rglob("*.py")]
    real = [path for path in files if (ROOT / "netdoctor" / "checks") not in path.parents]
    real = [path for path in real if (ROOT / "netdoctor" / "tui") not in path.parents]
    assert sum(house.rooms().values()) == sum(len(path.read_text("utf-8").splitlines()) for path in real)


def test_a_list_of_options_by_hand_is_counted(house: ModuleType) -> None:
    found = house.modules_of_options()
    assert found["write_test"] == {"netdoctor.options", "netdoctor.scanning.jobenv"}
    assert max(map(len, found.values())) <= house.OPTION_MODULES


def test_lines_of_code_leave_out_docstrings_comments_and_blanks(house: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text('"""Two\nlines."""\n\nX = 1\n\n\ndef f():\n    """One."""\n    # why\n    return X\n')
    assert house.code_lines(path) == 3


def test_a_circle_is_seen(house: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{name}.py").write_text(f"def f():\n    from netdoctor import {other}\n")
    known = {f"netdoctor.{name}": tmp_path / f"{name}.py" for name in "abc"}
    monkeypatch.setattr(house, "modules", lambda: known)
    assert len(house.circle()) == 4
