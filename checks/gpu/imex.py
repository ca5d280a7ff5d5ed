"""IMEX on nodes whose GPUs share one NVLink domain."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.majority import majority
from netdoctor.checks._shared.text import listing
from netdoctor.checks.gpu._gpus import other_release, start_service
from netdoctor.facts.gpu import GpuFacts
from netdoctor.model import DERIVED, LIKELY, PEERS, Cause, Finding, look, seen, skip

RELEASE = Cause("gpu-imex-release", "{nodes} {has} an IMEX of another release than the driver")
STOPPED = Cause("gpu-imex-stopped", "IMEX does not run on {nodes}, and does on others of the domain", LIKELY)
NODES = Cause("gpu-imex-nodes", "{nodes} {has} another list of IMEX nodes than others of the domain", LIKELY)
LIST = "/etc/nvidia-imex/nodes_config.cfg"


@check(
    after=["ssh.login", "gpu.visible"],
    required=False,
    source="https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/deployment.html",
)
def gpu_imex(gpus: Mapping[str, GpuFacts]) -> Iterator[Finding]:
    """Nodes of one NVLink domain run IMEX in the driver's release, with the same list of nodes.

    Looks at:
        On GPUs that NVML puts into a domain of several nodes (NVL72): whether nvidia-imex runs, whether
        its release (Debian packages) is the loaded driver's, and the addresses in its nodes_config.cfg.
        These are compared among nodes of one domain and partition. If no node runs it, a scheduler starts
        it with the job.

    Matters because:
        Without IMEX a GPU cannot share memory with another node: NCCL uses the network instead of NVLink,
        or ends. Instances with different lists do not find each other.

    Fix:
        Give the odd node the list and the release of the others, and start the service there. A prolog
        that writes the list for each job solves this by itself.
    """
    domains: dict[str, dict[str, GpuFacts]] = defaultdict(dict)
    for node, gpu in gpus.items():
        domain = next((one.nvlink_domain for one in gpu.devices if one.nvlink_domain), "")
        if not domain:
            yield skip("no GPU here is in an NVLink domain of several nodes", node)
            continue
        domains[domain][node] = gpu
        if release := other_release(gpu, "nvidia-imex"):
            yield RELEASE.warn(
                f"IMEX {release} is installed, the driver is {gpu.kernel_driver}",
                at=node,
                observed=release,
                expected=DERIVED(f"{gpu.kernel_driver}, as the driver"),
                seen=seen("/var/lib/dpkg/status", f"nvidia-imex {release}", "file"),
                fixes=look("see which releases are available", "apt-cache madison 'nvidia-imex*'"),
            )
        if gpu.imex is None:
            yield skip("processes here are not visible to this user", node, gap="IMEX (needs root)")
    for members in domains.values():
        yield from _in_domain(members)


def _in_domain(members: Mapping[str, GpuFacts]) -> Iterator[Finding]:
    running = {node: gpu for node, gpu in members.items() if gpu.imex}
    for node in (node for node, gpu in members.items() if gpu.imex is False):
        if 2 * len(running) > len(members):
            yield STOPPED.warn(
                f"nvidia-imex does not run here, but on {len(running)} of {len(members)} nodes of the domain",
                at=node,
                observed="not running",
                expected=PEERS("nvidia-imex among the processes"),
                seen=seen("/proc", "no process nvidia-imex"),
                fixes=start_service("it", "nvidia-imex"),
            )
    spread = majority({node: gpu.imex_nodes for node, gpu in running.items() if gpu.imex_nodes})
    for node, addresses in spread.minority.items() if spread.value else ():
        odd = sorted(set(addresses or ()) ^ set(spread.value or ()))
        yield NODES.warn(
            f"{LIST} differs from that of most nodes that run it by {listing(odd, 4)}",
            at=node,
            observed=f"{len(addresses or ())} addresses",
            expected=PEERS(f"the {len(spread.value or ())} addresses that most have"),
            seen=seen(LIST, listing(addresses or (), 8), "file"),
            fixes=look("compare the lists", f"sort {LIST}; systemctl status nvidia-imex --no-pager"),
        )
