"""The rendezvous port, from every node to rank 0's."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.paths import path_text
from netdoctor.checks._shared.ports import BAD, RENDEZVOUS, PortCauses
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import PortMatrix
from netdoctor.facts.software import Job
from netdoctor.model import CLUSTER, CONFIG, Finding, fail, ok, pair, skip, unknown


@check(
    after=["ssh.login", "net.interface"],
    explains=["bw.*"],
    profile="launch",
    cost="opens-port",
    source="https://docs.pytorch.org/docs/stable/distributed.html#tcp-initialization",
)
def rdzv_reach(
    ports: PortMatrix, causes: PortCauses, hosts: Mapping[str, HostFacts], job: Job
) -> Iterator[Finding]:
    """Every node reaches the rendezvous port on rank 0's node.

    Looks at:
        A connection from each node to the master port on the first node. There netdoctor listens, or the
        process that already has the port.

    Matters because:
        Every rank first connects there. If a node cannot, it ends with "The client socket has timed out
        after 60000ms" (torchrun) or after 10 to 30 minutes, and all the others wait for it.

    Fix:
        Open the port on the master's node to the other nodes. ``net.ports`` names the end that filters.
    """
    master = job.master_node
    tried = {end for probe in ports.probes for end in (probe.src, probe.dst)}
    if master is None or not (tried or ports.failed_nodes or len(hosts) > 1):
        yield skip("one node: the rendezvous stays on it")
        return
    if master in ports.failed_nodes or (master in hosts and master not in tried):
        reason = ports.failed_nodes.get(master, "no connection with it was tried")
        yield unknown(CLUSTER, f"{master} could not take part: {reason}")
        return
    if master not in tried:
        yield skip(f"{master}, the host of the rendezvous, did not take part")
        return
    probes = causes.to_master(job)
    sources = dict.fromkeys([*(probe.src for probe in ports.probes), *hosts])
    sources.pop(master, None)
    reached = 0
    for src in sources:
        path, probe = probes.get(src, (None, None))
        if probe is None or probe.outcome == "error":
            reason = probe.detail if probe else ports.failed_nodes.get(src, "no connection was tried")
            yield unknown(src, f"the path to port {job.master_port} on {master} was not tested: {reason}")
        elif probe.outcome not in BAD:
            reached += 1
        else:
            outcome = probe.outcome.replace("_", " ")
            cause = causes.cause_of(path, (src, master), RENDEZVOUS)
            yield fail(
                pair(src, master),
                f"port {job.master_port} on {master}{path_text((path,))}: {outcome}",
                observed=outcome,
                expected=f"TCP {job.master_port} open",
                expected_from=CONFIG,
                evidence=cause.evidence if cause else (),
                cause=cause.hint if cause else None,
            )
    if reached and reached == len(sources):
        yield ok(CLUSTER, f"all nodes reach {master} on port {job.master_port}")
