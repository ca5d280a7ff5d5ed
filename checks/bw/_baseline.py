"""Rates against those of an earlier report: what fell, although nothing else here is any faster."""

from collections.abc import Iterator, Mapping
from statistics import median

from netdoctor.checks._shared.text import listing, title_text
from netdoctor.checks.bw._slow import STOPS_BELOW, Words
from netdoctor.facts.bandwidth import Baseline
from netdoctor.facts.localisation import Decision
from netdoctor.localise import earlier
from netdoctor.model import BASELINE, CLUSTER, LIKELY, Cause, Evidence, Finding, pair, seen

# The middle of many pairs, or of an all-reduce of nccl, hardly moves: NVIDIA/nccl-tests gates at 0.9 too.
LEAST_SHARE = 0.9

SOME = Cause("slower-than-baseline", "{nodes} {is} slower than in the baseline", LIKELY)
ALL = SOME.but(title="Pairs all over the cluster are slower than in the baseline")

Pair = tuple[str, str]


def compared(baseline: Baseline | None, words: Words) -> str:
    """What the summary says of the comparison; nothing without a baseline."""
    if baseline is None:
        return ""
    now = earlier.best(words.rates)
    both = [p for p in now if p in words.baseline]
    if not both:
        return f"; {when(baseline)} has none of these pairs and is not compared"
    known = sum(1 for p in both if now[p] is not None)
    text = f"; {known} of {len(now)} directed pairs compared with {when(baseline)}"
    return text + (f", {len(both) - known} limited by CPU" if known < len(both) else "")


def fallen(decision: Decision, baseline: Baseline | None, words: Words) -> Iterator[Finding]:
    """Pairs that were faster in the baseline and that the localiser blames nobody for."""
    known = earlier.best(words.rates)
    free = {p: rate for p, rate in known.items() if not any(c.holds_back(*p) for c in decision.suspects)}
    now = {p: rate for p, rate in free.items() if rate is not None and p in words.baseline}
    shares = {p: rate / words.baseline[p] for p, rate in now.items()}
    if baseline is None or not shares:
        return
    # One node of four has a part in half of all ways, so the middle alone would not tell it from everybody.
    upper = sorted(shares.values(), reverse=True)[len(shares) // 4]
    if upper < LEAST_SHARE and 2 * len(shares) >= len(free) > 2:
        yield _all(shares, now, baseline, words)
        return
    low = earlier.lower(now, words.baseline)
    suspects = _suspects(low, shares)
    cause = SOME.but(verify=(words.check,))
    for (src, dst), share in low.items():
        say = cause.fail if share < STOPS_BELOW else cause.warn
        rate, then = words.rate(now[src, dst]), words.rate(words.baseline[src, dst])
        yield say(
            f"{words.what}: {title_text(src)} -> {title_text(dst)} at {rate}, "
            f"{100 * share:.0f} % of the baseline",
            at=next((c for c in suspects if c in (src, dst)), pair(src, dst)),
            culprits=suspects,
            observed=rate,
            expected=BASELINE(f"{then}, {when(baseline)}"),
            seen=_evidence({(src, dst): share}, words, baseline),
            pairs=(pair(src, dst),),
        )


def _all(
    shares: Mapping[Pair, float], now: Mapping[Pair, float], baseline: Baseline, words: Words
) -> Finding:
    middle = median(shares.values())
    before, after = median(words.baseline[p] for p in shares), median(now[p] for p in shares)
    cause = ALL.but(verify=(words.check,))
    say = cause.fail if middle < STOPS_BELOW else cause.warn
    return say(
        f"{words.what}: the median of {len(shares)} directed pairs is {100 * middle:.0f} % of the baseline",
        at=CLUSTER,
        observed=f"median {words.rate(after)}",
        expected=BASELINE(f"median {words.rate(before)}, {when(baseline)}"),
        seen=_evidence(shares, words, baseline),
        pairs=tuple(pair(*ends) for ends, share in shares.items() if share < LEAST_SHARE),
    )


def _suspects(low: Mapping[Pair, float], shares: Mapping[Pair, float]) -> tuple[str, ...]:
    """Nodes whose every pair fell, with two partners or more; else the pairs."""
    nodes: list[str] = []
    for node in dict.fromkeys(n for p in low for n in p):
        tried = [p for p in shares if node in p]
        if all(p in low for p in tried) and len({n for p in tried for n in p}) > 2:
            nodes.append(node)
    rest = [pair(src, dst) for src, dst in low if src not in nodes and dst not in nodes]
    return (*nodes, *rest)


def when(baseline: Baseline) -> str:
    """Which report that was: ``good.json of 2026-11-19``."""
    return f"{title_text(baseline.source)} of {title_text(baseline.finished[:10])}"


def _evidence(shares: Mapping[Pair, float], words: Words, baseline: Baseline) -> Evidence:
    worst = sorted(shares, key=lambda p: shares[p])[:8]
    each = (f"{a} -> {b}: {100 * shares[a, b]:.0f} %" for a, b in worst)
    return seen(f"{words.what} against {when(baseline)}", listing(each, 8), at=worst[0][0])
