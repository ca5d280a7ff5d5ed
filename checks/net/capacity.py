"""Tables and queues of the kernel that a large job fills."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.job import ranks_on
from netdoctor.checks.net._sysctl import set_to
from netdoctor.facts.gpu import GpuFacts
from netdoctor.facts.host import Node
from netdoctor.facts.net import NetFacts
from netdoctor.facts.software import Job
from netdoctor.model import DERIVED, LIKELY, Cause, Finding, seen, skip

QUEUE = Cause("accept-queue-short", "{nodes} queue{s} fewer connections than the job has ranks", LIKELY)
TRACKED = Cause("conntrack-full", "the connection table of {nodes} is nearly full")
# The share at which the alert NodeHighNumberConntrackEntriesUsed of prometheus/node_exporter's mixin speaks.
CROWDED = 0.75


@check(
    required=False,
    source="https://github.com/prometheus/node_exporter/blob/master/docs/node-mixin/alerts/alerts.libsonnet",
)
def net_capacity(
    nodes: Mapping[str, NetFacts], listed: Mapping[str, Node], gpus: Mapping[str, GpuFacts] | None, job: Job
) -> Iterator[Finding]:
    """The kernel's queue on rank 0 and its connection tables have room for the job.

    Looks at:
        net.core.somaxconn on the node of rank 0, compared with the number of ranks (slots, GPUs or one
        per node). nf_conntrack_count and nf_conntrack_max on every node whose packet filter tracks
        connections.

    Matters because:
        All ranks connect to rank 0 at once. torch's store, gloo and NCCL's bootstrap ask for long queues,
        and the kernel cuts them to somaxconn, 128 before Linux 5.4. Connections beyond that wait for a
        second or more. A full conntrack table drops all new connections, and only the kernel log shows
        it.

    Fix:
        Raise net.core.somaxconn on rank 0, and nf_conntrack_max where it is too small; or track fewer
        connections.
    """
    ranks = sum(ranks_on(one, (gpus or {}).get(node)) for node, one in listed.items())
    tracked = [net for net in nodes.values() if net.conntrack_max]
    first = job.master_node or ""
    queue = nodes[first].somaxconn if first in nodes else None
    if queue is None and not tracked:
        yield skip("neither the accept queue nor a connection table is shown here")
        return
    if queue is not None and queue < ranks:
        values = {"net/core/somaxconn": (1 << (ranks - 1).bit_length(), queue)}
        yield QUEUE.warn(
            f"net.core.somaxconn is {queue}, and {ranks} ranks connect to it at once",
            at=first,
            observed=str(queue),
            expected=DERIVED(f"{ranks} or more, one per rank"),
            seen=seen("/proc/sys/net/core/somaxconn", str(queue), "file"),
            fixes=set_to("let the kernel queue one connection per rank", values, "queue"),
        )
    for node, net in nodes.items():
        count, most = net.conntrack or 0, net.conntrack_max or 0
        if most and count >= CROWDED * most:
            more = {"net/netfilter/nf_conntrack_max": (2 * most, most)}
            yield TRACKED.warn(
                f"{count} connections are tracked, the limit is {most}",
                at=node,
                observed=f"{count} of {most}",
                expected=DERIVED(f"fewer than {CROWDED:.0%} of {most}"),
                seen=seen("/proc/sys/net/netfilter/nf_conntrack_count", str(count), "file"),
                fixes=set_to("double the limit", more, "conntrack"),
            )
