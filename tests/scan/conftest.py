"""Scans of real labs: fixtures of the lab's own tests, and a folder of its own for every scan."""

from pathlib import Path

import pytest

from tests.lab.conftest import (  # noqa: F401  # fixtures, by being imported
    _hw_lab,
    _lab,
    _lab4,
    hw_lab_session,
    lab4_session,
    make_lab,
)

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.lab)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the scan runs, saves its report and writes its files."""
    place = tmp_path / "run"
    place.mkdir()
    return place
