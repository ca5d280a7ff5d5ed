"""Reasons why a GPU holds its clocks down."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.checks.gpu._gpus import untold
from netdoctor.checks.gpu._limits import too_hot
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import Action, Cause, Finding, look, seen

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

POWER = Cause("gpu-power-brake", "the power supply holds back GPUs of {nodes}", action=Action.DRAIN)
SLOWED = Cause("gpu-slowdown", "GPUs of {nodes} are held back by heat or power", action=Action.DRAIN)


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",
)
def gpu_throttle(gpu: GpuFacts) -> Iterator[Finding]:
    """No GPU is held back by heat or by its power supply.

    Looks at:
        NVML's clock event reasons of each GPU: hardware slowdown, hardware and software thermal
        slowdown, power brake.

    Matters because:
        A collective waits for its slowest rank: one GPU at half its clock halves the job.

    Fix:
        Look at temperatures, fans and power supplies. A power brake comes from the rack or the
        power supply, not from the GPU.
    """
    yield from untold(gpu, lambda device: device.throttle_reasons, "report it")
    for device in gpu.devices:
        bits = device.throttle_reasons or 0
        if bits & ANY:
            reasons = listing(text for bit, text in BAD.items() if bits & bit)
            cause = POWER if bits & POWER_BRAKE else SLOWED
            yield cause.warn(
                f"GPU {device.index} is held back: {reasons}",
                observed=f"{reasons} ({bits:#x})",
                expected="none of them",
                seen=seen(f"NVML, GPU {device.index}, clock event reasons", f"{bits:#x}"),
                fixes=look(
                    "read temperatures, power and clocks",
                    f"nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE,CLOCK -i {device.index}",
                ),
            )
        else:
            yield from too_hot(device)
