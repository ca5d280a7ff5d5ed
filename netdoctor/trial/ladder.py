"""One node, two, four, all: the same work on more and more of them, and who is to blame where it gets slower.

Pure: who runs a trial on some nodes is handed in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from netdoctor.trial.judging import State

# What guides for launching call ideal, of the rung below.
GOOD = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """The work on some nodes. rate: steps a second of its slowest rank, None where it made none."""

    nodes: tuple[str, ...]
    state: State
    rate: float | None = None
    ranks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The rungs, and the runs that looked for the culprit. why: in a sentence; nodes: those at fault.

    from_nodes: the rung from which it is slow or broken, None where all is well.
    """

    rungs: tuple[Rung, ...]
    searched: tuple[Rung, ...] = ()
    from_nodes: int | None = None
    nodes: tuple[str, ...] = ()
    why: str = ""


Measure = Callable[[Sequence[str]], Rung]


def sizes(count: int) -> list[int]:
    """1, 2, 4 and so on, and all."""
    found = []
    size = 1
    while size < count:
        found.append(size)
        size *= 2
    return [*found, count]


def climb(nodes: Sequence[str], measure: Measure) -> Ladder:
    """Climb until all nodes work together, or a rung breaks; then look for the node that it is.

    A rung that is slow is measured twice, and the better run counts.
    """
    rungs: list[Rung] = []
    for size in sizes(len(nodes)):
        below = rungs[-1] if rungs else None
        rung = _measure(nodes[:size], measure, below)
        rungs.append(rung)
        if rung.state is State.INTERRUPTED:
            return Ladder(rungs=tuple(rungs), from_nodes=size, why="interrupted")
        if not _holds(rung, below):
            return _find_culprit(tuple(rungs), nodes, measure)
    return Ladder(rungs=tuple(rungs))


def _measure(nodes: Sequence[str], measure: Measure, below: Rung | None) -> Rung:
    first = measure(nodes)
    if first.state is not State.STARTED or _holds(first, below):
        return first
    again = measure(nodes)
    return max(first, again, key=lambda rung: (rung.state is State.STARTED, rung.rate or 0.0))


def _holds(rung: Rung, below: Rung | None) -> bool:
    """Whether a rung started, and is not much slower than the one below."""
    if rung.state is not State.STARTED:
        return False
    return below is None or not below.rate or (rung.rate or 0.0) >= GOOD * below.rate


def _find_culprit(rungs: tuple[Rung, ...], nodes: Sequence[str], measure: Measure) -> Ladder:
    """Who breaks the last rung: one of its new nodes, or none by itself."""
    below, broken = (rungs[-2] if len(rungs) > 1 else None), rungs[-1]
    size = len(broken.nodes)
    what = "is slow" if broken.state is State.STARTED else "does not start"
    if below is None:
        return Ladder(
            rungs=rungs, from_nodes=size, nodes=broken.nodes, why=f"{broken.nodes[0]} {what} by itself"
        )
    if len(below.nodes) == 1:
        return _which_of_two(rungs, nodes, measure, what)
    searched: list[Rung] = []
    good = below.nodes[0]
    suspects = list(broken.nodes[len(below.nodes) :])
    reference = rungs[1]  # two nodes, and so over the network
    while suspects:
        half = suspects[: max(1, len(suspects) // 2)]
        rung = measure([good, *half])
        searched.append(rung)
        if rung.state is State.INTERRUPTED:
            break
        if not _holds(rung, reference):
            if len(half) == 1:
                return Ladder(
                    rungs=rungs,
                    searched=tuple(searched),
                    from_nodes=size,
                    nodes=(half[0],),
                    why=f"{half[0]} {what} together with {good}",
                )
            suspects = half
        else:
            suspects = suspects[len(half) :]
    together = f"{size} nodes together {'are slow' if what == 'is slow' else 'do not start'}"
    why = f"{together}, and none of the new ones is so with {good} alone: what they share, as the fabric"
    return Ladder(rungs=rungs, searched=tuple(searched), from_nodes=size, why=why)


def _which_of_two(rungs: tuple[Rung, ...], nodes: Sequence[str], measure: Measure, what: str) -> Ladder:
    """Which of the first two nodes it is: a third one decides."""
    first, second = rungs[-1].nodes
    if len(nodes) < 3:
        why = f"together with {second} {first} {what}: one of the two, or what is between them"
        return Ladder(rungs=rungs, from_nodes=2, nodes=(first, second), why=why)
    rung = measure([first, nodes[2]])
    holds = _holds(rung, rungs[0])
    bad, other = (second, first) if holds else (first, second)
    also = "does well" if holds else "as well"
    why = f"{bad} {what} together with {other}, and {first} with {nodes[2]} {also}"
    return Ladder(rungs=rungs, searched=(rung,), from_nodes=2, nodes=(bad,), why=why)
