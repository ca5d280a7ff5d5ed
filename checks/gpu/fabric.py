"""Whether GPUs behind NVSwitches have joined their fabric."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.checks.gpu._gpus import other_release, start_service, untold
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import DERIVED, Action, Cause, Finding, look, seen, skip

WAITS = Cause("gpu-fabric-waits", "GPUs of {nodes} wait for NVIDIA's fabric manager")
FAILED = Cause("gpu-fabric-failed", "GPUs of {nodes} could not join their NVLink fabric", action=Action.DRAIN)
RELEASE = Cause("gpu-fabric-release", "{nodes} {has} a fabric manager of another release than the driver")
STOPPED = Cause("gpu-fabric-manager-stopped", "the fabric manager of {nodes} does not run")
# nvmlGpuFabricState_t of nvml.h.
NOT_SUPPORTED, COMPLETED = 0, 3
STATES = {1: "not started", 2: "in progress"}
SEE = look(
    "read why",
    "systemctl status nvidia-fabricmanager --no-pager; tail -n 40 /var/log/fabricmanager.log",
    root=True,
)
START = start_service("the fabric manager", "nvidia-fabricmanager")


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",
)
def gpu_fabric(gpu: GpuFacts) -> Iterator[Finding]:
    """Every GPU behind NVSwitches has joined their NVLink fabric.

    Looks at:
        NVML's fabric state of each GPU. Where boards do not report it (before Hopper): NVSwitches on the
        PCI bus, and whether a fabric manager runs. The fabric manager's release (Debian packages) is
        compared with the loaded driver's.

    Matters because:
        Until the fabric manager has set up the fabric, CUDA starts on none of these GPUs. The job ends
        with "system not yet initialized" (CUDA error 802), although nvidia-smi lists all GPUs. With a
        driver of another release the fabric manager ends at once.

    Fix:
        Start nvidia-fabricmanager, in exactly the driver's release. If it does not keep running, read its
        log.
    """
    release = other_release(gpu, "nvidia-fabricmanager")
    states = {d.index: d for d in gpu.devices if d.fabric_state not in (None, NOT_SUPPORTED)}
    if states:
        yield from untold(gpu, lambda device: device.fabric_state, "report their fabric state")
    elif not gpu.nvswitches:
        yield skip("no NVSwitch on this node" if gpu.devices else "no GPU on this node")
    elif gpu.fabric_manager is None:
        yield skip("processes here are not visible to this user", gap="the fabric manager (needs root)")
    elif not gpu.fabric_manager and not release:
        number = f"{gpu.nvswitches} NVSwitch{'es' if (gpu.nvswitches or 0) > 1 else ''}"
        yield STOPPED.fail(
            f"{number}, and no fabric manager runs",
            expected="nv-fabricmanager among the processes",
            seen=seen("/sys/bus/pci/devices and /proc", f"{number}; no process nv-fabricmanager"),
            fixes=(START, SEE),
        )
    waits = {i: STATES.get(d.fabric_state or 0, str(d.fabric_state)) for i, d in states.items()}
    waits = {i: word for i, word in waits.items() if states[i].fabric_state != COMPLETED}
    failed = {i: d.fabric_status for i, d in states.items() if i not in waits and d.fabric_status}
    stands = bool(waits) or gpu.fabric_manager is False
    if release and (gpu.nvswitches or states):
        until = "it does not start so" if stands else "it runs until its next start"
        yield (RELEASE.fail if stands else RELEASE.warn)(
            f"fabric manager {release} is installed, the driver is {gpu.kernel_driver}: {until}",
            observed=release,
            expected=DERIVED(f"{gpu.kernel_driver}, as the driver"),
            seen=seen("/var/lib/dpkg/status", f"nvidia-fabricmanager {release}", "file"),
            fixes=look(
                "see which releases are available, and install the driver's",
                "cat /sys/module/nvidia/version; apt-cache madison 'nvidia-fabricmanager*'",
            ),
        )
    for cause, numbers in ((WAITS, {} if release else waits), (FAILED, failed)):
        if numbers:
            text = listing((f"GPU {i}: {state}" for i, state in numbers.items()), 8)
            yield cause.fail(
                f"not in the NVLink fabric: {text}",
                observed=listing(sorted({str(state) for state in numbers.values()})),
                expected="state completed, status 0",
                seen=seen("NVML, GPU fabric info", text),
                fixes=(START, SEE) if cause is WAITS else SEE,
            )
