"""A fixed seed of worlds; `make worlds` draws fresh ones."""

import pytest

from tests.fuzz import fixes
from tests.oracle import spaces


@pytest.mark.thorough
@pytest.mark.skipif(bool(spaces.refused()), reason=spaces.refused() or "spaces")
def test_printed_fixes_heal_and_do_no_harm() -> None:
    assert fixes.run(1, 16.0) > 4  # on a busy machine; 20 and more on a quiet one
