"""Pretended HCAs and GPUs: the trees in /sys, /proc and /dev, and what the NVML stand-in answers.

The values are those of public documentation (ConnectX-7, H100 SXM), not a copy of a real machine.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from netdoctor.lab import links
from netdoctor.lab.state import State

DRIVER = "550.127.05"
OTHER_DRIVER = "535.183.01"
CUDA = 12040
NVML_FILE = "/etc/netdoctor-lab-gpus"
KERNEL_LOG = "/dev/kmsg"
GPU_ROOT = "pci0000:20/0000:20:01.{i:x}"
HCA_ROOT = "pci0000:80/0000:80:{i:02x}.1"  # a function is 0 to 7, and there may be more HCAs


@dataclass
class Tree:
    """Text files, links, binary files and device nodes of a node, by absolute path."""

    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    binary: dict[str, bytes] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)


def digits(*words: object, size: int = 8) -> str:
    raw = "/".join(str(word) for word in words).encode()
    return hashlib.blake2s(raw, digest_size=size).hexdigest()


def config(vendor: int, device: int, kind: int, *, port: int = 0) -> bytes:
    """What root reads of a function: 512 bytes can be sent at once and are, 4096 are asked for at once.
    port: its type, as PCI Express numbers them; 4 is a root port."""
    found = bytearray(256)
    found[0:4] = vendor.to_bytes(2, "little") + device.to_bytes(2, "little")
    found[9:12] = kind.to_bytes(3, "little")
    found[0x34] = 0x60
    found[0x60:0x64] = bytes((0x10, 0, port << 4 | 2, 0))
    found[0x64:0x6A] = (2).to_bytes(4, "little") + (5 << 12 | 2 << 5).to_bytes(2, "little")
    return bytes(found)


def pci(tree: Tree, root: str, address: str, vendor: int, device: int, kind: int, driver: str) -> str:
    """One PCI function; returns its folder."""
    folder = f"/sys/devices/{root}/{address}"
    numbers = {"vendor": vendor, "device": device, "subsystem_vendor": vendor}
    tree.files |= {f"{folder}/{name}": f"{value:#06x}\n" for name, value in numbers.items()}
    tree.files |= {
        f"{folder}/subsystem_device": "0x16c1\n" if vendor == 0x10DE else "0x0021\n",
        f"{folder}/class": f"{kind:#08x}\n",
        f"{folder}/revision": "0xa1\n" if vendor == 0x10DE else "0x00\n",
        f"{folder}/irq": "0\n",
        f"{folder}/enable": "1\n",
        f"{folder}/numa_node": "0\n",
        f"{folder}/local_cpulist": "0-1\n",
        f"{folder}/current_link_speed": "32.0 GT/s PCIe\n",
        f"{folder}/max_link_speed": "32.0 GT/s PCIe\n",
        f"{folder}/current_link_width": "16\n",
        f"{folder}/max_link_width": "16\n",
        f"{folder}/resource": "0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 13,
        f"{folder}/uevent": f"DRIVER={driver}\nPCI_SLOT_NAME={address}\n",
    }
    # The port above, which has the slot's limits.
    above = {f"/sys/devices/{root}/max_link_speed": "32.0 GT/s PCIe\n"}
    tree.files |= above | {f"/sys/devices/{root}/max_link_width": "16\n"}
    tree.binary |= {
        f"{folder}/config": config(vendor, device, kind),
        f"/sys/devices/{root}/config": config(0x8086, 0x352A, 0x060400, port=4),
    }
    tree.links |= {
        f"{folder}/driver": f"../../../../bus/pci/drivers/{driver}",
        f"{folder}/subsystem": "../../../../bus/pci",
        f"/sys/bus/pci/devices/{address}": f"../../../devices/{root}/{address}",
        f"/sys/bus/pci/drivers/{driver}/{address}": f"../../../../devices/{root}/{address}",
    }
    return folder


def long_gid(prefix: str, last: str) -> str:
    return ":".join((prefix + last)[i : i + 4] for i in range(0, 32, 4))


def eui64(mac: str) -> str:
    parts = [int(part, 16) for part in mac.split(":")]
    parts[0] ^= 2
    return "".join(f"{p:02x}" for p in [*parts[:3], 0xFF, 0xFE, *parts[3:]])


def mapped(address: str) -> str:
    return "".join(f"{int(part):02x}" for part in address.split("."))


def hca_name(i: int) -> str:
    return f"mlx5_{i}"


def hca_folder(i: int) -> str:
    address = f"0000:{0x81 + i:02x}:00.0"
    return f"/sys/devices/{HCA_ROOT.format(i=i)}/{address}/infiniband/{hca_name(i)}"


COUNTERS = (
    "symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors",
    "port_rcv_data", "port_xmit_data", "port_xmit_discards", "port_xmit_wait",
)  # fmt: skip
HW_COUNTERS = (
    "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "np_cnp_sent", "rp_cnp_handled",
    "rp_cnp_ignored",
)  # fmt: skip


def hcas(tree: Tree, state: State, node: str) -> None:
    for i in range(state.hcas):
        hca(tree, state, node, i)
    if state.hcas:
        tree.devices.append("/dev/infiniband/rdma_cm")
        for module in ("mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs", "rdma_cm"):
            tree.files[f"/sys/module/{module}/refcnt"] = "1\n"


def hca(tree: Tree, state: State, node: str, i: int) -> None:
    roce = state.link_layer == "Ethernet"
    root, address = HCA_ROOT.format(i=i), f"0000:{0x81 + i:02x}:00.0"
    pci_folder = pci(tree, root, address, 0x15B3, 0x1021, 0x020000 if roce else 0x020700, "mlx5_core")
    name, folder = hca_name(i), hca_folder(i)
    port = f"{folder}/ports/1"
    # One network per HCA as far as there are networks; the others share the last one.
    net = min(i, links.networks(state) - 1)
    guid = "a088c2" + digits(state.subnet, node, "hca", i, size=5)
    written = ":".join(guid[j : j + 4] for j in range(0, 16, 4))
    lid = 1 + i * len(state.nodes) + state.index(node)
    values = {
        f"{folder}/node_guid": written,
        f"{folder}/sys_image_guid": written,
        f"{folder}/node_type": "1: CA",
        f"{folder}/node_desc": f"{node} {name}",
        f"{folder}/fw_ver": "28.39.1002",
        f"{folder}/hca_type": "MT4129",
        f"{folder}/board_id": "MT_0000000838",
        f"{folder}/hw_rev": "0",
        f"{port}/state": "4: ACTIVE",
        f"{port}/phys_state": "5: LinkUp",
        f"{port}/rate": "400 Gb/sec (4X NDR)",
        f"{port}/link_layer": state.link_layer,
        f"{port}/lid": "0x0" if roce else f"{lid:#x}",
        f"{port}/sm_lid": "0x0" if roce else "0x1",
        f"{port}/lid_mask_count": "0",
        f"{port}/sm_sl": "0",
        f"{port}/has_smi": "0",
        f"{port}/cap_mask": "0x04010000" if roce else "0xa741e84a",
        f"{port}/pkeys/0": "0xffff",
        f"/sys/class/infiniband_verbs/uverbs{i}/ibdev": name,
        f"/sys/class/infiniband_verbs/uverbs{i}/dev": f"231:{192 + i}",
        **{f"{port}/counters/{counter}": "0" for counter in COUNTERS},
        **{f"{port}/hw_counters/{counter}": "0" for counter in HW_COUNTERS},
        **{f"{port}/gids/{row}": long_gid("0" * 16, "0" * 16) for row in range(16)},
    }
    for row, (gid, gid_type) in enumerate(gid_table(state, node, net, guid)):
        values |= {f"{port}/gids/{row}": gid, f"{port}/gid_attrs/types/{row}": gid_type}
        if roce:
            values[f"{port}/gid_attrs/ndevs/{row}"] = f"eth{net}"
    tree.files |= {path: f"{value}\n" for path, value in values.items()}
    if roce:
        tree.links[f"{pci_folder}/net/eth{net}"] = f"../../../../virtual/net/eth{net}"
    tree.links |= {
        f"{folder}/device": f"../../../{address}",
        f"{folder}/subsystem": "../../../../../../class/infiniband",
        f"/sys/class/infiniband/{name}": f"../../devices/{root}/{address}/infiniband/{name}",
        f"/sys/class/infiniband_verbs/uverbs{i}/device": f"../../../devices/{root}/{address}",
    }
    tree.devices.append(f"/dev/infiniband/uverbs{i}")


def gid_table(state: State, node: str, net: int, guid: str) -> list[tuple[str, str]]:
    """GID and type of each row that is not empty."""
    if state.link_layer != "Ethernet":
        return [(long_gid("fe80" + "0" * 12, guid), "IB/RoCE v1")]
    local = long_gid("fe80" + "0" * 12, eui64(links.mac(state, node, net)))
    ipv4 = long_gid("0" * 16, "0000ffff" + mapped(state.address(node, net)))
    return [(gid, gid_type) for gid in (local, ipv4) for gid_type in ("IB/RoCE v1", "RoCE v2")]


def gpu_bus(i: int) -> str:
    return f"0000:{0x21 + i:02x}:00.0"


def version_text(driver: str) -> str:
    return (
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Tue Oct  8 03:22:07 UTC 2024\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
    )


def gpu_values(state: State, node: str) -> dict[str, str]:
    """What the NVML stand-in answers on a healthy node."""
    values = {
        "init": "0", "driver": DRIVER, "nvml": f"12.{DRIVER}", "cuda": str(CUDA),
        "count": str(state.gpus),
    }  # fmt: skip
    for i in range(state.gpus):
        unique = digits(state.subnet, node, "gpu", i, size=16)
        parts = (unique[:8], unique[8:12], unique[12:16], unique[16:20], unique[20:])
        one = {
            "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-" + "-".join(parts),
            "serial": str(1650000000000 + int(unique[:8], 16)), "vbios": "96.00.A5.00.01",
            "part": "692-2G520-0200-000", "minor": i, "index": i, "brand": 15, "architecture": 9,
            "bus": "0000" + gpu_bus(i).upper(), "pci_device": 0x233010DE,
            "pci_subsystem": 0x16C110DE, "cc_major": 9, "cc_minor": 0, "memory": 85520809984,
            "memory_used": 0, "bar1": 137438953472, "persistence": 1, "compute_mode": 0,
            "pstate": 0, "power_mw": 70000, "power_limit_mw": 700000, "power_default_mw": 700000,
            "power_min_mw": 200000, "temperature": 31, "threshold0": 95, "threshold1": 92,
            "utilization": 0, "utilization_memory": 0, "clock0": 1980, "clock1": 1980,
            "clock2": 2619, "set_clock0": 1980, "set_clock1": 1980, "set_clock2": 2619,
            "max_clock0": 1980, "max_clock1": 1980, "max_clock2": 2619,
            "throttle": 1, "throttle_supported": 0x1FF, "ecc": 1, "ecc00": 0, "ecc01": 0,
            "ecc10": 0, "ecc11": 0, "remap_corrected": 0, "mig": 0, "pcie_gen": 5,
            "pcie_gen_max": 5, "pcie_width": 16, "pcie_width_max": 16, "pcie_speed_mbps": 32000,
            "pcie_replays": 0, "pcie_kb_s": 0, "nvlinks": 18, "nvlink_version": 4, "numa": 0,
            "fabric_state": 3, "fabric_status": 0, "margin": 55, "sram_exceeded": 0, "remap_none": 0,
            # NVML_FI_DEV_*: NVLink CRC errors, replays and recoveries, PCIe replays, margins in degrees
            "field38": 0, "field45": 0, "field52": 0, "field59": 0, "field94": 0, "field194": -2,
            "field196": 0, "inforom": "G520.0200.00.05",
            # The same of each NVLink: replays, recoveries, CRC errors; its speed in MB/s
            "link.field161": 0, "link.field162": 0, "link.field163": 0, "link.field164": 26562,
            "memory_bus_width": 5120, "cores": 16896, "display": 0, "energy_mj": 1,
        }  # fmt: skip
        values |= {f"{i}.{key}": str(value) for key, value in one.items()}
    return values


def gpus(tree: Tree, state: State, node: str) -> None:
    if not state.gpus:
        return
    for i in range(state.gpus):
        pci(tree, GPU_ROOT.format(i=i), gpu_bus(i), 0x10DE, 0x2330, 0x030200, "nvidia")
        folder = f"/proc/driver/nvidia/gpus/{gpu_bus(i)}"
        uuid = gpu_values(state, node)[f"{i}.uuid"]
        tree.files[f"{folder}/information"] = (
            "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 0\n"
            f"GPU UUID: \t {uuid}\nBus Location: \t {gpu_bus(i)}\nDevice Minor: \t {i}\n"
        )
        tree.devices.append(f"/dev/nvidia{i}")
    tree.devices += ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    tree.files |= {
        "/proc/driver/nvidia/version": version_text(DRIVER),
        "/sys/module/nvidia/version": DRIVER + "\n",
        "/sys/module/nvidia/refcnt": "1\n",
        "/sys/module/nvidia_uvm/refcnt": "0\n",
        "/sys/module/nvidia_peermem/version": DRIVER + "\n",
        NVML_FILE: render(gpu_values(state, node)),
        KERNEL_LOG: record(0, 5.0, f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {DRIVER}"),
    }


def record(number: int, seconds: float, message: str) -> str:
    """A line of /dev/kmsg; seconds: after boot."""
    return f"4,{number},{seconds * 1e6:.0f},-;{message}\n"


def render(values: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in values.items())


def healthy(state: State, node: str) -> Tree:
    tree = Tree()
    hcas(tree, state, node)
    gpus(tree, state, node)
    return tree
