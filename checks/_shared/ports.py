"""From the port matrix to causes, once for every check that reads it: same key, same culprits, one cause."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from netdoctor.check import derived
from netdoctor.checks._shared.matrix import Cell, Fault, Kind, decode_to, vertex_cover
from netdoctor.checks._shared.paths import by_path, leave_out, named_by_path, path_text
from netdoctor.checks._shared.text import listing, title_text
from netdoctor.facts.net import FirewallFacts, PortMatrix, PortProbe
from netdoctor.facts.paths import MAIN, STORE, Path, Paths
from netdoctor.facts.software import Job
from netdoctor.model import Cause, Confidence, Evidence, nodes_of, seen

RENDEZVOUS = "rendezvous"
EPHEMERAL = "ephemeral"
ALL_PORTS = "all"


class Outcome(NamedTuple):
    """What became of a connection: in the cause's key, its title (does, done) and its evidence."""

    key: str
    does: str
    done: str
    evidence: str


# Worst first: silence costs a launch its longest timeouts. in_use and open both show that the way is open;
# error is our own trouble and judges nobody.
BAD = {
    "filtered": Outcome("firewall", "drop{s}", "dropped", "no answer in {timeout_s:.1f} s (filtered)"),
    "rejected": Outcome("firewall-reject", "reject{s}", "rejected", "rejected by a firewall on the way"),
    "refused": Outcome("port-refused", "refuse{s}", "refused", "refused, though netdoctor listens there"),
    "no_route": Outcome("unreachable", "drop{s}", "unroutable", "no route"),
}
OPEN = ("open", "in_use")
ByCell = dict[Cell, list[PortProbe]]


@dataclass(frozen=True, eq=False, kw_only=True)
class PortCause:
    """A fault of the matrix with its words."""

    hint: Cause  # without the fixes of a node
    fault: Fault
    outcome: str  # of most probes, a key of BAD
    ports: str  # ``all``, ``rendezvous`` or ``ephemeral``
    numbers: tuple[int, ...]  # the ports that failed
    fabric: bool  # no rule set at either end of some failed pair explains it
    evidence: tuple[Evidence, ...]  # what failed from where, and what worked the other way
    paths: tuple[Path | None, ...] = (None,)  # of the job, on which it is alike; None for the main one

    @property
    def nodes(self) -> tuple[str, ...]:
        """The culprits, both ends of a path."""
        return tuple(dict.fromkeys(node for culprit in self.hint.culprits for node in nodes_of(culprit)))

    @cached_property
    def peers(self) -> Mapping[str, Set[str]]:
        """By node at an end of a pair that fails, the other ends."""
        found: dict[str, set[str]] = {}
        for src, dst in self.fault.cells:
            found.setdefault(src, set()).add(dst)
            found.setdefault(dst, set()).add(src)
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class PortCauses:
    """Why pairs fail."""

    causes: tuple[PortCause, ...]
    # By id of the path, pair and purpose, the first cause that accounts for it over that kind of port.
    by_cell: Mapping[tuple[str, Cell, str], PortCause]
    # By path (None: the main one) and pair, in the order of the matrix.
    probes: Sequence[tuple[Path | None, Mapping[Cell, Sequence[PortProbe]]]]
    firewalls: Mapping[str, FirewallFacts]  # the rule sets that were taken into account
    master: str | None = None  # where MASTER_ADDR points, where that is known

    def cause_of(self, path: Path | None, cell: Cell, *purposes: str) -> PortCause | None:
        """The cause for this pair on this path, over the first of these kinds of port that has one."""
        found = (self.by_cell.get((path.id if path else MAIN, cell, purpose)) for purpose in purposes)
        return next((cause for cause in found if cause is not None), None)

    def to_master(self, job: Job) -> dict[str, tuple[Path | None, PortProbe]]:
        """By source, what became of the rendezvous port where MASTER_ADDR points; of the main path where it
        was tried on no other."""
        rendezvous = (job.master_node, job.master_port, RENDEZVOUS)
        return {
            src: (path, probe)
            for path, by_cell in self.probes
            for (src, _), probes in by_cell.items()
            for probe in probes
            if (probe.dst, probe.port, probe.purpose) == rendezvous
        }

    def stop(self, cause: PortCause, job: Job) -> bool:
        """Whether a launch would end at this. A rendezvous port that is closed where rank 0 does not run, or
        where MASTER_ADDR does not point, stops none with a fixed master. RDMA passes by the firewall of a
        node, and by nothing else that is in the way."""
        if all(path is not None and path.is_rail for path in cause.paths):
            return cause.fabric or cause.outcome == "no_route"
        to_master = any(dst == job.master_node for _, dst in cause.fault.cells)
        elsewhere = self.master not in (None, job.data_addresses.get(job.master_node or ""))
        dialled = to_master and not (elsewhere and None in cause.paths)
        return cause.ports != RENDEZVOUS or job.master_node is None or dialled


@derived
def port_causes(
    ports: PortMatrix, firewalls: Mapping[str, FirewallFacts] | None, paths: Paths | None = None
) -> PortCauses:
    """Why pairs fail, over both kinds of ports; rule sets settle what the matrix leaves open."""
    rules = firewalls or {}
    probes: list[tuple[Path | None, ByCell]] = []
    found: list[PortCause] = []
    for path, some in by_path(ports.probes, paths):
        by_cell: ByCell = {}
        for probe in some:
            by_cell.setdefault((probe.src, probe.dst), []).append(probe)
        probes.append((path, by_cell))
        found += _on_path(path, by_cell, ports.timeout_s, rules)
    causes, merged = _merged(found, paths)
    index: dict[tuple[str, Cell, str], PortCause] = {}
    for one in found:
        for purpose in (RENDEZVOUS, EPHEMERAL) if one.ports == ALL_PORTS else (one.ports,):
            for cell in one.fault.cells:
                at = one.paths[0].id if one.paths[0] else MAIN, cell, purpose
                # Of two that account for a pair it is the one at its source, whatever the order of nodes.
                known = index.get(at)
                if known is None or (cell[0] in one.fault.nodes) > (cell[0] in known.fault.nodes):
                    index[at] = merged[one]
    master = next((use.address for use in paths.uses if use.purpose == STORE), None) if paths else None
    return PortCauses(causes=tuple(causes), by_cell=index, probes=probes, firewalls=rules, master=master)


def _on_path(
    path: Path | None, by_cell: ByCell, timeout_s: float, rules: Mapping[str, FirewallFacts]
) -> list[PortCause]:
    """The causes on one path, worded as if it were the only one."""
    low = _settled(decode_to(_cells(by_cell, RENDEZVOUS)), rules)
    high = _settled(decode_to(_cells(by_cell, EPHEMERAL)), rules)
    words = _Words(
        timeout_s=timeout_s,
        path=path,
        by_cell=by_cell,
        order={node: i for i, node in enumerate(dict.fromkeys(src for src, _ in by_cell))},
        clean=frozenset(node for node, facts in rules.items() if _is_clean(facts)),
    )
    causes: list[PortCause] = []
    stray = {cell for cell, probes in by_cell.items() if any(probe.is_by_source for probe in probes)}
    if stray:
        fault = _stateless(stray, (*high, *low))
        causes.append(words.cause(fault, ALL_PORTS, stateless=True))
        low, high = (tuple(f for f in some if not f.cells <= fault.cells) for some in (low, high))
    twins = {(f.kind, f.nodes) for f in low}
    larger: dict[Cell, list[Fault]] = {}
    for f in low:
        for cell in f.cells:
            larger.setdefault(cell, []).append(f)
    for fault in high:
        # The same pairs may fail over the rendezvous port as part of something larger: one cause is enough.
        covered_by_low = (fault.kind, fault.nodes) in twins or any(
            fault.cells <= f.cells for f in larger.get(next(iter(fault.cells)), ())
        )
        scope = EPHEMERAL if not covered_by_low and _tried(fault, RENDEZVOUS, by_cell) else ALL_PORTS
        causes.append(words.cause(fault, scope))
    covered = {cell for fault in high for cell in fault.cells}
    for fault in low:
        if not fault.cells <= covered:
            causes.append(words.cause(fault, RENDEZVOUS if _tried(fault, EPHEMERAL, by_cell) else ALL_PORTS))
    return causes


def _stateless(stray: set[Cell], faults: Sequence[Fault]) -> Fault:
    """The filter at the node of which answers are lost in these pairs, with what else fails there."""
    nodes = vertex_cover(stray, {node for fault in faults for node in fault.nodes})
    known = set(nodes)
    failing = {cell for fault in faults for cell in fault.cells if not known.isdisjoint(cell)}
    return Fault(kind=Kind.NODE, nodes=nodes, cells=frozenset(stray | failing))


def _merged(
    found: Sequence[PortCause], known: Paths | None
) -> tuple[list[PortCause], dict[PortCause, PortCause]]:
    """Causes that are alike on several paths as one, each with its paths named; and what became of each."""
    groups: dict[tuple[object, ...], list[PortCause]] = {}
    for one in found:
        # Of one path these are never alike.
        key: tuple[object, ...] = one.fault.kind, one.fault.nodes, one.fault.partial, one.outcome, one.fabric
        key = key if all(one.paths[0] is not other.paths[0] for other in groups.get(key, ())) else (*key, one)
        groups.setdefault(key, []).append(one)
    causes = _one_title([_joined(group, known) for group in groups.values()])
    return causes, {one: cause for group, cause in zip(groups.values(), causes, strict=True) for one in group}


def _joined(group: Sequence[PortCause], known: Paths | None) -> PortCause:
    first, paths = group[0], tuple(one.paths[0] for one in group)
    hint = named_by_path(first.hint, paths)
    if known and len(paths) == 1 and paths[0] is not None:
        hint = replace(hint, fixes=leave_out(paths[0], known))
    numbers = tuple(sorted({number for one in group for number in one.numbers}))
    lines = tuple(line for one in group for line in one.evidence)
    return replace(first, hint=hint, paths=paths, numbers=numbers, evidence=lines)


def _cells(by_cell: ByCell, purpose: str) -> dict[Cell, bool]:
    """Whether any port of this kind failed, for every pair over which one was tried."""
    cells: dict[Cell, bool] = {}
    for cell, probes in by_cell.items():
        for probe in probes:
            if probe.purpose == purpose:
                if probe.outcome in OPEN:
                    cells.setdefault(cell, False)
                elif probe.outcome in BAD:
                    cells[cell] = cells.get(cell, False) or not probe.is_by_source
    return cells


def _tried(fault: Fault, purpose: str, by_cell: ByCell) -> bool:
    return any(probe.purpose == purpose for cell in fault.cells for probe in by_cell[cell])


def _settled(faults: tuple[Fault, ...], firewalls: Mapping[str, FirewallFacts]) -> tuple[Fault, ...]:
    """Paths blamed on the one end that has a rule set able to drop; the rest unchanged."""
    active = {node for node, facts in firewalls.items() if any(one.active for one in facts.rulesets)}
    blamed: dict[tuple[Kind, str], set[Cell]] = {}
    left: list[Fault] = []
    for fault in faults:
        with_rules = [node for node in fault.nodes if node in active]
        known = all(node in firewalls for node in fault.nodes)
        if not _has_two_ends(fault) or len(with_rules) != 1 or not known:
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


def _has_two_ends(fault: Fault) -> bool:
    """It may sit at either of two nodes: the matrix cannot tell."""
    return fault.kind is Kind.PATH or (fault.kind is Kind.ALL and len(fault.nodes) == 2)


def _one_title(causes: list[PortCause]) -> list[PortCause]:
    """Causes of one key are shown as one: where they name different peers, none are named."""
    titles: dict[str, set[str]] = {}
    for cause in causes:
        titles.setdefault(cause.hint.key, set()).add(cause.hint.title)

    def plain(cause: PortCause) -> PortCause:
        if len(titles[cause.hint.key]) == 1 or not cause.fault.partial:
            return cause
        title = cause.hint.title.replace(_peers(cause.fault), "some of the other nodes")
        return replace(cause, hint=replace(cause.hint, title=title))

    return [plain(cause) for cause in causes]


def _peers(fault: Fault) -> str:
    """``the other nodes``, or by name those that a fault of part of a node's pairs touches."""
    if not fault.partial:
        return "the other nodes"
    return listing(
        title_text(n) for n in sorted({end for cell in fault.cells for end in cell} - {*fault.nodes})
    )


_SUFFIXES = {
    Kind.IN: "inbound",
    Kind.OUT: "outbound",
    Kind.NODE: "isolated",
    Kind.PATH: "path",
    Kind.SPLIT: "split",
    Kind.ALL: "everywhere",
}
_PORTS = {
    ALL_PORTS: "",
    RENDEZVOUS: " to the rendezvous port",
    EPHEMERAL: " to the ports that the kernel picks",
}
_STATELESS = (
    "A stateless filter at {nodes} drops packets by port, answers included: which connections pass depends "
    "on the source port, and changes from run to run"
)
_SETTLE = (
    "read the firewall rules at both ends as root (nft list ruleset), or scan with a third node: "
    "its connections show which end is at fault"
)


def _is_clean(facts: FirewallFacts) -> bool:
    return not any(one.active or one.error for one in facts.rulesets)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """Puts faults into words. order: of nodes in lists. clean: nodes whose rule sets let everything in."""

    timeout_s: float
    path: Path | None
    by_cell: ByCell
    order: Mapping[str, int]
    clean: frozenset[str]

    def cause(self, fault: Fault, ports: str, *, stateless: bool = False) -> PortCause:
        probes = [
            probe
            for cell in sorted(fault.cells)
            for probe in self.by_cell[cell]
            if probe.outcome in BAD and ports in (ALL_PORTS, probe.purpose)
        ]
        counts = Counter(probe.outcome for probe in probes)
        outcome = max(BAD, key=counts.__getitem__)
        # Ends of failed pairs that no rule set explains: at neither end is one, and both were read.
        unexplained = [cell for cell in fault.cells if self.clean.issuperset(cell) and outcome != "no_route"]
        fabric = {end for cell in unexplained for end in cell}
        confidence = Confidence.LIKELY if fault.partial else Confidence.CERTAIN
        if _has_two_ends(fault):
            confidence = Confidence.LIKELY if fabric else Confidence.SUSPECTED
        key = BAD[outcome].key.replace("firewall", "fabric") if fabric else BAD[outcome].key
        cause = Cause(
            f"{key}-{'stateless' if stateless else _suffix(fault, outcome, ports)}",
            _STATELESS if stateless else _title(fault, outcome, ports, bool(fabric)),
            confidence=confidence,
            verify=("net.ports",),
            settle_by=_SETTLE if _has_two_ends(fault) and not fabric else None,
        )
        return PortCause(
            hint=cause.hint(fault.culprits),
            fault=fault,
            outcome=outcome,
            ports=ports,
            numbers=tuple(sorted({probe.port for probe in probes})),
            fabric=bool(fabric),
            evidence=tuple(self._evidence(fault, probes, outcome, fabric)),
            paths=(self.path,),
        )

    def _evidence(
        self, fault: Fault, probes: list[PortProbe], outcome: str, fabric: set[str]
    ) -> Iterator[Evidence]:
        src, dst = probes[0].src, probes[0].dst
        sources, targets = (self._in_order({getattr(p, end) for p in probes}) for end in ("src", "dst"))
        way = f"between {sources}" if sources == targets else f"from {sources} to {targets}"
        numbers = listing(str(n) for n in sorted({probe.port for probe in probes}))
        yield seen(
            f"TCP {numbers} {way}{path_text((self.path,))}",
            BAD[outcome].evidence.format(timeout_s=self.timeout_s),
            at=src,
        )
        tried = {probe.purpose for probe in probes}
        back = (p for a, b in fault.cells for p in self.by_cell.get((b, a), ()) if p.purpose in tried)
        if fault.kind in (Kind.IN, Kind.OUT, Kind.PATH) and any(probe.outcome in OPEN for probe in back):
            yield seen("the same ports the other way", "open", at=dst)
        if by_source := next((probe for probe in probes if probe.is_by_source), None):
            one, other = by_source.source_port, by_source.open_from[0]
            way = f"TCP {by_source.port} from {by_source.src} to {by_source.dst}"
            yield seen(f"{way}, twice from source port {one}", "no answer", at=by_source.src)
            yield seen(f"{way}, from source port {other}", "open", at=by_source.src)
        low = (p for cell in fault.cells for p in self.by_cell[cell] if p.purpose == RENDEZVOUS)
        if {(p.src, p.dst) for p in low if p.outcome in OPEN} == fault.cells:
            yield seen("the rendezvous port on the same pairs", "open", at=src)
        if fabric:
            tools = f"nftables, iptables, firewalld and ufw on {self._in_order(fabric)}"
            yield seen(tools, "none of their rule sets explains it", at=dst)

    def _in_order(self, nodes: set[str]) -> str:
        return listing(sorted(sorted(nodes), key=lambda n: self.order.get(n, len(self.order))))


def _only_rendezvous(fault: Fault, outcome: str, ports: str) -> bool:
    """The classic: MASTER_PORT was opened, and nothing else."""
    return ports == EPHEMERAL and outcome != "no_route" and fault.kind in (Kind.IN, Kind.ALL)


def _suffix(fault: Fault, outcome: str, ports: str) -> str:
    """The end of the cause's key."""
    if _only_rendezvous(fault, outcome, ports):
        return "ephemeral"
    return _SUFFIXES[fault.kind] if ports == ALL_PORTS else f"{ports}-{_SUFFIXES[fault.kind]}"


def _title(fault: Fault, outcome: str, ports: str, fabric: bool) -> str:
    _, does, done, _ = BAD[outcome]
    where, peers = _PORTS[ports], _peers(fault)
    if _only_rendezvous(fault, outcome, ports):
        if fabric:
            return "Only the rendezvous port gets through to {nodes}; NCCL and gloo use others"
        return (
            "{nodes} accept{s} connections on the rendezvous port only; NCCL and gloo use ports "
            "that the kernel picks"
        )
    match fault.kind:
        case Kind.IN:
            if outcome == "no_route":
                return "The other nodes have no route to {nodes}"
            if fabric:
                return f"Connections{where} from {peers} are {done} before they reach {{nodes}}"
            return f"{{nodes}} {does} connections{where} {'' if fault.partial else 'that come '}from {peers}"
        case Kind.OUT:
            if outcome == "no_route":
                return "{nodes} {has} no route to the other nodes"
            way = " on their way" if fabric else ""
            return f"Connections{where} from {{nodes}} to {peers} are {done}{way}"
        case Kind.NODE:
            return "{nodes} can neither reach the other nodes nor be reached by them"
        case Kind.SPLIT:
            if fault.nodes:
                return "{nodes} and the other nodes cannot connect to each other"
            return "Two halves of the cluster ({nodes}) cannot connect to each other"
        case Kind.ALL:
            if len(fault.nodes) == 2:
                return f"{{nodes}} cannot connect to each other{where}: connections are {done}"
            how = ", and no rule set of the nodes explains it" if fabric else ""
            return f"No node can connect to another: connections{where} are {done} everywhere{how}"
    return f"Connections{where} on the way {{nodes}} are {done}"
