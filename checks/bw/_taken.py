"""What NCCL took, by its own words: over the network, and between the GPUs of a node."""

from collections.abc import Iterator, Mapping

from netdoctor.checks._shared.text import listing
from netdoctor.facts.bandwidth import AllReduce
from netdoctor.facts.rdma import RdmaFacts
from netdoctor.facts.software import EnvFacts, Job
from netdoctor.model import DERIVED, Cause, Finding, look, seen
from netdoctor.rules.nccl_ib import selected_ports, switched_off_by
from netdoctor.rules.variables import effective_env, values

# Names of networks that are TCP: NCCL's own (net_socket.cc) and Google's plug-in.
TCP = frozenset({"Socket", "FastSocket"})
# Paths between two GPUs in the words of graph/topo.h: over NVLink, also by way of a third GPU.
NVLINK = frozenset({"NVL", "NVB"})

OVER_TCP = Cause(
    "nccl-took-tcp",
    "NCCL uses TCP on {nodes}, which {has} HCAs that it should use",
    verify=("bw.allreduce", "rdma.hca", "nccl.ib-hca"),
)


def over_tcp(
    reduced: AllReduce, rdma: Mapping[str, RdmaFacts], envs: Mapping[str, EnvFacts], job: Job
) -> Iterator[Finding]:
    """Nodes on which NCCL said TCP, though nothing that was seen keeps it from their HCAs."""
    for node, transports in reduced.taken.items():
        if node not in rdma or not transports.networks or not TCP.issuperset(transports.networks):
            continue
        env = values(effective_env(envs.get(node), job))
        ports = [port.name for _, port in selected_ports(rdma[node].hcas, env.get("NCCL_IB_HCA"))]
        if not ports or switched_off_by(env):
            continue
        output = f"Using network {listing(transports.networks)}"
        yield OVER_TCP.fail(
            f"NCCL itself chose TCP instead of {listing(ports)}",
            at=node,
            observed=output,
            expected=DERIVED(f"Using network IB, over {listing(ports)}"),
            seen=seen("NCCL_DEBUG=INFO of a rank", output),
            fixes=look(
                "let NCCL print why it does not use the HCAs, and try them without NCCL",
                "ibv_devinfo; ulimit -l; ldconfig -p | grep ibverbs",
                "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET python3 -c 'import torch; "
                "torch.cuda.nccl.unique_id()' 2>&1 | grep NET",
            ),
        )


def taken_words(reduced: AllReduce) -> str:
    """``; NCCL used RDMA (IB, GPUDirect) between nodes, NVLink inside``; empty where it said nothing."""
    every = reduced.taken.values()
    via = {word for transports in every for word in transports.via}
    networks = list(dict.fromkeys(word for transports in every for word in transports.networks))
    nodes = list(reduced.session.ranks)
    parts = []
    if len(set(nodes)) > 1 and networks:
        kind = "TCP" if TCP.issuperset(networks) else "RDMA"
        direct = [*networks, "GPUDirect"] if any(word.endswith("/GDRDMA") for word in via) else networks
        parts.append(f"{kind} ({listing(direct, 4)}) between nodes")
    if len(set(nodes)) < len(nodes):
        if any(NVLINK.intersection(transports.links) for transports in every) and "P2P" in via:
            parts.append("NVLink inside")
        elif inside := [word for key, word in _INSIDE.items() if key in via]:
            parts.append(f"{listing(inside)} inside")
    return f"; NCCL used {', '.join(parts)}" if parts else ""


_INSIDE = {"P2P": "PCIe", "SHM": "shared memory"}
