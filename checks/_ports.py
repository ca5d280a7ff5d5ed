"""From the port matrix to causes, for every check that reads it: same key, same culprits, one cause."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from netdoctor.checks._matrix import Cell, Fault, Kind, decode
from netdoctor.checks._words import listing, title_text
from netdoctor.facts.net import FirewallFacts, PortMatrix, PortProbe
from netdoctor.model import CauseHint, Confidence, Evidence, Fix, pair

RENDEZVOUS = "rendezvous"
EPHEMERAL = "ephemeral"
ALL_PORTS = "all"

# Worst first: silence costs a launch its longest timeouts. in_use and open both show that the way is open;
# error is our own trouble and judges nobody.
ByCell = dict[Cell, list[PortProbe]]
BAD = ("filtered", "rejected", "refused", "no_route")


@dataclass(frozen=True, eq=False, kw_only=True)
class PortCause:
    """A fault of the matrix with its words. ports: ``all``, ``rendezvous`` or ``ephemeral``.

    probes: the failed ones. back: some pair works the other way round. fabric: ends of pairs that
    fail though neither end has a rule set.
    """

    key: str
    title: str
    summary: str
    culprits: tuple[str, ...]
    confidence: Confidence
    fault: Fault
    outcome: str
    ports: str
    probes: tuple[PortProbe, ...]
    back: bool = False
    fabric: frozenset[str] = frozenset()
    settle_by: str | None = None

    def hint(self, fixes: tuple[Fix, ...] = ()) -> CauseHint:
        return CauseHint(
            key=self.key,
            title=self.title,
            culprits=self.culprits,
            confidence=self.confidence,
            fixes=fixes,
            verify=("net.ports",),
            settle_by=self.settle_by,
        )


def port_causes(
    ports: PortMatrix, firewalls: Mapping[str, FirewallFacts] | None = None
) -> tuple[PortCause, ...]:
    """Why pairs fail, over both kinds of ports; rule sets settle what the matrix leaves open."""
    by_cell: ByCell = {}
    for probe in ports.probes:
        by_cell.setdefault((probe.src, probe.dst), []).append(probe)
    low = _settled(decode(_cells(ports, RENDEZVOUS)), firewalls)
    high = _settled(decode(_cells(ports, EPHEMERAL)), firewalls)
    causes: list[PortCause] = []
    for fault in high:
        twin = next((f for f in low if f.kind is fault.kind and f.nodes == fault.nodes), None)
        tried = any(p.purpose == RENDEZVOUS for cell in fault.cells for p in by_cell[cell])
        scope = EPHEMERAL if twin is None and tried else ALL_PORTS
        # The same pairs may fail over the rendezvous port as part of something larger: one cause is enough.
        if twin is None and any(fault.cells <= f.cells for f in low):
            scope = ALL_PORTS
        causes.append(_worded(fault, scope, by_cell, firewalls))
    covered = {cell for fault in high for cell in fault.cells}
    for fault in low:
        if not fault.cells <= covered:
            only = any(p.purpose == EPHEMERAL for cell in fault.cells for p in by_cell[cell])
            causes.append(_worded(fault, RENDEZVOUS if only else ALL_PORTS, by_cell, firewalls))
    return _one_title(causes)


def _one_title(causes: list[PortCause]) -> tuple[PortCause, ...]:
    """Causes of one key are shown as one: where they name different peers, none are named."""
    titles: dict[str, set[str]] = {}
    for cause in causes:
        titles.setdefault(cause.key, set()).add(cause.title)
    return tuple(
        cause
        if len(titles[cause.key]) == 1 or not cause.fault.partial
        else replace(cause, title=cause.title.replace(_peers(cause.fault), "some of the other nodes"))
        for cause in causes
    )


def _peers(fault: Fault) -> str:
    """``the other nodes``, or by name those that a fault of part of a node's pairs touches."""
    if not fault.partial:
        return "the other nodes"
    return listing(
        title_text(n) for n in sorted({end for cell in fault.cells for end in cell} - {*fault.nodes})
    )


def cause_of(causes: Iterable[PortCause], cell: Cell, purpose: str) -> PortCause | None:
    """The cause that accounts for this pair over this kind of port."""
    for cause in causes:
        if cell in cause.fault.cells and cause.ports in (ALL_PORTS, purpose):
            return cause
    return None


def evidence(ports: PortMatrix, cause: PortCause) -> tuple[Evidence, ...]:
    """Two or three lines: what failed from where, what worked the other way."""
    probes = cause.probes
    numbers = listing(str(n) for n in sorted({probe.port for probe in probes}))
    order = {node: i for i, node in enumerate(dict.fromkeys(p.src for p in ports.probes))}
    sources, targets = (
        listing(sorted(ends, key=lambda n: order.get(n, len(order))))
        for ends in ({p.src for p in probes}, {p.dst for p in probes})
    )
    way = f"between {sources}" if sources == targets else f"from {sources} to {targets}"
    said = {
        "filtered": f"no answer in {ports.timeout_s:.1f} s (filtered)",
        "rejected": "rejected by a firewall on the way",
        "refused": "refused, though netdoctor listens there",
        "no_route": "no route",
    }[cause.outcome]
    lines = [
        Evidence(
            kind="probe",
            where=probes[0].src,
            what=f"TCP {numbers} {way}",
            output=said,
        )
    ]
    if cause.back and cause.fault.kind in (Kind.IN, Kind.OUT, Kind.PATH):
        lines.append(
            Evidence(
                kind="probe",
                where=probes[0].dst,
                what="the same ports the other way",
                output="open",
            )
        )
    if cause.ports == EPHEMERAL:
        lines.append(
            Evidence(
                kind="probe",
                where=probes[0].src,
                what="the rendezvous port on the same pairs",
                output="open",
            )
        )
    if cause.fabric:
        ends = listing(sorted(cause.fabric, key=lambda n: order.get(n, len(order))))
        lines.append(
            Evidence(
                kind="probe",
                where=probes[0].dst,
                what=f"nftables, iptables, firewalld and ufw on {ends}",
                output="no rule set of theirs explains it",
            )
        )
    return tuple(lines)


def _cells(ports: PortMatrix, purpose: str) -> dict[Cell, bool]:
    """Whether any port of this kind failed, for every pair over which one was tried."""
    cells: dict[Cell, bool] = {}
    for probe in ports.probes:
        if probe.purpose != purpose or (probe.outcome not in BAD and probe.outcome not in ("open", "in_use")):
            continue
        cell = (probe.src, probe.dst)
        cells[cell] = cells.get(cell, False) or probe.outcome in BAD
    return cells


def _settled(faults: tuple[Fault, ...], firewalls: Mapping[str, FirewallFacts] | None) -> tuple[Fault, ...]:
    """Paths blamed on the one end that has a rule set able to drop; the rest unchanged."""
    if not firewalls:
        return faults
    active = {node for node, facts in firewalls.items() if any(one.active for one in facts.rulesets)}
    blamed: dict[tuple[Kind, str], set[Cell]] = {}
    left: list[Fault] = []
    for fault in faults:
        open_ends = fault.kind is Kind.PATH or (fault.kind is Kind.ALL and len(fault.nodes) == 2)
        with_rules = [node for node in fault.nodes if node in active]
        known = all(node in firewalls for node in fault.nodes)
        if not open_ends or len(with_rules) != 1 or not known:
            left.append(fault)
            continue
        kind = Kind.NODE
        if fault.kind is Kind.PATH:
            kind = Kind.IN if with_rules[0] == fault.nodes[1] else Kind.OUT
        blamed.setdefault((kind, with_rules[0]), set()).update(fault.cells)
    found = [
        Fault(kind=kind, nodes=(node,), cells=frozenset(cells), partial=True)
        for (kind, node), cells in blamed.items()
    ]
    return (*found, *left)


_KEYS = {
    "filtered": "firewall",
    "rejected": "firewall-reject",
    "refused": "port-refused",
    "no_route": "unreachable",
}
_DOES = {"filtered": "drop{s}", "rejected": "reject{s}", "refused": "refuse{s}", "no_route": "drop{s}"}
_DONE = {"filtered": "dropped", "rejected": "rejected", "refused": "refused", "no_route": "unroutable"}


def _in_fabric(fault: Fault, firewalls: Mapping[str, FirewallFacts] | None) -> frozenset[str]:
    """Ends of failed pairs that no rule set explains: at neither end is one, and both were read."""
    clean = {
        node
        for node, facts in (firewalls or {}).items()
        if not any(one.active or one.error for one in facts.rulesets)
    }
    return frozenset(end for cell in fault.cells if clean.issuperset(cell) for end in cell)


def _worded(
    fault: Fault, ports: str, by_cell: ByCell, firewalls: Mapping[str, FirewallFacts] | None
) -> PortCause:
    probes = tuple(
        probe
        for cell in sorted(fault.cells)
        for probe in by_cell[cell]
        if probe.outcome in BAD and ports in (ALL_PORTS, probe.purpose)
    )
    back = any(
        probe.outcome in ("open", "in_use")
        for src, dst in fault.cells
        for probe in by_cell.get((dst, src), ())
    )
    counts = Counter(probe.outcome for probe in probes)
    outcome = max(BAD, key=lambda name: (counts[name], -BAD.index(name)))
    key, does, done = _KEYS[outcome], _DOES[outcome], _DONE[outcome]
    fabric = _in_fabric(fault, firewalls) if outcome != "no_route" else frozenset()
    if fabric:
        key = key.replace("firewall", "fabric")
    peers = _peers(fault)
    culprits = fault.nodes
    confidence = Confidence.LIKELY if fault.partial else Confidence.CERTAIN
    settle_by = None
    which = {ALL_PORTS: "", RENDEZVOUS: " to the rendezvous port", EPHEMERAL: " to ports above 1024"}[ports]
    if ports == EPHEMERAL:
        which = " to the ports that the kernel picks"
    if fault.kind is Kind.IN:
        title = f"{{nodes}} {does} connections{which} {'' if fault.partial else 'that come '}from {peers}"
        if fabric:
            title = f"Connections{which} from {peers} are {done} before they reach {{nodes}}"
        if outcome == "no_route":
            title = "The other nodes have no route to {nodes}"
        suffix = "-inbound"
    elif fault.kind is Kind.OUT:
        title = f"Connections{which} from {{nodes}} to {peers} are {done}"
        if fabric:
            title += " on their way"
        if outcome == "no_route":
            title = "{nodes} {has} no route to the other nodes"
        suffix = "-outbound"
    elif fault.kind is Kind.NODE:
        title = "{nodes} can neither reach the other nodes nor be reached by them"
        suffix = "-isolated"
    elif fault.kind is Kind.SPLIT:
        title = "{nodes} and the other nodes cannot connect to each other"
        if not culprits:
            culprits = tuple(dict.fromkeys(node for cell in sorted(fault.cells) for node in cell))
            title = "Two halves of the cluster ({nodes}) cannot connect to each other"
        suffix = "-split"
    elif fault.kind is Kind.ALL:
        title = f"No node can connect to another: connections{which} are {done} everywhere"
        if fabric:
            title += ", by no rule set of theirs"
        suffix = "-everywhere"
        if len(fault.nodes) == 2:
            title = f"{{nodes}} cannot connect to each other{which}: connections are {done}"
            confidence = Confidence.LIKELY if fabric else Confidence.SUSPECTED
            settle_by = None if fabric else _SETTLE
    else:
        culprits = (pair(*fault.nodes),)
        title = f"Connections{which} on the way {{nodes}} are {done}"
        suffix = "-path"
        confidence = Confidence.LIKELY if fabric else Confidence.SUSPECTED
        settle_by = None if fabric else _SETTLE
    # The classic: MASTER_PORT was opened, and nothing else.
    if ports == EPHEMERAL and outcome != "no_route" and fault.kind in (Kind.IN, Kind.ALL):
        title = "{nodes} let{s} in the rendezvous port only; NCCL and gloo use ports that the kernel picks"
        if fabric:
            title = "Only the rendezvous port gets through to {nodes}; NCCL and gloo use others"
        return PortCause(
            key=f"{key}-ephemeral",
            title=title,
            summary="lets in the rendezvous port only",
            culprits=culprits,
            confidence=confidence,
            fault=fault,
            outcome=outcome,
            ports=ports,
            probes=probes,
            back=back,
            fabric=fabric,
            settle_by=settle_by,
        )
    if ports != ALL_PORTS:
        key = f"{key}-{ports}"
    return PortCause(
        key=key + suffix,
        title=title,
        summary=_SUMMARY[fault.kind].format(done=done, which=which),
        culprits=culprits,
        confidence=confidence,
        fault=fault,
        outcome=outcome,
        ports=ports,
        probes=probes,
        back=back,
        fabric=fabric,
        settle_by=settle_by,
    )


_SETTLE = (
    "read the firewall rules at both ends as root (nft list ruleset), or scan with a third node: "
    "its connections show which end it is"
)
_SUMMARY = {
    Kind.IN: "connections from the other nodes{which} are {done}",
    Kind.OUT: "its connections{which} to the other nodes are {done}",
    Kind.NODE: "its connections{which} from and to the other nodes are {done}",
    Kind.PATH: "connections{which} are {done} on this path alone",
    Kind.SPLIT: "connections{which} to the other part of the cluster are {done}",
    Kind.ALL: "connections{which} between nodes are {done}",
}
