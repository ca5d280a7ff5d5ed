"""What drivers say of network interfaces, by the calls of ethtool that need no root.

[Linux include/uapi/linux/ethtool.h; net/ethtool/ioctl.c dev_ethtool, which lets anybody read]
"""

import ctypes
import fcntl
import os
import struct

from . import sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

_SIOCETHTOOL = 0x8946
_GDRVINFO = 0x3
_GSET = 0x1
_GRINGPARAM = 0x10
_GCHANNELS = 0x3C
# By the names that `ethtool -K` takes.
_FEATURES = (("rx", 0x14), ("tx", 0x16), ("sg", 0x18), ("tso", 0x1E), ("gso", 0x23), ("gro", 0x2B))
# Where sizes stand among the numbers of the answer: what is set, and the most.
_RINGS = (("rx", 5, 1), ("tx", 8, 4))
_CHANNELS = (("rx", 5, 1), ("tx", 6, 2), ("combined", 8, 4))
# Bits of the link modes that a port can have, as far as 32 go: Mbit/s.
_MODES = (
    (0x3, 10), (0xC, 100), (0x20030, 1000), (0x8000, 2500), (0x1C1000, 10000), (0x600000, 20000),
    (0x80000000, 25000), (0x7800000, 40000), (0x78000000, 56000),
)  # fmt: skip


def exchange(name: str, data: bytes) -> bytes:
    """Return what the kernel makes of the structure of an ethtool command. Raises OSError."""
    info = ctypes.create_string_buffer(data, len(data))
    request = struct.pack("16sP16x", name.encode("utf-8", "replace")[:15], ctypes.addressof(info))
    with sockets.Socket(sockets.raw.AF_INET, sockets.raw.SOCK_DGRAM) as s:
        fcntl.ioctl(s.fileno(), _SIOCETHTOOL, request)
    return info.raw


def ask(name: str, command: int, size: int) -> "Optional[bytes]":
    """Return the structure of an ethtool command, whose first number it is; None where there is no answer."""
    try:
        return exchange(name, struct.pack("=I", command) + bytes(size - 4))
    except OSError:
        return None


def driver_info(name: str) -> "list[Optional[str]]":
    """Return driver, its version and the firmware's; the driver is the only way to tell a veth.

    A version that is the kernel's own is ``in-kernel``.
    """
    info = ask(name, _GDRVINFO, 196) or b""
    driver, version, firmware = (
        info[at : at + 32].split(b"\0", 1)[0].decode("utf-8", "replace") or None for at in (4, 36, 68)
    )
    is_kernels = version is None or version == os.uname().release[:31]
    return [
        driver,
        "in-kernel" if driver and is_kernels else version,
        None if firmware == "N/A" else firmware,
    ]


def settings(name: str) -> "dict[str, Any]":
    """Return what facts.net.Nic has of features, sizes and modes; what a driver does not know is left out."""
    features = {}  # type: dict[str, bool]
    for word, command in _FEATURES:
        answer = ask(name, command, 8)
        if answer is not None:
            features[word] = struct.unpack("=II", answer)[1] != 0
    sizes = {}  # type: dict[str, list[int]]
    for kind, command, rows in (("ring", _GRINGPARAM, _RINGS), ("channels", _GCHANNELS, _CHANNELS)):
        numbers = struct.unpack("=9I", ask(name, command, 36) or bytes(36))
        sizes.update(
            (kind + " " + word, [numbers[now], numbers[most]]) for word, now, most in rows if numbers[most]
        )
    modes = struct.unpack("=2I", (ask(name, _GSET, 44) or bytes(8))[:8])[1]
    most = max([speed for mask, speed in _MODES if modes & mask] or [0])
    return {"features": features, "sizes": sizes, "most_mbit_s": most or None}
