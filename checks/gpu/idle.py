"""Processes that already use the GPUs."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.processes import end_processes, process_text
from netdoctor.checks._shared.text import MIB, listing
from netdoctor.checks.gpu._gpus import nvml_finding
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import Action, Cause, Finding, look, skip
from netdoctor.rules.cuda import is_harmless, unseen_bytes

BUSY = Cause("gpu-busy", "something already uses GPUs of {nodes}", action=Action.RETRY)
UNTOLD = "who uses the GPUs"


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
)
def gpu_idle(gpu: GpuFacts) -> Iterator[Finding]:
    """Nothing else runs on the GPUs.

    Looks at:
        NVML's compute processes of each GPU, with process id, user, memory and age, and whether the login
        session that started it has ended.

    Matters because:
        A process that a crashed job left behind keeps memory that the next job needs. A process that
        computes makes every rank wait for this node.

    Fix:
        End leftover processes. Do not touch processes of somebody's job.
    """
    if not gpu.devices:
        yield skip("no GPU on this node")
    # Not measured is not idle.
    answering = [device for device in gpu.devices if device.error is None]
    if silent := [f"GPU {d.index}" for d in answering if d.processes is None]:
        yield skip(f"NVML does not report which processes use {listing(silent, 4)}", gap=UNTOLD)
    elif silent := [f"GPU {d.index}" for d in answering if d.memory_used_bytes is None]:
        yield skip(f"NVML does not report how much memory of {listing(silent, 4)} is in use", gap=UNTOLD)
    for device in gpu.devices:
        busy = [p for p in device.processes or () if not is_harmless(p)]
        if busy:
            who = [process_text(process) for process in busy]
            count = f"{len(busy)} process{'es' if len(busy) > 1 else ''}"
            yield nvml_finding(
                BUSY.warn, device, f"is in use by {listing(who, 3)}", "", count, "an idle GPU",
                output=listing(who), fixes=end_processes(busy),
            )  # fmt: skip
        elif used := unseen_bytes(device) // MIB:
            yield BUSY.warn(
                f"{used} MiB of GPU {device.index} are in use by processes that cannot be seen",
                observed=f"{used} MiB",
                expected="an idle GPU",
                fixes=look(
                    "see who has the devices open, from outside any container",
                    "fuser -v /dev/nvidia*",
                    root=True,
                ),
            )
