"""RDMA writes between the HCAs of nodes, as perftest measures them."""

from collections.abc import Iterator, Mapping
from statistics import median

from netdoctor.check import check
from netdoctor.checks._shared.text import listing
from netdoctor.checks.bw._slow import Words, extremes, gbit, slow, summary
from netdoctor.checks.bw._suspects import RdmaSuspects
from netdoctor.facts.bandwidth import RdmaRates
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.model import CLUSTER, Finding, Measure, nodes_of, ok, skip, unknown


@check(
    after=["ssh.login", "net.ports", "rdma.port"],
    profile="full",
    cost="opens-port",
    required=False,
    source="https://github.com/linux-rdma/perftest",
)
def bw_rdma(rates: RdmaRates, suspects: RdmaSuspects, nodes: Mapping[str, RdmaFacts]) -> Iterator[Finding]:
    """RDMA writes between any two nodes are as fast as between the others, on every rail.

    Looks at:
        ib_write_bw and ib_write_lat of perftest, where they are installed: writes of 64 KiB from host
        memory for two seconds, and writes of two bytes. They run between ports of one name, on all rails
        of a pair at once, each direction alone. Up to 16 nodes every pair is measured if time permits,
        beyond that a few partners per node; slow pairs again with partners known to be good. The expected
        rate is what port and PCIe link allow: 96 of 100 Gbit/s. Software and cloud adapters are left out.
        Servers listen on TCP ports from 18515 on.

    Matters because:
        This is the network without NCCL. Slow here means a cable, a slot, a switch or the traffic class.
        Slow in bw.pair only means NCCL's choice of HCA, or the path from GPU to HCA.

    Fix:
        Inspect the rail, node or path that is named: first rdma.errors, rdma.pcie and rdma.rate, then
        cable and switch port. If it is undecided, run the pair that the report proposes.
    """
    having = [node for node, facts in nodes.items() if facts.hcas]
    if len(having) < 2:
        yield skip("fewer than two nodes have HCAs")
    elif rates.without and not rates.rates:
        yield skip("perftest (ib_write_bw) is not installed", gap="no perftest")
    elif not (rates.rates or rates.failed_nodes or rates.troubles):
        yield skip("no two nodes with an active HCA port can reach each other")
    for node in rates.without if rates.rates else ():
        yield skip("perftest (ib_write_bw) is not installed here", node, gap="no perftest")
    for node, why in rates.failed_nodes.items():
        yield unknown(node, f"RDMA writes were not measured: {why}")
    dead = {(f"{rate.src}->{rate.dst}", rate.rail) for rate in rates.rates if rate.gbyte_s == 0}
    for what, why in rates.troubles.items():
        ends, _, rail = what.rpartition(" ")
        if (ends, rail) not in dead and nodes_of(ends):
            yield unknown(ends, f"RDMA writes over {rail} were not measured: {why}")
    if not rates.rates:
        return
    words = Words(
        check="bw.rdma",
        what="RDMA",
        rate=gbit,
        rates=rates.rates,
        devices={},
        limited_by=rates.limited_by,
        derived=bool(rates.expected_gbyte_s),
    )
    yield from slow(suspects.decision, words)
    text, measures = summary(suspects.decision, rates.rounds, words), extremes(words, "Gbit/s", 8)
    if rates.latencies:
        typical = median(one.us for one in rates.latencies)
        worst = max(rates.latencies, key=lambda one: one.us)
        measures["bw.rdma.latency"] = Measure(value=typical, unit="us")
        text += (
            f"; latency {typical:.1f} us, {worst.us:.1f} us from {worst.src} to {worst.dst} over {worst.rail}"
        )
    rails = sorted({rate.rail for rate in rates.rates if rate.rail})
    yield ok(CLUSTER, f"{text}; rails {listing(rails, 8)}", measures=measures)
