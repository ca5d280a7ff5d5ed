"""TCP ports between nodes, in both directions."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from netdoctor.check import check
from netdoctor.checks._shared.matrix import Kind, left_out
from netdoctor.checks._shared.paths import about_path
from netdoctor.checks._shared.ports import BAD, EPHEMERAL, OPEN, RENDEZVOUS, PortCauses
from netdoctor.checks._shared.text import listing
from netdoctor.checks.net._firewall import remedies
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import PortMatrix, PortProbe
from netdoctor.facts.software import Job
from netdoctor.model import CLUSTER, CONSTANT, Finding, fail, ok, pair, skip, unknown, warn

EXPECTED = "open from every node to every other"


@check(
    after=["ssh.login", "net.interface"],
    explains=["rdzv.reach", "net.path-mtu", "net.loss", "ray.ports", "bw.*"],
    profile="launch",
    cost="opens-port",
    source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
)
def net_ports(
    ports: PortMatrix, causes: PortCauses, job: Job, hosts: Mapping[str, HostFacts]
) -> Iterator[Finding]:
    """Every node opens TCP connections to every other, on the rendezvous port and on ephemeral ports.

    Looks at:
        Listeners that netdoctor opens on every node for a few seconds, on the rendezvous port and on a
        sample of the ephemeral range, and connections to them from every other node (above 64 nodes from
        a sample). If there is no answer, other source ports are tried: this shows a stateless filter.
        Every address that the job dials is tested: of the login, of MASTER_ADDR, of gloo and of NCCL.

    Matters because:
        NCCL and gloo listen on ports that the kernel picks, on every node: to open MASTER_PORT alone is
        not enough. Gloo connects from the higher address to the lower, so one closed direction is enough
        to hang. With dropped connections a launch is silent for 10 to 150 minutes.

    Fix:
        Let the nodes' addresses reach each other on all TCP ports: in the firewall of the node that is
        named, or, if no node's rule set explains it, in the security group or switch between them.
    """
    if len(hosts) < 2:
        yield skip("one node: there is no other node to connect to")
        return
    yield from left_out("ports were not tested", ports, hosts, "no connection was tried")
    says, fixed = {}, {}
    for cause in causes.causes:
        word = fail if causes.stop(cause, job) else warn
        says[cause] = partial(word, expected=EXPECTED, expected_from=CONSTANT)
        fixes = (fix for node in cause.nodes for fix in remedies(node, cause, causes.firewalls, job, hosts))
        fixed[cause] = replace(cause.hint, fixes=tuple(dict.fromkeys([*fixes, *cause.hint.fixes])))
        summary = f"{cause.evidence[0].what}: {cause.evidence[0].output}"
        observed = f"TCP {listing(map(str, cause.numbers))}: {cause.outcome.replace('_', ' ')}"
        if cause.fault.kind is not Kind.PATH:  # a single path speaks for itself
            for node in cause.hint.culprits:
                yield says[cause](
                    node, summary, observed=observed, evidence=cause.evidence, cause=fixed[cause]
                )
    for path, by_cell in causes.probes:
        for cell, probes in by_cell.items():
            found = causes.cause_of(path, cell, EPHEMERAL, RENDEZVOUS)
            if found is not None:
                alone = found.fault.kind is Kind.PATH
                evidence, hint = (found.evidence, fixed[found]) if alone else ((), found.hint)
                bad = _failures(probes)
                yield about_path(
                    says[found](pair(*cell), bad, observed=bad, evidence=evidence, cause=hint), path
                )
            errors = [probe.detail or "no outcome" for probe in probes if probe.outcome not in (*BAD, *OPEN)]
            if errors and not _failures(probes):
                yield about_path(
                    unknown(pair(*cell), f"the connection could not be tried: {errors[0]}"), path
                )
    if ports.probes and not causes.causes:
        tried = len({cell for _, by_cell in causes.probes for cell in by_cell})
        ways = f" on {len(causes.probes)} paths" if len(causes.probes) > 1 else ""
        yield ok(CLUSTER, f"{tried} of {max(ports.possible, tried)} directed pairs tried{ways}, all open")


def _failures(probes: Iterable[PortProbe]) -> str:
    numbers: dict[str, list[int]] = {}
    for probe in probes:
        if probe.outcome in BAD:
            numbers.setdefault(probe.outcome.replace("_", " "), []).append(probe.port)
    return "; ".join(f"TCP {listing(map(str, sorted(many)))} {outcome}" for outcome, many in numbers.items())
