"""Two seconds of work on every GPU: on a torch that pretends to have them, on lab nodes, and on real ones."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from netdoctor.checks.gpu_work import gpu_work as judged
from netdoctor.facts.base import Missing
from netdoctor.facts.gpu import GpuFacts, GpuWork
from netdoctor.facts.software import Job
from netdoctor.measure.common import Ground
from netdoctor.measure.declare import Context
from netdoctor.measure.gpu_work import gpu_work
from netdoctor.store import Store
from tests.checks import build, build_hw

from .test_local_ranks import Agents, cuda, python  # noqa: F401  fixtures

PRETENDED = Path(__file__).with_name("pretend_cuda.py").read_text("utf-8")


def worked(python: str, facts: GpuFacts, env: Mapping[str, str]) -> GpuWork | Missing:  # noqa: F811
    store = Store()
    store.put("software", "n1", build_hw.software())
    store.put("gpu", "n1", facts)
    store.put("host", "n1", build.host())
    agents = Agents(python, ["n1"], {**os.environ, **env})
    ground = Ground(nodes=("n1",), addresses={"n1": "127.0.0.1"})
    try:
        return gpu_work(Context(transport=agents, ground=ground, store=store, job=Job()))["n1"]
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
        "GPU 4 moves its memory at 1000 GB/s, others at 2900",
    }


@pytest.mark.gpu
def test_a_real_gpu_works(cuda: str) -> None:  # noqa: F811
    agents = Agents(cuda, ["n1"])
    try:
        facts = GpuFacts(**agents.agents["n1"].facts(gpu={})["gpu"]["value"])
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
