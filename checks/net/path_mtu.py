"""The largest packet that passes between nodes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from netdoctor.check import check
from netdoctor.checks._shared.addresses import data_device
from netdoctor.checks._shared.matrix import Fault, Kind, decode, left_out, unsent
from netdoctor.checks._shared.paths import about_path, by_path, on_path
from netdoctor.checks._shared.text import on_dev
from netdoctor.checks.net._clouds import carry, of_nodes
from netdoctor.facts.host import HostFacts
from netdoctor.facts.net import MtuProbe, NetFacts, PathMtus
from netdoctor.facts.paths import Path, Paths
from netdoctor.facts.software import Job
from netdoctor.model import (
    CERTAIN,
    DERIVED,
    LIKELY,
    SUSPECTED,
    Cause,
    Command,
    Finding,
    Fix,
    pair,
    seen,
    skip,
    unknown,
)

# What every Ethernet carries (RFC 894); below it, the smallest that every IPv6 link must carry (RFC 8200).
ETHERNET_MTU = 1500
LEAST_MTU = 1280

HOLE = Cause("mtu-black-hole", "Large packets to and from {nodes} vanish without an answer")
SMALL = Cause(
    "path-mtu-small", "The path to and from {nodes} takes only smaller packets than the interface sends"
)
SILENT = "not even a small UDP packet was answered (UDP is filtered): path MTU not measured"
CAUSES = {"black_hole": HOLE, "small": SMALL, "far_end": SMALL.but(key="mtu-differs")}


@check(
    after=["ssh.login", "net.interface", "net.ports"],
    explains=["bw.*"],
    profile="launch",
    cost="opens-port",
    required=False,
    source="https://datatracker.ietf.org/doc/html/rfc4821",
)
def net_path_mtu(
    found: PathMtus,
    job: Job,
    nets: Mapping[str, NetFacts],
    paths: Paths | None = None,
    hosts: Mapping[str, HostFacts] | None = None,
) -> Iterator[Finding]:
    """Packets as large as the interface's MTU pass between nodes unfragmented.

    Looks at:
        UDP packets with the don't-fragment bit, from 576 bytes up to the sender's MTU, echoed by the
        peer; and any ICMP answer that names a smaller size.

    Matters because:
        If large packets vanish without an answer, connections open and then hang: SSH stops in its key
        exchange, NCCL in its first large message. A switch port without the jumbo-frame setting of the
        others looks like this.

    Fix:
        Set the switch port (and every hop) to the nodes' MTU, or lower the MTU of all nodes. Do not lower
        it on one node alone: the others would still send it larger packets.
    """
    if len({*nets, *job.data_addresses}) < 2 and not found.probes:
        yield skip("one node: there is no path")
        return
    yield from left_out("path MTU was not measured", found, nets, "no path was probed")
    blamed: set[tuple[str, Kind, tuple[str, ...]]] = set()
    for path, probes in by_path(found.probes, paths):
        yield from _on_path(path, probes, nets, hosts, blamed)


def _on_path(
    path: Path | None,
    some: Sequence[MtuProbe],
    nets: Mapping[str, NetFacts],
    hosts: Mapping[str, HostFacts] | None,
    blamed: set[tuple[str, Kind, tuple[str, ...]]],
) -> Iterator[Finding]:
    """Judge one path. blamed: faults of earlier paths; one on several paths is one cause. Added to."""
    probes = {(probe.src, probe.dst): probe for probe in some}
    outcomes = {cell: _outcome(probe, nets) for cell, probe in probes.items()}
    measured = {cell: outcome for cell, outcome in outcomes.items() if outcome == "ok" or outcome in CAUSES}
    count = len({node for cell in measured for node in cell})
    devs = {probe.src: probe.dev for probe in some}
    for name, cause in CAUSES.items():
        for fault in _merged(decode({cell: outcome == name for cell, outcome in measured.items()})):
            say = about_path if (name, fault.kind, fault.nodes) in blamed else on_path
            blamed.add((name, fault.kind, fault.nodes))
            worded = _worded(cause, fault, count)
            between = carry(of_nodes({node for cell in fault.cells for node in cell}, hosts))
            for cell in sorted(fault.cells):
                yield say(
                    _finding(probes[cell], worded, fault, name, _fixes(probes[cell], fault, devs, between)),
                    path,
                )
    for cell, outcome in outcomes.items():
        if outcome == "no_answer":
            yield on_path(unknown(pair(*cell), SILENT), path)
        elif cell not in measured:
            yield on_path(unsent(*cell, "path MTU was not measured", probes[cell].detail), path)


def _outcome(probe: MtuProbe, nets: Mapping[str, NetFacts]) -> str:
    """``far_end`` where all that the receiver's own MTU allows does pass: its interface is the limit, and
    not the path. Receivers take a few bytes more than their MTU (a VLAN tag; on some NICs the whole buffer).
    """
    far = data_device(nets[probe.dst], probe.address) if probe.dst in nets else None
    passed = probe.largest_ok or 0
    if probe.outcome in ("black_hole", "small") and far and 0 < far.mtu <= passed and far.mtu < probe.dev_mtu:
        return "far_end"
    return probe.outcome


def _merged(faults: tuple[Fault, ...]) -> list[Fault]:
    """Echoes come back the same way, so one bad direction shows in both: paths of one pair are one."""
    single = {fault.nodes: fault for fault in faults if fault.kind is Kind.PATH}
    result = [fault for fault in faults if fault.kind is not Kind.PATH]
    for (src, dst), fault in single.items():
        back = single.get((dst, src))
        if back is None:
            result.append(fault)
        elif src < dst:
            result.append(replace(fault, cells=fault.cells | back.cells))
    return result


def _worded(cause: Cause, fault: Fault, count: int) -> Cause:
    """The cause as it is for this fault, among `count` nodes."""
    # A hole at everybody is in the network; so is one between two nodes of which neither can be told.
    path, everywhere = fault.kind is Kind.PATH, fault.kind is Kind.ALL and count > 2
    weak = fault.partial or fault.kind in (Kind.ALL, Kind.SPLIT)
    title = cause.title
    if cause is HOLE and (path or everywhere):
        where = "on the path {nodes}" if path else "between nodes"
        title = f"Large packets {where} vanish without an answer"
    return cause.but(
        title=title,
        confidence=SUSPECTED if path or count == 2 else LIKELY if weak else CERTAIN,
        settle_by="compare the MTU of the two switch ports" if path else None,
    )


def _finding(probe: MtuProbe, cause: Cause, fault: Fault, outcome: str, fixes: list[Fix]) -> Finding:
    passed = probe.largest_ok or probe.learned_mtu
    say = cause.warn
    summary = f"packets of at most {passed or 'unknown size'} bytes pass, the interface sends {probe.dev_mtu}"
    if outcome == "black_hole":
        say = cause.fail
        summary = f"packets of {probe.dev_mtu} bytes vanish; {passed or 'no larger than 576'} pass"
    return say(
        summary,
        at=pair(probe.src, probe.dst),
        culprits=fault.culprits,
        observed=f"largest echoed {passed} bytes" if passed else "nothing above 576 bytes echoed",
        expected=DERIVED(f"{probe.dev_mtu} bytes, the MTU of {probe.dev}"),
        seen=seen(
            f"UDP, don't fragment, {probe.dev_mtu} bytes to {probe.address}",
            probe.detail or outcome.replace("_", " "),
        ),
        fixes=() if outcome == "far_end" else fixes,
    )


def _fixes(probe: MtuProbe, fault: Fault, devs: Mapping[str, str | None], between: Fix | None) -> list[Fix]:
    """devs: the interface of each node. between: what a cloud has in the place of switch ports."""
    fallback = ETHERNET_MTU if probe.dev_mtu > ETHERNET_MTU else LEAST_MTU
    passed = probe.largest_ok or probe.learned_mtu
    size = passed if passed and passed >= LEAST_MTU else fallback
    nodes = fault.nodes or fault.culprits
    ports = f"switch port of {nodes[0]}" if len(nodes) == 1 else "switch ports between them"
    switch = between or Fix(text=f"set the {ports} to carry {probe.dev_mtu} bytes, headers on top")
    shells = {node: on_dev(dev, f"ip link set dev {{0}} mtu {size}") for node, dev in devs.items()}
    if not all(shells.values()):
        return [switch]
    lower = Fix(
        text=f"lower the MTU of all nodes to {size}",
        commands=tuple(Command(run_on=node, shell=shell) for node, shell in shells.items()),
        root=True,
        persistent=False,
        risk="medium",
    )
    return [switch, lower]
