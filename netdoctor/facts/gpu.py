"""Facts about GPUs, from NVML (through pynvml), /proc and the PCI tree."""

from dataclasses import dataclass, field

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process on a GPU. user and name are None where the node does not let us see them."""

    pid: int
    name: str | None = None
    user: str | None = None
    memory_bytes: int | None = None
    age_s: float | None = None
    left_over: bool = False  # of a login session, and its parent has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One NVML device."""

    index: int
    name: str = ""
    uuid: str = ""
    pci_bus_id: str = ""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    compute_capability: str | None = None
    ecc_uncorrected: int | None = None  # since the driver was loaded
    throttle_reasons: int | None = None
    compute_mode: int | None = None
    mig_enabled: bool | None = None
    persistence: bool | None = None
    processes: tuple[GpuProcess, ...] | None = None  # that compute on it, None where NVML does not tell
    nvlinks: int | None = None  # that the device has, 0 without NVLink
    nvlinks_active: int | None = None  # of them
    pcie_width: int | None = None  # lanes in use
    pcie_generation: int | None = None  # the best that device and slot can do
    recovery: int | None = None  # nvmlDeviceGpuRecoveryAction_t, what the driver says that the GPU needs now
    remap_pending: bool | None = None  # faulty memory rows are replaced at the next reset
    remap_failed: bool | None = None  # some could not be
    vbios: str = ""
    ecc_enabled: bool | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    fabric_state: int | None = None  # nvmlGpuFabricState_t
    fabric_status: int | None = None  # nvmlReturn_t of joining, once that is complete
    ecc_uncorrected_ever: int | None = None  # in the life of the board
    sram_exceeded: bool | None = None  # NVML's flag
    sram_refused: bool = False  # told to root alone
    banks_without_spare: int | None = None  # of memory, with no row left to replace another
    retired_pages: int | None = None  # of boards before Ampere, in their life
    retired_pending: bool | None = None  # more at the next reset
    # Against operating_c (highest to operate at) and slowdown_c. Boards since Ada tell margin_c, how far they
    # are from their limit, against operating_margin_c and slowdown_margin_c.
    temperature_c: int | None = None
    operating_c: int | None = None
    slowdown_c: int | None = None
    margin_c: int | None = None
    operating_margin_c: int | None = None
    slowdown_margin_c: int | None = None
    # clocks_set_mhz, clocks_default_mhz: application clocks, graphics and memory.
    clocks_set_mhz: tuple[int, int] | None = None
    clocks_default_mhz: tuple[int, int] | None = None
    pcie_width_most: int | None = None  # what device and slot can do
    pcie_generation_now: int | None = None  # what is in use, less when idle
    # Replays, recoveries and CRC errors: since the driver was loaded, over all links.
    pcie_replays: int | None = None
    nvlink_replays: int | None = None
    nvlink_recoveries: int | None = None
    nvlink_crc_errors: int | None = None
    nvlinks_down: tuple[int, ...] = ()  # links that are not active
    # The same by counter (``recoveries``; NVLink 5 has ``bit_errors``, those left after correction), each
    # link that has counted any with its number; a counter that no link knows is missing.
    link_errors: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    nvlink_mbyte_s: int | None = None  # speed of most links
    nvlinks_other_mbyte_s: tuple[tuple[int, int], ...] = ()  # number and speed of the others
    inforom: str = ""  # version of its image
    inforom_valid: bool | None = None  # whether its checksums fit
    # The NVLink domain of several nodes, and the partition of it, that it is in; empty where there is none.
    nvlink_domain: str = ""
    error: str | None = None  # NVML's text where the handle or a query failed (``GPU is lost``)


@dataclass(frozen=True, slots=True, kw_only=True)
class PciGpu:
    """An NVIDIA display or 3D controller on the PCI bus."""

    address: str
    device_id: str
    driver: str | None = None  # bound kernel driver or None
    # From the host bridge to the function, ``pci0000:10``, ``0000:10:01.0`` …, ``0000:13:00.0``.
    path: tuple[str, ...] = ()
    numa_node: int | None = None


@fact("gpu")
@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """What the node can say about NVIDIA GPUs."""

    # ``ok``, ``no_library``, ``no_driver`` (code 9), ``mismatch`` (code 18), ``no_permission``, ``error``.
    nvml: str
    nvml_code: int | None = None  # nvmlReturn_t
    nvml_message: str = ""  # NVML's text
    driver_version: str | None = None
    # Version of the loaded module (/proc/driver/nvidia/version or /sys/module/nvidia/version).
    kernel_driver: str | None = None
    library_driver: str | None = None  # version in the real name of libnvidia-ml.so
    cuda_driver: str | None = None  # highest CUDA that the driver supports, ``12.4``
    devices: tuple[Gpu, ...] = ()
    pci: tuple[PciGpu, ...] = ()
    device_nodes: tuple[str, ...] = ()  # /dev/nvidia0 … present
    # Device nodes that a device cgroup keeps from this session, by v1's rules or v2's.
    blocked: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()  # those that their mode does not let this user read and write
    login_job: str = ""  # the Slurm job whose cgroup the session is in
    slurmd: bool = False  # whether it runs (both looked at where some are blocked)
    up_s: float | None = None  # for how long the node has been up
    nvswitches: int | None = None  # on the PCI bus
    fabric_manager: bool | None = None  # whether it runs, None where processes of others are not shown
    imex: bool | None = None  # the same of IMEX, where GPUs are in a domain of several nodes
    imex_nodes: tuple[str, ...] | None = None  # the addresses of its nodes_config.cfg, sorted
    # Releases of Debian's nvidia-fabricmanager and nvidia-imex.
    fabric_packages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    peermem: bool | None = None  # whether nvidia_peermem or nv_peer_mem is loaded
    open_module: bool | None = None  # the kind of the kernel module
    nvlink_disabled: bool | None = None  # by the module's parameter NvLinkDisable
    cuda_visible_devices: str | None = None
    nvidia_visible_devices: str | None = None

    def missing_field(self) -> str:
        return "" if self.nvml else "what NVML said"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvent:
    """An Xid of a GPU or an SXid of an NVSwitch, all of one code together."""

    kind: str  # ``xid`` or ``sxid``
    device: str  # PCI address without function, ``0000:3b:00``
    code: int
    count: int
    first_age_s: float  # at the time of the question
    last_age_s: float
    text: str = ""  # what the last one says after its code


@fact("kernel_log", absent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLog:
    """What NVIDIA's driver wrote into the kernel log since the node was started."""

    source: str = ""  # ``/dev/kmsg`` or ``journal``
    refused: str = ""  # why neither could be read (``EPERM``), then nothing else is known
    since_s: float | None = None  # how far back it reaches, None for the whole time
    driver_age_s: float | None = None  # since the driver was loaded last, None where that is not in it
    events: tuple[KernelEvent, ...] = ()

    def missing_field(self) -> str:
        return "" if self.source or self.refused else "which log was read"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRate:
    """What one GPU did in two seconds of work."""

    index: int  # NVML's
    kind: str = ""  # of the numbers in the matrices, ``bfloat16``
    side: int = 0  # their rows
    tflop_s: float | None = None  # of the product
    # Read and written; to_device, to_host: copies of pinned memory, one GPU at a time; in 10^9 bytes.
    memory_gbyte_s: float | None = None
    to_device_gbyte_s: float | None = None
    to_host_gbyte_s: float | None = None
    wrong: int = 0  # values in which two equal products differ
    # Clocks are of the multiprocessors: before, and while it multiplied, as power, temperature and
    # throttle_reasons are. What PCIe has was read right after it copied.
    clock_idle_mhz: int | None = None
    clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle_reasons: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    error: str = ""  # why it did not work, or stopped
    board: str = ""  # name of one that is not NVIDIA's; its index is that of AMD's driver


@fact("gpu_work", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWork:
    """The node's GPUs at work, in the job's torch."""

    torch: str
    gpus: tuple[GpuRate, ...] = ()
    left_out: dict[int, str] = field(default_factory=dict)  # GPUs that took no part, and why, by index


@dataclass(frozen=True, slots=True, kw_only=True)
class Bits:
    """A result of one piece of work, which came in so many rounds, and in `first` for the first time."""

    work: str  # ``product of float32``
    bits: str  # two sums over the result's bits, in hex
    first: int  # from 1
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBits:
    """What one device gave for the same work in some rounds."""

    index: int  # NVML's, or that of AMD's driver; of the CPU 0
    name: str = ""
    # Model, releases, and a sum over what else decides how is computed; only equal ones are compared.
    kind: str = ""
    rounds: int = 0
    results: tuple[Bits, ...] = ()
    error: str = ""  # why it did not work, or stopped


@fact("gpu_bits", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class GpuBits:
    """The same work, again and again, on the node's GPUs, in the job's torch."""

    torch: str
    cpu: bool = False  # the CPU as a stand-in, where the node has no GPU
    devices: tuple[DeviceBits, ...] = ()
    left_out: dict[int, str] = field(default_factory=dict)  # GPUs that took no part, and why, by index
