"""A fixed seed of worlds; `make worlds` draws fresh ones."""

import pytest

from tests.fuzz import worlds
from tests.oracle import spaces


@pytest.mark.skipif(bool(spaces.refused()), reason=spaces.refused() or "spaces")
def test_a_printed_fix_heals_and_does_no_harm() -> None:
    assert worlds.run(1, 1.0) > 0
