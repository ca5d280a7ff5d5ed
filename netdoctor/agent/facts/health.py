"""Group `health`: what the kernel counts of failing parts, and processes that it cannot end."""

import os

from ..system import files, procs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Optional

# A report keeps so many of each.
MOST = 20
# A thread of the kernel itself. [include/linux/sched.h PF_KTHREAD]
KERNEL_THREAD = 0x200000
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
# What programs load of NVIDIA's driver.
DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")
# Degrees in which a chip's critical temperature is one; some drivers say 0 or 65261.
PLAUSIBLE = (40, 150)


def last_ran_ms(path: str) -> "Optional[float]":
    """Return when a thread last ran, by the clock of the CPU that it ran on, which leaves out the time of
    interrupts and of the hypervisor; None where this kernel does not say."""
    # se.exec_start                                :      76733639.912746   [kernel/sched/debug.c]
    for line in (files.text_or_none(path, 1024) or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "se.exec_start":
            try:
                return float(value)
            except ValueError:
                return None
    return None


def waited_s(folder: str, root: str) -> "Optional[float]":
    """Return for how long a thread has not run; None where that cannot be known."""
    then = last_ran_ms(folder + "/sched")
    cpu = _stat(folder + "/stat")[36:37]
    if then is None or not cpu or not cpu[0].isdigit():
        return None
    # The clocks of two CPUs are apart by as much as they were interrupted: this process asks the same CPU's.
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {int(cpu[0])})
        now = last_ran_ms(files.under(root, "/proc/self/sched"))
    except OSError:  # a CPU that is not ours
        return None
    finally:
        os.sched_setaffinity(0, allowed)
    return None if now is None else max(0.0, (now - then) / 1000)


def _stat(path: str) -> "list[str]":
    """Return the fields of a ``stat`` of /proc from the state on; as few as there are."""
    return (files.text_or_none(path) or "").rpartition(")")[2].split()


def _state(path: str) -> "tuple[str, int]":
    """Return (state, flags) of a ``stat`` of /proc; ("", 0) of a thread that is gone."""
    fields = _stat(path)
    return (fields[0], int(fields[6])) if len(fields) > 6 and fields[6].isdigit() else ("", 0)


def _is_frozen(pid: int, root: str) -> bool:
    """Return whether a freezer holds a process, as where a container is paused: cgroup v1 shows it as D."""
    for line in (files.text_or_none(files.under(root, "/proc/%d/cgroup" % pid)) or "").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")  # 7:freezer:/docker/0a1b2c
        if "freezer" in controllers.split(",") and path != "/":
            # Where the file is not to be seen, as in a container, the process may be frozen.
            state = files.under(root, "/sys/fs/cgroup/freezer" + path + "/freezer.state")
            return (files.text_or_none(state) or "").strip() != "THAWED"
    return False


def _waits(pid: int, root: str) -> "tuple[bool, list[str]]":
    """Return (whether it is a zombie, folders of its threads that wait uninterruptibly)."""
    base = files.under(root, "/proc/%d" % pid)
    state, flags = _state(base + "/stat")
    if state == "D" and not flags & KERNEL_THREAD:
        return False, [base]
    if state != "Z":
        return False, []
    # Its first thread has ended, others may be left that hold what it had.
    threads = [base + "/task/" + name for name in files.names(base + "/task")]
    return True, [one for one in threads if _state(one + "/stat")[0] == "D"]


def processes(root: str) -> "tuple[list[dict[str, Any]], int]":
    """Return (facts.health.Stuck of those that wait uninterruptibly, longest first, how many are zombies)."""
    found = []  # type: list[dict[str, Any]]
    zombies = 0
    for pid in procs.pids(root):
        is_zombie, threads = _waits(pid, root)
        zombies += is_zombie
        for folder in threads:
            seconds = None if _is_frozen(pid, root) else waited_s(folder, root)
            if seconds is not None:
                where = (files.text_or_none(folder + "/wchan", 64) or "").strip()
                where = "" if where == "0" else where
                name = procs.comm(pid, root) or ""
                found.append({"pid": pid, "name": name, "seconds": seconds, "waits_in": where})
                break
    return sorted(found, key=lambda one: -one["seconds"])[:MOST], zombies


def memory(root: str) -> "Iterator[dict[str, Any]]":
    """Yield facts.health.MemoryErrors of each module with errors. [Documentation/admin-guide/ras.rst]"""
    base = files.under(root, "/sys/devices/system/edac/mc")
    for controller in files.names(base):
        path = os.path.join(base, controller)
        if not controller.startswith("mc") or files.number(path + "/ue_count") is None:
            continue
        age_s = files.number(path + "/seconds_since_reset")
        parts = [
            (files.attribute(part + "/dimm_label") or name, part + "/dimm_%s_count")
            for name in files.names(path)
            for part in [os.path.join(path, name)]
            if name.startswith(("dimm", "rank")) and files.number(part + "/dimm_ue_count") is not None
        ]
        for name, counts in parts or [("", path + "/%s_count")]:
            corrected, uncorrected = files.number(counts % "ce"), files.number(counts % "ue")
            if corrected or uncorrected:
                yield {
                    "where": ("%s %s" % (controller, name)).strip()[:80],
                    "corrected": corrected or 0,
                    "uncorrected": uncorrected or 0,
                    "seconds": age_s,
                }


def machine_checks(text: str) -> "Optional[int]":
    """Return how many CPUs took machine-check exceptions since the start, by /proc/interrupts; None where the
    kernel does not count them."""
    for line in text.splitlines():  #  MCE:          0          0   Machine check exceptions
        name, _, rest = line.partition(":")
        if name.strip() == "MCE":
            return sum(word.isdigit() and int(word) > 0 for word in rest.split())
    return None


def disks(root: str) -> "Iterator[dict[str, str]]":
    """Yield facts.health.DiskError."""
    ext4 = files.under(root, "/sys/fs/ext4")
    for name in files.names(ext4):  # [Documentation/ABI/testing/sysfs-fs-ext4]
        count = files.number(os.path.join(ext4, name, "errors_count"))
        if count:
            yield {"device": name, "what": "ext4 counts %d errors" % count}
    block = files.under(root, "/sys/block")
    for name in files.names(block):  # [Documentation/admin-guide/md.rst]
        degraded = files.number(os.path.join(block, name, "md/degraded"))
        if degraded:
            yield {"device": name, "what": "the array runs without %d of its disks" % degraded}
    nvme = files.under(root, "/sys/class/nvme")
    for name in files.names(nvme):  # [drivers/nvme/host/sysfs.c]
        if files.attribute(os.path.join(nvme, name, "state")) == "dead":
            yield {"device": name, "what": "the controller is dead"}


def hot(root: str) -> "Iterator[dict[str, Any]]":
    """Yield facts.health.HotChip of what is, or says that it was, at its critical temperature."""
    base = files.under(root, "/sys/class/hwmon")
    for device in files.names(base):  # [Documentation/ABI/testing/sysfs-class-hwmon]
        path = os.path.join(base, device)
        for name in files.names(path):
            sensor, _, what = name.partition("_")
            critical = files.number(os.path.join(path, name)) if what == "crit" else None
            if not sensor.startswith("temp") or critical is None:
                continue
            now = files.number("%s/%s_input" % (path, sensor))
            was = files.number("%s/%s_crit_alarm" % (path, sensor)) == 1
            if PLAUSIBLE[0] <= critical / 1000 <= PLAUSIBLE[1] and (was or (now or 0) >= critical):
                label = files.attribute("%s/%s_label" % (path, sensor)) or sensor
                chip = files.attribute(path + "/name") or device
                yield {
                    "chip": ("%s %s" % (chip, label))[:80],
                    "celsius": None if now is None else now / 1000,
                    "critical": critical / 1000,
                }


def empty_libraries(root: str) -> "Iterator[str]":
    """Yield libraries of NVIDIA's driver that lead to a file without a byte: a place where a container
    runtime mounts it. [https://github.com/NVIDIA/libnvidia-container/issues/140]"""
    for folder in LIBRARIES:
        for name in DRIVER:
            path = files.under(root, folder + "/" + name)
            if os.path.isfile(path) and os.path.getsize(path) == 0:
                yield folder + "/" + name


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.health.HealthFacts."""
    stuck, zombies = processes(root)
    interrupts = files.text_or_none(files.under(root, "/proc/interrupts"), 8 << 20)
    return {
        "stuck": stuck,
        "zombies": zombies,
        "pid_max": files.number(files.under(root, "/proc/sys/kernel/pid_max")),
        "memory": list(memory(root))[:MOST],
        "machine_checks": machine_checks(interrupts or ""),
        "disks": list(disks(root))[:MOST],
        "hot": list(hot(root))[:MOST],
        "empty_libraries": sorted(empty_libraries(root))[:MOST],
    }
