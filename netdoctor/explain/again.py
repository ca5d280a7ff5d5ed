"""Whether an error that program and board can both make came again, and where. Pure.

What stays with a node whatever rank runs there is its board's, what comes on other nodes the program's; the
same rank on the same node again may be either.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from netdoctor.explain.knowledge import Role
from netdoctor.explain.lines import Moment, moment
from netdoctor.explain.model import Hit
from netdoctor.explain.quoting import sanitized
from netdoctor.text import listing, ranges

BOARD, PROGRAM = "gpu_hardware_fault", "program_failed"
# Seconds between two failures of one run at most: who waits for a failed rank ends with torch's timeout for
# NCCL, 10 minutes (pytorch ProcessGroupNCCL.hpp). A restart within counts as the same run: less is claimed.
RUNS_GAP = 660.0
# Lines from an exception to the launcher's report of it.
BELOW = 60
# Percent, as of a pattern's `supports` and `against`: enough to be likely, never to be certain.
SUPPORTS, AGAINST = 60, 60
NAMED_MAX = 4


@dataclass(frozen=True, slots=True)
class Again:
    """Where it came. favours: BOARD, PROGRAM, or "" where that does not tell."""

    favours: str
    sentence: str


def again(hits: Sequence[Hit], host_of: Callable[[Hit], str]) -> Again | None:
    """None where it came once, or nothing says on which node or when."""
    runs = _runs(hits, host_of)
    hosts = list(dict.fromkeys(host for run in runs for host, _ in run))
    if len(hosts) > 1:
        if len(runs) > 1 and any(all(host in dict(run) for run in runs) for host in hosts):
            return None  # one node each time, and others: either
        more = [f"{len(hosts) - NAMED_MAX} more"] * (len(hosts) > NAMED_MAX)
        on = listing([*(sanitized(host, 80) for host in hosts[:NAMED_MAX]), *more])
        return Again(PROGRAM, f"The same kind of GPU error on {on}: the program's, not one board's.")
    if len(runs) < 2:
        return None
    of_runs = [{rank for _, rank in run} for run in runs]
    where = f"A GPU error in {len(runs)} runs, each time on {sanitized(hosts[0], 80)}"
    if always := sorted(set.intersection(*of_runs)):
        name = f"rank{'s' * (len(always) > 1)} {listing(ranges(always))}"
        return Again("", f"{where} as {name}: run without this node; if it comes again, it is the program's.")
    ranks = listing(ranges(sorted(set.union(*of_runs))))
    return Again(BOARD, f"{where}, as ranks {ranks}: it stays with the node, so it is a board's.")


def _runs(hits: Sequence[Hit], host_of: Callable[[Hit], str]) -> list[list[tuple[str, int]]]:
    """(host, rank) of each failure, by run; none where their times cannot be compared."""
    stamps: dict[str, list[tuple[int, Moment]]] = {}
    for hit in sorted(hits, key=lambda hit: hit.number):
        if when := moment(hit.text):
            stamps.setdefault(hit.file, []).append((hit.number, when))
    failures = [
        (_when(hit, stamps.get(hit.file, ())), host, hit.speaker.rank)
        for hit in hits
        if _is_either(hit) and hit.speaker.rank is not None and (host := host_of(hit))
    ]
    if len({when and when.kind for when, _, _ in failures}) > 1:
        return []
    runs: list[list[tuple[str, int]]] = []
    last = -math.inf
    for when, host, rank in sorted(failures, key=lambda one: one[0].seconds if one[0] else 0.0):
        seconds = when.seconds if when else 0.0
        if seconds - last > RUNS_GAP:
            runs.append([])
        runs[-1].append((host, rank))
        last = seconds
    return runs


def _when(hit: Hit, stamps: Sequence[tuple[int, Moment]]) -> Moment | None:
    """When a line was written. A traceback has no time: the launcher's report below it has, and what stands
    above may be of the run before."""
    at = bisect_left(stamps, hit.number, key=lambda stamp: stamp[0])
    if at < len(stamps) and stamps[at][0] - hit.number <= BELOW:
        return stamps[at][1]
    return hit.when


def _is_either(hit: Hit) -> bool:
    """Whether both can make it, and the program as easily."""
    admits = hit.pattern.admits
    direct = hit.pattern.role in (Role.SYMPTOM, Role.CAUSE)
    return direct and set(admits) == {BOARD, PROGRAM} and admits[PROGRAM] >= admits[BOARD]
