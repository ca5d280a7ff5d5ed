"""Errors of NVLinks and PCIe links of GPUs, while a scan measures and since the driver was loaded."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.checks.gpu._gpus import nvml_finding, reset, untold
from netdoctor.facts.counters import LaterCounters
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.model import HERE, Action, Cause, Finding, after_reboot, look, ok, seen

RECOVERED = Cause("gpu-nvlink-recovered", "an NVLink of GPUs of {nodes} failed and was trained again")
CRC = Cause("gpu-nvlink-crc", "NVLinks of GPUs of {nodes} damage data", action=Action.DRAIN)
REPEATED = Cause("gpu-nvlink-replays", "NVLinks of GPUs of {nodes} repeat packets")
REPLAYS = Cause("gpu-pcie-replays", "PCIe links of GPUs of {nodes} repeat packets", action=Action.DRAIN)
LOST = Cause("gpu-lost-meanwhile", "a GPU of {nodes} failed while the scan measured", action=Action.REBOOT)
SEE = look("read the driver's messages about it", "dmesg -T | grep -E 'NVRM|Xid' | tail -n 20", root=True)
RESTART = after_reboot("restart the node, with nothing running on it", "systemctl reboot")
# In less, one burst more or less is everything.
APART_S = 1.0


class Rule(NamedTuple):
    """A counter of a GPU and what is too much: `least` events, and `per_s` of them a second."""

    read: Callable[[Gpu], int | None]
    what: str
    cause: Cause
    per_s: float = 0.0
    least: int = 1
    old: bool = True  # its total since the driver was loaded is held against that, too
    link: str = ""  # the same by NVLink, in Gpu.link_errors

    @property
    def expected(self) -> str:
        return f"at most {self.per_s:.3g} a second" if self.per_s else "none"


def _untold(gpu: Gpu) -> None:
    """NVML has no total of it."""


# https://github.com/NVIDIA/DCGM dcgm_gpu_hardware_limits.h: DCGM_LIMIT_MAX_PCIREPLAY_RATE, 8 a minute;
# DCGM_LIMIT_MAX_NVLINK_CRC_ERROR, 100 a second. Its health watch fails any recovery or replay of an NVLink
# that it sees happen; of NVLink 5 the recoveries, and bit errors that are left after correction (which links
# of 400 Gbit/s may have two of in five seconds, by the 1 in 10^12 that IBTA's specification allows). What was
# corrected is no error. Older ones of NVLink 5 may come from a switch tray's restart.
RULES = (
    Rule(lambda gpu: gpu.nvlink_recoveries, "NVLink recoveries", RECOVERED, link="recoveries"),
    Rule(
        lambda gpu: gpu.nvlink_crc_errors, "NVLink CRC errors", CRC, per_s=100.0, least=100, link="crc_errors"
    ),
    Rule(lambda gpu: gpu.pcie_replays, "PCIe replays", REPLAYS, per_s=8 / 60, least=8),
    Rule(lambda gpu: gpu.nvlink_replays, "NVLink replays", REPEATED, old=False, link="replays"),
    Rule(_untold, "failed NVLink recoveries", RECOVERED, old=False, link="failed_recoveries"),
    Rule(_untold, "NVLink recovery events", RECOVERED, old=False, link="recovery_events"),
    Rule(_untold, "uncorrected NVLink bit errors", CRC, 0.4, least=10, old=False, link="bit_errors"),
)
# With more links than that it is the GPU's trouble, and one line says so.
MOST_LINKS = 3


class Counted(NamedTuple):
    """What a GPU counted during the scan, or before it."""

    gpu: int
    rule: Rule
    events: int
    seconds: float | None  # of the scan; else since the node was started, None where nobody knows
    during: bool
    link: int | None = None  # one of its NVLinks, None for all of it

    @property
    def is_bad(self) -> bool:
        if not self.during and not self.rule.old:
            return False
        if not self.rule.per_s:
            return self.events >= self.rule.least
        # The driver was loaded at or after the node's start: this is the least that the rate can have been.
        least = max(self.rule.least, self.rule.per_s * (self.seconds or 0))
        return bool(self.seconds) and self.events >= least

    @property
    def words(self) -> str:
        what = self.rule.what if self.events != 1 else self.rule.what.removesuffix("s").replace("ie", "y")
        return f"{self.name}: {self.events} {what}"

    @property
    def name(self) -> str:
        return f"GPU {self.gpu}" if self.link is None else f"GPU {self.gpu}, NVLink {self.link}"


def tells(gpu: Gpu) -> int | None:
    """Any of its counters; None where it has none."""
    return next((value for rule in RULES if (value := _totals(rule, gpu).get(None)) is not None), None)


def _totals(rule: Rule, gpu: Gpu) -> dict[int | None, int]:
    """What a counter is at, by NVLink, and of the whole GPU at None; nothing where it is not told."""
    total = rule.read(gpu)
    if total is None and rule.link not in gpu.link_errors:
        return {}
    counts: dict[int | None, int] = dict(gpu.link_errors.get(rule.link, ()))
    return counts | {None: max(total or 0, sum(counts.values()))}


def _bad_parts(found: list[Counted]) -> Iterator[Counted]:
    """The links that are bad by themselves; where none is, or most are, the GPU."""
    bad = [one for one in found if one.link is not None and one.is_bad]
    yield from bad if 0 < len(bad) <= MOST_LINKS else (one for one in found if one.link is None)


def counted(gpu: GpuFacts, later: LaterCounters | None) -> Iterator[Counted]:
    """What each GPU had counted at login, and what was added until the second reading."""
    again = {one.uuid: one for one in later.gpu.devices} if later and later.gpu else {}
    began, ended = gpu.up_s, later.gpu.up_s if later and later.gpu else None
    seconds = ended - began if began and ended else 0.0
    for device in gpu.devices:
        for rule in RULES:
            old = _totals(rule, device)
            found = [Counted(device.index, rule, n, began, False, at) for at, n in old.items() if n]
            yield from _bad_parts(found)
            if device.uuid in again and seconds >= APART_S:
                more = [(at, n - old.get(at, 0)) for at, n in _totals(rule, again[device.uuid]).items()]
                yield from _bad_parts([Counted(device.index, rule, n, seconds, True, at) for at, n in more])


def lost(gpu: GpuFacts, later: LaterCounters | None) -> Iterator[Finding]:
    """GPUs that answered at login, and to whom something happened until the second reading."""
    well = {device.index for device in gpu.devices if device.error is None}
    for device in later.gpu.devices if later and later.gpu else ():
        if device.error is not None and device.index in well:
            words = f"answered at login, but not after the scan: {device.error}"
            yield nvml_finding(
                LOST.fail, device, words, "second reading", device.error, "an answer", fixes=(SEE, RESTART)
            )


@check(
    after=["ssh.login", "gpu.visible"],
    profile="launch",
    required=False,
    source="https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html",
)
def gpu_link_errors(gpu: GpuFacts, later: LaterCounters | None) -> Iterator[Finding]:
    """GPU links count no errors during the scan, and had no failure before.

    Looks at:
        NVML's counts of recoveries, CRC errors and replays of each NVLink (NVLink 5: recoveries, and bit
        errors left after correction), and of PCIe replays of each GPU, at login and again after
        everything that loads the GPU. The difference is judged by NVIDIA's own limits: any NVLink
        recovery or replay, 100 CRC errors per second, 8 PCIe replays per minute, 2 uncorrected bit errors
        in 5 seconds. Older totals, except replays and NVLink 5, are divided by the time since the node
        was started, which gives their lowest possible rate, and judged by the same limits. All other
        totals are reported but not judged. A GPU that answers at login but not at the end has failed in
        between.

    Matters because:
        Repeated packets cost speed. A link that failed once will fail again, in the middle of a job (Xid
        74).

    Fix:
        Reset the GPU, which trains its links again. If it comes back, it is hardware: the board's
        connector, a bridge, a riser, the slot.
    """
    yield from untold(gpu, tells, "count errors of their links")
    yield from lost(gpu, later)
    found = list(counted(gpu, later))
    bad = [one for one in found if one.is_bad]
    yield from map(_finding, bad)
    judged = {(one.gpu, one.rule) for one in bad}
    if rest := [one.words for one in found if (one.gpu, one.rule) not in judged and not one.during]:
        yield ok(HERE, f"since the driver was loaded, and not judged: {listing(rest, 8)}")


def _finding(one: Counted) -> Finding:
    when = f"in the {one.seconds:.0f} s of this scan" if one.during else "since the driver was loaded"
    of_link = "" if one.link is None else f" -l {one.link}"
    read = f"nvidia-smi nvlink -e -i {one.gpu}{of_link}; nvidia-smi -q -i {one.gpu} | grep -i replay"
    return one.rule.cause.warn(
        f"{one.words} {when}",
        observed=f"{one.events / one.seconds:.3g} a second" if one.seconds else str(one.events),
        expected=one.rule.expected,
        seen=seen(f"NVML, {one.name}, {one.rule.what}", f"{one.events} {when}"),
        fixes=(look("read the counters", read), reset(one.gpu)),
    )
