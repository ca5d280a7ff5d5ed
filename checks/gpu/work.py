"""GPUs at work: which is slower than others of its kind, though no counter says so."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median, median_high

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.facts.gpu import Gpu, GpuFacts, GpuRate, GpuWork
from netdoctor.model import (
    LIKELY,
    PEERS,
    Action,
    Cause,
    Evidence,
    Expected,
    Finding,
    Fix,
    Measure,
    look,
    ok,
    run,
    seen,
    skip,
    unknown,
)
from netdoctor.rules.boards import board, least

CUDA_FAILS = Cause("gpu-work-fails", "torch cannot use GPUs of {nodes}", follows=("sw.cuda", "gpu.fabric"))
WRONG = Cause(
    "gpu-work-wrong", "GPUs of {nodes} give different results for the same product", action=Action.REPLACE
)
LOCKED = Cause("gpu-clocks-locked", "GPUs of {nodes} have lower clocks than others because of a setting")
SLOW = Cause("gpu-work-slow", "GPUs of {nodes} compute slower than others of their kind", LIKELY)
MEMORY = Cause("gpu-memory-slow", "memory of GPUs of {nodes} is slower than that of others", LIKELY)
COPY = Cause("gpu-copy-slow", "copies between GPU and host are slow on {nodes}", LIKELY)
BELOW = Cause("gpu-work-below-board", "GPUs of {nodes} are far below the data sheet of their boards", LIKELY)
# What torch and CUDA say of a GPU that a program cannot use. Little memory is somebody's, and no fault.
UNUSABLE = ("CUDA error", "HIP error", "CUDA driver", "no kernel image", "sees ")

GpuId = tuple[str, int]  # node and index of a GPU


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the figures that a GPU reaches."""

    name: str
    value: Callable[[GpuRate], float | None]
    unit: str
    does: str  # what its GPU does, in words
    share: float  # of the others' figure, below which it is slow
    cause: Cause
    by_slot: bool = False  # compared with GPUs in the same place on other nodes, too


# GPUs of one model differ by 8 % on average and 22 % at the most (the source of this check); memory keeps its
# clock, so that its figures lie close. Copies share the host with everybody: what halves them is a link with
# half its lanes or one generation less.
FIGURES = (
    Figure("compute", lambda rate: rate.tflop_s, "TFLOP/s", "multiplies at", 0.78, SLOW),
    Figure("memory", lambda rate: rate.memory_gbyte_s, "GB/s", "has a memory rate of", 0.85, MEMORY),
    Figure("to-device", lambda rate: rate.to_device_gbyte_s, "GB/s", "receives data at", 0.65, COPY, True),
    Figure("to-host", lambda rate: rate.to_host_gbyte_s, "GB/s", "sends data at", 0.65, COPY, True),
)
CIRCUMSTANCES: dict[str, Callable[[GpuRate], float | None]] = {
    "{} MHz under load": lambda rate: rate.clock_mhz,
    "{} °C": lambda rate: rate.temperature_c,
    "PCIe generation {}": lambda rate: rate.pcie_generation,
    "{} PCIe lanes": lambda rate: rate.pcie_width,
}
# Of the clock that others of the kind have at the same work. Healthy ones differ by what power and heat leave
# them, which the driver says; where it names neither, nothing but a setting keeps a clock down.
LOCKED_PART = 0.9
# nvmlClocksEventReason*: idle, application clocks, sync boost, display.
BY_SETTING = 0x1 | 0x2 | 0x10 | 0x100
LOOKS = {
    SLOW.key: "nvidia-smi -q -d CLOCK,PERFORMANCE,POWER,TEMPERATURE -i {}",
    MEMORY.key: "nvidia-smi -q -d ECC,ROW_REMAPPER,CLOCK -i {}",
    COPY.key: "nvidia-smi -q -d PIDS,UTILIZATION -i {0}; nvidia-smi topo -m",
}


AMD_LOOKS = {
    SLOW.key: "amd-smi metric --clock --power --temperature --perf-level",
    MEMORY.key: "amd-smi metric --ecc --clock",
    COPY.key: "amd-smi metric --pcie; amd-smi topology",
}


@check(
    after=["sw.start", "gpu.visible"],
    profile="full",
    cost="loads-gpu",
    required=False,
    source="https://arxiv.org/abs/2208.11035",
)
def gpu_work(work: Mapping[str, GpuWork], gpus: Mapping[str, GpuFacts]) -> Iterator[Finding]:
    """Every GPU computes, uses its memory and copies data as fast as the others of its kind.

    Looks at:
        Two seconds of work on each idle GPU, in the job's torch. Matrix products (bfloat16; float16
        before compute capability 8.0, float32 before 7.0) and memory traffic run on all GPUs of a node at
        once, as in a job; then copies of pinned memory to the GPU and back, one GPU after the other. The
        median of each is compared with GPUs of the same model, power limit and ECC mode in the cluster;
        copies also with GPUs in the same place on other nodes. If the board's data sheet is known, it is
        used, too. The first and the last product of the same numbers must be equal. If the clock stays
        low without a power or heat limit, the clocks are locked. AMD GPUs take part with a torch for
        ROCm. A GPU that is in use, in MIG mode or partitioned is not touched; at most an eighth of the
        memory is used.

    Matters because:
        A collective waits for its slowest rank. A GPU that is hot, badly seated or worn is slow without
        any error. One that computes wrong results spoils the model without any message.

    Fix:
        Check clocks and temperature under load, power and cooling, and the GPU's PCIe link. Run the check
        again. If the problem stays, send the GPU back to the vendor.
    """
    kinds: dict[tuple[object, ...], dict[GpuId, GpuRate]] = defaultdict(dict)
    devices: dict[GpuId, Gpu] = {}
    for node, found in work.items():
        known = {one.index: one for one in gpus[node].devices} if node in gpus else {}
        for rate in found.gpus:
            if rate.error:
                yield _failed(node, rate)
            elif silent := [one.name for one in FIGURES if one.value(rate) is None]:
                yield unknown(node, f"GPU {rate.index} did not report {listing(silent)}")
            elif rate.board or rate.index in known:
                one = devices[node, rate.index] = (
                    Gpu(index=rate.index, name=rate.board) if rate.board else known[rate.index]
                )
                kind = (one.name, one.power_limit_w, one.ecc_enabled, rate.kind, rate.side)
                kinds[kind][node, rate.index] = rate
            if rate.wrong:
                yield _wrong(node, rate)
        if found.left_out:
            first = next(iter(found.left_out.values()))
            who = listing([f"GPU {index}" for index in found.left_out], 4)
            yield skip(f"{who} took no part: {first}", node, gap="some GPUs took no part")
    slow: set[GpuId] = set()
    for rates in kinds.values():
        locked_ids = {gpu_id: finding for finding, gpu_id in _locked(rates)}
        yield from locked_ids.values()
        for finding, gpu_id in chain.from_iterable(_against_peers(one, rates) for one in FIGURES):
            slow.add(gpu_id)
            if gpu_id not in locked_ids or not finding.cause or finding.cause.key != SLOW.key:
                yield finding
        slow |= locked_ids.keys()
    compared = {gpu_id for rates in kinds.values() if len(rates) > 1 for gpu_id in rates}
    for gpu_id, one in devices.items():
        rate = next(rates[gpu_id] for rates in kinds.values() if gpu_id in rates)
        if gpu_id not in slow:
            yield from _against_board(gpu_id, one, rate)
    for node, found in work.items():
        rates_here = {rate.index: rate for rate in found.gpus if (node, rate.index) in devices}
        if rates_here:
            names = [devices[node, index].name for index in rates_here]
            judged = any((node, index) in compared for index in rates_here) or any(map(board, names))
            yield _figures(node, names, list(rates_here.values()), found.torch, judged)


def _finding(
    say: Callable[..., Finding],
    node: str,
    rate: GpuRate,
    words: str,
    observed: str,
    expected: str | Expected,
    fixes: Fix | Sequence[Fix],
    evidence: Evidence | None = None,
) -> Finding:
    """A finding of one GPU; its evidence, where none is given, is what else was measured under load."""
    evidence = evidence or _under_load(rate)
    summary = f"GPU {rate.index} {words}"
    return say(summary, at=node, observed=observed, expected=expected, seen=evidence, fixes=fixes)


def _failed(node: str, rate: GpuRate) -> Finding:
    words, error = f"did not do its work: {rate.error}", rate.error
    if not any(word in error for word in UNUSABLE):
        return unknown(node, f"GPU {rate.index} {words}")
    tools = (
        "amd-smi; dmesg | grep -E 'amdgpu|kfd'" if rate.board else "nvidia-smi; dmesg | grep -E 'NVRM|Xid'"
    )
    see = look("read the driver's messages about it", tools, root=True)
    evidence = seen(f"torch, GPU {rate.index}", error)
    return _finding(CUDA_FAILS.fail, node, rate, words, error, "a GPU that torch can use", see, evidence)


def _wrong(node: str, rate: GpuRate) -> Finding:
    words = f"gives {rate.wrong} different values when it multiplies the same numbers again"
    tool = "amd-smi metric --ecc --ecc-blocks" if rate.board else f"dcgmi diag -r 3 -i {rate.index}"
    test, count = look("take the GPU out of service, and test it", tool), f"{rate.wrong} values"
    evidence = seen(f"torch.mm, {rate.side} rows of {rate.kind}, GPU {rate.index}", count)
    return _finding(WRONG.fail, node, rate, words, count, "the same result each time", test, evidence)


def _locked(rates: Mapping[GpuId, GpuRate]) -> Iterator[tuple[Finding, GpuId]]:
    """GPUs whose clock is low under load, for another reason than power or heat.

    NVML does not tell of locked clocks.
    """
    clocks = {gpu_id: rate.clock_mhz for gpu_id, rate in rates.items() if rate.clock_mhz}
    typical = median_high(clocks.values()) if len(clocks) > 1 else 0
    for gpu_id, clock in clocks.items():
        node, index = gpu_id
        reasons = rates[gpu_id].throttle_reasons
        if clock < LOCKED_PART * typical and reasons is not None and not reasons & ~BY_SETTING:
            words = f"works at {clock} MHz, others at {typical}, and neither heat nor power limits it"
            fixes = (
                look("check its clocks under load", LOOKS[SLOW.key].format(index)),
                run(
                    "unlock them, unless somebody locked them on purpose",
                    f"nvidia-smi -i {index} -rgc",
                    root=True,
                    persistent=False,
                    risk="low",
                ),
            )
            expected = PEERS(f"{typical} MHz")
            yield _finding(LOCKED.warn, node, rates[gpu_id], words, f"{clock} MHz", expected, fixes), gpu_id


def _against_peers(figure: Figure, rates: Mapping[GpuId, GpuRate]) -> Iterator[tuple[Finding, GpuId]]:
    """GPUs that are slower than half of their kind, by more than healthy ones differ."""
    values = {gpu_id: value for gpu_id, rate in rates.items() if (value := figure.value(rate)) is not None}
    if len(values) < 2:
        return
    # Of as many on either side the slower are the suspects.
    typical = median_high(values.values())
    others = _typical_circumstances(rates.values())
    looks = AMD_LOOKS if any(rate.board for rate in rates.values()) else LOOKS
    slots: dict[int, list[float]] = defaultdict(list)
    for (_, index), value in values.items():
        slots[index].append(value)
    for gpu_id, value in values.items():
        node, index = gpu_id
        # What all nodes have in one place is how they are built.
        expected = min(typical, median_high(slots[index])) if figure.by_slot else typical
        if value < figure.share * expected:
            rate, right = f"{_number(value)} {figure.unit}", _number(expected)
            words = f"{figure.does} {rate}, others at {right}{_circumstances(rates[gpu_id], others)}"
            say = figure.cause.but(action=Action.DRAIN).warn
            see = look("check it under load", looks[figure.cause.key].format(index))
            expected_text = PEERS(f"{right} {figure.unit}")
            yield _finding(say, node, rates[gpu_id], words, rate, expected_text, see), gpu_id


def _against_board(gpu_id: GpuId, device: Gpu, rate: GpuRate) -> Iterator[Finding]:
    """Where all are slow, only the data sheet tells; with a power limit below the default it does not."""
    known = board(device.name)
    limit, default = device.power_limit_w, device.power_default_w
    if known is None or (limit and default and limit < default):
        return
    floor = least(device.name, known)
    for value, at_least, most, unit in (
        (rate.tflop_s if rate.kind != "float32" else None, floor.tflop_s, known.tflop_s, "TFLOP/s"),
        (rate.memory_gbyte_s, floor.gbyte_s, known.gbyte_s, "GB/s of memory"),
    ):
        if value is not None and value < at_least:
            has = f"{_number(value)} {unit}"
            words, expected = f"reaches {has}, the data sheet says {most:g}", f"at least {at_least:g}"
            see = look("check it under load", LOOKS[SLOW.key].format(rate.index))
            yield _finding(BELOW.warn, gpu_id[0], rate, words, has, expected, see)


def _figures(node: str, names: list[str], rates: list[GpuRate], torch: str, judged: bool) -> Finding:
    """What a node's GPUs did; a gap where there was nothing to compare it with."""
    measures: dict[str, Measure] = {}
    parts = []
    for figure in FIGURES:
        values = [value for rate in rates if (value := figure.value(rate)) is not None]
        if values:
            measures[f"gpu.work.{figure.name}"] = Measure(value=median(values), unit=figure.unit)
            ends = dict.fromkeys(map(_number, (min(values), max(values))))
            parts.append(f"{figure.name} {' to '.join(ends)} {figure.unit}")
    known = board(names[0])
    says = [f"{known.tflop_s:g} TFLOP/s"] if known and known.tflop_s else []
    sheet = f" (data sheet {', '.join([*says, f'{known.gbyte_s:g} GB/s'])})" if known else ""
    text = f"{len(rates)} x {names[0]}, {rates[0].kind}, torch {torch}: {', '.join(parts)}{sheet}"
    gap = None if judged else "no other GPU to compare with"
    return ok(node, text, observed=text, measures=measures, gap=gap)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _typical_circumstances(rates: Iterable[GpuRate]) -> dict[str, float]:
    found = {words: [v for one in rates if (v := read(one))] for words, read in CIRCUMSTANCES.items()}
    return {words: median_high(values) for words, values in found.items() if values}


def _circumstances(rate: GpuRate, typical: Mapping[str, float]) -> str:
    """What else is different of a slow one."""
    parts = [
        f"{words.format(value)}, others {typical[words]:g}"
        for words, read in CIRCUMSTANCES.items()
        if (value := read(rate)) and abs(value - typical[words]) > 0.1 * typical[words]
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def _under_load(rate: GpuRate) -> Evidence:
    words = [word.format(value) for word, read in CIRCUMSTANCES.items() if (value := read(rate))]
    if rate.throttle_reasons is not None:
        words.append(f"clock event reasons {rate.throttle_reasons:#x}")
    if rate.power_w is not None:
        words.append(f"{rate.power_w:.0f} W")
    text = listing([*words, f"{rate.clock_idle_mhz or '?'} MHz before"], 7)
    return seen(f"torch and NVML, GPU {rate.index} at work", text)
