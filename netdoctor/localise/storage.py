"""Rates of nodes at one file system, alone and all at once: who is slow, and what all share."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_high

from netdoctor.facts.storage import StorageRate
from netdoctor.localise.noise import scale

# Beyond what peers waver by. And differences that are no news, however sure they are: a node at more than
# four fifths of its peers' rate, all nodes at more than four fifths of what each had alone. Small files waver
# with the server's momentary load: half. That one server of names divides its work among all is no news.
SIGMAS, SHARE, FILES_SHARE = 4.0, 0.8, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """What the measurements of one kind say. Rates are in bytes or files per second, 0 for none."""

    alone: float  # typical rate of one node alone
    together: float  # typical rate of one node while all work
    total: float  # of all nodes that worked at once
    count: int  # of those nodes
    saturated: bool
    slow: Mapping[str, float]  # rate alone of who is behind each time that it was measured
    full: bool  # the bytes were moved before the time was over: who overlapped with whom is not known


def pattern(rates: Sequence[StorageRate]) -> Pattern:
    """Sort out the measurements of one kind. Those with an error, or of nothing, are left out."""
    files = any(one.kind == "files" for one in rates)
    share = FILES_SHARE if files else SHARE
    turns: dict[str, dict[str, float]] = {"alone": {}, "again": {}, "together": {}}
    for one in rates:
        if not one.error and one.rate > 0 and one.turn in turns:
            turns[one.turn][one.node] = one.rate
    alone, again, together = turns.values()
    bound = lower_bound(alone.values(), share)
    low = {node: rate for node, rate in alone.items() if rate < bound}
    # A single slow turn may be another user's load. Not measured again is not slow.
    slow = {node: max(low[node], again[node]) for node in low if again.get(node, math.inf) < bound}
    full = 2 * sum(one.full for one in rates if one.turn == "together") > len(together) > 0
    ratios = [math.log(together[n] / alone[n]) for n in together if n in alone and n not in low]
    return Pattern(
        alone=median([alone[n] for n in alone if n not in slow] or [0.0]),
        together=median([together[n] for n in together if n not in slow] or [0.0]),
        total=math.fsum(together.values()),
        count=len(together),
        saturated=len(together) > 1 and not full and not files and all_below(ratios),
        slow=slow,
        full=full,
    )


def lower_bound(rates: Collection[float], share: float = SHARE) -> float:
    """The rate below which a node is behind its peers, 0 without peers."""
    if len(rates) < 2:
        return 0.0
    logs = [math.log(rate) for rate in rates]
    centre = median_high(logs)  # of two the faster: the slower is the suspect
    noise = scale([y - centre for y in logs if y > centre])
    return math.exp(centre - max(SIGMAS * noise, -math.log(share)))


def all_below(ratios: Sequence[float]) -> bool:
    """Whether rates together are below those alone, for most nodes and by more than these waver."""
    if not ratios:
        return False
    middle = median(ratios)
    # The standard error of the median of n is 1.25 of the mean's.
    noise = 1.25 * scale([abs(y - middle) for y in ratios]) / math.sqrt(len(ratios))
    return middle < -max(SIGMAS * noise, -math.log(SHARE))
