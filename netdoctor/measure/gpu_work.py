"""Two seconds of work on every idle GPU: a matrix product, memory, and copies to the host and back."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any, TypeVar

import msgspec

from netdoctor.facts.accelerators import AcceleratorFacts
from netdoctor.facts.base import Missing, Why
from netdoctor.facts.gpu import Gpu, GpuRate, GpuWork
from netdoctor.facts.software import SoftwareFacts, no_torch
from netdoctor.measure.common import facts_of, read_as
from netdoctor.measure.declare import Context, experiment
from netdoctor.measure.gpus import CHOICES, MOST_GPUS, chosen_of_amd, in_use, of_amd, of_job
from netdoctor.measure.programs import Program, bound_s, on_each
from netdoctor.measure.ranks import IMPORT_S, ProcessState, how_it_ended, passed_on

# Two seconds a GPU; contexts of sixteen are made one after the other, a second each on a slow machine.
WORK_S = 60.0
THROUGH_S = IMPORT_S + WORK_S
ASK_S = 20.0
# Beyond any GPU, so a node that says so is wrong: TFLOP/s, GB/s.
MOST = 1e6

_UUID = re.compile(r"GPU-[0-9A-Za-z-]{1,60}")
_NUMBERS = re.compile(r"[0-9,]{1,100}")
_BUS = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")

NONE = Missing(Why.NOT_APPLICABLE, "no GPU to work on")
NOT_OFFERED = Missing(Why.NOT_EXAMINED, "the driver offers no GPU of AMD for computing")
MIG = "MIG is on: a share of a GPU is not a measure of it"
PARTITIONED = "it is partitioned: a share of a GPU is not a measure of it"
SILENT = "it does not answer"

T = TypeVar("T")


class Event(msgspec.Struct):
    """A line that the program said."""

    event: str
    stage: str = ""
    gpu: int | None = None
    text: str = ""
    torch: str = ""
    gpus: list[Any] = []


@cache
def program(name: str) -> str:
    """The text that every node runs: what works on devices, and the file of this name."""
    files = resources.files("netdoctor.agent.programs")
    return "\n".join(files.joinpath(file).read_text("utf-8") for file in ("devices.py", name))


@experiment(
    after=["ports"],
    needs=["software", "gpu", "accelerators"],
    bound_s=ASK_S + bound_s(THROUGH_S),
    cost="loads-gpu",
)
def gpu_work(context: Context) -> dict[str, GpuWork | Missing]:
    """Torch multiplies, moves and copies for two seconds on each idle GPU; all nodes at once.

    Each node by itself: what one does not do says nothing of the others.
    """
    return on_idle(context, "gpu.py", THROUGH_S, _read)


def on_idle(
    context: Context,
    name: str,
    through_s: float,
    read: Callable[[Event, str, tuple[Gpu, ...], dict[int, str]], T | Missing],
    stand_in: tuple[Gpu, ...] = (),
) -> dict[str, T | Missing]:
    """What the program of this name came to on the idle GPUs of each node, all nodes at once.

    read: the fact of (the last event, the node, its devices, those left out). stand_in: what works where a
    node has no GPU.
    """
    found: dict[str, T | Missing] = {}
    devices_of: dict[str, tuple[Gpu, ...]] = {}
    left_out: dict[str, dict[int, str]] = {}
    for node in context.participants.nodes:
        chosen = _chosen(context, node, stand_in)
        if isinstance(chosen, Missing):
            found[node] = chosen
        else:
            devices_of[node], left_out[node] = chosen
    at_gpus = {node: devices for node, devices in devices_of.items() if devices is not stand_in}
    for node, why in _in_use_now(context, at_gpus).items():
        found[node] = Missing(Why.NOT_EXAMINED, why)
        del devices_of[node]
    last: dict[str, Event] = {}

    def outcome(node: str, state: ProcessState) -> T | Missing | None:
        answer = _last_event(node, state, last)
        if answer is None or isinstance(answer, Missing):
            return answer
        if answer.event == "error":
            return Missing(Why.FAILED, f"{answer.stage[:40]}: {answer.text[:400]}")
        return read(answer, node, devices_of[node], left_out[node])

    programs = {node: _program(context, name, d, d is stand_in) for node, d in devices_of.items()}
    for node, answer in on_each(context.transport, programs, through_s, outcome).items():
        at = last.get(node)
        where = f" (at {at.stage or 'start'}{'' if at.gpu is None else f', GPU {at.gpu}'})" if at else ""
        found[node] = answer or Missing(Why.TIMED_OUT, f"not through after {through_s:.0f} s{where}")
    return found


def _chosen(
    context: Context, node: str, stand_in: tuple[Gpu, ...]
) -> tuple[tuple[Gpu, ...], dict[int, str]] | Missing:
    """The GPUs to work on, or the stand-in, and why others take no part; a Missing where there are none."""
    software = context.store.get_or_none("software", node)
    count, devices = of_job(context, node)
    if not count:
        others = context.store.get_or_none("accelerators", node)
        if others is not None and others.amd:
            return _of_amd(context, software, others)
        known = context.store.get_or_none("gpu", node)
        if known is None:
            return Missing(Why.FAILED, "its GPUs are not known")
        if not stand_in or known.pci:
            return NONE
        return (stand_in, {}) if software and software.torch else _without_torch(software)
    if software is None or software.torch is None:
        return _without_torch(software)
    if software.torch.cuda is None:
        return Missing(Why.NOT_EXAMINED, f"its torch {software.torch.version} is not built for CUDA")
    if why := in_use(devices):
        return Missing(Why.NOT_EXAMINED, why)
    left_out = {d.index: MIG for d in devices if d.mig_enabled}
    left_out |= {d.index: SILENT for d in devices if d.error or not _UUID.fullmatch(d.uuid)}
    able = tuple(d for d in devices if d.index not in left_out)[:MOST_GPUS]
    return (able, left_out) if able else Missing(Why.NOT_EXAMINED, next(iter(left_out.values())))


def _of_amd(
    context: Context, software: SoftwareFacts | None, others: AcceleratorFacts
) -> tuple[tuple[Gpu, ...], dict[int, str]] | Missing:
    """The same of AMD's GPUs, which a torch for ROCm works on by CUDA's names."""
    torch = software.torch if software else None
    devices = chosen_of_amd(others, context.job.env)
    if isinstance(devices, str):
        return Missing(Why.NOT_EXAMINED, devices)
    if not devices:
        return NOT_OFFERED
    if torch is None:
        return _without_torch(software)
    if torch.hip is None:
        return Missing(Why.NOT_EXAMINED, f"its torch {torch.version} is not built for ROCm")
    if any(device.mig_enabled for device in devices):
        return Missing(Why.NOT_EXAMINED, PARTITIONED)
    why = in_use(devices)
    return Missing(Why.NOT_EXAMINED, why) if why else (devices[:MOST_GPUS], {})


def _without_torch(software: SoftwareFacts | None) -> Missing:
    return Missing(Why.NOT_EXAMINED, no_torch([software]) if software else "its software is not known")


def _in_use_now(context: Context, devices_of: Mapping[str, tuple[Gpu, ...]]) -> dict[str, str]:
    """Nodes that somebody has come to since they were first asked, or that do not tell, and why."""
    busy = {}
    for group in ("gpu", "accelerators"):
        nodes = [node for node in devices_of if is_amd(devices_of[node]) is (group == "accelerators")]
        for node, facts in facts_of(context.transport, group, {n: {} for n in nodes}, ASK_S).items():
            if isinstance(facts, Missing):
                busy[node] = f"it is not known who uses the GPUs: {facts.detail}"
                continue
            chosen = {(d.uuid, d.pci_bus_id) for d in devices_of[node]}
            now = of_amd(facts) if isinstance(facts, AcceleratorFacts) else facts.devices
            if why := in_use(d for d in now if (d.uuid, d.pci_bus_id) in chosen):
                busy[node] = why
    return busy


def is_amd(devices: tuple[Gpu, ...]) -> bool:
    """NVML has a UUID of each; AMD's driver numbers them."""
    return not devices[0].uuid


def _program(context: Context, name: str, devices: tuple[Gpu, ...], cpu: bool) -> Program:
    """By UUID, so that torch numbers them as they stand here, whatever order CUDA would take. AMD's are all
    of the session's, or those that the job's variables leave."""
    gpus = [{"index": d.index, "uuid": d.uuid, "bus": _sysfs(d.pci_bus_id)} for d in devices]
    job = context.job.env
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(d.uuid for d in devices)}
    if cpu:
        visible = {"CUDA_VISIBLE_DEVICES": ""}
    elif is_amd(devices):
        visible = {name: job[name] for name in CHOICES if name in job and _NUMBERS.fullmatch(job[name])}
    env = passed_on(context.job) | visible
    return Program(code=program(name), config={"gpus": gpus, "cpu": cpu}, env=env)


def _sysfs(bus: str) -> str:
    """``0000:21:00.0`` of NVML's ``00000000:21:00.0``."""
    found = _BUS.fullmatch(bus)
    return f"{int(found[1], 16):04x}:{found[2].lower()}" if found else ""


def _last_event(node: str, state: ProcessState, last: dict[str, Event]) -> Event | Missing | None:
    """The line that ended it; None while it goes on."""
    for event in filter(None, (read_as(raw, Event) for raw in state.events[:5000])):
        if event.event in ("result", "error"):
            return event
        last[node] = event
    return None if state.running else Missing(Why.FAILED, how_it_ended(state))


def _read(event: Event, _node: str, devices: tuple[Gpu, ...], left_out: dict[int, str]) -> GpuWork | Missing:
    """A node speaks of the GPUs that it was asked about, of each once."""
    try:
        rates = msgspec.convert(event.gpus, tuple[GpuRate, ...])
    except (msgspec.ValidationError, RecursionError) as error:
        return Missing(Why.UNPARSABLE, f"unreadable answer: {error}"[:400])
    figures = [
        value
        for rate in rates
        for value in (rate.tflop_s, rate.memory_gbyte_s, rate.to_device_gbyte_s, rate.to_host_gbyte_s)
    ]
    if [r.index for r in rates] != [d.index for d in devices]:
        return Missing(Why.UNPARSABLE, "it reports other GPUs than the requested ones")
    if not all(v is None or 0 < v < MOST for v in figures):
        return Missing(Why.UNPARSABLE, "figures that cannot be")
    names = [device.name if is_amd(devices) else "" for device in devices]
    gpus = tuple(
        replace(rate, error=rate.error[:400], kind=rate.kind[:20], board=name)
        for rate, name in zip(rates, names, strict=True)
    )
    return GpuWork(torch=event.torch[:60], gpus=gpus, left_out=left_out)
