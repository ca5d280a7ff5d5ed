"""Group `accelerators`: AMD's GPUs from sysfs and files, and which other accelerators there are."""

import os

from . import files, libs

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
_KFD = "/sys/class/kfd/kfd/topology/nodes"
_RCCL_FOLDERS = ("/opt/rocm/lib", "/opt/rocm/lib64")


def gfx(number: int) -> str:
    """Return gfx942 of 90402, gfx90a of 90010. [kfd_topology.c, gfx_target_version]"""
    return "gfx%d%x%x" % (number // 10000, number // 100 % 100, number % 100)


def properties(text: str) -> "dict[str, int]":
    """Return the numbers of a node's properties: ``simd_count 1216``, one a line."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.isdigit():
            found[name] = int(value)
    return found


def kfd(root: str, devices: "set[Optional[int]]") -> "tuple[list[str], int]":
    """Return (architecture of each of these GPUs that the driver offers, how many nodes it keeps from us).

    devices: numbers of PCI devices. A node without SIMD units is a processor. Where a device cgroup forbids
    a GPU, its properties give EPERM.
    """
    found, hidden = [], 0
    folder = files.under(root, _KFD)
    for node in sorted(files.names(folder), key=lambda name: (len(name), name))[:256]:
        try:
            said = properties(files.read_text(os.path.join(folder, node, "properties")))
        except PermissionError:
            hidden += 1
            continue
        except OSError:
            continue
        if said.get("simd_count") and said.get("device_id") in devices:
            found.append(gfx(said.get("gfx_target_version", 0)))
    return found, hidden


def hexadecimal(text: str) -> "Optional[int]":
    try:
        return int(text, 16)
    except ValueError:
        return None


def is_any(root: str) -> bool:
    """Say whether a PCI device is of a vendor that matters here: one read instead of one for each device.

    ``8500\t100274a1\t0\t…``: bus and function, vendor and device; without their domain.
    """
    text = files.text_or_none(files.under(root, "/proc/bus/pci/devices"), 4 << 20)
    if not text:
        return True  # a container without it
    wanted = tuple(vendor[2:] for vendor in (_AMD, *_NAMES) if vendor != _INTEL)
    wanted += tuple(_INTEL[2:] + device[2:] for device in _INTEL_GPUS)
    for line in text.splitlines():
        ids = line.split("\t", 2)[1:2]
        if ids and ids[0].startswith(wanted):
            return True
    return False


def pci(root: str) -> "tuple[list[dict[str, Any]], dict[str, int]]":
    """Return (facts.accelerators.AmdGpu rows, number of each other kind by its name)."""
    amd, others = [], {}  # type: list[dict[str, Any]], dict[str, int]
    folder = files.under(root, "/sys/bus/pci/devices")
    for address in files.names(folder) if is_any(root) else ():
        base = os.path.join(folder, address)
        kind = files.text_or_none(os.path.join(base, "class")) or ""
        if not kind.startswith((*_DISPLAY, _ACCELERATOR, _OTHER)):
            continue
        vendor = files.text_or_none(os.path.join(base, "vendor")) or ""
        device = files.text_or_none(os.path.join(base, "device")) or ""
        if vendor == _AMD:
            vram = files.int_or_none(os.path.join(base, "mem_info_vram_total"))
            board = kind.startswith(_ACCELERATOR) or device in _INSTINCT or (vram or 0) >= _LEAST_VRAM
            if board and len(amd) < MAX_DEVICES:
                amd.append(amd_gpu(base, address, device, vram))
        elif vendor == _INTEL:
            if device.startswith(_INTEL_GPUS):
                others[_NAMES[vendor]] = others.get(_NAMES[vendor], 0) + 1
        elif vendor in _NAMES and kind.startswith((_ACCELERATOR, _OTHER)):
            others[_NAMES[vendor]] = others.get(_NAMES[vendor], 0) + 1
    return amd, others


def amd_gpu(base: str, address: str, device: str, vram: "Optional[int]") -> "dict[str, Any]":
    try:
        driver = os.path.basename(os.readlink(os.path.join(base, "driver"))) or None
    except OSError:
        driver = None
    return {
        "address": address,
        "device_id": device,
        "driver": driver,
        "vram_bytes": vram,
        "vbios": files.text_or_none(os.path.join(base, "vbios_version")) or "",
        "partition": files.text_or_none(os.path.join(base, "current_compute_partition")) or "",
    }


def rccl(root: str) -> "Optional[str]":
    """Return 1.0.60301 of ROCm's librccl.so.1.0.60301, which names the release of ROCm it came with."""
    for path in libs.find("librccl.so.1", root, os.environ.get("LD_LIBRARY_PATH", ""), _RCCL_FOLDERS)[:1]:
        name = os.path.basename(os.path.realpath(files.under(root, path)))
        return name.partition(".so.")[2] or None
    return None


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.accelerators.AcceleratorFacts."""
    amd, others = pci(root)
    found = {"amd": amd, "others": others}  # type: dict[str, Any]
    if not amd:
        return found
    found["kfd"], found["kfd_hidden"] = kfd(root, {hexadecimal(board["device_id"]) for board in amd})
    found["amdgpu"] = files.text_or_none(files.under(root, "/sys/module/amdgpu/version")) or None
    found["rocm"] = files.text_or_none(files.under(root, "/opt/rocm/.info/version"), 256) or None
    found["rccl"] = rccl(root)
    device = files.under(root, "/dev/kfd")
    if os.path.exists(device):
        found["may_compute"] = os.access(device, os.R_OK | os.W_OK)
    return found
