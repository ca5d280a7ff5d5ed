"""What a node's kernel counts of failing parts, and what it cannot end."""

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
