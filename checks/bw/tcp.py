"""TCP throughput between nodes."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.matrix import left_out
from netdoctor.checks._shared.paths import path_text
from netdoctor.checks.bw._baseline import compared, fallen
from netdoctor.checks.bw._slow import Words, devices, extremes, gbit, slow_on, summary, tcp_ways
from netdoctor.checks.bw._suspects import TcpSuspects
from netdoctor.facts.bandwidth import Baseline, TcpRates
from netdoctor.facts.net import NetFacts
from netdoctor.facts.paths import Paths
from netdoctor.facts.software import Job
from netdoctor.localise import BUSY, earlier
from netdoctor.model import CLUSTER, Finding, Measure, ok, skip


@check(
    after=["ssh.login", "net.interface", "net.ports", "net.path-mtu"],
    profile="full",
    cost="opens-port",
    required=False,
    source="https://github.com/coreweave/nccl-tests",
)
def bw_tcp(
    tcp: TcpRates,
    suspects: TcpSuspects,
    job: Job,
    nets: Mapping[str, NetFacts],
    baseline: Baseline | None = None,
    paths: Paths | None = None,
) -> Iterator[Finding]:
    """TCP between any two nodes is as fast as between the others, in both directions.

    Looks at:
        Four parallel TCP streams between agents, pairs in rounds that share no node, each direction by
        itself: every pair up to 16 nodes, time permitting, a few partners per node beyond. What comes out
        slow is measured again with partners known to be good. Where the job dials nodes over several networks
        each has an equal part of the time. With --baseline REPORT each pair is also held
        against what it reached then.

    Matters because:
        A collective is as fast as its slowest link. Bootstrap, gloo, checkpoints and NCCL without RDMA all
        run over TCP, and a link that trained low or a policer on one path shows here before it shows in a
        job.

    Fix:
        Look at the node, direction or path that is named: link speed, shaping, error counters, cable.
        Where it is undecided, run the pair that the report proposes.
    """
    if len(nets) < 2:
        yield skip("one node: there is no pair")
        return
    for one in (tcp, *tcp.further.values()):
        yield from left_out("TCP throughput was not measured", one, nets if one is tcp else one.nodes)
    if not tcp.rates:
        if not tcp.failed_nodes:
            yield skip("no two nodes reach each other")
        return
    words = Words(
        check="bw.tcp",
        what="TCP",
        rate=gbit,
        rates=tcp.rates,
        devices=devices(nets, job.data_addresses),
        limited_by=tcp.limited_by,
        derived=bool(tcp.expected_gbyte_s),
        baseline=earlier.table(baseline.tcp) if baseline is not None else {},
    )
    ways = tcp_ways(tcp, suspects, paths, nets, words)
    yield from slow_on(ways)
    yield from fallen(suspects.decision, baseline, words)
    text, measures = summary(suspects.decision, tcp.rounds, words), extremes(words, "Gbit/s", 8)
    for path, decision, there in ways[1:]:
        text += (
            f"{path_text((path,))}: {summary(decision, tcp.further[path.id].rounds, there)}" if path else ""
        )
    busy = sum(1 for r in tcp.rates if r.busy >= BUSY)
    if busy and measures:
        text += f"; {busy} of {len(tcp.rates)} runs limited by CPU"
    again, sent = sum(r.retransmits or 0 for r in tcp.rates), sum(r.segments or 0 for r in tcp.rates)
    if sent:
        measures["bw.tcp.retransmits"] = Measure(value=100.0 * again / sent, unit="%")
    yield ok(CLUSTER, text + compared(baseline, words), measures=measures)
