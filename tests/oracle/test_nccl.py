"""netdoctor's prediction of NCCL's interface against libnccl itself.

NETDOCTOR_TEST_NCCL names directories that releases of nvidia-nccl-cu12 are installed in, colon-separated.
"""

import os

import pytest

from tests.oracle import nccl, spaces

CASES = 60
SEED = 20261


@pytest.fixture(scope="module")
def libraries() -> list[nccl.Library]:
    folders = [one for one in os.environ.get("NETDOCTOR_TEST_NCCL", "").split(":") if one]
    if not folders:
        pytest.skip("NETDOCTOR_TEST_NCCL names no directory with nvidia-nccl-cu12")
    if why := spaces.refused():
        pytest.skip(why)
    return [nccl.library(one) for one in folders[:2]]


def test_agrees_with_libnccl_on_random_machines(libraries: list[nccl.Library]) -> None:
    tallies = nccl.run(libraries, SEED, CASES)
    assert tallies.keys() == {str(one) for one in libraries}
    for name, tally in tallies.items():
        assert not tally.differences, f"{name}: " + "\n".join(tally.differences[:3])
        assert tally.agree >= 0.9 * CASES
        # The seed meets every rule that matters.
        assert {"NCCL_SOCKET_IFNAME", "NCCL_COMM_ID", "ib*"} <= tally.rules.keys()
