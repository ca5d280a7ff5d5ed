"""What some GPUs of a node tell and others do not."""

from collections.abc import Callable, Iterator

from netdoctor.checks._words import listing
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.model import HERE, Finding, Fix, run, skip, unknown


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
