"""Memory errors that a GPU could not correct."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._gpus import untold
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import Cause, Finding, run, seen

ERRORS = Cause("gpu-ecc", "{nodes} {has} a GPU with uncorrected memory errors")


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
)
def gpu_ecc(gpu: GpuFacts) -> Iterator[Finding]:
    """No GPU has met a memory error that it could not correct since the driver was loaded.

    Looks at:
        NVML's volatile count of uncorrected ECC errors on each GPU.

    Matters because:
        The process that touches such memory is ended (Xid 48, 94, 95), and until the GPU is reset
        it may be so again. A GPU that keeps meeting them is to be replaced.

    Fix:
        Reset the GPU with nothing running on it; if the count comes back, drain the node and have
        the board replaced.
    """
    yield from untold(gpu, lambda device: device.ecc_uncorrected, "count ECC errors")
    for device in gpu.devices:
        if count := device.ecc_uncorrected:
            yield ERRORS.fail(
                f"GPU {device.index} has {count} uncorrected memory error{'s' if count > 1 else ''}",
                observed=str(count),
                expected="0",
                seen=seen(f"NVML, GPU {device.index}, volatile uncorrected ECC errors", str(count)),
                fixes=run(
                    "reset the GPU, with nothing running on it",
                    f"nvidia-smi --gpu-reset -i {device.index} && "
                    f"nvidia-smi -q -d ECC,ROW_REMAPPER -i {device.index}",
                    root=True,
                    risk="medium",
                    loses="whatever runs on the GPU",
                ),
            )
