"""Facts about GPUs of AMD, and which accelerators of others there are, from sysfs and files."""

from dataclasses import dataclass, field

from netdoctor.facts.base import fact
from netdoctor.facts.gpu import GpuProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdSensor:
    """A place of a board whose temperature is known: ``junction``. critical_c: the driver's own limit."""

    name: str
    temperature_c: float
    critical_c: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdGpu:
    """A board to compute on; graphics of processors and of BMCs are none. driver: the bound one, or None.

    partition: of its compute units, ``SPX`` where it is one GPU; empty where it cannot be partitioned.
    asleep: the kernel has switched it off, and nothing else was asked of it. name: ``AMD Instinct MI300X``.
    ras_blocks: parts whose errors the driver counts; uncorrected, corrected: those that are not 0 since it
    was loaded, by part (``umc`` is the memory). bad_pages: of its memory: taken out of use (R), to be taken
    at the next reset (P), those that cannot be (F). level: what clocks it may take, ``auto`` unless set;
    clock_most_mhz: the highest of its processors. link_*: PCIe; replays: what its link has repeated.
    xgmi_links: to other GPUs of the node.
    """

    address: str
    device_id: str
    driver: str | None = None
    vram_bytes: int | None = None
    vbios: str = ""
    partition: str = ""
    asleep: bool = False
    name: str = ""
    busy_percent: int | None = None
    vram_used_bytes: int | None = None
    ras_blocks: tuple[str, ...] = ()
    uncorrected: dict[str, int] = field(default_factory=dict)
    corrected: dict[str, int] = field(default_factory=dict)
    bad_pages: dict[str, int] = field(default_factory=dict)
    sensors: tuple[AmdSensor, ...] = ()
    power_cap_w: float | None = None
    power_default_w: float | None = None
    level: str = ""
    clock_most_mhz: int | None = None
    link_gt_s: float | None = None
    link_most_gt_s: float | None = None
    link_width: int | None = None
    replays: int | None = None
    xgmi_links: int | None = None


@fact("accelerators", absent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorFacts:
    """What a node says of accelerators that NVML does not know.

    amd: boards on the PCI bus. kfd: architecture of each GPU that the driver offers for computing,
    ``gfx942``; kfd_hidden: topology nodes that may not be read, as where a device cgroup forbids a GPU.
    amdgpu: version of the driver's module, None where it is the kernel's own, which has none; rocm: of
    /opt/rocm; rccl: the number in the real name of librccl.so.1. may_compute: whether /dev/kfd may be opened
    by its mode, None where there is none. others: how many of each other kind. kfd_boards: PCI bus of each
    of the GPUs of kfd, ``0000:05``. processes: those that have opened /dev/kfd, None where that is not told.
    visible: the session's HIP_VISIBLE_DEVICES and others that choose GPUs.
    """

    amd: tuple[AmdGpu, ...] = ()
    kfd: tuple[str, ...] = ()
    kfd_hidden: int = 0
    amdgpu: str | None = None
    rocm: str | None = None
    rccl: str | None = None
    may_compute: bool | None = None
    kfd_boards: tuple[str, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None
    visible: dict[str, str] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
