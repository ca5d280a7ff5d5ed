"""TCP throughput between nodes."""

from collections.abc import Iterator, Mapping, Sequence

from netdoctor.check import check
from netdoctor.checks._shared.matrix import left_out
from netdoctor.checks._shared.paths import about_path, on_path, path_text
from netdoctor.checks.bw._baseline import compared, fallen
from netdoctor.checks.bw._slow import Words, devices, extremes, gbit, slow, summary
from netdoctor.checks.bw._suspects import TcpSuspects
from netdoctor.facts.bandwidth import Baseline, TcpRates
from netdoctor.facts.localisation import Decision
from netdoctor.facts.net import NetFacts
from netdoctor.facts.paths import Path, Paths
from netdoctor.facts.software import Job
from netdoctor.localise import BUSY, earlier
from netdoctor.model import CLUSTER, Finding, Measure, ok, skip

Way = tuple[Path | None, Decision, Words]


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
        Four parallel TCP streams between agents. No two pairs of a round share a node, and each direction
        is measured alone: every pair up to 16 nodes if time permits, beyond that a few partners per node.
        Slow pairs are measured again with partners known to be good. If the job dials nodes over several
        networks, each network gets an equal part of the time. With --baseline REPORT each pair is also
        compared with its earlier rate.

    Matters because:
        A collective is as fast as its slowest link. Bootstrap, gloo, checkpoints and NCCL without RDMA
        all use TCP. A link at low speed, or a rate limit on one path, shows here before it shows in a
        job.

    Fix:
        Inspect the node, direction or path that is named: link speed, traffic shaping, error counters,
        cable. If it is undecided, run the pair that the report proposes.
    """
    if len(nets) < 2:
        yield skip("one node: there is no pair")
        return
    for rates in (tcp, *tcp.further.values()):
        yield from left_out("TCP throughput was not measured", rates, nets if rates is tcp else rates.nodes)
    if not tcp.rates:
        if not tcp.failed_nodes:
            yield skip("no two nodes reach each other")
        return
    words = _words(tcp, nets, job.data_addresses, earlier.table(baseline.tcp) if baseline is not None else {})
    further = [
        (path, suspects.further[path.id], one, _words(one, nets, path.addresses, {}))
        for path in (paths.further if paths else ())
        if (one := tcp.further.get(path.id)) is not None and one.rates
    ]
    yield from _slow_on([(None, suspects.decision, words), *((p, d, w) for p, d, _, w in further)])
    yield from fallen(suspects.decision, baseline, words)
    text, measures = summary(suspects.decision, tcp.rounds, words), extremes(words, "Gbit/s", 8)
    for path, decision, one, path_words in further:
        text += f"{path_text((path,))}: {summary(decision, one.rounds, path_words)}"
    busy = sum(1 for r in tcp.rates if r.busy >= BUSY)
    if busy and measures:
        text += f"; {busy} of {len(tcp.rates)} runs limited by CPU"
    again, sent = sum(r.retransmits or 0 for r in tcp.rates), sum(r.segments or 0 for r in tcp.rates)
    if sent:
        measures["bw.tcp.retransmits"] = Measure(value=100.0 * again / sent, unit="%")
    yield ok(CLUSTER, text + compared(baseline, words), measures=measures)


def _words(
    rates: TcpRates,
    nets: Mapping[str, NetFacts],
    addresses: Mapping[str, str],
    baseline: Mapping[tuple[str, str], float],
) -> Words:
    """How to speak of the rates of one path, on which nodes have these addresses."""
    return Words(
        check="bw.tcp",
        what="TCP",
        rate=gbit,
        rates=rates.rates,
        devices=devices(nets, addresses),
        limited_by=rates.limited_by,
        derived=bool(rates.expected_gbyte_s),
        baseline=baseline,
    )


def _slow_on(ways: Sequence[Way]) -> Iterator[Finding]:
    """`slow`, with paths named; who is slow on several is one cause, of the first."""
    blamed: set[tuple[str, tuple[str, ...]] | None] = set()
    for path, decision, words in ways:
        here = set()
        for one in slow(decision, words):
            key = (one.cause.key, one.cause.culprits) if one.cause else None
            yield about_path(one, path) if key in blamed else on_path(one, path)
            here.add(key)
        blamed |= here - {None}
