"""Speed of torch.distributed between pairs of nodes."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks.bw._baseline import compared, fallen, when
from netdoctor.checks.bw._ranks import left_out, not_over, nothing, rank_failures
from netdoctor.checks.bw._slow import Words, devices, extremes, gbyte, slow, summary
from netdoctor.checks.bw._suspects import PairSuspects
from netdoctor.facts.bandwidth import Baseline, PairRates
from netdoctor.facts.net import NetFacts
from netdoctor.facts.paths import Paths
from netdoctor.facts.software import Job
from netdoctor.localise import earlier
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
    suspects: PairSuspects,
    job: Job,
    nets: Mapping[str, NetFacts],
    baseline: Baseline | None = None,
    paths: Paths | None = None,
) -> Iterator[Finding]:
    """Torch moves data between any two nodes as fast as between the others, in both directions.

    Looks at:
        Messages of torch.distributed (nccl between GPUs, else gloo) between pairs of nodes. No two pairs
        of a round share a node. Each direction is measured alone, GPU i with GPU i of the other node if
        all nodes have several. Slow pairs are measured again with partners known to be good. With
        --baseline REPORT each pair is also compared with its earlier rate.

    Matters because:
        The all-reduce over all nodes shows that something is slow. Pairs show what it is: one node with
        all its partners, one direction, one path, one rail. Slow here and fast in bw.tcp means the
        library's choice of interface or transport; slow in both means the network.

    Fix:
        Inspect what is named. If it is undecided, run the pair that the report proposes.
    """
    session = pairs.session
    if len(nets) < 2:
        yield skip("one node: there is no pair")
        return
    yield from left_out(pairs, nets)
    if not pairs.rates:
        if session.trouble:
            # bw.allreduce tells who it was: one session of ranks, one cause.
            yield from rank_failures(session, nets)
        elif len(pairs.nodes) < 2:
            yield skip("fewer than two nodes can take part", gap=next(iter(session.left_out.values()), None))
        else:
            yield from nothing(session, nets, "no pair could be measured")
        return
    before = baseline if baseline is not None and baseline.backend in ("", session.backend) else None
    words = Words(
        check="bw.pair",
        what=session.backend,
        rate=gbyte,
        rates=pairs.rates,
        devices=devices(nets, job.data_addresses),
        baseline=earlier.table(before.pairs) if before is not None else {},
    )
    decision = suspects.decision
    yield from slow(decision, words)
    yield from fallen(decision, before, words)
    then = compared(before, words)
    if baseline is not None and before is None:
        then = f"; {when(baseline)} was measured with {baseline.backend} and is not compared"
    ranks = Measure(value=len(session.ranks), unit=f"{session.backend} ranks")
    text = summary(decision, pairs.rounds, words, f" ({session.backend})") + then
    measures = extremes(words, "GB/s") | {"bw.pair.ranks": ranks}
    yield ok(CLUSTER, text, measures=measures, gap=not_over(session, paths))
