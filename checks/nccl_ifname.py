"""The interface and address that NCCL would use on each node."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from netdoctor.check import check
from netdoctor.checks._nccl_advice import Proposal, is_bridge_name, is_tunnel_name, propose_ifname
from netdoctor.checks._words import is_ifname, listing, quoted, title_text
from netdoctor.facts.net import AddressRow, NetFacts, RouteFacts
from netdoctor.facts.software import EnvFacts, Job, SoftwareFacts
from netdoctor.model import (
    CauseHint,
    Command,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    ok,
    skip,
    warn,
)
from netdoctor.rules.addresses import (
    IPNetwork,
    ip,
    is_usable,
    network,
    networks_by_reach,
    repeated_addresses,
    rows_of,
)
from netdoctor.rules.nccl import Choice, choose, device_of, is_ifname_set, is_running
from netdoctor.rules.variables import Environment, Source, effective_env, parse_filter, values
from netdoctor.rules.versions import Version, nccl_version

VARIABLE = "NCCL_SOCKET_IFNAME"


@dataclass(frozen=True, slots=True)
class Seen:
    """A node as NCCL sees it."""

    node: str
    net: NetFacts
    env: Environment
    version: Version | None
    choice: Choice

    @property
    def setting(self) -> str:
        """``NCCL_SOCKET_IFNAME=eth0 (train.env:4)``, or that it is unset."""
        if VARIABLE not in self.env:
            return f"{VARIABLE} is not set"
        return str(self.env[VARIABLE])


@check(
    explains=("bw.*",),
    source="https://github.com/NVIDIA/nccl/blob/v2.30.7-1/src/misc/socket.cc",
)
def nccl_ifname(
    nets: Mapping[str, NetFacts],
    envs: Mapping[str, EnvFacts] | None,
    softwares: Mapping[str, SoftwareFacts] | None,
    routes: Mapping[str, RouteFacts] | None,
    job: Job,
) -> Iterator[Finding]:
    """NCCL picks, on every node, an address that the other nodes can reach.

    Looks at:
        Interfaces in the kernel's order, NCCL_SOCKET_IFNAME, NCCL_SOCKET_FAMILY and NCCL_COMM_ID
        of the job, the login session, ~/.nccl.conf and /etc/nccl.conf, and the release of NCCL.
        From these, by NCCL's own rules: names are prefixes unless the list begins with ``=``, a
        list that begins with ``^`` excludes, a list that matches nothing ends the job, and without
        the variable it is ``ib*``, then whatever is not ``docker*``, ``lo*`` or ``virbr*``.

    Matters because:
        Each process picks alone and tells its peers that address; nothing checks that they can
        reach it. A bridge of Docker has the same address on every node, so that nodes dial
        themselves ("Connection refused"); an interface that another node lacks ends the job there
        ("Bootstrap : no socket interface found").

    Fix:
        Set NCCL_SOCKET_IFNAME to a value that the same rules were tried with on every node.
    """
    if job.backend == "gloo":
        yield skip("the job uses gloo")
        return
    seen: dict[str, Seen] = {}
    for node, net in nets.items():
        env = effective_env((envs or {}).get(node), job)
        version = nccl_version((softwares or {}).get(node))
        seen[node] = Seen(node, net, env, version, choose(net, values(env), version))
    troubles = {finding.target: finding for finding in _judge(seen, routes or {}, job, ())}
    if troubles:
        # Trying values on every node costs more than the judgement: only where there is something to mend.
        proposal = propose_ifname(
            nets,
            {node: values(one.env) for node, one in seen.items()},
            {node: one.version for node, one in seen.items()},
            job.data_addresses,
        )
        fixes = _fixes(proposal, seen)
        troubles = {finding.target: finding for finding in _judge(seen, routes or {}, job, fixes)}
        troubles = _one_value(troubles, seen)
    for node, one in seen.items():
        if node in troubles:
            yield troubles[node]
        else:
            note = "" if one.version else "; NCCL's release is not known, so by the newest rules"
            yield ok(
                node,
                f"NCCL uses {_text(one)}{note}",
                observed=_text(one),
                evidence=_evidence(one),
            )


def _one_value(troubles: dict[str, Finding], seen: Mapping[str, Seen]) -> dict[str, Finding]:
    """Where a value fits no interface of most nodes it is the value that is wrong, whatever it finds on the
    others: one cause."""
    none = {n: f.cause for n, f in troubles.items() if f.cause and f.cause.key == "nccl-ifname-nomatch"}
    settings = {seen[n].setting for n in none}
    if 2 * len(none) <= len(seen) or len(settings) != 1:
        return troubles
    common = replace(next(iter(none.values())), culprits=tuple(none))
    return {
        n: replace(f, cause=common) if f.cause and seen[n].setting in settings else f
        for n, f in troubles.items()
    }


def _judge(
    seen: Mapping[str, Seen],
    routes: Mapping[str, RouteFacts],
    job: Job,
    fixes: tuple[Fix, ...],
) -> Iterator[Finding]:
    nets = {node: one.net for node, one in seen.items()}
    repeated = repeated_addresses(nets)
    empty = [one for one in seen.values() if one.choice.row is None]
    alike = len({one.env.get(VARIABLE) for one in empty}) == 1
    for one in empty:
        yield _nothing(one, alike, fixes)
    found = {node: one.choice.row for node, one in seen.items() if one.choice.row}
    if len(seen) < 2:
        return
    owners: dict[str, list[str]] = {}
    for node, net in nets.items():
        for address in {row.address for row in rows_of(net)} & repeated:
            owners.setdefault(address, []).append(node)
    fit: dict[str, AddressRow] = {}
    for node, row in found.items():
        one = seen[node]
        if ip(row.address).is_loopback:
            yield _trouble(
                one,
                f"NCCL would use loopback ({row.address}), which no other node can reach",
                key="nccl-ifname-loopback",
                title="NCCL on {nodes} would use the loopback interface",
                fixes=fixes,
            )
        elif not is_usable(row):
            yield _trouble(
                one,
                f"NCCL would use {_text(one)}, a link-local address that peers cannot dial",
                key="nccl-ifname-link-local",
                title="NCCL on {nodes} would use a link-local address",
                fixes=fixes,
            )
        elif row.address in repeated:
            others = [other for other in owners[row.address][:5] if other != node]
            yield _trouble(
                one,
                f"NCCL would use {_text(one)}, an address that {listing(others, 3)} also"
                f" {'has' if len(others) == 1 else 'have'}: peers would dial themselves",
                key="nccl-ifname-same-address",
                title="NCCL on {nodes} would use an address that other nodes have too",
                fixes=fixes,
            )
        else:
            fit[node] = row
    yield from _networks(seen, fit, routes, job, fixes)


def _networks(
    seen: Mapping[str, Seen],
    fit: Mapping[str, AddressRow],
    routes: Mapping[str, RouteFacts],
    job: Job,
    fixes: tuple[Fix, ...],
) -> Iterator[Finding]:
    """Nodes whose choice is in another network than that of the others, or on an overlay."""
    if not fit:
        return
    reach = networks_by_reach({node: one.net for node, one in seen.items()})
    chosen = {node: network(row) for node, row in fit.items()}
    count = Counter(chosen.values())
    usual = max(count, key=lambda net: (count[net], len(reach.get(net, {}))))
    certain = count[usual] * 2 > len(fit)
    direct = any(
        len(rows) == len(seen) and not any(is_tunnel_name(row.ifname) for row in rows.values())
        for rows in reach.values()
    )
    # Two nodes of each network stand for all of it: one of them is not the node that asks.
    peers: dict[IPNetwork, list[str]] = {}
    for node, net in chosen.items():
        if len(peers.setdefault(net, [])) < 2:
            peers[net].append(node)
    dialled = {peer: fit[peer] for group in peers.values() for peer in group}
    for node, row in fit.items():
        one = seen[node]
        inside = ip(row.address).version == usual.version and ip(row.address) in usual
        if inside:
            if is_tunnel_name(row.ifname) and direct:
                yield _trouble(
                    one,
                    f"NCCL would use {_text(one)}, an overlay network, although a direct one"
                    " connects all nodes",
                    key="nccl-ifname-overlay",
                    title="NCCL on {nodes} would use an overlay network",
                    fixes=fixes,
                    finding=warn,
                    confidence=Confidence.LIKELY,
                )
            continue
        reason = _outside(one, row, usual, reach, dialled, routes, job)
        if reason is None:
            continue
        yield _trouble(
            one,
            f"NCCL would use {_text(one)}, while {'most' if certain else 'other'} nodes use"
            f" {usual}: {reason}",
            key="nccl-ifname-network",
            title="NCCL on {nodes} would use another network than the other nodes",
            fixes=fixes,
            expected=f"an address in {usual}",
            confidence=Confidence.CERTAIN if certain else Confidence.LIKELY,
        )


def _outside(
    one: Seen,
    row: AddressRow,
    usual: IPNetwork,
    reach: Mapping[IPNetwork, Mapping[str, AddressRow]],
    dialled: Mapping[str, AddressRow],
    routes: Mapping[str, RouteFacts],
    job: Job,
) -> str | None:
    """Why an address outside the usual network is wrong; None where routers may well connect
    them."""
    better = reach.get(usual, {}).get(one.node)
    if better:
        return f"this node has {better.ifname} {better.address} there"
    if is_bridge_name(row.ifname):
        return f"{row.ifname} exists on this node only"
    if is_tunnel_name(row.ifname):
        return f"{row.ifname} is an overlay that they do not use"
    here = reach.get(network(row), {})
    if 2 * len(here) > len(reach.get(usual, {})) and len(here) > 1:
        return "this node has no address there, and falls back to a network that they do not use"
    for peer, theirs in dialled.items():
        if peer != one.node and not _reaches(one, theirs, peer, routes, job):
            return f"it has no route to {theirs.address} of {peer}"
    return None


def _reaches(one: Seen, theirs: AddressRow, peer: str, routes: Mapping[str, RouteFacts], job: Job) -> bool:
    facts = routes.get(one.node)
    if facts and peer in facts.routes and job.data_addresses.get(peer) == theirs.address:
        return facts.routes[peer].error is None
    address = ip(theirs.address)
    connected = any(
        ip(row.address).version == address.version and address in network(row) for row in rows_of(one.net)
    )
    # Other routes than the default one are not among the facts: only a node without any is sure.
    return connected or bool(one.net.default_devs) or facts is not None


def _nothing(one: Seen, alike: bool, fixes: tuple[Fix, ...]) -> Finding:
    """NCCL finds no interface at all: because of a variable, or because there is none."""
    if one.choice.rule == "NCCL_COMM_ID":
        value = one.env["NCCL_COMM_ID"].value
        return _trouble(
            one,
            f"no address in the network of NCCL_COMM_ID={value}",
            key="nccl-comm-id",
            title="{nodes} {has} no address in the network that NCCL_COMM_ID names",
            fixes=(
                Fix(
                    text="torch passes NCCL's id by itself: unset the variable",
                    commands=(Command(run_on="job", shell="unset NCCL_COMM_ID"),),
                    effect="next launch",
                ),
            ),
        )
    if not is_ifname_set(values(one.env)):
        return _trouble(
            one,
            "no interface has an address that NCCL could use",
            key="nccl-ifname-none",
            title="{nodes} {has} no interface that NCCL could use",
            fixes=(),
        )
    value, origin = one.env[VARIABLE].value, one.env[VARIABLE].origin
    spec = parse_filter(value)
    with_address = {row.ifname for row in rows_of(one.net)}
    matching = [dev.name for dev in one.net.netdevs if spec.accepts(dev.name)]
    idle = [name for name in matching if name in with_address and not is_running(one.net, name)]
    if idle:
        return _trouble(
            one,
            f"{listing(idle)}, which {VARIABLE}={value} ({origin}) asks for, is not running",
            key="nccl-ifname-down",
            title="the interface that " + VARIABLE + " asks for is down on {nodes}",
            fixes=(*_bring_up(one.node, idle), *fixes),
            observed=f"{listing(idle)} not running",
        )
    bare = [name for name in matching if name not in with_address]
    if bare or matching:
        family = values(one.env).get("NCCL_SOCKET_FAMILY")
        of_family = f" of {family}" if family and not bare else ""
        return _trouble(
            one,
            f"{listing(bare or matching)}, which {VARIABLE}={value} ({origin}) asks for, has no"
            f" address{of_family}",
            key="nccl-ifname-no-address",
            title="the interface that " + VARIABLE + " asks for has no address on {nodes}",
            fixes=fixes,
            observed=f"{listing(bare or matching)} without an address",
        )
    plain = value.lstrip("=")
    title = VARIABLE + " matches no interface on {nodes}"
    if alike and is_ifname(plain):
        title = "{nodes} {has} no interface " + title_text(plain) + f", which {VARIABLE} asks for"
    return _trouble(
        one,
        f"{VARIABLE}={value} ({origin}) matches no interface: {_have(one)}{_trap(value)}",
        key="nccl-ifname-nomatch",
        title=title,
        fixes=fixes,
        observed=_have(one),
        expected=f"an interface that {value} matches",
        expected_from=ExpectedFrom.CONFIG,
    )


def _trap(value: str) -> str:
    """What is odd about a list that matches nothing."""
    if any(item != item.strip() for item in value.split(",")):
        return "; the space in the list belongs to the name"
    if value.startswith("=^"):
        return "; to exclude exactly, write ^= and not =^"
    if any(item[:1] in "=^" for item in value.lstrip("^=").split(",") if item):
        return "; = and ^ count at the start of the list only"
    return ""


def _have(one: Seen) -> str:
    names = dict.fromkeys(row.ifname for row in rows_of(one.net))
    return f"this node has {listing(names) or 'none with an address'}"


def _bring_up(node: str, names: list[str]) -> tuple[Fix, ...]:
    known = [device_of(name) for name in names if is_ifname(device_of(name))]
    if not known:
        return ()
    return (
        Fix(
            text="bring the interface up, and look at its cable",
            commands=(Command(run_on=node, shell=f"ip link set dev {known[0]} up"),),
            root=True,
            persistent=False,
        ),
    )


def _fixes(proposal: Proposal | None, seen: Mapping[str, Seen]) -> tuple[Fix, ...]:
    if proposal is None:
        return ()
    given = [one.env[VARIABLE] for one in seen.values() if VARIABLE in one.env]
    alike = len({setting.origin for setting in given}) == 1 and given[0].source is Source.JOB
    where = f"in {given[0].origin}, " if alike else ""
    if proposal.value is not None:
        what = f"fits all {len(seen)} nodes" if len(seen) > 1 else "fits this node"
        return (
            Fix(
                text=f"{where}one value that {what}",
                commands=(Command(run_on="job", shell=f"export {VARIABLE}={quoted(proposal.value)}"),),
                effect="next launch",
            ),
        )
    return (
        Fix(
            text="no single value fits all nodes: give each its own, and set none in the job",
            commands=(
                Command(run_on="job", shell=f"unset {VARIABLE}"),
                *(
                    Command(run_on=node, shell=f"echo {VARIABLE}={quoted(value)} >> /etc/nccl.conf")
                    for node, value in proposal.per_node.items()
                ),
            ),
            root=True,
            effect="next launch",
        ),
    )


def _trouble(
    one: Seen,
    summary: str,
    *,
    key: str,
    title: str,
    fixes: tuple[Fix, ...],
    observed: str | None = None,
    expected: str = "an address that the other nodes can reach",
    expected_from: ExpectedFrom = ExpectedFrom.DERIVED,
    finding: Callable[..., Finding] = fail,
    confidence: Confidence = Confidence.CERTAIN,
) -> Finding:
    return finding(
        one.node,
        summary,
        observed=observed or (_text(one) if one.choice.row else "no interface"),
        expected=expected,
        expected_from=expected_from,
        evidence=_evidence(one),
        cause=CauseHint(
            key=key,
            title=title,
            culprits=(one.node,),
            confidence=confidence,
            fixes=fixes,
            verify=("nccl.ifname",),
        ),
    )


def _text(one: Seen) -> str:
    row = one.choice.row
    return f"{row.ifname} {row.address}" if row else "nothing"


def _evidence(one: Seen) -> tuple[Evidence, ...]:
    rows = [f"{row.ifname} {row.address}/{row.prefix_len}" for row in rows_of(one.net)]
    origin = one.env[VARIABLE].origin if VARIABLE in one.env else "environment"
    return (
        Evidence(kind="file", where=one.node, what=origin, output=one.setting),
        Evidence(kind="command", where=one.node, what="ip address", output=listing(rows, 8)),
    )
