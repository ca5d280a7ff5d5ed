"""Group `counters`: what RDMA ports and network interfaces count. [Linux Documentation/ABI/stable/
sysfs-class-infiniband, Documentation/ABI/testing/sysfs-class-net and sysfs-class-net-statistics]"""

import os
import time

from .. import runtime
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

# Files of a port and of an interface; a counter's name is the last part of its file's.
PORT = (
    "counters/symbol_error", "counters/link_error_recovery", "counters/link_downed",
    "counters/port_rcv_errors", "counters/local_link_integrity_errors",
    "counters/excessive_buffer_overrun_errors", "counters/port_xmit_discards", "counters/port_rcv_packets",
    "counters/port_xmit_packets", "hw_counters/out_of_sequence", "hw_counters/packet_seq_err",
    "hw_counters/local_ack_timeout_err", "hw_counters/roce_slow_restart",
    "hw_counters/rx_icrc_encapsulated", "hw_counters/rp_cnp_ignored", "hw_counters/rp_cnp_handled",
    "hw_counters/np_cnp_sent", "hw_counters/roce_adp_retrans",
)  # fmt: skip
NETDEV = (
    "carrier_changes", "statistics/rx_packets", "statistics/tx_packets", "statistics/rx_errors",
    "statistics/tx_errors", "statistics/rx_crc_errors", "statistics/rx_length_errors",
    "statistics/rx_missed_errors", "statistics/rx_dropped",
)  # fmt: skip
MAX_PORTS = 128
MAX_NETDEVS = 64
MAX_VIRTUAL = 8
MAX_UPPERS = 64
# The most that a second reading waits, whatever it is told.
WAIT_S = 3.0


def uptime(root: str) -> float:
    """Return seconds since boot."""
    since_boot_s = files.uptime_s(root)
    if since_boot_s is None:
        raise runtime.Unavailable("failed", "/proc/uptime cannot be read")
    return since_boot_s


def counted(name: str, base: str, counters: "Iterable[str]") -> "dict[str, Any]":
    """Return facts.counters.Counted. Counters that the device does not have are left out."""
    values = {}
    read = 0
    for counter in counters:
        value = files.number(base + "/" + counter)
        if value is not None:
            read += 1
            if value > 0:
                values[counter.rpartition("/")[2]] = value
    return {"name": name, "values": values, "read": read}


def pauses(folder: str, name: str) -> "dict[str, int]":
    """Return flow.counted() of an interface that carries RDMA: pauses that it sent and received."""
    if folder != "/sys/class/net" or not os.path.isdir(folder + "/" + name + "/device/infiniband"):
        return {}
    from ..system import flow

    return flow.counted(name)


def ports(root: str) -> "list[dict[str, Any]]":
    found = []  # type: list[dict[str, Any]]
    folder = files.under(root, "/sys/class/infiniband")
    for hca in files.names(folder):
        for number in files.names(os.path.join(folder, hca, "ports")):
            if number.isdigit() and len(found) < MAX_PORTS:
                base = os.path.join(folder, hca, "ports", number)
                found.append(counted(hca + ":" + number, base, PORT))
    return found


def uppers(folder: str, name: str) -> "list[str]":
    """Return what is on top of an interface, and on top of that."""
    found = [name]
    for one in found:
        for entry in files.names(os.path.join(folder, one)):
            if entry.startswith("upper_") and entry[6:] not in found and len(found) <= MAX_UPPERS:
                found.append(entry[6:])
    return found[1:]


def interfaces(folder: str) -> "list[str]":
    """Return the interfaces that count something of a link."""
    real = []  # type: list[str]
    virtual = []  # type: list[str]
    for name in files.names(folder):
        base = os.path.join(folder, name)
        flags = files.number(base + "/flags") or 0
        # IFF_UP, IFF_LOOPBACK
        if flags & 1 and not flags & 8 and not os.path.exists(base + "/phy80211"):
            (real if os.path.exists(base + "/device") else virtual).append(name)
            if len(real) >= MAX_NETDEVS:
                break
    return real or virtual[:MAX_VIRTUAL]


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.counters.CounterFacts. args: {"not_before_s": uptime from which on it may be read}."""
    since_boot_s = uptime(root)
    wait_s = float(args.get("not_before_s") or 0) - since_boot_s
    if wait_s > 0:
        time.sleep(min(wait_s, WAIT_S))
        since_boot_s = uptime(root)
    folder = files.under(root, "/sys/class/net")
    netdevs = []
    for name in interfaces(folder):
        one = counted(name, os.path.join(folder, name), NETDEV)
        one["values"].update(pauses(folder, name))
        above = uppers(folder, name)
        netdevs.append(dict(one, uppers=above) if above else one)
    return {"uptime_s": since_boot_s, "ports": ports(root), "netdevs": netdevs}
