"""From the localiser's decision to findings: who is slow, in which direction, how sure that is."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from netdoctor.checks._addresses import data_device
from netdoctor.checks._words import is_ifname, listing, title_text
from netdoctor.facts.localisation import Certainty, Culprit, Decision, Kind, Side, Undecided
from netdoctor.facts.net import NetFacts
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
    nodes_of,
    ok,
    pair,
    warn,
)

# At less than half of what is usual a cluster is no longer one that anybody wants to start a job on; above
# that it works, slower. Shipped floors lie between 0.25 and 1.1 of a link (docs/bandwidth.md), so this
# errs low.
STOPS_BELOW = 0.5

_CONFIDENCE = {
    Certainty.CERTAIN: Confidence.CERTAIN,
    Certainty.LIKELY: Confidence.LIKELY,
    Certainty.SUSPECTED: Confidence.SUSPECTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """How a check speaks. check: its id; what: ``TCP``; rate: a figure with its unit; limited_by: the part of
    a node that sets its expectation; measured: directed pairs; baseline: GB/s that one reached in an earlier
    report."""

    check: str
    what: str
    rate: Callable[[float], str]
    devices: Mapping[str, str]
    limited_by: Mapping[str, str]
    measured: Collection[tuple[str, str]]
    derived: bool = False
    baseline: Mapping[tuple[str, str], float] = field(default_factory=dict)


def gbit(gbyte_s: float) -> str:
    """``9.4 Gbit/s``, ``47 Mbit/s`` for 10^9 bytes per second."""
    bits = gbyte_s * 8
    if bits >= 9.95:
        return f"{bits:.0f} Gbit/s"
    return f"{bits:.1f} Gbit/s" if bits >= 1 else f"{bits * 1000:.0f} Mbit/s"


def gbyte(gbyte_s: float) -> str:
    """``46.1 GB/s``, ``0.38 GB/s``, ``0.0058 GB/s``: three figures at most."""
    if gbyte_s >= 10:
        return f"{gbyte_s:.1f} GB/s"
    return f"{gbyte_s:.2f} GB/s" if gbyte_s >= 0.1 else f"{gbyte_s:.2g} GB/s"


def devices(nets: Mapping[str, NetFacts], addresses: Mapping[str, str]) -> dict[str, str]:
    """The interface that holds each node's data address, where its name may stand in a command."""
    found = {node: data_device(net, addresses.get(node)) for node, net in nets.items()}
    return {node: dev.name for node, dev in found.items() if dev is not None and is_ifname(dev.name)}


def slow(decision: Decision, words: Words) -> Iterator[Finding]:
    """A finding for every culprit and for what stays undecided; nothing when nothing is slow."""
    for culprit in decision.culprits:
        yield from _blamed(culprit, decision, words)
    for tie in decision.undecided:
        yield from _tied(tie, decision, words)


def _targets(culprit: Culprit) -> tuple[str, ...]:
    if culprit.kind is Kind.PATH:
        a, b = culprit.nodes[0], culprit.nodes[1]
        if culprit.side is Side.IN:
            return (pair(b, a),)
        return (pair(a, b),) if culprit.side is Side.OUT else (pair(a, b), pair(b, a))
    if culprit.kind in (Kind.NODE, Kind.NIC):
        return culprit.nodes[:1]
    if culprit.kind in (Kind.RAIL, Kind.LEAF, Kind.UPLINK) and culprit.nodes:
        return culprit.nodes
    return (CLUSTER,)


_SIDES = {
    Side.OUT: "what it sends",
    Side.IN: "what it receives",
    Side.BOTH: "both directions",
    Side.EITHER: "at least one direction",
}


def _title(culprit: Culprit) -> tuple[str, str]:
    """(key, title) of a culprit; numbers stay out of both.

    Neither says what was measured: slow over TCP and slow for torch is one cause, and the evidence has both.
    """
    speed = "dead" if culprit.dead else "slow"
    key = f"slow-{culprit.kind.value}"
    match culprit.kind:
        case Kind.NODE:
            side = {
                Side.OUT: "What {nodes} send{s} is",
                Side.IN: "What {nodes} receive{s} is",
            }.get(culprit.side, "Everything to and from {nodes} is")
            return f"{key}-{culprit.side.value}", f"{side} {speed}, whoever the peer"
        case Kind.NIC:
            return f"{key}-{culprit.side.value}", f"Rail {_plain(culprit.rail)} of {{nodes}} is {speed}"
        case Kind.PATH:
            # Both directions are two targets, and one path to a reader.
            a, b = (title_text(n) for n in culprit.nodes[:2])
            path = "{nodes}" if len(_targets(culprit)) == 1 else f"between {a} and {b}"
            return key, f"The path {path} is {speed}, though both ends are fast with others"
        case Kind.RAIL:
            where = f" of leaf {_plain(culprit.leaf)}" if culprit.leaf else ""
            return key, f"Rail {_plain(culprit.rail)}{where} is {speed} on {{nodes}}"
        case Kind.LEAF:
            return key, f"Everything at leaf {_plain(culprit.leaf)} is {speed}: {{nodes}}"
        case Kind.UPLINK:
            return key, f"The uplink of leaf {_plain(culprit.leaf)} is {speed}: {{nodes}}"
        case Kind.SPINE:
            return key, f"Paths between leaves are {speed}"
        case Kind.UNIFORM:
            return key, "Every pair is slower than the nodes' own links allow"


def _plain(name: str | None) -> str:
    return title_text(name or "")


def _said(culprit: Culprit, words: Words) -> str:
    if culprit.dead or culprit.value_gbyte_s is None:
        return f"{words.what}: nothing passes"
    rate = words.rate(culprit.value_gbyte_s)
    if culprit.healthy_gbyte_s is None:
        return f"{words.what}: {rate}"
    return f"{words.what}: {rate}, {100 * culprit.factor:.0f} % of {words.rate(culprit.healthy_gbyte_s)}"


def _origin(culprit: Culprit, decision: Decision, words: Words) -> tuple[str, ExpectedFrom]:
    """What was expected, and from where: the peers' figure, or the bound of the slowest part.

    Beside it what the same pairs reached in the baseline.
    """
    before = [rate for (src, dst), rate in words.baseline.items() if culprit.holds_back(src, dst)]
    then = f"; {words.rate(median(before))} in the baseline" if before else ""
    if culprit.kind is Kind.UNIFORM or (words.derived and decision.healthy_gbyte_s is None):
        terms = dict.fromkeys(words.limited_by[n] for n in culprit.nodes if n in words.limited_by)
        term = f", limited by {listing(terms, 2)}" if terms else ""
        value = culprit.healthy_gbyte_s
        return (words.rate(value) if value is not None else "more") + term + then, ExpectedFrom.DERIVED
    value = culprit.healthy_gbyte_s or decision.healthy_gbyte_s
    return (words.rate(value) if value else "more") + f", the peers' median{then}", ExpectedFrom.PEERS


def _hint(culprit: Culprit, words: Words, confidence: Confidence, settle: str | None) -> CauseHint:
    key, title = _title(culprit)
    return CauseHint(
        key=key,
        title=title,
        culprits=_targets(culprit),
        confidence=confidence,
        fixes=_fixes(culprit, words),
        verify=(words.check,),
        settle_by=settle,
    )


def _blamed(culprit: Culprit, decision: Decision, words: Words) -> Iterator[Finding]:
    confidence = _CONFIDENCE[culprit.certainty]
    settle = None
    if confidence is Confidence.SUSPECTED:
        settle = _again(nodes_of(_targets(culprit)[0]), words)
    hint = _hint(culprit, words, confidence, settle)
    say = fail if culprit.dead or culprit.factor < STOPS_BELOW else warn
    expected, origin = _origin(culprit, decision, words)
    held = _held((culprit,), words)
    for target in _targets(culprit):
        yield say(
            target,
            f"{_said(culprit, words)} in {_SIDES[culprit.side]}"
            if culprit.kind is Kind.NODE
            else _said(culprit, words),
            observed=words.rate(culprit.value_gbyte_s) if culprit.value_gbyte_s is not None else "nothing",
            expected=expected,
            expected_from=origin,
            evidence=_evidence(culprit, decision, words),
            cause=hint,
            pairs=held,
        )


def _held(suspects: Sequence[Culprit], words: Words) -> tuple[str, ...]:
    """The measured pairs that are slow whichever of these it is."""
    return tuple(
        pair(src, dst) for src, dst in words.measured if all(one.holds_back(src, dst) for one in suspects)
    )


def _evidence(culprit: Culprit, decision: Decision, words: Words) -> tuple[Evidence, ...]:
    runs = f"{culprit.runs} run{'s' if culprit.runs != 1 else ''}"
    met = (
        f" with {culprit.partners} partner{'s' if culprit.partners != 1 else ''}" if culprit.partners else ""
    )
    sure = f"{100 * culprit.confidence:.0f} %" if culprit.confidence < 0.995 else "over 99 %"
    return (
        Evidence(
            kind="probe",
            where=culprit.nodes[0] if culprit.nodes else CLUSTER,
            what=f"{words.what} in {runs}{met}",
            output=f"confidence {sure}, noise {100 * decision.noise:.0f} %",
        ),
    )


def _tied(tie: Undecided, decision: Decision, words: Words) -> Iterator[Finding]:
    names = [one.target for one in tie.between]
    first = tie.between[0]
    settle = _again(tie.pair, words) if tie.pair is not None else (tie.reason or None)
    if tie.maybe_passing and first.factor >= STOPS_BELOW:
        yield ok(
            CLUSTER,
            f"slow at a moment, and perhaps only then: {listing(names, 3)} ({_said(first, words)}); "
            f"to settle it: {settle or 'measure again'}",
        )
        return
    involved = dict.fromkeys(target for one in tie.between for target in _targets(one))
    kinds = sorted({one.kind.value for one in tie.between})
    hint = CauseHint(
        key=f"slow-undecided-{'-'.join(kinds)}",
        title=f"Something is slow, undecided between {title_text(listing(names, 4))}"
        + (", or it has passed" if tie.maybe_passing else ""),
        culprits=tuple(involved),
        confidence=Confidence.SUSPECTED,
        verify=(words.check,),
        settle_by=settle,
    )
    expected, origin = _origin(first, decision, words)
    ends = list(dict.fromkeys(m for one in tie.between for m in one.nodes))
    yield warn(
        pair(ends[0], ends[1]) if len(ends) == 2 else ends[0] if ends else CLUSTER,
        f"{_said(first, words)}; undecided between {listing(names, 4)}",
        observed=words.rate(first.value_gbyte_s) if first.value_gbyte_s is not None else "nothing",
        expected=expected,
        expected_from=origin,
        evidence=_evidence(first, decision, words),
        cause=hint,
        pairs=_held(tie.between, words),
    )


def _again(nodes: Sequence[str], words: Words) -> str:
    if not nodes or not all(_is_plain(n) for n in nodes):
        return "measure again"
    return f"netdoctor scan --last --only {words.check} --node {','.join(nodes)}"


def _is_plain(name: str) -> bool:
    return all(c.isalnum() or c in "._-" for c in name)


def _fixes(culprit: Culprit, words: Words) -> tuple[Fix, ...]:
    if culprit.kind in (Kind.NODE, Kind.NIC):
        node = culprit.nodes[0]
        device = words.devices.get(node)
        commands: tuple[Command, ...] = ()
        if device is not None:
            shell = (
                f"ethtool {device} | grep -E 'Speed|Duplex'; tc qdisc show dev {device}; "
                f"ip -s link show dev {device}"
            )
            commands = (Command(run_on=node, shell=shell),)
        return (
            Fix(
                text="compare link speed, shaping and error counters with those of a healthy node, "
                "then look at cable and switch port",
                commands=commands,
            ),
        )
    if culprit.kind is Kind.PATH:
        return (
            Fix(
                text="look at what only this pair shares: the route, the link of a bundle that its hash "
                "picks, a policer between the two"
            ),
        )
    if culprit.kind is Kind.UNIFORM:
        return (Fix(text="look at what all pairs share: the switch, its port speed, shaping, the MTU"),)
    return (Fix(text="look at the switch that these nodes share, its uplinks and their error counters"),)
