"""The kernel's routes from every node to every other."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from netdoctor.check import check
from netdoctor.checks._shared.addresses import dialled, owners, parse
from netdoctor.checks._shared.matrix import Cell, Fault, Kind, decode_to
from netdoctor.checks._shared.paths import leave_out, on_path
from netdoctor.checks._shared.text import on_dev
from netdoctor.facts.net import NetFacts, Route, RouteFacts
from netdoctor.facts.paths import Path, Paths
from netdoctor.facts.software import Job
from netdoctor.model import (
    CERTAIN,
    DERIVED,
    LIKELY,
    PEERS,
    SUSPECTED,
    Cause,
    Evidence,
    Finding,
    Fix,
    in_job,
    pair,
    run,
    seen,
    skip,
    unknown,
)
from netdoctor.rules.addresses import network, rows_of

MISSING = Cause("route-missing", "{nodes} {has} no route to other nodes")
MISSING_TO = Cause("route-missing-to", "No other node has a route to {nodes}")
OTHER_WAY = Cause(
    "route-other-interface",
    "The job's traffic leaves {nodes} over another interface than it arrives",
    LIKELY,
    follows=("nccl.ifname", "gloo.ifname"),
)
# Where each address is in a network of the interface that its route names, no route is wrong.
ONE_NETWORK = "let the job use one network on all nodes: NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME"
DUPLICATE = Cause(
    "address-duplicate", "{nodes} share an address", LIKELY, settle_by="choose which node should have it"
)


@check(
    after=["ssh.login", "net.interface"],
    explains=["net.ports", "net.path-mtu", "net.loss", "rdzv.reach", "bw.*"],
    profile="launch",
    source="https://man7.org/linux/man-pages/man8/ip-route.8.html",
)
def net_route(
    routes: Mapping[str, RouteFacts], nets: Mapping[str, NetFacts], job: Job, paths: Paths | None = None
) -> Iterator[Finding]:
    """Every node has a route to every other, over the interface that carries the job's traffic.

    Looks at:
        The kernel's own answer for each address of a peer that the job dials: interface, source, gateway.
        No packet is sent.

    Matters because:
        A missing route ends a launch with "No route to host" or "Network is unreachable". A route over
        another interface (management LAN, VPN) is slow, or the far end drops the packets.

    Fix:
        Add the route, or correct the address or the prefix length of the interface.
    """
    if len(nets) < 2:
        yield skip("one node: there is no other node")
        return
    local = {node: dev.name for node in routes if (dev := dialled(node, nets, job)) is not None}
    main: dict[Cell, Route] = {}
    for node, facts in routes.items():
        if not facts.routes:
            yield unknown(node, "no route to another node was tested")
        for peer, route in facts.routes.items():
            if peer == node:
                continue
            if owners({node: nets[node]}, route.destination):
                yield DUPLICATE.fail(
                    f"{node} has the address of {peer} ({route.destination}) itself",
                    at=pair(node, peer),
                    observed=f"{route.destination} is local on {node}",
                    expected=PEERS("an address that only one node has"),
                    seen=_evidence(route, f"local, dev {route.dev}"),
                    fixes=Fix(text="give each node a different address, or list another one", root=True),
                )
                continue
            main[node, peer] = route
            if route.error is None and route.dev not in (local.get(node, route.dev), "lo"):
                yield _other_way(node, peer, route, local[node], nets[node])
    yield from _lost(None, main, local)
    for path in paths.further if paths else ():
        peers: dict[str, list[str]] = {}
        for peer, address in path.addresses.items():
            peers.setdefault(address, []).append(peer)
        found = {
            (node, peer): one
            for node, facts in routes.items()
            for one in facts.further
            for peer in peers.get(one.destination, ())
            if peer != node
        }
        others = leave_out(path, paths) if paths else ()
        for finding in _lost(path, found, path.ifnames):
            if hint := finding.cause:
                # A network of one node alone is hardly meant.
                parts = (others, hint.fixes) if len(path.addresses) == 1 else (hint.fixes, others)
                hint = replace(hint, fixes=(*parts[0], *parts[1]))
            yield replace(finding, cause=hint)


def _lost(path: Path | None, routes: Mapping[Cell, Route], ifnames: Mapping[str, str]) -> Iterator[Finding]:
    two = len({node for cell in routes for node in cell}) == 2
    for fault in decode_to({cell: route.error is not None for cell, route in routes.items()}):
        for cell in sorted(fault.cells):
            finding = _missing(cell, routes[cell], fault, ifnames.get(cell[0]), two=two)
            yield on_path(finding, path)


def _is_inside(net: NetFacts, route: Route) -> bool:
    """Whether the address is in a network of the interface that the kernel chose: the route is right."""
    address = parse(route.destination)
    return address is not None and any(
        row.ifname == route.dev and address in network(row) for row in rows_of(net)
    )


def _other_way(node: str, peer: str, route: Route, local: str, net: NetFacts) -> Finding:
    if route.dev is None:
        return unknown(pair(node, peer), "the kernel did not show over which interface it would send")
    return OTHER_WAY.warn(
        f"traffic leaves over {route.dev}, but {node} is dialled on {local}",
        at=pair(node, peer),
        culprits=(node,),
        observed=f"dev {route.dev}" + (f" via {route.gateway}" if route.gateway else ""),
        expected=DERIVED(f"dev {local}"),
        seen=_evidence(route, f"dev {route.dev} src {route.source}"),
        fixes=in_job(ONE_NETWORK)
        if _is_inside(net, route)
        else _add(f"route the other nodes over {local}", route, local, risk="medium"),
    )


def _missing(cell: Cell, route: Route, fault: Fault, local: str | None, *, two: bool) -> Finding:
    into = fault.kind is Kind.IN
    text = "add the route, or correct the address and prefix length of the interface"
    if into:
        text = "give it an address in the network of the other nodes, or route its network there"
    cause = MISSING_TO if into else MISSING
    return cause.but(confidence=SUSPECTED if fault.kind is Kind.PATH and two else CERTAIN).fail(
        f"no route to {route.destination} ({route.error})",
        at=pair(*cell),
        culprits={Kind.IN: cell[1:], Kind.NODE: fault.nodes}.get(fault.kind, cell[:1]),
        observed=route.error,
        expected="a route",
        seen=_evidence(route, route.error or ""),
        fixes=_add(text, route, local),
    )


def _evidence(route: Route, answer: str) -> Evidence:
    return seen(f"ip route get {route.destination}", answer, "command")


def _add(text: str, route: Route, ifname: str | None, risk: str = "low") -> Fix:
    address = parse(route.destination)
    if address is None:
        return run(text)
    target = f"{address}/{address.max_prefixlen}"
    was = f"/run/netdoctor-route-{address}"  # the address may have a route of its own, and get it back
    put = f"[ -e {was} ] || ip route save {target} > {was}; ip route replace {target} dev {{0}}"
    take = f"[ ! -e {was} ] || (ip route del {target} dev {{0}}; ip route restore < {was} && rm {was})"
    put, take = on_dev(ifname, put), on_dev(ifname, take)
    return run(text, put, undo=take, root=True, persistent=False, risk=risk)
