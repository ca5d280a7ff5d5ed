"""What a node's kernel and management controller say of failing parts, and what the kernel cannot end."""

from dataclasses import dataclass

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """A process that waits in the kernel and takes no signal. seconds: since it last ran; waits_in: the
    kernel's function, "" where that may not be seen."""

    pid: int
    name: str
    seconds: float
    waits_in: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryErrors:
    """Errors of one memory module (``mc0 CPU_SrcID#0_MC#0_Chan#0_DIMM#0``) in so many seconds, None where the
    kernel does not say since when it counts."""

    where: str
    corrected: int
    uncorrected: int
    seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskError:
    """A block device or its file system, and what the kernel says of it."""

    device: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HotChip:
    """A sensor that is, or since the start was, at its critical temperature. celsius: now."""

    chip: str
    celsius: float | None
    critical: float


@fact("health")
@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    """From /proc and /sys.

    machine_checks: CPUs that took such an exception since the start, None where the kernel does not count;
    empty_libraries: files of NVIDIA's driver without a byte.
    """

    stuck: tuple[Stuck, ...] = ()
    zombies: int = 0
    pid_max: int | None = None
    memory: tuple[MemoryErrors, ...] = ()
    machine_checks: int | None = None
    disks: tuple[DiskError, ...] = ()
    hot: tuple[HotChip, ...] = ()
    empty_libraries: tuple[str, ...] = ()

    def missing_field(self) -> str:
        return "" if self.pid_max else "pid_max"


@dataclass(frozen=True, slots=True, kw_only=True)
class BmcSensor:
    """A line of ``ipmitool sdr elist``. status: ok, lnc, lcr, lnr, unc, ucr, unr; entity: "10.2" (IPMI 2.0,
    table 43-13: 10 is a power supply, 29 a fan); reading: a number with its unit, or states."""

    name: str
    status: str
    entity: str
    reading: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BmcEvent:
    """An entry of the event log that was asserted and did not clear, by the controller's clock."""

    sensor: str
    event: str
    age_days: int


@fact("bmc", absent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class BmcFacts:
    """Sensors and events of the management controller, by ipmitool.

    sensors: how many answered; unusual: those that are past a threshold, or say more than that a part is
    there; events: of the last 100 those of 30 days, None where the log could not be read; unread: what could
    not be read and why, "" for nothing.
    """

    sensors: int
    unusual: tuple[BmcSensor, ...] = ()
    events: tuple[BmcEvent, ...] | None = None
    unread: str = ""

    def missing_field(self) -> str:
        return "" if self.sensors else "sensors"
