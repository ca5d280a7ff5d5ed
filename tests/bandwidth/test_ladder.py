"""bw.ladder on eight lab nodes with a real torch: a slow link, direction or node, and a fabric that is full.

NETDOCTOR_TEST_LADDERS: as many seeds of each; without it one of a slow link.
"""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netdoctor.lab import Lab, links
from tests.bandwidth.conftest import torch_python
from tests.bandwidth.test_ranks import ranks
from tests.conftest import Maker
from tests.scan.harness import Scanned, scan

pytestmark = [pytest.mark.lab, pytest.mark.rates]

SEEDS = int(os.environ.get("NETDOCTOR_TEST_LADDERS", "1"))
# Of a link, far below what two cores send for eight ranks; and what the whole fabric lets pass in the test.
LINK, LINK_BYTES_S = "50mbit", 6_250_000

# As sitecustomize.py: a node that takes its time for each layer.
TAKES_TIME = """\
import os, socket, sys
if socket.gethostname() == {node!r} and any("netdoctor-rank" in word for word in sys.orig_argv):
    import time, torch
    real = torch.nn.Linear.forward
    def slow(self, batch):
        time.sleep({seconds!r})
        return real(self, batch)
    torch.nn.Linear.forward = slow
"""
# All that the bridge forwards, together, in two directions of each link.
FULL = """
table bridge ladder {{
  chain forward {{
    type filter hook forward priority 0; policy accept;
    ip protocol tcp tcp dport != 22 limit rate over {rate} kbytes/second burst 64 kbytes drop
  }}
}}
"""


@pytest.fixture(scope="module")
def eight(make_lab: Maker) -> Lab:
    _, why = torch_python()
    if why:
        pytest.skip(why)
    lab = make_lab(8)
    for node in lab.nodes:
        lab.break_(node, "slow-link", rate=LINK)
    return lab


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that lab nodes see."""
    path = Path(tempfile.mkdtemp(prefix="netdoctor-test-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def run(lab: Lab, folder: Path, python: str = "") -> Scanned:
    options = ("--only", "bw.ladder", "--profile", "full", "--budget", "90")
    found = scan(lab, folder, *options, "--python", python or torch_python()[0])
    assert not ranks(lab)
    return found


def shape(lab: Lab, node: str, ways: tuple[str, ...], rate: str) -> None:
    def words(device: str) -> list[str]:
        text = f"tc qdisc replace dev {device} root tbf rate {rate} burst 64kb latency 100ms"
        return text.split()

    if "out" in ways:
        lab.run(node, words("eth0"), check=True)
    if "in" in ways:
        links.in_fabric(lab.state, words(links.port(lab.state, node, 0)))


@contextmanager
def fault(lab: Lab, folder: Path, kind: str, node: str, chance: random.Random) -> Iterator[str]:
    """Make a cluster slow, and give the interpreter of its ranks."""
    python = torch_python()[0]
    if kind in ("link", "direction"):
        ways = ("in", "out") if kind == "link" else (chance.choice(["in", "out"]),)
        shape(lab, node, ways, f"{chance.uniform(12, 30):.1f}mbit")
        try:
            yield python
        finally:
            shape(lab, node, ways, LINK)
    elif kind == "node":
        text = TAKES_TIME.format(node=node, seconds=chance.uniform(0.3, 0.6))
        (folder / "sitecustomize.py").write_text(text)
        wrapped = folder / "python"
        wrapped.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {python} "$@"\n')
        wrapped.chmod(0o755)
        yield str(wrapped)
    else:
        rules = FULL.format(rate=round(chance.uniform(2.4, 3.2) * LINK_BYTES_S / 1000))
        links.in_fabric(lab.state, ["nft", "-f", "-"], rules)
        try:
            yield python
        finally:
            links.in_fabric(lab.state, ["nft", "delete", "table", "bridge", "ladder"])


def test_a_healthy_cluster_is_silent(eight: Lab, folder: Path) -> None:
    for _ in range(SEEDS):
        found = run(eight, folder)
        assert (found.code, found.keys) == (0, []), found.summary()
        names = {m["name"] for m in found.report["measures"]}
        assert {f"bw.ladder.{what}.{n}" for n in (2, 4, 8) for what in ("rate", "step")} <= names


# In each run of the tests one of them.
KINDS = ["link", "direction", "node", "fabric"] if "NETDOCTOR_TEST_LADDERS" in os.environ else ["link"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_slow_is_named(eight: Lab, folder: Path, kind: str) -> None:
    wrong = []
    for seed in range(SEEDS):
        chance = random.Random(f"{kind} {seed}")
        node = chance.choice(eight.nodes)
        with fault(eight, folder, kind, node, chance) as python:
            found = run(eight, folder, python)
        causes = {key: found.cause(key)["node_list"] for key in found.keys}
        right = {"ladder-shared": []} if kind == "fabric" else {"ladder-slow-node": [node]}
        print(kind, seed, node, causes, found.report["results"][-1]["summary"], flush=True)
        if causes != right:
            wrong.append((seed, node, found.summary()))
    assert len(wrong) <= SEEDS // 20, wrong
