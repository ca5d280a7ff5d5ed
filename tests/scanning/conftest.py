from pathlib import Path

import pytest

from tests.scanning.ground import Ground


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ground:
    return Ground(monkeypatch, tmp_path)
