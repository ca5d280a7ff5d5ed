"""How alike machines of one model are set up: what is compared, and how it is read."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import median
from typing import NamedTuple

from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.parity import differing, unlike_expected, unlike_expected_by_name
from netdoctor.checks._shared.text import GIB, listing, quoted, size
from netdoctor.facts.expected import Expectations
from netdoctor.facts.host import HostFacts
from netdoctor.facts.tuning import TuningFacts
from netdoctor.model import (
    PEERS,
    Cause,
    Evidence,
    Finding,
    Fix,
    Status,
    after_reboot,
    look,
    run,
    seen,
    unknown,
)

Tunings = Mapping[str, TuningFacts]
# Shares of what others have, between which a node has lost modules: above, it is what firmware and the crash
# kernel keep for themselves (the smallest module of 32 is 3 %); below, it was bought with less.
LOST = (0.55, 0.98)
# Clocks that every reading of the time has to ask a device for. All others are read in user space.
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
SWAPPING_BYTES = GIB
# A value of a kernel setting that may stand in a command: numbers, or one word.
_PLAIN = re.compile(r"[0-9]+(?: [0-9]+)*|[a-z][a-z0-9_]*")


MEMORY = Cause("tuning-memory", "memory differs between {nodes}")
SYSCTL = "host.sysctl.*"
SETTINGS = Cause("tuning-sysctl", "Kernel settings of {nodes} are not those of most nodes")
SLOW_CLOCK = Cause("tuning-clock-source", "{nodes} read{s} the time from a slow device")
SWAPPING = Cause("tuning-swap", "{nodes} {has} memory of programs in swap")


class Row(NamedTuple):
    """One property. read: of a node, None where it has none to compare; key: of what a user may expect;
    of_peers: whether nodes are compared with each other where they were not told what to have."""

    word: str
    read: Callable[[TuningFacts], str | int | None]
    source: str
    fix: Callable[[str], Fix]
    key: str = ""
    of_peers: bool = True


SEE_CLOCK = look("see why", "dmesg | grep -iE 'tsc|clocksource'", root=True)


def _reboot(text: str) -> Callable[[str], Fix]:
    return lambda _: after_reboot(text)


def _governor(wanted: str) -> Fix:
    shell = f"cpupower frequency-set -g {wanted}" if _PLAIN.fullmatch(wanted) else ""
    return run("set it as on the others; it holds until the next boot", shell, root=True, persistent=False)


def _hugepages(wanted: str) -> Fix:
    place = "/sys/kernel/mm/transparent_hugepage/enabled"
    shell = f"echo {wanted} > {place}" if _PLAIN.fullmatch(wanted) else ""
    return run("set it as on the others; it holds until the next boot", shell, root=True, persistent=False)


def _limit(value: int | None) -> str:
    # How much it is follows the machine's memory where it is a share of that.
    return "none" if value is None else "one"


def _group(_: str) -> Fix:
    return look("see which group has it", "cat /proc/self/cgroup; systemctl show user-$(id -u).slice")


ROWS = (
    Row(
        "BIOS",
        lambda t: t.bios,
        "/sys/class/dmi/id/bios_version",
        _reboot("bring it to the others' release"),
        "host.bios",
    ),
    Row(
        "number of processors",
        lambda t: t.cpus_online and f"{t.cpus_online}, SMT {t.smt or 'not told'}",
        "/sys/devices/system/cpu/online",
        _reboot("see why some are off (lscpu -e, dmesg); set SMT in the firmware as on the others"),
        "host.processors",
    ),
    Row(
        "kernel parameters",
        lambda t: " ".join(f"{k}={v}" if v else k for k, v in sorted(t.boot.items())) or "none that matter",
        "/proc/cmdline",
        _reboot("bring the boot loader's line to that of the others"),
        "host.boot",
    ),
    Row(
        "processors",
        lambda t: t.cpus_online,
        "/sys/devices/system/cpu/online",
        _reboot("see why some are off (lscpu -e, dmesg)"),
        "host.cpus",
        of_peers=False,
    ),
    Row(
        "clock source",
        lambda t: t.clock_source,
        "current_clocksource",
        lambda _: SEE_CLOCK,
        "host.clock-source",
        of_peers=False,
    ),
    Row("CPU governor", lambda t: t.governor, "/sys/devices/system/cpu/cpufreq", _governor, "host.governor"),
    Row(
        "transparent huge pages",
        lambda t: t.hugepages,
        "/sys/kernel/mm/transparent_hugepage",
        _hugepages,
        "host.hugepages",
    ),
    Row("memory limit of the session", lambda t: _limit(t.memory_limit_bytes), "memory.max", _group),
    Row("process limit of the session", lambda t: _limit(t.processes_limit), "pids.max", _group),
)
KEYS: dict[str, type] = {row.key: str for row in ROWS if row.key}
KEYS |= {"host.cpus": int, "host.memory": float, SYSCTL: str}
_MEMORY = Row(
    "memory",
    lambda _: None,
    "/proc/meminfo",
    _reboot("see which module is missing (dmidecode -t memory, EDAC), and reseat or replace it"),
)


def is_slowed_by_balancing(tuning: TuningFacts) -> bool:
    """Whether the maker of a node's GPUs says to switch automatic NUMA balancing off."""
    return (tuning.has_kfd or tuning.is_grace) and (tuning.numa_nodes or 1) > 1


def models(tunings: Tunings, hosts: Mapping[str, HostFacts], least: int) -> list[list[str]]:
    """Nodes that should be alike: of one product with as many processors, all in a container or none.

    least: how many make a group.
    """
    found: dict[object, list[str]] = {}
    for node, tuning in tunings.items():
        host = hosts.get(node)
        key = (
            tuning.product,
            tuning.cpus_present,
            tuning.is_virtual,
            host and (host.arch, bool(host.container)),
        )
        found.setdefault(key, []).append(node)
    return [nodes for nodes in found.values() if len(nodes) >= least]


def alike(
    nodes: list[str], tunings: Tunings, hosts: Mapping[str, HostFacts], expect: Expectations | None
) -> Iterator[Finding]:
    """What is not the same on nodes of one model."""
    rows = [(row, {node: row.read(tunings[node]) for node in nodes}) for row in ROWS]
    # What a virtual machine has is what was asked for.
    if not any(tunings[node].is_virtual for node in nodes):
        said = expect.for_nodes("host.memory", nodes) if expect else {}
        rows.append((_MEMORY, dict(memory([node for node in nodes if node not in said], hosts))))
    for row, values in rows:
        # What no node has is nothing to compare.
        known = {node: None if value is None else str(value) for node, value in values.items()}
        if not any(known.values()):
            continue
        cause = Cause(f"tuning-{row.word.replace(' ', '-').lower()}", f"{row.word} differs between {{nodes}}")

        def fix(_: str, wanted: str, row: Row = row) -> Fix:
            return row.fix(wanted)

        def source(node: str, row: Row = row, known: dict[str, str | None] = known) -> Evidence:
            return seen(row.source, known[node] or "", "file")

        yield from differing(
            known, row.word, cause, key=row.key, expect=expect, status=Status.WARN, evidence_of=source,
            fixes=fix, peers=row.of_peers,
        )  # fmt: skip
    yield from sysctls(nodes, tunings, expect)
    yield from _few(nodes, tunings)


def typed(tunings: Tunings, hosts: Mapping[str, HostFacts], expect: Expectations | None) -> Iterator[Finding]:
    """What was typed of numbers and names: at least so much memory (GiB), and kernel settings."""
    gib = {node: f"{host.memory_total_bytes / GIB:.0f}" for node, host in hosts.items() if node in tunings}
    for node, wish in expect.for_values("host.memory", gib).items() if expect else ():
        if gib[node] == "0":
            yield unknown(node, "how much memory there is could not be read")
        elif float(gib[node]) < LOST[1] * wish.number:
            more = {"seen": seen(_MEMORY.source, f"{gib[node]} GiB", "file"), "fixes": _MEMORY.fix("")}
            yield unlike_expected(wish, node, gib[node], "memory (GiB)", MEMORY, Status.WARN, **more)
    have = {node: tuning.sysctls for node, tuning in tunings.items()}
    yield from unlike_expected_by_name(have, "kernel setting", SETTINGS, SYSCTL, expect, status=Status.WARN)


def _few(nodes: list[str], tunings: Tunings) -> Iterator[Finding]:
    """What is worse on few nodes than on most."""
    slow = {node: tunings[node].clock_source or "" for node in nodes}
    slow = {node: source for node, source in slow.items() if source in SLOW_CLOCKS}
    for node, source in slow.items() if 2 * len(slow) < len(nodes) else ():
        yield SLOW_CLOCK.warn(
            f"the clock source is {source}: the processor's own clock was found unstable, or is not used",
            at=node,
            observed=source,
            expected=PEERS("tsc, or the hypervisor's clock"),
            seen=seen("current_clocksource", source, "file"),
            fixes=SEE_CLOCK,
        )
    used = {node: tunings[node].swap_used_bytes for node in nodes}
    used = {node: amount for node, amount in used.items() if amount >= SWAPPING_BYTES}
    for node, amount in used.items() if 2 * len(used) < len(nodes) else ():
        yield SWAPPING.warn(
            f"{size(amount)} of programs' memory are in swap, on most nodes none",
            at=node,
            observed=size(amount),
            expected=PEERS("none in swap"),
            seen=seen("/proc/swaps", f"{size(amount)} of {size(tunings[node].swap_bytes)}", "file"),
            fixes=look("see whose it is", "grep VmSwap /proc/[0-9]*/status | sort -k2n | tail"),
        )


def memory(nodes: Iterable[str], hosts: Mapping[str, HostFacts]) -> dict[str, str]:
    """How much memory each node has, in one word for all but those that have lost a part of it."""
    totals = {node: hosts[node].memory_total_bytes for node in nodes if node in hosts}
    totals = {node: total for node, total in totals.items() if total > 0}
    usual = median(totals.values()) if totals else 0
    lost = {node for node, total in totals.items() if LOST[0] * usual < total < LOST[1] * usual}
    return {node: size(total if node in lost else int(usual)) for node, total in totals.items()}


def sysctls(nodes: list[str], tunings: Tunings, expect: Expectations | None = None) -> Iterator[Finding]:
    """One finding for each node whose kernel settings are not those of most nodes of its model."""
    names = sorted({name for node in nodes for name in tunings[node].sysctls})
    odd: dict[str, list[tuple[str, str, str]]] = {}
    for name in names:
        said = expect.for_nodes(SYSCTL, nodes, name) if expect else {}
        mine = [n for n in nodes if name in tunings[n].sysctls and n not in said]
        spread = majority({n: tunings[n].sysctls[name] for n in mine})
        if (usual := spread.value) is not None:
            for node, value in spread.minority.items():
                if name == "kernel.numa_balancing" and is_slowed_by_balancing(tunings[node]):
                    continue  # a cause of its own
                odd.setdefault(node, []).append((name, value, usual))
    for node, settings in odd.items():
        plain = [one for one in settings if all(map(_PLAIN.fullmatch, one[1:]))]
        yield SETTINGS.warn(
            "kernel settings differ: "
            + listing([f"{name} {value}, on most nodes {usual}" for name, value, usual in settings], 4),
            at=node,
            observed=listing([f"{name}={value}" for name, value, _ in settings], 4),
            expected=PEERS(listing([f"{name}={usual}" for name, _, usual in settings], 4)),
            seen=seen("/proc/sys", listing([f"{name} = {value}" for name, value, _ in settings], 8), "file"),
            fixes=run(
                "set them as on most nodes; a file in /etc/sysctl.d keeps them",
                " && ".join(f"sysctl -w {quoted(f'{name}={usual}')}" for name, _, usual in plain),
                undo=" && ".join(f"sysctl -w {quoted(f'{name}={value}')}" for name, value, _ in plain),
                root=True,
                persistent=False,
            ),
        )
