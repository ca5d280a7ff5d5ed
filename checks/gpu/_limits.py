"""What a GPU says of itself, held against its own limits and defaults."""

from collections.abc import Callable, Iterator

from netdoctor.facts.gpu import Gpu
from netdoctor.model import DERIVED, Action, Cause, Finding, Fix, look, seen

CAPPED = Cause("gpu-power-capped", "GPUs of {nodes} are limited to less power than their default")
SLOWER = Cause("gpu-clocks-set", "GPUs of {nodes} are set to lower clocks than their default")
SPENT = Cause(
    "gpu-memory-spent",
    "{nodes} {has} a GPU with memory that is close to being past repair",
    action=Action.REPLACE,
)
NO_SPARE = Cause(
    "gpu-memory-no-spare",
    "{nodes} {has} a GPU with a bank of memory that has no spare row left",
    action=Action.IGNORE,
)
CORRUPT = Cause("gpu-inforom-corrupt", "{nodes} {has} a GPU with a corrupt InfoROM", action=Action.REPLACE)
HOT = Cause("gpu-hot", "GPUs of {nodes} are as hot as they may become", action=Action.DRAIN)

# Of the 64 that a board before Ampere can retire in its life.
# https://github.com/NVIDIA/DCGM dcgm_gpu_hardware_limits.h, DCGM_LIMIT_MAX_RETIRED_PAGES
MOST_RETIRED = 63

Both = tuple[float | None, float | None]


def _clocks(gpu: Gpu, which: int) -> Both:
    """Application clock as set, and its default: 0 graphics, 1 memory."""
    now, default = gpu.clocks_set_mhz, gpu.clocks_default_mhz
    return (now[which], default[which]) if now and default else (None, None)


# What may be set below its default: how both are read, what it is, its unit, nvidia-smi's section, and the
# flag that takes it back.
DEFAULTS: tuple[tuple[Cause, Callable[[Gpu], Both], str, str, str, str], ...] = (
    (CAPPED, lambda gpu: (gpu.power_limit_w, gpu.power_default_w), "power", "W", "POWER", "-pl"),
    (SLOWER, lambda gpu: _clocks(gpu, 0), "graphics clock", "MHz", "CLOCK", "-rac"),
    (SLOWER, lambda gpu: _clocks(gpu, 1), "memory clock", "MHz", "CLOCK", "-rac"),
)

# What wears out: its cause, whether it has, what is said of the GPU, NVML's word for it, what is expected.
WORN: tuple[tuple[Cause, Callable[[Gpu], object], str, str, str], ...] = (
    (
        SPENT,
        lambda gpu: gpu.sram_exceeded,
        "has had more errors of its SRAM than NVIDIA lets pass",
        "SRAM threshold exceeded",
        "not exceeded",
    ),
    (
        NO_SPARE,
        lambda gpu: gpu.banks_without_spare and not gpu.remap_failed,
        "has a bank of memory without a spare row",
        "bank remap availability: none",
        "spare rows in every bank",
    ),
    (
        SPENT,
        lambda gpu: (gpu.retired_pages or 0) >= MOST_RETIRED,
        "has retired as many pages of its memory as it can",
        f"{MOST_RETIRED} or more retired pages",
        f"fewer than {MOST_RETIRED}",
    ),
)


def set_lower(node: str, gpu: Gpu) -> Iterator[Finding]:
    """What somebody has set below the GPU's default."""
    if gpu.power_limit_w == gpu.power_default_w and gpu.clocks_set_mhz == gpu.clocks_default_mhz:
        return
    for cause, read, what, unit, section, flag in DEFAULTS:
        now, default = read(gpu)
        if now and default and now < default:
            value, command = f"{now:g} {unit}", f"nvidia-smi -q -d {section} -i {gpu.index}"
            yield cause.warn(
                f"GPU {gpu.index} is limited to {value} ({what}), its default is {default:g} {unit}",
                at=node,
                observed=value,
                expected=DERIVED(f"{default:g} {unit}"),
                seen=seen(f"NVML, GPU {gpu.index}, limit of its {what}", value),
                fixes=look(f"ask who has set it; nvidia-smi {flag} takes it back", command),
            )


def worn(gpu: Gpu) -> Iterator[Finding]:
    """Memory that has nearly used up what repairs it."""
    for cause, is_spent, words, place, wanted in WORN:
        if is_spent(gpu):
            yield cause.warn(
                f"GPU {gpu.index} {words}",
                observed=place,
                expected=wanted,
                seen=seen(f"NVML, GPU {gpu.index}", place),
                fixes=to_be_tested(gpu),
            )


def corrupt(node: str, gpu: Gpu) -> Iterator[Finding]:
    """A board whose configuration and history cannot be read, as the driver itself says."""
    if gpu.inforom_valid is False:
        yield CORRUPT.warn(
            f"GPU {gpu.index} has an InfoROM whose checksums do not fit",
            at=node,
            observed="corrupt",
            expected="checksums that fit",
            seen=seen(f"NVML, GPU {gpu.index}, validation of the InfoROM", f"corrupt, {gpu.inforom}"),
            fixes=look("have it written anew, or the board replaced", f"nvidia-smi -q -i {gpu.index}"),
        )


def to_be_tested(gpu: Gpu) -> Fix:
    """For NVIDIA's field diagnostic to decide."""
    shell = f"nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT -i {gpu.index}"
    return look("have the GPU tested and replaced", shell)


def too_hot(gpu: Gpu) -> Iterator[Finding]:
    """A GPU that has reached the lower one of its own limits."""
    degrees = [limit for limit in (gpu.operating_c, gpu.slowdown_c) if limit]
    margins = [limit for limit in (gpu.operating_margin_c, gpu.slowdown_margin_c) if limit is not None]
    if gpu.margin_c is not None and margins and gpu.margin_c <= max(margins):
        now, wanted = f"{gpu.margin_c} C from its limit", f"more than {max(margins)} C, this GPU's own margin"
    elif gpu.temperature_c and degrees and gpu.temperature_c >= min(degrees):
        now, wanted = f"at {gpu.temperature_c} C", f"below {min(degrees)} C, this GPU's own limit"
    else:
        return
    yield HOT.warn(
        f"GPU {gpu.index} is {now}",
        observed=now,
        expected=DERIVED(wanted),
        seen=seen(f"NVML, GPU {gpu.index}, temperature", f"{gpu.temperature_c} C"),
        fixes=look(
            "look at fans, air and coolant", f"nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i {gpu.index}"
        ),
    )
