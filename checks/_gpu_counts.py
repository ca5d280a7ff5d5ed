"""What links of a GPU count: since the driver was loaded, and while a scan measures."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from netdoctor.facts.counters import LaterCounters
from netdoctor.facts.gpu import Gpu, GpuFacts
from netdoctor.model import Action, Cause, Finding, after_reboot, look, seen

RECOVERED = Cause("gpu-nvlink-recovered", "an NVLink of GPUs of {nodes} broke down and was trained again")
CRC = Cause("gpu-nvlink-crc", "NVLinks of GPUs of {nodes} garble what they carry", action=Action.DRAIN)
REPEATED = Cause("gpu-nvlink-replays", "NVLinks of GPUs of {nodes} repeat packets")
REPLAYS = Cause("gpu-pcie-replays", "PCIe links of GPUs of {nodes} repeat packets", action=Action.DRAIN)
GONE = Cause("gpu-lost-meanwhile", "a GPU of {nodes} failed while the scan measured", action=Action.REBOOT)
# In less, one burst more or less is everything.
APART_S = 1.0


class Rule(NamedTuple):
    """A counter of a GPU and what is too much: `least` events, and `per_s` of them a second. old: its total
    since the driver was loaded is held against that, too."""

    read: Callable[[Gpu], int | None]
    what: str
    cause: Cause
    per_s: float = 0.0
    least: int = 1
    old: bool = True

    @property
    def expected(self) -> str:
        return f"at most {self.per_s:.3g} a second" if self.per_s else "none"


# https://github.com/NVIDIA/DCGM dcgm_gpu_hardware_limits.h: DCGM_LIMIT_MAX_PCIREPLAY_RATE, 8 a minute;
# DCGM_LIMIT_MAX_NVLINK_CRC_ERROR, 100 a second. Its health watch fails any recovery or replay of an NVLink
# that it sees happen.
RULES = (
    Rule(lambda gpu: gpu.nvlink_recoveries, "NVLink recoveries", RECOVERED),
    Rule(lambda gpu: gpu.nvlink_crc_errors, "NVLink CRC errors", CRC, per_s=100.0, least=100),
    Rule(lambda gpu: gpu.pcie_replays, "PCIe replays", REPLAYS, per_s=8 / 60, least=8),
    Rule(lambda gpu: gpu.nvlink_replays, "NVLink replays", REPEATED, old=False),
)


class Counted(NamedTuple):
    """What a GPU counted in the `seconds` of the scan; before it (not `during`), in those since the node was
    started, None where nobody knows."""

    gpu: int
    rule: Rule
    events: int
    seconds: float | None
    during: bool

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
        return f"GPU {self.gpu}: {self.events} {what}"


def tells(gpu: Gpu) -> int | None:
    """Any of its counters; None where it has none."""
    return next((value for rule in RULES if (value := rule.read(gpu)) is not None), None)


def counted(gpu: GpuFacts, later: LaterCounters | None) -> Iterator[Counted]:
    """Of each GPU what it had counted at login, and what was added until the second reading."""
    again = {one.uuid: one for one in later.gpu.devices} if later and later.gpu else {}
    began, ended = gpu.up_s, later.gpu.up_s if later and later.gpu else None
    seconds = ended - began if began and ended else 0.0
    for device in gpu.devices:
        for rule in RULES:
            old = rule.read(device) or 0
            if old:
                yield Counted(device.index, rule, old, began, during=False)
            new = rule.read(again[device.uuid]) if device.uuid in again else None
            if new is not None and new > old and seconds >= APART_S:
                yield Counted(device.index, rule, new - old, seconds, during=True)


def gone(gpu: GpuFacts, later: LaterCounters | None) -> Iterator[Finding]:
    """GPUs that answered at login, and to whom something happened until the second reading."""
    well = {device.index for device in gpu.devices if device.error is None}
    for device in later.gpu.devices if later and later.gpu else ():
        if device.error is not None and device.index in well:
            yield GONE.fail(
                f"GPU {device.index} answered at login, and no more after the scan: {device.error}",
                observed=device.error,
                expected="an answer",
                seen=seen(f"NVML, GPU {device.index}, second reading", device.error),
                fixes=(
                    look(
                        "read what the driver says of it",
                        "dmesg -T | grep -E 'NVRM|Xid' | tail -n 20",
                        root=True,
                    ),
                    after_reboot("restart the node, with nothing running on it", "systemctl reboot"),
                ),
            )
