"""What is known of how the job is started, and so which trouble it will not meet."""

from collections.abc import Collection, Mapping

from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import HostFacts, Node
from netdoctor.facts.software import Job

# torchrun's agents, accelerate's, which are torchrun's, and ranks that srun starts dial the rendezvous and
# nobody else by name; Ray's nodes dial addresses.
BY_RENDEZVOUS = ("torchrun", "srun", "accelerate", "ray")
ASKING = "mpirun, pdsh and DeepSpeed"


def only_gloo(job: Job, gpus: Collection[GpuFacts | None]) -> bool:
    """Whether the job is known to use gloo and nothing else: it was said, or none of these nodes has a GPU.

    gpus: None where it is not known.
    """
    if job.backend is not None:
        return job.backend == "gloo"
    return bool(gpus) and not any(gpu is None or gpu.devices or gpu.pci or gpu.device_nodes for gpu in gpus)


def most_ranks(listed: Mapping[str, Node], hosts: Mapping[str, HostFacts]) -> int:
    """How many ranks the job has at most, as far as anybody says: slots= or gpus=, else one per CPU."""
    ranks = 0
    for node, host in hosts.items():
        node_line = listed.get(node)
        cpus = 1 if host.shares_machine else max(1, host.cpu_count)
        ranks += (node_line and (node_line.slots or node_line.gpus)) or cpus
    return ranks


def ranks_on(one: Node, gpu: GpuFacts | None) -> int:
    """How many ranks a node has at least: its slots= or gpus=, else one for each GPU, else one."""
    return max(1, one.slots or one.gpus or (len(gpu.devices) if gpu else 0))


def resolved_nodes(job: Job, hosts: Mapping[str, HostFacts]) -> frozenset[str]:
    """Nodes whose names a job that finds itself at a rendezvous asks for: those that may be rank 0.

    torchrun sorts its agents by their full names, and hands out that of the first.
    [torch distributed/elastic/rendezvous/dynamic_rendezvous.py _assign_ranks; api.py RendezvousStoreInfo]
    """
    full = {node: host.fqdn or host.hostname for node, host in hosts.items()}
    first = [min(full, key=lambda node: full[node])] if full else []
    return frozenset([*first, *([job.master_node] if job.master_node else [])])
