"""netdoctor's prediction of gloo's address against torch itself, over own names of every kind."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.oracle import gloo, nccl, spaces

CASES = 40
SEED = 20262


@pytest.fixture(scope="module")
def torch() -> Iterator[gloo.Torch]:
    python = os.environ.get("NETDOCTOR_TEST_TORCH_PYTHON")
    if not python:
        pytest.skip("NETDOCTOR_TEST_TORCH_PYTHON names no interpreter with torch")
    if why := spaces.refused():
        pytest.skip(why)
    with closing(gloo.library(python)) as found:
        yield found


def test_agrees_with_gloo_on_random_machines(torch: gloo.Torch) -> None:
    ((name, tally),) = gloo.run([torch], SEED, CASES).items()
    assert not tally.differences, f"{name}: " + "\n".join(tally.differences[:3])
    assert tally.agree == CASES
    assert {"own name", "fallback", "GLOO_SOCKET_IFNAME"} <= tally.rules.keys()


def test_what_nccl_exports_from_its_files_counts_for_groups_made_later(
    torch: gloo.Torch, libraries: list[nccl.Library]
) -> None:
    def write() -> None:
        Path("/etc/hosts").write_text("10.1.0.9 node1\n")
        Path("/etc/nccl.conf").write_text("GLOO_SOCKET_IFNAME=lo\n")

    environ = {"PATH": "/usr/bin:/bin", "HOME": "/root"}
    with spaces.space("node1") as space:
        space.batch(["link set lo up", "link add eth0 type veth peer name p0", "link set p0 up",
                     "link set eth0 up", "addr add 10.1.0.9/24 dev eth0"])  # fmt: skip
        space.run(write, {})
        assert torch.ask(space, environ)["addresses"] == ["10.1.0.9"]
        assert torch.ask(space, environ, libraries[-1].path)["addresses"] == ["127.0.0.1"]
