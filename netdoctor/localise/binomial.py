"""How sure a share of lost packets is."""

import math


def log_tail(lost: int, sent: int, share: float) -> float:
    """Logarithm of the probability of at least `lost` of `sent` when each is lost with probability
    `share`."""
    if lost <= 0 or share >= 1.0:
        return 0.0
    if share <= 0.0 or lost > sent:
        return -math.inf
    if lost <= share * sent:
        return 0.0  # what was to be expected, or less: no evidence of anything
    term = math.lgamma(sent + 1) - math.lgamma(lost + 1) - math.lgamma(sent - lost + 1)
    term += lost * math.log(share) + (sent - lost) * math.log1p(-share)
    # Above the mean each term is a falling share of the one before.
    total, factor, k = 1.0, 1.0, lost
    while k < sent and factor > 1e-12:
        factor *= (sent - k) / (k + 1) * share / (1.0 - share)
        total += factor
        k += 1
    return min(term + math.log(total), 0.0)


def at_least(lost: int, sent: int, doubt: float = 0.01) -> float:
    """The share that the true one exceeds, in all but `doubt` of cases (Clopper and Pearson, one-sided)."""
    if lost <= 0:
        return 0.0
    low, high = 0.0, lost / sent
    for _ in range(40):
        middle = (low + high) / 2
        if log_tail(lost, sent, middle) < math.log(doubt):
            low = middle
        else:
            high = middle
    return low
