"""TCP throughput between nodes."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._baseline import best, compared, fallen, table
from netdoctor.checks._culprits import TcpCulprits
from netdoctor.checks._slow import Words, devices, gbit, slow
from netdoctor.facts.bandwidth import Baseline, TcpRate, TcpRates
from netdoctor.facts.localisation import Decision
from netdoctor.facts.net import NetFacts
from netdoctor.facts.software import Job
from netdoctor.localise import BUSY
from netdoctor.model import CLUSTER, Finding, Measure, ok, skip, unknown


@check(
    after=["ssh.login", "net.interface", "net.ports", "net.path-mtu"],
    profile="full",
    cost="opens-port",
    required=False,
    source="https://github.com/coreweave/nccl-tests",
)
def bw_tcp(
    tcp: TcpRates,
    culprits: TcpCulprits,
    job: Job,
    nets: Mapping[str, NetFacts],
    baseline: Baseline | None = None,
) -> Iterator[Finding]:
    """TCP between any two nodes is as fast as between the others, in both directions.

    Looks at:
        Four parallel TCP streams between agents, pairs in rounds that share no node, each direction by
        itself: every pair up to 16 nodes, time permitting, a few partners per node beyond. What comes out
        slow is measured again with partners known to be good. With --baseline REPORT each pair is also held
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
    for node, reason in tcp.failed_nodes.items():
        yield unknown(node, f"TCP throughput was not measured: {reason}")
    if not tcp.rates:
        if not tcp.failed_nodes:
            yield skip("no two nodes reach each other")
        return
    words = Words(
        check="bw.tcp",
        what="TCP",
        rate=gbit,
        devices=devices(nets, job.data_addresses),
        limited_by=tcp.limited_by,
        derived=bool(tcp.expected_gbyte_s),
        measured=dict.fromkeys((r.src, r.dst) for r in tcp.rates),
        baseline=table(baseline.tcp) if baseline is not None else {},
    )
    decision = culprits.decision
    yield from slow(decision, words)
    text = _summary(tcp, decision)
    if baseline is not None:
        seen = best(tcp.rates)
        text += compared(seen, baseline, words)
        yield from fallen(seen, decision, baseline, words)
    yield ok(CLUSTER, text, measures=_measures(tcp.rates))


def _summary(tcp: TcpRates, decision: Decision) -> str:
    values = sorted(r.gbyte_s for r in tcp.rates if r.gbyte_s is not None)
    pairs = f"{decision.pairs_measured} of {decision.pairs_possible} pairs"
    if not values:
        return f"{pairs} tried, and nothing passed"
    middle = values[len(values) // 2]
    text = f"slowest pair {gbit(values[0])}, median {gbit(middle)}, {pairs} in {tcp.rounds} rounds"
    busy = sum(1 for r in tcp.rates if r.busy >= BUSY)
    return text + (f"; {busy} of {len(tcp.rates)} runs limited by CPU" if busy else "")


def _measures(rates: tuple[TcpRate, ...]) -> dict[str, Measure]:
    values = sorted(r.gbyte_s * 8 for r in rates if r.gbyte_s is not None)
    found = {}
    if values:
        found["bw.tcp.slowest"] = Measure(value=values[0], unit="Gbit/s")
        found["bw.tcp.median"] = Measure(value=values[len(values) // 2], unit="Gbit/s")
    again, sent = sum(r.retransmits or 0 for r in rates), sum(r.segments or 0 for r in rates)
    if sent:
        found["bw.tcp.retransmits"] = Measure(value=100.0 * again / sent, unit="%")
    return found
