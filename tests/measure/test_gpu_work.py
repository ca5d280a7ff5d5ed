"""Who works on its GPUs, who is left alone, and what becomes of answers that cannot be."""

from typing import Any

import msgspec
import pytest

from netdoctor.facts.accelerators import AcceleratorFacts, AmdGpu
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.gpu import GpuFacts, GpuWork
from netdoctor.facts.software import Job
from netdoctor.measure import gpu_work as module
from netdoctor.measure.common import Participants
from netdoctor.measure.declare import Context
from netdoctor.measure.gpu_work import gpu_work
from netdoctor.store import Store
from tests.checks import build as healthy
from tests.checks import build_hw as hw
from tests.core.fake import FakeTransport

AMD = AcceleratorFacts(amd=(AmdGpu(address="0000:05:00.0", device_id="0x74a1"),))
BUSY = (hw.process(4711),)
ROCM = hw.software(torch=hw.torch(version="2.6.0+rocm6.2.4", cuda=None, hip="6.2.41134"))


def mi300x(processes: Any = (), visible: Any = None, **changes: Any) -> AcceleratorFacts:
    usual: dict[str, Any] = {
        "name": "AMD Instinct MI300X OAM",
        "partition": "SPX",
        "vram_used_bytes": 3 << 28,
    }
    boards = [f"0000:{i:02x}" for i in (5, 6)]
    return AcceleratorFacts(
        amd=tuple(
            AmdGpu(address=f"{bus}:00.0", device_id="0x74a1", driver="amdgpu", **{**usual, **changes})
            for bus in boards
        ),
        kfd=("gfx942",) * 2,
        kfd_boards=(*boards,),
        processes=processes,
        visible=visible or {},
    )


A_RATE = {"kind": "bfloat16", "side": 8192, "tflop_s": 700.0, "memory_gbyte_s": 2900.0}


def done(*gpus: dict[str, Any]) -> dict[str, Any]:
    event = {"event": "result", "torch": "2.6.0", "gpus": list(gpus), "end": "done"}
    return {"ranks": [{"running": True, "events": [{"event": "alive", "stage": "compute"}, event]}]}


def run(
    *gpus: GpuFacts,
    said: Any = None,
    now: dict[str, GpuFacts] | None = None,
    job: Job | None = None,
    software: Any = None,
    host: Any = None,
    others: AcceleratorFacts | None = None,
    since: AcceleratorFacts | None = None,
) -> tuple[dict[str, GpuWork | Missing], FakeTransport, list[Any]]:
    """One node for each; said: what a program says in the end; now: GPUs that are other than at login."""
    names = healthy.names(len(gpus))
    store, spawned = Store(), []
    for i, (name, facts) in enumerate(zip(names, gpus, strict=True), start=1):
        store.put("software", name, software or hw.software())
        store.put("gpu", name, facts)
        store.put("host", name, host or healthy.host(i))
        store.put("accelerators", name, others or AcceleratorFacts())

    def spawn(node: str, request: Any) -> Any:
        spawned.append((node, request.args))
        return {"ranks": [{"pid": 1}]}

    def again(node: str, request: Any) -> Any:
        facts = (now or {}).get(node) or gpus[names.index(node)]
        told = {"gpu": facts, "accelerators": since or others}
        (group,) = request.args["groups"]
        return {group: {"value": msgspec.to_builtins(told[group])}}

    def converse(node: str, request: Any) -> Any:
        rates = [{"index": gpu["index"], **A_RATE} for gpu in dict(spawned)[node]["ranks"][0]["gpus"]]
        return done(*rates) if said is None else said

    answers = {"spawn": spawn, "facts": again, "converse": converse, "stop": lambda node, request: {}}
    transport = FakeTransport(answers=answers)
    addresses = {n: healthy.address(i) for i, n in enumerate(names, start=1)}
    participants = Participants(nodes=tuple(names), addresses=addresses)
    found = gpu_work(Context(transport=transport, participants=participants, store=store, job=job or Job()))
    return found, transport, spawned


def test_each_idle_gpu_works_in_the_order_of_nvml() -> None:
    found, transport, spawned = run(hw.gpus(2), hw.gpus(1), job=Job(env={"NCCL_DEBUG": "INFO", "TOKEN": "x"}))
    assert {node: [rate.index for rate in one.gpus] for node, one in found.items()} == {
        "n1": [0, 1],
        "n2": [0],
    }
    (_, args), _ = spawned
    assert args["env"] == {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "GPU-0,GPU-1"}
    assert args["ranks"][0]["gpus"][0] == {"index": 0, "uuid": "GPU-0", "bus": "0000:10:00.0"}
    assert [op for op, _ in transport.requests].count("stop") == 2


def test_the_jobs_own_gpus_alone() -> None:
    _, _, spawned = run(hw.gpus(4, cuda_visible_devices="2,3"))
    assert spawned[0][1]["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-2,GPU-3"


LEFT_ALONE = {
    "somebody computes": ({"gpus": (hw.gpus(devices=(hw.gpu(0), hw.gpu(1, processes=BUSY))),)}, "pid 4711"),
    "nobody knows": (
        {"gpus": (hw.gpus(devices=(hw.gpu(0, processes=None),)),)},
        "it is not known who uses the GPUs",
    ),
    "somebody came since": (
        {"gpus": (hw.gpus(1),), "now": {"n1": hw.gpus(devices=(hw.gpu(0, processes=BUSY),))}},
        "pid 4711",
    ),
    "MIG": ({"gpus": (hw.gpus(devices=(hw.gpu(0, mig_enabled=True),)),)}, "MIG is on"),
    "a name that is none": ({"gpus": (hw.gpus(devices=(hw.gpu(0, uuid="GPU-0;id"),)),)}, "does not answer"),
    "AMD without its driver": ({"gpus": (hw.no_gpus(),), "others": AMD}, "offers no GPU of AMD"),
    "AMD with NVIDIA's torch": ({"gpus": (hw.no_gpus(),), "others": mi300x()}, "is not built for ROCm"),
    "AMD, and somebody computes": (
        {"gpus": (hw.no_gpus(),), "others": mi300x(processes=BUSY), "software": ROCM},
        "pid 4711",
    ),
    "AMD, and nobody knows": (
        {"gpus": (hw.no_gpus(),), "others": mi300x(processes=None), "software": ROCM},
        "it is not known who uses the GPUs",
    ),
    "AMD, and unseen memory": (
        {"gpus": (hw.no_gpus(),), "others": mi300x(vram_used_bytes=60 << 30), "software": ROCM},
        "cannot be seen",
    ),
    "AMD, partitioned": (
        {"gpus": (hw.no_gpus(),), "others": mi300x(partition="CPX"), "software": ROCM},
        "partitioned",
    ),
    "AMD, chosen twice": (
        {
            "gpus": (hw.no_gpus(),),
            "software": ROCM,
            "others": mi300x(visible={"ROCR_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "0"}),
        },
        "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES",
    ),
    "AMD, and somebody came since": (
        {"gpus": (hw.no_gpus(),), "others": mi300x(), "software": ROCM, "since": mi300x(processes=BUSY)},
        "pid 4711",
    ),
    "no torch": ({"gpus": (hw.gpus(1),), "software": hw.software(torch=None)}, "no torch in"),
    "torch of CPUs": (
        {"gpus": (hw.gpus(1),), "software": hw.software(torch=hw.torch(version="2.6.0+cpu", cuda=None))},
        "torch 2.6.0+cpu is not built for CUDA",
    ),
}


def test_who_is_left_alone() -> None:
    for case, (given, why) in LEFT_ALONE.items():
        gpus = given.pop("gpus")
        found, _, spawned = run(*gpus, **given)
        one = found["n1"]
        assert isinstance(one, Missing), case
        assert one.why is Why.NOT_EXAMINED, case
        assert why in one.detail, case
        assert not spawned, case


def test_gpus_of_amd_work_in_the_order_of_their_driver() -> None:
    found, _, spawned = run(hw.no_gpus(), others=mi300x(), software=ROCM, job=Job(env={"NCCL_DEBUG": "INFO"}))
    one = found["n1"]
    assert isinstance(one, GpuWork)
    assert [(rate.index, rate.board) for rate in one.gpus] == [(i, "AMD Instinct MI300X OAM") for i in (0, 1)]
    (_, args) = spawned[0]
    assert args["env"] == {"NCCL_DEBUG": "INFO"}
    assert args["ranks"][0]["gpus"][1] == {"index": 1, "uuid": "", "bus": "0000:06:00.0"}
    for job, visible in (({"HIP_VISIBLE_DEVICES": "1"}, None), ({}, {"ROCR_VISIBLE_DEVICES": "1"})):
        found, _, spawned = run(hw.no_gpus(), others=mi300x(visible=visible), software=ROCM, job=Job(env=job))
        one = found["n1"]
        assert isinstance(one, GpuWork)
        assert [rate.index for rate in one.gpus] == [1]
        assert spawned[0][1]["env"] == job


def test_a_gpu_of_many_that_takes_no_part() -> None:
    found, _, spawned = run(hw.gpus(devices=(hw.gpu(0, mig_enabled=True), hw.gpu(1))))
    one = found["n1"]
    assert isinstance(one, GpuWork)
    assert list(one.left_out) == [0]
    assert [gpu["index"] for gpu in spawned[0][1]["ranks"][0]["gpus"]] == [1]


def test_pretended_gpus_and_none_do_not_apply() -> None:
    for gpus, host in ((hw.gpus(1), healthy.host(pretended=("gpu",))), (hw.no_gpus(), None)):
        found, _, spawned = run(gpus, host=host)
        assert found["n1"] == Missing(Why.NOT_APPLICABLE, "no GPU to work on")
        assert not spawned


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param(done({"index": 7, **A_RATE}), "other GPUs", id="another GPU"),
        pytest.param(done({"index": 0, **A_RATE}, {"index": 0, **A_RATE}), "other GPUs", id="twice"),
        pytest.param(done({"index": 0, "tflop_s": -1.0}), "cannot be", id="less than nothing"),
        pytest.param(done({"index": 0, "memory_gbyte_s": 1e300}), "cannot be", id="too much"),
        pytest.param(done({"index": "x"}), "unreadable", id="no number"),
        pytest.param([], "could not be read", id="no answer"),
        pytest.param({"ranks": [{"running": False, "code": -9, "stderr": "a\nKilled"}]}, "-9", id="killed"),
        pytest.param(
            {"ranks": [{"running": True, "events": [{"event": "error", "stage": "import", "text": "No"}]}]},
            "import: No",
            id="no import",
        ),
    ],
)
def test_what_cannot_be_is_not_measured(said: Any, why: str) -> None:
    found, transport, _ = run(hw.gpus(1), hw.gpus(1), said=said)
    one = found["n1"]
    assert isinstance(one, Missing)
    assert why in one.detail
    assert not one.why.is_skip
    assert ("stop", "n1") in transport.requests


def test_a_gpu_that_hangs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "THROUGH_S", 0.02)
    alive = {"event": "alive", "stage": "copies", "gpu": 0}
    found, transport, _ = run(hw.gpus(1), said={"ranks": [{"running": True, "events": [alive]}]})
    one = found["n1"]
    assert isinstance(one, Missing)
    assert one.why is Why.TIMED_OUT
    assert "at copies, GPU 0" in one.detail
    assert ("stop", "n1") in transport.requests
