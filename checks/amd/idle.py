"""Processes that already use AMD's GPUs."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.processes import end_processes, process_text
from netdoctor.checks._shared.text import MIB, listing
from netdoctor.facts.accelerators import AcceleratorFacts
from netdoctor.model import Action, Cause, Finding, look, seen, skip
from netdoctor.rules.cuda import FOREIGN_BYTES, is_harmless

BUSY = Cause("amd-busy", "something already uses AMD GPUs of {nodes}", action=Action.RETRY)


@check(
    after=["ssh.login", "amd.visible"],
    required=False,
    source="https://github.com/torvalds/linux/blob/v6.8/drivers/gpu/drm/amd/amdkfd/kfd_process.c",
)
def amd_idle(found: AcceleratorFacts) -> Iterator[Finding]:
    """Nothing else runs on the AMD GPUs.

    Looks at:
        The compute processes that the driver lists (/sys/class/kfd/kfd/proc), for all GPUs of the node
        together. Also GPU memory that is in use although no process is listed, if it is more than the
        driver needs.

    Matters because:
        A process that a crashed job left behind keeps memory that the next job needs. A process that
        computes makes every rank wait for this node.

    Fix:
        End leftover processes. Do not touch processes of somebody's job.
    """
    if not found.amd:
        yield skip("no AMD GPU on this node")
        return
    if found.processes is None:
        yield skip("the driver does not list compute processes", gap="who uses the AMD GPUs")
    busy = [process for process in found.processes or () if not is_harmless(process)]
    if busy:
        yield BUSY.warn(
            f"AMD GPUs are in use by {listing([process_text(process) for process in busy], 3)}",
            observed=f"{len(busy)} process{'es' if len(busy) > 1 else ''}",
            expected="idle GPUs",
            seen=seen("/sys/class/kfd/kfd/proc", listing(str(process.pid) for process in busy), "file"),
            fixes=end_processes(busy),
        )
        return
    used_by_board = {one.address: one.vram_used_bytes or 0 for one in found.amd}
    if full := [f"{used // MIB} MiB of {bus}" for bus, used in used_by_board.items() if used > FOREIGN_BYTES]:
        yield BUSY.warn(
            f"{listing(full, 4)} are in use by processes that cannot be seen",
            observed=listing(full, 4),
            expected="idle GPUs",
            seen=seen("mem_info_vram_used", listing(full, 8), "file"),
            fixes=look("see who has the devices open", "fuser -v /dev/kfd /dev/dri/renderD*", root=True),
        )
