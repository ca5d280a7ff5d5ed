"""From the localiser's decision to findings: who is slow, in which direction, how sure that is."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from netdoctor.checks._shared.addresses import data_device
from netdoctor.checks._shared.text import is_ifname, listing, title_text
from netdoctor.facts.bandwidth import PairRate, TcpRate
from netdoctor.facts.localisation import Decision, Kind, Side, Suspect, Undecided
from netdoctor.facts.net import NetFacts
from netdoctor.model import (
    CLUSTER,
    DERIVED,
    PEERS,
    SUSPECTED,
    Action,
    Cause,
    Confidence,
    Expected,
    Finding,
    Fix,
    Measure,
    nodes_of,
    ok,
    pair,
    run,
    seen,
)

# At less than half of what is usual a cluster is no longer one that anybody wants to start a job on; above
# that it works, slower. Shipped floors lie between 0.25 and 1.1 of a link (docs/bandwidth.md), so this
# errs low.
STOPS_BELOW = 0.5

SWITCH = run("check the switch that these nodes share, its uplinks and their error counters")
PATH = run(
    "check what only this pair uses: the route, the link of a bundle that its hash picks, a rate limit"
    " between the two"
)
SHARED = run("check what all pairs share: the switch, its port speed, traffic shaping, the MTU")


Rates = Sequence[TcpRate | PairRate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """How a check speaks of its rates."""

    check: str  # its id
    what: str  # ``TCP``
    rate: Callable[[float], str]  # a figure with its unit, of GB/s
    rates: Rates
    devices: Mapping[str, str]
    limited_by: Mapping[str, str] = field(
        default_factory=dict
    )  # the part of a node that sets what is expected
    derived: bool = False  # whether expectations are
    baseline: Mapping[tuple[str, str], float] = field(default_factory=dict)  # GB/s by directed pair


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


def summary(decision: Decision, rounds: int, words: Words, kind: str = "") -> str:
    """``slowest pair 9.1 Gbit/s, median 9.4 Gbit/s, 6 of 6 pairs in 5 rounds``."""
    values = _sorted(words)
    pairs = f"{decision.pairs_measured} of {decision.pairs_possible} pairs"
    if not values:
        return f"{pairs} tried, and nothing passed"
    middle = words.rate(values[len(values) // 2])
    return f"slowest pair {words.rate(values[0])}, median {middle}{kind}, {pairs} in {rounds} rounds"


def extremes(words: Words, unit: str, per_gbyte: float = 1.0) -> dict[str, Measure]:
    """The slowest rate and the median, so many `unit` to the GB/s; nothing where nothing passed."""
    values = _sorted(words)
    by_name = {"slowest": values[0], "median": values[len(values) // 2]} if values else {}
    return {f"{words.check}.{name}": Measure(value=v * per_gbyte, unit=unit) for name, v in by_name.items()}


def _sorted(words: Words) -> list[float]:
    return sorted(r.gbyte_s for r in words.rates if r.gbyte_s is not None)


def slow(decision: Decision, words: Words) -> Iterator[Finding]:
    """A finding for every suspect and for what stays undecided; nothing when nothing is slow."""
    for suspect in decision.suspects:
        yield from _blamed(suspect, decision, words)
    for tie in decision.undecided:
        finding = _tied(tie, decision, words)
        sure = next((one for one in decision.suspects if _same_path(one, tie) or _explains(one, tie)), None)
        if sure is not None and finding.cause is not None:
            cause = next(_blamed(sure, decision, words)).cause
            finding = replace(finding, target=_targets(tie.between[0])[0], cause=cause)
        yield finding


def _same_path(suspect: Suspect, tie: Undecided) -> bool:
    """What one direction is blamed for and the other only suspected of is one path."""
    ends = {*suspect.nodes}
    return suspect.kind is Kind.PATH and all(
        one.kind is Kind.PATH and {*one.nodes} == ends for one in tie.between
    )


def _explains(suspect: Suspect, tie: Undecided) -> bool:
    """The node holds back all that is suspected: how much slower a moment was than it is, is no cause."""
    return (
        tie.maybe_passing
        and suspect.kind in (Kind.NODE, Kind.NIC)
        and all(
            one.kind is Kind.PATH
            and not one.dead
            and all(suspect.holds_back(*nodes_of(target)) for target in _targets(one))
            for one in tie.between
        )
    )


def _blamed(suspect: Suspect, decision: Decision, words: Words) -> Iterator[Finding]:
    targets = _targets(suspect)
    confidence = Confidence(suspect.certainty.value)
    key, title = _title(suspect)
    settle = _again(nodes_of(targets[0]), words) if confidence is SUSPECTED else None
    cause = Cause(key, title, confidence, verify=(words.check,), settle_by=settle)
    if suspect.kind is Kind.NODE:
        cause = cause.but(action=Action.DRAIN)
    say = cause.fail if suspect.dead or suspect.factor < STOPS_BELOW else cause.warn
    side = f" in {_SIDES[suspect.side]}" if suspect.kind is Kind.NODE else ""
    details = _figures(suspect, decision, words)
    held_back = _held_back((suspect,), words)
    for target in targets:
        yield say(
            f"{_rate_text(suspect, words)}{side}",
            at=target,
            culprits=targets,
            fixes=_fix(suspect, words),
            pairs=held_back,
            **details,
        )


def _tied(tie: Undecided, decision: Decision, words: Words) -> Finding:
    names = list(dict.fromkeys(one.target for one in tie.between))  # of one node each direction is a suspect
    first = tie.between[0]
    settle = _again(tie.pair, words) if tie.pair is not None else tie.reason
    if tie.maybe_passing and first.factor >= STOPS_BELOW:
        return ok(
            CLUSTER,
            f"slow for a moment, and perhaps only then: {listing(names, 3)} ({_rate_text(first, words)}); "
            f"to decide it: {settle}",
        )
    kinds = "-".join(sorted({one.kind.value for one in tie.between}))
    between = f"undecided between {listing(names, 4)}"
    passed = ", or it is over" if tie.maybe_passing else ""
    cause = Cause(
        f"slow-undecided-{kinds}",
        f"Something is slow, {title_text(between)}{passed}",
        SUSPECTED,
        verify=(words.check,),
        settle_by=settle,
    )
    ends = list(dict.fromkeys(m for one in tie.between for m in one.nodes))
    return cause.warn(
        f"{_rate_text(first, words)}; {between}",
        at=pair(ends[0], ends[1]) if len(ends) == 2 else ends[0] if ends else CLUSTER,
        culprits=tuple(dict.fromkeys(target for one in tie.between for target in _targets(one))),
        pairs=_held_back(tie.between, words),
        **_figures(first, decision, words),
    )


def _targets(suspect: Suspect) -> tuple[str, ...]:
    if suspect.kind is Kind.PATH:
        a, b = suspect.nodes[0], suspect.nodes[1]
        if suspect.side is Side.IN:
            return (pair(b, a),)
        return (pair(a, b),) if suspect.side is Side.OUT else (pair(a, b), pair(b, a))
    if suspect.kind in (Kind.NODE, Kind.NIC):
        return suspect.nodes[:1]
    if suspect.kind in (Kind.RAIL, Kind.LEAF, Kind.UPLINK) and suspect.nodes:
        return suspect.nodes
    return (CLUSTER,)


def _held_back(suspects: Sequence[Suspect], words: Words) -> tuple[str, ...]:
    """The measured pairs that are slow whichever of these it is."""
    measured = dict.fromkeys((r.src, r.dst) for r in words.rates)
    return tuple(pair(*ends) for ends in measured if all(one.holds_back(*ends) for one in suspects))


_SIDES = {
    Side.OUT: "what it sends",
    Side.IN: "what it receives",
    Side.BOTH: "both directions",
    Side.EITHER: "at least one direction",
}


# Neither says what was measured: slow over TCP and slow for torch is one cause, and the evidence has both.
_TITLES = {
    Kind.NODE: "{side} {speed}, with every peer",
    Kind.NIC: "Rail {rail} of {{nodes}} is {speed}",
    Kind.PATH: "The path {path} is {speed}, though both ends are fast with others",
    Kind.RAIL: "Rail {rail}{of_leaf} is {speed} on {{nodes}}",
    Kind.LEAF: "Everything at leaf {leaf} is {speed}: {{nodes}}",
    Kind.UPLINK: "The uplink of leaf {leaf} is {speed}: {{nodes}}",
    Kind.SPINE: "Paths between leaves are {speed}",
    Kind.UNIFORM: "Every pair is slower than the nodes' own links allow",
}
_SUBJECTS = {Side.OUT: "What {nodes} send{s} is", Side.IN: "What {nodes} receive{s} is"}


def _title(suspect: Suspect) -> tuple[str, str]:
    """(key, title) of a suspect; numbers stay out of both."""
    key = f"slow-{suspect.kind.value}"
    if suspect.kind in (Kind.NODE, Kind.NIC):
        key = f"{key}-{suspect.side.value}"
    # Both directions of a path are two targets, and one path to a reader.
    both = suspect.kind is Kind.PATH and len(_targets(suspect)) > 1
    leaf = title_text(suspect.leaf or "")
    return key, _TITLES[suspect.kind].format(
        speed="dead" if suspect.dead else "slow",
        side=_SUBJECTS.get(suspect.side, "Everything to and from {nodes} is"),
        path="between {} and {}".format(*map(title_text, suspect.nodes)) if both else "{nodes}",
        rail=title_text(suspect.rail or ""),
        leaf=leaf,
        of_leaf=f" of leaf {leaf}" if leaf else "",
    )


def _rate_text(suspect: Suspect, words: Words) -> str:
    if suspect.dead or suspect.value_gbyte_s is None:
        return f"{words.what}: nothing passes"
    rate = words.rate(suspect.value_gbyte_s)
    if suspect.healthy_gbyte_s is None:
        return f"{words.what}: {rate}"
    return f"{words.what}: {rate}, {100 * suspect.factor:.0f} % of {words.rate(suspect.healthy_gbyte_s)}"


def _figures(suspect: Suspect, decision: Decision, words: Words) -> dict[str, Any]:
    """What was seen, in how many runs, and what was expected."""
    value, met = suspect.value_gbyte_s, suspect.partners
    runs = f"{suspect.runs} run{'s' if suspect.runs != 1 else ''}"
    partners = f" with {met} partner{'s' if met != 1 else ''}" if met else ""
    sure = f"{100 * suspect.confidence:.0f} %" if suspect.confidence < 0.995 else "over 99 %"
    return {
        "observed": words.rate(value) if value is not None else "nothing",
        "expected": _expected(suspect, decision, words),
        "seen": seen(
            f"{words.what} in {runs}{partners}",
            f"confidence {sure}, noise {100 * decision.noise:.0f} %",
            at=suspect.nodes[0] if suspect.nodes else CLUSTER,
        ),
    }


def _expected(suspect: Suspect, decision: Decision, words: Words) -> Expected:
    """What was expected, and from where: the peers' figure, or the bound of the slowest part.

    Beside it what the same pairs reached in the baseline.
    """
    before = [rate for (src, dst), rate in words.baseline.items() if suspect.holds_back(src, dst)]
    then = f"; {words.rate(median(before))} in the baseline" if before else ""
    if suspect.kind is Kind.UNIFORM or (words.derived and decision.healthy_gbyte_s is None):
        terms = dict.fromkeys(words.limited_by[n] for n in suspect.nodes if n in words.limited_by)
        term = f", limited by {listing(terms, 2)}" if terms else ""
        value = suspect.healthy_gbyte_s
        return DERIVED((words.rate(value) if value is not None else "more") + term + then)
    value = suspect.healthy_gbyte_s or decision.healthy_gbyte_s
    return PEERS((words.rate(value) if value else "more") + f", the peers' median{then}")


def _again(nodes: Sequence[str], words: Words) -> str:
    if not nodes or not all(c.isalnum() or c in "._-" for name in nodes for c in name):
        return "measure again"
    return f"netdoctor scan --last --only {words.check} --node {','.join(nodes)}"


def _fix(suspect: Suspect, words: Words) -> Fix:
    if suspect.kind not in (Kind.NODE, Kind.NIC):
        return {Kind.PATH: PATH, Kind.UNIFORM: SHARED}.get(suspect.kind, SWITCH)
    node = suspect.nodes[0]
    device = words.devices.get(node)
    shell = (
        f"ethtool {device} | grep -E 'Speed|Duplex'; tc qdisc show dev {device}; ip -s link show dev {device}"
    )
    return run(
        "compare link speed, shaping and error counters with those of a healthy node, then check cable and"
        " switch port",
        shell if device is not None else "",
        on=node,
    )
