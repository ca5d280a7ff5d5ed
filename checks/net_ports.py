"""TCP ports between nodes, in both directions."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from netdoctor.check import check
from netdoctor.checks._firewall import remedies
from netdoctor.checks._matrix import Cell, Kind, left_out
from netdoctor.checks._ports import BAD, EPHEMERAL, RENDEZVOUS, PortCause, PortCauses
from netdoctor.checks._words import listing
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import FirewallFacts, PortMatrix
from netdoctor.facts.software import Job
from netdoctor.model import CLUSTER, CONSTANT, Finding, Fix, fail, nodes_of, ok, pair, skip, unknown, warn

EXPECTED = "open from every node to every other"


@check(
    after=["ssh.login", "net.interface"],
    explains=["rdzv.reach", "net.path-mtu", "net.loss", "bw.*"],
    profile="launch",
    cost="opens-port",
    source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
)
def net_ports(
    ports: PortMatrix,
    causes: PortCauses,
    job: Job,
    hosts: Mapping[str, HostFacts],
    firewalls: Mapping[str, FirewallFacts] | None,
) -> Iterator[Finding]:
    """Every node opens TCP connections to every other, on the rendezvous port and on ephemeral ports.

    Looks at:
        Listeners that netdoctor opens on every node for a few seconds, on the rendezvous port and on a sample
        of the ephemeral range, and connections to them from every other node (from a sample above 64 nodes).

    Matters because:
        NCCL and gloo listen on ports that the kernel picks, on every node: opening MASTER_PORT alone is not
        enough. Gloo dials from the higher address to the lower, so one closed direction is enough to hang.
        Dropped connections keep a launch silent for 10 to 150 minutes.

    Fix:
        Let the nodes' addresses reach each other on all TCP ports: in the firewall of the node that is named,
        or in the security group or switch between them when no node's rule set explains it.
    """
    if len(hosts) < 2:
        yield skip("one node: there is nobody to connect to")
        return
    yield from left_out("ports were not tested", ports, hosts)
    if not ports.probes:
        if not ports.failed_nodes:
            yield unknown(CLUSTER, "no connection was tried")
        return
    says, fixed = {}, {}
    for cause in causes.causes:
        word = fail if _stops_launch(cause, job.master_node) else warn
        says[cause] = partial(word, expected=EXPECTED, expected_from=CONSTANT)
        fixed[cause] = replace(cause.hint, fixes=_fixes(cause, job, hosts, firewalls or {}))
        summary = f"{cause.seen[0].what}: {cause.seen[0].output}"
        said = f"TCP {listing(map(str, cause.numbers))}: {cause.outcome.replace('_', ' ')}"
        # A single path speaks for itself.
        for node in cause.hint.culprits if cause.fault.kind is not Kind.PATH else ():
            yield says[cause](node, summary, observed=said, evidence=cause.seen, cause=fixed[cause])
    closed, errors = _by_pair(ports)
    for cell, said in closed.items():
        found = causes.by_cell.get((cell, EPHEMERAL)) or causes.by_cell.get((cell, RENDEZVOUS))
        if found is not None:
            alone = found.fault.kind is Kind.PATH
            evidence, hint = (found.seen, fixed[found]) if alone else ((), found.hint)
            yield says[found](pair(*cell), said, observed=said, evidence=evidence, cause=hint)
    for cell, text in errors.items():
        if cell not in closed:
            yield unknown(pair(*cell), f"the connection could not be tried: {text}")
    if not causes.causes:
        tried = {(probe.src, probe.dst) for probe in ports.probes}
        yield ok(CLUSTER, f"{len(tried)} of {max(ports.possible, len(tried))} directed pairs tried, all open")


def _stops_launch(cause: PortCause, master: str | None) -> bool:
    """A rendezvous port that is closed where rank 0 does not run stops no launch with a fixed master."""
    return cause.ports != RENDEZVOUS or master is None or any(dst == master for _, dst in cause.fault.cells)


def _by_pair(ports: PortMatrix) -> tuple[dict[Cell, str], dict[Cell, str]]:
    """What each pair says that does not get through, and why others could not be tried."""
    numbers: dict[Cell, dict[str, list[int]]] = {}
    errors: dict[Cell, str] = {}
    for probe in ports.probes:
        if probe.outcome == "error":
            errors.setdefault((probe.src, probe.dst), probe.detail)
        elif probe.outcome in BAD:
            by_outcome = numbers.setdefault((probe.src, probe.dst), {})
            by_outcome.setdefault(probe.outcome.replace("_", " "), []).append(probe.port)
    closed = {
        cell: "; ".join(f"TCP {listing(map(str, sorted(many)))} {said}" for said, many in found.items())
        for cell, found in numbers.items()
    }
    return closed, errors


def _fixes(
    cause: PortCause, job: Job, hosts: Mapping[str, HostFacts], firewalls: Mapping[str, FirewallFacts]
) -> tuple[Fix, ...]:
    nodes = dict.fromkeys(node for culprit in cause.hint.culprits for node in nodes_of(culprit))
    clouds = {node: hosts[node].cloud if node in hosts else None for node in nodes}
    fixes = (remedies(node, cause, firewalls, job, cloud) for node, cloud in clouds.items())
    return tuple(dict.fromkeys(fix for some in fixes for fix in some))
