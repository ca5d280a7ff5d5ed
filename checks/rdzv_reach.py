"""The rendezvous port, from every node to rank 0's."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._ports import BAD, RENDEZVOUS, cause_of, evidence, port_causes
from netdoctor.facts.net import FirewallFacts, PortMatrix
from netdoctor.facts.software import Job
from netdoctor.model import CLUSTER, ExpectedFrom, Finding, fail, ok, pair, skip, unknown


@check(
    after=["ssh.login", "net.interface"],
    explains=["bw.*"],
    profile="launch",
    cost="opens-port",
    source="https://docs.pytorch.org/docs/stable/distributed.html#tcp-initialization",
)
def rdzv_reach(
    ports: PortMatrix, job: Job, firewalls: Mapping[str, FirewallFacts] | None
) -> Iterator[Finding]:
    """Every node reaches the rendezvous port on rank 0's node.

    Looks at:
        A connection from each node to the master port on the first node, where netdoctor listens, or whoever
        holds the port already.

    Matters because:
        Every rank begins by connecting there. A node that cannot ends with "The client socket has timed out
        after 60000ms" (torchrun) or after 10 to 30 minutes, and all the others wait for it.

    Fix:
        Open the port on the master's node to the other nodes; ``net.ports`` names the side that filters.
    """
    master = job.master_node
    sources = dict.fromkeys(probe.src for probe in ports.probes if probe.src != master)
    if master is None or (not sources and not ports.failed_nodes):
        yield skip("one node: the rendezvous stays on it")
        return
    if master in ports.failed_nodes:
        yield unknown(CLUSTER, f"{master} could not take part: {ports.failed_nodes[master]}")
        return
    if all(master not in (probe.src, probe.dst) for probe in ports.probes):
        yield skip(f"{master}, where the rendezvous would be, took no part")
        return
    causes = port_causes(ports, firewalls)
    probes = {p.src: p for p in ports.probes if p.dst == master and p.purpose == RENDEZVOUS}
    reached = 0
    for src in sources:
        probe = probes.get(src)
        if probe is None or probe.outcome == "error":
            reason = probe.detail if probe else "no connection was tried"
            yield unknown(src, f"the way to port {job.master_port} on {master} was not tested: {reason}")
            continue
        if probe.outcome not in BAD:
            reached += 1
            continue
        cause = cause_of(causes, (src, master), RENDEZVOUS)
        yield fail(
            pair(src, master),
            f"port {job.master_port} on {master}: {probe.outcome.replace('_', ' ')}",
            observed=probe.outcome.replace("_", " "),
            expected=f"TCP {job.master_port} open",
            expected_from=ExpectedFrom.CONFIG,
            evidence=evidence(ports, cause) if cause else (),
            cause=cause.hint() if cause else None,
        )
    if reached and reached == len(sources):
        yield ok(CLUSTER, f"all nodes reach {master} on port {job.master_port}")
