"""Group `tuning`: how a machine is set up: firmware, processors, kernel settings, limits of the session."""

import os

from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Optional

# Of the kernel's command line, what changes how a machine computes. The rest names disks, networks and, on
# installers and clouds, secrets: it stays on the node.
BOOT = frozenset((
    "intel_iommu", "amd_iommu", "iommu", "iommu.passthrough", "iommu.strict", "pci", "pcie_aspm",
    "pcie_acs_override", "pcie_port_pm", "mitigations", "spectre_v2", "nosmt", "isolcpus", "nohz",
    "nohz_full", "rcu_nocbs", "irqaffinity", "maxcpus", "nr_cpus", "mem", "numa", "numa_balancing",
    "transparent_hugepage", "hugepages", "hugepagesz", "default_hugepagesz", "clocksource", "tsc",
    "intel_idle.max_cstate", "processor.max_cstate", "intel_pstate", "amd_pstate",
    "cpufreq.default_governor", "idle", "nmi_watchdog", "skew_tick", "preempt", "threadirqs",
    "init_on_alloc", "init_on_free", "cgroup_no_v1", "systemd.unified_cgroup_hierarchy", "cgroup_disable",
    "swiotlb", "hpet", "selinux", "apparmor", "modprobe.blacklist", "module_blacklist", "nouveau.modeset",
    "rd.driver.blacklist",
))  # fmt: skip
SYSCTLS = (
    "kernel.numa_balancing", "vm.zone_reclaim_mode", "vm.overcommit_memory", "vm.max_map_count",
    "vm.nr_hugepages", "net.core.rmem_max", "net.core.wmem_max", "net.core.netdev_max_backlog",
    "net.core.default_qdisc", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_mtu_probing", "net.ipv4.tcp_slow_start_after_idle",
)  # fmt: skip
POLICIES_AT_MOST = 8
# Arm's Neoverse V2; beside an NVIDIA GPU that is Grace. [arch/arm64/include/asm/cputype.h]
GRACE = "0xd4f"
# cgroup v1 has this for "no limit": the largest page-aligned number.
UNLIMITED = 1 << 60


def boot_parameters(text: str) -> "dict[str, str]":
    """Return the parameters of BOOT; of one that is given again, as hugepagesz, all values in order."""
    found = {}  # type: dict[str, str]
    for word in text.split():
        if word in ("--", "---"):
            break  # what follows is init's
        name, _, value = word.partition("=")
        name = name.replace("-", "_")
        if name in BOOT:
            found[name] = (found[name] + " " + value)[:200] if name in found else value[:200]
    return found


def count(text: "Optional[str]") -> "Optional[int]":
    """Return how many a list such as ``0-3,8`` has."""
    total = 0
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return None
        total += int(last or first) - int(first) + 1
    return total


def chosen(text: "Optional[str]") -> "Optional[str]":
    """Return the word in brackets: ``always [madvise] never``."""
    _, bracket, rest = (text or "").partition("[")
    return rest.partition("]")[0] or None if bracket else None


def swap(text: str) -> "tuple[int, int]":
    """Return (total, used) bytes of /proc/swaps; compressed memory counts as none."""
    total = used = 0
    for line in text.splitlines()[1:]:
        part = line.split()
        if len(part) >= 4 and part[2].isdigit() and part[3].isdigit() and "/zram" not in part[0]:
            total += int(part[2]) * 1024
            used += int(part[3]) * 1024
    return total, used


# --- control groups ---------------------------------------------------------------------------------------


def _folders(root: str, mount: str, group: str) -> "Iterator[str]":
    """Yield the folders of a group and of those above it, as far as they are to be seen from here."""
    top = files.under(root, mount)
    path = group.strip("/")
    while True:
        yield os.path.join(top, path) if path else top
        if not path:
            return
        path = path.rpartition("/")[0]


def _least(values: "list[Optional[int]]") -> "Optional[int]":
    known = [value for value in values if value is not None and value < UNLIMITED]
    return min(known) if known else None


def _cores(folder: str) -> "Optional[float]":
    # v2: "max 100000" or "200000 100000".
    part = (files.text_or_none(folder + "/cpu.max") or "").split()
    if not part:
        part = [files.text_or_none(folder + "/cpu.cfs_" + name) or "" for name in ("quota_us", "period_us")]
    if len(part) == 2 and part[0].isdigit() and part[1].isdigit() and int(part[1]) > 0:
        return int(part[0]) / float(part[1])
    return None


def limits(root: str) -> "dict[str, Any]":
    """Return what control groups leave to the session: the least of its own group and those above."""
    memory = []  # type: list[Optional[int]]
    pids = []  # type: list[Optional[int]]
    left = []  # type: list[Optional[int]]
    cores = []  # type: list[Optional[float]]
    for line in (files.text_or_none(files.under(root, "/proc/self/cgroup"), 16384) or "0::/").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0":
            for folder in _folders(root, "/sys/fs/cgroup", group):
                memory += [files.number(folder + "/memory." + name) for name in ("max", "high")]
                _processes(folder, pids, left)
                cores.append(_cores(folder))
        for name in controllers.split(","):
            for folder in _folders(root, "/sys/fs/cgroup/" + name, group) if name else ():
                if name == "memory":
                    memory.append(files.number(folder + "/memory.limit_in_bytes"))
                elif name == "pids":
                    _processes(folder, pids, left)
                elif name == "cpu":
                    cores.append(_cores(folder))
    quotas = [one for one in cores if one is not None]
    return {
        "memory_limit_bytes": _least(memory),
        "processes_limit": _least(pids),
        "processes_left": _least(left),
        "cores_limit": min(quotas) if quotas else None,
    }


def _processes(folder: str, limits: "list[Any]", left: "list[Any]") -> None:
    most = files.number(folder + "/pids.max")
    now = files.number(folder + "/pids.current")
    limits.append(most)
    left.append(None if most is None or now is None else max(0, most - now))


# --- the machine ------------------------------------------------------------------------------------------


def governors(root: str) -> "Optional[str]":
    """Return the governors of some processors: ``performance``."""
    folder = files.under(root, "/sys/devices/system/cpu/cpufreq")
    policies = [name for name in files.names(folder) if name.startswith("policy")]
    step = max(1, len(policies) // POLICIES_AT_MOST)
    names = {files.text_or_none(folder + "/" + name + "/scaling_governor", 64) for name in policies[::step]}
    return "+".join(sorted(one for one in names if one)) or None


def modules_gone(root: str, release: str) -> bool:
    """Return whether the modules of the running kernel were removed, while those of others are there."""
    every = files.names(files.under(root, "/lib/modules"))
    others = [one for one in every if os.path.isfile(files.under(root, "/lib/modules/%s/modules.dep" % one))]
    return bool(others) and release not in every


def processor(root: str) -> str:
    """Return what /proc/cpuinfo says of the first processor; the whole of it may be megabytes."""
    try:
        return files.read_text(files.under(root, "/proc/cpuinfo"), 8192).partition("\n\n")[0]
    except OSError:
        return ""


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.tuning.TuningFacts."""

    def small(path: str) -> "Optional[str]":
        return files.text_or_none(files.under(root, path), 4096) or None

    sysctls = {}
    for name in SYSCTLS:
        value = small("/proc/sys/" + name.replace(".", "/"))
        if value is not None:
            sysctls[name] = " ".join(value.split())[:100]
    cpuinfo = processor(root)
    total, used = swap(small("/proc/swaps") or "")
    cpu = "/sys/devices/system/cpu/"
    try:
        allowed = len(os.sched_getaffinity(0)) if root == "/" else None
    except (AttributeError, OSError):
        allowed = None
    reply = {
        "product": small("/sys/class/dmi/id/product_name"),
        "bios": small("/sys/class/dmi/id/bios_version"),
        "is_virtual": " hypervisor" in cpuinfo or os.path.exists(files.under(root, "/sys/hypervisor/type")),
        "boot": boot_parameters(small("/proc/cmdline") or ""),
        "sysctls": sysctls,
        "cpus_present": count(small(cpu + "present")),
        "cpus_online": count(small(cpu + "online")),
        "cpus_allowed": allowed,
        "smt": small(cpu + "smt/control"),
        "governor": governors(root),
        "hugepages": chosen(small("/sys/kernel/mm/transparent_hugepage/enabled")),
        "clock_source": small("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "numa_nodes": count(small("/sys/devices/system/node/online")),
        "has_kfd": os.path.exists(files.under(root, "/sys/class/kfd/kfd/topology")),
        "is_grace": os.path.isdir(files.under(root, "/proc/driver/nvidia")) and GRACE in cpuinfo,
        "swap_bytes": total,
        "swap_used_bytes": used,
        "uptime_s": files.uptime_s(root),
        "reboot_wanted": any(
            os.path.exists(files.under(root, path))
            for path in ("/run/reboot-required", "/var/run/reboot-required")
        ),
        "modules_gone": modules_gone(root, os.uname().release),
    }
    reply.update(limits(root))
    return reply
