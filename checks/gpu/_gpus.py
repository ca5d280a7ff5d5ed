"""What some GPUs of a node tell and others do not."""

import re
from collections.abc import Callable, Iterator, Sequence

from netdoctor.checks._shared.text import listing
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.facts.host import Node
from netdoctor.facts.software import EnvFacts
from netdoctor.model import (
    CONTROL,
    DERIVED,
    HERE,
    LIKELY,
    Cause,
    Expected,
    Finding,
    Fix,
    look,
    ok,
    run,
    seen,
    skip,
    unknown,
)

CONTROL_NODE = "/dev/nvidiactl"
WITHHELD = Cause(
    "gpu-kept-from-login",
    "{nodes} hide{s} GPUs from logins, as schedulers do",
    LIKELY,
    settle_by="netdoctor scan --via slurm",
)


def untold(gpu: GpuFacts, value: Callable[[Gpu], object], what: str) -> Iterator[Finding]:
    """A skip where no GPU tells `value`; an unknown where one does not, and others of its model do.

    what: ``count ECC errors``. A GPU that answers with an error is the business of gpu.visible.
    """
    if gpu.devices and None not in [value(device) for device in gpu.devices]:
        return
    models = {device.name for device in gpu.devices if value(device) is not None}
    silent = [
        f"GPU {device.index}"
        for device in gpu.devices
        if value(device) is None and device.error is None and (device.name in models or not device.name)
    ]
    if not gpu.devices:
        yield skip("no GPU on this node")
    elif not models:
        yield skip(f"the GPUs do not {what}")
    elif silent:
        yield unknown(HERE, f"{listing(silent, 4)} do{'' if silent[1:] else 'es'} not {what}, others here do")


def other_release(gpu: GpuFacts, package: str) -> str:
    """The installed release of a service that has to be of the driver's, where it is another; else nothing.

    An upgrade that waits for a restart has brought the library along, and is not the service's.
    """
    releases, driver = gpu.fabric_packages.get(package, ()), gpu.kernel_driver
    waits = gpu.library_driver not in (None, driver)
    return listing(releases) if releases and driver and not waits and driver not in releases else ""


def withheld(gpu: GpuFacts) -> int:
    """How many GPUs of the node a device cgroup keeps from this session; 0 where that is not the reason."""
    missing = len(gpu.pci) - sum(1 for device in gpu.devices if device.error is None)
    everything = CONTROL_NODE in gpu.blocked
    return missing if missing > 0 and (everything or len(gpu.blocked) >= missing) else 0


def given_by_slurm(node: Node, gpu: GpuFacts, env: EnvFacts | None) -> int | None:
    """How many GPUs Slurm gave a task of the node; None where that is not known, or counts parts of GPUs.

    Launchers inside of a job hand the first node's variables on to all: they have to name this node.
    """
    variables = env.variables if env else {}
    number = variables.get("SLURM_GPUS_ON_NODE", "")
    if variables.get("SLURMD_NODENAME") not in (node.host, node.id) or not re.fullmatch(r"\d{1,3}", number):
        return None
    return None if any(device.mig_enabled for device in gpu.devices) else int(number)


def withheld_finding(gpu: GpuFacts) -> Finding:
    """What that means: the share of a job, or that a login sees nothing of them."""
    hidden, boards = withheld(gpu), len(gpu.pci)
    if gpu.login_job and hidden < boards:
        text = f"{boards - hidden} of {boards} GPUs are those of Slurm job {gpu.login_job}"
        return ok(HERE, text, observed=f"{boards - hidden} GPUs")
    if gpu.login_job:
        return skip(
            f"Slurm job {gpu.login_job} has none of the {boards} GPUs", gap="GPUs that are not the job's"
        )
    runs = ", and slurmd runs" if gpu.slurmd else ""
    return WITHHELD.unknown(
        f"{hidden} of {boards} GPUs are not visible in this login: a device cgroup blocks "
        f"{listing(gpu.blocked, 4)}{runs}; scan from inside a job",
        observed=f"{boards - hidden} GPUs",
        expected=DERIVED(f"{boards} GPUs in a job that asks for all"),
        seen=seen("access to device nodes, compared with their mode", listing(gpu.blocked, 8)),
        fixes=look("scan from inside a job", "netdoctor scan --via slurm", on=CONTROL),
    )


def nvml_finding(
    say: Callable[..., Finding],
    gpu: Gpu,
    words: str,
    what: str,
    observed: str,
    expected: str | Expected,
    *,
    output: str = "",
    at: str = HERE,
    fixes: Fix | Sequence[Fix] = (),
) -> Finding:
    """What NVML says of one GPU. say: of a cause; words: what the GPU is or has; what: NVML was asked, with
    this output where that is not what was observed."""
    name = f"GPU {gpu.index}"
    evidence = seen(f"NVML, {name}, {what}" if what else f"NVML, {name}", output or observed)
    return say(f"{name} {words}", at=at, observed=observed, expected=expected, seen=evidence, fixes=fixes)


def reset(index: int | None) -> Fix:
    """Resets one GPU of the node, or all of them, which is what takes NVSwitches along."""
    one = "" if index is None else f" -i {index}"
    return run(
        f"reset {'all GPUs' if index is None else 'the GPU'}, with nothing running there",
        f"nvidia-smi --gpu-reset{one} && nvidia-smi -q -d ECC,ROW_REMAPPER{one}",
        root=True,
        risk="medium",
        loses="whatever runs on the GPU",
    )


def start_service(text: str, unit: str) -> Fix:
    """Starts a unit of systemd's, now and at every start."""
    shell, undo = f"systemctl enable --now {unit}", f"systemctl disable --now {unit}"
    return run(f"start {text}, now and at every start", shell, root=True, undo=undo)


CLAIMED = look("see which file gives them to another driver", "grep -rnsE 'vfio|nouveau' /etc/modprobe.d")


def bind(addresses: list[str]) -> list[Fix]:
    """Each driver lets go first: the NVIDIA module loads only where a GPU is free, and takes none away.

    The override keeps vfio-pci, which claims by device id, from taking the GPU back.
    """
    known = [a for a in addresses if re.fullmatch(r"[0-9a-fA-F:.]{7,16}", a)][:16]
    let_go = (
        f"for gpu in {' '.join(known)}; do cd /sys/bus/pci/devices/$gpu && echo nvidia > driver_override && "
        "{ [ ! -e driver ] || echo $gpu > driver/unbind; }; done"
    )
    take = f"for gpu in {' '.join(known)}; do echo $gpu > /sys/bus/pci/drivers_probe; done"
    hand_over = run(
        "give the GPUs to the NVIDIA driver; to keep it, also remove what modprobe.d has about them",
        *((let_go, "modprobe nvidia", take) if known else ()),
        root=True,
        persistent=False,
        risk="medium",
        loses="users of the other driver, such as virtual machines",
    )
    return [CLAIMED, hand_over]
