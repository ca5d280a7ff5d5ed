"""The rate test of storage on lab nodes, over a network file system of the user space.

Real are the file system (sshfs, FUSE in the kernel, one sftp-server for all nodes), the nodes' links that tc
shapes, every byte and every fsync. Not real is NFS, for which the kernel needs a module. The nodes share one
machine's cores, so that links are shaped to rates that the cores reach easily.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdoctor.lab import Lab
from tests.conftest import Maker
from tests.scan.faults import found
from tests.scan.harness import changed, scan

pytestmark = [pytest.mark.lab, pytest.mark.rates]

SERVER = "node4"
NODES = [f"node{i}" for i in range(4)]
PORT = 7022
SFTP = "/usr/lib/openssh/sftp-server"
# One process of the server for each client, as sshd has it; without encryption, which would only cost cores.
SERVE = f"""
import socket, subprocess
listener = socket.create_server(("", {PORT}), backlog=8)
while True:
    client, _ = listener.accept()
    subprocess.Popen(["{SFTP}"], stdin=client, stdout=client)
    client.close()
"""
RATE, SLOW = "32mbit", "6mbit"


def shape(rate: str) -> str:
    return f"tc qdisc replace dev eth0 root tbf rate {rate} burst 64kb latency 100ms"


@pytest.fixture(scope="module")
def mounted(make_lab: Maker) -> Iterator[Lab]:
    """Four nodes with a mount of the fifth, on links of 32 Mbit/s."""
    if not shutil.which("sshfs") or not Path(SFTP).exists() or not Path("/dev/fuse").exists():
        pytest.skip("no sshfs, sftp-server or /dev/fuse here")
    lab = make_lab(5)
    lab.run(SERVER, ["sh", "-c", "mkdir -p /srv/data"], check=True)
    lab.run(
        SERVER, ["sh", "-c", 'setsid python3 -c "$1" >/dev/null 2>&1 </dev/null &', "sh", SERVE], check=True
    )
    for node in NODES:
        lab.break_(node, "slow-link", rate=RATE, dir="both")
        device = "test -e /dev/fuse || mknod -m 666 /dev/fuse c 10 229"
        mount = f"sshfs -o directport={PORT},reconnect {lab.address(SERVER)}:/srv/data /srv/data"
        tries = f"for i in 1 2 3 4 5; do {mount} && exit; sleep 1; done; exit 1"
        lab.run(node, ["sh", "-ec", f"mkdir -p /srv/data; {device}; {tries}"], check=True)
    yield lab
    left = lab.run(SERVER, ["ls", "-A", "/srv/data"], capture_output=True, text=True)
    assert (left.stdout, left.returncode) == ("", 0)
    for node in NODES:
        lab.run(node, ["umount", "/srv/data"], check=True)


OPTIONS = ("--only", "fs.rate", "--rate-test", "/srv/data", "-n", "node[0-3]")


def test_alike(mounted: Lab, tmp_path: Path) -> None:
    scanned = scan(mounted, tmp_path, *OPTIONS)
    assert (scanned.code, scanned.keys) == (0, []), scanned.summary()
    (cell,) = {scanned.cell("fs.rate", node) for node in NODES}
    assert cell == "."
    value = {one["name"]: one["value"] for one in scanned.report["measures"]}
    assert 2 < value["fs.rate.read.together"] / value["fs.rate.read.alone"] < 5


def test_a_slow_way(mounted: Lab, tmp_path: Path) -> None:
    """What the node sends is slow: its writes are, and what it reads is not."""
    with changed(mounted, "node2", shape(SLOW), shape(RATE)):
        scanned = scan(mounted, tmp_path, *OPTIONS)
    assert len(scanned.keys) == 1, scanned.summary()
    (key,) = scanned.keys
    assert key.startswith("fs-slow-path-"), scanned.summary()
    assert found(scanned)[key] == ("node2",)


@pytest.mark.weekly
def test_a_server_that_has_no_more_to_give(mounted: Lab, tmp_path: Path) -> None:
    """Its link carries what one node can send or read alone."""
    with changed(mounted, SERVER, shape(RATE), "tc qdisc del dev eth0 root"):
        scanned = scan(mounted, tmp_path, *OPTIONS)
    assert len(scanned.keys) == 1, scanned.summary()
    (key,) = scanned.keys
    assert key.startswith("fs-saturated-"), scanned.summary()
