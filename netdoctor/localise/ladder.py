"""Two nodes, four, all: the same training on more and more of them, and who it is where it gets slower.

Pure: who measures is handed in, and a recorded climb is judged by climbing it again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from netdoctor.compat import StrEnum
from netdoctor.facts.bandwidth import LadderRun

# What guides for launching call ideal, of the rung below.
GOOD = 0.9
# One step may have the machine for itself. A median below this part of it is taken for no noise (ours): full
# fabrics of the lab that the fastest step hid had medians of 0.3 to 0.4 of what two nodes have.
STEADY = 0.6


class Blame(StrEnum):
    """What gets slower: nothing, nodes, what lies between nodes, what all share; or it was not found out."""

    NOTHING = "nothing"
    NODE = "node"
    PATH = "path"
    SHARED = "shared"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """The rungs, with two nodes at first, and the runs that looked for the culprit.

    from_nodes: the size from which it is slow, 0 where it is not. nodes: those at fault, or those of the
    path; several nodes of a path are not told apart further.
    """

    rungs: tuple[LadderRun, ...] = ()
    searched: tuple[LadderRun, ...] = ()
    blame: Blame = Blame.NOTHING
    from_nodes: int = 0
    nodes: tuple[str, ...] = ()


# Measures the work on some nodes; None where the time is over.
Measure = Callable[[tuple[str, ...]], LadderRun | None]


def sizes(count: int) -> list[int]:
    """2, 4, 8 and so on, and all; none for less than two."""
    found = []
    size = 2
    while size < count:
        found.append(size)
        size *= 2
    return [*found, count] if count > 1 else []


def rate(run: LadderRun) -> float:
    """What a run is compared by, in GB/s: its fastest step, unless most steps are far slower."""
    return min(run.best_gbyte_s, run.gbyte_s / STEADY)


class _OutOfTime(Exception):
    """A run that the search needs was not measured."""


def climb(nodes: Sequence[str], measure: Measure) -> Climb:
    """Climb until all nodes work together or a rung is slow; then look for what it is.

    A run that is slow is measured twice, and the better one counts.
    """
    return _Climber(tuple(nodes), measure).climb()


@dataclass(slots=True)
class _Climber:
    nodes: tuple[str, ...]
    measure: Measure
    rungs: list[LadderRun] = field(default_factory=list)
    searched: list[LadderRun] = field(default_factory=list)

    def climb(self) -> Climb:
        size = 0
        try:
            for size in sizes(len(self.nodes)):
                found = self._two() if size == 2 else self._next(size)
                if found is not None:
                    return found
        except _OutOfTime:
            return self._end(Blame.OPEN, size)
        return self._end(Blame.NOTHING, 0)

    def _end(self, blame: Blame, size: int, nodes: tuple[str, ...] = ()) -> Climb:
        return Climb(
            rungs=tuple(self.rungs), searched=tuple(self.searched), blame=blame, from_nodes=size, nodes=nodes
        )

    def _run(self, nodes: tuple[str, ...], runs: list[LadderRun]) -> LadderRun:
        run = self.measure(nodes)
        if run is None:
            raise _OutOfTime
        runs.append(run)
        return run

    def _is_slow(self, nodes: tuple[str, ...], reference: float) -> bool:
        """Whether some nodes are slower than they should be, each time."""
        return all(rate(self._run(nodes, self.searched)) < GOOD * reference for _ in range(2))

    def _two(self) -> Climb | None:
        """The first rung has none below: another pair stands for it."""
        first = self._run(self.nodes[:2], self.rungs)
        others = self.nodes[2:4] if len(self.nodes) > 3 else (self.nodes[0], *self.nodes[2:3])
        if len(self.nodes) < 3:
            return None
        second = self._run(others, self.searched)
        slow, good = sorted((first, second), key=rate)
        if rate(slow) >= GOOD * rate(good):
            return None
        reference = rate(good)
        if not self._is_slow(slow.nodes, reference):
            return None
        helper = next(node for node in good.nodes if node not in slow.nodes)
        bad = tuple(
            node
            for node in slow.nodes
            # Of three nodes the good pair has said so already.
            if node not in good.nodes and self._is_slow((node, helper), reference)
        )
        return self._end(Blame.NODE, 2, bad) if bad else self._end(Blame.PATH, 2, slow.nodes)

    def _next(self, size: int) -> Climb | None:
        below = self.rungs[-1]
        rung = self._run(self.nodes[:size], self.rungs)
        if rate(rung) >= GOOD * rate(below):
            return None
        again = self._run(self.nodes[:size], self.searched)
        if rate(again) >= GOOD * rate(below):
            self.rungs[-1] = again
            return None
        return self._find(size)

    def _find(self, size: int) -> Climb:
        """Who makes the last rung slow: one of its new nodes, a way among them, or none by itself."""
        reference = rate(self.rungs[0])
        good, other = self.nodes[:2]
        new = self.nodes[len(self.rungs[-2].nodes) : size]
        suspects = new
        while suspects:
            half = suspects[: (len(suspects) + 1) // 2]
            if not self._is_slow((good, *half), reference):
                suspects = suspects[len(half) :]
            elif len(half) > 1:
                suspects = half
            elif self._is_slow((other, *half), reference):
                return self._end(Blame.NODE, size, half)
            else:
                return self._end(Blame.PATH, size, (good, *half))
        if len(new) > 1 and self._is_slow(new, reference):
            return self._end(Blame.PATH, size, new)
        return self._end(Blame.SHARED, size)
