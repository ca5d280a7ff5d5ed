"""Facts about how a machine is set up."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.facts.base import fact


@fact("tuning")
@dataclass(frozen=True, slots=True, kw_only=True)
class TuningFacts:
    """Firmware, processors and kernel settings, and what control groups leave to the login session.

    product, bios: of the firmware's tables, None where there are none. boot: parameters of the kernel that
    change how a machine computes, by name. sysctls: by name, those that this network namespace shows.
    smt: ``on``, ``off``, ``forceoff``, ``notsupported``. governor: ``performance``, several with ``+``.
    hugepages: transparent ones. numa_nodes: online. has_kfd: AMD's GPU compute driver is
    there; is_grace: NVIDIA's GPUs beside NVIDIA's own processor.
    cpus_allowed: by the affinity of the session; cores_limit: by quota. The limits are the least of the
    session's control group and all above it, None without one; processes_left: what is not in use of it.
    modules_gone: those of the running kernel were removed, others are installed.
    reboot_wanted: /run/reboot-required is there.
    """

    product: str | None = None
    bios: str | None = None
    is_virtual: bool = False
    boot: Mapping[str, str] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)
    cpus_present: int | None = None
    cpus_online: int | None = None
    cpus_allowed: int | None = None
    smt: str | None = None
    governor: str | None = None
    hugepages: str | None = None
    clock_source: str | None = None
    numa_nodes: int | None = None
    has_kfd: bool = False
    is_grace: bool = False
    swap_bytes: int = 0
    swap_used_bytes: int = 0
    uptime_s: float | None = None
    reboot_wanted: bool = False
    modules_gone: bool = False
    memory_limit_bytes: int | None = None
    processes_limit: int | None = None
    processes_left: int | None = None
    cores_limit: float | None = None

    def lacks(self) -> str:
        # Of /proc, which is there in every container, too.
        return "" if self.uptime_s is not None and self.sysctls else "kernel settings and since when it is up"
