"""What GPUs did in two seconds of work, against others of their kind and against their data sheets."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median, median_high

from netdoctor.checks._shared.text import listing
from netdoctor.facts.gpu import Gpu, GpuRate
from netdoctor.model import (
    CONSTANT,
    LIKELY,
    PEERS,
    Action,
    Cause,
    Evidence,
    Finding,
    Measure,
    look,
    ok,
    run,
    seen,
    unknown,
)
from netdoctor.rules.boards import board, least

CUDA_FAILS = Cause("gpu-work-fails", "torch cannot use GPUs of {nodes}", follows=("sw.cuda", "gpu.fabric"))
WRONG = Cause("gpu-work-wrong", "GPUs of {nodes} give two results of one product", action=Action.REPLACE)
LOCKED = Cause("gpu-clocks-locked", "GPUs of {nodes} are held to lower clocks than others by a setting")
SLOW = Cause("gpu-work-slow", "GPUs of {nodes} compute slower than others of their kind", LIKELY)
MEMORY = Cause("gpu-memory-slow", "memory of GPUs of {nodes} is slower than that of others", LIKELY)
COPY = Cause("gpu-copy-slow", "copies between GPU and host are slow on {nodes}", LIKELY)
BELOW = Cause("gpu-work-below-board", "GPUs of {nodes} do far less than their boards are made for", LIKELY)
# What torch and CUDA say of a GPU that a program cannot use. Little memory is somebody's, and no fault.
UNUSABLE = ("CUDA error", "HIP error", "CUDA driver", "no kernel image", "sees ")

Place = tuple[str, int]  # node and index of a GPU


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the figures: what its GPU does, its unit, and the share of the others' at which it is slow."""

    name: str
    value: Callable[[GpuRate], float | None]
    unit: str
    does: str
    share: float
    cause: Cause
    by_slot: bool = False


# GPUs of one model differ by 8 % on average and 22 % at the most (the source of this check); memory keeps its
# clock, so that its figures lie close. Copies share the host with everybody: what halves them is a link with
# half its lanes or one generation less.
FIGURES = (
    Figure("compute", lambda rate: rate.tflop_s, "TFLOP/s", "multiplies at", 0.78, SLOW),
    Figure("memory", lambda rate: rate.memory_gbyte_s, "GB/s", "moves its memory at", 0.85, MEMORY),
    Figure("to-device", lambda rate: rate.to_device_gbyte_s, "GB/s", "takes data at", 0.65, COPY, True),
    Figure("to-host", lambda rate: rate.to_host_gbyte_s, "GB/s", "gives data at", 0.65, COPY, True),
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


def failed(node: str, rate: GpuRate) -> Finding:
    summary = f"GPU {rate.index} did not do its work: {rate.error}"
    if not any(word in rate.error for word in UNUSABLE):
        return unknown(node, summary)
    return CUDA_FAILS.fail(
        summary,
        at=node,
        observed=rate.error,
        expected="a GPU that torch can use",
        seen=seen(f"torch, GPU {rate.index}", rate.error),
        fixes=look(
            "read what the driver says of it",
            "amd-smi; dmesg | grep -E 'amdgpu|kfd'"
            if rate.board
            else "nvidia-smi; dmesg | grep -E 'NVRM|Xid'",
            root=True,
        ),
    )


def wrong(node: str, rate: GpuRate) -> Finding:
    return WRONG.fail(
        f"GPU {rate.index} gives {rate.wrong} different values when it multiplies the same numbers again",
        at=node,
        observed=f"{rate.wrong} values",
        expected="the same result each time",
        seen=seen(f"torch.mm, {rate.side} rows of {rate.kind}, GPU {rate.index}", f"{rate.wrong} values"),
        fixes=look(
            "take the GPU out of service, and test it",
            "amd-smi metric --ecc --ecc-blocks" if rate.board else f"dcgmi diag -r 3 -i {rate.index}",
        ),
    )


def locked(rates: Mapping[Place, GpuRate]) -> Iterator[tuple[Finding, Place]]:
    """Whose clock is low under load, and neither power nor heat are why: NVML tells of no locked clocks."""
    clocks = {place: rate.clock_mhz for place, rate in rates.items() if rate.clock_mhz}
    usual = median_high(clocks.values()) if len(clocks) > 1 else 0
    for (node, index), clock in clocks.items():
        reasons = rates[node, index].throttle_reasons
        if clock < LOCKED_PART * usual and reasons is not None and not reasons & ~BY_SETTING:
            finding = LOCKED.warn(
                f"GPU {index} works at {clock} MHz, others at {usual}, and neither heat nor power limits it",
                at=node,
                observed=f"{clock} MHz",
                expected=PEERS(f"{usual} MHz"),
                seen=at_work(rates[node, index]),
                fixes=(
                    look("see its clocks under load", LOOKS[SLOW.key].format(index)),
                    run(
                        "let them go, unless somebody wants them so",
                        f"nvidia-smi -i {index} -rgc",
                        root=True,
                        persistent=False,
                        risk="low",
                    ),
                ),
            )
            yield finding, (node, index)


def against_peers(figure: Figure, rates: Mapping[Place, GpuRate]) -> Iterator[tuple[Finding, Place]]:
    """Who is slower than half of its kind, by more than healthy ones differ."""
    values = {place: value for place, rate in rates.items() if (value := figure.value(rate)) is not None}
    if len(values) < 2:
        return
    # Of as many on either side the slower are the suspects.
    usual = median_high(values.values())
    told = usual_circumstances(rates.values())
    looks = AMD_LOOKS if any(rate.board for rate in rates.values()) else LOOKS
    slots: dict[int, list[float]] = defaultdict(list)
    for (_, index), value in values.items():
        slots[index].append(value)
    for (node, index), value in values.items():
        # What all nodes have in one place is how they are built.
        wanted = min(usual, median_high(slots[index])) if figure.by_slot else usual
        if value < figure.share * wanted:
            most = _number(wanted)
            said = circumstances(rates[node, index], told)
            finding = figure.cause.but(action=Action.DRAIN).warn(
                f"GPU {index} {figure.does} {_number(value)} {figure.unit}, others at {most}{said}",
                at=node,
                observed=f"{_number(value)} {figure.unit}",
                expected=PEERS(f"{most} {figure.unit}"),
                seen=at_work(rates[node, index]),
                fixes=look("see it under load", looks[figure.cause.key].format(index)),
            )
            yield finding, (node, index)


def against_board(place: Place, device: Gpu, rate: GpuRate) -> Iterator[Finding]:
    """Where all are slow, only the data sheet tells; with a power limit below the default it does not."""
    node, index = place
    floor, known = least(device.name), board(device.name)
    limit, default = device.power_limit_w, device.power_default_w
    if floor is None or known is None or (limit and default and limit < default):
        return
    for value, at_least, most, unit in (
        (rate.tflop_s if rate.kind != "float32" else None, floor.tflop_s, known.tflop_s, "TFLOP/s"),
        (rate.memory_gbyte_s, floor.gbyte_s, known.gbyte_s, "GB/s of memory"),
    ):
        if value is not None and value < at_least:
            yield BELOW.warn(
                f"GPU {index} does {_number(value)} {unit}, its board is made for {most:g}",
                at=node,
                observed=f"{_number(value)} {unit}",
                expected=f"at least {at_least:g}",
                expected_from=CONSTANT,
                seen=at_work(rate),
                fixes=look("see it under load", LOOKS[SLOW.key].format(index)),
            )


def figures(node: str, names: list[str], rates: list[GpuRate], torch: str, judged: bool) -> Finding:
    """What a node's GPUs did; a gap where there was nothing to compare it with."""
    measures: dict[str, Measure] = {}
    said = []
    for figure in FIGURES:
        values = [value for rate in rates if (value := figure.value(rate)) is not None]
        if values:
            measures[f"gpu.work.{figure.name}"] = Measure(value=median(values), unit=figure.unit)
            said.append(f"{figure.name} {_number(min(values))} to {_number(max(values))} {figure.unit}")
    known = board(names[0])
    sheet = f" (data sheet {known.tflop_s:g} TFLOP/s, {known.gbyte_s:g} GB/s)" if known else ""
    text = f"{len(rates)} x {names[0]}, {rates[0].kind}, torch {torch}: {', '.join(said)}{sheet}"
    gap = None if judged else "nothing to compare the GPU's work with"
    return ok(node, text, observed=text, measures=measures, gap=gap)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def usual_circumstances(rates: Iterable[GpuRate]) -> dict[str, float]:
    """What most GPUs of a kind tell of their work, by its word."""
    told = {word: [v for one in rates if (v := read(one))] for word, read in CIRCUMSTANCES.items()}
    return {word: median_high(values) for word, values in told.items() if values}


def circumstances(rate: GpuRate, usual: Mapping[str, float]) -> str:
    """What else is different of a slow one."""
    own = {word: read(rate) for word, read in CIRCUMSTANCES.items()}
    said = [
        f"{word.format(value)}, others {usual[word]:g}"
        for word, value in own.items()
        if value and abs(value - usual[word]) > 0.1 * usual[word]
    ]
    return f" ({'; '.join(said)})" if said else ""


def at_work(rate: GpuRate) -> Evidence:
    """The same of any, as evidence."""
    words = [word.format(value) for word, read in CIRCUMSTANCES.items() if (value := read(rate))]
    if rate.throttle_reasons is not None:
        words.append(f"clock event reasons {rate.throttle_reasons:#x}")
    if rate.power_w is not None:
        words.append(f"{rate.power_w:.0f} W")
    said = listing([*words, f"{rate.clock_idle_mhz or '?'} MHz before"], 7)
    return seen(f"torch and NVML, GPU {rate.index} at work", said)
