"""Group `gpu`: NVIDIA GPUs through NVML, /proc and the PCI tree. Never a CUDA context."""

import ctypes
import os

from .. import runtime
from ..system import files, libs, procs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

# Under the group's own bound, so that a hang is reported with its reason.
NVML_S = 18.0
_NVIDIA = "0x10de"
_SONAME = "libnvidia-ml.so.1"
# Services that have to be of the driver's release, and Debian's list of what is installed.
_SERVICES = {"nvidia-fabricmanager": "/usr/bin/nv-fabricmanager", "nvidia-imex": "/usr/bin/nvidia-imex"}
_DPKG = "/var/lib/dpkg/status"
_DPKG_BYTES = 32 << 20
_IMEX_NODES = "/etc/nvidia-imex/nodes_config.cfg"
MAX_IMEX_NODES = 256
_PEERMEM = ("nvidia_peermem", "nv_peer_mem")


def kernel_driver(root: str) -> "Optional[str]":
    """Return the version of the loaded kernel module.

    ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024`` or
    ``NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (…)``
    """
    text = files.text_or_none(files.under(root, "/proc/driver/nvidia/version"))
    if text:
        import re

        found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\b", text)
        if found:
            return found.group(1)
    return files.text_or_none(files.under(root, "/sys/module/nvidia/version")) or None


def library_version(paths: "list[str]", root: str) -> "Optional[str]":
    """Return 550.54.15 of the real name libnvidia-ml.so.550.54.15."""
    return next(filter(None, (libs.version_of(files.under(root, path)) for path in paths)), None)


def pci_gpus(root: str) -> "tuple[list[dict[str, Any]], int]":
    """Return (facts.gpu.PciGpu rows, number of NVSwitches): bridges of NVIDIA's of no other class."""
    found, switches = [], 0
    folder = files.under(root, "/sys/bus/pci/devices")
    for address in files.pci_of(root, _NVIDIA):
        base = os.path.join(folder, address)
        kind = files.text_or_none(base + "/class") or ""
        switches += kind.startswith("0x0680")
        if not kind.startswith("0x03"):
            continue
        found.append(
            {
                "address": address,
                "device_id": files.text_or_none(base + "/device") or "",
                "driver": files.link_name(base + "/driver"),
                "path": files.pci_path(os.path.realpath(base)),
                "numa_node": files.number(base + "/numa_node"),
            }
        )
    return found, switches


def services(root: str, switches: bool, domain: bool) -> "dict[str, Any]":
    """Return which of the services of NVLink fabrics run, and their releases; nothing of those where /proc
    does not show other users' processes, or is a container's.

    switches, domain: whether there are NVSwitches, and whether GPUs are in a domain of several nodes.
    """
    if procs.comm(1, root) is None or procs.comm(2, root) != "kthreadd":
        return {}
    running = procs.running(root) if switches or domain else ()  # a file of each process
    found = {"fabric_packages": packages(root)}  # type: dict[str, Any]
    if switches:
        found["fabric_manager"] = "nv-fabricmanage" in running  # as much of a name as the kernel keeps
    if domain:
        found.update(imex="nvidia-imex" in running, imex_nodes=imex_nodes(root))
    return found


def packages(root: str) -> "dict[str, list[str]]":
    """Return the releases of _SERVICES that Debian's packages have installed: 550.54.15 of 550.54.15-1.

    ``Package: nvidia-fabricmanager-550``, ``Status: install ok installed``, ``Version: 550.54.15-1``.
    """
    names = [name for name, path in _SERVICES.items() if os.path.exists(files.under(root, path))]
    found = {}  # type: dict[str, list[str]]
    try:
        listed = b"\n" + files.read_bytes(files.under(root, _DPKG), _DPKG_BYTES) if names else b""
    except OSError:
        return found
    for name in names:
        begin = b"\nPackage: " + name.encode("ascii")
        at = listed.find(begin)
        while at >= 0:
            end = listed.find(b"\n\n", at)
            text = listed[at : end if end >= 0 else len(listed)].decode("utf-8", "replace")
            fields = dict(line.partition(": ")[::2] for line in text.splitlines())
            release = fields.get("Version", "").rpartition(":")[2].partition("-")[0]
            branch = fields["Package"][len(name) :].lstrip("-")  # -dev is another package
            if fields.get("Status", "").endswith(" ok installed") and (branch.isdecimal() or not branch):
                found.setdefault(name, []).append(release)
            at = listed.find(begin, at + 1)
    return found


def imex_nodes(root: str) -> "Optional[list[str]]":
    """Return the addresses that IMEX is to talk to; None where it has no such list."""
    text = files.text_or_none(files.under(root, _IMEX_NODES), 65536)
    if text is None:
        return None
    lines = [line.partition("#")[0].strip()[:64] for line in text.splitlines()]
    return sorted(line for line in lines if line)[:MAX_IMEX_NODES]


def open_module(root: str) -> "Optional[bool]":
    """Return whether the loaded kernel module is the open one, None where none is."""
    text = files.text_or_none(files.under(root, "/proc/driver/nvidia/version"))
    return None if not text else "Open Kernel Module" in text


def nvlink_disabled(root: str) -> "Optional[bool]":
    """Return whether the module was told to leave NVLink alone: ``NvLinkDisable: 1``."""
    text = files.text_or_none(files.under(root, "/proc/driver/nvidia/params"), 16384) or ""
    found = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("NvLinkDisable: ")]
    return found[0].strip() != "0" if found else None


def device_nodes(root: str) -> "list[str]":
    """Return /dev/nvidia0 and the like."""
    names = files.names(files.under(root, "/dev"))
    found = [n for n in names if n.startswith("nvidia") and n[6:].isdecimal()]
    return ["/dev/" + n for n in sorted(found, key=lambda n: int(n[6:]))]


def mode_allows(status: "os.stat_result") -> bool:
    """Return whether we may read and write a file, as far as its mode goes."""
    if os.geteuid() == 0:
        return True
    if status.st_uid == os.geteuid():
        bits = 0o600
    elif status.st_gid == os.getegid() or status.st_gid in os.getgroups():
        bits = 0o060
    else:
        bits = 0o006
    return status.st_mode & bits == bits


def closed_nodes(paths: "list[str]", root: str) -> "tuple[list[str], list[str]]":
    """Return the device nodes that a device cgroup does not let us open, and those that their mode does not.

    access(2) asks the cgroup as well (inode_permission in fs/namei.c), version 1 or 2, and wakes no GPU up.
    """
    by_cgroup, by_mode = [], []
    for path in paths:
        at = files.under(root, path)
        try:
            if not mode_allows(os.stat(at)):
                by_mode.append(path)
            elif not os.access(at, os.R_OK | os.W_OK):
                by_cgroup.append(path)
        except OSError:
            pass
    return by_cgroup, by_mode


def job_of(cgroups: str) -> str:
    """Return the Slurm job that a process belongs to, by /proc/self/cgroup: ``42``, or nothing.

    ``5:devices:/slurm/uid_1000/job_42/step_extern``,
    ``0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0``
    """
    import re

    found = re.search(r"/slurm[^\n]*/job_(\d{1,12})/", cgroups)
    return found.group(1) if found else ""


def loadable() -> bool:
    """Say whether the loader finds NVML in a place that is not searched here."""
    try:
        ctypes.CDLL(_SONAME)
        return True
    except OSError:
        return False


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.gpu.GpuFacts. Raises Unavailable: timed_out where NVML hangs, failed without pynvml."""
    library_path = os.environ.get("LD_LIBRARY_PATH", "")
    paths = libs.find(_SONAME, root, library_path, libs.NVIDIA_DIRECTORIES)
    boards, switches = pci_gpus(root)
    found = {
        "pci": boards,
        "kernel_driver": kernel_driver(root),
        "library_driver": library_version(paths, root),
        "device_nodes": device_nodes(root),
        "peermem": any(os.path.isdir(files.under(root, "/sys/module/" + name)) for name in _PEERMEM),
        "open_module": open_module(root),
        "nvlink_disabled": nvlink_disabled(root),
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "nvidia_visible_devices": os.environ.get("NVIDIA_VISIBLE_DEVICES"),
    }  # type: dict[str, Any]
    found["blocked"], found["forbidden"] = closed_nodes(found["device_nodes"] + ["/dev/nvidiactl"], root)
    if found["blocked"]:
        found["login_job"] = job_of(files.text_or_none(files.under(root, "/proc/self/cgroup"), 16384) or "")
        found["slurmd"] = "slurmd" in procs.running(root)
    if found["pci"]:
        found["up_s"] = files.uptime_s(root)
        found["nvswitches"] = switches
    if not paths and not (root == "/" and loadable()):
        found.update(services(root, True, False) if switches else {}, nvml="no_library")
        return found
    library = runtime.library("pynvml")
    if library is None:
        # Nothing is known of the GPUs then, and none of that is the node's doing.
        raise runtime.Unavailable("failed", "netdoctor's own pynvml did not get to the node")
    counters = bool(args.get("counters"))
    # Not compiled where there is no NVIDIA GPU.
    from ..system import nvml

    found.update(runtime.bounded(lambda: nvml.query(library, counters), NVML_S))
    domain = any("nvlink_domain" in device for device in found.get("devices", ()))
    fabric = switches or domain or any(device.get("fabric_state") for device in found.get("devices", ()))
    if fabric and not counters:
        found.update(services(root, bool(switches), domain))
    return found
