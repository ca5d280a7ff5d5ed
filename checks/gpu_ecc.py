"""Memory errors that a GPU could not correct."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._gpus import reset, untold
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import Action, Cause, Finding, look, seen

FAILED = Cause(
    "gpu-memory-worn", "{nodes} {has} a GPU whose memory cannot be repaired any more", action=Action.REPLACE
)
PENDING = Cause(
    "gpu-memory-pending",
    "{nodes} {has} a GPU with faulty memory rows until its next reset",
    action=Action.RESET_GPU,
)
ERRORS = Cause("gpu-ecc", "{nodes} {has} a GPU with uncorrected memory errors", action=Action.RESET_GPU)


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
)
def gpu_ecc(gpu: GpuFacts) -> Iterator[Finding]:
    """No GPU has met a memory error that it could not correct since the driver was loaded.

    Looks at:
        NVML's volatile count of uncorrected ECC errors on each GPU, and whether faulty rows of its memory
        wait for a reset to be replaced by spare ones, or could not be replaced.

    Matters because:
        The process that touches such memory is ended (Xid 48, 94, 95), and until the GPU is reset
        it may be so again. A GPU that keeps meeting them is to be replaced.

    Fix:
        Reset the GPU with nothing running on it; if the count comes back, or a row could not be replaced,
        drain the node and have the board replaced.
    """
    yield from untold(gpu, lambda device: device.ecc_uncorrected, "count ECC errors")
    for device in gpu.devices:
        if count := device.ecc_uncorrected:
            yield ERRORS.fail(
                f"GPU {device.index} has {count} uncorrected memory error{'s' if count > 1 else ''}",
                observed=str(count),
                expected="0",
                seen=seen(f"NVML, GPU {device.index}, volatile uncorrected ECC errors", str(count)),
                fixes=reset(device.index),
            )
        elif device.remap_pending:
            yield PENDING.warn(
                f"GPU {device.index} has memory rows that are replaced at its next reset",
                observed="pending",
                expected="none pending",
                seen=seen(f"NVML, GPU {device.index}, remapped rows", "pending"),
                fixes=reset(device.index),
            )
        if device.remap_failed:
            yield FAILED.fail(
                f"GPU {device.index} has a faulty memory row for which there is no spare one",
                observed="remapping failed",
                expected="no failure",
                seen=seen(f"NVML, GPU {device.index}, remapped rows", "failure occurred"),
                fixes=look(
                    "have the GPU tested and replaced", f"nvidia-smi -q -d ROW_REMAPPER -i {device.index}"
                ),
            )
