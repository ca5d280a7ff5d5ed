"""Builds small /sys, /proc and /etc trees, and recorded texts, for parsers that take a root."""

from collections.abc import Mapping
from pathlib import Path


def make(root: Path, content: Mapping[str, str | bytes | None]) -> str:
    """Write files below root. ``a -> b`` as key makes a link; None as content makes a folder."""
    for name, data in content.items():
        path, _, target = name.partition(" -> ")
        at = root / path.lstrip("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        if target:
            at.symlink_to(target)
        elif data is None:
            at.mkdir(exist_ok=True)
        elif isinstance(data, bytes):
            at.write_bytes(data)
        else:
            at.write_text(data)
    return str(root)


ZERO_GID = "0000:0000:0000:0000:0000:0000:0000:0000\n"
PCI = "/sys/devices/pci0000:00/0000:17:00.0"


def connectx7() -> dict[str, str | bytes | None]:
    """A ConnectX-7 with one RoCE port, as sysfs shows it; GID slot 3 is empty."""
    ib = f"{PCI}/infiniband/mlx5_0"
    port = f"{ib}/ports/1"
    return {
        "/sys/class/infiniband/mlx5_0 -> ../../devices/pci0000:00/0000:17:00.0/infiniband/mlx5_0": "",
        f"{ib}/device -> ../..": "",
        f"{ib}/fw_ver": "28.39.1002\n",
        f"{ib}/board_id": "MT_0000000838\n",
        f"{ib}/hca_type": "MT4129\n",
        f"{ib}/node_guid": "946d:ae03:00aa:bbcc\n",
        f"{ib}/sys_image_guid": "946d:ae03:00aa:bbcc\n",
        f"{PCI}/numa_node": "1\n",
        f"{PCI}/vendor": "0x15b3\n",
        f"{PCI}/class": "0x020000\n",
        f"{PCI}/net/ens1np0": None,
        f"{PCI}/infiniband_verbs/uverbs0/ibdev": "mlx5_0\n",
        "/sys/bus/pci/devices/0000:17:00.0 -> ../../../devices/pci0000:00/0000:17:00.0": "",
        "/sys/bus/pci/devices/0000:18:00.0/vendor": "0x15b3\n",
        "/sys/bus/pci/devices/0000:18:00.0/class": "0x020700\n",
        "/sys/bus/pci/devices/0000:19:00.0/vendor": "0x8086\n",
        "/sys/bus/pci/devices/0000:19:00.0/class": "0x020000\n",
        "/dev/infiniband/uverbs0": "",
        f"{port}/state": "4: ACTIVE\n",
        f"{port}/phys_state": "5: LinkUp\n",
        f"{port}/rate": "400 Gb/sec (4X NDR)\n",
        f"{port}/link_layer": "Ethernet\n",
        f"{port}/lid": "0x0\n",
        f"{port}/sm_lid": "0x0\n",
        f"{port}/gids/0": "fe80:0000:0000:0000:966d:aeff:fe03:aabb\n",
        f"{port}/gids/1": ZERO_GID,
        f"{port}/gids/3": ZERO_GID,
        f"{port}/gids/10": "0000:0000:0000:0000:0000:ffff:0a4d:000a\n",
        f"{port}/gid_attrs/types/0": "IB/RoCE v1\n",
        f"{port}/gid_attrs/types/10": "RoCE v2\n",
        f"{port}/gid_attrs/ndevs/0": "ens1np0\n",
        # A read of the slot of another network namespace gives EINVAL; a folder gives EISDIR here.
        f"{port}/gid_attrs/ndevs/10": None,
    }
