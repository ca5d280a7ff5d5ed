"""Group `accelerators`: AMD's GPUs from sysfs and files, and which other accelerators there are."""

import os

from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

MAX_DEVICES = 64
_AMD = "0x1002"
_INTEL = "0x8086"
# PCI classes: display controllers (VGA, 3D, other), processing accelerators, what has no class of its own.
_DISPLAY = ("0x0300", "0x0302", "0x0380")
_ACCELERATOR = "0x12"
_OTHER = "0x0880"
# A display controller with less memory is a processor's own graphics, or a BMC's, and no board to compute on.
_LEAST_VRAM = 4 << 30
# Instinct MI50 to MI250, which are display controllers, where no driver tells their memory. [pci.ids]
_INSTINCT = ("0x66a0", "0x66a1", "0x738c", "0x738e", "0x7408", "0x740c", "0x740f", "0x7410")
_NAMES = {
    "0x1da3": "Intel Gaudi",
    "0x1d0f": "AWS Neuron",
    "0x1ae0": "Google TPU",
    "0x19e5": "Huawei Ascend",
    _INTEL: "Intel GPU",
}
# Of Intel's: Data Center GPU Max (Ponte Vecchio) and Flex. Its other display controllers sit in processors,
# and its processing accelerators are no GPUs. [pci.ids]
_INTEL_GPUS = ("0x0bd", "0x56c")


def is_any(root: str) -> bool:
    """Say whether a PCI device is of a vendor that matters here: one read instead of one for each device.

    ``8500\t100274a1\t0\t…``: bus and function, vendor and device; without their domain.
    """
    text = files.text_or_none(files.under(root, "/proc/bus/pci/devices"), 4 << 20)
    if not text:
        return True  # a container without it
    prefixes = tuple(vendor[2:] for vendor in (_AMD, *_NAMES) if vendor != _INTEL)
    prefixes += tuple(_INTEL[2:] + device[2:] for device in _INTEL_GPUS)
    for line in text.splitlines():
        ids = line.split("\t", 2)[1:2]
        if ids and ids[0].startswith(prefixes):
            return True
    return False


def pci(root: str) -> "tuple[list[tuple[str, str, str, Optional[int]]], dict[str, int]]":
    """Return ((folder, PCI address, device, memory in bytes) of AMD's boards, number of others by name)."""
    amd, others = [], {}  # type: list[tuple[str, str, str, Optional[int]]], dict[str, int]
    folder = files.under(root, "/sys/bus/pci/devices")
    for address in files.names(folder) if is_any(root) else ():
        base = os.path.join(folder, address)
        kind = files.text_or_none(os.path.join(base, "class")) or ""
        if not kind.startswith((*_DISPLAY, _ACCELERATOR, _OTHER)):
            continue
        vendor = files.text_or_none(os.path.join(base, "vendor")) or ""
        device = files.text_or_none(os.path.join(base, "device")) or ""
        if vendor == _AMD:
            vram = files.number(os.path.join(base, "mem_info_vram_total"))
            board = kind.startswith(_ACCELERATOR) or device in _INSTINCT or (vram or 0) >= _LEAST_VRAM
            if board and len(amd) < MAX_DEVICES:
                amd.append((base, address, device, vram))
        elif vendor == _INTEL:
            if device.startswith(_INTEL_GPUS):
                others[_NAMES[vendor]] = others.get(_NAMES[vendor], 0) + 1
        elif vendor in _NAMES and kind.startswith((_ACCELERATOR, _OTHER)):
            others[_NAMES[vendor]] = others.get(_NAMES[vendor], 0) + 1
    return amd, others


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.accelerators.AcceleratorFacts."""
    amd, others = pci(root)
    if not amd:
        return {"amd": [], "others": others}
    # Neither sent nor compiled where there is none.
    from ..system import amd_boards

    return dict(amd_boards.facts_of(amd, root), others=others)
