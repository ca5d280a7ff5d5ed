"""Memory errors that a GPU could not correct, and what its memory has left to repair them with."""

from collections.abc import Callable, Iterator

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.checks.gpu._gpus import nvml_finding, reset, untold
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.model import HERE, Action, Cause, Finding, Fix, look, ok

FAILED = Cause(
    "gpu-memory-worn", "{nodes} {has} a GPU whose memory cannot be repaired any more", action=Action.REPLACE
)
PENDING = Cause(
    "gpu-memory-pending",
    "{nodes} {has} a GPU with faulty memory rows until its next reset",
    action=Action.RESET_GPU,
)
ERRORS = Cause("gpu-ecc", "{nodes} {has} a GPU with uncorrected memory errors", action=Action.RESET_GPU)
SPENT = Cause(
    "gpu-memory-spent",
    "{nodes} {has} a GPU with memory that soon cannot be repaired any more",
    action=Action.REPLACE,
)
NO_SPARE = Cause(
    "gpu-memory-no-spare",
    "{nodes} {has} a GPU with a memory bank that has no spare row left",
    action=Action.IGNORE,
)
# Of the 64 that a board before Ampere can retire in its life.
# https://github.com/NVIDIA/DCGM dcgm_gpu_hardware_limits.h, DCGM_LIMIT_MAX_RETIRED_PAGES
MOST_RETIRED = 63
# What wears out: its cause, whether it has, what is said of the GPU, NVML's word for it, what is expected.
WORN: tuple[tuple[Cause, Callable[[Gpu], object], str, str, str], ...] = (
    (
        SPENT, lambda gpu: gpu.sram_exceeded, "has had more SRAM errors than NVIDIA's threshold",
        "SRAM threshold exceeded", "not exceeded",
    ),
    (
        NO_SPARE, lambda gpu: gpu.banks_without_spare and not gpu.remap_failed,
        "has a memory bank without a spare row",
        "bank remap availability: none", "spare rows in every bank",
    ),
    (
        SPENT, lambda gpu: (gpu.retired_pages or 0) >= MOST_RETIRED,
        "has retired as many pages of its memory as it can",
        f"{MOST_RETIRED} or more retired pages", f"fewer than {MOST_RETIRED}",
    ),
)  # fmt: skip


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
)
def gpu_ecc(gpu: GpuFacts) -> Iterator[Finding]:
    """No GPU has had an uncorrected memory error since the driver was loaded.

    Looks at:
        NVML's volatile count of uncorrected ECC errors of each GPU. Whether faulty memory rows (pages,
        before Ampere) wait for a reset to be replaced, or could not be replaced. Whether spare rows or
        pages are used up. SRAM errors beyond NVIDIA's threshold, which only root can read. Errors over
        the board's whole life are shown but not judged.

    Matters because:
        A process that touches such memory is killed (Xid 48, 94, 95). Until the GPU is reset this may
        happen again. A GPU with repeated errors should be replaced.

    Fix:
        Reset the GPU with nothing running on it. If errors come back, or a row could not be replaced,
        drain the node and have the board replaced.
    """
    yield from untold(gpu, lambda device: device.ecc_uncorrected, "count ECC errors")
    for device in gpu.devices:
        yield from _errors(device)
    past = {d.index: d.ecc_uncorrected_ever for d in gpu.devices if not d.ecc_uncorrected}
    if notes := [f"GPU {index} {count}" for index, count in past.items() if count]:
        yield ok(HERE, f"uncorrected errors before the driver was loaded, not judged: {listing(notes, 8)}")
    if refused := [f"GPU {device.index}" for device in gpu.devices if device.sram_refused]:
        yield ok(
            HERE, f"needs root: whether {listing(refused, 4)} had more SRAM errors than NVIDIA's threshold"
        )


def _errors(gpu: Gpu) -> Iterator[Finding]:
    if count := gpu.ecc_uncorrected:
        words = f"has {count} uncorrected memory error{'s' if count > 1 else ''}"
        ever = f"{count}; {gpu.ecc_uncorrected_ever or count} in its life"
        yield nvml_finding(
            ERRORS.fail, gpu, words, "volatile uncorrected ECC errors", str(count), "0",
            output=ever, fixes=reset(gpu.index),
        )  # fmt: skip
    elif gpu.remap_pending or gpu.retired_pending:
        kind = "rows" if gpu.remap_pending else "pages"
        words = f"has faulty memory {kind} that are replaced at its next reset"
        yield nvml_finding(
            PENDING.warn, gpu, words, f"faulty {kind}", "pending", "none pending", fixes=reset(gpu.index)
        )
    if gpu.remap_failed:
        words = "has a faulty memory row and no spare row for it"
        yield nvml_finding(
            FAILED.fail, gpu, words, "remapped rows", "remapping failed", "no failure",
            output="failure occurred", fixes=_replace(gpu),
        )  # fmt: skip
    for cause, is_spent, words, state, expected in WORN:
        if is_spent(gpu):
            yield nvml_finding(cause.warn, gpu, words, "", state, expected, fixes=_replace(gpu))


def _replace(gpu: Gpu) -> Fix:
    """For NVIDIA's field diagnostic to decide."""
    shell = f"nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT -i {gpu.index}"
    return look("have the GPU tested and replaced", shell)
