"""How machines of one model are set up."""

import re
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from statistics import median

from netdoctor.check import check
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.parity import Property, unlike_expected, unlike_expected_by_name
from netdoctor.checks._shared.text import GIB, listing, quoted, size
from netdoctor.facts.expected import Expectations
from netdoctor.facts.host import HostFacts
from netdoctor.facts.tuning import TuningFacts
from netdoctor.model import PEERS, Cause, Finding, Fix, Status, after_reboot, look, run, seen, skip, unknown

Tunings = Mapping[str, TuningFacts]
# Shares of what others have, between which a node has lost modules: above, it is what firmware and the crash
# kernel keep for themselves (the smallest module of 32 is 3 %); below, it was bought with less.
LOST = (0.55, 0.98)
# Clocks that every reading of the time has to ask a device for. All others are read in user space.
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
SWAPPING_BYTES = GIB
SYSCTL = "host.sysctl.*"
# A value of a kernel setting that may stand in a command: numbers, or one word.
_PLAIN = re.compile(r"[0-9]+(?: [0-9]+)*|[a-z][a-z0-9_]*")

BALANCING = Cause("numa-balancing", "Automatic NUMA balancing slows the GPUs of {nodes} down")
MEMORY = Cause("tuning-memory", "memory differs between {nodes}")
SETTINGS = Cause("tuning-sysctl", "Kernel settings of {nodes} differ from most nodes")
SLOW_CLOCK = Cause("tuning-clock-source", "{nodes} read{s} the time from a slow device")
SWAPPING = Cause("tuning-swap", "Programs on {nodes} are partly in swap")

SEE_CLOCK = look("see why", "dmesg | grep -iE 'tsc|clocksource'", root=True)
SEE_GROUP = look("see which group sets it", "cat /proc/self/cgroup; systemctl show user-$(id -u).slice")
SEE_SWAP = look("see which process it is", "grep VmSwap /proc/[0-9]*/status | sort -k2n | tail")
SEE_MODULE = after_reboot("see which module is missing (dmidecode -t memory, EDAC), and reseat or replace it")


def _until_boot(command: str) -> Callable[[str], Fix]:
    """Set a value as on the other nodes. command: with ``{}`` for the value."""

    def fix(value: str) -> Fix:
        shell = command.format(value) if _PLAIN.fullmatch(value) else ""
        return run(
            "set it as on the others; it lasts until the next boot", shell, root=True, persistent=False
        )

    return fix


def _processors(tuning: TuningFacts) -> str | None:
    online = tuning.cpus_online
    return None if online is None else f"{online}, SMT {tuning.smt or 'unknown'}"


def _boot(tuning: TuningFacts) -> str:
    return " ".join(f"{k}={v}" if v else k for k, v in sorted(tuning.boot.items())) or "none that matter"


def _limit(attribute: str) -> Callable[[TuningFacts], str]:
    """Whether there is one. How much it is follows the machine's memory where it is a share of that."""
    return lambda tuning: "none" if getattr(tuning, attribute) is None else "one"


CPUS, HUGE = "/sys/devices/system/cpu", "/sys/kernel/mm/transparent_hugepage"
ROWS: tuple[Property[TuningFacts], ...] = (
    Property("host.bios", "BIOS", attrgetter("bios"), "/sys/class/dmi/id/bios_version",
        fix=after_reboot("install the release of the others")),
    Property("host.processors", "number of processors", _processors, f"{CPUS}/online",
        fix=after_reboot("see why some are off (lscpu -e, dmesg); set SMT in the firmware as on the others")),
    Property("host.boot", "kernel parameters", _boot, "/proc/cmdline",
        fix=after_reboot("set the boot loader's line as on the others")),
    Property("host.cpus", "processors", attrgetter("cpus_online"), f"{CPUS}/online",
        fix=after_reboot("see why some are off (lscpu -e, dmesg)"), peers=False),
    Property("host.clock-source", "clock source", attrgetter("clock_source"), "current_clocksource",
        fix=SEE_CLOCK, peers=False),
    Property("host.governor", "CPU governor", attrgetter("governor"), f"{CPUS}/cpufreq",
        fix=_until_boot("cpupower frequency-set -g {}")),
    Property("host.hugepages", "transparent huge pages", attrgetter("hugepages"), HUGE,
        fix=_until_boot(f"echo {{}} > {HUGE}/enabled")),
    Property("", "memory limit of the session", _limit("memory_limit_bytes"), "memory.max", fix=SEE_GROUP),
    Property("", "process limit of the session", _limit("processes_limit"), "pids.max", fix=SEE_GROUP),
)  # fmt: skip
# Its values are made of those of all nodes, by _memory.
MEMORY_ROW: Property[TuningFacts] = Property("", "memory", lambda _: None, "/proc/meminfo", fix=SEE_MODULE)
KEYS: dict[str, type] = {row.key: str for row in ROWS if row.key}
KEYS |= {"host.cpus": int, "host.memory": float, SYSCTL: str}


@check(
    required=False, source="https://docs.nvidia.com/grace-perf-tuning-guide/os-settings.html", expects=KEYS
)
def host_tuning(
    tunings: Tunings, hosts: Mapping[str, HostFacts], expect: Expectations | None = None
) -> Iterator[Finding]:
    """Machines of one model have the same firmware, processors, memory and kernel settings.

    Looks at:
        Nodes of one product with as many processors are compared: BIOS, processors online, SMT, memory
        (by about one module), kernel parameters that change how it computes, CPU governor, huge pages,
        kernel settings (sysctl), and whether control groups limit the session. Also swap in use, and a
        slow clock source, if most nodes have neither. On each node: automatic NUMA balancing with AMD
        GPUs and on Grace, where the vendors say to switch it off.

    Matters because:
        A job is as fast as its slowest node. A node with another set-up is the usual reason why one is
        slower although all its parts are healthy.

    Fix:
        Give the odd node the settings of the others.
    """
    for node, tuning in tunings.items():
        value = tuning.sysctls.get("kernel.numa_balancing", "0")
        if value != "0" and _is_slowed_by_balancing(tuning):
            yield BALANCING.warn(
                "kernel.numa_balancing is on",
                at=node,
                observed="on",
                expected="off with these GPUs",
                seen=seen("/proc/sys/kernel/numa_balancing", value, "file"),
                fixes=run(
                    "switch it off; kernel.numa_balancing=0 in a file of /etc/sysctl.d keeps it",
                    "sysctl -w kernel.numa_balancing=0",
                    undo=f"sysctl -w kernel.numa_balancing={value}" if value.isdecimal() else "",
                    root=True,
                    persistent=False,
                ),
            )
    yield from _unlike_expected(tunings, hosts, expect)
    alone = expect is not None and any(map(expect.has, KEYS))
    models = _models(tunings, hosts)
    if not alone and all(len(nodes) < 2 for nodes in models):
        yield skip("no two machines of one model: nothing to compare with")
    for nodes in models if expect else (nodes for nodes in models if len(nodes) > 1):
        yield from _differences(nodes, tunings, hosts, expect)


def _is_slowed_by_balancing(tuning: TuningFacts) -> bool:
    """Whether the maker of a node's GPUs says to switch automatic NUMA balancing off."""
    return (tuning.has_kfd or tuning.is_grace) and (tuning.numa_nodes or 1) > 1


def _models(tunings: Tunings, hosts: Mapping[str, HostFacts]) -> list[list[str]]:
    """Nodes that should be alike: of one product with as many processors, all in a container or none."""
    found: dict[object, list[str]] = {}
    for node, tuning in tunings.items():
        host = hosts.get(node)
        machine = host and (host.arch, bool(host.container))
        key = (tuning.product, tuning.cpus_present, tuning.is_virtual, machine)
        found.setdefault(key, []).append(node)
    return list(found.values())


def _unlike_expected(
    tunings: Tunings, hosts: Mapping[str, HostFacts], expect: Expectations | None
) -> Iterator[Finding]:
    """What is expected of numbers and names: at least so much memory (GiB), and kernel settings."""
    gib = {node: f"{host.memory_total_bytes / GIB:.0f}" for node, host in hosts.items() if node in tunings}
    for node, expectation in expect.for_values("host.memory", gib).items() if expect else ():
        if gib[node] == "0":
            yield unknown(node, "how much memory there is could not be read")
        elif float(gib[node]) < LOST[1] * expectation.number:
            evidence = seen(MEMORY_ROW.source, f"{gib[node]} GiB", "file")
            yield unlike_expected(
                expectation, node, gib[node], "memory (GiB)", MEMORY, Status.WARN, seen=evidence,
                fixes=SEE_MODULE,
            )  # fmt: skip
    settings = {node: tuning.sysctls for node, tuning in tunings.items()}
    yield from unlike_expected_by_name(
        settings, "kernel setting", SETTINGS, SYSCTL, expect, status=Status.WARN
    )


def _differences(
    nodes: list[str], tunings: Tunings, hosts: Mapping[str, HostFacts], expect: Expectations | None
) -> Iterator[Finding]:
    """What is not the same on nodes of one model."""
    rows = [(row, row.values({node: tunings[node] for node in nodes})) for row in ROWS]
    # What a virtual machine has is what was asked for.
    if not any(tunings[node].is_virtual for node in nodes):
        expected = expect.for_nodes("host.memory", nodes) if expect else {}
        rows.append((MEMORY_ROW, _memory([node for node in nodes if node not in expected], hosts)))
    for row, values in rows:
        # What no node has is nothing to compare.
        if any(values.values()):
            key = f"tuning-{row.noun.replace(' ', '-').lower()}"
            yield from row.differing(values, Cause(key, f"{row.noun} differs between {{nodes}}"), expect)
    yield from _sysctls(nodes, tunings, expect)
    yield from _few(nodes, tunings)


def _few(nodes: list[str], tunings: Tunings) -> Iterator[Finding]:
    """What is worse on few nodes than on most."""
    clocks = {node: tunings[node].clock_source or "" for node in nodes}
    slow = {node: source for node, source in clocks.items() if source in SLOW_CLOCKS}
    for node, source in slow.items() if 2 * len(slow) < len(nodes) else ():
        yield SLOW_CLOCK.warn(
            f"the clock source is {source}: the processor's own clock is unstable, or is not used",
            at=node,
            observed=source,
            expected=PEERS("tsc, or the hypervisor's clock"),
            seen=seen("current_clocksource", source, "file"),
            fixes=SEE_CLOCK,
        )
    swapping = [node for node in nodes if tunings[node].swap_used_bytes >= SWAPPING_BYTES]
    for node in swapping if 2 * len(swapping) < len(nodes) else ():
        used = size(tunings[node].swap_used_bytes)
        yield SWAPPING.warn(
            f"{used} of program memory is in swap, on most nodes none",
            at=node,
            observed=used,
            expected=PEERS("none in swap"),
            seen=seen("/proc/swaps", f"{used} of {size(tunings[node].swap_bytes)}", "file"),
            fixes=SEE_SWAP,
        )


def _memory(nodes: list[str], hosts: Mapping[str, HostFacts]) -> dict[str, str | None]:
    """How much memory each node has, in one word for all but those that have lost a part of it."""
    totals = {node: hosts[node].memory_total_bytes for node in nodes if node in hosts}
    totals = {node: total for node, total in totals.items() if total > 0}
    typical = median(totals.values()) if totals else 0
    lost = {node for node, total in totals.items() if LOST[0] * typical < total < LOST[1] * typical}
    return {node: size(total if node in lost else int(typical)) for node, total in totals.items()}


def _sysctls(nodes: list[str], tunings: Tunings, expect: Expectations | None) -> Iterator[Finding]:
    """One finding for each node whose kernel settings are not those of most nodes of its model."""
    odd: dict[str, list[tuple[str, str, str]]] = {}
    for name in sorted({name for node in nodes for name in tunings[node].sysctls}):
        expected = expect.for_nodes(SYSCTL, nodes, name) if expect else {}
        compared = [n for n in nodes if name in tunings[n].sysctls and n not in expected]
        spread = majority({n: tunings[n].sysctls[name] for n in compared})
        if (typical := spread.value) is not None:
            for node, value in spread.minority.items():
                # Which is a cause of its own.
                if name != "kernel.numa_balancing" or not _is_slowed_by_balancing(tunings[node]):
                    odd.setdefault(node, []).append((name, value, typical))
    for node, settings in odd.items():
        plain = [one for one in settings if all(map(_PLAIN.fullmatch, one[1:]))]
        yield SETTINGS.warn(
            "kernel settings differ: "
            + listing([f"{name} {value}, on most nodes {typical}" for name, value, typical in settings], 4),
            at=node,
            observed=listing([f"{name}={value}" for name, value, _ in settings], 4),
            expected=PEERS(listing([f"{name}={typical}" for name, _, typical in settings], 4)),
            seen=seen("/proc/sys", listing([f"{name} = {value}" for name, value, _ in settings], 8), "file"),
            fixes=run(
                "set them as on most nodes; a file in /etc/sysctl.d keeps them",
                " && ".join(f"sysctl -w {quoted(f'{name}={typical}')}" for name, _, typical in plain),
                undo=" && ".join(f"sysctl -w {quoted(f'{name}={value}')}" for name, value, _ in plain),
                root=True,
                persistent=False,
            ),
        )
