"""Facts of healthy hardware and software, for tests to spoil: torch 2.6.0, eight H100s, two HCAs."""

from collections.abc import Sequence
from typing import Any

from netdoctor.facts.counters import Counted, CounterFacts
from netdoctor.facts.gpu import Gpu, GpuFacts, GpuProcess, GpuRate, GpuWork, KernelEvent, KernelLog, PciGpu
from netdoctor.facts.rdma import Gid, Hca, HcaPort, PcieLink, RdmaFacts
from netdoctor.facts.software import Import, Imports, Nccl, PythonStart, SoftwareFacts, Torch

from .build import GIB, address, name

GPUS = 8


def torch(**changes: Any) -> Torch:
    archs = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
    defaults: dict[str, Any] = {
        "version": "2.6.0+cu124", "cuda": "12.4", "path": "/opt/v/lib/torch", "archs": archs
    }  # fmt: skip
    return Torch(**{**defaults, **changes})


def nccl(version: str | None = "2.21.5", origin: str = "wheel", **changes: Any) -> Nccl:
    return Nccl(**{"version": version, "origin": origin, "path": f"/opt/{origin}/libnccl.so.2", **changes})


def software(**changes: Any) -> SoftwareFacts:
    defaults: dict[str, Any] = {
        "executable": "/opt/v/bin/python",
        "version": "3.11.9",
        "torch": torch(),
        "nccl": (nccl(),),
    }
    return SoftwareFacts(**{**defaults, **changes})


def python_start(**changes: Any) -> PythonStart:
    defaults: dict[str, Any] = {"starts": True, "code": 0, "seconds": 0.02}
    return PythonStart(**{"executable": "/opt/train/bin/python", **defaults, **changes})


def softwares(count: int, **odd: SoftwareFacts) -> dict[str, SoftwareFacts]:
    """n1… all healthy, but for those given by name."""
    return {name(i): odd.get(name(i), software()) for i in range(1, count + 1)}


def bus(index: int) -> str:
    return f"0000:{0x10 + index:02x}:00.0"


def gpu(index: int = 0, **changes: Any) -> Gpu:
    defaults: dict[str, Any] = {
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": f"GPU-{index}",
        "pci_bus_id": bus(index),
        "memory_total_bytes": 80 * GIB,
        "memory_used_bytes": GIB // 2,
        "compute_capability": "9.0",
        "ecc_uncorrected": 0,
        "remap_pending": False,
        "remap_failed": False,
        "throttle_reasons": 0x1,
        "processes": (),
        "nvlinks": 18,
        "nvlinks_active": 18,
        "pcie_width": 16,
        "pcie_generation": 5,
        "vbios": "96.00.A5.00.01",
        "ecc_enabled": True,
        "mig_enabled": False,
        "persistence": True,
        "compute_mode": 0,
        "power_limit_w": 700.0,
        "power_default_w": 700.0,
        "fabric_state": 3,
        "fabric_status": 0,
        "ecc_uncorrected_ever": 0,
        "sram_exceeded": False,
        "banks_without_spare": 0,
        "temperature_c": 31,
        "margin_c": 55,
        "operating_margin_c": 0,
        "slowdown_margin_c": -2,
        "clocks_set_mhz": (1980, 2619),
        "clocks_default_mhz": (1980, 2619),
        "pcie_width_most": 16,
        "pcie_generation_now": 5,
        "pcie_replays": 0,
        "nvlink_replays": 0,
        "nvlink_recoveries": 0,
        "nvlink_crc_errors": 0,
        "link_errors": {"recoveries": (), "crc_errors": (), "replays": ()},
        "nvlink_mbyte_s": 26562,
        "inforom": "G520.0200.00.05",
        "inforom_valid": True,
    }
    return Gpu(**{"index": index, **defaults, **changes})


def process(pid: int = 4711, **changes: Any) -> GpuProcess:
    return GpuProcess(**{"pid": pid, "name": "python", "user": "alice", **changes})


def path(index: int, address: str) -> tuple[str, ...]:
    """From the host bridge: every four GPUs and HCA share one, and a switch."""
    half = index // 4
    return (
        f"pci0000:{half}0",
        f"0000:{half}0:01.0",
        f"0000:{half}1:00.0",
        f"0000:{half}2:0{index % 4}.0",
        address,
    )


def pci(index: int = 0, driver: str | None = "nvidia") -> PciGpu:
    way = path(index, bus(index))
    return PciGpu(address=bus(index), device_id="0x2330", driver=driver, path=way, numa_node=index // 4)


def gpus(count: int = GPUS, **changes: Any) -> GpuFacts:
    """One node's GPUs."""
    defaults: dict[str, Any] = {
        "nvml": "ok",
        "nvml_code": 0,
        "driver_version": "570.86.15",
        "kernel_driver": "570.86.15",
        "library_driver": "570.86.15",
        "cuda_driver": "12.8",
        "devices": tuple(gpu(i) for i in range(count)),
        "pci": tuple(pci(i) for i in range(count)),
        "up_s": 400_000.0,
        "nvswitches": 4,
        "fabric_manager": True,
        "peermem": True,
        "open_module": False,
        "device_nodes": tuple(f"/dev/nvidia{i}" for i in range(count)),
    }
    return GpuFacts(**{**defaults, **changes})


def kernel_log(**changes: Any) -> KernelLog:
    """A program's own error, which says nothing of the GPU."""
    event = KernelEvent(
        kind="xid", device="0000:10:00", code=31, count=2, first_age_s=90.0, last_age_s=60.0, text="MMU Fault"
    )
    return KernelLog(**{"source": "/dev/kmsg", "driver_age_s": 9000.0, "events": (event,), **changes})


def gpu_rate(index: int = 0, **changes: Any) -> GpuRate:
    usual: dict[str, Any] = {
        "kind": "bfloat16",
        "side": 8192,
        "tflop_s": 700.0 + index,
        "memory_gbyte_s": 2900.0,
        "to_device_gbyte_s": 55.0,
        "to_host_gbyte_s": 54.0,
        "clock_idle_mhz": 345,
        "clock_mhz": 1755,
        "temperature_c": 55,
        "power_w": 690.0,
        "throttle_reasons": 4,
        "pcie_generation": 5,
        "pcie_width": 16,
    }
    return GpuRate(index=index, **{**usual, **changes})


def imports(*errors: str, **changes: Any) -> Imports:
    """torch alone; with errors, packages of which each raised one."""
    rows = [Import(name=f"p{i}", error=error, **changes) for i, error in enumerate(errors)]
    torch = Import(name="torch", version="2.6.0", seconds=2.0, modules=("torch",))
    return Imports(imports=tuple(rows or [torch]))


def gpu_work(count: int = GPUS, odd: dict[int, dict[str, Any]] | None = None, **every: Any) -> GpuWork:
    """What a node's GPUs did. odd: some of them by index; every: all of them."""
    gpus = tuple(gpu_rate(i, **{**every, **(odd or {}).get(i, {})}) for i in range(count))
    return GpuWork(torch="2.6.0+cu124", gpus=gpus)


def no_gpus() -> GpuFacts:
    return GpuFacts(nvml="no_library", nvml_code=12)


def all_gpus(count: int, **odd: GpuFacts) -> dict[str, GpuFacts]:
    return {name(i): odd.get(name(i), gpus()) for i in range(1, count + 1)}


def roce_gids(i: int = 1) -> tuple[Gid, ...]:
    """The usual order of mlx5."""
    return (
        Gid(index=0, gid="fe80::1", type="IB/RoCE v1", netdev="eth1"),
        Gid(index=1, gid="fe80::1", type="RoCE v2", netdev="eth1"),
        Gid(index=2, gid=f"::ffff:{address(i)}", type="IB/RoCE v1", netdev="eth1"),
        Gid(index=3, gid=f"::ffff:{address(i)}", type="RoCE v2", netdev="eth1"),
    )


def port(hca: str = "mlx5_0", number: int = 1, **changes: Any) -> HcaPort:
    defaults: dict[str, Any] = {
        "state": "ACTIVE",
        "phys_state": "LinkUp",
        "link_layer": "InfiniBand",
        "rate_gbit_s": 400.0,
        "rate_text": "400 Gb/sec (4X NDR)",
        "lid": 7,
        "sm_lid": 1,
    }
    return HcaPort(**{"name": f"{hca}:{number}", "number": number, **defaults, **changes})


def roce_port(hca: str = "mlx5_0", i: int = 1, **changes: Any) -> HcaPort:
    return port(hca, **{"link_layer": "Ethernet", "gids": roce_gids(i), "sm_lid": 0, **changes})


def hca(device: str = "mlx5_0", **changes: Any) -> Hca:
    half = int(device[-1:]) % 2 if device[-1:].isdigit() else 0
    defaults: dict[str, Any] = {
        "fw_version": "28.39.1002",
        "board_id": "MT_0000000838",
        "hca_type": "MT4129",
        "pci_path": path(4 * half, f"0000:{half}9:00.0"),
        "numa_node": half,
        "pcie": PcieLink(width=16, width_most=16, gtransfers_s=32.0, gtransfers_s_most=32.0),
        "netdevs": ("eth1",),
        "acs": (),
        "uverbs": "uverbs0",
        "uverbs_there": True,
        "uverbs_ok": True,
        "ports": (port(device),),
    }
    return Hca(**{"name": device, **defaults, **changes})


def rdma(*hcas: Hca, **changes: Any) -> RdmaFacts:
    """One node's HCAs; mlx5_0 and mlx5_1 unless others are given."""
    defaults: dict[str, Any] = {
        "hcas": hcas or (hca("mlx5_0"), hca("mlx5_1")),
        "libibverbs": "/lib/x86_64-linux-gnu/libibverbs.so.1",
    }
    return RdmaFacts(**{**defaults, **changes})


def rdmas(count: int, **odd: RdmaFacts) -> dict[str, RdmaFacts]:
    return {name(i): odd.get(name(i), rdma()) for i in range(1, count + 1)}


def counters(
    uptime_s: float = 5000.0, packets: int = 1, *, hcas: int = 2, netdevs: Sequence[str] = ("eth0",)
) -> CounterFacts:
    """One reading of HCA ports and interfaces without errors."""
    moved = {"port_rcv_packets": packets}
    ports = [Counted(name=f"mlx5_{i}:1", values=moved, read=14) for i in range(hcas)]
    arrived = {"carrier_changes": 2, "rx_packets": packets}
    links = [Counted(name=netdev, values=arrived, read=9) for netdev in netdevs]
    return CounterFacts(uptime_s=uptime_s, ports=tuple(ports), netdevs=tuple(links))
