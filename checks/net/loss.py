"""Packets that get lost between nodes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from netdoctor.check import check
from netdoctor.checks._shared.addresses import dialled
from netdoctor.checks._shared.counters import NETDEVS, grown, rate_findings
from netdoctor.checks._shared.matrix import left_out, unsent
from netdoctor.checks._shared.paths import about_path, by_path, on_path
from netdoctor.checks._shared.text import is_ifname, listing, on_dev
from netdoctor.facts.bandwidth import LossMatrix, LossProbe
from netdoctor.facts.counters import CounterFacts, LaterCounters
from netdoctor.facts.net import NetFacts
from netdoctor.facts.paths import Paths
from netdoctor.facts.software import Job
from netdoctor.localise.binomial import at_least
from netdoctor.localise.loss import Cell, Counts, Loss, suspects, total
from netdoctor.model import (
    CLUSTER,
    LIKELY,
    SUSPECTED,
    Cause,
    Command,
    Finding,
    Fix,
    Measure,
    nodes_of,
    ok,
    pair,
    seen,
    skip,
    unknown,
)

# TCP's rate falls as 1/sqrt(loss): 0.5 % holds a connection to some 15 segments per round trip (Mathis et
# al., "The macroscopic behavior of the TCP congestion avoidance algorithm", 1997), about 200 Mbit/s over 1
# ms.
LIMIT = 0.005
SILENT = "no UDP packet was answered (filtered?): loss not measured"
# What a node's own counters may say of its link, that makes packets on their way to it get lost.
LOSING = ("flap", "errors", "missed")
CAUSES = {
    "in": Cause("packet-loss-in", "Packets on the way to {nodes} get lost"),
    "out": Cause("packet-loss-out", "Packets that {nodes} send{s} get lost"),
    "both": Cause("packet-loss", "Packets to and from {nodes} get lost"),
    "path": Cause("packet-loss-path", "Packets on the way {nodes} get lost", LIKELY),
    "all": Cause("packet-loss", "Packets between all nodes get lost"),
}


@check(
    after=["ssh.login", "net.interface", "net.ports"],
    explains=["bw.*"],
    profile="launch",
    cost="opens-port",
    required=False,
    source="https://doi.org/10.1145/263932.264023",
)
def net_loss(
    losses: LossMatrix,
    job: Job,
    nets: Mapping[str, NetFacts],
    paths: Paths | None = None,
    counters: Mapping[str, CounterFacts] | None = None,
    later: Mapping[str, LaterCounters] | None = None,
) -> Iterator[Finding]:
    """No packets get lost between nodes.

    Looks at:
        A few hundred small UDP packets from every node to every other (above 16 nodes to a sample of
        eight), at a steady 200 per second. The receiver counts them, and the sender counts the answers,
        so that both directions are known. Counts of all pairs of a node are added. If a node's counters
        show that its link failed meanwhile, that is the cause.

    Matters because:
        TCP takes a lost packet for congestion: its rate falls as one over the square root of the lost
        share. Half a percent already costs most of a fast link, and only retransmissions show it. RoCE
        suffers more, because a lost packet makes it send the whole window again.

    Fix:
        Check the error counters of the node that is named and of its switch port, then the cable or
        transceiver between them. Loss on all nodes means an overloaded switch.
    """
    if len(nets) < 2:
        yield skip("one node: there is no path")
        return
    yield from left_out("packet loss was not measured", losses, nets, "no packet was sent")
    counted = [p for p in losses.probes if p.sent > 0]
    for probe in losses.probes:
        if probe.sent == 0:
            yield unsent(probe.src, probe.dst, "no packet could be sent", probe.detail)
    # Silence is a filter or a dead path, which other checks name; it is no share of anything.
    silent = [p for p in counted if p.answered == 0 and p.arrived == 0]
    for path, some in by_path(silent, paths):
        for probe in some:
            yield on_path(unknown(pair(probe.src, probe.dst), SILENT), path)
    answered = [p for p in counted if p.answered or p.arrived]
    ways = [(path, _cells(some)) for path, some in by_path(answered, paths)]
    if not any(cells for _, cells in ways):
        return
    main = {node: dev.name for node in nets if (dev := dialled(node, nets, job)) is not None}
    blamed: set[tuple[str, tuple[str, ...]]] = set()
    for path, cells in ways:
        for one in suspects(cells, LIMIT):
            # A node that loses packets on each of its paths is one cause.
            say = about_path if (one.side, one.nodes) in blamed else on_path
            blamed.add((one.side, one.nodes))
            ifnames = path.ifnames if path else main
            for finding in _findings(one, cells, ifnames):
                link = _broken_link(one, finding, ifnames, counters or {}, later or {})
                yield say(finding if link is None else replace(finding, cause=link), path)
    if not blamed:
        parts = [total((), "all", cells, cells) for _, cells in ways]
        lost, sent = sum(part.lost for part in parts), sum(part.sent for part in parts)
        measure = Measure(value=100.0 * lost / sent, unit="%")
        share = f"{lost} of {sent}"
        yield ok(CLUSTER, f"{share} packets lost", observed=share, measures={"net.loss": measure})


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


def _findings(one: Loss, cells: Counts, ifnames: Mapping[str, str]) -> Iterator[Finding]:
    share, low = 100.0 * one.lost / one.sent, 100.0 * at_least(one.lost, one.sent)
    text = f"{one.lost} of {one.sent} packets lost ({share:.1f} %, at least {low:.1f} %)"
    lossy = sorted(
        (cell for cell in one.cells if cells[cell][0]), key=lambda c: (-cells[c][0] / cells[c][1], c)
    )
    cause, targets = CAUSES[one.side], one.nodes or (CLUSTER,)
    two = len({n for cell in cells for n in cell}) == 2
    if two:
        settle = "scan with a third node: its pairs show which end is at fault"
        cause = cause.but(title=CAUSES["path"].title, confidence=SUSPECTED, settle_by=settle)
    if two or one.side == "path":
        targets = tuple(pair(*cell) for cell in lossy)
    counts = {pair(*cell): f"{cells[cell][0]} of {cells[cell][1]}" for cell in lossy}
    for target in targets:
        yield cause.warn(
            text if len(targets) == 1 else f"{counts[target]} packets lost",
            at=target,
            culprits=targets,
            observed=f"{share:.2f} %",
            expected=f"under {100 * LIMIT:g} %",
            seen=[seen(f"UDP from {a} to {b}", f"{counts[pair(a, b)]} lost", at=a) for a, b in lossy[:4]],
            fixes=_fix(one, ifnames),
            measures={"net.loss": Measure(value=share, unit="%", error=share - low)},
            pairs=tuple(counts),
        )


def _broken_link(
    one: Loss,
    finding: Finding,
    ifnames: Mapping[str, str],
    counters: Mapping[str, CounterFacts],
    later: Mapping[str, LaterCounters],
) -> Cause | None:
    """What a node's counters say of the link that this loss is on; None where they say nothing of it.

    One path of several is not the link of either end, as their other paths lose nothing.
    """
    nodes = tuple(dict.fromkeys(n for cell in one.cells for n in cell))
    if one.side == "all" or (one.side == "path" and len(ifnames) > 2):
        return None
    if len(nodes) > 2 or one.side != "path":
        nodes = tuple(node for node in nodes_of(finding.target) if node in one.nodes) or nodes
    for node in nodes:
        if node not in ifnames or node not in counters or node not in later:
            continue
        for port in grown(counters[node], later[node], "netdevs"):
            if ifnames[node] not in (port.name, *port.totals.uppers):
                continue
            words = {"dev": port.name if is_ifname(port.name) else ""}
            flap, *_ = keys = [NETDEVS.outcome[name].cause.key for name in LOSING]
            for warning in rate_findings(port, NETDEVS, f"/sys/class/net/{port.name}/", words):
                is_flap = warning.cause is not None and warning.cause.key == flap
                if (
                    warning.cause
                    and warning.cause.key in keys
                    and (is_flap or any(c[1] == node for c in one.cells))
                ):
                    # net.errors says how it is healed.
                    return replace(warning.cause, culprits=(node,), fixes=())
    return None


def _fix(one: Loss, ifnames: Mapping[str, str]) -> Fix:
    if one.side == "all":
        return Fix(text="check the switch: queue drops, flow control, the speed of its uplinks")
    commands = []
    for node in one.nodes[:8]:
        counters = "ip -s link show dev {0}; ethtool -S {0} | grep -iE 'drop|err|crc|discard'"
        if shell := on_dev(ifnames.get(node), counters):
            commands.append(Command(run_on=node, shell=shell))
    where = listing(one.nodes, 3)
    text = f"read the error counters of {where}, then swap the cable, transceiver or switch port"
    return Fix(text=text, commands=tuple(commands))
