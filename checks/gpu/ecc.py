"""Memory errors that a GPU could not correct, and what its memory has left to repair them with."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.checks.gpu._gpus import reset, untold
from netdoctor.checks.gpu._limits import to_be_tested, worn
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import HERE, Action, Cause, Finding, ok, seen

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
        NVML's volatile count of uncorrected ECC errors on each GPU; whether faulty rows of its memory (pages,
        before Ampere) wait for a reset to be replaced, or could not be replaced; whether spare rows or pages
        are used up, and errors of SRAM beyond NVIDIA's threshold, which only root is told. Errors of the
        board's whole life are shown and not judged.

    Matters because:
        The process that touches such memory is ended (Xid 48, 94, 95), and until the GPU is reset
        it may be so again. A GPU that keeps meeting them is to be replaced.

    Fix:
        Reset the GPU with nothing running on it; if the count comes back, or a row could not be replaced,
        drain the node and have the board replaced.
    """
    yield from untold(gpu, lambda device: device.ecc_uncorrected, "count ECC errors")
    for device in gpu.devices:
        name = f"GPU {device.index}"
        if count := device.ecc_uncorrected:
            ever = f"{count}; {device.ecc_uncorrected_ever or count} in its life"
            yield ERRORS.fail(
                f"{name} has {count} uncorrected memory error{'s' if count > 1 else ''}",
                observed=str(count),
                expected="0",
                seen=seen(f"NVML, {name}, volatile uncorrected ECC errors", ever),
                fixes=reset(device.index),
            )
        elif device.remap_pending or device.retired_pending:
            what = "rows" if device.remap_pending else "pages"
            yield PENDING.warn(
                f"{name} has memory {what} that are replaced at its next reset",
                observed="pending",
                expected="none pending",
                seen=seen(f"NVML, {name}, faulty {what}", "pending"),
                fixes=reset(device.index),
            )
        if device.remap_failed:
            yield FAILED.fail(
                f"{name} has a faulty memory row for which there is no spare one",
                observed="remapping failed",
                expected="no failure",
                seen=seen(f"NVML, {name}, remapped rows", "failure occurred"),
                fixes=to_be_tested(device),
            )
        yield from worn(device)
    past = {d.index: d.ecc_uncorrected_ever for d in gpu.devices if not d.ecc_uncorrected}
    if told := [f"GPU {index} {count}" for index, count in past.items() if count]:
        yield ok(HERE, f"uncorrected errors before the driver was loaded, not judged: {listing(told, 8)}")
    if refused := [f"GPU {device.index}" for device in gpu.devices if device.sram_refused]:
        yield ok(
            HERE, f"needs root: whether {listing(refused, 4)} had more errors of SRAM than NVIDIA lets pass"
        )
