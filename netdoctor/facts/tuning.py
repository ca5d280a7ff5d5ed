"""Facts about how a machine is set up."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.facts.base import fact


@fact("tuning")
@dataclass(frozen=True, slots=True, kw_only=True)
class TuningFacts:
    """Firmware, processors and kernel settings, and what control groups leave to the login session."""

    product: str | None = None  # product, bios: of the firmware's tables, None where there are none
    bios: str | None = None
    is_virtual: bool = False
    # Parameters of the kernel that change how a machine computes, by name.
    boot: Mapping[str, str] = field(default_factory=dict)
    # By name, those that this network namespace shows.
    sysctls: Mapping[str, str] = field(default_factory=dict)
    cpus_present: int | None = None
    cpus_online: int | None = None
    cpus_allowed: int | None = None  # by the affinity of the session
    smt: str | None = None  # ``on``, ``off``, ``forceoff``, ``notsupported``
    governor: str | None = None  # ``performance``, several with ``+``
    hugepages: str | None = None  # transparent ones
    clock_source: str | None = None
    numa_nodes: int | None = None  # online
    has_kfd: bool = False  # AMD's GPU compute driver is there
    is_grace: bool = False  # NVIDIA's GPUs beside NVIDIA's own processor
    swap_bytes: int = 0
    swap_used_bytes: int = 0
    uptime_s: float | None = None
    reboot_wanted: bool = False  # /run/reboot-required is there
    modules_gone: bool = False  # those of the running kernel were removed, others are installed
    # Limits are the least of the session's control group and all above it, None without one.
    memory_limit_bytes: int | None = None
    processes_limit: int | None = None
    processes_left: int | None = None  # of that limit, not in use
    cores_limit: float | None = None  # by quota

    def missing_field(self) -> str:
        # Of /proc, which is there in every container, too.
        return "" if self.uptime_s is not None and self.sysctls else "kernel settings and since when it is up"
