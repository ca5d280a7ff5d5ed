"""netdoctor's choice of HCA ports and GIDs against libnccl itself, over made-up HCAs."""

import pytest

from tests.oracle import hcas

CASES = 40
SEED = 20265


def test_agrees_with_libnccl_on_made_up_hcas(libraries: list[hcas.Library]) -> None:
    if why := hcas.refused():
        pytest.skip(why)
    new = [one for one in libraries if one.version >= hcas.OLDEST]
    if not new:
        pytest.skip("no release of NETDOCTOR_TEST_NCCL is 2.30 or newer")
    for name, tally in hcas.run(new, SEED, CASES).items():
        assert not tally.differences, f"{name}: " + "\n".join(tally.differences[:3])
        assert tally.agree == CASES
        assert tally.rules["port"] > CASES / 2
