"""Facts about GPUs of AMD, and which accelerators of others there are, from sysfs and files."""

from dataclasses import dataclass, field

from netdoctor.facts.base import fact
from netdoctor.facts.gpu import GpuProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdSensor:
    """A place of a board whose temperature is known: ``junction``."""

    name: str
    temperature_c: float
    critical_c: float  # the driver's own limit


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdGpu:
    """A board to compute on; graphics of processors and of BMCs are none."""

    address: str
    device_id: str
    driver: str | None = None  # the bound one, or None
    vram_bytes: int | None = None
    vbios: str = ""
    # Of its compute units, ``SPX`` where it is one GPU; empty where it cannot be partitioned.
    partition: str = ""
    asleep: bool = False  # the kernel has switched it off, and nothing else was asked of it
    name: str = ""  # ``AMD Instinct MI300X``
    busy_percent: int | None = None
    vram_used_bytes: int | None = None
    ras_blocks: tuple[str, ...] = ()  # parts whose errors the driver counts
    # uncorrected, corrected: those that are not 0 since it was loaded, by part (``umc`` is the memory).
    uncorrected: dict[str, int] = field(default_factory=dict)
    corrected: dict[str, int] = field(default_factory=dict)
    # Of its memory: taken out of use (R), to be taken at the next reset (P), those that cannot be (F).
    bad_pages: dict[str, int] = field(default_factory=dict)
    sensors: tuple[AmdSensor, ...] = ()
    power_cap_w: float | None = None
    power_default_w: float | None = None
    level: str = ""  # what clocks it may take, ``auto`` unless set
    clock_most_mhz: int | None = None  # the highest of its processors
    # Of PCIe, in use and at most.
    link_gt_s: float | None = None
    link_most_gt_s: float | None = None
    link_width: int | None = None
    replays: int | None = None  # what its link has repeated
    xgmi_links: int | None = None  # to other GPUs of the node


@fact("accelerators", absent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorFacts:
    """What a node says of accelerators that NVML does not know."""

    amd: tuple[AmdGpu, ...] = ()  # boards on the PCI bus
    kfd: tuple[str, ...] = ()  # architecture of each GPU that the driver offers for computing, ``gfx942``
    kfd_hidden: int = 0  # topology nodes that may not be read, as where a device cgroup forbids a GPU
    # Version of the driver's module, None where it is the kernel's own, which has none.
    amdgpu: str | None = None
    rocm: str | None = None  # of /opt/rocm
    rccl: str | None = None  # the number in the real name of librccl.so.1
    may_compute: bool | None = None  # whether /dev/kfd may be opened by its mode, None where there is none
    kfd_boards: tuple[str, ...] = ()  # PCI bus of each of the GPUs of kfd, ``0000:05``
    # Those that have opened /dev/kfd, None where that is not told.
    processes: tuple[GpuProcess, ...] | None = None
    # The session's HIP_VISIBLE_DEVICES and others that choose GPUs.
    visible: dict[str, str] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)  # how many of each other kind
