"""The collectives that a training job runs beside the all-reduce."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks.bw._ranks import left_out, not_over, nothing, rank_failures
from netdoctor.checks.bw._slow import gbyte
from netdoctor.checks.bw._wrong import size_of, wrong_values
from netdoctor.facts.bandwidth import Collectives, SizeRow
from netdoctor.facts.host import HostFacts
from netdoctor.facts.paths import Paths
from netdoctor.model import CLUSTER, Finding, Measure, ok, skip, unknown

# Up to this size time is latency, beyond it rates are shown (nccl-tests, doc/PERFORMANCE.md).
LATENCY_BYTES = 64 * 1024


@check(
    after=["ssh.login", "net.ports", "net.path-mtu", "gloo.ifname", "nccl.ifname", "rdzv.reach"],
    profile="full",
    cost="loads-gpu",
    required=False,
    source="https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",
)
def bw_collectives(
    measured: Collectives, hosts: Mapping[str, HostFacts], paths: Paths | None = None
) -> Iterator[Finding]:
    """Every collective that a training job runs works over all nodes, and moves the right values.

    Looks at:
        All-reduce, all-gather, reduce-scatter, all-to-all, broadcast, and send/recv around a ring, by the
        same ranks and over the same interfaces as bw.allreduce. Each rank compares every value that it gets:
        sums of whole numbers, and numbers that tell who sent them, to whom and at which place. Then time at
        8 B to 64 KiB (latency) and rates at larger sizes, as many as fit the time (--budget). algbw and busbw
        are those of nccl-tests: busbw is algbw x 2(n-1)/n for all-reduce, x (n-1)/n for all-gather,
        reduce-scatter and all-to-all, and x 1 for broadcast and send/recv. The size of an all-gather,
        reduce-scatter or all-to-all is that of all ranks' pieces together. Rates and latencies are measures:
        nothing is expected of them here.

    Matters because:
        Sharded training (ZeRO, FSDP) gathers and scatters, experts exchange all-to-all, pipelines send and
        receive. They take other paths through the library than the all-reduce, and can fail, hang or be wrong
        where it works.

    Fix:
        The finding names the collective, and the node if its values show it. Run it alone with nccl-tests
        (all_gather_perf, alltoall_perf, …) on that node with another one. For wrong values take the node out,
        and test its memory, its GPU and its NIC.
    """
    session = measured.session
    yield from left_out(measured, hosts)
    yield from rank_failures(session, hosts)
    yield from wrong_values(measured.rows)
    words = [_words(name, rows) for name, rows in measured.rows.items() if rows]
    measures = _measures(measured)
    if measured.failed:
        after = f"{measured.failed} failed, and what comes after it did not run"
        yield unknown(CLUSTER, after, measures=measures)
    elif words:
        gaps = [not_over(session, paths), *_gaps(measured)]
        gap = "; ".join(text for text in gaps if text) or None
        ranks = f"{session.backend}, {len(session.ranks)} ranks"
        text = "; ".join([f"{len(words)} collectives ({ranks})", *words, *([gap] if gap else [])])
        yield ok(CLUSTER, text, measures=measures, gap=gap)
    elif session.ranks and len(session.ranks) < 2:
        yield skip("one rank has nobody to exchange with", CLUSTER)
    elif not session.trouble:
        yield from nothing(session, hosts, "; ".join(_gaps(measured)) or "no collective was measured")


def _words(name: str, rows: tuple[SizeRow, ...]) -> str:
    """``all-gather 120 us at 32 B, busbw 11.2 GB/s at 64 MiB``: the smallest and the largest size."""
    least, most = rows[0], rows[-1]
    text = f"{name} {1e6 * least.median_s:.0f} us at {size_of(least)}"
    if most.size_bytes <= LATENCY_BYTES:
        return f"{text}, no rate within its time"
    return f"{text}, busbw {gbyte(most.busbw_gbyte_s)} at {size_of(most)}"


def _gaps(measured: Collectives) -> list[str]:
    """What was not measured: not offered, or without a size."""
    backend, torch = measured.session.backend, measured.session.torch
    refused = [f"{name} is not offered by {backend} of torch {torch}" for name in measured.refused]
    empty = [f"{name} was not measured" for name, rows in measured.rows.items() if not rows]
    return [*refused, *empty]


def _measures(measured: Collectives) -> dict[str, Measure]:
    found = {}
    for name, rows in measured.rows.items():
        for row in rows:
            at, spread_us = row.size_bytes, 1e6 * (row.most_s - row.least_s)
            if at <= LATENCY_BYTES:
                found[f"{name}.latency.{at}"] = Measure(
                    value=1e6 * row.median_s, unit="us", error=spread_us / 2
                )
                continue
            busbw = row.busbw_gbyte_s
            found[f"{name}.busbw.{at}"] = Measure(value=busbw, unit="GB/s", error=busbw * row.spread / 2)
            found[f"{name}.algbw.{at}"] = Measure(value=row.algbw_gbyte_s, unit="GB/s")
    return {f"bw.collectives.{name}": measure for name, measure in found.items()}
