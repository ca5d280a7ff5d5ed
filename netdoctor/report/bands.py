"""How far a measured value may be from an earlier one before it has moved. Pure.

One earlier run says nothing of how much a value scatters, so a default stands in for that (`DEFAULTS`).
Several runs of a baseline show it: then the band is a prediction interval for one more run.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

from netdoctor.report.model import Report

Key = tuple[str, str]
"""Name and target of a measure; check and ``a -> b`` of a pair."""

RATES = ("GB/s", "MB/s", "Gbit/s", "Mbit/s")
# (share of the earlier value, least width in the unit) by unit, for a single earlier run. Rates: one pair
# scatters by some 5 % in either report, and three times that is what the checks of bandwidth allow as well.
# Loss: the bound of net.loss. Times: what a loaded machine adds. What is counted, such as bytes and ranks,
# does not scatter.
DEFAULTS = {
    **dict.fromkeys(RATES, (0.2, 0.0)),
    "%": (0.0, 0.5),
    "ms": (0.5, 1.0),
    "us": (0.5, 100.0),
    "s": (0.5, 0.01),
}
# Of all values of a measure together, how often one that has not moved may be told as moved.
FALSE_ALARM = 0.01
# However well runs agree: what they saw is a moment each, and not a month.
LEAST_SHARE = 0.03
# And however they scatter: a rate of which a fifth is left has moved.
MOST_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Value:
    """One measured value. error: its own bound, in its unit."""

    value: float
    unit: str
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Band:
    """Where a value may be: ``middle`` plus or minus ``half``. runs: how many it was learnt from."""

    middle: float
    half: float
    runs: int = 1


def values(report: Report) -> dict[Key, Value]:
    """Every finite measure and rated pair of a report."""
    found = {(m.name, m.target): Value(m.value, m.unit, m.error or 0.0) for m in report.measures}
    for pair in report.pairs:
        if pair.value is not None:
            found[pair.check, f"{pair.from_} -> {pair.to}"] = Value(pair.value, pair.unit or "")
    return {key: one for key, one in found.items() if math.isfinite(one.value)}


def default(was: Value) -> float:
    """Half the band around the value of a single run."""
    share, least = DEFAULTS.get(was.unit, (0.0, 0.0))
    return max(share * abs(was.value), least, was.error)


def learn(runs: Sequence[Report]) -> dict[Key, Band]:
    """The band of each value that at least two of these runs measured.

    The middle is the median. Half the band is ``t * s * sqrt(1 + 1/n)``, the prediction interval for one more
    value of a normal distribution (ISO 16269-8). s is the standard deviation, pooled over all targets of a
    measure, of residuals as shares of the mean where the unit is a rate and absolute elsewhere. t is the
    quantile of Student's distribution for FALSE_ALARM, divided by the number of targets (Bonferroni). Pooling
    makes two or three runs of many pairs enough. A target that scatters more than the others keeps at least
    the range it has shown, no band is narrower than the values' own bounds, and that of a rate is at least
    LEAST_SHARE and at most MOST_SHARE of it.
    """
    by_key: dict[Key, list[Value]] = {}
    for run in runs:
        for key, one in values(run).items():
            by_key.setdefault(key, []).append(one)
    by_name: dict[str, dict[Key, list[Value]]] = {}
    for key, measured_values in by_key.items():
        if len(measured_values) > 1 and len({one.unit for one in measured_values}) == 1:
            by_name.setdefault(key[0], {})[key] = measured_values
    return {key: band for of_measure in by_name.values() for key, band in _pooled(of_measure).items()}


def _pooled(targets: Mapping[Key, Sequence[Value]]) -> dict[Key, Band]:
    """The bands of the targets of one measure."""
    squares, free = 0.0, 0
    for runs in targets.values():
        mean = sum(one.value for one in runs) / len(runs)
        scale = abs(mean) if runs[0].unit in RATES else 1.0
        squares += sum(((one.value - mean) / scale) ** 2 for one in runs) if scale else 0.0
        free += len(runs) - 1
    spread = math.sqrt(squares / free)
    times = student(1 - FALSE_ALARM / len(targets) / 2, free)
    bands = {}
    for key, runs in targets.items():
        middle = median(one.value for one in runs)
        scale = abs(middle) if runs[0].unit in RATES else 1.0
        farthest = max(abs(one.value - middle) for one in runs)
        least, most = 0.0, math.inf
        if runs[0].unit in RATES:
            least, most = LEAST_SHARE * abs(middle), MOST_SHARE * abs(middle)
        error = max(one.error for one in runs)
        half = times * spread * math.sqrt(1 + 1 / len(runs)) * scale
        bands[key] = Band(middle, min(max(half, farthest, least, error), most), len(runs))
    return bands


def student(share: float, free: int) -> float:
    """The quantile of Student's distribution with `free` degrees of freedom.

    Exact for one and two; from three on Abramowitz and Stegun 26.7.5, within 3 % for the shares that occur
    here, as each target brings a degree of freedom.
    """
    if free == 1:
        return math.tan(math.pi * (share - 0.5))
    if free == 2:
        return (2 * share - 1) * math.sqrt(2 / (4 * share * (1 - share)))
    z: float = NormalDist().inv_cdf(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / free**power for power, term in enumerate(terms, 1))


def noise(found: Iterable[Band], unit: str) -> str:
    """The middle of some bands, for people: as a share of the values of a rate, else in their unit."""
    if unit in RATES:
        return f"{median(band.half / abs(band.middle) for band in found if band.middle):.0%}"
    return f"{median(band.half for band in found):.2g} {unit}"
