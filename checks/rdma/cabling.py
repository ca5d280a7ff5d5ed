"""Whether the RoCE ports that NCCL pairs are in one network."""

from collections.abc import Iterable, Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.addresses import holds
from netdoctor.checks._shared.env import export
from netdoctor.checks._shared.text import listing
from netdoctor.facts.net import NetFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import EnvFacts, Job, SoftwareFacts
from netdoctor.model import (
    CLUSTER,
    DERIVED,
    LIKELY,
    Cause,
    Evidence,
    Finding,
    Fix,
    in_job,
    ok,
    run,
    seen,
    skip,
)
from netdoctor.rules.addresses import network
from netdoctor.rules.cabling import Cabling, End, Ends, cabling, odd_ones
from netdoctor.rules.nccl_ib import choose_gids, gid_ipv4, selected_ports, switched_off_by
from netdoctor.rules.variables import SUBNET_AWARE, effective_env, goes_by_subnet, values
from netdoctor.rules.versions import Version, nccl_version
from netdoctor.text import is_plain_name

CROSSED = Cause("rails-crossed", "RoCE ports of {nodes} are in each other's networks", LIKELY)
RING = Cause(
    "rails-ring", "{nodes} are joined by cables without a switch, and NCCL is not set up for it", LIKELY
)
ALONE = Cause("rails-alone", "NCCL on {nodes} would use RoCE ports that meet no other node", LIKELY)
MOVE = run("move the cables, or give each port an address in the network that it has on the other nodes")
CABLES = run("cable the first socket of each node to the second socket of the next one, all the way round")
# A merged device is taken where all of its ports meet the peer's, which those of two sockets never do.
ROUTED = f"export {SUBNET_AWARE}=1 NCCL_IB_MERGE_NICS=0"


@check(
    after=["rdma.gid"],
    explains=["net.ports"],
    source="https://github.com/NVIDIA/nccl/blob/v2.30.7-1/src/transport/net_ib/connect.cc",
)
def rdma_cabling(
    nodes: Mapping[str, RdmaFacts],
    nets: Mapping[str, NetFacts],
    envs: Mapping[str, EnvFacts] | None,
    softwares: Mapping[str, SoftwareFacts] | None,
    job: Job,
) -> Iterator[Finding]:
    """RoCE ports that NCCL pairs are in one network; crossed cables and rings are not.

    Looks at:
        The networks of the addresses behind the GIDs that NCCL takes, port by port in its order;
        NCCL_IB_SUBNET_AWARE_ROUTING and NCCL_ALGO. Skipped where no two nodes share a network, as
        where every port is routed.

    Matters because:
        NCCL pairs the ports of two nodes by their place in the list. If cables or addresses are crossed,
        or three nodes are joined in a ring, it pairs two that do not meet, and the job ends at its first
        collective with "ibv_modify_qp failed with 110 Connection timed out", with the local and the remote
        GID in different networks. In a ring of four, NCCL's trees need the two that are not joined.

    Fix:
        The same port in the same network everywhere. For a ring NCCL 2.30.7 or newer, with
        NCCL_IB_SUBNET_AWARE_ROUTING=1, and NCCL_ALGO=Ring from four nodes on.
    """
    plain = {node: values(effective_env((envs or {}).get(node), job)) for node in nodes}
    versions = {node: nccl_version((softwares or {}).get(node)) for node in nodes}
    if other := _other_transport(plain.values(), versions.values()):
        yield skip(f"{other}: NCCL's own choice of HCAs does not count", CLUSTER)
        return
    ends: dict[str, list[End]] = {}
    for node, rdma in nodes.items():
        env = effective_env((envs or {}).get(node), job, versions[node])
        for choice in choose_gids(rdma.hcas, env, versions[node]):
            address = gid_ipv4(choice.gid) if choice.gid else None
            row = holds(nets[node], address) if address and node in nets else None
            if row is not None:
                ends.setdefault(node, []).append(End(choice.port.name, str(network(row))))
    found = cabling(ends)
    if not any(found.shared.values()):
        yield skip("no two nodes share a network of RoCE ports", CLUSTER)
        return
    by_subnet = all(goes_by_subnet(plain[node], versions[node]) for node in ends)
    alarms = [*_ring(ends, found, plain, by_subnet)] if found.is_ring else [*_crossed(ends, found, by_subnet)]
    alarms += _alone(nodes, ends, found, by_subnet)
    yield from alarms
    if not alarms:
        ways = f"{len(ends)} nodes in a ring, NCCL goes by networks" if found.is_ring else "place by place"
        yield ok(CLUSTER, f"the RoCE ports that NCCL pairs share a network: {ways}")


def _other_transport(envs: Iterable[Mapping[str, str]], versions: Iterable[Version | None]) -> str:
    """What carries the data in place of NCCL's own HCA code, such as a plugin that knows rings."""
    for env, version in zip(envs, versions, strict=True):
        if off := switched_off_by(env, version):
            return f"{off}={env[off]}"
        plugin = env.get("NCCL_NET_PLUGIN", "")
        if plugin not in ("", "none"):
            return f"NCCL_NET_PLUGIN={plugin}"
    return ""


def _ring(
    ends: Ends, found: Cabling, plain: Mapping[str, Mapping[str, str]], by_subnet: bool
) -> Iterator[Finding]:
    """Where each cable joins two nodes of three or more."""
    words = []
    if not by_subnet:
        words.append("NCCL pairs ports by their place")
    equal = [pair for pair, ports in found.paired.items() if ports]
    if equal:
        words.append(f"{' and '.join(equal[0])} are joined at the same socket")
    only_ring = all(env.get("NCCL_ALGO", "").lower() == "ring" for env in plain.values())
    if found.strangers and not only_ring:
        words.append(f"NCCL's trees join {' and '.join(found.strangers[0])}, which share no network")
    if not words:
        return
    line = ROUTED + (" NCCL_ALGO=Ring" if found.strangers else "")
    fixes = (
        in_job("with NCCL 2.30.7 or newer, on every node", line, persistent=True),
        *([CABLES] if equal else []),
    )
    yield RING.fail(
        f"a ring without a switch: {', '.join(words)}",
        at=CLUSTER,
        culprits=tuple(ends),
        observed=", ".join(words),
        expected=DERIVED(f"{SUBNET_AWARE}=1, cables from first to second sockets"),
        seen=_gids_of(ends),
        fixes=fixes,
    )


def _crossed(ends: Ends, found: Cabling, by_subnet: bool) -> Iterator[Finding]:
    if not found.crossed or by_subnet:
        return
    for node in odd_ones(found):
        a, b = next(two for two in found.crossed if node in two)
        one, other = next(two for two in found.shared[a, b] if two not in found.paired[a, b])
        text = f"{one} of {a} is in the network of {other} of {b}, and NCCL pairs ports of one name or place"
        yield CROSSED.fail(
            text,
            at=node,
            observed=text,
            expected=DERIVED("the same network at the same place"),
            seen=_gids_of({n: ends[n] for n in dict.fromkeys((node, a, b))}),
            fixes=(MOVE, in_job("or with NCCL 2.30.7 or newer, on every node", ROUTED, persistent=True)),
        )


def _alone(nodes: Mapping[str, RdmaFacts], ends: Ends, found: Cabling, by_subnet: bool) -> Iterator[Finding]:
    names = dict.fromkeys(
        port.port.partition(":")[0]
        for node, ports in ends.items()
        for port in ports
        if port.port not in found.lonely.get(node, ())
    )
    for node, ports in {} if by_subnet else found.lonely.items():
        yield ALONE.warn(
            f"{listing(ports)}: no other node has an address in the same network",
            at=node,
            observed=listing(ports),
            expected=DERIVED("ports that meet those of other nodes"),
            seen=_gids_of({node: ends[node]}),
            fixes=_only(nodes, tuple(names)),
        )


def _only(nodes: Mapping[str, RdmaFacts], names: tuple[str, ...]) -> tuple[Fix, ...]:
    """NCCL_IB_HCA with those that meet, where every node has one of them."""
    value = f"={','.join(names)}"
    if not all(map(is_plain_name, names)) or not all(
        selected_ports(one.hcas, value) for one in nodes.values()
    ):
        return ()
    return (in_job("name the HCAs that meet", export("NCCL_IB_HCA", value), persistent=True),)


def _gids_of(ends: Ends) -> tuple[Evidence, ...]:
    return tuple(
        seen(
            "/sys/class/infiniband/*/ports/*/gids",
            ", ".join(f"{port.port} {port.network}" for port in ports),
            "file",
            at=node,
        )
        for node, ports in list(ends.items())[:4]
    )
