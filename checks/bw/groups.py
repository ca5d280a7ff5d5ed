"""The groups that a job makes of its ranks, all of a kind at once: which of them is slower than its peers."""

from collections.abc import Iterator, Mapping
from itertools import groupby

from netdoctor.check import check
from netdoctor.checks._shared.text import listing, size
from netdoctor.checks.bw._ranks import left_out, not_over, nothing, rank_failures
from netdoctor.checks.bw._slow import gbyte
from netdoctor.checks.bw._wrong import wrong_values
from netdoctor.facts.bandwidth import GroupRate, Groups, SizeRow
from netdoctor.facts.host import HostFacts
from netdoctor.facts.paths import Paths
from netdoctor.localise.groups import Blame, Slow, judge, peer_groups
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

NODE = Cause("groups-slow-node", "the job's groups are slower with {nodes}", LIKELY)
RAIL = Cause(
    "groups-slow-rail", "one rank of each node is slower in the job's groups, always the same", LIKELY
)
GROUP = Cause("groups-slow", "groups of the job are slower than their peers, among {nodes}", LIKELY)
FIXES: dict[Blame, Fix] = {
    Blame.NODE: look("see what the node sends, and what it is busy with", "ip -s link; cat /proc/loadavg"),
    Blame.RAIL: run("check the NIC that these ranks use, and the switch that all of those lead to"),
    Blame.GROUP: run(
        "check what these nodes use together: the route, a link of a bundle, an uplink that others load"
    ),
}


@check(
    after=["ssh.login", "net.ports", "net.path-mtu", "gloo.ifname", "nccl.ifname", "rdzv.reach"],
    profile="asked",
    cost="loads-gpu",
    required=False,
    source="https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/core/parallel_state.html",
)
def bw_groups(
    measured: Groups, hosts: Mapping[str, HostFacts], paths: Paths | None = None
) -> Iterator[Finding]:
    """The groups of ``--groups`` are as fast as each other while all of a kind work at once.

    Looks at:
        The ranks divided as the job divides them: tensor parallel ranks (tp) are neighbours, then context
        (cp), then data (dp), and stages of the pipeline (pp) are furthest apart, as Megatron-LM, DeepSpeed
        and torchtitan do by default. A dp group has all ranks that share gradients, those of cp among them;
        experts (ep) are divided on their own, by etp (default: tp) and ep. All groups of a kind work at the
        same time, as in the job: all-reduces in tp and dp, an all-to-all in ep, a ring of send/recv in cp and
        pp. Values are verified. A group is slow if it has less than 80 % of what groups of its kind that lie
        over nodes alike have, twice. The ranks are those of bw.allreduce: one per GPU, or one per node where
        nodes have no GPUs.

    Matters because:
        A pair or an all-reduce of all ranks does not load links as the job does: with 8 ranks a node, eight
        data parallel groups share the node's NICs, and a pipeline crosses one uplink with all its ranks. In
        the job every group waits for the slowest.

    Fix:
        The finding names the slow groups and what they have in common: a node, a rail, or what lies between
        their nodes. bw.pair and bw.tcp measure each path alone. What is slow only while all groups work is
        shared: an uplink, or a NIC for several ranks.
    """
    session = measured.session
    yield from left_out(measured, hosts)
    yield from rank_failures(session, hosts)
    if measured.misfit:
        yield unknown(CLUSTER, f"--groups: {measured.misfit}, one per {_unit(session.backend)}")
        return
    yield from wrong_values(_rows(measured))
    slow = judge(measured.rates, session.ranks)
    text, measures = _text(measured), _measures(measured)
    gaps = [not_over(session, paths), *_gaps(measured)]
    if slow is not None:
        yield from _slow(measured, slow, text, measures)
    elif measured.failed:
        yield unknown(
            CLUSTER, f"the groups of {measured.failed} failed, and what comes after them did not run"
        )
    elif measured.rates:
        yield ok(CLUSTER, text, measures=measures, gap="; ".join(gap for gap in gaps if gap) or None)
    elif not session.trouble and session.ranks and not measured.operations:
        yield skip("--groups makes no group of two ranks", CLUSTER)
    elif not session.trouble:
        yield from nothing(session, hosts, "; ".join(_gaps(measured)) or "no group was measured")


def _unit(backend: str) -> str:
    return "GPU" if backend == "nccl" else "node"


def _by_kind(measured: Groups) -> dict[str, list[GroupRate]]:
    return {kind: list(same) for kind, same in groupby(measured.rates, lambda one: one.kind)}


def _rows(measured: Groups) -> dict[str, tuple[SizeRow, ...]]:
    return {
        f"{measured.operations[kind]} in {kind}": tuple(one.row for one in same)
        for kind, same in _by_kind(measured).items()
    }


def _text(measured: Groups) -> str:
    """``tp: 4 groups of 2, 0.02 to 0.03 GB/s``, by kind."""
    texts = []
    for kind, same in _by_kind(measured).items():
        rates = sorted(one.gbyte_s for one in same)
        span = gbyte(rates[0]) if len(rates) == 1 else f"{gbyte(rates[0])} to {gbyte(rates[-1])}"
        many = f"{len(same)} group{'s' if len(same) > 1 else ''} of {len(same[0].ranks)}"
        texts.append(f"{kind}: {many}, {measured.operations[kind]} of {size(same[0].row.size_bytes)} {span}")
    ranks = len(measured.session.ranks)
    return "; ".join([f"{ranks} ranks ({measured.session.backend})", *texts])


def _gaps(measured: Groups) -> list[str]:
    """What was not measured, and what has nothing to be compared with."""
    world = measured.session.ranks
    alone = [
        kind
        for kind, same in _by_kind(measured).items()
        if any(len(group) == 1 for group in peer_groups(same, world).values())
    ]
    refused = [
        f"{measured.operations[kind]} is not offered by {measured.session.backend} ({kind})"
        for kind in measured.refused
    ]
    late = [f"no time was left for {listing(measured.late, 6)}"] if measured.late else []
    return [*refused, *late, *([f"{listing(alone, 6)}: no other group to compare with"] if alone else [])]


def _slow(measured: Groups, slow: Slow, text: str, measures: Mapping[str, Measure]) -> Iterator[Finding]:
    worst, world = slow.groups[0], measured.session.ranks
    cause = {Blame.NODE: NODE, Blame.RAIL: RAIL, Blame.GROUP: GROUP}[slow.blame]
    what = {
        Blame.NODE: f"every slow group has a rank on {slow.nodes[0]}, and no other group has",
        Blame.RAIL: f"every slow group is of the ranks {slow.rail} of their nodes",
        Blame.GROUP: f"the slowest is of ranks {_ranks(worst)}",
    }[slow.blame]
    count = len(slow.groups)
    for node in slow.nodes if slow.blame is Blame.NODE else (CLUSTER,):
        yield cause.warn(
            f"{count} group{'s are' if count > 1 else ' is'} slow: {what}; {text}",
            at=node,
            culprits=slow.nodes,
            observed=f"{worst.kind}: {gbyte(worst.gbyte_s)}, again {gbyte(worst.again_gbyte_s)}",
            expected=PEERS(f"80 % of {gbyte(slow.peers)}, as other groups of {worst.kind} have"),
            seen=seen("slow groups, worst first", "\n".join(_line(one, world) for one in slow.groups[:20])),
            fixes=FIXES[slow.blame],
            measures=measures,
        )


def _line(one: GroupRate, world: tuple[str, ...]) -> str:
    nodes = dict.fromkeys(world[rank] for rank in one.ranks)
    return f"{one.kind} of ranks {_ranks(one)} on {listing(nodes, 4)}: {gbyte(one.gbyte_s)}"


def _ranks(one: GroupRate) -> str:
    return listing(map(str, one.ranks), 8)


def _measures(measured: Groups) -> dict[str, Measure]:
    """The slowest and the fastest group of each kind."""
    found = {}
    for kind, same in _by_kind(measured).items():
        rates = [one.gbyte_s for one in same]
        for name, value in (("slowest", min(rates)), ("fastest", max(rates))):
            found[f"bw.groups.{kind}.{name}"] = Measure(value=value, unit="GB/s")
    return found
