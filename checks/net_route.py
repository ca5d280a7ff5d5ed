"""The kernel's routes from every node to every other."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._addresses import data_device, holds, parse
from netdoctor.checks._matrix import Cell, Fault, Kind, decode
from netdoctor.checks._words import is_ifname
from netdoctor.facts.net import NetFacts, Route, RouteFacts
from netdoctor.facts.software import Job
from netdoctor.model import (
    CauseHint,
    Command,
    Confidence,
    Evidence,
    ExpectedFrom,
    Finding,
    Fix,
    fail,
    pair,
    skip,
    warn,
)


@check(
    after=["ssh.login", "net.interface"],
    explains=["net.ports", "net.path-mtu", "net.loss", "rdzv.reach", "bw.*"],
    profile="launch",
    source="https://man7.org/linux/man-pages/man8/ip-route.8.html",
)
def net_route(routes: Mapping[str, RouteFacts], nets: Mapping[str, NetFacts], job: Job) -> Iterator[Finding]:
    """Every node has a route to every other, over the interface that carries the job's traffic.

    Looks at:
        The kernel's own answer for each peer's address: interface, source, gateway. No packet is sent.

    Matters because:
        A missing route ends a launch with "No route to host" or "Network is unreachable". A route over
        another interface (management LAN, VPN) works and is slow, or is dropped at the far end.

    Fix:
        Add the route, or correct the address or the prefix length of the interface.
    """
    if len(nets) < 2:
        yield skip("one node: there is nobody to route to")
        return
    cells: dict[Cell, bool] = {}
    lost: dict[Cell, Route] = {}
    for node, facts in routes.items():
        for peer, route in facts.routes.items():
            if peer == node:
                continue
            if _is_own(node, peer, route, nets):
                yield _duplicate(node, peer, route)
                continue
            cells[(node, peer)] = route.error is not None
            if route.error is not None:
                lost[(node, peer)] = route
            else:
                yield from _other_way(node, peer, route, nets, job)
    for fault in decode(cells):
        for cell in sorted(fault.cells):
            yield _missing(cell, lost[cell], fault, nets, job)


def _is_own(node: str, peer: str, route: Route, nets: Mapping[str, NetFacts]) -> bool:
    """The peer's address is an address of this very node: two nodes share it."""
    address = parse(route.destination)
    if node not in nets or address is None or address.is_loopback:
        return False
    return holds(nets[node], route.destination) is not None


def _duplicate(node: str, peer: str, route: Route) -> Finding:
    return fail(
        pair(node, peer),
        f"{node} has the address of {peer} ({route.destination}) itself",
        observed=f"{route.destination} is local on {node}",
        expected="an address that only one node has",
        expected_from=ExpectedFrom.PEERS,
        evidence=(
            Evidence(
                kind="command",
                where=node,
                what=f"ip route get {route.destination}",
                output=f"local, dev {route.dev}",
            ),
        ),
        cause=CauseHint(
            key="address-duplicate",
            title="{nodes} share an address",
            culprits=(node, peer),
            confidence=Confidence.LIKELY,
            fixes=(Fix(text="give each node an address of its own, or list another one", root=True),),
            settle_by="say which node should have it",
        ),
    )


def _other_way(
    node: str, peer: str, route: Route, nets: Mapping[str, NetFacts], job: Job
) -> Iterator[Finding]:
    own = data_device(nets[node], job.data_addresses.get(node)) if node in nets else None
    if own is None or route.dev is None or route.dev in (own.name, "lo"):
        return
    command = _add(node, route, own.name)
    yield warn(
        pair(node, peer),
        f"traffic leaves over {route.dev}, though {node} is dialled on {own.name}",
        observed=f"dev {route.dev}" + (f" via {route.gateway}" if route.gateway else ""),
        expected=f"dev {own.name}",
        expected_from=ExpectedFrom.DERIVED,
        evidence=(
            Evidence(
                kind="command",
                where=node,
                what=f"ip route get {route.destination}",
                output=f"dev {route.dev} src {route.source}",
            ),
        ),
        cause=CauseHint(
            key="route-other-interface",
            title="{nodes} send{s} the job's traffic over another interface than the one it comes in on",
            culprits=(node,),
            confidence=Confidence.LIKELY,
            fixes=(
                Fix(
                    text=f"route the other nodes over {own.name}",
                    commands=command,
                    root=True,
                    persistent=False,
                    risk="medium",
                ),
            ),
        ),
    )


def _missing(cell: Cell, route: Route, fault: Fault, nets: Mapping[str, NetFacts], job: Job) -> Finding:
    src, dst = cell
    inward = fault.kind is Kind.IN
    culprits: tuple[str, ...] = (dst,) if inward else (src,)
    if fault.kind is Kind.NODE:
        culprits = fault.nodes
    own = data_device(nets[src], job.data_addresses.get(src)) if src in nets else None
    if inward:
        title = "No other node has a route to {nodes}"
        text = "give it an address in the network of the other nodes, or route its network there"
    else:
        title = "{nodes} {has} no route to other nodes"
        text = "add the route, or correct the address and prefix length of the interface"
    return fail(
        pair(src, dst),
        f"no route to {route.destination} ({route.error})",
        observed=route.error,
        expected="a route",
        expected_from=ExpectedFrom.CONSTANT,
        evidence=(
            Evidence(
                kind="command",
                where=src,
                what=f"ip route get {route.destination}",
                output=route.error or "",
            ),
        ),
        cause=CauseHint(
            key="route-missing-to" if inward else "route-missing",
            title=title,
            culprits=culprits,
            confidence=Confidence.SUSPECTED
            if fault.kind is Kind.PATH and len(nets) == 2
            else Confidence.CERTAIN,
            fixes=(
                Fix(
                    text=text,
                    commands=_add(src, route, own.name if own else None),
                    root=True,
                    persistent=False,
                ),
            ),
        ),
    )


def _add(node: str, route: Route, ifname: str | None) -> tuple[Command, ...]:
    address = parse(route.destination)
    if address is None or not is_ifname(ifname):
        return ()
    shell = f"ip route replace {address}/{address.max_prefixlen} dev {ifname}"
    return (Command(run_on=node, shell=shell),)
