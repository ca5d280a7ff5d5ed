"""Errors and link events of HCA ports, as rates while a scan measures."""

from collections.abc import Iterator

from netdoctor.check import check
from netdoctor.checks._shared.counters import Rule, earlier_errors, grown, rate_findings, uncounted
from netdoctor.checks._shared.link_fixes import port_fixes
from netdoctor.checks._shared.text import listing
from netdoctor.facts.counters import CounterFacts, LaterCounters
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import HERE, SUSPECTED, Action, Cause, Finding, skip, unknown

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
REPORTED = (*RULES, Rule("out_of_sequence", RESENDS))
IN_EVIDENCE = (
    *REPORTED,
    *(Rule(name, RESENDS) for name in ("np_cnp_sent", "rp_cnp_handled", "roce_adp_retrans")),
)


@check(
    after=["ssh.login", "rdma.hca"],
    profile="launch",
    required=False,
    source="https://github.com/NVIDIA/NVSentinel/blob/main/docs/nic-health-monitor/link-counter-detection.md",
)
def rdma_errors(
    counters: CounterFacts, later: LaterCounters, rdma: RdmaFacts | None = None
) -> Iterator[Finding]:
    """HCA ports count no errors while the scan measures.

    Looks at:
        counters and hw_counters of each port in sysfs, at login and again after everything that loads the
        network. What was added in between is judged: any link_downed, local_link_integrity_errors and
        excessive_buffer_overrun_errors; in a minute more than 5 link_error_recovery; in a second more than
        10 symbol_error, port_rcv_errors, rx_icrc_encapsulated, packet_seq_err or roce_slow_restart, 100
        port_xmit_discards, 1 local_ack_timeout_err or rp_cnp_ignored. Older totals are told, and say nothing
        of today.

    Matters because:
        What a link damages is sent again: one rail that does so slows every collective. A link that is down
        for a moment can end the job that runs.

    Fix:
        Clean or swap cable and transceiver, then try another port of the switch. Drops and resends without
        errors of the link point at congestion: PFC and ECN of switches and NICs.
    """
    found = grown(counters, later, "ports")
    ports = {port.name for hca in rdma.hcas for port in hca.ports} if rdma else set()
    yield from uncounted(ports, counters, later, "ports")
    if not counters.ports and not ports:
        yield skip("no HCA on this node")
    elif counters.ports and not any(port.read for port in counters.ports):
        yield skip("the HCAs show no counters here")
    elif not found and counters.ports:
        yield unknown(HERE, "the two readings of the counters do not follow each other")
    warnings: list[Finding] = []
    for one in found:
        bad, jammed = port_fixes(one.name)
        fixes = dict.fromkeys((LINK.key, FLAP.key), bad) | dict.fromkeys(
            (DROPS.key, RESENDS.key, IGNORES.key), jammed
        )
        where = "/sys/class/infiniband/" + one.name.replace(":", "/ports/")
        warnings += rate_findings(one, RULES, where, fixes, IN_EVIDENCE)
        if one.full:
            warnings.append(
                unknown(HERE, f"{one.name}: {listing(one.full)} at the highest value, counts no more")
            )
    yield from warnings or earlier_errors(found, "HCA ports", REPORTED)
