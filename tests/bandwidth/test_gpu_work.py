"""Two seconds of work on every GPU: on a torch that pretends to have them, on lab nodes, and on real ones."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdoctor.checks.gpu.work import gpu_work as judged
from netdoctor.facts.accelerators import AcceleratorFacts, AmdGpu
from netdoctor.facts.base import Missing
from netdoctor.facts.gpu import GpuFacts, GpuWork
from netdoctor.facts.software import Job, SoftwareFacts
from netdoctor.lab import Lab
from netdoctor.lab.hardware import gpu_values
from netdoctor.measure.common import Participants
from netdoctor.measure.declare import Context
from netdoctor.measure.gpu_work import gpu_work
from netdoctor.store import Store
from tests.checks import build, build_hw
from tests.scan.harness import scan

from .test_local_ranks import Agents, cuda, python  # noqa: F401  fixtures

PRETENDED = Path(__file__).with_name("pretend_cuda.py").read_text("utf-8")


def worked(
    python: str,  # noqa: F811
    facts: GpuFacts,
    env: Mapping[str, str],
    software: SoftwareFacts | None = None,
    others: AcceleratorFacts | None = None,
) -> GpuWork | Missing:
    store = Store()
    store.put("software", "n1", software or build_hw.software())
    store.put("gpu", "n1", facts)
    store.put("accelerators", "n1", others or AcceleratorFacts())
    store.put("host", "n1", build.host())
    agents = Agents(python, {"n1": {**os.environ, **env}})
    participants = Participants(nodes=("n1",), addresses={"n1": "127.0.0.1"})
    try:
        return gpu_work(Context(transport=agents, participants=participants, store=store, job=Job()))["n1"]
    finally:
        agents.close()


def pretend(folder: Path, **odd: Any) -> dict[str, str]:
    """The environment of a torch with such GPUs, each as usual but for what is said of it (GPU0: GPU-0)."""
    (folder / "sitecustomize.py").write_text(PRETENDED, "utf-8")
    (folder / "gpus.json").write_text(json.dumps({f"GPU-{name[3:]}": one for name, one in odd.items()}))
    return {"PYTHONPATH": str(folder)}


def test_each_gpu_says_what_it_did(python: str, tmp_path: Path) -> None:  # noqa: F811
    kernel = "CUDA error: no kernel image is available for execution on the device"
    env = pretend(
        tmp_path,
        GPU1={"tflop_s": 400.0},
        GPU2={"wrong": 3},
        GPU3={"says": kernel},
        GPU4={"memory": 1000.0},
        GPU6={"copy": 20.0},
    )
    found = worked(python, build_hw.gpus(), env)
    assert isinstance(found, GpuWork), found
    one = found.gpus[0]
    assert (one.kind, one.side, one.wrong, one.error) == ("bfloat16", 8192, 0, "")
    assert (one.tflop_s, one.memory_gbyte_s) == (pytest.approx(700.0), pytest.approx(2900.0))
    assert (one.to_device_gbyte_s, one.to_host_gbyte_s) == (pytest.approx(55.0), pytest.approx(55.0))
    said = {finding.summary for finding in judged({"n1": found}, {"n1": build_hw.gpus()}) if finding.cause}
    assert said == {
        "GPU 1 multiplies at 400 TFLOP/s, others at 700",
        "GPU 2 gives 3 different values when it multiplies the same numbers again",
        f"GPU 3 did not do its work: RuntimeError: {kernel}",
        "GPU 4 has a memory rate of 1000 GB/s, others at 2900",
    }


def test_gpus_of_amd_do_the_same(python: str, tmp_path: Path) -> None:  # noqa: F811
    error = "HIP error: invalid device function"
    env = pretend(tmp_path, GPU0={}, GPU1={"tflop_s": 300.0}, GPU2={"says": error})
    boards = [AmdGpu(address=f"0000:0{i}:00.0", device_id="0x74a1", name="MI300X") for i in range(3)]
    others = AcceleratorFacts(
        amd=tuple(boards), kfd=("gfx942",) * 3, kfd_boards=("0000:00", "0000:01", "0000:02"), processes=()
    )
    rocm = build_hw.software(torch=build_hw.torch(version="2.6.0+rocm6.2.4", cuda=None, hip="6.2"))
    found = worked(python, build_hw.no_gpus(), env, rocm, others)
    assert isinstance(found, GpuWork), found
    said = {finding.summary for finding in judged({"n1": found}, {"n1": build_hw.no_gpus()}) if finding.cause}
    assert said == {
        "GPU 1 multiplies at 300 TFLOP/s, others at 700",
        f"GPU 2 did not do its work: RuntimeError: {error}",
    }


ONLY_THERE = 'import os\n\nif "CUDA_VISIBLE_DEVICES" in os.environ:\n    import pretended\n'
SEEN = "/usr/local/lib/netdoctor-test-cuda"
LABEL = "/run/netdoctor-lab.json"


def put(lab: Lab, node: str, path: str, text: str) -> str:
    """Write a file of a node; what it was."""
    was = lab.run(node, ["sh", "-c", 'cat "$1" 2>/dev/null || :', "sh", path], capture_output=True, text=True)
    write = 'mkdir -p "${1%/*}"; cat > "$1"'
    lab.run(node, ["sh", "-euc", write, "sh", path], input=text, text=True, check=True)
    return str(was.stdout)


def test_the_slow_gpu_of_a_lab_is_named(hw_lab: Lab, tmp_path: Path, python: str) -> None:  # noqa: F811
    """Nodes whose GPUs are as real as a lab can have them: one is slow, and another is in use."""
    nodes = ("node1", "node2", "node3")
    slow = gpu_values(hw_lab.state, "node2")["1.uuid"]
    labels = {}
    try:
        hw_lab.break_("node3", "gpu-process")
        for node in nodes:
            hw_lab.break_(node, "env", PYTHONPATH=SEEN)
            labels[node] = label = put(hw_lab, node, LABEL, "{}")
            put(hw_lab, node, LABEL, json.dumps({**json.loads(label), "fake": []}))
            put(hw_lab, node, f"{SEEN}/pretended.py", PRETENDED)
            # For the work alone: interpreters that load torch are late when asked what they are.
            put(hw_lab, node, f"{SEEN}/sitecustomize.py", ONLY_THERE)
            put(hw_lab, node, f"{SEEN}/gpus.json", json.dumps({slow: {"tflop_s": 400.0}}))
            # Found by its version; what is imported is the interpreter's own.
            put(hw_lab, node, f"{SEEN}/torch/version.py", "__version__ = '2.6.0+cu124'\ncuda = '12.4'\n")
        hosts = tmp_path / "hosts.txt"
        hosts.write_text("\n".join(nodes) + "\n")
        found = scan(hw_lab, tmp_path, "--only", "gpu.work", "--python", python, hosts=str(hosts))
    finally:
        for node, label in labels.items():
            put(hw_lab, node, LABEL, label)
            hw_lab.run(node, ["rm", "-r", SEEN], check=True)
    assert found.keys == ["gpu-work-slow"], found.text
    cause = found.cause("gpu-work-slow")
    assert cause["node_list"] == ["node2"]
    assert "GPU 1 multiplies at 400 TFLOP/s, others at 700" in " ".join(cause["seen"])
    assert cause["action"] == "drain"
    cells = {node: found.cell("gpu.work", node) for node in nodes}
    assert cells == {"node1": ".", "node2": "!", "node3": "-"}, found.summary()
    assert "GPUs in use: python3 (pid" in json.dumps(found.report)
    pids = [pid for node in nodes for pid in hw_lab.pids(node)]
    assert not [pid for pid in pids if b"netdoctor-rank" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.gpu
def test_a_real_gpu_works(cuda: str) -> None:  # noqa: F811
    agents = Agents(cuda, {"n1": None})
    try:
        facts = msgspec.convert(agents.agents["n1"].facts(gpu={})["gpu"]["value"], type=GpuFacts)
    finally:
        agents.close()
    found = worked(cuda, facts, {})
    assert isinstance(found, GpuWork), found
    assert found.gpus
    for rate in found.gpus:
        assert not rate.error
        assert rate.wrong == 0
        assert None not in (rate.tflop_s, rate.memory_gbyte_s, rate.to_device_gbyte_s, rate.to_host_gbyte_s)
        assert rate.clock_mhz
