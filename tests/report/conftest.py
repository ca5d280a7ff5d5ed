"""The option that writes golden files anew: ``pytest tests/report --update-golden``."""

import pytest


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden", default=False))
