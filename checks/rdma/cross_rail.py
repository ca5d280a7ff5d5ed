"""Whether NICs of different rails reach each other, where NCCL would pair them."""

from collections.abc import Iterator, Mapping, Sequence

from netdoctor.check import check
from netdoctor.checks._shared.env import export
from netdoctor.checks._shared.matrix import Kind, decode_to
from netdoctor.checks._shared.text import listing
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import PortMatrix
from netdoctor.facts.paths import Paths
from netdoctor.facts.software import EnvFacts, Job
from netdoctor.model import CLUSTER, PEERS, Cause, Confidence, Evidence, Finding, in_job, ok, run, seen, skip
from netdoctor.rules.rails import CROSS_NIC, Crossing, crossings, is_crossed, is_kept, leaves_rail, never_met
from netdoctor.rules.variables import effective_env, values

SEPARATE = Cause("rails-separate", "NICs of different rails do not reach each other, and NCCL pairs them")
NODE = Cause("rails-closed", "other rails are out of reach of {nodes}, where other nodes reach them")
# What shows that RDMA does not arrive either.
WAYLESS = {"no_route": "no route", "refused": "arrives on another interface than that of the rail"}
KEEP = in_job("keep NCCL on its own rail, on every node", export(CROSS_NIC, "0"), persistent=True)
ROUTE = run("give the interface of each rail a route to the networks of the others")
EXPECTED = f"rails that reach each other, or {CROSS_NIC}=0"


@check(
    after=["net.ports", "rdma.gid"],
    profile="launch",
    source="https://github.com/NVIDIA/nccl/blob/v2.30.7-1/src/graph/search.cc",
)
def rdma_cross_rail(
    ports: PortMatrix,
    paths: Paths,
    hosts: Mapping[str, HostFacts],
    gpus: Mapping[str, GpuFacts] | None,
    envs: Mapping[str, EnvFacts] | None,
    job: Job,
) -> Iterator[Finding]:
    """NCCL pairs only such NICs as reach each other.

    Looks at:
        Connections from the address of one RoCE rail to another rail of each peer, over that rail's
        interface, a few for each pair of nodes of which the rails themselves work. NCCL_CROSS_NIC,
        NCCL_PXN_DISABLE, NCCL_P2P_PXN_LEVEL and NCCL_P2P_DISABLE, and whether GPUs have NVLink.

    Matters because:
        In a rail-only fabric NIC 3 of a node reaches NIC 3 of the others and nothing else. Rings stay on
        their rail by themselves. Ranks that send to each other (all-to-all, gather, pipelines, a
        checkpoint) do so only with PXN, which needs NVLink; else the job trains for hours and ends at its
        first checkpoint with "ibv_modify_qp failed with 110 Connection timed out". NCCL_CROSS_NIC=1 pairs
        such NICs in rings, too.

    Fix:
        NCCL_CROSS_NIC=0 on every node. Where rails ought to meet, a route between their networks.
    """
    rails = [rail for rail in paths.rails if rail.tried]
    if len(rails) < 2:
        yield skip(paths.left_out.get("between rails", "fewer than two RoCE rails"), CLUSTER)
        return
    settings = {node: values(effective_env((envs or {}).get(node), job)) for node in hosts}
    found = crossings(ports, paths)
    closed = [one for one in found if not one.is_open]
    if not found:
        why = "no two nodes whose rails work were tried across rails"
        yield skip(why, CLUSTER, gap="whether rails reach each other")
        return
    if not closed:
        yield ok(CLUSTER, f"NICs of different rails reach each other: {len(found)} tries")
        return
    text = f"{len(closed)} of {len(found)} tries from one rail to another do not arrive"
    if all(map(is_kept, settings.values())):
        yield ok(CLUSTER, f"{text}; {CROSS_NIC}=0 keeps NCCL from that")
        return
    crossing = [node for node, env in settings.items() if is_crossed(env)]
    reasons: dict[str | None, str] = {}
    for node, env in settings.items():
        reasons.setdefault(leaves_rail(env, (gpus or {}).get(node)), node)
    words = [why for why in reasons if why]
    if len(closed) < len(found) and not any(never_met(found)):
        yield from _of_nodes(found, bool(crossing))
    elif crossing or words:
        why = f"{CROSS_NIC}=1" if crossing else listing(words)
        where = crossing[0] if crossing else reasons[words[0]]
        cause = SEPARATE.but(confidence=_confidence(closed))
        yield (cause.fail if crossing else cause.warn)(
            f"{text}, and NCCL pairs such NICs: {why} on {where}",
            at=CLUSTER,
            observed=text,
            expected=EXPECTED,
            seen=_evidence(closed),
            fixes=KEEP,
        )
    elif None in reasons:
        gap = "whether NCCL pairs NICs of different rails, which do not reach each other"
        yield ok(CLUSTER, f"{text}; {CROSS_NIC}=0 keeps NCCL from that", gap=gap)
    else:
        yield ok(CLUSTER, f"{text}, and NCCL stays on its rail here; {CROSS_NIC}=0 makes sure")


def _of_nodes(found: Sequence[Crossing], stops: bool) -> Iterator[Finding]:
    """The nodes at which it fails, where every two rails meet elsewhere."""
    cells: dict[tuple[str, str], bool] = {}
    for one in found:
        cells[one.src, one.dst] = cells.get((one.src, one.dst), False) or not one.is_open
    for fault in decode_to(cells):
        ends = fault.nodes if fault.kind is not Kind.PATH else fault.nodes[:1]
        for node in ends:
            bad = [one for one in found if not one.is_open and node in (one.src, one.dst)]
            cause = NODE.but(confidence=_confidence(bad))
            rails = listing(dict.fromkeys(one.rails[one.dst == node] for one in bad))
            yield (cause.fail if stops else cause.warn)(
                f"tries across rails do not arrive: {rails}",
                at=node,
                observed=f"{len(bad)} tries that do not arrive",
                expected=PEERS("rails that reach each other"),
                seen=_evidence(bad),
                fixes=(ROUTE, KEEP),
            )


def _confidence(closed: Sequence[Crossing]) -> Confidence:
    """A firewall of a node drops TCP, and RDMA passes by it; without a way there is neither."""
    certain = all(one.probe.outcome in WAYLESS for one in closed)
    return Confidence.CERTAIN if certain else Confidence.LIKELY


def _evidence(closed: Sequence[Crossing]) -> tuple[Evidence, ...]:
    return tuple(
        seen(
            f"TCP from {one.probe.source} ({one.rails[0]}) to {one.dst} {one.probe.address} ({one.rails[1]})",
            WAYLESS.get(one.probe.outcome, one.probe.outcome),
            at=one.src,
        )
        for one in closed[:3]
    )
