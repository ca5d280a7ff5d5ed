"""The largest packet that passes between nodes."""

from collections.abc import Iterator, Mapping

from netdoctor.check import check
from netdoctor.checks._addresses import data_device
from netdoctor.checks._matrix import Cell, Fault, Kind, decode
from netdoctor.checks._words import is_ifname
from netdoctor.facts.net import MtuProbe, NetFacts, PathMtus
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
    fail,
    pair,
    skip,
    unknown,
    warn,
)

# What every Ethernet carries (RFC 894); below it, the smallest that every IPv6 link must carry (RFC 8200).
ETHERNET_MTU = 1500
LEAST_MTU = 1280

FAR_END = "far_end"
KEYS = {"black_hole": "mtu-black-hole", "small": "path-mtu-small", FAR_END: "mtu-differs"}


@check(
    after=["ssh.login", "net.interface", "net.ports"],
    explains=["bw.*"],
    profile="launch",
    cost="opens-port",
    required=False,
    source="https://datatracker.ietf.org/doc/html/rfc4821",
)
def net_path_mtu(paths: PathMtus, job: Job, nets: Mapping[str, NetFacts]) -> Iterator[Finding]:
    """Packets as large as the interface's MTU pass between nodes unfragmented.

    Looks at:
        UDP packets with the don't-fragment bit, from 576 bytes up to the sender's MTU, echoed by the peer,
        and any ICMP answer that names a smaller size.

    Matters because:
        Where large packets vanish without an answer, connections open and then hang: SSH stops in its key
        exchange, NCCL in its first large message. It is what a jumbo-frame setting that one switch port lacks
        looks like.

    Fix:
        Set the switch port (and every hop) to the nodes' MTU, or lower the MTU of the node that is named.
    """
    if len(job.data_addresses) < 2 and not paths.probes:
        yield skip("one node: there is no path")
        return
    for node, reason in paths.failed_nodes.items():
        yield unknown(node, f"path MTU was not measured: {reason}")
    if not paths.probes and not paths.failed_nodes:
        yield unknown(CLUSTER, "no path was probed")
        return
    probes = {(probe.src, probe.dst): probe for probe in paths.probes}
    outcomes = {
        cell: FAR_END if _is_far_end(probe, nets, job) else probe.outcome for cell, probe in probes.items()
    }
    for outcome in ("black_hole", "small", FAR_END):
        cells = {
            cell: found == outcome
            for cell, found in outcomes.items()
            if found in ("ok", "black_hole", "small", FAR_END)
        }
        for fault in _merged(decode(cells)):
            for cell in sorted(fault.cells):
                yield _finding(probes[cell], fault, outcome, len({n for c in cells for n in c}))
    for cell, probe in probes.items():
        if probe.outcome == "no_answer":
            yield unknown(
                pair(*cell),
                "not even a small UDP packet was answered (UDP is filtered): path MTU not measured",
            )
        elif probe.outcome == "error":
            yield unknown(pair(*cell), f"path MTU was not measured: {probe.detail}")


def _is_far_end(probe: MtuProbe, nets: Mapping[str, NetFacts], job: Job) -> bool:
    """All that the receiver's own MTU allows does pass: its interface is the limit, and not the path.

    Receivers take a few bytes more than their MTU (a VLAN tag; on some NICs the whole buffer).
    """
    far = data_device(nets[probe.dst], job.data_addresses.get(probe.dst)) if probe.dst in nets else None
    if probe.outcome not in ("black_hole", "small") or far is None:
        return False
    return far.mtu < probe.dev_mtu and probe.largest_ok is not None and probe.largest_ok >= far.mtu


def _merged(faults: tuple[Fault, ...]) -> list[Fault]:
    """Echoes come back the same way, so one bad direction shows in both: paths of one pair are one."""
    single = {fault.nodes: fault for fault in faults if fault.kind is Kind.PATH}
    result = [fault for fault in faults if fault.kind is not Kind.PATH]
    for nodes, fault in single.items():
        src, dst = nodes
        back = single.get((dst, src))
        if back is None:
            result.append(fault)
        elif src < dst:
            result.append(Fault(kind=Kind.PATH, nodes=nodes, cells=fault.cells | back.cells))
    return result


def _finding(probe: MtuProbe, fault: Fault, outcome: str, count: int) -> Finding:
    cell: Cell = (probe.src, probe.dst)
    passed = probe.largest_ok or probe.learned_mtu
    hole = outcome == "black_hole"
    culprits: tuple[str, ...] = fault.nodes
    if fault.kind is Kind.PATH:
        culprits = (pair(*fault.nodes),)
    elif fault.kind is Kind.SPLIT and not culprits:
        culprits = tuple(dict.fromkeys(node for one in sorted(fault.cells) for node in one))
    # A hole at everybody is in the network; so is one between two nodes of which neither can be told.
    everywhere = fault.kind is Kind.ALL and count > 2
    if hole:
        summary = f"packets of {probe.dev_mtu} bytes vanish; {passed or 'no larger than 576'} pass"
        title = "Large packets to and from {nodes} vanish without an answer"
        if everywhere:
            title = "Large packets between nodes vanish without an answer"
        elif fault.kind is Kind.PATH:
            title = "Large packets on the way {nodes} vanish without an answer"
    else:
        summary = (
            f"packets of at most {passed or 'unknown size'} bytes pass, the interface sends {probe.dev_mtu}"
        )
        title = "The way to and from {nodes} takes smaller packets than the interface sends"
    return (fail if hole else warn)(
        pair(*cell),
        summary,
        observed=f"largest echoed {passed} bytes" if passed else "nothing above 576 bytes echoed",
        expected=f"{probe.dev_mtu} bytes, the MTU of {probe.dev}",
        expected_from=ExpectedFrom.DERIVED,
        evidence=(
            Evidence(
                kind="probe",
                where=probe.src,
                what=f"UDP, don't fragment, {probe.dev_mtu} bytes to {probe.address}",
                output=probe.detail or outcome.replace("_", " "),
            ),
        ),
        cause=CauseHint(
            key=KEYS[outcome],
            title=title,
            culprits=culprits,
            confidence=_confidence(fault, count),
            fixes=() if outcome == FAR_END else _fixes(probe, fault, culprits, passed),
            settle_by="compare the MTU of the two switch ports" if fault.kind is Kind.PATH else None,
        ),
    )


def _confidence(fault: Fault, count: int) -> Confidence:
    if fault.kind is Kind.PATH or count == 2:
        return Confidence.SUSPECTED
    return Confidence.LIKELY if fault.partial or fault.kind in (Kind.ALL, Kind.SPLIT) else Confidence.CERTAIN


def _fixes(probe: MtuProbe, fault: Fault, culprits: tuple[str, ...], passed: int | None) -> tuple[Fix, ...]:
    fallback = ETHERNET_MTU if probe.dev_mtu > ETHERNET_MTU else LEAST_MTU
    size = passed if passed and passed >= LEAST_MTU else fallback
    nodes = [node for node in dict.fromkeys(fault.nodes or culprits) if "->" not in node]
    # The probe names the interface of its sender; nodes of one cluster mostly call it the same.
    commands = tuple(
        Command(run_on=node, shell=f"ip link set dev {probe.dev} mtu {size}")
        for node in nodes
        if is_ifname(probe.dev) and (node == probe.src or len(nodes) > 1 or fault.kind is Kind.IN)
    )
    lower = Fix(
        text=f"lower the MTU there to {size}",
        commands=commands,
        root=True,
        persistent=False,
        risk="medium",
    )
    ports = f"switch port of {nodes[0]}" if len(nodes) == 1 else "switch ports between them"
    switch = Fix(text=f"set the {ports} to carry {probe.dev_mtu} bytes, headers on top")
    return (switch, lower) if commands else (switch,)
