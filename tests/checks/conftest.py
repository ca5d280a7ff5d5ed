"""Every call that a test of these makes of a check is watched, but not while you type."""

import pytest

from ..conftest import is_quick
from .injection import watch


def pytest_configure(config: pytest.Config) -> None:
    """Before the modules of this folder are imported."""
    if not is_quick(config):
        watch()
