"""Whether AMD's driver offers every AMD GPU of a node for computing."""

from collections.abc import Iterator
from functools import partial

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.facts.accelerators import AcceleratorFacts
from netdoctor.facts.host import HostFacts
from netdoctor.model import DERIVED, LIKELY, Cause, Finding, Fix, in_job, look, run, seen, skip

_cause = partial(Cause, verify=("amd.visible",))
NO_DRIVER = _cause("amd-no-driver", "{nodes} {has} AMD GPUs without the amdgpu driver")
FEWER = _cause("amd-fewer", "the driver of {nodes} offers fewer AMD GPUs for compute than the node has")
FORBIDDEN = _cause("amd-permission", "{nodes} refuse{s} to let the login user compute on AMD GPUs")
NOT_GIVEN = Cause("amd-not-in-container", "the container on {nodes} was given no AMD GPU", LIKELY)
HIDDEN = "AMD GPUs that are not visible to this login"

CONTAINER = in_job(
    "start the container with the GPUs",
    "docker run --device /dev/kfd --device /dev/dri --group-add video --group-add render ...   # your image",
)
LOAD = run("load the driver; if that fails, see why", "modprobe amdgpu || dmesg | tail -n 40", root=True)
LOG = look("read the driver's messages about them", "dmesg | grep -E 'amdgpu|kfd' | tail -n 40", root=True)
LET_IN = look(
    "see which groups have access, and add the login user to them (usermod -aG render,video)",
    "ls -l /dev/kfd /dev/dri/renderD*; id",
)


@check(
    explains=("amd.*", "gpu.count"),
    required=False,
    source="https://rocm.docs.amd.com/projects/install-on-linux/en/latest/install/prerequisites.html",
)
def amd_visible(found: AcceleratorFacts, host: HostFacts | None) -> Iterator[Finding]:
    """amdgpu drives every AMD GPU of the node, and the login user may compute on them.

    Looks at:
        AMD boards on the PCI bus (except graphics of processors and BMCs), the driver bound to them, the
        GPUs that it offers for compute (KFD's topology in sysfs), and the mode of /dev/kfd.

    Matters because:
        Without the driver, or without permission to open /dev/kfd, torch finds no GPU. Ranks then end at
        once, or compute on the CPU.

    Fix:
        Load the driver, add the user to the groups render and video, or start the container with the
        GPUs.
    """
    boards, inside = len(found.amd), host is not None and bool(host.container)
    if not boards:
        yield skip("no AMD GPU on this node")
        return
    drivers = listing([f"{board.address} {board.driver or 'no driver'}" for board in found.amd], 8)
    evidence = (seen("/sys/bus/pci/devices", drivers, "file"), seen("KFD's topology", listing(found.kfd, 8)))
    others = [board for board in found.amd if board.driver != "amdgpu"]
    fixes: Fix | list[Fix]
    if others:
        cause, fixes, observed = NO_DRIVER, [LOAD, LOG], f"{len(others)} without amdgpu"
        drivers_bound = listing(sorted({board.driver or "no driver" for board in others}))
        summary = f"{len(others)} of {boards} AMD GPUs are bound to {drivers_bound}"
    elif inside and found.may_compute is None:
        cause, fixes, observed = NOT_GIVEN, CONTAINER, "no /dev/kfd"
        summary = f"the machine has {boards} AMD GPUs, and this container has none"
    elif found.kfd_hidden and len(found.kfd) < boards:
        yield skip(
            f"{boards - len(found.kfd)} of {boards} AMD GPUs are hidden from this login by a device cgroup; "
            "scan from inside a job: netdoctor scan --via slurm",
            gap=HIDDEN,
        )
        return
    elif len(found.kfd) < boards:
        cause, fixes, observed = FEWER, LOG, f"{len(found.kfd)} GPUs"
        summary = f"{boards} AMD GPUs on the PCI bus, {len(found.kfd)} that can compute"
    elif not found.may_compute:
        cause, fixes, observed = FORBIDDEN, LET_IN, "/dev/kfd may not be opened"
        summary = "the login user may not open /dev/kfd"
    else:
        return
    say = cause.warn if cause is NOT_GIVEN else cause.fail
    yield say(summary, observed=observed, expected=DERIVED(f"{boards} GPUs"), seen=evidence, fixes=fixes)
