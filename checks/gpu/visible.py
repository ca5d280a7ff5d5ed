"""Whether the driver answers and shows every GPU that the machine has."""

from collections.abc import Iterator, Sequence
from functools import partial

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.checks.gpu._gpus import CONTROL_NODE, bind, given_by_slurm, withheld, withheld_finding
from netdoctor.facts.accelerators import AcceleratorFacts
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts, Node, Session
from netdoctor.facts.software import EnvFacts
from netdoctor.model import (
    CONFIG,
    DERIVED,
    LIKELY,
    Action,
    Cause,
    Evidence,
    Finding,
    Fix,
    after_reboot,
    in_job,
    look,
    run,
    seen,
    skip,
    unknown,
)
from netdoctor.rules.cuda import visible

# nvmlReturn_t, https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
STATES = {4: "no_permission", 9: "no_driver", 12: "no_library", 15: "lost", 17: "closed", 18: "mismatch"}
STATES[999] = "closed"  # "unknown error"

_cause = partial(Cause, verify=("gpu.visible", "gpu.count"))
ABSENT = _cause("gpu-absent", "{nodes} {has} no GPUs, but the hosts file lists some")
MISFIT = _cause("driver-mismatch", "{nodes} load{s} a kernel module that does not fit the driver's library")
VFIO = _cause("gpu-vfio", "{nodes} reserve{s} the GPUs for virtual machines (vfio-pci)")
NOT_LOADED = _cause("driver-not-loaded", "{nodes} {has} GPUs but no NVIDIA driver loaded")
NO_LIBRARY = _cause("nvml-library-missing", "{nodes} {has} GPUs but not the NVIDIA driver's library")
FORBIDDEN = _cause("gpu-permission", "{nodes} refuse{s} to let the login user open the GPUs")
CLOSED = _cause("gpu-blocked-by-system", "a device cgroup or namespace hides the GPUs on {nodes}", LIKELY)
LOST = _cause("gpu-lost", "{nodes} {has} a GPU that fell off the bus").but(action=Action.REBOOT)
SICK = _cause("gpu-error", "{nodes} {has} GPUs that answer with errors")
UNBOUND = _cause("gpu-unbound", "{nodes} {has} GPUs that the NVIDIA driver is not bound to")
NO_NODE = _cause("gpu-device-node-missing", "{nodes} lack{s} device nodes for some GPUs")
HIDDEN = _cause("gpu-hidden", "{nodes} show{s} fewer GPUs than the PCI bus has", LIKELY)
# A share of a machine may be on purpose.
SHARE = _cause(
    "gpu-hidden-in-container", "the container on {nodes} shows fewer GPUs than the machine has", LIKELY
)
NOT_GIVEN = Cause(
    "gpu-not-in-container",
    "the container on {nodes} has none of the machine's GPUs",
    LIKELY,
    settle_by="gpus= in the hosts file says how many each node should have",
)
UNSET = Cause("gpu-hidden-by-variable", "CUDA_VISIBLE_DEVICES hides GPUs from logins on {nodes}")

ANSWERS = DERIVED("every GPU answers")
CONTAINER = in_job(
    "start the container with all GPUs and the driver's utility library",
    "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...   # your image and options",
)
LOAD = run(
    "load the driver; if that fails, see why (missing headers, Secure Boot, nouveau)",
    "modprobe nvidia && nvidia-smi -L || dmesg | tail -n 40",
    root=True,
    persistent=False,
)
# What held the modules runs again in the end, whatever could not be unloaded: without Fabric Manager NVML is
# green on a machine with NVSwitches, and CUDA fails. $(echo $x) is split by every shell, $x not by zsh.
RELOAD = run(
    "reload the kernel modules, with nothing running on the GPUs; their services are started again",
    "m=; for one in nvidia_peermem nvidia_uvm nvidia_drm nvidia_modeset nvidia; do"
    ' [ ! -d /sys/module/$one ] || m="$m $one"; done;'
    " s=; for one in nvidia-fabricmanager nvidia-persistenced nvidia-dcgm; do"
    ' ! systemctl -q is-active $one || s="$s $one"; done;'
    " for one in $(echo $s); do systemctl stop $one; done;"
    " modprobe -r $(echo $m); modprobe -a nvidia $(echo $m);"
    " for one in $(echo $s); do systemctl start $one; done; nvidia-smi -L",
    root=True,
    risk="medium",
    loses="whatever runs on its GPUs",
)
RESTART = after_reboot("restart the machine", "systemctl reboot")
LET_IN = run(
    "let every user open them, the driver's default",
    "chmod 666 /dev/nvidia[0-9]* /dev/nvidiactl",
    root=True,
    persistent=False,
    widens="every local user may use the GPUs",
)
REPLACE = (
    look("read the driver's messages about it", "dmesg | grep -E 'Xid|fallen off the bus'", root=True),
    after_reboot(
        "first take the node out of the scheduler, then switch its power off and on (without ipmitool, on "
        "its BMC; a warm restart rarely helps); if the fault comes back, the GPU, its power or slot is bad",
        "ipmitool chassis power cycle",
        risk="high",
        loses="whatever runs there, at once",
    ),
)
SEARCH = look(
    "see which GPU failed to start, or is drained or hidden by a cgroup",
    "nvidia-smi -L; nvidia-smi drain -q; dmesg | grep -E 'NVRM|Xid'",
    root=True,
)
REPORT = look("read the driver's own report", "dmesg | grep -E 'NVRM|Xid'", root=True)
SEE_BUS = look("see what the PCI bus shows", "lspci -d 10de: -nn")
SEE_LIBRARY = look("see which driver packages are installed", "ldconfig -p | grep libnvidia-ml")
SEE_MODE = look("see who has access", "ls -l /dev/nvidia* && id")
SEE_DEVICES = look("see whether the devices can be opened", "ls -l /dev/nvidia*; nvidia-smi -L")
TAKE_OUT = look(
    "find where the login shell sets it, and remove it",
    "grep -sn CUDA_VISIBLE_DEVICES /etc/environment /etc/profile"
    " /etc/profile.d/* ~/.bashrc ~/.profile ~/.bash_profile",
)


@check(
    explains=("gpu.*", "sw.cuda"),
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html",
)
def gpu_visible(
    node: Node,
    gpu: GpuFacts,
    host: HostFacts | None,
    others: AcceleratorFacts | None = None,
    env: EnvFacts | None = None,
    session: Session | None = None,
) -> Iterator[Finding]:
    """The NVIDIA driver works and shows every GPU that the machine has.

    Looks at:
        NVIDIA devices on the PCI bus, the driver bound to them, what NVML answers, /dev/nvidia*, and
        CUDA_VISIBLE_DEVICES of the login session. A device whose mode allows access, but which the kernel
        refuses, is blocked by a device cgroup (tested with access(2); no GPU is opened). That is the work
        of a scheduler: the real number of GPUs stays unknown in a login, and in a Slurm job only the
        job's share counts.

    Matters because:
        If a GPU is not visible, ``--nproc-per-node gpu`` starts fewer ranks, or all ranks end with "no
        CUDA-capable device is detected". After an unattended upgrade the new library refuses the old
        kernel module until the module is reloaded.

    Fix:
        Reload or install the driver, or start the container with the GPUs. If the GPU fell off the bus,
        take it out of service.
    """
    boards, evidence = len(gpu.pci), _evidence(gpu)
    inside = [CONTAINER] if host and host.container else []
    nothing, login = not boards and not gpu.devices, session.transport if session else ""
    if nothing and others and (others.amd or others.others):
        yield _of_other_vendors(others)
    elif withheld(gpu):
        yield withheld_finding(gpu)
    elif nothing and not node.gpus and gpu.nvml != "mismatch":
        yield skip("no NVIDIA GPU on this node, and the hosts file lists none")
    elif problem := _problem(node, gpu, inside):
        cause, summary, observed, expected, fixes = problem
        say = cause.warn if cause is NOT_GIVEN else cause.fail
        source = CONFIG if cause is ABSENT else DERIVED
        yield say(summary, observed=observed, expected=source(expected), seen=evidence, fixes=fixes)
    elif gpu.nvml != "ok":
        summary = f"NVML answers: {gpu.nvml_message or gpu.nvml} (code {gpu.nvml_code})"
        yield unknown(node.id, summary, evidence=evidence)
    else:
        if not boards and not node.gpus:
            summary = "no GPU on the PCI bus: set gpus= to check that all GPUs are visible"
            yield unknown(node.id, summary)
        yield from _devices(gpu, inside, given_by_slurm(node, gpu, env), login == "local")


def _problem(
    node: Node, gpu: GpuFacts, inside: list[Fix]
) -> tuple[Cause, str, str, str, Sequence[Fix]] | None:
    """Why NVML does not answer: the cause, the summary, what is observed and expected, and the fixes.

    inside: the fix of a container, in one.
    """
    boards, drivers = len(gpu.pci), sorted({board.driver for board in gpu.pci if board.driver})
    states = {gpu.nvml, STATES.get(gpu.nvml_code or 0)}
    if not boards and not gpu.devices and node.gpus:
        summary = f"the hosts file lists {node.gpus} GPUs for this node, and there is none on its PCI bus"
        return ABSENT, summary, "none", f"{node.gpus} GPUs", [SEE_BUS]
    if inside and "nvidia" in drivers and not (gpu.device_nodes or gpu.devices or node.gpus):
        # The PCI bus shows through into containers: the machine's GPUs, which its driver serves, may be
        # none of this container's business.
        summary = f"the machine has {boards} GPUs, and this container has none"
        return NOT_GIVEN, summary, "no /dev/nvidia*", "the machine's GPUs, if the job should use them", inside
    if "mismatch" in states:
        module = gpu.kernel_driver or "unknown"
        library = gpu.library_driver or "another version"
        summary = f"the driver's library is {library}, the loaded kernel module {module}"
        return MISFIT, summary, f"module {module}, library {library}", "the same version", [RELOAD, RESTART]
    if "no_driver" in states and drivers == ["vfio-pci"]:
        summary = "the GPUs are bound to vfio-pci, for virtual machines"
        return VFIO, summary, "vfio-pci", "nvidia", bind([board.address for board in gpu.pci])
    if "no_driver" in states:
        foreign = [board.address for board in gpu.pci if board.driver not in (None, "nvidia")]
        bound = f", bound to {listing(drivers)}" if drivers else ""
        summary = f"{boards} GPUs on the PCI bus{bound}, and the NVIDIA driver is not loaded"
        fixes = [*inside, *(bind(foreign) if foreign else [LOAD])]
        return NOT_LOADED, summary, "no driver", "the nvidia module loaded", fixes
    if "no_library" in states:
        summary = f"{boards} GPUs on the PCI bus, and no libnvidia-ml.so.1 to ask"
        return NO_LIBRARY, summary, "no libnvidia-ml.so.1", "the driver's library", inside or [SEE_LIBRARY]
    if "no_permission" in states:
        answer, summary = gpu.nvml_message or "no permission", "the login user may not open the GPUs"
        return FORBIDDEN, summary, answer, "/dev/nvidia* readable and writable", [SEE_MODE, LET_IN]
    if "lost" in states:
        summary = "a GPU has fallen off the bus (GPU is lost)"
        return LOST, summary, "GPU is lost", "every GPU answers", REPLACE
    if "closed" in states and not gpu.devices:
        answer = gpu.nvml_message or f"NVML code {gpu.nvml_code}"
        summary = f"the GPUs are there, and the system refuses to open them ({gpu.nvml_message})"
        return CLOSED, summary, answer, "GPUs that open", [*inside, SEE_DEVICES]
    return None


def _of_other_vendors(found: AcceleratorFacts) -> Finding:
    """A node whose GPUs are not NVIDIA's: those that nothing here knows are a gap."""
    if found.amd:
        return skip(f"no NVIDIA GPU on this node, but {len(found.amd)} of AMD (amd.visible)")
    kinds = listing([f"{count} x {kind}" for kind, count in found.others.items()])
    return skip(
        f"no NVIDIA GPU on this node; {kinds} is hardware unknown to netdoctor",
        gap=f"accelerators that are not known here ({kinds})",
    )


def _devices(gpu: GpuFacts, inside: list[Fix], given: int | None, own_shell: bool) -> Iterator[Finding]:
    """What is wrong with single GPUs, where NVML answers.

    inside: as of _problem. given: how many Slurm let this task have, which it says in CUDA_VISIBLE_DEVICES
    where no device cgroup holds it. own_shell: the job starts from it, too.
    """
    count, boards, evidence = len(gpu.devices), len(gpu.pci), _evidence(gpu)
    sick = {str(device.index): device.error for device in gpu.devices if device.error}
    lost = [index for index, error in sick.items() if "lost" in error.lower()]
    if lost:
        summary = f"GPU {listing(lost)} has fallen off the bus (GPU is lost)"
        yield LOST.fail(summary, observed="GPU is lost", expected=ANSWERS, fixes=REPLACE, seen=evidence)
    elif sick:
        first = next(iter(sick.values()))
        summary = f"GPU {listing(sick)} does not answer: {first}"
        yield SICK.fail(summary, observed=first, expected=DERIVED("no error"), fixes=REPORT, seen=evidence)
    if count < boards:
        cause, reason, fix = _fewer(gpu, inside)
        others = len(set(gpu.blocked) - {CONTROL_NODE})
        share = f", {others} hidden from this session" if others else ""
        yield cause.fail(
            f"{boards} GPUs on the PCI bus{share}, {count} visible to the driver library{reason}",
            observed=f"{count} GPUs",
            expected=DERIVED(f"{boards - others} GPUs"),
            seen=evidence,
            fixes=fix,
        )
    text = gpu.cuda_visible_devices
    if text is not None and (left := len(visible(text, count))) < count and left != given:
        # The launcher may set it anew for the job, but not where it starts from this shell and sees none.
        yield (UNSET.fail if own_shell and not left else UNSET.warn)(
            f"CUDA_VISIBLE_DEVICES={text[:60]!r} of this session leaves {left} of {count} GPUs",
            observed=f"{left} GPUs",
            expected=DERIVED(f"{count} GPUs"),
            seen=evidence,
            fixes=[TAKE_OUT, in_job("take it out of the job's environment", "unset CUDA_VISIBLE_DEVICES")],
        )


def _fewer(gpu: GpuFacts, inside: list[Fix]) -> tuple[Cause, str, Fix | list[Fix]]:
    """Why fewer GPUs are visible than the bus has, what to add to the summary, and the fix."""
    unbound = [board for board in gpu.pci if board.driver != "nvidia"]
    if len(gpu.forbidden) >= len(gpu.pci) - len(gpu.devices):
        return FORBIDDEN, f"; {listing(gpu.forbidden, 4)} may not be opened by this user", [SEE_MODE, LET_IN]
    if inside:
        return SHARE, "", CONTAINER
    if len(unbound) >= len(gpu.pci) - len(gpu.devices):
        addresses = [board.address for board in unbound]
        other = listing(sorted({board.driver or "no driver" for board in unbound}))
        verb = "is" if len(unbound) == 1 else "are"
        return UNBOUND, f"; {listing(addresses)} {verb} bound to {other}", bind(addresses)
    if len(gpu.device_nodes) < len(gpu.pci):
        # Without -u, with which it would be the nodes of nvidia-uvm. [nvidia-modprobe.c]
        missing = [f"-c={i}" for i in range(len(gpu.pci)) if f"/dev/nvidia{i}" not in gpu.device_nodes]
        shell = f"nvidia-modprobe {' '.join(missing)}"
        make = run("create the device nodes again", shell, root=True, persistent=False)
        names = f"only {listing(gpu.device_nodes)} exist" if gpu.device_nodes else "no device node exists"
        return NO_NODE, f"; {names} in /dev", make
    return HIDDEN, "", SEARCH


def _evidence(gpu: GpuFacts) -> tuple[Evidence, ...]:
    code = f" (code {gpu.nvml_code})" if gpu.nvml_code else ""
    sick = "".join(f", GPU {one.index} {one.pci_bus_id}: {one.error}" for one in gpu.devices if one.error)
    message = f" {gpu.nvml_message}" if gpu.nvml_message else ""
    boards = listing([f"{board.address} {board.driver or 'no driver'}" for board in gpu.pci], 8)
    return (
        seen("NVML", f"{gpu.nvml}{message}{code}, {len(gpu.devices)} devices{sick}"),
        seen("/sys/bus/pci/devices", boards, "file"),
    )
