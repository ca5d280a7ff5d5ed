"""netdoctor's prediction of gloo's address against torch itself, over own names of every kind."""

import os

import pytest

from tests.oracle import gloo, spaces

CASES = 40
SEED = 20262


def test_agrees_with_gloo_on_random_machines() -> None:
    python = os.environ.get("NETDOCTOR_TEST_TORCH_PYTHON")
    if not python:
        pytest.skip("NETDOCTOR_TEST_TORCH_PYTHON names no interpreter with torch")
    if why := spaces.refused():
        pytest.skip(why)
    ((name, tally),) = gloo.run([gloo.library(python)], SEED, CASES).items()
    assert not tally.differences, f"{name}: " + "\n".join(tally.differences[:3])
    assert tally.agree == CASES
    assert {"own name", "fallback", "GLOO_SOCKET_IFNAME"} <= tally.rules.keys()
