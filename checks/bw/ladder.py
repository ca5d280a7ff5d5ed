"""The same small training on two nodes, four, all: where it gets slower, and what makes it so."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.text import listing, size
from netdoctor.checks.bw._ranks import left_out, not_over, nothing, rank_failures
from netdoctor.checks.bw._slow import gbyte
from netdoctor.facts.bandwidth import Ladder, LadderRun
from netdoctor.facts.host import HostFacts
from netdoctor.facts.paths import Paths
from netdoctor.localise.ladder import GOOD, Blame, Climb, climb, rate
from netdoctor.model import (
    CLUSTER,
    LIKELY,
    PEERS,
    Cause,
    Finding,
    Fix,
    Measure,
    look,
    ok,
    run,
    seen,
    skip,
    unknown,
)

NODE = Cause("ladder-slow-node", "training is slower with {nodes}", LIKELY)
PATH = Cause("ladder-slow-path", "training is slower over what lies between {nodes}", LIKELY)
SHARED = Cause("ladder-shared", "training gets slower with the number of nodes, whichever they are", LIKELY)


@check(
    after=["ssh.login", "net.ports", "net.path-mtu", "gloo.ifname", "nccl.ifname", "rdzv.reach"],
    profile="full",
    cost="loads-gpu",
    required=False,
    source="https://docs.pytorch.org/docs/stable/notes/ddp.html",
)
def bw_ladder(
    measured: Ladder, hosts: Mapping[str, HostFacts], paths: Paths | None = None
) -> Iterator[Finding]:
    """A small training is as fast on four nodes, eight and all as it is on two.

    Looks at:
        Steps of a DistributedDataParallel model that computes little and exchanges gradients of 1 MiB or
        more, on the first two nodes of the list, four, eight and so on up to all. A rate is the bytes of the
        gradients by the time of a step, times 2(n-1)/n over n ranks, as busbw of an all-reduce: equal links
        give the same rate on any number of nodes. Each size keeps 90 % of the one below; two other nodes
        stand below the first. What is slower is measured twice, and the fastest step counts. Then parts of
        the new nodes are run with nodes that were fine, half by half.

    Matters because:
        This is what people do by hand: one node, two, four. Where a job gets slower with its size, all its
        GPUs wait for one node, one path, or a switch that has no more to give.

    Fix:
        For a node or path see bw.pair and bw.tcp, which measure each one. If no node is slow by itself, look
        at uplinks between switches, and at what else uses them. `netdoctor try --ladder` climbs with the
        job's own command.
    """
    session = measured.session
    yield from left_out(measured, hosts)
    yield from rank_failures(session, hosts)
    if not measured.runs:
        if session.ranks and len(set(session.ranks)) < 2:
            yield skip("one node has nothing to climb", CLUSTER)
        elif not session.trouble:
            yield from nothing(session, hosts, "no step was measured in its time")
        return
    rest = iter(measured.runs)
    found = climb(list(dict.fromkeys(session.ranks)), lambda nodes: next(rest, None))
    measures = _measures(found, measured)
    rates = "; ".join(f"{len(one.nodes)} nodes {gbyte(one.gbyte_s)}" for one in found.rungs)
    text = f"training with gradients of {size(measured.gradient_bytes)} ({session.backend}): {rates}"
    if found.blame is Blame.NOTHING and not session.trouble:
        gaps = [
            not_over(session, paths),
            "two nodes have no others to compare with" if len(hosts) < 3 else None,
        ]
        yield ok(CLUSTER, text, measures=measures, gap="; ".join(one for one in gaps if one) or None)
    elif found.blame in (Blame.NOTHING, Blame.OPEN):
        yield unknown(CLUSTER, f"{text}; more was not measured in its time", measures=measures)
    else:
        yield from _slow(found, text, measures)


def _slow(found: Climb, text: str, measures: Mapping[str, Measure]) -> Iterator[Finding]:
    runs = [*found.rungs, *found.searched]
    slowest, fastest = found.rungs[-1], max(runs, key=rate)
    if found.from_nodes == 2:  # the first two may be the good ones
        slowest = min(runs, key=rate)
    count = found.from_nodes
    cause = {Blame.NODE: NODE, Blame.PATH: PATH}.get(found.blame) or SHARED
    what = {
        Blame.NODE: f"with {listing(found.nodes, 4)}, whichever other node takes part",
        Blame.PATH: f"with {listing(found.nodes, 4)} together; with others each of them is fine",
        Blame.SHARED: f"{count} nodes together; its parts are fine",
    }[found.blame]
    fixes: dict[Blame, Fix] = {
        Blame.NODE: look(
            "see what the node sends, and what it is busy with", "ip -s link; cat /proc/loadavg"
        ),
        Blame.PATH: run(
            "check what only these nodes use together: the route, a link of a bundle, a rate limit"
        ),
        Blame.SHARED: run("check the uplinks between switches, and who else uses them"),
    }
    for node in found.nodes if found.blame is Blame.NODE else (CLUSTER,):
        yield cause.warn(
            f"slower {what}: {gbyte(slowest.best_gbyte_s)}, others {gbyte(fastest.best_gbyte_s)}; {text}",
            at=node,
            culprits=found.nodes,
            observed=f"{gbyte(slowest.best_gbyte_s)} on {len(slowest.nodes)} nodes",
            expected=PEERS(f"{GOOD:.0%} of {gbyte(fastest.best_gbyte_s)}, as on {listing(fastest.nodes, 3)}"),
            seen=seen("runs in their order", "\n".join(map(_line, runs))),
            fixes=fixes[found.blame],
            measures=measures,
        )


def _line(one: LadderRun) -> str:
    return f"{listing(one.nodes, 3)}: {gbyte(one.gbyte_s)}, {1e3 * one.step_s:.3g} ms a step"


def _measures(found: Climb, measured: Ladder) -> dict[str, Measure]:
    values = {"alone_ms": Measure(value=1e3 * measured.alone_s, unit="ms")}
    for one in found.rungs:
        values[f"rate.{len(one.nodes)}"] = Measure(value=one.gbyte_s, unit="GB/s")
        values[f"step.{len(one.nodes)}"] = Measure(value=1e3 * one.step_s, unit="ms")
    return {f"bw.ladder.{name}": value for name, value in values.items()}
