"""All-reduce over all nodes, as a job does it."""

from collections.abc import Iterator, Mapping
from statistics import median
from typing import NamedTuple

from netdoctor.check import check
from netdoctor.checks._shared.text import GIB, MIB, listing, size
from netdoctor.checks.bw._baseline import LEAST_SHARE, when
from netdoctor.checks.bw._ranks import left_out, not_over, nothing, rank_failures
from netdoctor.checks.bw._slow import STOPS_BELOW, gbyte
from netdoctor.checks.bw._taken import over_tcp, taken_words
from netdoctor.facts.bandwidth import AllReduce, Baseline, SizeRow
from netdoctor.facts.host import HostFacts
from netdoctor.facts.paths import Paths
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import EnvFacts, Job
from netdoctor.model import (
    BASELINE,
    CLUSTER,
    DERIVED,
    LIKELY,
    PEERS,
    Action,
    Cause,
    ExpectedFrom,
    Finding,
    Measure,
    ok,
    seen,
)

# Below these sizes latency and start-up rule, and no bound of a link says anything.
LEAST_BYTES = {"nccl": GIB, "gloo": 4 * MIB}
# Against the same size of the baseline latency counts as well, but start-up does not.
LEAST_COMPARED = MIB
# gloo adds up on the CPU, which others use too: between runs in the lab it scattered by 8 %.
BASELINE_SHARE = {"nccl": LEAST_SHARE, "gloo": 0.8}

WRONG = Cause("allreduce-wrong-sums", "an all-reduce gives wrong sums on {nodes}")
SOLO = Cause("allreduce-solo-slow", "the GPUs of {nodes} are slow among themselves", LIKELY).but(
    action=Action.DRAIN
)
SLOW = Cause(
    "allreduce-slow",
    "the all-reduce over all nodes is slower than the hardware allows",
    LIKELY,
    settle_by="netdoctor scan --last --profile full --only 'bw.*'",
)
SLOWER = SLOW.but(title="the all-reduce over all nodes is slower than in the baseline")


@check(
    after=[
        "ssh.login",
        "net.ports",
        "net.path-mtu",
        "gloo.ifname",
        "nccl.ifname",
        "rdzv.addr",
        "rdzv.reach",
        "sw.python",
    ],
    profile="launch",
    cost="loads-gpu",
    source="https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",
)
def bw_allreduce(
    reduced: AllReduce,
    hosts: Mapping[str, HostFacts],
    baseline: Baseline | None = None,
    rdma: Mapping[str, RdmaFacts] | None = None,
    envs: Mapping[str, EnvFacts] | None = None,
    job: Job | None = None,
    paths: Paths | None = None,
) -> Iterator[Finding]:
    """An all-reduce over all nodes works, adds up correctly, and is as fast as the hardware allows.

    Looks at:
        A real torch.distributed job: one rank per GPU with nccl, or one per node with gloo if there are
        no GPUs. It uses the job's interfaces, and the job's own address and port for the rendezvous if
        the port is free. Sizes go from small to large, as many as fit the time (--budget). The result is
        the median over batches of the slowest rank's time; every value is compared with the correct sum.
        busbw is algbw x 2(n-1)/n, as in nccl-tests, in GB/s of 10^9 bytes. A node does not take part
        while somebody's process is on a GPU that the job would use. With --baseline REPORT the same size
        is also compared with the earlier result. With nccl, NCCL's own log says what it used between and
        inside nodes: RDMA, TCP, NVLink.

    Matters because:
        This is what training does all day. It needs everything at once: the same library on all nodes, a
        rendezvous, ports in both directions, interfaces that reach each other. It is as fast as its
        slowest part, and every GPU of the cluster waits for that part.

    Fix:
        A rank that died, froze or did not arrive is named with its own last message. If the rate is low,
        bw.pair and bw.tcp (profile full) name the node, direction or path that slows the others down.
    """
    if not hosts:
        return
    session = reduced.session
    yield from left_out(reduced, hosts)
    yield from rank_failures(session, hosts)
    yield from over_tcp(reduced, rdma or {}, envs or {}, job or Job())
    for node, rows in reduced.solo.items():
        yield from _wrong(rows, f"inside {node}")
        yield from _solo(node, reduced)
    yield from _wrong(reduced.rows, "over all ranks")
    if not reduced.rows:
        if not session.trouble:
            why = next((f": {text}" for text in reduced.unread.values()), "")
            yield from nothing(session, hosts, f"no size was measured{why}")
        return
    best = max(reduced.rows, key=lambda row: row.size_bytes)
    before = _before(reduced, baseline)
    yield from _judged(_derived(reduced, best), before)
    gap, text = not_over(session, paths), _summary(reduced, best, before, baseline)
    yield ok(CLUSTER, f"{text}; {gap}" if gap else text, measures=_measures(reduced, best), gap=gap)


def _wrong(rows: tuple[SizeRow, ...], where: str) -> Iterator[Finding]:
    bad = [row for row in rows if row.wrong]
    nodes = tuple(dict.fromkeys(node for row in bad for node in row.wrong))
    sizes = listing((size(row.size_bytes) for row in bad), 4)
    for node in nodes:
        count = sum(row.wrong.get(node, 0) for row in bad)
        yield WRONG.fail(
            f"{count} values of an all-reduce {where} are wrong (at {sizes})",
            at=node,
            culprits=nodes,
            observed=bad[0].first_wrong or f"{count} wrong values",
            expected="the exact sum",
            seen=seen(f"all-reduce of whole numbers, {where}", bad[0].first_wrong),
        )


def _solo(node: str, reduced: AllReduce) -> Iterator[Finding]:
    """One node by itself: against its own hardware, and against the other nodes."""
    last = ((n, rows[-1]) for n, rows in reduced.solo.items() if rows)
    rates = {n: row.busbw_gbyte_s for n, row in last if row.size_bytes >= LEAST_BYTES["nccl"]}
    if (rate := rates.pop(node, None)) is None:
        return
    floor = reduced.solo_floor_gbyte_s.get(node)
    low = [(floor, DERIVED, "what its GPUs and their links should reach")] if floor else []
    if len(rates) >= 2:
        low.append((0.9 * median(rates.values()), PEERS, "nine tenths of the peers' median"))
    for least, origin, words in low:
        if rate < least:
            say = SOLO.fail if rate < STOPS_BELOW * least else SOLO.warn
            yield say(
                f"busbw {gbyte(rate)} among its own GPUs",
                at=node,
                observed=gbyte(rate),
                expected=origin(f"at least {gbyte(least)}, {words}"),
            )
            return


class _Expected(NamedTuple):
    """One expectation for one row."""

    row: SizeRow
    gbyte_s: float
    least_gbyte_s: float
    origin: ExpectedFrom
    words: str  # as the report shows it

    @property
    def share(self) -> float:
        return self.row.busbw_gbyte_s / self.gbyte_s


def _judged(*expected: _Expected | None) -> Iterator[Finding]:
    """Against the bound of the hardware and against the baseline, as far as they are known."""
    known = sorted((one for one in expected if one is not None), key=lambda one: one.share)
    worst = next((one for one in known if one.row.busbw_gbyte_s < one.least_gbyte_s), None)
    if worst is None:
        return
    rate = gbyte(worst.row.busbw_gbyte_s)
    cause, what = (
        (SLOW, "what such hardware reaches") if worst.origin is DERIVED else (SLOWER, "the baseline")
    )
    yield (cause.fail if worst.share < STOPS_BELOW else cause.warn)(
        f"busbw {rate} at {size(worst.row.size_bytes)}, {100 * worst.share:.0f} % of {what}",
        at=CLUSTER,
        observed=rate,
        expected=worst.origin("; ".join(one.words for one in (worst, *(o for o in known if o is not worst)))),
    )


def _derived(reduced: AllReduce, best: SizeRow) -> _Expected | None:
    """The bound of the hardware, where that is known and the size large enough to reach it."""
    expected, floor = reduced.expected_busbw_gbyte_s, reduced.floor_busbw_gbyte_s
    if expected is None or floor is None or best.size_bytes < LEAST_BYTES[reduced.session.backend]:
        return None
    words = f"{gbyte(expected)}, at least {gbyte(floor)}; limited by {reduced.limited_by}"
    return _Expected(best, expected, floor, DERIVED, words)


def _before(reduced: AllReduce, baseline: Baseline | None) -> _Expected | None:
    """The baseline's figure for the largest size that both have, over as many ranks."""
    if baseline is None or baseline.ranks != len(reduced.session.ranks):
        return None
    if baseline.backend not in ("", reduced.session.backend):
        return None
    then = dict(baseline.busbw_gbyte_s)
    common = [row for row in reduced.rows if then.get(row.size_bytes, 0.0) > 0]
    row = max(common, key=lambda r: r.size_bytes, default=None)
    if row is None or row.size_bytes < LEAST_COMPARED:
        return None
    value = then[row.size_bytes]
    least = BASELINE_SHARE[reduced.session.backend] * value
    return _Expected(row, value, least, BASELINE, f"{gbyte(value)} in {when(baseline)}")


def _summary(reduced: AllReduce, best: SizeRow, before: _Expected | None, baseline: Baseline | None) -> str:
    session = reduced.session
    nodes, ranks = len(set(session.ranks)), f"{len(session.ranks)} ranks"
    on = f" on {nodes} nodes" if len(session.ranks) != nodes else ""
    text = (
        f"busbw {gbyte(best.busbw_gbyte_s)} at {size(best.size_bytes)} ({session.backend}, {ranks}{on}, "
        f"spread {100 * best.spread:.0f} %)"
    )
    text += taken_words(reduced)
    if reduced.expected_busbw_gbyte_s is not None:
        text += f", expected {gbyte(reduced.expected_busbw_gbyte_s)}, limited by {reduced.limited_by}"
    if before is not None:
        text += f"; {100 * before.share:.0f} % of the baseline"
    elif baseline is not None and baseline.busbw_gbyte_s:
        text += "; the baseline had other ranks, sizes or another backend and is not compared"
    if reduced.survivor_rows:
        other = max(reduced.survivor_rows, key=lambda row: row.size_bytes)
        lost = [n for n in dict.fromkeys(session.ranks) if n not in reduced.survivors]
        text += f"; without {listing(lost, 3)}: {gbyte(other.busbw_gbyte_s)} at {size(other.size_bytes)}"
    if session.port_busy:
        text += f"; the job's port was taken, {session.port} used instead"
    return text


def _measures(reduced: AllReduce, best: SizeRow) -> dict[str, Measure]:
    session = reduced.session
    found = {
        "busbw": Measure(value=best.busbw_gbyte_s, unit="GB/s"),
        "ranks": Measure(value=len(session.ranks), unit=f"{session.backend} ranks"),
    }
    for row in reduced.rows:
        busbw, at = row.busbw_gbyte_s, row.size_bytes
        spread_ms = 1e3 * (row.most_s - row.least_s)
        found[f"busbw.{at}"] = Measure(value=busbw, unit="GB/s", error=busbw * row.spread / 2)
        found[f"algbw.{at}"] = Measure(value=row.algbw_gbyte_s, unit="GB/s")
        found[f"time.{at}"] = Measure(value=1e3 * row.median_s, unit="ms", error=spread_ms / 2)
    if reduced.survivor_rows:
        other = max(reduced.survivor_rows, key=lambda row: row.size_bytes)
        found["survivors"] = Measure(value=other.busbw_gbyte_s, unit="GB/s")
    for node, rows in reduced.solo.items():
        if rows:
            found[f"solo.{node}"] = Measure(value=rows[-1].busbw_gbyte_s, unit="GB/s")
    return {f"bw.allreduce.{name}": measure for name, measure in found.items()}
