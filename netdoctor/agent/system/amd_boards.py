"""What the kernel and ROCm say of AMD's boards: the part of group `accelerators` for nodes that have some."""

import os

from . import files, libs, procs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

_KFD = "/sys/class/kfd/kfd/topology/nodes"
_KFD_PROCESSES = "/sys/class/kfd/kfd/proc"
MAX_DEVICES = 64
_XGMI = 11  # CRAT_IOLINK_TYPE_XGMI, kfd_crat.h
# Parts of a board whose errors are read (amdgpu_ras.c): memory, compute, DMA, hubs, links. A newer driver has
# the same as aca_umc.
_RAS = ("umc", "gfx", "sdma", "mmhub", "xgmi_wafl", "pcie_bif")
# Which of them a process sees: each of these takes away from what the one before has left.
_CHOICES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
MAX_PROCESSES = 64
MAX_SENSORS = 8
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


def kfd(root: str, devices: "set[Optional[int]]") -> "tuple[list[tuple[str, str, Optional[int]]], int]":
    """Return ((architecture, PCI bus, XGMI links) of each of these GPUs that the driver offers, how many
    nodes it keeps from us).

    devices: numbers of PCI devices. A node without SIMD units is a processor. Where a device cgroup forbids
    a GPU, its properties give EPERM.
    """
    found, hidden = [], 0
    folder = files.under(root, _KFD)
    for node in sorted(files.names(folder), key=lambda name: (len(name), name))[:256]:
        base = os.path.join(folder, node)
        try:
            fields = properties(files.read_text(base + "/properties"))
        except PermissionError:
            hidden += 1
            continue
        except OSError:
            continue
        if fields.get("simd_count") and fields.get("device_id") in devices:
            bus = "%04x:%02x" % (fields.get("domain", 0), fields.get("location_id", 0) >> 8 & 0xFF)
            found.append((gfx(fields.get("gfx_target_version", 0)), bus, xgmi_links(base)))
    return found, hidden


def xgmi_links(node: str) -> "Optional[int]":
    """Return how many links of a KFD node lead to another GPU; None where no link of it is told."""
    kinds = []
    for folder in ("io_links", "p2p_links"):
        base = os.path.join(node, folder)
        for link in files.names(base)[:MAX_DEVICES]:
            text = files.text_or_none(os.path.join(base, link, "properties"))
            if text is not None:
                kinds.append(properties(text).get("type"))
    return kinds.count(_XGMI) if kinds else None


def processes(root: str) -> "Optional[list[dict[str, Any]]]":
    """Return facts.gpu.GpuProcess rows of those that use the driver's interface for computing."""
    folder = files.under(root, _KFD_PROCESSES)
    if not os.path.isdir(folder):
        return None
    found = []
    # Their numbers are those of the machine: in a container others have them.
    known_here = procs.comm(2, root) == "kthreadd"
    for name in files.names(folder)[:MAX_PROCESSES]:
        if name.isdigit():
            one = {"pid": int(name)}  # type: dict[str, Any]
            if known_here:
                known = procs.describe(int(name), root)
                one.update({key: known[key] for key in ("name", "user", "age_s")})
                one["left_over"] = procs.is_left_over(int(name), root)
            found.append(one)
    return found


def hexadecimal(text: str) -> "Optional[int]":
    try:
        return int(text, 16)
    except ValueError:
        return None


def amd_gpu(base: str, address: str, device: str, vram: "Optional[int]") -> "dict[str, Any]":
    driver = files.link_name(base + "/driver")
    found = {
        "address": address,
        "device_id": device,
        "driver": driver,
        "vram_bytes": vram,
        "vbios": files.text_or_none(os.path.join(base, "vbios_version")) or "",
        "partition": files.text_or_none(os.path.join(base, "current_compute_partition")) or "",
    }  # type: dict[str, Any]
    if driver == "amdgpu":
        # A question would wake it up.
        asleep = files.text_or_none(base + "/power/runtime_status") == "suspended"
        found.update({"asleep": True} if asleep else health(base))
    return found


def health(base: str) -> "dict[str, Any]":
    """Return what amdgpu tells everybody of a board. [Documentation/gpu/amdgpu of Linux]"""
    found = {"name": files.text_or_none(base + "/product_name") or ""}  # type: dict[str, Any]
    for field, name in (
        ("busy_percent", "gpu_busy_percent"),
        ("vram_used_bytes", "mem_info_vram_used"),
        ("link_width", "current_link_width"),
        ("replays", "pcie_replay_count"),
    ):
        found[field] = files.number(base + "/" + name)
    for field, name in (("link_gt_s", "current_link_speed"), ("link_most_gt_s", "max_link_speed")):
        found[field] = leading(files.text_or_none(base + "/" + name))  # 32.0 GT/s PCIe
    found["level"] = files.text_or_none(base + "/power_dpm_force_performance_level") or ""
    # 0: 132Mhz, 1: 2100Mhz *, one a line.
    clocks = [leading(line.partition(":")[2]) for line in lines(base + "/pp_dpm_sclk")]
    found["clock_most_mhz"] = max((int(clock) for clock in clocks if clock), default=None)
    found.update(errors(base + "/ras"))
    sensors = base + "/hwmon"
    for name in files.names(sensors)[:1]:
        found.update(sensed(os.path.join(sensors, name)))
    return found


def leading(text: "Optional[str]") -> "Optional[float]":
    """Return 32.0 of ``32.0 GT/s PCIe``, 2100 of ``2100Mhz *``."""
    digits = (text or "").strip().partition(" ")[0].lower().replace("mhz", "")
    return float(digits) if digits.replace(".", "", 1).isdecimal() else None


def lines(path: str) -> "list[str]":
    return (files.text_or_none(path) or "").splitlines()


def errors(folder: str) -> "dict[str, Any]":
    """Return what the driver has counted of each part, and the pages that it has given up.

    ``ue: 0``, ``ce: 3`` and, of the memory, ``de: 0``; ``0x027f5d43 : 0x00001000 : R``, a page a line.
    """
    found = {"ras_blocks": [], "uncorrected": {}, "corrected": {}, "bad_pages": {}}  # type: dict[str, Any]
    for block in _RAS:
        rows = lines("%s/%s_err_count" % (folder, block)) or lines("%s/aca_%s" % (folder, block))
        counts = {kind.strip(): count.strip() for kind, _, count in (line.partition(":") for line in rows)}
        if counts.get("ue", "").isdigit():
            found["ras_blocks"].append(block)
            for kind, into in (("ue", "uncorrected"), ("ce", "corrected")):
                if counts.get(kind, "").isdigit() and int(counts[kind]):
                    found[into][block] = int(counts[kind])
    pages = files.text_or_none(folder + "/gpu_vram_bad_pages", files.CAP_BYTES) or ""
    for line in pages.splitlines():
        kind = line.rpartition(":")[2].strip()
        if kind in ("R", "P", "F"):
            found["bad_pages"][kind] = found["bad_pages"].get(kind, 0) + 1
    return found


def sensed(folder: str) -> "dict[str, Any]":
    """Return temperatures with the driver's limits, and the power cap with its default (hwmon)."""
    found = {}  # type: dict[str, Any]
    for field, name in (("power_cap_w", "power1_cap"), ("power_default_w", "power1_cap_default")):
        microwatt = files.number(os.path.join(folder, name))
        if microwatt is not None:
            found[field] = microwatt / 1e6
    sensors = []
    for number in range(1, MAX_SENSORS + 1):
        base = "%s/temp%d_" % (folder, number)
        now = files.number(base + "input")
        if now is None:
            break
        limit = files.number(base + "crit")
        if limit:
            name = (files.text_or_none(base + "label") or "sensor %d" % number)[:40]
            sensors.append({"name": name, "temperature_c": now / 1e3, "critical_c": limit / 1e3})
    return dict(found, sensors=sensors)


def rccl(root: str) -> "Optional[str]":
    """Return 1.0.60301 of ROCm's librccl.so.1.0.60301, which names the release of ROCm it came with."""
    for path in libs.find("librccl.so.1", root, os.environ.get("LD_LIBRARY_PATH", ""), _RCCL_FOLDERS)[:1]:
        name = os.path.basename(os.path.realpath(files.under(root, path)))
        return name.partition(".so.")[2] or None
    return None


def facts_of(found_on: "list[tuple[str, str, str, Optional[int]]]", root: str) -> "dict[str, Any]":
    """Return what facts.accelerators.AcceleratorFacts has of a node with these boards."""
    boards = [amd_gpu(*one) for one in found_on]
    found = {"amd": boards}  # type: dict[str, Any]
    offered, found["kfd_hidden"] = kfd(root, {hexadecimal(board["device_id"]) for board in boards})
    found["kfd"], found["kfd_boards"] = [one[0] for one in offered], [one[1] for one in offered]
    links = {bus: count for _, bus, count in reversed(offered)}
    for board in boards:
        board["xgmi_links"] = links.get(board["address"].partition(".")[0][:-3])
    found["processes"] = processes(root)
    found["visible"] = {name: os.environ[name][:200] for name in _CHOICES if name in os.environ}
    found["amdgpu"] = files.text_or_none(files.under(root, "/sys/module/amdgpu/version")) or None
    found["rocm"] = files.text_or_none(files.under(root, "/opt/rocm/.info/version"), 256) or None
    found["rccl"] = rccl(root)
    device = files.under(root, "/dev/kfd")
    if os.path.exists(device):
        found["may_compute"] = os.access(device, os.R_OK | os.W_OK)
    return found
