"""Rates beside those of an earlier report: each pair's best round, and which pairs fell."""

from collections.abc import Iterable, Mapping, Sequence

from netdoctor.facts.bandwidth import BaselineRate, PairRate, TcpRate
from netdoctor.localise.rates import BUSY

# One pair scatters by some 5 % (localise/noise.py) in either report: three times that, for both, is 21 %.
LEAST_SHARE_OF_A_PAIR = 0.8

Pair = tuple[str, str]


def table(rates: Iterable[BaselineRate]) -> dict[Pair, float]:
    """GB/s by sender and receiver."""
    return {(r.src, r.dst): r.gbyte_s for r in rates if r.gbyte_s > 0}


def best(rates: Iterable[TcpRate | PairRate]) -> dict[Pair, float | None]:
    """GB/s of each pair's best round, by its slowest rail; None where a machine's CPU set it."""
    rounds: dict[tuple[Pair, int], tuple[float, float]] = {}
    for r in rates:
        if r.gbyte_s is not None:
            key = ((r.src, r.dst), r.round)
            rounds[key] = min(rounds.get(key, (r.gbyte_s, r.busy)), (r.gbyte_s, r.busy))
    found: dict[Pair, tuple[float, float]] = {}
    for (ends, _), rate in rounds.items():
        found[ends] = max(found.get(ends, rate), rate)
    return {ends: rate if busy < BUSY else None for ends, (rate, busy) in found.items()}


def lower(now: Mapping[Pair, float | None], then: Mapping[Pair, float]) -> dict[Pair, float]:
    """The share of its earlier rate that each pair reaches which lost more than such rates scatter."""
    shares = {pair: rate / then[pair] for pair, rate in now.items() if rate is not None and pair in then}
    return {pair: share for pair, share in shares.items() if share < LEAST_SHARE_OF_A_PAIR}


def doubtful(rates: Sequence[TcpRate | PairRate], then: Iterable[BaselineRate]) -> list[Pair]:
    """Pairs that fell, the worst first: one moment says nothing, so they are to be measured once more."""
    low = lower(best(rates), table(then))
    return sorted(low, key=lambda pair: low[pair])
