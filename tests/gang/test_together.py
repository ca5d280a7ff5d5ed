"""`gate --gang` on eight lab nodes, each as a pod's init container sees it.

NETDOCTOR_TEST_GANGS: how many of the faults; without it three. NETDOCTOR_TEST_SEED: which.
"""

import os
import random
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from netdoctor.lab import Lab
from tests.conftest import Maker
from tests.scan.faults import put
from tests.scan.harness import REPO
from tests.scan.test_launch_pages import installed

pytestmark = pytest.mark.lab

COUNT, PORT, WAIT_S = 8, 29600, 20
# What one member has, and what all eight say then. member 0 judges; "env" and "ulimit" are
# the pod's own.
FAULTS = [
    ("ulimit -n 256", 3, "FAIL host.nofile"),
    ("small-shm", 3, "FAIL host.shm"),
    ("full-disk", 3, "FAIL host.disk"),
    ("ulimit -l 64", 3, "FAIL host.memlock"),
    ("env NCCL_SOCKET_IFNAME=ens9", 3, "FAIL nccl.ifname"),
    ("nccl-conf NCCL_SOCKET_IFNAME=ens9", 5, "FAIL nccl.ifname"),
    ("env GLOO_SOCKET_IFNAME=eth9", 4, "FAIL gloo.ifname"),
    ("nccl-conf NCCL_PROTO=simple", 2, "FAIL nccl.env"),
    ("env NCCL_BUFFSIZE=8388608", 7, "FAIL nccl.env"),
    ("hca-missing", 3, "FAIL rdma.hca"),
    ("hca-down", 6, "FAIL rdma.port"),
    ("hca-rate", 3, "FAIL rdma.rate"),
    ("hca-gid", 3, "FAIL rdma.gid"),
    ("gpu-lost", 3, "FAIL gpu.visible"),
    ("gpu-no-driver", 0, "FAIL gpu.visible"),
    ("gpu-ecc", 1, "FAIL gpu.ecc"),
    ("gpu-xid", 3, "FAIL gpu.xid"),
    ("drop peers=node1,node2", 5, "FAIL net.ports"),
    ("reject ports=32768-44221,44223-60999", 5, "FAIL net.ports"),
    ("drop dir=both", 4, "UNKNOWN meet.task"),
    ("own-name-loopback", 3, "FAIL gloo.ifname The host name of"),
    ("mtu-blackhole", 3, "UNKNOWN "),  # its answers are lost on the way
    ("clock", 2, "FAIL time.skew"),
]
SEED = int(os.environ.get("NETDOCTOR_TEST_SEED", "30"))
SEVERAL = int(os.environ.get("NETDOCTOR_TEST_GANGS", "3"))


@dataclass
class Pods:
    """What became of each member, by its number: exit code, output, and when it was over."""

    code: dict[int, int] = field(default_factory=dict)
    out: dict[int, str] = field(default_factory=dict)
    err: dict[int, str] = field(default_factory=dict)
    at: dict[int, float] = field(default_factory=dict)


def pods(
    lab: Lab,
    delays: Mapping[int, float] | None = None,
    env: Mapping[int, str] | None = None,
    limit: Mapping[int, str] | None = None,
    wait_s: float = WAIT_S,
) -> Pods:
    """Run the line of the init container in each node. delays: when a member begins, infinity for never.

    env: a NAME=VALUE that a member alone has; limit: a line of its shell.
    """
    found, secret, argv = Pods(), secrets.token_hex(16), installed(lab)
    began = time.monotonic()

    def member(rank: int) -> None:
        node = lab.nodes[rank]
        if delays and (late := delays.get(rank, 0.0)):
            time.sleep(late)
        environ = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "PYTHONPATH": str(REPO),
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "JOB_COMPLETION_INDEX": str(rank),
            "NODE_NAME": node,
            "NETDOCTOR_MEET_SECRET": secret,
        }
        line = [*argv, "gate", "--gang", f"{lab.address(lab.nodes[0])}:{PORT}"]
        line += [
            "--tasks",
            str(COUNT),
            "--timeout",
            f"{wait_s:g}",
            "--no-save",
            "--",
            "sh",
            "-c",
            "echo started",
        ]
        more = [env[rank]] if env and rank in env else []
        if limit and rank in limit:
            line = ["sh", "-c", f'{limit[rank]}; exec "$@"', "sh", *line]
        words = ["env", "-i", *more, *(f"{name}={value}" for name, value in environ.items()), *line]
        done = lab.run(node, words, capture_output=True, text=True, timeout=150)
        found.code[rank], found.out[rank], found.err[rank] = done.returncode, done.stdout, done.stderr
        found.at[rank] = time.monotonic() - began

    ranks = [rank for rank in range(COUNT) if not delays or delays.get(rank, 0.0) != float("inf")]
    with ThreadPoolExecutor(COUNT) as pool:
        list(pool.map(member, ranks))
    return found


@pytest.fixture(scope="module")
def eight(make_lab: Maker) -> Lab:
    return make_lab(COUNT, gpus=2, hcas=2)


def test_a_healthy_gang_starts_together(eight: Lab) -> None:
    """The last one comes 3 s after the others, and all start within 15 s of it."""
    found = pods(eight, {5: 3.0})
    assert set(found.out.values()) == {"started\n"}, found.err
    assert set(found.code.values()) == {0}
    # What a timed test may hold: nobody started before the last was there, nor long after it.
    assert 3.0 < min(found.at.values()) <= max(found.at.values()) < 60.0
    print("started after", round(max(found.at.values()) - 3.0, 1), "s")


@pytest.mark.parametrize(
    ("fault", "rank", "says"),
    random.Random(SEED).sample(FAULTS, min(SEVERAL, len(FAULTS))),
)
def test_one_bad_member_keeps_all_from_starting(eight: Lab, fault: str, rank: int, says: str) -> None:
    node = eight.nodes[rank]
    kind, _, value = fault.partition(" ")
    try:
        if kind not in ("env", "ulimit"):
            put(eight, (f"{node} {fault}",))
        own = {kind: {rank: value if kind == "env" else fault}}
        found = pods(eight, env=own.get("env"), limit=own.get("ulimit"))
    finally:
        eight.heal()
    assert set(found.out.values()) == {""}, found.err
    assert 0 not in found.code.values()
    name = f"member{rank}" if says.startswith("UNKNOWN meet") else node
    for member, text in found.err.items():
        if member == rank and name.startswith("member"):  # nobody can tell it
            assert "member 0 does not judge" in text
        else:
            assert any(line.startswith(says) and name in line for line in text.splitlines()), (member, text)
    print(fault, "refused after", round(max(found.at.values()), 1), "s")
    assert max(found.at.values()) < 60 + 30  # what is asked is 60 on a machine that has nothing else to do


def test_a_member_that_never_comes_is_named_by_all(eight: Lab) -> None:
    found = pods(eight, {6: float("inf")}, wait_s=8)
    assert set(found.out.values()) == {""}
    assert len(found.code) == COUNT - 1
    for text in found.err.values():
        assert "UNKNOWN meet.task suspected: The task of member6 did not connect" in text, text


def test_without_the_first_nobody_starts(eight: Lab) -> None:
    found = pods(eight, {0: float("inf")}, wait_s=5)
    assert set(found.code.values()) == {3}
    assert all("member 0 does not judge at" in text for text in found.err.values())


def test_a_member_that_is_started_again_comes_in_time(eight: Lab) -> None:
    """Killed while the others wait for the last one, as a container that is restarted."""
    killed_as_it_calls = (
        'out=$(mktemp); "$@" 2>"$out" & n=0; until grep -q "calls member 0" "$out" || [ $n -gt 150 ]; do '
        'sleep 0.1; n=$((n + 1)); done; kill -KILL $!; wait; cat "$out" >&2; rm "$out"'
    )
    found = pods(eight, {6: 10.0}, limit={5: killed_as_it_calls})
    assert set(found.out.values()) == {"started\n"}, found.err
    assert found.err[5].count("member 5 of 8, calls member 0") == 2
