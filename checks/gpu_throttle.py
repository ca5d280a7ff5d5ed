"""Reasons why a GPU holds its clocks down."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._words import listing
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import Node
from netdoctor.model import (
    CauseHint,
    Command,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    skip,
    warn,
)

# nvmlClocksEventReason*, nvml.h. Idle (0x1), application clocks (0x2), the software power cap
# (0x4), sync boost (0x10) and display clocks (0x100) are normal in one situation or another.
BAD = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",
)
def gpu_throttle(node: Node, gpu: GpuFacts) -> Iterator[Finding]:
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
    known = [d for d in gpu.devices if d.throttle_reasons is not None]
    if not known:
        reason = "the GPUs do not report it" if gpu.devices else "no GPU on this node"
        yield skip(reason, node.id)
        return
    for device in known:
        bits = device.throttle_reasons or 0
        reasons = [text for bit, text in BAD.items() if bits & bit]
        if not reasons:
            continue
        power = bool(bits & 0x80)
        yield warn(
            node.id,
            f"GPU {device.index} is held back: {listing(reasons)}",
            observed=f"{listing(reasons)} ({bits:#x})",
            expected="none of them",
            expected_from=ExpectedFrom.CONSTANT,
            evidence=(
                Evidence(
                    kind="probe",
                    where=node.id,
                    what=f"NVML, GPU {device.index}, clock event reasons",
                    output=f"{bits:#x}",
                ),
            ),
            cause=CauseHint(
                key="gpu-power-brake" if power else "gpu-slowdown",
                title="the power supply holds back GPUs of {nodes}"
                if power
                else "GPUs of {nodes} are held back by heat or power",
                culprits=(node.id,),
                fixes=(
                    Fix(
                        text="read temperatures, power and clocks",
                        commands=(
                            Command(
                                run_on=node.id,
                                shell="nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE,CLOCK"
                                f" -i {device.index}",
                            ),
                        ),
                        effect="",
                    ),
                ),
            ),
        )
