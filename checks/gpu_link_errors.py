"""Errors that NVLinks and PCIe links of GPUs have had since the driver was loaded."""

from collections.abc import Callable, Iterator
from itertools import product

from netdoctor.check import check
from netdoctor.checks._gpus import reset, untold
from netdoctor.checks._words import listing
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.model import HERE, Action, Cause, Finding, look, ok, seen

# The driver was loaded at or after the node's start: errors by the time since then are the least that their
# rate can have been on average.
# https://github.com/NVIDIA/DCGM dcgm_gpu_hardware_limits.h: DCGM_LIMIT_MAX_PCIREPLAY_RATE (a minute),
# DCGM_LIMIT_MAX_NVLINK_CRC_ERROR (a second); its health watch fails any recovery of an NVLink.
REPLAYS_A_SECOND = 8 / 60
CRC_A_SECOND = 100.0

RECOVERED = Cause("gpu-nvlink-recovered", "an NVLink of GPUs of {nodes} broke down and was trained again")
CRC = Cause("gpu-nvlink-crc", "NVLinks of GPUs of {nodes} garble what they carry", action=Action.DRAIN)
REPLAYS = Cause("gpu-pcie-replays", "PCIe links of GPUs of {nodes} repeat packets", action=Action.DRAIN)

# What is counted, its cause, and from how many a second on it is one; without a cause it is shown alone.
Count = tuple[Callable[[Gpu], int | None], str, Cause | None, float]
COUNTS: tuple[Count, ...] = (
    (lambda gpu: gpu.nvlink_recoveries, "NVLink recoveries", RECOVERED, 0.0),
    (lambda gpu: gpu.nvlink_crc_errors, "NVLink CRC errors", CRC, CRC_A_SECOND),
    (lambda gpu: gpu.pcie_replays, "PCIe replays", REPLAYS, REPLAYS_A_SECOND),
    (lambda gpu: gpu.nvlink_replays, "NVLink replays", None, 0.0),
)


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html",
)
def gpu_link_errors(gpu: GpuFacts) -> Iterator[Finding]:
    """No link of a GPU broke down since the driver was loaded, or repeats packets all the time.

    Looks at:
        NVML's counts of NVLink recoveries, CRC errors and replays, and of PCIe replays, of each GPU. They are
        totals since the driver was loaded, so that a count over the time since the node was started is the
        least that its rate was. Single errors are corrected by the link, and are shown and not judged.

    Matters because:
        What is repeated is slow, and a link that breaks down once does so again, in the middle of a job
        (Xid 74). No bandwidth is measured until it does.

    Fix:
        Reset the GPU, which trains its links anew. What comes back is hardware: the board's connector, a
        bridge, a riser, the slot.
    """
    yield from untold(gpu, _tells, "count errors of their links")
    quiet = []
    for device, (read, what, cause, most) in product(gpu.devices, COUNTS):
        if not (value := read(device)):
            continue
        words = f"GPU {device.index} has {value} {what}"
        rate = value / gpu.up_s if gpu.up_s else 0.0
        if cause is None or rate < most:
            quiet.append(words.removesuffix("s") if value == 1 else words)
            continue
        yield cause.warn(
            f"{words} since the driver was loaded" + (f", {rate:.3g} a second or more" if most else ""),
            observed=f"{rate:.3g} a second" if most else str(value),
            expected=f"fewer than {most:.3g} a second" if most else "none",
            seen=seen(f"NVML, GPU {device.index}, {what}", str(value)),
            fixes=(
                look(
                    "see which link it is",
                    f"nvidia-smi nvlink -e -i {device.index}; "
                    f"nvidia-smi -q -i {device.index} | grep -i replay",
                ),
                reset(device.index),
            ),
        )
    if quiet:
        yield ok(HERE, f"since the driver was loaded, corrected and not judged: {listing(quiet, 8)}")


def _tells(gpu: Gpu) -> int | None:
    return next((value for read, *_ in COUNTS if (value := read(gpu)) is not None), None)
