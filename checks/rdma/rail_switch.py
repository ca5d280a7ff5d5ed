"""Whether each RDMA port is on the switch of its rail."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.facts.cabling import CabledPort, CablingFacts
from netdoctor.facts.host import Node
from netdoctor.facts.net import NetFacts
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import EnvFacts, Job
from netdoctor.model import CLUSTER, LIKELY, PEERS, Cause, Finding, ok, run, seen, skip
from netdoctor.rules.switches import OddPort, job_ports, ports_of_nodes, rail_ports
from netdoctor.rules.variables import effective_env, values

OTHER = Cause("rail-switch", "RDMA ports of {nodes} are not on the switch of their rail", LIKELY)


@check(
    after=["rdma.port"],
    source="https://docs.nvidia.com/dgx-superpod/reference-architecture-scalable-infrastructure-h100/latest/network-fabrics.html",
)
def rdma_rail_switch(
    nodes: Mapping[str, RdmaFacts],
    cablings: Mapping[str, CablingFacts] | None,
    listed: Mapping[str, Node] | None,
    nets: Mapping[str, NetFacts] | None,
    envs: Mapping[str, EnvFacts] | None,
    job: Job,
) -> Iterator[Finding]:
    """Each RDMA port is on the switch that the same port of the other nodes is on.

    Looks at:
        What lldpd, systemd-networkd or the InfiniBand neighbour says of the other end of each cable, or
        `rail=` in the hosts file. Compared within nodes that share switches, where two thirds or more of
        three nodes or more agree.

    Matters because:
        In a fabric with a switch for each rail, NCCL sends from port 3 of a node to port 3 of the next, one
        switch away. With two cables crossed these go up to the spine and down again, with others' traffic,
        or arrive nowhere where rails do not meet. Nothing fails on the node itself.

    Fix:
        Move the cable to the switch of its rail.
    """

    def pick(node: str, ports: Mapping[str, CabledPort]) -> dict[str, CabledPort]:
        ib_hca = values(effective_env((envs or {}).get(node), job)).get("NCCL_IB_HCA")
        net = (nets or {}).get(node)
        return job_ports(ports, nodes[node], net, ib_hca=ib_hca, address=None) if node in nodes else {}

    known = ports_of_nodes(cablings or {}, listed or {}, pick)
    if not any(known.values()):
        unread = dict.fromkeys(one.unread for one in (cablings or {}).values() if one.unread)
        yield skip(
            "no node says which switch its RDMA ports are on" + (f": {next(iter(unread))}" if unread else ""),
            CLUSTER,
        )
        return
    odd: dict[str, list[OddPort]] = {}
    compared = rail_ports(known)
    for one in compared.odd:
        odd.setdefault(one.node, []).append(one)
    for node, several in odd.items():
        yield OTHER.warn(
            "; ".join(map(str, several[:4])),
            at=node,
            observed=", ".join(f"{one.found.port} on {one.found.where}" for one in several),
            expected=PEERS(", ".join(f"{one.found.port} on {one.expected.name}" for one in several)),
            seen=tuple(
                seen(f"{one.found.by}: {one.found.port}", one.found.where, at=node) for one in several[:4]
            ),
            fixes=(run(_moves(several)),),
        )
    if not compared.count:
        yield skip("no three nodes share switches of which two rails have one each", CLUSTER)
    elif not odd:
        yield ok(CLUSTER, f"{compared.count} ports are on the switch of their rail")


def _moves(several: list[OddPort]) -> str:
    cables = (f"{one.found.port} from {one.found.where} to {one.expected.name}" for one in several)
    return f"move the cable of {'; '.join(cables)}"
