"""What the nodes' names mean, on every node."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._addresses import holds, is_loopback, owners, parse, same
from netdoctor.checks._hosts_file import rewrite
from netdoctor.checks._words import listing
from netdoctor.facts.host import HostFacts, Node
from netdoctor.facts.net import Lookup, NetFacts, ResolveFacts
from netdoctor.facts.software import Job
from netdoctor.model import (
    CLUSTER,
    CauseHint,
    Command,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    unknown,
    warn,
)

# A name from /etc/hosts or a near cache takes microseconds, a DNS server milliseconds. A second means that
# some server did not answer and another was asked (resolv.conf(5): 5 s, or `options timeout:1`).
SLOW_MS = 1000.0
# The agent's own words when it had no time left to ask: nothing was learnt about the name.
NOT_ASKED = "timed out: earlier"


@check(
    explains=["gloo.ifname", "rdzv.addr"],
    source="https://github.com/pytorch/gloo/blob/main/gloo/transport/tcp/device.cc",
)
def net_resolve(
    resolves: Mapping[str, ResolveFacts],
    nets: Mapping[str, NetFacts],
    hosts: Mapping[str, HostFacts],
    listed: Mapping[str, Node],
    job: Job,
) -> Iterator[Finding]:
    """On every node, its own name and its peers' names lead to addresses where those nodes are.

    Looks at:
        getaddrinfo() on every node for its own host name and for every listed name, which of the own
        addresses can be bound, and the lines of /etc/hosts behind them.

    Matters because:
        Gloo advertises what the own name resolves to: with Debian's ``127.0.1.1 host`` line peers are told to
        connect to themselves. torchrun decides by the own name who hosts the rendezvous, and then hands out
        the host name of one node to all others.

    Fix:
        Put the address and name of each node into /etc/hosts on all nodes, and take the own name off the
        127.0.1.1 line.
    """
    spoken: set[str] = set()
    if len(resolves) > 1:
        for node, facts in resolves.items():
            for finding in _own(node, facts, nets[node], hosts[node], job):
                spoken.add(node)
                yield finding
        for finding in _peers(resolves, nets, listed, job):
            spoken.add(finding.target)
            yield finding
    for node, facts in resolves.items():
        late = [one.name for one in facts.peers if (one.error or "").startswith(NOT_ASKED)]
        if late and node not in spoken:
            yield unknown(node, f"there was no time left to look up {listing(late)}")
        yield from _slow(node, facts)


def _own(node: str, facts: ResolveFacts, net: NetFacts, host: HostFacts, job: Job) -> Iterator[Finding]:
    own = facts.own
    # With an interface named, gloo does not ask what the own name means; torchrun still does.
    say = warn if len(job.env.get("GLOO_SOCKET_IFNAME", "")) > 1 else fail
    address = job.data_addresses.get(node)
    other = [host.fqdn] if host.fqdn and host.fqdn != own.name else []
    shell = rewrite({own.name: address}, other) if address and not is_loopback(address) else None
    again = "; cloud-init writes it back unless manage_etc_hosts is off" if host.cloud else ""
    fix = Fix(
        text=f"give the own name its address in /etc/hosts{again}",
        commands=(Command(run_on=node, shell=shell),) if shell else (),
        root=True,
        effect="next launch",
    )
    said = own.error or listing(own.addresses) or "no address"
    if own.error or not own.addresses:
        if (own.error or "").startswith(NOT_ASKED):
            return
        key, title = "own-name-unknown", "The own name of {nodes} does not resolve there"
        summary = f"cannot resolve its own name {own.name}: gloo falls back to loopback ({said})"
    elif is_loopback(facts.first_bindable) or all(map(is_loopback, own.addresses)):
        key, title = "hosts-loopback", "The own name of {nodes} resolves to a loopback address there"
        summary = (
            f"its own name {own.name} resolves to {facts.first_bindable or said}: gloo tells the others to "
            "connect there, and torchrun finds nobody to host the rendezvous"
        )
    elif not any(holds(net, one) or same(one, address) for one in own.addresses):
        key, title = "own-name-wrong", "The own name of {nodes} resolves to an address of another machine"
        summary = f"its own name {own.name} resolves to {said}, which is none of its addresses"
    else:
        return
    yield say(
        node,
        summary,
        observed=said,
        expected=address or "an address of this node",
        expected_from=ExpectedFrom.DERIVED,
        evidence=_evidence(node, facts, own),
        cause=CauseHint(key=key, title=title, culprits=(node,), fixes=(fix,)),
    )


def _peers(
    resolves: Mapping[str, ResolveFacts],
    nets: Mapping[str, NetFacts],
    listed: Mapping[str, Node],
    job: Job,
) -> Iterator[Finding]:
    """Listed names, as every other node understands them. Addresses are not names."""
    names = {
        node: listed[node].host for node in resolves if node in listed and parse(listed[node].host) is None
    }
    missing: dict[str, list[Lookup]] = {}
    wrong: dict[str, list[tuple[str, Lookup]]] = {}
    judged = failed = 0
    for node, facts in resolves.items():
        known = {one.name: one for one in facts.peers}
        for peer, name in names.items():
            found = known.get(name)
            if peer == node or found is None or (found.error or "").startswith(NOT_ASKED):
                continue
            judged += 1
            if found.error or not found.addresses:
                failed += 1
                missing.setdefault(node, []).append(found)
            elif not _leads_to(peer, found, nets, job):
                wrong.setdefault(node, []).append((peer, found))
    if judged and failed == judged:
        yield _aliases(list(resolves), listing(names.values()))
        return
    owner = {name: peer for peer, name in names.items()}
    for node, lookups in missing.items():
        entries = {one.name: job.data_addresses.get(owner[one.name], "") for one in lookups}
        yield fail(
            node,
            f"cannot resolve {listing(one.name for one in lookups)}: {lookups[0].error or 'no address'}",
            observed=lookups[0].error or "no address",
            expected="an address of that node",
            expected_from=ExpectedFrom.PEERS,
            evidence=_evidence(node, resolves[node], *lookups),
            cause=CauseHint(
                key="peer-name-unknown",
                title="{nodes} cannot resolve names of other nodes",
                culprits=(node,),
                fixes=(_fix(node, entries),),
            ),
        )
    for node, pairs in wrong.items():
        peer, first = pairs[0]
        there = owners(nets, first.addresses[0])
        whose = f", which is {listing(there)}" if there else ""
        entries = {one.name: job.data_addresses.get(who, "") for who, one in pairs}
        yield fail(
            node,
            f"resolves {first.name} to {listing(first.addresses)}{whose}"
            + (f"; also wrong: {listing(one.name for _, one in pairs[1:])}" if len(pairs) > 1 else ""),
            observed=listing(first.addresses),
            expected=job.data_addresses.get(peer, "an address of that node"),
            expected_from=ExpectedFrom.DERIVED,
            evidence=_evidence(node, resolves[node], *(one for _, one in pairs)),
            cause=CauseHint(
                key="peer-name-wrong",
                title="{nodes} resolve{s} names of other nodes to wrong addresses",
                culprits=(node,),
                fixes=(_fix(node, entries),),
            ),
        )


def _leads_to(peer: str, found: Lookup, nets: Mapping[str, NetFacts], job: Job) -> bool:
    if peer not in nets:
        return True
    return any(
        not is_loopback(one) and (holds(nets[peer], one) or same(one, job.data_addresses.get(peer)))
        for one in found.addresses
    )


def _aliases(nodes: list[str], names: str) -> Finding:
    """No node knows any listed name: they are names of the user's ssh config, or of this machine's DNS."""
    return warn(
        CLUSTER,
        f"no node can resolve the listed names ({names}): launch with addresses, or add the names there",
        observed="no listed name resolves on any node",
        expected="names that the nodes know too",
        expected_from=ExpectedFrom.CONFIG,
        cause=CauseHint(
            key="names-ssh-only",
            title="The names in the hosts file mean nothing on {nodes}",
            culprits=tuple(nodes),
            confidence=Confidence.LIKELY,
            fixes=(
                Fix(
                    text="give MASTER_ADDR and --rdzv-endpoint as addresses",
                    effect="next launch",
                    persistent=False,
                ),
            ),
            verify=("net.resolve",),
        ),
    )


def _slow(node: str, facts: ResolveFacts) -> Iterator[Finding]:
    slow = [one for one in (facts.own, *facts.peers) if one.elapsed_ms > SLOW_MS]
    if not slow:
        return
    worst = max(slow, key=lambda one: one.elapsed_ms)
    yield warn(
        node,
        f"looking up {worst.name} takes {worst.elapsed_ms / 1000:.1f} s",
        observed=f"{worst.elapsed_ms / 1000:.1f} s",
        expected=f"under {SLOW_MS / 1000:.0f} s",
        expected_from=ExpectedFrom.CONSTANT,
        evidence=(
            Evidence(
                kind="probe",
                where=node,
                what=f"getaddrinfo {listing(one.name for one in slow)}",
                output=f"up to {worst.elapsed_ms / 1000:.1f} s",
            ),
        ),
        cause=CauseHint(
            key="dns-slow",
            title="Name lookups are slow on {nodes}",
            culprits=(node,),
            confidence=Confidence.LIKELY,
            fixes=(
                Fix(
                    text="take out the name server that does not answer, or put the nodes into /etc/hosts",
                    commands=(Command(run_on=node, shell="cat /etc/resolv.conf; resolvectl status"),),
                ),
            ),
        ),
    )


def _fix(node: str, entries: Mapping[str, str]) -> Fix:
    shell = rewrite(entries) if entries and all(entries.values()) else None
    return Fix(
        text="put the names with their addresses into /etc/hosts there, or correct DNS",
        commands=(Command(run_on=node, shell=shell),) if shell else (),
        root=True,
        effect="next launch",
    )


def _evidence(node: str, facts: ResolveFacts, *lookups: Lookup) -> tuple[Evidence, ...]:
    """What the resolver said, and the lines of /etc/hosts behind it."""
    seen = [
        Evidence(
            kind="command",
            where=node,
            what=f"getent ahosts {one.name}",
            output=one.error or listing(one.addresses),
        )
        for one in lookups[:4]
    ]
    names = {one.name for one in lookups}
    lines = [line for line in facts.hosts_lines if names & set(line.split()[1:])]
    if lines:
        seen.append(Evidence(kind="file", where=node, what="/etc/hosts", output="\n".join(lines[:4])))
    return tuple(seen)
