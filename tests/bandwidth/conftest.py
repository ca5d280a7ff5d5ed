"""An interpreter with torch that the nodes of a lab can see."""

import os
import subprocess
import sys
from functools import cache

import pytest

from netdoctor.lab import Lab

VARIABLE = "NETDOCTOR_TEST_TORCH_PYTHON"


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


@pytest.fixture
def even(lab4: Lab) -> Lab:
    """Four nodes whose links all have one rate, far below what two lent cores can do: what else runs on the
    machine then hardly shows."""
    for node in lab4.nodes:
        lab4.break_(node, "slow-link", rate="200mbit")
    return lab4


@pytest.fixture
def torch(lab4: Lab) -> str:
    """An interpreter with torch, as lab nodes see it."""
    python, why = torch_python()
    if why:
        pytest.skip(why)
    look = "import importlib.util as u, sys; sys.exit(not u.find_spec('torch'))"
    seen = lab4.run(lab4.nodes[0], [python, "-c", look], capture_output=True)
    if seen.returncode:
        pytest.skip(f"lab nodes do not see {python}: nodes hide /tmp, /run and home directories")
    return python
