"""Firewall rule sets behind filtered connections."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from netdoctor.check import check
from netdoctor.checks._shared.ports import PortCause, PortCauses
from netdoctor.checks._shared.text import listing
from netdoctor.checks.net._firewall import active, inbound, relevant, remedies
from netdoctor.facts.net import FirewallFacts, Ruleset
from netdoctor.facts.software import Job
from netdoctor.model import Evidence, Finding, fail, ok, seen, skip, unknown, warn

RULES_SHOWN = 6


@check(
    profile="launch",
    required=False,
    root=True,
    source="https://wiki.nftables.org/wiki-nftables/index.php/Main_Page",
)
def net_firewall(causes: PortCauses, firewalls: Mapping[str, FirewallFacts], job: Job) -> Iterator[Finding]:
    """If connections are filtered, the rule set that filters them is known.

    Looks at:
        nftables, iptables, firewalld and ufw on both nodes of a connection that got no answer or was
        rejected. They are only read, and usually only root can do that.

    Matters because:
        The port test shows on which node connections end. The rule set shows which table and chain to
        change. If no node has such a rule, a security group or a switch between the nodes is the cause.

    Fix:
        Accept the other nodes' addresses in the rule set that is named, for all TCP ports.
    """
    filtered = [cause for cause in causes.causes if cause.outcome != "no_route"]
    if not filtered:
        yield skip("nothing is filtered")
    for cause in filtered:
        say = fail if causes.stop(cause, job) else warn
        for node in cause.nodes:
            if node in firewalls:
                yield _judge(node, cause, firewalls, job, say)


def _judge(
    node: str, cause: PortCause, firewalls: Mapping[str, FirewallFacts], job: Job, say: Callable[..., Finding]
) -> Finding:
    facts = firewalls[node]
    incoming = inbound(node, cause)
    fixed = replace(cause.hint, fixes=remedies(node, cause, firewalls, job))
    filters = [one for one in active(facts) if relevant(one, incoming)]
    if filters:
        way = "incoming" if incoming else "outgoing"
        return say(
            node,
            f"{listing(one.kind for one in filters)} filters {way} connections",
            observed=filters[0].rules[0] if filters[0].rules else f"{filters[0].kind} is active",
            evidence=tuple(_rules(node, one, incoming) for one in filters),
            cause=fixed,
        )
    unread = [f"{one.kind}: {one.error}" for one in facts.rulesets if one.error]
    if unread:
        return unknown(node, f"rule sets could not be read ({listing(unread)})", cause=fixed)
    elsewhere = [end for end in sorted(cause.peers.get(node, ())) if active(firewalls.get(end))]
    if elsewhere:
        return ok(node, f"no rule set here; {listing(elsewhere)} at the other end has one")
    return ok(
        node, "no host firewall explains it: check for a switch ACL or a security group between the nodes"
    )


def _rules(node: str, ruleset: Ruleset, incoming: bool) -> Evidence:
    rules = relevant(ruleset, incoming)
    more = [f"and {len(rules) - RULES_SHOWN} more"] if len(rules) > RULES_SHOWN else []
    return seen(ruleset.kind, "\n".join([*rules[:RULES_SHOWN], *more]), "command", at=node)
