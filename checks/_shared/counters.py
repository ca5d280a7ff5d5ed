"""What counters of links added between two readings, and when that is more than a healthy link adds."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, NamedTuple

from netdoctor.checks._shared.text import listing
from netdoctor.facts.counters import Counted, CounterFacts, LaterCounters
from netdoctor.model import HERE, Cause, Evidence, Finding, Fix, ok, seen, unknown

# In less, one burst more or less is everything.
APART_S = 1.0
# As many as are counted (agent/facts/counters.py, MAX_PORTS and MAX_NETDEVS).
COUNTED = {"ports": 128, "netdevs": 64}
# Counters of 4, 8 and 16 bits stop there: PORT_PMA_ATTR in drivers/infiniband/core/sysfs.c.
STOPS = {
    "local_link_integrity_errors": 15,
    "excessive_buffer_overrun_errors": 15,
    "link_downed": 255,
    "link_error_recovery": 255,
    "symbol_error": 65535,
    "port_rcv_errors": 65535,
    "port_xmit_discards": 65535,
}
PACKETS = ("rx_packets", "tx_packets", "port_rcv_packets", "port_xmit_packets")


class Rule(NamedTuple):
    """What a counter may grow by: so much a second (per_s) or that part of the packets moved meanwhile
    (of_packets); where neither is said, not at all. Fewer than `least` events are no rate yet."""

    counter: str
    cause: Cause
    per_s: float = 0.0
    of_packets: float = 0.0
    least: int = 1

    @property
    def expected(self) -> str:
        if self.of_packets:
            return f"at most {self.of_packets * 1e6:g} in a million packets"
        if not self.per_s:
            return "none"
        many, unit = (self.per_s, "second") if self.per_s >= 1 else (self.per_s * 60, "minute")
        return f"at most {many:g} a {unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """What a port or an interface has counted between two readings: by; and at the end: totals."""

    totals: Counted
    seconds: float
    by: Mapping[str, int]

    @property
    def name(self) -> str:
        return self.totals.name

    @property
    def packets(self) -> int:
        return sum(self.by.get(word, 0) for word in PACKETS)

    @property
    def full(self) -> list[str]:
        """Counters of an HCA port that can count no further, and did not meanwhile."""
        return [
            name for name, most in STOPS.items() if self.totals.values.get(name) == most and not self.by[name]
        ]

    def breaks(self, rule: Rule) -> bool:
        events = self.by.get(rule.counter, 0)
        allowed = rule.per_s * self.seconds + rule.of_packets * self.packets
        return events >= rule.least and events > allowed


def grown(first: CounterFacts, later: LaterCounters, kind: Literal["ports", "netdevs"]) -> list[Grown]:
    """What each has counted that is in both readings; nothing where the second does not follow the first.

    A counter that is smaller the second time began anew, and has counted at least that much since.
    """
    seconds = later.reading.uptime_s - first.uptime_s
    before: dict[str, Counted] = {one.name: one for one in getattr(first, kind)}
    found = []
    for one in getattr(later.reading, kind) if seconds >= APART_S else ():
        if one.name in before and one.read:
            was = before[one.name].values
            more = {name: value - was.get(name, 0) for name, value in one.values.items()}
            by = {name: many if many >= 0 else one.values[name] for name, many in more.items()}
            found.append(Grown(totals=one, seconds=seconds, by=by))
    return found


def uncounted(
    expected: Set[str], first: CounterFacts, later: LaterCounters, kind: Literal["ports", "netdevs"]
) -> Iterator[Finding]:
    """What was not counted, or the second time less of it, though the node has it.

    there: what has to be counted, by what the node says elsewhere.
    """
    before: dict[str, Counted] = {one.name: one for one in getattr(first, kind)}
    after: dict[str, Counted] = {one.name: one for one in getattr(later.reading, kind)}
    if never := sorted(expected - before.keys()) if len(before) < COUNTED[kind] else ():
        yield unknown(HERE, f"what {listing(never, 4)} counts was not told")
    fewer = [name for name, one in before.items() if one.read > (after[name].read if name in after else 0)]
    if fewer := [name for name in fewer if kind == "ports" or name in expected]:
        yield unknown(HERE, f"{listing(fewer, 4)} told at the end less of what it counts than at login")


def rate_findings(
    one: Grown,
    rules: Sequence[Rule],
    where: str,
    fixes: Mapping[str, Sequence[Fix]],
    reported: Sequence[Rule] = (),
) -> Iterator[Finding]:
    """A warning for each cause of which a rule is broken, in the words of the first such rule.

    where: the folder of the counters. fixes: by key of the cause. shown: what is told of all that grew.
    """
    broken: dict[str, Rule] = {}
    for rule in filter(one.breaks, rules):
        broken.setdefault(rule.cause.key, rule)
    for key, rule in broken.items():
        events, meanwhile = one.by[rule.counter], f"in {one.seconds:.0f} s"
        yield rule.cause.warn(
            f"{one.name} counted {events} {rule.counter} {meanwhile}",
            observed=f"{events} {meanwhile}",
            expected=rule.expected,
            seen=counts(one, reported or rules, where),
            fixes=fixes[key],
        )


def counts(one: Grown, rules: Sequence[Rule], where: str) -> Evidence:
    """Everything that grew, and among how many packets."""
    grew = [f"{rule.counter} +{one.by[rule.counter]}" for rule in rules if one.by.get(rule.counter)]
    return seen(where, f"{', '.join(grew)}, of {one.packets} packets, in {one.seconds:.0f} s", "file")


def earlier_errors(found: Sequence[Grown], what: str, rules: Sequence[Rule]) -> Iterator[Finding]:
    """The line of a node whose counters had counted before, which nobody judges."""
    names = dict.fromkeys(rule.counter for rule in rules)
    before = {
        name: sum(one.totals.values.get(name, 0) - one.by.get(name, 0) for one in found) for name in names
    }
    if any(before.values()):
        totals = ", ".join(f"{name} {total}" for name, total in before.items() if total > 0)
        yield ok(HERE, f"no errors of {what} in {found[0].seconds:.0f} s; earlier ones: {totals}")
