"""Hostile nodes beside healthy ones, with fixed seeds; `scripts/fuzz.py` draws more."""

from __future__ import annotations

import pytest

from tests.fuzz.peer import run
from tests.transport.conftest import KEYGEN, SSHD

pytestmark = pytest.mark.ssh


@pytest.mark.skipif(SSHD is None or KEYGEN is None, reason="no OpenSSH server on this machine")
def test_the_healthy_are_judged_whoever_stands_beside_them() -> None:
    assert run(seed=9, seconds=15) >= 1
