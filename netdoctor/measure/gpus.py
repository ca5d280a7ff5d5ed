"""Which GPUs of a node a job would use, and whether somebody is at work on them."""

from collections.abc import Iterable, Mapping

from netdoctor.facts.accelerators import AcceleratorFacts
from netdoctor.facts.gpu import Gpu
from netdoctor.measure.declare import Context
from netdoctor.rules.cuda import is_harmless, unseen_bytes, visible
from netdoctor.rules.variables import effective_env, values

# Of one node; no machine has more, and an agent starts no more ranks.
MOST_GPUS = 16
MIB = 1024**2
# What chooses among AMD's GPUs.
CHOICES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def of_job(context: Context, node: str) -> tuple[int, tuple[Gpu, ...]]:
    """(how many GPUs a job on this node would use, which): all of them where that cannot be told, none where
    they are pretended."""
    store = context.store
    host, facts = store.get_or_none("host", node), store.get_or_none("gpu", node)
    if facts is None or (host is not None and "gpu" in host.pretended):
        return 0, ()
    devices = facts.devices
    able = sum(1 for device in devices if device.error is None)
    env = values(effective_env(store.get_or_none("env", node), context.job))
    text = context.job.env.get("CUDA_VISIBLE_DEVICES", facts.cuda_visible_devices)
    entries = [str(i) for i in range(len(devices))] if text is None else visible(text, len(devices))
    count = min(len(entries), able, MOST_GPUS)
    listed = store.get_or_none("node", node)
    if listed is not None and (listed.gpus or listed.slots):
        count = min(count, listed.gpus or listed.slots or count)
    # CUDA puts the fastest first unless told otherwise; NVML goes by the bus.
    in_order = len({d.name for d in devices}) < 2 or env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    listed_devices = [
        device
        for entry in entries[:count]
        for device in devices
        if (device.uuid.startswith(entry) if entry.startswith("GPU-") else str(device.index) == entry)
    ]
    known = in_order and able == len(devices) and len(listed_devices) == count
    return count, tuple(listed_devices) if known else devices


def of_amd(found: AcceleratorFacts) -> tuple[Gpu, ...]:
    """The GPUs that AMD's driver offers, in its order, which is torch's. Who computes is known of all of them
    together."""
    gpus = []
    for index, (kind, bus) in enumerate(zip(found.kfd, found.kfd_boards, strict=False)):
        board = next((one for one in found.amd if one.address.startswith(f"{bus}:")), None)
        if board is not None:
            gpus.append(
                Gpu(
                    index=index,
                    name=board.name or f"AMD {kind} ({board.device_id})",
                    pci_bus_id=board.address,
                    memory_used_bytes=board.vram_used_bytes,
                    mig_enabled=board.partition not in ("", "SPX"),
                    processes=found.processes,
                )
            )
    return tuple(gpus)


def chosen_of_amd(found: AcceleratorFacts, job: Mapping[str, str]) -> tuple[Gpu, ...] | str:
    """Those that a job would see; in words why that is not known."""
    gpus = of_amd(found)
    choices = {**found.visible, **{name: job[name] for name in CHOICES if name in job}}
    if not choices:
        return gpus
    listed = [text.split(",") for text in choices.values()]
    if len(choices) > 1 or not all(entry.isdecimal() for entry in listed[0]):
        return f"which GPUs {' and '.join(choices)} leave is not followed"
    indexes = [int(entry) for entry in listed[0]]
    return tuple(one for index in indexes for one in gpus if one.index == index)


def in_use(devices: Iterable[Gpu]) -> str:
    """Why these GPUs have to be left alone: who computes on them. Empty when nobody does."""
    for device in devices:
        for process in device.processes or ():
            if not is_harmless(process):
                name = (process.name or "").rsplit("/", 1)[-1] or "a process"
                who = f"{name} (pid {process.pid}, {process.user or 'user unknown'})"
                return f"GPUs in use: {who}"
        if unseen_bytes(device):
            size = f"{unseen_bytes(device) // MIB} MiB"
            return f"GPUs in use: processes that cannot be seen ({size})"
        if device.processes is None and device.error is None:
            return f"it is not known who uses the GPUs: the driver does not say it for GPU {device.index}"
    return ""
