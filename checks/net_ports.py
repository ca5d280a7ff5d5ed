"""TCP ports between nodes, in both directions."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._firewall import remedies
from netdoctor.checks._matrix import Kind
from netdoctor.checks._ports import (
    BAD,
    EPHEMERAL,
    RENDEZVOUS,
    PortCause,
    cause_of,
    evidence,
    port_causes,
)
from netdoctor.checks._words import listing
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import FirewallFacts, PortMatrix
from netdoctor.facts.software import Job
from netdoctor.model import (
    CLUSTER,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    nodes_of,
    ok,
    pair,
    skip,
    unknown,
    warn,
)

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
    for node, reason in ports.failed_nodes.items():
        yield unknown(node, f"ports were not tested: {reason}")
    if not ports.probes:
        if not ports.failed_nodes:
            yield unknown(CLUSTER, "no connection was tried")
        return

    causes = port_causes(ports, firewalls)
    fixes = {cause: _fixes(cause, job, hosts, firewalls) for cause in causes}
    for cause in causes:
        yield from _culprits(cause, fixes[cause], ports, job.master_node)
    yield from _pairs(ports, fixes, job.master_node)
    if not causes:
        tried = {(probe.src, probe.dst) for probe in ports.probes}
        yield ok(CLUSTER, f"{len(tried)} of {max(ports.possible, len(tried))} directed pairs tried, all open")


def _stops_launch(cause: PortCause, master: str | None) -> bool:
    """A rendezvous port that is closed where rank 0 does not run stops no launch with a fixed master."""
    touched = {dst for _, dst in cause.fault.cells}
    return cause.ports != RENDEZVOUS or master is None or master in touched


def _culprits(
    cause: PortCause, fixes: tuple[Fix, ...], ports: PortMatrix, master: str | None
) -> Iterator[Finding]:
    """What is said of the culprits themselves; single paths speak for themselves."""
    if cause.fault.kind is Kind.PATH:
        return
    say = fail if _stops_launch(cause, master) else warn
    numbers = sorted({probe.port for probe in cause.probes})
    seen = evidence(ports, cause)
    for node in cause.culprits:
        yield say(
            node,
            f"{seen[0].what}: {seen[0].output}",
            observed=f"TCP {listing(map(str, numbers))}: {cause.outcome.replace('_', ' ')}",
            expected=EXPECTED,
            expected_from=ExpectedFrom.CONSTANT,
            evidence=seen,
            cause=cause.hint(fixes),
        )


def _pairs(
    ports: PortMatrix, causes: Mapping[PortCause, tuple[Fix, ...]], master: str | None
) -> Iterator[Finding]:
    seen: dict[tuple[str, str], dict[str, list[int]]] = {}
    errors: dict[tuple[str, str], str] = {}
    for probe in ports.probes:
        cell = (probe.src, probe.dst)
        if probe.outcome == "error":
            errors.setdefault(cell, probe.detail)
        elif probe.outcome in BAD:
            seen.setdefault(cell, {}).setdefault(probe.outcome, []).append(probe.port)
    for cell, outcomes in seen.items():
        cause = cause_of(causes, cell, EPHEMERAL) or cause_of(causes, cell, RENDEZVOUS)
        if cause is None:
            continue
        observed = "; ".join(
            f"TCP {listing(str(n) for n in sorted(numbers))} {outcome.replace('_', ' ')}"
            for outcome, numbers in outcomes.items()
        )
        say = fail if _stops_launch(cause, master) else warn
        alone = cause.fault.kind is Kind.PATH
        yield say(
            pair(*cell),
            observed,
            observed=observed,
            expected=EXPECTED,
            expected_from=ExpectedFrom.CONSTANT,
            evidence=evidence(ports, cause) if alone else (),
            cause=cause.hint(causes[cause] if alone else ()),
        )
    for cell, text in errors.items():
        if cell not in seen:
            yield unknown(pair(*cell), f"the connection could not be tried: {text}")


def _fixes(
    cause: PortCause,
    job: Job,
    hosts: Mapping[str, HostFacts],
    firewalls: Mapping[str, FirewallFacts] | None,
) -> tuple[Fix, ...]:
    nodes = dict.fromkeys(node for culprit in cause.culprits for node in nodes_of(culprit))
    found: dict[Fix, None] = {}
    for node in nodes:
        cloud = hosts[node].cloud if node in hosts else None
        for fix in remedies(node, cause, firewalls or {}, job, cloud):
            found.setdefault(fix)
    return tuple(found)
