"""Packets that get lost between nodes."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from netdoctor.check import check
from netdoctor.checks._addresses import data_device
from netdoctor.checks._binomial import at_least, log_tail
from netdoctor.checks._words import is_ifname, listing
from netdoctor.facts.bandwidth import LossMatrix, LossProbe
from netdoctor.facts.net import NetFacts
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
    Measure,
    ok,
    pair,
    skip,
    unknown,
    warn,
)

# TCP's rate falls as 1/sqrt(loss): 0.5 % holds a connection to some 15 segments per round trip (Mathis et
# al., "The macroscopic behavior of the TCP congestion avoidance algorithm", 1997), about 200 Mbit/s over 1
# ms.
LIMIT = 0.005
# What healthy networks may lose under other people's load, and how improbable a culprit's loss must be if
# it were no worse: with the 30 or so questions asked of a small cluster, one in 10,000 clean runs blames
# somebody.
BACKGROUND = 0.001
DOUBT = math.log(3e-6)

Cell = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Somebody who loses packets. side: ``in``, ``out``, ``both`` of a node; ``path``; ``all``."""

    nodes: tuple[str, ...]
    side: str
    lost: int
    sent: int
    cells: frozenset[Cell]


@check(
    after=["ssh.login", "net.interface", "net.ports"],
    explains=["bw.*"],
    profile="launch",
    cost="opens-port",
    required=False,
    source="https://doi.org/10.1145/263932.264023",
)
def net_loss(losses: LossMatrix, job: Job, nets: Mapping[str, NetFacts]) -> Iterator[Finding]:
    """No packets get lost between nodes.

    Looks at:
        A few hundred small UDP packets from every node to every other (to a sample of eight above 16
        nodes), at an even pace of 200 a second, counted by the receiver and again when its answers come
        back, so that both directions are told apart. What is counted on the pairs of a node is put
        together.

    Matters because:
        TCP takes a lost packet for congestion: its rate falls as one over the square root of the share
        lost.
        Half a percent already costs most of a fast link, and shows nowhere but in retransmissions. RoCE
        suffers more, because a lost packet sends the whole window again.

    Fix:
        Look at the error counters of the node that is named and of its switch port, then at the cable or
        transceiver between them. Loss at everybody points at an overloaded switch.
    """
    if len(nets) < 2:
        yield skip("one node: there is no path")
        return
    for node, reason in losses.failed_nodes.items():
        yield unknown(node, f"packet loss was not measured: {reason}")
    counted = [p for p in losses.probes if p.sent > 0]
    for probe in losses.probes:
        if probe.sent == 0:
            text = f": {probe.detail}" if probe.detail else ""
            yield unknown(pair(probe.src, probe.dst), f"no packet could be sent{text}")
    # Silence is a filter or a dead path, which other checks name; it is no share of anything.
    silent = [p for p in counted if p.answered == 0 and p.arrived == 0]
    for probe in silent:
        yield unknown(pair(probe.src, probe.dst), "no UDP packet was answered (filtered?): loss not measured")
    cells = _cells([p for p in counted if p not in silent])
    if not cells:
        if not losses.failed_nodes and not silent:
            yield unknown(CLUSTER, "no packet was sent")
        return
    found = culprits(cells)
    for one in found:
        yield from _findings(one, cells, job, nets)
    lost, sent = sum(a for a, _ in cells.values()), sum(b for _, b in cells.values())
    measure = {"net.loss": Measure(value=100.0 * lost / sent, unit="%")}
    if not found:
        yield ok(CLUSTER, f"{lost} of {sent} packets lost", observed=f"{lost} of {sent}", measures=measure)


def _cells(probes: list[LossProbe]) -> dict[Cell, tuple[int, int]]:
    """(lost, sent) by direction. An answer that did not come back was lost on the way back."""
    cells: dict[Cell, tuple[int, int]] = {}
    for p in probes:
        arrived = min(max(p.arrived, p.answered), p.sent)
        for cell, lost, sent in (
            ((p.src, p.dst), p.sent - arrived, p.sent),
            ((p.dst, p.src), arrived - min(p.answered, arrived), arrived),
        ):
            before = cells.get(cell, (0, 0))
            cells[cell] = (before[0] + lost, before[1] + sent)
    return {cell: counts for cell, counts in cells.items() if counts[1] > 0}


def culprits(cells: Mapping[Cell, tuple[int, int]]) -> tuple[Loss, ...]:
    """The fewest nodes and paths that account for what is lost, the surest first.

    Pairs are put together before they are judged: a node that loses 2 % shows on six pairs what no single
    one of them proves. A node needs two pairs in a direction; with fewer it is a path.
    """
    left = dict(cells)
    found: list[Loss] = []
    while left:
        worth = [one for one in _candidates(left) if one.lost >= LIMIT * one.sent]
        best = min(worth, key=_chance, default=None)
        if best is None or _chance(best) > DOUBT:
            break
        found.append(best)
        left = {cell: counts for cell, counts in left.items() if cell not in best.cells}
    sides = _joined(found)
    lossy = {cell for one in sides for cell in one.cells if cells[cell][0]}
    nodes = {n for cell in cells for n in cell}
    blamed = {n for one in sides if one.side != "path" for n in one.nodes}
    if len(nodes) > 2 and len(blamed) == len(nodes) and len(lossy) > len(cells) // 2:
        lost, sent = sum(a for a, _ in cells.values()), sum(b for _, b in cells.values())
        return (Loss(nodes=(), side="all", lost=lost, sent=sent, cells=frozenset(cells)),)
    return tuple(sides)


def _candidates(cells: Mapping[Cell, tuple[int, int]]) -> Iterator[Loss]:
    nodes = dict.fromkeys(n for cell in cells for n in cell)

    def loss(names: tuple[str, ...], side: str, own: list[Cell]) -> Loss:
        lost, sent = sum(cells[c][0] for c in own), sum(cells[c][1] for c in own)
        return Loss(nodes=names, side=side, lost=lost, sent=sent, cells=frozenset(own))

    for node in nodes:
        for side, end in (("out", 0), ("in", 1)):
            own = [cell for cell in cells if cell[end] == node]
            # Loss on one pair alone is that path's, however much it weighs in the sum.
            if len(own) > 1 and sum(1 for cell in own if cells[cell][0]) > 1:
                yield loss((node,), side, own)
    for cell, (lost, _) in cells.items():
        if lost:
            yield loss(cell, "path", [cell])


def _chance(one: Loss) -> float:
    return log_tail(one.lost, one.sent, BACKGROUND)


def _joined(found: list[Loss]) -> list[Loss]:
    """Both directions of a node, or of a path, are one."""
    by_nodes: dict[tuple[bool, frozenset[str]], Loss] = {}
    for one in found:
        key = (one.side == "path", frozenset(one.nodes))
        before = by_nodes.get(key)
        if before is None:
            by_nodes[key] = one
            continue
        by_nodes[key] = Loss(
            nodes=before.nodes,
            side="path" if key[0] else "both",
            lost=before.lost + one.lost,
            sent=before.sent + one.sent,
            cells=before.cells | one.cells,
        )
    return list(by_nodes.values())


_TITLES = {
    "in": "Packets on the way to {nodes} get lost",
    "out": "Packets that {nodes} send{s} get lost",
    "both": "Packets to and from {nodes} get lost",
    "path": "Packets on the way {nodes} get lost",
    "all": "Packets between nodes get lost, whichever nodes they are",
}


def _findings(
    one: Loss, cells: Mapping[Cell, tuple[int, int]], job: Job, nets: Mapping[str, NetFacts]
) -> Iterator[Finding]:
    share = 100.0 * one.lost / one.sent
    low = 100.0 * at_least(one.lost, one.sent)
    said = f"{one.lost} of {one.sent} packets lost ({share:.1f} %, at least {low:.1f} %)"
    lossy = sorted((cell for cell in one.cells if cells[cell][0]), key=lambda c: -cells[c][0] / cells[c][1])
    two = len({n for cell in cells for n in cell}) == 2
    named: tuple[str, ...] = one.nodes
    confidence = Confidence.CERTAIN
    settle = None
    if one.side == "path" or two:
        named = tuple(pair(*cell) for cell in lossy)
        confidence = Confidence.SUSPECTED if two else Confidence.LIKELY
        settle = "scan with a third node: its pairs show which end it is" if two else None
    elif one.side == "all":
        named = (CLUSTER,)
    hint = CauseHint(
        key="packet-loss" if one.side in ("both", "all") else f"packet-loss-{one.side}",
        title=_TITLES["path" if two else one.side],
        culprits=named,
        confidence=confidence,
        fixes=_fixes(one, job, nets),
        settle_by=settle,
    )
    evidence = tuple(
        Evidence(
            kind="probe",
            where=cell[0],
            what=f"UDP from {cell[0]} to {cell[1]}",
            output=f"{cells[cell][0]} of {cells[cell][1]} lost",
        )
        for cell in lossy[:4]
    )
    for target in named:
        yield warn(
            target,
            said if len(named) == 1 else _of(cells, target, said),
            observed=f"{share:.2f} %",
            expected=f"under {100 * LIMIT:g} %",
            expected_from=ExpectedFrom.CONSTANT,
            evidence=evidence,
            cause=hint,
            measures={"net.loss": Measure(value=share, unit="%", error=share - low)},
            pairs=tuple(pair(*cell) for cell in lossy),
        )


def _of(cells: Mapping[Cell, tuple[int, int]], target: str, said: str) -> str:
    src, _, dst = target.partition("->")
    counts = cells.get((src, dst))
    return f"{counts[0]} of {counts[1]} packets lost" if counts else said


def _fixes(one: Loss, job: Job, nets: Mapping[str, NetFacts]) -> tuple[Fix, ...]:
    if one.side == "all":
        return (Fix(text="look at the switch: queue drops, flow control, the speed of its uplinks"),)
    commands = []
    for node in one.nodes[:8]:
        device = data_device(nets[node], job.data_addresses.get(node)) if node in nets else None
        if device is not None and is_ifname(device.name):
            shell = (
                f"ip -s link show dev {device.name}; "
                f"ethtool -S {device.name} | grep -iE 'drop|err|crc|discard'"
            )
            commands.append(Command(run_on=node, shell=shell))
    where = listing(one.nodes, 3)
    return (
        Fix(
            text=f"read the error counters of {where}, then swap the cable, transceiver or switch port",
            commands=tuple(commands),
        ),
    )
