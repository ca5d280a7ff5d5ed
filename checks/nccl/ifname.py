"""The interface and address that NCCL would use on each node."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial

from netdoctor.advice import is_bridge_name, is_tunnel_name, propose_ifname
from netdoctor.check import check
from netdoctor.checks._shared.addresses import commonest_network, holders, parse
from netdoctor.checks._shared.env import each_its_own, export, unread
from netdoctor.checks._shared.text import is_ifname, listing, title_text
from netdoctor.checks.nccl._bootstrap import VARIABLE, Bootstrap, bootstrap, undetermined
from netdoctor.facts.net import AddressRow, NetFacts, ResolveFacts, RouteFacts
from netdoctor.facts.software import EnvFacts, Job, NcclAnswer, SoftwareFacts
from netdoctor.model import (
    CONFIG,
    DERIVED,
    LIKELY,
    Cause,
    Finding,
    Fix,
    Status,
    in_job,
    ok,
    run,
    skip,
    unknown,
)
from netdoctor.rules.addresses import (
    IPNetwork,
    ip,
    is_usable,
    leads_to,
    network,
    networks_by_reach,
    repeated_addresses,
    rows_of,
)
from netdoctor.rules.nccl import device_of, is_ifname_set, is_running
from netdoctor.rules.variables import Source, parse_filter, values
from netdoctor.rules.versions import nccl_version

COMM_ID = Cause("nccl-comm-id", "{nodes} {has} no address in the network that NCCL_COMM_ID names")
NONE = Cause("nccl-ifname-none", "{nodes} {has} no interface that NCCL could use")
DOWN = Cause("nccl-ifname-down", "the interface that NCCL_SOCKET_IFNAME asks for is down on {nodes}")
BARE = Cause(
    "nccl-ifname-no-address", "the interface that NCCL_SOCKET_IFNAME asks for has no address on {nodes}"
)
NO_MATCH = Cause("nccl-ifname-nomatch", "NCCL_SOCKET_IFNAME matches no interface on {nodes}")
LOOPBACK = Cause("nccl-ifname-loopback", "NCCL on {nodes} would use the loopback interface")
LINK_LOCAL = Cause("nccl-ifname-link-local", "NCCL on {nodes} would use a link-local address")
SAME = Cause("nccl-ifname-same-address", "NCCL on {nodes} would use an address that other nodes have too")
NETWORK = Cause("nccl-ifname-network", "NCCL on {nodes} would use another network than the other nodes")
OVERLAY = Cause("nccl-ifname-overlay", "NCCL on {nodes} would use an overlay network", LIKELY)


Nodes = Mapping[str, Bootstrap]
Rows = Mapping[str, AddressRow]
Routes = Mapping[str, RouteFacts]


@check(explains=("bw.*",), source="https://github.com/NVIDIA/nccl/blob/v2.30.7-1/src/misc/socket.cc")
def nccl_ifname(
    nets: Mapping[str, NetFacts],
    envs: Mapping[str, EnvFacts] | None,
    softwares: Mapping[str, SoftwareFacts] | None,
    routes: Mapping[str, RouteFacts] | None,
    resolves: Mapping[str, ResolveFacts] | None,
    answers: Mapping[str, NcclAnswer] | None,
    job: Job,
) -> Iterator[Finding]:
    """NCCL picks, on every node, an address that the other nodes can reach.

    Looks at:
        Interfaces in the kernel's order, NCCL_SOCKET_IFNAME, NCCL_SOCKET_FAMILY and NCCL_COMM_ID of the
        job, the login session, ~/.nccl.conf and /etc/nccl.conf, and the release of NCCL. NCCL's own rules
        are applied: names are prefixes unless the list begins with ``=``; a list that begins with ``^``
        excludes; a list that matches nothing ends the job; without the variable it is ``ib*``, then all
        but ``docker*``, ``lo*`` and ``virbr*``. If the job's Python has a libnccl, launch and full scans
        call that library, and its answer counts. A finding says whether NCCL itself chose, or the choice
        is predicted.

    Matters because:
        Each process chooses alone and sends that address to its peers. Nothing checks that they can reach
        it. A Docker bridge has the same address on every node, so nodes connect to themselves
        ("Connection refused"). An interface that another node lacks ends the job there ("Bootstrap : no
        socket interface found").

    Fix:
        Set NCCL_SOCKET_IFNAME to the printed value: it was tried with the same rules on every node.
    """
    if job.backend == "gloo":
        yield skip("the job uses gloo")
        return
    logins = envs or {}
    nodes: dict[str, Bootstrap] = {}
    for node, net in nets.items():
        version = nccl_version((softwares or {}).get(node))
        resolve, answer = (resolves or {}).get(node), (answers or {}).get(node)
        nodes[node] = bootstrap(node, net, logins.get(node), job, version, resolve, answer)
    findings = {finding.target: finding for finding in _findings(nodes, routes or {}, job)}
    if findings:
        # Trying values on every node costs more than the judgement: only where there is something to mend.
        fixes = _set_ifname(nodes, job)
        for node, found in findings.items():
            if found.cause and found.cause.key not in (COMM_ID.key, NONE.key):
                hint = replace(found.cause, fixes=(*found.cause.fixes, *fixes))
                findings[node] = replace(found, cause=hint)
        findings = _one_value(findings, nodes)
    for node, one in nodes.items():
        if node in findings:
            yield findings[node]
        gap = "" if one.choice.by_nccl else unread(logins.get(node)) or undetermined(one)
        if gap and not (node in findings and findings[node].status is Status.FAIL):
            yield unknown(node, f"it is not known which address NCCL uses: {gap}")
        elif node not in findings:
            yield ok(node, one.summary, observed=str(one), evidence=one.evidence)


def _one_value(findings: Mapping[str, Finding], nodes: Nodes) -> dict[str, Finding]:
    """Where a value fits no interface of most nodes it is the value that is wrong, whatever it finds on the
    others: one cause."""
    none = {n: f.cause for n, f in findings.items() if f.cause and f.cause.key == NO_MATCH.key}
    settings = {nodes[n].setting for n in none}
    if 2 * len(none) <= len(nodes) or len(settings) != 1:
        return dict(findings)
    common = replace(next(iter(none.values())), culprits=tuple(none))
    return {n: replace(f, cause=common) if nodes[n].setting in settings else f for n, f in findings.items()}


def _findings(nodes: Nodes, routes: Routes, job: Job) -> Iterator[Finding]:
    empty = [one for one in nodes.values() if one.choice.row is None and not one.choice.untold]
    same_setting = len({one.setting for one in empty}) == 1
    yield from (_nothing(one, same_setting) for one in empty)
    if len(nodes) < 2:
        return
    nets = {node: one.net for node, one in nodes.items()}
    repeated = repeated_addresses(nets)
    owners = cache(partial(holders, nets))
    fit: dict[str, AddressRow] = {}
    for node, one in nodes.items():
        row = one.choice.row
        if row is None:
            continue
        if ip(row.address).is_loopback:
            cause, what = LOOPBACK, f"loopback ({row.address}), which no other node can reach"
        elif not is_usable(row):
            cause, what = LINK_LOCAL, f"{one}, a link-local address that peers cannot dial"
        elif row.address in repeated:
            others = [other for other in owners()[parse(row.address)][:5] if other != node]
            have = "has" if len(others) == 1 else "have"
            owned_by = f"{listing(others, 3)} also {have}: peers would connect to themselves"
            cause, what = SAME, f"{one}, an address that {owned_by}"
        else:
            fit[node] = row
            continue
        yield cause.fail(f"{one.uses} {what}", **one.details())
    if fit:
        yield from _networks(nodes, fit, routes, job)


def _networks(nodes: Nodes, fit: Rows, routes: Routes, job: Job) -> Iterator[Finding]:
    """Nodes whose choice is in another network than that of the others, or on an overlay."""
    reach = networks_by_reach({node: one.net for node, one in nodes.items()})
    typical, certain = commonest_network(fit.values(), reach)
    direct = any(
        len(rows) == len(nodes) and not any(is_tunnel_name(row.ifname) for row in rows.values())
        for rows in reach.values()
    )
    # Two nodes of each network stand for all of it: one of them is not the node that asks.
    peers: dict[IPNetwork, list[str]] = {}
    for node, row in fit.items():
        peers.setdefault(network(row), []).append(node)
    dialled = {peer: fit[peer] for group in peers.values() for peer in group[:2]}
    for node, row in fit.items():
        one = nodes[node]
        if ip(row.address) in typical:
            if is_tunnel_name(row.ifname) and direct:
                what = f"{one}, an overlay network, although a direct one connects all nodes"
                yield OVERLAY.warn(f"{one.uses} {what}", **one.details())
            continue
        inside, here = reach.get(typical, {}), reach.get(network(row), {})
        reason = _outside(one, row, inside, here) or _cut_off(one, dialled, routes.get(node), job)
        if reason:
            cause = NETWORK if certain else NETWORK.but(confidence=LIKELY)
            what = f"{one}, while {'most' if certain else 'other'} nodes use {typical}: {reason}"
            expected = DERIVED(f"an address in {typical}")
            yield cause.fail(f"{one.uses} {what}", **one.details(expected=expected))


def _outside(one: Bootstrap, row: AddressRow, inside: Rows, here: Rows) -> str:
    """Why an address outside the usual network is wrong; empty where routers may well connect them.

    inside, here: the nodes that have an address in the usual network, and in this one.
    """
    if one.node in inside:
        return f"this node has {inside[one.node].ifname} {inside[one.node].address} there"
    if is_bridge_name(row.ifname):
        return f"{row.ifname} exists on this node only"
    if is_tunnel_name(row.ifname):
        return f"{row.ifname} is an overlay that they do not use"
    if 2 * len(here) > len(inside) and len(here) > 1:
        return "this node has no address there, and would use a network that they do not use"
    return ""


def _cut_off(one: Bootstrap, dialled: Rows, routes: RouteFacts | None, job: Job) -> str:
    """Which of these addresses the node has no route to; empty where it can send to all."""
    for peer, row in dialled.items():
        if routes and peer in routes.routes and job.data_addresses.get(peer) == row.address:
            lost = routes.routes[peer].error is not None
        else:
            # Rules of routing are not among the facts: only a node without any route there is sure.
            lost = routes is None and not leads_to(one.net, ip(row.address))
        if lost:
            return f"it has no route to {row.address} of {peer}"
    return ""


def _nothing(one: Bootstrap, same_setting: bool) -> Finding:
    """NCCL finds no interface at all: because of a variable, or because there is none."""
    if one.predicted.row and one.answer:
        return NONE.fail(f"NCCL itself found no interface: {one.answer.error}{one.remark}", **one.details())
    if one.choice.rule == "NCCL_COMM_ID":
        text, value = "torch sends NCCL's id itself: unset the variable", one.env["NCCL_COMM_ID"].value
        fix = in_job(text, "unset NCCL_COMM_ID", persistent=True)
        return COMM_ID.fail(f"no address in the network of NCCL_COMM_ID={value}", **one.details(fixes=fix))
    if not is_ifname_set(values(one.env)):
        return NONE.fail("no interface has an address that NCCL could use", **one.details())
    value = one.env[VARIABLE].value
    with_address = dict.fromkeys(row.ifname for row in rows_of(one.net))
    matching = [dev.name for dev in one.net.netdevs if parse_filter(value).accepts(dev.name)]
    requested_by = f"which {one.setting} asks for"
    idle = [name for name in matching if name in with_address and not is_running(one.net, name)]
    if idle:
        details = one.details(observed=f"{listing(idle)} not running", fixes=_bring_up(idle))
        return DOWN.fail(f"{listing(idle)}, {requested_by}, is not running", **details)
    bare = [name for name in matching if name not in with_address]
    if matching:
        names = listing(bare or matching)
        family = values(one.env).get("NCCL_SOCKET_FAMILY")
        of_family = f" of {family}" if family and not bare else ""
        details = one.details(observed=f"{names} without an address")
        return BARE.fail(f"{names}, {requested_by}, has no address{of_family}", **details)
    plain = value.lstrip("=")
    name_it = "{nodes} {has} no interface " + title_text(plain) + ", which NCCL_SOCKET_IFNAME asks for"
    cause = NO_MATCH.but(title=name_it) if same_setting and is_ifname(plain) else NO_MATCH
    have = f"this node has {listing(with_address) or 'none with an address'}"
    details = one.details(observed=have, expected=CONFIG(f"an interface that {value} matches"))
    return cause.fail(f"{one.setting} matches no interface: {have}{_trap(value)}", **details)


def _trap(value: str) -> str:
    """What is odd about a list that matches nothing."""
    if value.endswith("\r"):
        return "; NCCL takes the carriage return at its end (from a Windows file) as part of the name"
    if any(item != item.strip() for item in value.split(",")):
        return "; NCCL takes the space in the list as part of the name"
    if value.startswith("=^"):
        return "; to exclude exactly, write ^= and not =^"
    if any(item[:1] in "=^" for item in value.lstrip("^=").split(",") if item):
        return "; = and ^ count at the start of the list only"
    return ""


def _set_ifname(nodes: Nodes, job: Job) -> tuple[Fix, ...]:
    """A value that fits all nodes as a fix, or one for each node; nothing where none was found."""
    nets = {node: one.net for node, one in nodes.items()}
    envs = {node: values(one.env) for node, one in nodes.items()}
    versions = {node: one.version for node, one in nodes.items()}
    proposal = propose_ifname(nets, envs, versions, job.data_addresses)
    if proposal is None:
        return ()
    if proposal.value is None:
        text = "no single value fits all nodes: set it on each node, and not in the job"
        return (each_its_own(proposal.per_node, VARIABLE, "/etc/nccl.conf", text=text, effect="next launch"),)
    given = [one.env[VARIABLE] for one in nodes.values() if VARIABLE in one.env]
    in_one_place = len({setting.origin for setting in given}) == 1 and given[0].source is Source.JOB
    where = f"in {given[0].origin}, " if in_one_place else ""
    what = f"fits all {len(nets)} nodes" if len(nets) > 1 else "fits this node"
    return (in_job(f"{where}one value that {what}", export(VARIABLE, proposal.value), persistent=True),)


def _bring_up(names: Iterable[str]) -> tuple[Fix, ...]:
    """The first of these interfaces whose name can stand in a command."""
    for name in map(device_of, names):
        if is_ifname(name):
            text = "bring the interface up, and check its cable"
            return (run(text, f"ip link set dev {name} up", root=True, persistent=False),)
    return ()
