"""What the nodes' names mean, on every node."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice

from netdoctor.check import check, derived
from netdoctor.checks._shared.addresses import holders, holds, is_loopback, parse, same
from netdoctor.checks._shared.hosts_file import entries, own_name
from netdoctor.checks._shared.job import ASKING, BY_RENDEZVOUS, resolved_nodes
from netdoctor.checks._shared.text import listing
from netdoctor.checks.net._bridges import on_bridges
from netdoctor.facts.host import HostFacts, Login, Node, Session
from netdoctor.facts.net import Lookup, NetFacts, ResolveFacts
from netdoctor.facts.software import Job
from netdoctor.model import (
    CLUSTER,
    CONFIG,
    DERIVED,
    LIKELY,
    PEERS,
    Cause,
    Evidence,
    Expected,
    Finding,
    Status,
    in_job,
    look,
    ok,
    seen,
    unknown,
)

OWN_UNKNOWN = Cause("own-name-unknown", "The host name of {nodes} does not resolve there")
OWN_LOOPBACK = Cause("hosts-loopback", "The host name of {nodes} resolves to a loopback address there")
OWN_WRONG = Cause("own-name-wrong", "The host name of {nodes} resolves to an address of another machine")
PEER_UNKNOWN = Cause("peer-name-unknown", "{nodes} cannot resolve names of other nodes")
PEER_WRONG = Cause("peer-name-wrong", "{nodes} resolve{s} names of other nodes to wrong addresses")
SSH_ONLY = Cause("names-ssh-only", "{nodes} cannot resolve the names in the hosts file", LIKELY)
SLOW = Cause("dns-slow", "Name lookups are slow on {nodes}", LIKELY)
# A name from /etc/hosts or a near cache takes microseconds, a DNS server milliseconds. A second means that
# some server did not answer and another was asked (resolv.conf(5): 5 s, or `options timeout:1`).
SLOW_MS = 1000.0
RDZV = "torchrun may find nobody to host the rendezvous"


@dataclass(frozen=True, slots=True)
class Reached:
    """Nodes that were logged in to, whatever else is known of them. names: as listed; nets: where known."""

    names: Mapping[str, str]
    nets: Mapping[str, NetFacts]


@derived
def reached_nodes(
    listed: Mapping[str, Node], sessions: Mapping[str, Session], nets: Mapping[str, NetFacts] | None
) -> Reached:
    """What a name means elsewhere does not hang on what its node could say of itself."""
    names = {
        node: listed[node].host
        for node, session in sessions.items()
        if session.outcome == Login.OK and node in listed
    }
    return Reached(names, nets or {})


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
    sessions: Mapping[str, Session] | None = None,
    reached: Reached | None = None,
) -> Iterator[Finding]:
    """On every node its own name and its peers' names resolve to addresses of those nodes.

    Looks at:
        getaddrinfo() on every node for its own host name and, from profile launch on, for the listed
        names; above 64 nodes for those of rank 0, of both neighbours and of a sample of 62 others. Which
        of the node's addresses can be bound, and the lines of /etc/hosts that matter.

    Matters because:
        Gloo sends its peers the address of the node's own name. With Debian's line ``127.0.1.1 host``
        peers connect to themselves. torchrun uses the node's own name to decide who hosts the rendezvous,
        and then gives the host name of one node to all others. mpirun, pdsh and DeepSpeed look up the
        names of all nodes; if ``--launcher`` names another launcher, other names are a warning.

    Fix:
        Write the address and name of each node into /etc/hosts on all nodes, and remove the node's own
        name from the line of 127.0.1.1.
    """
    findings: list[Finding] = []
    if len(resolves) > 1:
        for node, facts in resolves.items():
            findings += _own_name(node, facts, nets[node], hosts[node], job)
        # The address of a container on a bridge means nothing elsewhere: its name leads to its machine, where
        # the login went. Whether peers reach it is net.container's.
        bridged = {node for node, *_ in on_bridges(hosts, nets, sessions or {}, None)}
        outside = {node: one.address for node, one in (sessions or {}).items() if node in bridged}
        here = reached or Reached({node: listed[node].host for node in resolves if node in listed}, nets)
        findings += _peers(resolves, here, hosts, job, outside)
    yield from findings
    with_finding = {finding.target for finding in findings}
    any_peers = any(facts.peers for facts in resolves.values())
    for node, facts in resolves.items():
        judged = (facts.own, *facts.peers) if len(resolves) > 1 else facts.peers
        late = dict.fromkeys(one.name for one in judged if not one.asked)
        if late and node not in with_finding:
            yield unknown(node, f"there was no time left to look up {listing(late)}")
        elif any_peers and not facts.peers and node not in with_finding:
            yield unknown(node, "no other node's name was looked up here")
        slow = [one for one in (facts.own, *facts.peers) if one.elapsed_ms > SLOW_MS]
        if slow:
            worst = max(slow, key=lambda one: one.elapsed_ms)
            took = f"{worst.elapsed_ms / 1000:.1f} s"
            summary, expected = f"looking up {worst.name} takes {took}", f"under {SLOW_MS / 1000:.0f} s"
            evidence = seen(f"getaddrinfo {listing(one.name for one in slow)}", f"up to {took}")
            text = "remove the name server that does not answer, or add the nodes to /etc/hosts"
            fix = look(text, "cat /etc/resolv.conf; resolvectl status")
            yield SLOW.warn(summary, at=node, observed=took, expected=expected, seen=evidence, fixes=fix)


def _own_name(node: str, facts: ResolveFacts, net: NetFacts, host: HostFacts, job: Job) -> Iterator[Finding]:
    lookup, address = facts.own, job.data_addresses.get(node)
    answer = lookup.error or listing(lookup.addresses) or "no address"
    has_ifname = len(job.env.get("GLOO_SOCKET_IFNAME", "")) > 1
    cause, summary = (
        None,
        f"its own name {lookup.name} resolves to {answer}, which is not one of its addresses",
    )
    if lookup.failed:
        cause = OWN_UNKNOWN
        summary = f"cannot resolve its own name {lookup.name}: gloo uses loopback ({answer})"
    elif is_loopback(facts.first_bindable) or all(map(is_loopback, lookup.addresses)):
        cause = OWN_LOOPBACK
        gloo = (
            ""
            if has_ifname
            else (
                "gloo tells the others to connect there: the job starts only if this node connects itself, "
                "as the one with the larger address does, and "
            )
        )
        summary = f"its own name {lookup.name} resolves to {facts.first_bindable or answer}: {gloo}{RDZV}"
    elif not any(holds(net, one) or same(one, address) for one in lookup.addresses):
        cause = OWN_WRONG
    if cause and lookup.asked:
        # With an interface named, gloo does not ask what the own name means; torchrun still does.
        say = cause.warn if has_ifname else cause.fail
        expected = DERIVED(address or "an address of this node")
        evidence, fix = _evidence(facts, [lookup]), own_name(lookup.name, host, address)
        yield say(summary, at=node, observed=answer, expected=expected, seen=evidence, fixes=fix)


def _peers(
    resolves: Mapping[str, ResolveFacts],
    reached: Reached,
    hosts: Mapping[str, HostFacts],
    job: Job,
    outside: Mapping[str, str | None],
) -> Iterator[Finding]:
    """Listed names, as every other node understands them. Addresses are not names."""
    names = {node: name for node, name in reached.names.items() if parse(name) is None}
    called: dict[str, list[str]] = {}
    for node, name in names.items():
        called.setdefault(name, []).append(node)
    first = resolved_nodes(job, hosts)
    for namesakes in called.values():
        namesakes.sort(key=lambda node: node not in first)
    # By name: many nodes may share one.
    lookups: dict[str, dict[str, Lookup]] = {}
    tried = 0
    for node, facts in resolves.items():
        looked_up = {one.name: one for one in facts.peers if one.asked}
        others = {name: len(called.get(name, ())) - (names.get(node) == name) for name in looked_up}
        lookups[node] = {name: one for name, one in looked_up.items() if others[name]}
        tried += sum(others.values())
    possible = sum(len(names) - (node in names) for node in resolves)
    if tried and all(one.failed for found in lookups.values() for one in found.values()):
        # They are names of the user's ssh config, or of the DNS of the machine that netdoctor runs on.
        yield SSH_ONLY.warn(
            f"no node can resolve the listed names ({listing(names.values())}{_part(tried, possible)}): "
            "launch with addresses, or add the names there",
            at=CLUSTER,
            culprits=tuple(resolves),
            observed="no listed name resolves on any node",
            expected=CONFIG("names that the nodes can also resolve"),
            fixes=in_job("use addresses in MASTER_ADDR and --rdzv-endpoint"),
        )
        return
    names_of_others = _Names(lookups, called, first, resolves, reached.nets, job, outside)
    wrong = [*names_of_others.unresolved(), *names_of_others.astray()]
    yield from wrong
    if not wrong and tried < possible and (not tried or all(lookups.values())):
        text = f"{_part(tried, possible)}, all right" if tried else " were not looked up"
        yield ok(CLUSTER, f"the names of other nodes{text}")


@dataclass(frozen=True, slots=True)
class _Names:
    """Names of others as nodes answered for them."""

    lookups: Mapping[str, Mapping[str, Lookup]]  # by node, then by name
    called: Mapping[str, list[str]]  # the nodes of a name
    first: Set[str]  # the nodes for whose names the job asks
    resolves: Mapping[str, ResolveFacts]
    nets: Mapping[str, NetFacts]
    job: Job
    outside: Mapping[str, str | None]  # of containers on bridges: the address of their machine

    def unresolved(self) -> Iterator[Finding]:
        """Names that a node cannot resolve."""
        for node, found in self.lookups.items():
            failed = [one for one in found.values() if one.failed]
            if missing := {_first_other(node, self.called[one.name]): one for one in failed}:
                error = failed[0].error or "no address"
                text = f"cannot resolve {listing(one.name for one in missing.values())}: {error}"
                expected = PEERS("an address of that node")
                yield self._finding(PEER_UNKNOWN, node, missing, text, error, expected)

    def astray(self) -> Iterator[Finding]:
        """Names that lead a node somewhere else."""
        owners = cache(partial(holders, self.nets))
        known: dict[tuple[str, tuple[str, ...]], list[str]] = {}

        def lost(one: Lookup) -> list[str]:
            """Two of the nodes called so to which it does not lead."""
            key = one.name, tuple(one.addresses)
            if key not in known:
                known[key] = list(islice((n for n in self.called[one.name] if not self._leads_to(n, one)), 2))
            return known[key]

        for node, found in self.lookups.items():
            resolved = ((one, lost(one)) for one in found.values() if not one.failed)
            if wrong := {_first_other(node, far): one for one, far in resolved if far not in ([], [node])}:
                (peer, one), *more = wrong.items()
                holder = owners().get(parse(one.addresses[0]), ())
                is_of = f", which is {listing(holder)}" if holder else ""
                also = f"; also wrong: {listing(one.name for _, one in more)}" if more else ""
                addresses = listing(one.addresses)
                expected = DERIVED(self.job.data_addresses.get(peer, "an address of that node"))
                text = f"resolves {one.name} to {addresses}{is_of}{also}"
                yield self._finding(PEER_WRONG, node, wrong, text, addresses, expected)

    def _finding(
        self,
        cause: Cause,
        node: str,
        wrong: Mapping[str, Lookup],
        text: str,
        observed: str,
        expected: Expected,
    ) -> Finding:
        """Return the finding of a node. wrong: the lookups that failed, by a node of that name."""
        status, launchers = _stopped(wrong, self.first, self.job)
        fix = entries(
            "add the names with their addresses to /etc/hosts there, or correct DNS",
            {one.name: self.job.data_addresses.get(peer, "") for peer, one in wrong.items()},
        )
        evidence = _evidence(self.resolves[node], wrong.values())
        return cause.say(
            status, text + launchers, at=node, observed=observed, expected=expected, seen=evidence, fixes=fix
        )

    def _leads_to(self, peer: str, found: Lookup) -> bool:
        net, address = self.nets.get(peer), self.job.data_addresses.get(peer)
        outside = self.outside.get(peer)
        return net is None or any(
            not is_loopback(one) and (holds(net, one) or same(one, address) or same(one, outside))
            for one in found.addresses
        )


def _first_other(node: str, nodes: Iterable[str]) -> str:
    return next(one for one in nodes if one != node)


def _part(tried: int, possible: int) -> str:
    """Of how many pairs the names were looked up, where it is not all."""
    return f", looked up over {tried} of {possible} directed pairs" if tried < possible else ""


def _stopped(peers: Collection[str], requested: Set[str], job: Job) -> tuple[Status, str]:
    """Return how bad it is that these nodes' names lead nowhere, and for which launchers.

    requested: see `resolved_nodes`."""
    if not requested.isdisjoint(peers):
        return Status.FAIL, ""
    if job.launcher in BY_RENDEZVOUS:
        return Status.WARN, f"; {job.launcher} does not look it up, {ASKING} would fail"
    if job.launcher:
        return Status.FAIL, f"; {job.launcher} looks it up"
    return Status.FAIL, f"; {ASKING} look it up, torchrun only rank 0's (--launcher)"


def _evidence(facts: ResolveFacts, lookups: Collection[Lookup]) -> list[Evidence]:
    """What the resolver said, and the lines of /etc/hosts behind it."""
    found = {one.name: one.error or listing(one.addresses) for one in lookups}
    evidence = [seen(f"getent ahosts {name}", answer, "command") for name, answer in list(found.items())[:4]]
    lines = [line for line in facts.hosts_lines if found.keys() & set(line.split()[1:])]
    return [*evidence, seen("/etc/hosts", "\n".join(lines[:4]), "file")] if lines else evidence
