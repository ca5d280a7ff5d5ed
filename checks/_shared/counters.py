"""What counters of links added between two readings, and when that is more than a healthy link adds."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from netdoctor import tables
from netdoctor.checks._shared.outcomes import Outcomes, Words
from netdoctor.checks._shared.text import listing
from netdoctor.facts.counters import Counted, CounterFacts, LaterCounters
from netdoctor.model import HERE, Evidence, Finding, Status, ok, seen, unknown

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a counter may grow by: at a rate, or by a part of the packets; else not at all."""

    counter: str
    outcome: str
    per_s: float = 0.0
    per_minute: float = 0.0
    of_packets: float = 0.0  # of those moved meanwhile
    least: int = 1  # fewer events are no rate yet
    judged: bool = True  # otherwise it is evidence alone
    earlier: bool = True  # what it counted before is reported

    @property
    def expected(self) -> str:
        if self.of_packets:
            return f"at most {self.of_packets * 1e6:g} in a million packets"
        if self.per_minute:
            return f"at most {self.per_minute:g} a minute"
        return f"at most {self.per_s:g} a second" if self.per_s else "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters(Outcomes):
    """A table of counters, and of what it means when they grow."""

    rule: tuple[Rule, ...]


NETDEVS = tables.table("netdoctor.checks.net", "errors.toml", Counters)  # of network interfaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """What a port or an interface has counted."""

    totals: Counted  # at the end
    seconds: float  # between the two readings
    by: Mapping[str, int]  # between the two readings

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
        rate = rule.per_s + rule.per_minute / 60
        allowed = rate * self.seconds + rule.of_packets * self.packets
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

    expected: what has to be counted, by what the node says elsewhere.
    """
    before: dict[str, Counted] = {one.name: one for one in getattr(first, kind)}
    after: dict[str, Counted] = {one.name: one for one in getattr(later.reading, kind)}
    if never := sorted(expected - before.keys()) if len(before) < COUNTED[kind] else ():
        yield unknown(HERE, f"{listing(never, 4)}: no counters were reported")
    fewer = [name for name, one in before.items() if one.read > (after[name].read if name in after else 0)]
    if fewer := [name for name in fewer if kind == "ports" or name in expected]:
        yield unknown(HERE, f"{listing(fewer, 4)} reported fewer counters at the end than at login")


def rate_findings(one: Grown, table: Counters, where: str, words: Words) -> Iterator[Finding]:
    """A warning for each outcome of which a rule is broken, in the words of the first such rule.

    where: the folder of the counters. words: of the table.
    """
    broken: dict[str, Rule] = {}
    for rule in table.rule:
        if rule.judged and one.breaks(rule):
            broken.setdefault(rule.outcome, rule)
    for name, rule in broken.items():
        events, meanwhile = one.by[rule.counter], f"in {one.seconds:.0f} s"
        yield table.finding(
            name,
            words,
            f"{one.name} counted {events} {rule.counter} {meanwhile}",
            Status.WARN,
            observed=f"{events} {meanwhile}",
            expected=rule.expected,
            seen=counts(one, table.rule, where),
        )


def counts(one: Grown, rules: Sequence[Rule], where: str) -> Evidence:
    """Everything that grew, and among how many packets."""
    grew = [f"{rule.counter} +{one.by[rule.counter]}" for rule in rules if one.by.get(rule.counter)]
    return seen(where, f"{', '.join(grew)}, of {one.packets} packets, in {one.seconds:.0f} s", "file")


def earlier_errors(found: Sequence[Grown], what: str, table: Counters) -> Iterator[Finding]:
    """The line of a node whose counters had counted before, which nobody judges."""
    names = [rule.counter for rule in table.rule if rule.earlier]
    before = {
        name: sum(one.totals.values.get(name, 0) - one.by.get(name, 0) for one in found) for name in names
    }
    if any(before.values()):
        totals = ", ".join(f"{name} {total}" for name, total in before.items() if total > 0)
        yield ok(HERE, f"no errors of {what} in {found[0].seconds:.0f} s; earlier ones: {totals}")
