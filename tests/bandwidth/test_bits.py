"""The same work on every device, with a real torch: on this machine, on lab nodes, and on real GPUs."""

import os
from pathlib import Path

import msgspec
import pytest

from netdoctor.checks.gpu.bits import gpu_bits as judged
from netdoctor.facts.accelerators import AcceleratorFacts
from netdoctor.facts.gpu import GpuBits, GpuFacts
from netdoctor.facts.software import Job
from netdoctor.lab import Lab
from netdoctor.measure.common import Participants
from netdoctor.measure.declare import Context
from netdoctor.measure.load.bits import gpu_bits
from netdoctor.model import Status
from netdoctor.store import Store
from tests.checks import build, build_hw
from tests.scan.harness import scan

from .test_local_ranks import Agents, cuda, python  # noqa: F401  fixtures

# As sitecustomize.py: from some product on, one bit of it is another; or of one product alone.
FLIPS = """import torch

multiply, count = torch.mm, 0


def mm(a, b):
    global count
    count += 1
    found = multiply(a, b)
    # The first is that of no round: it is there to load what computes.
    if count - 1 {when}:
        found.view(torch.int32)[7, 11] ^= 1 << 3
    return found


torch.mm = mm
"""


def bits_of(python: str, flips: dict[str, str], facts: GpuFacts, kind: object) -> dict[str, GpuBits]:  # noqa: F811
    """What nodes of this machine give. flips: a folder to be first in the path of a node."""
    names = [*flips]
    store = Store()
    for node in names:
        store.put("software", node, kind)
        store.put("gpu", node, facts)
        store.put("accelerators", node, AcceleratorFacts())
        store.put("host", node, build.host())
    agents = Agents(python, {n: {**os.environ, "PYTHONPATH": at} if at else None for n, at in flips.items()})
    participants = Participants(nodes=tuple(names), addresses=dict.fromkeys(names, "127.0.0.1"))
    try:
        found = gpu_bits(Context(transport=agents, participants=participants, store=store, job=Job()))
    finally:
        agents.close()
    assert all(isinstance(one, GpuBits) for one in found.values()), found
    return {node: one for node, one in found.items() if isinstance(one, GpuBits)}


def test_processes_of_one_machine_give_equal_bits_and_a_flipped_one_is_named(
    python: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FLIPS.format(when="== 3"), "utf-8")
    for_cpus = build_hw.software(torch=build_hw.torch(version="2.6.0+cpu", cuda=None))
    flips = {"n1": "", "n2": "", "n3": str(tmp_path)}
    found = bits_of(python, flips, build_hw.no_gpus(), for_cpus)
    assert len({device.kind for one in found.values() for device in one.devices}) == 1
    assert found["n1"].cpu
    one, two, bad = list(judged(found))
    (one, two, bad) = sorted((one, two, bad), key=lambda finding: finding.target)
    assert (one.status, two.status, bad.status) == (Status.PASS, Status.PASS, Status.FAIL)
    assert "the CPU (as there is no GPU)" in bad.summary
    assert "product of float32: other bits than before, first in round 3 (1 of " in bad.summary


@pytest.mark.lab
def test_nodes_of_a_healthy_lab_give_equal_bits(
    lab4: Lab,
    tmp_path: Path,
    python: str,  # noqa: F811
) -> None:
    healthy = scan(lab4, tmp_path, "--only", "gpu.bits", "--python", python)
    assert healthy.keys == [], healthy.summary()
    cells = {node: healthy.cell("gpu.bits", node) for node in lab4.nodes}
    assert set(cells.values()) == {"."}, healthy.summary()
    pids = [pid for node in lab4.nodes for pid in lab4.pids(node)]
    assert not [pid for pid in pids if b"netdoctor-rank" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.gpu
def test_real_gpus_give_equal_bits_twice(cuda: str) -> None:  # noqa: F811
    agents = Agents(cuda, {"n1": None})
    try:
        facts = msgspec.convert(agents.agents["n1"].facts(gpu={})["gpu"]["value"], type=GpuFacts)
    finally:
        agents.close()
    nodes = {f"n{i}": bits_of(cuda, {"n1": ""}, facts, build_hw.software())["n1"] for i in (1, 2)}
    found = list(judged(nodes))
    assert {finding.status for finding in found} == {Status.PASS}, found
    assert not any(finding.gap for finding in found)
