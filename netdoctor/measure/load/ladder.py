"""A small data-parallel training on two nodes, four, all, over ranks that are joined."""

import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from netdoctor.facts.bandwidth import Ladder, LadderRun, Session
from netdoctor.localise.ladder import climb, sizes
from netdoctor.measure.common import read_as
from netdoctor.measure.ranks import RANK_S, Failed, Ranks

MIB = 1024**2
# Gradients as DDP sends them, in buckets of 25 MiB: at least, and at most by backend.
LEAST_BYTES = MIB
MOST_BYTES = {"gloo": 256 * MIB, "nccl": 1024 * MIB}
# A run at least, and at most; a search may need so many beside the rungs, and groups, the first weights and
# first steps as long again and more. A step is to take a tenth of a run.
LEAST_S, MOST_S, SEARCH, MORE, STEPS = 0.5, 5.0, 10, 3, 10


class Row(msgspec.Struct):
    """What a rank reports of a run: seconds of its steps on the slowest rank; of one that sends nothing."""

    steps: list[float] = []
    alone_s: float = 0.0


def ladder(ranks: Ranks, session: Session, budget_s: float) -> Ladder:
    """Climb, in about `budget_s`; ranks of a node take part together. It ends where a rank fails."""
    found = Ladder(session=session, budget_s=budget_s)
    if len(ranks.nodes) < 2:
        return found
    each_s = min(max(budget_s / (MORE * (len(sizes(len(ranks.nodes))) + SEARCH)), LEAST_S), MOST_S)
    end = time.monotonic() + budget_s
    runs: list[LadderRun] = []
    took_s = each_s  # the longest run so far, with its groups and first steps

    def run(nodes: Sequence[str], gradient_bytes: int) -> tuple[LadderRun, float] | None:
        world = sum(len(ranks.on_node(node)) for node in nodes)
        answers = ranks.step(
            "train",
            2 * each_s + 60.0 + len(ranks.ranks) * RANK_S,
            runs=[[ranks.on_node(node)[0].number, len(ranks.on_node(node))] for node in nodes],
            bytes=gradient_bytes,
            seconds=each_s,
        )
        first = ranks.on_node(nodes[0])[0]
        row = read_as(answers[first.number], Row)
        times = sorted(one for one in row.steps[:1000] if 0 < one < 1e6) if row is not None else []
        if row is None or not times:
            found.unread.setdefault(first.node, f"rank {first.number} gives figures that cannot be")
            return None
        median, amount = times[len(times) // 2], 2 * (world - 1) / world * gradient_bytes / 1e9
        one = LadderRun(
            nodes=tuple(nodes),
            step_s=median,
            least_s=times[0],
            gbyte_s=amount / median,
            best_gbyte_s=amount / times[0],
            steps=len(times),
        )
        return one, row.alone_s

    def measure(nodes: tuple[str, ...]) -> LadderRun | None:
        nonlocal took_s
        began = time.monotonic()
        if began + took_s > end:
            return None
        answer = run(nodes, gradient_bytes)
        took_s = max(took_s, time.monotonic() - began)
        if answer is None:
            return None
        runs.append(answer[0])
        return answer[0]

    gradient_bytes, alone_s = LEAST_BYTES, 0.0
    try:
        probe = run(ranks.nodes[:2], LEAST_BYTES)
        if probe is not None:
            bytes_of_a_tenth = LEAST_BYTES * each_s / STEPS / probe[0].step_s
            gradient_bytes = int(min(max(bytes_of_a_tenth, LEAST_BYTES), MOST_BYTES[ranks.backend]))
            alone_s = probe[1]
            climb(ranks.nodes, measure)
    except Failed as failed:
        found = replace(found, session=replace(session, trouble=failed.troubles))
    return replace(found, gradient_bytes=gradient_bytes, alone_s=alone_s, runs=tuple(runs))


def wait_s(budget_s: float, world: int) -> float:
    """How long the last run may be waited for, beyond the budget."""
    return 2 * min(budget_s, MOST_S) + 60.0 + world * RANK_S
