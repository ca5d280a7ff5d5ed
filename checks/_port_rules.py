"""What HCA ports may count while a scan measures."""

from netdoctor.checks._counters import Rule
from netdoctor.model import SUSPECTED, Action, Cause

LINK = Cause(
    "hca-link-errors", "the link of an HCA port of {nodes} damages what it carries", action=Action.DRAIN
)
FLAP = Cause("hca-link-flap", "the link of an HCA port of {nodes} was down for a moment", action=Action.DRAIN)
DROPS = Cause("hca-drops", "HCA ports of {nodes} drop packets")
# Somebody's job that ends badly leaves its peers like that, too.
RESENDS = Cause("hca-resends", "HCA ports of {nodes} have to send again and again", SUSPECTED)
IGNORES = Cause("hca-cnp-ignored", "HCA ports of {nodes} do not slow down when they are told to", SUSPECTED)

# Rates are those of NVSentinel's link counter detection, which takes the first three of these for fatal;
# rx_icrc_encapsulated is RoCE's port_rcv_errors, and packet_seq_err sends a window again as a slow restart
# does. out_of_sequence is told and not judged: adaptive routing makes it grow on healthy fabrics. So are
# notices of congestion; those that are ignored should not grow where ECN is on (NVIDIA, "Understanding
# mlx5 Linux Counters").
RULES = (
    Rule("link_downed", FLAP),
    Rule("local_link_integrity_errors", LINK),
    Rule("excessive_buffer_overrun_errors", DROPS),
    Rule("link_error_recovery", FLAP, per_s=5 / 60, least=3),
    Rule("symbol_error", LINK, per_s=10, least=10),
    Rule("port_rcv_errors", LINK, per_s=10, least=10),
    Rule("rx_icrc_encapsulated", LINK, per_s=10, least=10),
    Rule("port_xmit_discards", DROPS, per_s=100, least=10),
    Rule("local_ack_timeout_err", RESENDS, per_s=1, least=10),
    Rule("packet_seq_err", RESENDS, per_s=10, least=10),
    Rule("roce_slow_restart", RESENDS, per_s=10, least=10),
    Rule("rp_cnp_ignored", IGNORES, per_s=1, least=10),
)
TOLD = (*RULES, Rule("out_of_sequence", RESENDS))
SHOWN = (
    *TOLD,
    *(Rule(name, RESENDS) for name in ("np_cnp_sent", "rp_cnp_handled", "roce_adp_retrans")),
)
