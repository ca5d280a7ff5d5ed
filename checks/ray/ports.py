"""TCP ports that a Ray cluster needs between its nodes."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._shared.ports import OPEN
from netdoctor.checks._shared.text import listing
from netdoctor.facts.ray import RayFacts, RayPorts
from netdoctor.model import CLUSTER, Cause, Finding, look, ok, pair, run, seen, skip, unknown

BAD = {"filtered": "no answer", "rejected": "rejected", "refused": "refused", "no_route": "no route"}
WORDS = {"raylet": "its raylet", "gcs": "the head", "worker": "a port of its workers"}
CLOSED = Cause("ray-ports", "Nodes of the Ray cluster cannot reach {nodes} on the ports that Ray needs")
NARROW = run(
    "allow the nodes' addresses on Ray's ports; ray start --node-manager-port=N --object-manager-port=N "
    "--min-worker-port=N --max-worker-port=N makes them few and fixed",
    root=True,
)
WHO = look("see on which ports Ray listens there", "ss -tlnp | grep -E 'raylet|gcs_server|ray::'", root=True)


@check(
    after=["net.interface"],
    profile="launch",
    cost="opens-port",
    source="https://docs.ray.io/en/releases-2.44.1/ray-core/configure.html#ports-configurations",
)
def ray_ports(found: RayPorts, rays: Mapping[str, RayFacts]) -> Iterator[Finding]:
    """Nodes of a Ray cluster reach each other's raylet, the head, and the ports of workers.

    Looks at:
        Connections from each node to the other nodes' raylets (node manager, object manager), to the head
        (GCS), and to a listener of netdoctor in the range of worker ports; above 64 nodes from a sample.
        They use the address that Ray dials.

    Matters because:
        Objects go from object manager to object manager, and actor calls from worker to worker. So a
        cluster may look complete to the head, while a ``ray.get`` of another node's object waits for
        ever.

    Fix:
        Open the ports between the nodes. ``ray start`` has options that make them few and fixed.
    """
    if len(rays) < 2:
        yield skip("Ray runs on one node alone" if rays else "no Ray runs on any node")
        return
    for node, why in found.failed_nodes.items():
        yield unknown(node, f"Ray's ports were not tested: {why}")
    for node, ray in rays.items():
        if not ray.ports:
            gap = "the raylet belongs to another user, and its ports are not visible"
            yield skip(gap, node, gap=gap)
    for probe in found.probes:
        if probe.outcome in BAD:
            outcome = BAD[probe.outcome]
            yield CLOSED.fail(
                f"TCP {probe.port} ({WORDS.get(probe.purpose, probe.purpose)}) of {probe.dst}: {outcome}",
                at=pair(probe.src, probe.dst),
                culprits=(probe.dst,),
                observed=outcome,
                expected="open between all nodes of the cluster",
                seen=seen(
                    f"TCP {probe.address} {probe.port}", f"{outcome} {probe.detail}".strip(), at=probe.src
                ),
                fixes=(NARROW, WHO),
            )
        elif probe.outcome not in OPEN:
            yield unknown(pair(probe.src, probe.dst), f"TCP {probe.port} could not be tried: {probe.detail}")
    if found.probes and all(probe.outcome in OPEN for probe in found.probes):
        ports = listing(sorted({WORDS.get(probe.purpose, probe.purpose) for probe in found.probes}))
        yield ok(
            CLUSTER, f"{len({(p.src, p.dst) for p in found.probes})} directed pairs tried, all open: {ports}"
        )
