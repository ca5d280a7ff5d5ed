"""What libibverbs tells of ports and no file does: the MTU that an InfiniBand port has agreed on.

[rdma-core: libibverbs/verbs.h, struct ibv_port_attr and enum ibv_mtu]
"""

import os
import struct

from . import aside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

_BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
_MOST_DEVICES = 1024
_ATTRIBUTES = 512  # bytes, several times the structure of any release
# To open a device takes milliseconds, and for ever where its firmware is stuck.
PATIENCE_S = 3.0


def mtus(ports: "Sequence[tuple[str, int]]") -> "dict[str, int]":
    """Return ``{"mlx5_0:1": 4096}``, bytes, of (HCA, port); without those that cannot be asked."""
    try:
        asker = aside.Asker(_query)
    except OSError:
        return {}
    try:
        found = asker.ask([list(port) for port in ports], PATIENCE_S)
    except (aside.Hung, OSError, ValueError):
        return {}
    finally:
        asker.close()
    return found if isinstance(found, dict) else {}


def _query(ports: "Sequence[Sequence[Any]]") -> "dict[str, int]":
    """What mtus() returns, in the child. The library may write to what it takes for stderr."""
    while os.open(os.devnull, os.O_RDWR) <= 2:
        pass
    found = {}  # type: dict[str, int]
    try:
        import ctypes

        verbs = ctypes.CDLL("libibverbs.so.1")
        pointer = ctypes.c_void_p
        verbs.ibv_get_device_list.restype = ctypes.POINTER(pointer)
        verbs.ibv_get_device_name.restype = ctypes.c_char_p
        verbs.ibv_get_device_name.argtypes = verbs.ibv_open_device.argtypes = [pointer]
        verbs.ibv_open_device.restype = pointer
        verbs.ibv_query_port.argtypes = [pointer, ctypes.c_uint8, ctypes.c_char_p]
        devices = verbs.ibv_get_device_list(None)
    except (ImportError, OSError, AttributeError):
        return found
    for i in range(_MOST_DEVICES if devices else 0):
        if not devices[i]:
            break
        name = (verbs.ibv_get_device_name(devices[i]) or b"").decode("utf-8", "replace")
        numbers = [number for hca, number in ports if hca == name]
        context = verbs.ibv_open_device(devices[i]) if numbers else None
        for number in numbers if context else ():
            attributes = ctypes.create_string_buffer(_ATTRIBUTES)
            if verbs.ibv_query_port(context, number, attributes) == 0:
                _, _, active = struct.unpack_from("=iii", attributes.raw)  # state, max_mtu, active_mtu
                if active in _BYTES:
                    found["%s:%d" % (name, number)] = _BYTES[active]
    return found
