"""The hostile machine for a few seconds; `python scripts/fuzz.py` runs it for as long as one likes."""

import pytest

from netdoctor.lab import missing_requirements
from tests.fuzz import machine

pytestmark = pytest.mark.lab
SEED, SECONDS = 3, 18.0


@pytest.mark.skipif(bool(missing_requirements()), reason="no lab on this machine")
def test_no_machine_makes_netdoctor_lie_crash_or_leave_something() -> None:
    assert machine.run(SEED, SECONDS) > 0
