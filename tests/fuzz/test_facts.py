"""A fixed seed of the hostile facts files; `make fuzz` draws fresh ones."""

import pytest

from tests.fuzz import facts


@pytest.mark.thorough
def test_no_node_is_green_that_has_not_written() -> None:
    assert facts.run(1, 8.0) > 10
