"""What a network interface does against loss, and how often: flow control and ECN, all of it readable without
root. [Linux include/uapi/linux/dcbnl.h, net/dcb/dcbnl.c; include/uapi/linux/ethtool.h]"""

import struct

from . import ethtool, files
from .sockets import netlink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Optional

_RTM_GETDCB = 78
_DCB_CMD_IEEE_GET = 21
_DCB_ATTR_IFNAME = 1
_DCB_ATTR_IEEE = 13
_DCB_ATTR_IEEE_PFC = 2
_DCB_ATTR_IEEE_APP_TABLE = 3
_BY_DSCP = 5  # IEEE_8021QAZ_APP_SEL_DSCP
_ETHTOOL_GPAUSEPARAM = 0x12
_ETHTOOL_GSSET_INFO = 0x37
_ETHTOOL_GSTRINGS = 0x1B
_ETHTOOL_GSTATS = 0x1D
_ETH_SS_STATS = 1
MAX_STATS = 16384
# What drivers call the pauses that they send and take, by priority. [mlx5: Documentation/networking/
# device_drivers/ethernet/mellanox/mlx5/counters.rst; bnxt_ethtool.c; ice_ethtool.c]
_NAMES = {
    "tx_pauses": ("tx_prio%d_pause", "tx_pfc_ena_frames_pri%d", "tx_priority_%d_xoff.nic"),
    "rx_pauses": ("rx_prio%d_pause", "rx_pfc_ena_frames_pri%d", "rx_priority_%d_xoff.nic"),
    "tx_pause_us": ("tx_prio%d_pause_duration",),
    "rx_pause_us": ("rx_prio%d_pause_duration",),
}
_OF_PORT = {
    "tx_pauses": ("tx_global_pause",),
    "rx_pauses": ("rx_global_pause",),
    "tx_pause_us": ("tx_global_pause_duration",),
    "rx_pause_us": ("rx_global_pause_duration",),
    # Some releases of the driver have a blank behind the first.
    "tx_pause_storm_warning_events": ("tx_pause_storm_warning_events", "tx_pause_storm_warning_events "),
    "tx_pause_storm_error_events": ("tx_pause_storm_error_events",),
}


def request(name: str) -> bytes:
    """Return the question for an interface's settings of IEEE 802.1Qaz."""
    text = name.encode("utf-8", "replace")[:15] + b"\0"
    attribute = struct.pack("=HH", 4 + len(text), _DCB_ATTR_IFNAME) + text
    body = struct.pack("=BBH", 0, _DCB_CMD_IEEE_GET, 0) + attribute + b"\0" * (-len(attribute) % 4)
    return struct.pack("=IHHII", 16 + len(body), _RTM_GETDCB, 1, 1, 0) + body  # NLM_F_REQUEST


def attributes(data: bytes) -> "Iterator[tuple[int, bytes]]":
    """Yield (type, content) of netlink attributes; the rest after one that is cut short is left out."""
    at = 0
    while at + 4 <= len(data):
        size, kind = struct.unpack_from("=HH", data, at)
        if size < 4 or at + size > len(data):
            return
        yield kind & 0x3FFF, data[at + 4 : at + size]  # without NLA_F_NESTED
        at += (size + 3) & ~3


def settings(answer: bytes) -> "Optional[dict[str, Any]]":
    """Return {pfc, dscp} of facts.rdma.HcaPort of the kernel's answer; None where it is a refusal."""
    if len(answer) < 20 or struct.unpack_from("=H", answer, 4)[0] != _RTM_GETDCB:
        return None
    found = {}  # type: dict[str, Any]
    for kind, content in attributes(answer[20 : struct.unpack_from("=I", answer)[0]]):
        for what, value in attributes(content) if kind == _DCB_ATTR_IEEE else ():
            if what == _DCB_ATTR_IEEE_PFC and len(value) >= 2:  # struct ieee_pfc
                found["pfc"] = [bit for bit in range(8) if bytearray(value)[1] >> bit & 1]
            elif what == _DCB_ATTR_IEEE_APP_TABLE:
                found["dscp"] = by_dscp(value)
    return found if "pfc" in found else None


def by_dscp(table: bytes) -> str:
    """Return the priority of each DSCP as 64 digits, ``-`` for one without; empty where none has one."""
    digits = ["-"] * 64
    for _, app in attributes(table):  # struct dcb_app: selector, priority, protocol
        if len(app) >= 4:
            selector, priority, dscp = struct.unpack_from("=BBH", app)
            if selector == _BY_DSCP and dscp < 64 and priority < 8:
                digits[dscp] = str(priority)
    return "".join(digits) if any(one != "-" for one in digits) else ""


def ask(name: str) -> "Optional[dict[str, Any]]":
    """Return settings() of an interface; None where its driver, or this kernel, knows of none."""
    try:
        with netlink() as link:
            link.send(request(name))
            return settings(link.recv(32768))
    except (OSError, struct.error):
        return None


def pauses(name: str) -> "Optional[str]":
    """Return which pauses an interface takes (rx) and sends (tx): ``rx tx``, ``rx``, ``off``; None where its
    driver does not say."""
    answer = ethtool.ask(name, _ETHTOOL_GPAUSEPARAM, 16)
    if answer is None:
        return None
    _, _, rx, tx = struct.unpack("=IIII", answer)
    return " ".join([word for word, on in (("rx", rx), ("tx", tx)) if on]) or "off"


def counted(name: str) -> "dict[str, int]":
    """Return how often and for how long (us) an interface has sent and received pauses, by our names.

    Zeros are left out; empty where its driver does not say.
    """
    try:
        ask_for = struct.pack("=IIQI", _ETHTOOL_GSSET_INFO, 0, 1 << _ETH_SS_STATS, 0)
        count = struct.unpack("=IIQI", ethtool.exchange(name, ask_for))[3]
        if not 0 < count <= MAX_STATS:
            return {}
        head = struct.pack("=III", _ETHTOOL_GSTRINGS, _ETH_SS_STATS, count)
        names = ethtool.exchange(name, head + bytes(32 * count))[12:]
        if b"pause" not in names and b"pfc" not in names and b"xoff" not in names:
            return {}
        head = struct.pack("=II", _ETHTOOL_GSTATS, count)
        values = ethtool.exchange(name, head + bytes(8 * count))[8:]
    except (OSError, struct.error):
        return {}
    return sums(names, values)


def sums(names: bytes, values: bytes) -> "dict[str, int]":
    """Return the sums over priorities of what drivers name (32 bytes each) and count (8 bytes each)."""

    def value(name: str) -> int:
        word = name.encode() + b"\0"
        at = names.find(word)
        while at >= 0 and at % 32:
            at = names.find(word, at + 1)
        return int(struct.unpack_from("=Q", values, at // 4)[0]) if 0 <= at // 4 <= len(values) - 8 else 0

    found = {
        ours: sum(value(pattern % priority) for pattern in patterns for priority in range(8))
        for ours, patterns in _NAMES.items()
    }
    for ours, words in _OF_PORT.items():
        found[ours] = found.get(ours, 0) + sum(map(value, words))
    return {ours: many for ours, many in found.items() if many}


def ecn(root: str, name: str) -> "Optional[str]":
    """Return the priorities for which a NIC heeds and sends notices of congestion: ``rp all np 3``.

    None where the driver does not say: that of the kernel's tree tells only root. [MLNX_OFED: Explicit
    Congestion Notification]
    """
    base = files.under(root, "/sys/class/net/" + name + "/ecn/")
    enabled = []
    for side in ("rp", "np"):
        digits = [files.attribute("%sroce_%s/enable/%d" % (base, side, i)) for i in range(8)]
        if digits[0] is None:
            return None
        on = [str(i) for i, digit in enumerate(digits) if digit not in (None, "0")]
        enabled.append("%s %s" % (side, "all" if len(on) == 8 else ",".join(on) or "none"))
    return " ".join(enabled)
