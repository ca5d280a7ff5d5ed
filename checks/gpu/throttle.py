"""Reasons why a GPU holds its clocks down."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.checks.gpu._gpus import nvml_finding, untold
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.model import DERIVED, Action, Cause, Finding, look

# nvmlClocksEventReason*, nvml.h. Idle (0x1), application clocks (0x2), the software power cap
# (0x4), sync boost (0x10) and display clocks (0x100) are normal in one situation or another.
POWER_BRAKE = 0x80
BAD = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    POWER_BRAKE: "power brake",
}
ANY = sum(BAD)

POWER = Cause("gpu-power-brake", "the power supply slows down GPUs of {nodes}", action=Action.DRAIN)
HOT = Cause("gpu-hot", "GPUs of {nodes} are at their temperature limit", action=Action.DRAIN)
SLOWED = Cause("gpu-slowdown", "GPUs of {nodes} are slowed down by heat or power", action=Action.DRAIN)


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",
)
def gpu_throttle(gpu: GpuFacts) -> Iterator[Finding]:
    """No GPU is slowed down by heat or by its power supply.

    Looks at:
        NVML's clock event reasons of each GPU: hardware slowdown, hardware and software thermal
        slowdown, power brake.

    Matters because:
        A collective waits for its slowest rank: one GPU at half its clock halves the job.

    Fix:
        Check temperatures, fans and power supplies. A power brake comes from the rack or the power
        supply, not from the GPU.
    """
    yield from untold(gpu, lambda device: device.throttle_reasons, "report it")
    for device in gpu.devices:
        bits = device.throttle_reasons or 0
        if bits & ANY:
            reasons = listing(text for bit, text in BAD.items() if bits & bit)
            cause = POWER if bits & POWER_BRAKE else SLOWED
            yield nvml_finding(
                cause.warn, device, f"is slowed down: {reasons}", "clock event reasons",
                f"{reasons} ({bits:#x})", "none of them", output=f"{bits:#x}",
                fixes=look(
                    "read temperatures, power and clocks",
                    f"nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE,CLOCK -i {device.index}",
                ),
            )  # fmt: skip
        else:
            yield from _too_hot(device)


def _too_hot(gpu: Gpu) -> Iterator[Finding]:
    """A GPU that has reached the lower one of its own limits."""
    degrees = [limit for limit in (gpu.operating_c, gpu.slowdown_c) if limit]
    margins = [limit for limit in (gpu.operating_margin_c, gpu.slowdown_margin_c) if limit is not None]
    if gpu.margin_c is not None and margins and gpu.margin_c <= max(margins):
        now, right = f"{gpu.margin_c} C from its limit", f"more than {max(margins)} C, this GPU's own margin"
    elif gpu.temperature_c and degrees and gpu.temperature_c >= min(degrees):
        now, right = f"at {gpu.temperature_c} C", f"below {min(degrees)} C, this GPU's own limit"
    else:
        return
    see = look("check fans, air and coolant", f"nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i {gpu.index}")
    yield nvml_finding(
        HOT.warn, gpu, f"is {now}", "temperature", now, DERIVED(right),
        output=f"{gpu.temperature_c} C", fixes=see,
    )  # fmt: skip
