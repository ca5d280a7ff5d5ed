"""Firewall rule sets behind filtered connections."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._firewall import active, inbound, relevant, remedies
from netdoctor.checks._ports import PortCause, port_causes
from netdoctor.checks._words import listing
from netdoctor.facts.net import FirewallFacts, PortMatrix, Ruleset
from netdoctor.facts.software import Job
from netdoctor.model import Evidence, Finding, fail, nodes_of, ok, skip, unknown

RULES_SHOWN = 6


@check(
    profile="launch",
    required=False,
    root=True,
    source="https://wiki.nftables.org/wiki-nftables/index.php/Main_Page",
)
def net_firewall(ports: PortMatrix, firewalls: Mapping[str, FirewallFacts], job: Job) -> Iterator[Finding]:
    """Where connections are filtered, the rule set that does it is known.

    Looks at:
        nftables, iptables, firewalld and ufw on the nodes at either end of a connection that got no answer or
        was rejected; read-only, and usually only as root.

    Matters because:
        A port matrix says on which node connections end. The rule set says which table and chain to change,
        and its absence that a security group or a switch between the nodes is to blame.

    Fix:
        Accept the other nodes' addresses in the rule set that is named, for all TCP ports.
    """
    causes = [c for c in port_causes(ports, firewalls) if c.outcome in ("filtered", "rejected", "refused")]
    if not causes:
        yield skip("nothing is filtered")
        return
    for cause in causes:
        for node in dict.fromkeys(n for culprit in cause.culprits for n in nodes_of(culprit)):
            facts = firewalls.get(node)
            if facts is not None:
                yield _judge(node, facts, cause, firewalls, job)


def _judge(
    node: str, facts: FirewallFacts, cause: PortCause, firewalls: Mapping[str, FirewallFacts], job: Job
) -> Finding:
    incoming = inbound(node, cause)
    filters = [one for one in active(facts) if relevant(one, incoming)]
    if filters:
        return fail(
            node,
            f"{listing(one.kind for one in filters)} filters {'incoming' if incoming else 'outgoing'} "
            "connections",
            observed=filters[0].rules[0] if filters[0].rules else f"{filters[0].kind} is active",
            evidence=tuple(_evidence(node, one, incoming) for one in filters),
            cause=cause.hint(remedies(node, cause, firewalls, job)),
        )
    unread = [one for one in facts.rulesets if one.error]
    if unread:
        said = listing(f"{one.kind}: {one.error}" for one in unread)
        summary = f"rule sets could not be read ({said})"
        return unknown(node, summary, cause=cause.hint(remedies(node, cause, firewalls, job)))
    ends = {end for cell in cause.fault.cells if node in cell for end in cell} - {node}
    elsewhere = [end for end in sorted(ends) if active(firewalls.get(end))]
    if elsewhere:
        return ok(node, f"no rule set here; {listing(elsewhere)} at the other end has one")
    return ok(
        node,
        "no host firewall explains it: look for a switch ACL or a security group between the nodes",
    )


def _evidence(node: str, ruleset: Ruleset, incoming: bool) -> Evidence:
    rules = relevant(ruleset, incoming)
    more = [f"and {len(rules) - RULES_SHOWN} more"] if len(rules) > RULES_SHOWN else []
    return Evidence(
        kind="command",
        where=node,
        what=ruleset.kind,
        output="\n".join([*rules[:RULES_SHOWN], *more]),
    )
