"""What interfaces may count while a scan measures."""

from netdoctor.checks._counters import Rule
from netdoctor.model import LIKELY, Action, Cause

ERRORS = Cause("net-link-errors", "the link of an interface of {nodes} damages packets", action=Action.DRAIN)
FLAP = Cause("net-link-flap", "the link of an interface of {nodes} goes down and up", action=Action.DRAIN)
MISSED = Cause("net-missed", "{nodes} take{s} packets too slowly from an interface")
PAUSES = Cause("net-pauses", "NICs of {nodes} stop their switch, as they cannot take what arrives", LIKELY)

# IEEE 802.3 allows one bad bit in 10^12: one of 14 million frames of 9000 bytes. Who damages one in a
# million is broken. What the node is too slow for looks like loss on the path: one packet in 10,000 holds a
# TCP stream to 14 Gbit/s over 100 us (Mathis et al., 1997). A NIC whose PCIe link keeps up sends no pauses
# (Guo et al., "RDMA over Commodity Ethernet at Scale", 4.4); a tenth of the time is a tenth of the rate. The
# driver counts a storm by its own limits (mlx5: Documentation/networking/.../mellanox/mlx5/counters.rst).
RULES = (
    Rule("rx_errors", ERRORS, of_packets=1e-6, least=5),
    Rule("tx_errors", ERRORS, of_packets=1e-6, least=5),
    Rule("carrier_changes", FLAP),
    Rule("rx_missed_errors", MISSED, of_packets=1e-4, least=100),
    Rule("tx_pause_storm_error_events", PAUSES),
    Rule("tx_pause_storm_warning_events", PAUSES),
    Rule("tx_pause_us", PAUSES, per_s=1e5),
)
PARTS = (*RULES, Rule("rx_crc_errors", ERRORS), Rule("rx_length_errors", ERRORS))
SHOWN = (*PARTS, *(Rule(name, PAUSES) for name in ("tx_pauses", "rx_pauses", "rx_pause_us")))
