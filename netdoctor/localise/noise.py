"""What is healthy and how much it wavers, read from rates where faults do not reach. Rates are logarithms."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from statistics import median

# Two per cent: repeated transfers over an idle fabric scatter by about as much (nccl-tests, default 20
# iterations).
LEAST_NOISE = 0.02
# What to assume while there are few samples: gloo pairs in the lab scatter by 5 % on shaped links. FEW: the
# weight of that assumption, in samples.
USUAL_NOISE = 0.05
FEW = 4.0
# Nodes that differ by more than this when all is well are not taken for healthy (standard deviation).
MOST_SPREAD = 0.1


def mode(ys: Sequence[float], start: float) -> float:
    """The middle of the crowd around `start`, one of them: the median of what is near, until it stays."""
    width = 0.25
    centre = start
    for _ in range(8):
        for _ in range(20):
            low, high = bisect_left(ys, centre - width), bisect_right(ys, centre + width)
            moved = (ys[(low + high - 1) // 2] + ys[(low + high) // 2]) / 2.0
            if abs(moved - centre) < 1e-4:
                break
            centre = moved
        near = 3.0 * scale([y - centre for y in ys[bisect_right(ys, centre) :]])
        if near <= width:
            break
        width = near
    return centre


def scale(above: Sequence[float]) -> float:
    """Standard deviation from the deviations on the side that faults leave alone.

    1.4826 times the median absolute deviation, then the root mean square with outliers cut at three of those:
    the median alone is half as precise, which matters for a dozen samples. Few samples are drawn to
    USUAL_NOISE.
    """
    if not above:
        return 0.0
    cut = 3.0 * 1.4826 * median(above)
    total = math.fsum(min(x, cut) ** 2 for x in above)
    return math.sqrt((total + FEW * USUAL_NOISE**2) / (len(above) + FEW))


def edge(ys: Sequence[float]) -> float:
    """The lowest rate above the widest gap, with at least a quarter of the samples above it."""
    ends = range(1, len(ys) - max(len(ys) // 4, 1) + 1)
    return ys[max(ends, key=lambda i: ys[i] - ys[i - 1])] if len(ys) > 1 else ys[0]


def spread(by_node: Iterable[Sequence[float]], noise: float) -> float:
    """How much healthy nodes differ from each other beyond noise. by_node: see Data.by_node.

    From the medians of the nodes' samples, and only those above the middle: faults pull the others down.
    """
    by_size = [sorted(ds) for ds in by_node if ds]
    if not by_size:
        return 0.0
    middles = sorted(ds[len(ds) // 2] for ds in by_size)
    centre = middles[len(middles) // 2]
    deviation = scale([m - centre for m in middles if m > centre])
    count = median(len(ds) for ds in by_size)
    # The variance of the median of n normal samples is pi / 2n of theirs.
    beyond = math.sqrt(max(deviation**2 - math.pi / 2.0 * noise**2 / count, 0.0))
    # A pair shows the slower of two, so that medians of nodes lie closer together than nodes do: simulated,
    # by 0.6.
    return min(beyond / 0.6, MOST_SPREAD)
