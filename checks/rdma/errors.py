"""Errors and link events of HCA ports, as rates while a scan measures."""

from collections.abc import Iterator
from dataclasses import replace

from netdoctor import tables
from netdoctor.check import check
from netdoctor.checks._shared.counters import Counters, earlier_errors, grown, rate_findings, uncounted
from netdoctor.checks._shared.rdma import cable
from netdoctor.checks._shared.text import listing
from netdoctor.facts.cabling import CablingFacts
from netdoctor.facts.counters import CounterFacts, LaterCounters
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import HERE, Finding, skip, unknown
from netdoctor.text import is_plain_name

TABLE = tables.table("netdoctor.checks.rdma", "errors.toml", Counters)


@check(
    after=["ssh.login", "rdma.hca"],
    profile="launch",
    required=False,
    source="https://github.com/NVIDIA/NVSentinel/blob/main/docs/nic-health-monitor/link-counter-detection.md",
)
def rdma_errors(
    counters: CounterFacts,
    later: LaterCounters,
    rdma: RdmaFacts | None = None,
    cabling: CablingFacts | None = None,
) -> Iterator[Finding]:
    """HCA ports count no errors during the scan.

    Looks at:
        counters and hw_counters of each port in sysfs, at login and again after everything that loads the
        network. The difference is judged: any link_downed, local_link_integrity_errors and
        excessive_buffer_overrun_errors; more than 5 link_error_recovery per minute; per second more than
        10 symbol_error, port_rcv_errors, rx_icrc_encapsulated, packet_seq_err or roce_slow_restart, 100
        port_xmit_discards, 1 local_ack_timeout_err or rp_cnp_ignored. Older totals are reported but not
        judged.

    Matters because:
        Damaged packets are sent again: one such rail slows down every collective. A link that is down for
        a moment can end the running job.

    Fix:
        Clean or swap cable and transceiver, then try another port of the switch. Drops and resends
        without link errors mean congestion: check PFC and ECN of switches and NICs.
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
        hca, _, number = one.name.rpartition(":")
        known = is_plain_name(hca) and number.isascii() and number.isdigit()
        words = {"hca": hca, "number": number} if known else {"hca": "", "number": ""}
        where = "/sys/class/infiniband/" + one.name.replace(":", "/ports/")
        end = cable(cabling, rdma.hcas if rdma else (), one.name)
        warnings += [
            replace(finding, evidence=(*finding.evidence, *end))
            for finding in rate_findings(one, TABLE, where, words)
        ]
        if one.full:
            warnings.append(
                unknown(
                    HERE, f"{one.name}: {listing(one.full)} at the maximum value: it does not count any more"
                )
            )
    yield from warnings or earlier_errors(found, "HCA ports", TABLE)
