"""Errors, limits and links of AMD's GPUs, as their driver tells them to everybody."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from netdoctor.check import check
from netdoctor.checks._shared.majority import of_most
from netdoctor.checks._shared.text import listing, number
from netdoctor.facts.accelerators import AcceleratorFacts, AmdGpu
from netdoctor.model import DERIVED, LIKELY, PEERS, Action, Cause, Finding, look, ok, seen, skip, unknown

ERRORS = Cause("amd-ecc", "{nodes} {has} an AMD GPU with uncorrected errors", action=Action.REBOOT)
WORN = Cause(
    "amd-memory-worn", "{nodes} {has} an AMD GPU with memory that cannot be repaired", action=Action.REPLACE
)
PENDING = Cause(
    "amd-memory-pending",
    "{nodes} {has} an AMD GPU with faulty memory until its next reset",
    action=Action.RESET_GPU,
)
HOT = Cause("amd-hot", "AMD GPUs of {nodes} are at their temperature limit", action=Action.DRAIN)
CAPPED = Cause("amd-power-capped", "AMD GPUs of {nodes} have a power limit below the default")
SLOWED = Cause("amd-clocks-set", "AMD GPUs of {nodes} are limited to low clocks")
NARROW = Cause("amd-pcie-narrow", "AMD GPUs of {nodes} have a slow PCIe link", LIKELY, action=Action.DRAIN)
UNLINKED = Cause("amd-xgmi-fewer", "AMD GPUs of {nodes} have fewer XGMI links than others", LIKELY)
# power_dpm_force_performance_level (Linux Documentation/gpu/amdgpu/thermal.rst): those that hold clocks down.
LOW_LEVELS = ("low", "profile_min_sclk", "profile_min_mclk")
# A GPU that is idle may lower the speed of its link.
AT_WORK_PERCENT = 20

Board = tuple[str, str]  # node and PCI address
Outcome = tuple[str, str]  # what was found, what it should be


class Rule(NamedTuple):
    """What one board alone shows: the cause, how it is found, where it is read, the command that shows it."""

    cause: Cause
    find: Callable[[AmdGpu], Outcome | None]
    where: str
    shell: str


class Shared(NamedTuple):
    """A number that boards of a kind have alike: less than most is a fault."""

    cause: Cause
    value: Callable[[AmdGpu], int | None]
    words: str
    where: str
    shell: str

    def amount(self, value: int) -> str:
        return f"{value} {self.words.removesuffix('s') if value == 1 else self.words}"


def _errors(board: AmdGpu) -> Outcome | None:
    parts = listing(f"{count} in {part}" for part, count in board.uncorrected.items())
    return (f"uncorrected errors since the driver was loaded: {parts}", "none") if parts else None


def _pages(kind: str, words: str) -> Callable[[AmdGpu], Outcome | None]:
    def find(board: AmdGpu) -> Outcome | None:
        count = board.bad_pages.get(kind, 0)
        return (f"{number(count, 'bad page')} of memory {words}", "none") if count else None

    return find


def _hot(board: AmdGpu) -> Outcome | None:
    hot = [one for one in board.sensors if one.temperature_c >= one.critical_c]
    parts = listing(f"{one.name} at {one.temperature_c:g} C" for one in hot)
    return (parts, f"below {hot[0].critical_c:g} C, this GPU's own limit") if hot else None


def _capped(board: AmdGpu) -> Outcome | None:
    cap, default = board.power_cap_w or 0, board.power_default_w or 0
    return (f"limited to {cap:g} W", f"{default:g} W, its default") if 0 < cap < default else None


def _level(board: AmdGpu) -> Outcome | None:
    return (f"performance level {board.level}", "auto") if board.level in LOW_LEVELS else None


def _slow_link(board: AmdGpu) -> Outcome | None:
    now, most = board.link_gt_s or 0, board.link_most_gt_s or 0
    if (board.busy_percent or 0) < AT_WORK_PERCENT or not 0 < now < most:
        return None
    return f"at work on {now:g} GT/s", f"{most:g} GT/s, which it can do"


RULES = (
    Rule(ERRORS, _errors, "ras", "amd-smi metric --ecc --ecc-blocks"),
    Rule(WORN, _pages("F", "cannot be retired"), "ras/gpu_vram_bad_pages", "amd-smi bad-pages"),
    Rule(PENDING, _pages("P", "wait for a reset"), "ras/gpu_vram_bad_pages", "amd-smi bad-pages"),
    Rule(HOT, _hot, "hwmon", "amd-smi metric --temperature --fan"),
    Rule(CAPPED, _capped, "hwmon", "amd-smi static --limit"),
    Rule(SLOWED, _level, "power_dpm_force_performance_level", "amd-smi metric --perf-level --clock"),
    Rule(NARROW, _slow_link, "current_link_speed", "amd-smi metric --pcie"),
)
SHARED = (
    Shared(SLOWED, lambda one: one.clock_most_mhz, "MHz at most", "pp_dpm_sclk", "amd-smi metric --clock"),
    Shared(NARROW, lambda one: one.link_width, "PCIe lanes", "current_link_width", "amd-smi metric --pcie"),
    Shared(UNLINKED, lambda one: one.xgmi_links, "XGMI links", "KFD's topology", "amd-smi topology"),
)
# What a board has to tell where most of its kind do, or it was not looked at. Half of them may be silent: the
# second die of an MI250 knows nothing of the power limit.
TELLS: tuple[tuple[str, Callable[[AmdGpu], object]], ...] = (
    ("its errors", lambda one: one.ras_blocks or None),
    ("its temperatures", lambda one: one.sensors or None),
    ("its power limit", lambda one: one.power_cap_w),
    ("its default power limit", lambda one: one.power_default_w),
    ("its performance level", lambda one: one.level or None),
    ("the speed of its PCIe link", lambda one: one.link_gt_s),
    ("the best speed of its PCIe link", lambda one: one.link_most_gt_s),
    ("how busy it is", lambda one: one.busy_percent),
    *((f"its number of {one.words}", one.value) for one in SHARED),
)


def _by_itself(node: str, board: AmdGpu) -> Iterator[Finding]:
    """What a board's own limits say of it."""
    for rule in RULES:
        if outcome := rule.find(board):
            found, expected = outcome
            yield rule.cause.warn(
                f"AMD GPU {board.address}: {found}",
                at=node,
                observed=found,
                expected=DERIVED(expected),
                seen=seen(f"{rule.where} of {board.address} in sysfs", found, "file"),
                fixes=look("see what it says", rule.shell),
            )


def _below_peers(boards: Mapping[Board, AmdGpu]) -> Iterator[Finding]:
    """Boards that have less of something than most of their kind; what they alone do not tell."""
    for rule in SHARED:
        values = {key: value for key, one in boards.items() if (value := rule.value(one)) is not None}
        typical = of_most(values.values())
        for (node, address), value in values.items():
            if typical is not None and value < typical:
                yield rule.cause.warn(
                    f"AMD GPU {address} has {rule.amount(value)}, most have {typical}",
                    at=node,
                    observed=rule.amount(value),
                    expected=PEERS(rule.amount(typical)),
                    seen=seen(f"{rule.where} of {address}", str(value), "file"),
                    fixes=look("compare the GPUs", rule.shell),
                )
    for words, read in TELLS:
        mute = [key for key, one in boards.items() if read(one) is None]
        silent: dict[str, list[str]] = {}
        for node, address in mute if 2 * len(mute) < len(boards) else ():
            silent.setdefault(node, []).append(address)
        for node, addresses in silent.items():
            yield unknown(node, f"AMD GPU {listing(sorted(addresses), 4)} does not report {words}, others do")


@check(
    after=["ssh.login", "amd.visible"], required=False, source="https://docs.kernel.org/gpu/amdgpu/index.html"
)
def amd_health(nodes: Mapping[str, AcceleratorFacts]) -> Iterator[Finding]:
    """AMD GPUs have no uncorrected errors, and run at full power, clocks and link speed.

    Looks at:
        amdgpu's files in sysfs, without root: uncorrected errors of each part since the driver was
        loaded, memory pages that wait for a reset or cannot be retired, temperatures and the driver's
        critical ones, the power limit and its default, the performance level, the PCIe speed of a busy
        GPU. The highest allowed clock, PCIe lanes and XGMI links are compared with GPUs of the same
        device. Corrected errors, retired pages and PCIe replays are reported but not judged.

    Matters because:
        A process that touches faulty memory is killed, and a collective waits for the slowest GPU.

    Fix:
        Reset the limits (amd-smi reset). After errors reset the GPU or restart the node. Replace a GPU
        that has errors again.
    """
    kinds: dict[str, dict[Board, AmdGpu]] = defaultdict(dict)
    for node, facts in nodes.items():
        driven = [one for one in facts.amd if one.driver == "amdgpu" and not one.asleep]
        for board in driven:
            kinds[board.device_id][node, board.address] = board
            yield from _by_itself(node, board)
        if not driven:
            yield skip(f"no AMD GPU {'at work' if facts.amd else 'on this node'}", node)
        elif not any(one.ras_blocks or one.sensors for one in driven):
            yield skip("the driver reports neither errors nor temperatures, as in a virtual machine", node)
        elif notes := [f"{one.address}: {words}" for one in driven if (words := _unjudged(one))]:
            yield ok(node, f"not judged: {listing(notes, 8)}")
    for boards in kinds.values():
        yield from _below_peers(boards)


def _unjudged(board: AmdGpu) -> str:
    corrected, retired = sum(board.corrected.values()), board.bad_pages.get("R")
    parts = (
        number(corrected, "corrected error") if corrected else "",
        number(retired, "retired page") if retired else "",
        number(board.replays, "PCIe replay") if board.replays else "",
    )
    return listing(part for part in parts if part)
