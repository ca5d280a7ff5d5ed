"""From measured rates to a decision: what a machine's own CPU set says nothing against the network."""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netdoctor.facts.bandwidth import PairRate, PairRates, RdmaRates, TcpRate, TcpRates
from netdoctor.facts.localisation import Decision, PairSample
from netdoctor.localise.verdict import decode

# From here on the sender's threads hardly ever waited for the network: the rate is the machine's.
BUSY = 0.6
# How far below the better rates of busy machines that may be: cores are lent to other programs, and a machine
# that a slow link keeps waiting looks busy too when it waits for a core each time. On lab nodes that share
# two cores healthy rates of one moment lay within 0.7 of each other, those behind 5 of 17 Gbit/s at 0.25 to
# 0.33.
LENT = 0.4
# However much that wavers, half of what is usual has to show.
MOST_NOISE = 0.15


def decide(measured: TcpRates | PairRates | RdmaRates, leaves: Mapping[str, str]) -> Decision:
    """Who is behind what is slow in these rates. leaves: node to leaf switch, where that is known.

    A pair is expected to reach what the lesser of its two ends does, where both are known.
    """
    rates: Sequence[TcpRate | PairRate] = measured.rates
    by_node = measured.expected_gbyte_s
    cleared = network_rates(rates)
    samples = [
        PairSample(r.src, r.dst, value, "out", getattr(r, "rail", None), r.round)
        for r, value in zip(rates, cleared.values, strict=True)
    ]
    expected = {
        (r.src, r.dst): min(by_node[r.src], by_node[r.dst])
        for r in rates
        if r.src in by_node and r.dst in by_node
    }
    return decode(
        samples,
        nodes=measured.nodes,
        leaves=leaves,
        expected_gbyte_s=expected,
        of_each_rail=isinstance(measured, RdmaRates),
        least_noise=cleared.noise,
    )


@dataclass(frozen=True, slots=True)
class Cleared:
    """Rates as the network alone would have had them."""

    values: tuple[float | None, ...]  # in the order of the rates
    noise: float  # relative width of those levelled


def network_rates(rates: Sequence[TcpRate | PairRate]) -> Cleared:
    """What the rates say of the network.

    A rate that a machine's own CPU set says only that the way is no slower. It counts as the usual one of
    its kind: as a mere floor it would clear nobody where all healthy pairs are like it, on a lab whose nodes
    share two cores or behind links that outrun a core, and the one slow link would have nothing to be
    compared with.

    Is it really the CPU's? Pairs that ran at the same time may share cores, and the more of them do, the less
    each gets. So a rate is held against those of moments with at least as many busy pairs.
    """
    first: dict[tuple[int, frozenset[str]], str] = {}  # who sends in the first half of a round
    moments = []
    for r in rates:
        sender = first.setdefault((r.round, frozenset((r.src, r.dst))), r.src)
        moments.append((r.round, r.src == sender))
    busy = [r.gbyte_s or 0.0 if r.busy >= BUSY else 0.0 for r in rates]
    crowd = Counter(moment for moment, rate in zip(moments, busy, strict=True) if rate)
    crowds: dict[int, list[float]] = {}
    for moment, rate in zip(moments, busy, strict=True):
        if rate:
            crowds.setdefault(crowd[moment], []).append(rate)
    least: dict[int, float] = {}
    for count in crowds:
        peers = sorted(v for other, values in crowds.items() if other >= count for v in values)
        least[count] = LENT * peers[3 * len(peers) // 4]
    limited = [
        rate if rate and rate >= least[crowd[moment]] else 0.0
        for moment, rate in zip(moments, busy, strict=True)
    ]
    if not any(limited):
        return Cleared(tuple(r.gbyte_s for r in rates), 0.0)
    middles = {count: statistics.median(values) for count, values in crowds.items()}
    off = [abs(math.log(v / middles[crowd[m]])) for v, m in zip(limited, moments, strict=True) if v]
    others = sorted(r.gbyte_s for r, v in zip(rates, limited, strict=True) if not v and r.gbyte_s is not None)
    typical = statistics.median(v for v in limited if v)
    if others:  # not the best of them: one stroke of luck makes no rule
        typical = max(typical, others[3 * (len(others) - 1) // 4])
    values = tuple(typical if v else r.gbyte_s for r, v in zip(rates, limited, strict=True))
    # The standard deviation by the median of the deviations.
    return Cleared(values, min(1.4826 * statistics.median(off), MOST_NOISE))
