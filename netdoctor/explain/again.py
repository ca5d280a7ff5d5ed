"""Whether an error that program and board can both make came again, and where. Pure.

What stays with a node whatever rank runs there is its board's; what goes to other nodes is the program's; the
same rank on the same node again is neither's yet (NVIDIA's GPU debug guidelines: exchange the GPU and see).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from netdoctor.explain.knowledge import Role
from netdoctor.explain.lines import moment
from netdoctor.explain.model import Hit
from netdoctor.explain.quoting import sanitized
from netdoctor.text import listing, ranges

BOARD, PROGRAM = "gpu_hardware_fault", "program_failed"
# Seconds between two lines of one failure; what comes later is of another run.
RUNS_GAP = 120.0
# Lines from an exception to the launcher's report of it.
BELOW = 60
# Percent, as of a pattern's `supports` and `against`.
SUPPORTS, AGAINST = 60, 60
NAMED_MAX = 4


@dataclass(frozen=True, slots=True)
class Again:
    """Where it came. favours: BOARD, PROGRAM, or "" where that does not tell."""

    favours: str
    sentence: str


def again(hits: Sequence[Hit], host_of: Callable[[Hit], str]) -> Again | None:
    """None where it came once, or nothing says on which node."""
    runs = list(_runs(hits, host_of))
    hosts = list(dict.fromkeys(host for run in runs for host, _ in run))
    if len(hosts) > 1:
        if len(runs) > 1 and any(all(host in dict(run) for run in runs) for host in hosts):
            return None  # one node each time, and others: either
        more = [f"{len(hosts) - NAMED_MAX} more"] * (len(hosts) > NAMED_MAX)
        on = listing([*(sanitized(host, 80) for host in hosts[:NAMED_MAX]), *more])
        return Again(PROGRAM, f"The same kind of GPU error on {on}: the program's, not one board's.")
    if len(runs) < 2:
        return None
    ranks = sorted({rank for run in runs for _, rank in run if rank is not None})
    where = f"A GPU error in {len(runs)} runs, each time on {sanitized(hosts[0], 80)}"
    if len(ranks) > 1:
        sentence = f"{where}, as ranks {listing(ranges(ranks))}: it stays with the node, so it is a board's."
        return Again(BOARD, sentence)
    as_rank = f" as rank {ranks[0]}" if ranks else ""
    return Again("", f"{where}{as_rank}: run without this node; if it comes again, it is the program's.")


def _runs(hits: Sequence[Hit], host_of: Callable[[Hit], str]) -> Iterable[list[tuple[str, int | None]]]:
    """(host, rank) of each failure, by run."""
    stamps: dict[str, list[tuple[int, float]]] = {}
    for hit in sorted(hits, key=lambda hit: hit.number):
        if when := moment(hit.text):
            stamps.setdefault(hit.file, []).append((hit.number, when.seconds))
    failures = [
        (_seconds(hit, stamps.get(hit.file, ())), host, hit.speaker.rank)
        for hit in hits
        if _is_either(hit) and (host := host_of(hit))
    ]
    run: list[tuple[str, int | None]] = []
    last: float | None = None
    for seconds, host, rank in sorted(failures, key=lambda one: one[0] or 0.0):
        if run and seconds is not None and last is not None and seconds - last > RUNS_GAP:
            yield run
            run = []
        run.append((host, rank))
        last = last if seconds is None else seconds
    if run:
        yield run


def _seconds(hit: Hit, stamps: Sequence[tuple[int, float]]) -> float | None:
    """When a line was written. A traceback has no time: the launcher's report below it has, and what stands
    above may be of the run before."""
    at = bisect_left(stamps, (hit.number, 0.0))
    if at < len(stamps) and stamps[at][0] - hit.number <= BELOW:
        return stamps[at][1]
    return hit.when.seconds if hit.when else None


def _is_either(hit: Hit) -> bool:
    direct = hit.pattern.role in (Role.SYMPTOM, Role.CAUSE)
    return direct and set(hit.pattern.admits) == {BOARD, PROGRAM}
