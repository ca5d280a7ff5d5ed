"""Whether the driver answers and shows every GPU that the machine has."""

import re
from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._words import listing
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts, Node
from netdoctor.model import (
    CauseHint,
    Command,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    skip,
    unknown,
    warn,
)
from netdoctor.rules.cuda import visible

# nvmlReturn_t, https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
GPU_IS_LOST = 15
OPERATING_SYSTEM = 17
MISMATCH = 18
UNKNOWN = 999


@check(
    explains=("gpu.*", "sw.cuda"),
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html",
)
def gpu_visible(node: Node, gpu: GpuFacts, host: HostFacts | None) -> Iterator[Finding]:
    """The NVIDIA driver works and shows every GPU that the machine has.

    Looks at:
        NVIDIA devices on the PCI bus, the driver bound to them, what NVML answers, /dev/nvidia*,
        and CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES of the login session.

    Matters because:
        A GPU that is not visible makes ``--nproc-per-node gpu`` start fewer ranks, or all of them
        end with "no CUDA-capable device is detected". After an unattended upgrade the new library
        refuses the old kernel module until the module is reloaded.

    Fix:
        Reload or install the driver, start the container with the GPUs, or take the GPU that
        dropped off the bus out of service.
    """
    boards = len(gpu.pci)
    if not boards and not gpu.devices:
        if node.gpus:
            yield _finding(
                node.id,
                gpu,
                f"{node.gpus} GPUs are listed for this node, and there is none on its PCI bus",
                key="gpu-absent",
                title="{nodes} {has} none of the GPUs that are listed",
                expected=f"{node.gpus} GPUs",
                observed="none",
                expected_from=ExpectedFrom.CONFIG,
                fixes=(_look(node.id, "see what the PCI bus shows", "lspci -d 10de: -nn"),),
            )
        elif gpu.nvml == "mismatch":
            yield _mismatch(node.id, gpu)
        else:
            yield skip("no NVIDIA GPU on this node, and none listed", node.id)
        return
    given = gpu.device_nodes or gpu.devices or node.gpus
    if host is not None and host.container and not given and any(b.driver == "nvidia" for b in gpu.pci):
        # The PCI bus shows through into containers: the machine's GPUs, which its driver serves, may be
        # none of this container's business.
        yield _not_given(node.id, gpu)
    elif gpu.nvml == "mismatch" or gpu.nvml_code == MISMATCH:
        yield _mismatch(node.id, gpu)
    elif gpu.nvml == "no_driver" or gpu.nvml_code == DRIVER_NOT_LOADED:
        yield from _no_driver(node.id, gpu, host)
    elif gpu.nvml == "no_library" or gpu.nvml_code == LIBRARY_NOT_FOUND:
        yield _no_library(node.id, gpu, host)
    elif gpu.nvml == "no_permission" or gpu.nvml_code == NO_PERMISSION:
        yield _no_permission(node.id, gpu)
    elif gpu.nvml_code == GPU_IS_LOST:
        yield _lost(node.id, gpu, "a GPU")
    elif gpu.nvml_code in (UNKNOWN, OPERATING_SYSTEM) and not gpu.devices:
        yield _hidden_by_cgroup(node.id, gpu, host)
    elif gpu.nvml != "ok":
        yield unknown(
            node.id,
            f"NVML answers: {gpu.nvml_message or gpu.nvml} (code {gpu.nvml_code})",
            evidence=_evidence(node.id, gpu),
        )
    else:
        yield from _devices(node.id, gpu, host)


def _devices(node: str, gpu: GpuFacts, host: HostFacts | None) -> Iterator[Finding]:
    sick = [one for one in gpu.devices if one.error]
    lost = [one for one in sick if "lost" in (one.error or "").lower()]
    if lost:
        yield _lost(node, gpu, "GPU " + listing([str(one.index) for one in lost]))
    elif sick:
        yield _finding(
            node,
            gpu,
            f"GPU {listing([str(one.index) for one in sick])} does not answer: {sick[0].error}",
            key="gpu-error",
            title="{nodes} {has} GPUs that answer with errors",
            observed=sick[0].error,
            expected="no error",
            fixes=(_look(node, "read the driver's own report", "dmesg | grep -E 'NVRM|Xid'", True),),
        )
    missing = len(gpu.pci) - len(gpu.devices)
    if missing > 0:
        yield _fewer(node, gpu, host, missing)
    text = gpu.cuda_visible_devices
    if text is not None and len(visible(text, len(gpu.devices))) < len(gpu.devices):
        yield _hidden_by_variable(node, gpu, "CUDA_VISIBLE_DEVICES", text)


def _hidden_by_variable(node: str, gpu: GpuFacts, variable: str, text: str) -> Finding:
    shown = len(visible(text, len(gpu.devices)))
    # The launcher may set it anew for the job, hence a warning and not a failure.
    return warn(
        node,
        f"{variable}={text[:60]!r} of the login session leaves {shown} of {len(gpu.devices)} GPUs",
        observed=f"{shown} GPUs",
        expected=f"{len(gpu.devices)} GPUs",
        expected_from=ExpectedFrom.DERIVED,
        evidence=_evidence(node, gpu),
        cause=CauseHint(
            key="gpu-hidden-by-variable",
            title=variable + " hides GPUs from logins on {nodes}",
            culprits=(node,),
            fixes=(
                Fix(
                    text="find where the login shell sets it, and take it out",
                    commands=(
                        Command(
                            run_on=node,
                            shell=f"grep -n {variable} /etc/environment /etc/profile"
                            " /etc/profile.d/* ~/.bashrc ~/.profile ~/.bash_profile",
                        ),
                    ),
                    effect="next login",
                ),
                Fix(
                    text="take it out of the job's environment",
                    commands=(Command(run_on="job", shell=f"unset {variable}"),),
                    effect="next launch",
                    persistent=False,
                ),
            ),
        ),
    )


def _fewer(node: str, gpu: GpuFacts, host: HostFacts | None, missing: int) -> Finding:
    seen, boards = len(gpu.devices), len(gpu.pci)
    unbound = [board.address for board in gpu.pci if board.driver != "nvidia"]
    summary = f"{boards} GPUs on the PCI bus, {seen} visible to the driver library"
    if host is not None and host.container:
        return _finding(
            node,
            gpu,
            summary,
            key="gpu-hidden-in-container",
            title="the container on {nodes} shows fewer GPUs than the machine has",
            observed=f"{seen} GPUs",
            expected=f"{boards} GPUs",
            # A share of a machine may be on purpose.
            confidence=Confidence.LIKELY,
            fixes=(_container(),),
        )
    if len(unbound) >= missing:
        other = sorted({b.driver or "no driver" for b in gpu.pci if b.driver != "nvidia"})
        return _finding(
            node,
            gpu,
            f"{summary}; {listing(unbound)} {'is' if len(unbound) == 1 else 'are'} bound to {listing(other)}",
            key="gpu-unbound",
            title="{nodes} {has} GPUs that the NVIDIA driver is not bound to",
            observed=f"{seen} GPUs",
            expected=f"{boards} GPUs",
            fixes=(_bind(node, unbound),),
        )
    if gpu.device_nodes and len(gpu.device_nodes) < boards:
        return _finding(
            node,
            gpu,
            f"{summary}; only {listing(gpu.device_nodes)} exist in /dev",
            key="gpu-device-node-missing",
            title="{nodes} lack{s} device nodes for some GPUs",
            observed=f"{seen} GPUs",
            expected=f"{boards} GPUs",
            fixes=(
                Fix(
                    text="make the device nodes anew",
                    commands=(Command(run_on=node, shell="nvidia-modprobe -u -c=0"),),
                    root=True,
                    persistent=False,
                ),
            ),
        )
    return _finding(
        node,
        gpu,
        summary,
        key="gpu-hidden",
        title="{nodes} show{s} fewer GPUs than the PCI bus has",
        observed=f"{seen} GPUs",
        expected=f"{boards} GPUs",
        confidence=Confidence.LIKELY,
        fixes=(
            _look(
                node,
                "see which GPU failed to start, or is drained or hidden by a cgroup",
                "nvidia-smi -L; nvidia-smi drain -q; dmesg | grep -E 'NVRM|Xid'",
                True,
            ),
        ),
    )


def _not_given(node: str, gpu: GpuFacts) -> Finding:
    return warn(
        node,
        f"the machine has {len(gpu.pci)} GPUs, and this container was given none",
        observed="no /dev/nvidia*",
        expected="the machine's GPUs, if the job is to use them",
        expected_from=ExpectedFrom.DERIVED,
        evidence=_evidence(node, gpu),
        cause=CauseHint(
            key="gpu-not-in-container",
            title="the container on {nodes} was given none of the machine's GPUs",
            culprits=(node,),
            confidence=Confidence.LIKELY,
            fixes=(_container(),),
            settle_by="gpus= in the hosts file says how many each node should have",
        ),
    )


def _mismatch(node: str, gpu: GpuFacts) -> Finding:
    module = gpu.kernel_driver or gpu.driver_version or "unknown"
    library = gpu.library_driver or "another version"
    return _finding(
        node,
        gpu,
        f"the driver's library is {library}, the loaded kernel module {module}",
        key="driver-mismatch",
        title="{nodes} load{s} a kernel module that does not fit the driver's library",
        observed=f"module {module}, library {library}",
        expected="the same version",
        expected_from=ExpectedFrom.DERIVED,
        fixes=(
            Fix(
                text="reload the kernel modules, with nothing running on the GPUs",
                commands=(
                    Command(
                        run_on=node,
                        shell="systemctl stop nvidia-persistenced nvidia-fabricmanager;"
                        " modprobe -r nvidia_peermem nvidia_uvm nvidia_drm nvidia_modeset nvidia"
                        " && modprobe nvidia && nvidia-smi -L",
                    ),
                ),
                root=True,
                risk="medium",
            ),
            Fix(
                text="restart the machine",
                commands=(Command(run_on=node, shell="systemctl reboot"),),
                root=True,
                reboot=True,
                effect="after reboot",
                risk="medium",
            ),
        ),
    )


def _no_driver(node: str, gpu: GpuFacts, host: HostFacts | None) -> Iterator[Finding]:
    drivers = sorted({board.driver for board in gpu.pci if board.driver})
    if "vfio-pci" in drivers and len(drivers) == 1:
        yield _finding(
            node,
            gpu,
            "the GPUs are bound to vfio-pci, for virtual machines",
            key="gpu-vfio",
            title="{nodes} keep{s} the GPUs for virtual machines (vfio-pci)",
            observed="vfio-pci",
            expected="nvidia",
            fixes=(_bind(node, [board.address for board in gpu.pci]),),
        )
        return
    fixes = (
        Fix(
            text="load the driver; where that fails, see why (missing headers, Secure Boot, nouveau)",
            commands=(Command(run_on=node, shell="modprobe nvidia && nvidia-smi -L || dmesg | tail -n 40"),),
            root=True,
            persistent=False,
        ),
    )
    bound = f", bound to {listing(drivers)}" if drivers else ""
    in_container = host is not None and host.container is not None
    yield _finding(
        node,
        gpu,
        f"{len(gpu.pci)} GPUs on the PCI bus{bound}, and the NVIDIA driver is not loaded",
        key="driver-not-loaded",
        title="{nodes} {has} GPUs but no NVIDIA driver loaded",
        observed="no driver",
        expected="the nvidia module loaded",
        fixes=((_container(), *fixes) if in_container else fixes),
    )


def _no_library(node: str, gpu: GpuFacts, host: HostFacts | None) -> Finding:
    if host is not None and host.container:
        fixes: tuple[Fix, ...] = (_container(),)
    else:
        fixes = (_look(node, "see which driver packages are there", "ldconfig -p | grep libnvidia-ml"),)
    return _finding(
        node,
        gpu,
        f"{len(gpu.pci)} GPUs on the PCI bus, and no libnvidia-ml.so.1 to ask",
        key="nvml-library-missing",
        title="{nodes} {has} GPUs but not the NVIDIA driver's library",
        observed="no libnvidia-ml.so.1",
        expected="the driver's library",
        fixes=fixes,
    )


def _no_permission(node: str, gpu: GpuFacts) -> Finding:
    return _finding(
        node,
        gpu,
        "the login user may not open the GPUs",
        key="gpu-permission",
        title="{nodes} refuse{s} to let the login user open the GPUs",
        observed=gpu.nvml_message or "no permission",
        expected="/dev/nvidia* readable and writable",
        fixes=(
            _look(node, "see who may", "ls -l /dev/nvidia* && id"),
            Fix(
                text="let every user open them, the driver's default",
                commands=(Command(run_on=node, shell="chmod 666 /dev/nvidia[0-9]* /dev/nvidiactl"),),
                root=True,
                persistent=False,
                widens="every local user may use the GPUs",
            ),
        ),
    )


def _hidden_by_cgroup(node: str, gpu: GpuFacts, host: HostFacts | None) -> Finding:
    fixes: tuple[Fix, ...] = (
        _look(node, "see whether the devices can be opened", "ls -l /dev/nvidia*; nvidia-smi -L"),
    )
    if host is not None and host.container:
        fixes = (_container(), *fixes)
    return _finding(
        node,
        gpu,
        f"the GPUs are there, and the system refuses to open them ({gpu.nvml_message})",
        key="gpu-blocked-by-system",
        title="a device cgroup or namespace keeps the GPUs from {nodes}",
        observed=gpu.nvml_message or f"NVML code {gpu.nvml_code}",
        expected="GPUs that open",
        confidence=Confidence.LIKELY,
        fixes=fixes,
    )


def _lost(node: str, gpu: GpuFacts, which: str) -> Finding:
    return _finding(
        node,
        gpu,
        f"{which} has fallen off the bus (GPU is lost)",
        key="gpu-lost",
        title="{nodes} {has} a GPU that fell off the bus",
        observed="GPU is lost",
        expected="every GPU answers",
        fixes=(
            Fix(
                text="take the node out of the job and power it off and on; if it comes back, the"
                " GPU, its power or its slot is at fault",
                commands=(
                    Command(run_on=node, shell="dmesg | grep -E 'Xid|fallen off the bus'"),
                    Command(run_on=node, shell="systemctl poweroff"),
                ),
                root=True,
                reboot=True,
                effect="after reboot",
                risk="medium",
            ),
        ),
    )


def _container() -> Fix:
    return Fix(
        text="start the container with all GPUs and the driver's utility library",
        commands=(
            Command(
                run_on="job",
                shell="docker run --gpus all"
                " -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...   # your image and options",
            ),
        ),
        effect="next launch",
        persistent=False,
    )


def _bind(node: str, addresses: list[str]) -> Fix:
    known = [a for a in addresses if re.fullmatch(r"[0-9a-fA-F:.]{7,16}", a)]
    return Fix(
        text="hand the GPUs to the NVIDIA driver; look for what claims them in modprobe.d",
        commands=(
            *(
                Command(
                    run_on=node,
                    shell=f"echo {address} > /sys/bus/pci/drivers/nvidia/bind",
                )
                for address in known[:8]
            ),
            Command(run_on=node, shell="grep -rnE 'vfio|nouveau' /etc/modprobe.d"),
        ),
        root=True,
        persistent=False,
        risk="medium",
    )


def _look(node: str, text: str, shell: str, root: bool = False) -> Fix:
    return Fix(text=text, commands=(Command(run_on=node, shell=shell),), root=root, effect="")


def _finding(
    node: str,
    gpu: GpuFacts,
    summary: str,
    *,
    key: str,
    title: str,
    observed: str | None,
    expected: str,
    fixes: tuple[Fix, ...],
    expected_from: ExpectedFrom = ExpectedFrom.DERIVED,
    confidence: Confidence = Confidence.CERTAIN,
) -> Finding:
    return fail(
        node,
        summary,
        observed=observed,
        expected=expected,
        expected_from=expected_from,
        evidence=_evidence(node, gpu),
        cause=CauseHint(
            key=key,
            title=title,
            culprits=(node,),
            confidence=confidence,
            fixes=fixes,
            verify=("gpu.visible", "gpu.count"),
        ),
    )


def _evidence(node: str, gpu: GpuFacts) -> tuple[Evidence, ...]:
    code = f" (code {gpu.nvml_code})" if gpu.nvml_code else ""
    sick = "".join(f", GPU {one.index} {one.pci_bus_id}: {one.error}" for one in gpu.devices if one.error)
    message = f" {gpu.nvml_message}" if gpu.nvml_message else ""
    return (
        Evidence(
            kind="probe",
            where=node,
            what="NVML",
            output=f"{gpu.nvml}{message}{code}, {len(gpu.devices)} devices{sick}",
        ),
        Evidence(
            kind="file",
            where=node,
            what="/sys/bus/pci/devices",
            output=listing([f"{b.address} {b.driver or 'no driver'}" for b in gpu.pci], 8),
        ),
    )
