"""Parts of a machine that its kernel says are failing, and processes that nobody can end."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.facts.health import HealthFacts
from netdoctor.model import HERE, LIKELY, Action, Cause, Finding, look, ok, run, seen

STUCK = Cause("process-stuck", "processes on {nodes} hang in the kernel, and no signal ends them", LIKELY)
ZOMBIES = Cause("zombies", "{nodes} {has} so many ended processes that new ones may find no number")
MEMORY = Cause("memory-errors", "memory of {nodes} gives wrong values", action=Action.REPLACE)
CORRECTED = Cause("memory-corrected", "memory of {nodes} has errors that are corrected, too many", LIKELY)
PROCESSOR = Cause("machine-check", "a processor of {nodes} reported a hardware error", LIKELY)
DISK = Cause("disk-errors", "{nodes} {has} a disk or file system with errors")
HOT = Cause("chip-hot", "{nodes} {has} a chip at its critical temperature", action=Action.DRAIN)
EMPTY = Cause("driver-files-empty", "libraries of NVIDIA's driver on {nodes} are empty files")

# kernel.hung_task_timeout_secs. [Documentation/admin-guide/sysctl/kernel.rst]
HANGS_S = 120
# dimm.ce-error-threshold of mcelog. [https://github.com/andikleen/mcelog/blob/master/mcelog.conf]
CORRECTED_A_DAY = 10
DAY_S = 86_400
# Chosen here: nine tenths are left to the living.
ZOMBIES_SHARE = 0.1


@check(required=False, source="https://docs.kernel.org/admin-guide/ras.html")
def host_health(health: HealthFacts) -> Iterator[Finding]:
    """The kernel counts no failing memory, processor or disk, and no process hangs in it.

    Looks at:
        Processes that wait uninterruptibly and have not run for 120 s, as the kernel's own watchdog does;
        zombies, against kernel.pid_max; errors of memory modules (EDAC): any uncorrected one, or more than 10
        corrected ones in a day, as mcelog does; machine-check exceptions since the start; errors that ext4
        counts, arrays that miss a disk, NVMe controllers that are dead; chips at the critical temperature of
        their driver (hwmon); and libraries of NVIDIA's driver that lead to
        a file without a byte. What a machine does not count,
        as most virtual ones do not, is no finding.

    Matters because:
        A process that hangs in the driver holds its GPU until the machine is started again. Memory that errs
        ends the job, or changes its numbers. Files without a byte are left in an image that was built with a
        GPU runtime: where the runtime does not mount the driver over them, CUDA cannot be loaded.

    Fix:
        Memory, processor, disk, heat: take the node out and have the part looked at. A process that hangs:
        see where it waits, and restart the node. Empty files: start the container with the GPU runtime, or
        remove them from the image.
    """
    found = [*_processes(health), *_parts(health), *_files(health)]
    yield from found
    if not found:
        yield ok(HERE, "no hardware errors counted, no process hangs")


def _processes(health: HealthFacts) -> Iterator[Finding]:
    stuck = [one for one in health.stuck if one.seconds >= HANGS_S]
    if stuck:
        words = [
            f"{one.name} (process {one.pid}) for {one.seconds / 60:.0f} min"
            + (f" in {one.waits_in}" if one.waits_in else "")
            for one in stuck
        ]
        yield STUCK.warn(
            f"waits in the kernel, and takes no signal: {listing(words, 4)}",
            observed=words[0],
            expected=f"no longer than {HANGS_S} s (kernel.hung_task_timeout_secs)",
            seen=seen("/proc/PID/sched, se.exec_start", "\n".join(words)),
            fixes=look(
                "see where it waits; only a restart of the node ends it",
                f"cat /proc/{stuck[0].pid}/stack",
                root=True,
            ),
        )
    if health.pid_max and health.zombies >= ZOMBIES_SHARE * health.pid_max:
        yield ZOMBIES.warn(
            f"{health.zombies} processes have ended and their parents have not taken notice",
            observed=f"{health.zombies} zombies",
            expected=f"far fewer than kernel.pid_max = {health.pid_max}",
            fixes=look("see whose they are", "ps -eo state,ppid,comm --sort state"),
        )


def _parts(health: HealthFacts) -> Iterator[Finding]:
    counters = look("see the counters", "grep . /sys/devices/system/edac/mc/mc*/*_count", root=True)
    for one in health.memory:
        a_day = one.corrected * DAY_S / max(one.seconds or 0, DAY_S)
        if one.uncorrected:
            yield MEMORY.fail(
                f"{one.where}: {one.uncorrected} errors that could not be corrected",
                observed=f"{one.uncorrected} uncorrected errors",
                expected="none",
                seen=seen("/sys/devices/system/edac", f"{one.where}: ue_count {one.uncorrected}"),
                fixes=counters,
            )
        elif a_day > CORRECTED_A_DAY and one.seconds is not None:
            yield CORRECTED.warn(
                f"{one.where}: {one.corrected} corrected errors, {a_day:.0f} a day",
                observed=f"{a_day:.0f} corrected errors a day",
                expected=f"at most {CORRECTED_A_DAY} a day (mcelog)",
                seen=seen("/sys/devices/system/edac", f"{one.where}: ce_count {one.corrected}"),
                fixes=counters,
            )
    if health.machine_checks:
        yield PROCESSOR.warn(
            f"{health.machine_checks} CPUs took a machine-check exception since the start",
            observed=f"machine checks on {health.machine_checks} CPUs",
            expected="none",
            fixes=look("read the lines with mce", "dmesg -T --level emerg,alert,crit,err", root=True),
        )
    for disk in health.disks:
        yield DISK.warn(
            f"{disk.device}: {disk.what}",
            observed=disk.what,
            expected="no errors",
            fixes=look("read what the kernel says of it", "dmesg -T --level err", root=True),
        )
    for chip in health.hot:
        now = "" if chip.celsius is None else f", now {chip.celsius:.0f} °C"
        yield HOT.warn(
            f"{chip.chip} is or was at its critical {chip.critical:.0f} °C{now}",
            observed=f"{chip.chip}: critical alarm{now}",
            expected=f"below {chip.critical:.0f} °C, by its driver",
            fixes=look("see temperatures", "grep . /sys/class/hwmon/hwmon*/temp*_input"),
        )


def _files(health: HealthFacts) -> Iterator[Finding]:
    if health.empty_libraries:
        yield EMPTY.warn(
            f"without a byte: {listing(health.empty_libraries, 3)}",
            observed=f"{len(health.empty_libraries)} empty files",
            expected="the driver's libraries, or no such files",
            seen=seen("size 0", "\n".join(health.empty_libraries)),
            fixes=run("start the container with the GPU runtime, or remove these files from its image"),
        )
