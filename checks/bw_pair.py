"""Speed of torch.distributed between pairs of nodes."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._baseline import best, compared, fallen, table, when
from netdoctor.checks._culprits import PairCulprits
from netdoctor.checks._ranks import left_out, trouble
from netdoctor.checks._slow import Words, devices, gbyte, slow
from netdoctor.facts.bandwidth import Baseline, PairRates
from netdoctor.facts.net import NetFacts
from netdoctor.facts.software import Job
from netdoctor.model import CLUSTER, Finding, Measure, ok, skip


@check(
    after=["ssh.login", "net.ports", "net.path-mtu", "gloo.ifname", "nccl.ifname", "rdzv.reach"],
    profile="full",
    cost="loads-gpu",
    required=False,
    source="https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",
)
def bw_pair(
    pairs: PairRates,
    culprits: PairCulprits,
    job: Job,
    nets: Mapping[str, NetFacts],
    baseline: Baseline | None = None,
) -> Iterator[Finding]:
    """Torch moves data between any two nodes as fast as between the others, in both directions.

    Looks at:
        Messages of torch.distributed (nccl between GPUs, gloo without) between pairs of nodes in rounds that
        share no node, each direction by itself, GPU i with GPU i of the other node where all have several.
        Slow pairs are measured again with partners known to be good. With --baseline REPORT each pair is also
        held against what it reached then.

    Matters because:
        The all-reduce of the whole says that something is slow, and pairs say what: one node with all its
        partners, one direction, one path, one rail. Slow here and fast in bw.tcp is the library's choice of
        interface or transport; slow in both is the network.

    Fix:
        Look at what is named. Where it is undecided, run the pair that the report proposes.
    """
    if len(nets) < 2:
        yield skip("one node: there is no pair")
        return
    yield from left_out(pairs.session, nets)
    if pairs.session.trouble and not pairs.rates:
        # bw.allreduce tells who it was: one session of ranks, one cause.
        yield from trouble(pairs.session, nets)
        return
    if not pairs.rates:
        if len(set(pairs.session.ranks)) < 2:
            yield skip("fewer than two nodes can take part")
        return
    other = baseline is not None and baseline.backend not in ("", pairs.session.backend)
    words = Words(
        check="bw.pair",
        what=pairs.session.backend,
        rate=gbyte,
        devices=devices(nets, job.data_addresses),
        limited_by={},
        measured=dict.fromkeys((r.src, r.dst) for r in pairs.rates),
        baseline=table(baseline.pairs) if baseline is not None and not other else {},
    )
    decision = culprits.decision
    yield from slow(decision, words)
    values = sorted(r.gbyte_s for r in pairs.rates)
    middle = values[len(values) // 2]
    then = ""
    if baseline is not None and other:
        then = f"; {when(baseline)} was measured with {baseline.backend} and is not compared"
    elif baseline is not None:
        seen = best(pairs.rates)
        then = compared(seen, baseline, words)
        yield from fallen(seen, decision, baseline, words)
    yield ok(
        CLUSTER,
        f"slowest pair {gbyte(values[0])}, median {gbyte(middle)} ({pairs.session.backend}), "
        f"{decision.pairs_measured} of {decision.pairs_possible} pairs in {pairs.rounds} rounds{then}",
        measures={
            "bw.pair.slowest": Measure(value=values[0], unit="GB/s"),
            "bw.pair.median": Measure(value=middle, unit="GB/s"),
            "bw.pair.ranks": Measure(value=len(pairs.session.ranks), unit=f"{pairs.session.backend} ranks"),
        },
    )
