"""A fixed seed of clusters that are changed; `make metamorphic` draws fresh ones."""

import pytest

from tests import machines
from tests.fuzz import metamorphic


@pytest.mark.skipif(machines.nvml_library() is None, reason="no C compiler for the lab's NVML (gcc)")
def test_a_change_with_a_known_effect_has_that_effect() -> None:
    assert metamorphic.run(1, 2.0) > 0
