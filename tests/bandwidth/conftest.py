"""Labs for bandwidth tests, and an interpreter with torch that their nodes can see."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from tests.lab.conftest import _lab4, lab4_session, make_lab  # noqa: F401  # fixtures, by being imported

VARIABLE = "NETDOCTOR_TEST_TORCH_PYTHON"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the scan runs, saves its report and writes its files."""
    place = tmp_path / "run"
    place.mkdir()
    return place


@cache
def torch_python() -> tuple[str, str]:
    """(interpreter, why there is none)."""
    wanted = os.environ.get(VARIABLE) or sys.executable
    done = subprocess.run(
        [wanted, "-c", "import torch, torch.distributed as d; assert d.is_available()"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        return "", f"{wanted} has no torch; {VARIABLE} can name an interpreter that has"
    return wanted, ""


@pytest.fixture(name="torch")
def _torch(lab4_session: Lab) -> str:  # noqa: F811
    """An interpreter with torch, as lab nodes see it."""
    python, why = torch_python()
    if why:
        pytest.skip(why)
    seen = lab4_session.run(lab4_session.nodes[0], [python, "-c", "import torch"], capture_output=True)
    if seen.returncode:
        pytest.skip(f"lab nodes do not see {python}: nodes hide /tmp, /run and home directories")
    return python
