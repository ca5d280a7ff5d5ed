"""What some GPUs of a node tell and others do not."""

import re
from collections.abc import Callable, Iterator

from netdoctor.checks._words import listing
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.model import HERE, Finding, Fix, look, run, skip, unknown


def untold(gpu: GpuFacts, value: Callable[[Gpu], object], what: str) -> Iterator[Finding]:
    """A skip where no GPU tells `value`; an unknown where one does not, and others of its model do.

    what: ``count ECC errors``. A GPU that answers with an error is the business of gpu.visible.
    """
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


CLAIMED = look("see what claims them for another driver", "grep -rnsE 'vfio|nouveau' /etc/modprobe.d")


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
        "hand the GPUs to the NVIDIA driver, and for good where modprobe.d claims them",
        *((let_go, "modprobe nvidia", take) if known else ()),
        root=True,
        persistent=False,
        risk="medium",
        loses="what the other driver serves with them, such as virtual machines",
    )
    return [CLAIMED, hand_over]
