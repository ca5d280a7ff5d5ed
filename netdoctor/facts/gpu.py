"""Facts about GPUs, from NVML (through pynvml), /proc and the PCI tree."""

from dataclasses import dataclass, field

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process on a GPU. user and name are None where the node does not let us see them.

    left_over: of a login session, and its parent has ended.
    """

    pid: int
    name: str | None = None
    user: str | None = None
    memory_bytes: int | None = None
    age_s: float | None = None
    left_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One NVML device. error: NVML's text where the handle or a query failed (``GPU is lost``).

    processes: that compute on it, None where NVML does not tell. nvlinks: that the device has, 0 without
    NVLink; nvlinks_active of them are up. pcie_width: lanes in use; pcie_generation: the best that device and
    slot can do. recovery: nvmlDeviceGpuRecoveryAction_t, what the driver says that the GPU needs now.
    remap_pending: faulty memory rows are replaced at the next reset; remap_failed: some could not be.
    fabric_state: nvmlGpuFabricState_t; fabric_status: nvmlReturn_t of joining, once that is complete.
    ecc_uncorrected: since the driver was loaded; ecc_uncorrected_ever: in the life of the board.
    sram_exceeded: NVML's flag; sram_refused: told to root alone. banks_without_spare: of memory, with no row
    left to replace another.
    retired_pages: of boards before Ampere, in their life; retired_pending: more at the next reset.
    temperature_c against operating_c (highest to operate at) and slowdown_c; boards since Ada tell margin_c,
    how far they are from their limit, against operating_margin_c and slowdown_margin_c.
    clocks_set_mhz, clocks_default_mhz: application clocks, graphics and memory.
    pcie_width_most, pcie_generation_now: what device and slot can do; what is in use, less when idle.
    nvlink_*, pcie_replays: since the driver was loaded, over all links. link_errors: the same by
    counter (``recoveries``; NVLink 5 has ``bit_errors``, those left after correction), each link that has
    counted any with its number; a counter that no link knows is missing. nvlinks_down: links that are not
    active. nvlink_mbyte_s: speed of most links; nvlinks_other_mbyte_s: number and speed of the others.
    inforom: version of its image; inforom_valid: whether its checksums fit. nvlink_domain: the NVLink domain
    of several nodes, and the partition of it, that it is in; empty where there is none.
    """

    index: int
    name: str = ""
    uuid: str = ""
    pci_bus_id: str = ""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    compute_capability: str | None = None
    ecc_uncorrected: int | None = None
    throttle_reasons: int | None = None
    compute_mode: int | None = None
    mig_enabled: bool | None = None
    persistence: bool | None = None
    processes: tuple[GpuProcess, ...] | None = None
    nvlinks: int | None = None
    nvlinks_active: int | None = None
    pcie_width: int | None = None
    pcie_generation: int | None = None
    recovery: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    vbios: str = ""
    ecc_enabled: bool | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    fabric_state: int | None = None
    fabric_status: int | None = None
    ecc_uncorrected_ever: int | None = None
    sram_exceeded: bool | None = None
    sram_refused: bool = False
    banks_without_spare: int | None = None
    retired_pages: int | None = None
    retired_pending: bool | None = None
    temperature_c: int | None = None
    operating_c: int | None = None
    slowdown_c: int | None = None
    margin_c: int | None = None
    operating_margin_c: int | None = None
    slowdown_margin_c: int | None = None
    clocks_set_mhz: tuple[int, int] | None = None
    clocks_default_mhz: tuple[int, int] | None = None
    pcie_width_most: int | None = None
    pcie_generation_now: int | None = None
    pcie_replays: int | None = None
    nvlink_replays: int | None = None
    nvlink_recoveries: int | None = None
    nvlink_crc_errors: int | None = None
    nvlinks_down: tuple[int, ...] = ()
    link_errors: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    nvlink_mbyte_s: int | None = None
    nvlinks_other_mbyte_s: tuple[tuple[int, int], ...] = ()
    inforom: str = ""
    inforom_valid: bool | None = None
    nvlink_domain: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PciGpu:
    """An NVIDIA display or 3D controller on the PCI bus. driver: bound kernel driver or None.

    path: from the host bridge to the function, ``pci0000:10``, ``0000:10:01.0`` …, ``0000:13:00.0``.
    """

    address: str
    device_id: str
    driver: str | None = None
    path: tuple[str, ...] = ()
    numa_node: int | None = None


@fact("gpu")
@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """What the node can say about NVIDIA GPUs.

    nvml: ``ok``, ``no_library``, ``no_driver`` (code 9), ``mismatch`` (code 18), ``no_permission``,
    ``error``. nvml_code: nvmlReturn_t; nvml_message: NVML's text. kernel_driver: version of the loaded module
    (/proc/driver/nvidia/version or /sys/module/nvidia/version); library_driver: version in the real name of
    libnvidia-ml.so. cuda_driver: highest CUDA that the driver supports, ``12.4``.
    nvswitches: on the PCI bus; fabric_manager: whether it runs, None where processes of others are not shown.
    imex: the same of IMEX, where GPUs are in a domain of several nodes; imex_nodes: the addresses of its
    nodes_config.cfg, sorted. fabric_packages: releases of Debian's nvidia-fabricmanager and nvidia-imex.
    up_s: for how long the node has been up.
    peermem: whether nvidia_peermem or nv_peer_mem is loaded; open_module: the kind of the kernel module.
    blocked: device nodes that a device cgroup keeps from this session, by v1's rules or v2's; login_job: the
    Slurm job whose cgroup the session is in; slurmd: whether it runs (both looked at where some are blocked).
    device_nodes: /dev/nvidia0 … present; visible_devices: CUDA_VISIBLE_DEVICES / NVIDIA_VISIBLE_DEVICES.
    """

    nvml: str
    nvml_code: int | None = None
    nvml_message: str = ""
    driver_version: str | None = None
    kernel_driver: str | None = None
    library_driver: str | None = None
    cuda_driver: str | None = None
    devices: tuple[Gpu, ...] = ()
    pci: tuple[PciGpu, ...] = ()
    device_nodes: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    login_job: str = ""
    slurmd: bool = False
    up_s: float | None = None
    nvswitches: int | None = None
    fabric_manager: bool | None = None
    imex: bool | None = None
    imex_nodes: tuple[str, ...] | None = None
    fabric_packages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    peermem: bool | None = None
    open_module: bool | None = None
    cuda_visible_devices: str | None = None
    nvidia_visible_devices: str | None = None

    def lacks(self) -> str:
        return "" if self.nvml else "what NVML said"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvent:
    """An Xid of a GPU or an SXid of an NVSwitch, all of one code together.

    kind: ``xid`` or ``sxid``. device: PCI address without function, ``0000:3b:00``. text: what the last one
    says after its code. Ages in seconds at the time of the question.
    """

    kind: str
    device: str
    code: int
    count: int
    first_age_s: float
    last_age_s: float
    text: str = ""


@fact("kernel_log", absent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLog:
    """What NVIDIA's driver wrote into the kernel log since the node was started.

    source: ``/dev/kmsg`` or ``journal``; refused: why neither could be read (``EPERM``), then nothing else is
    known. since_s: how far back it reaches, None for the whole time. driver_age_s: since the driver was
    loaded last, None where that is not in it.
    """

    source: str = ""
    refused: str = ""
    since_s: float | None = None
    driver_age_s: float | None = None
    events: tuple[KernelEvent, ...] = ()

    def lacks(self) -> str:
        return "" if self.source or self.refused else "which log was read"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRate:
    """What one GPU did in two seconds of work.

    index: NVML's. kind: of the numbers in the matrices, ``bfloat16``; side: their rows. tflop_s: of the
    product; memory_gbyte_s: read and written; to_device, to_host: copies of pinned memory, one GPU at a time;
    in 10^9 bytes. wrong: values in which two equal products differ. clock_idle_mhz: before; the rest of the
    clocks (of the multiprocessors), power, temperature and throttle_reasons: while it multiplied; pcie_*:
    right after it copied. error: why it did not work, or stopped. board: name of one that is not NVIDIA's;
    its index is that of AMD's driver.
    """

    index: int
    kind: str = ""
    side: int = 0
    tflop_s: float | None = None
    memory_gbyte_s: float | None = None
    to_device_gbyte_s: float | None = None
    to_host_gbyte_s: float | None = None
    wrong: int = 0
    clock_idle_mhz: int | None = None
    clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle_reasons: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    error: str = ""
    board: str = ""


@fact("gpu_work", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWork:
    """The node's GPUs at work, in the job's torch. left_out: GPUs that took no part, and why, by index."""

    torch: str
    gpus: tuple[GpuRate, ...] = ()
    left_out: dict[int, str] = field(default_factory=dict)
