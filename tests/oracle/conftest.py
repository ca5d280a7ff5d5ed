"""Where the libraries are that these tests ask."""

import os

import pytest

from tests.oracle import nccl, spaces


@pytest.fixture(scope="session")
def libraries() -> list[nccl.Library]:
    """Two releases of NCCL, from NETDOCTOR_TEST_NCCL: directories that nvidia-nccl-cu12 was installed in."""
    folders = [one for one in os.environ.get("NETDOCTOR_TEST_NCCL", "").split(":") if one]
    if not folders:
        pytest.skip("NETDOCTOR_TEST_NCCL names no directory with nvidia-nccl-cu12")
    if why := spaces.refused():
        pytest.skip(why)
    return [nccl.library(one) for one in folders[:2]]
