"""The groups that a job makes of its ranks: all of a kind work at once, as in the job."""

import time
from dataclasses import replace

from netdoctor.facts.bandwidth import GroupRate, Groups, Session
from netdoctor.localise.groups import Division, behind, layout, parse
from netdoctor.measure.common import read_as
from netdoctor.measure.load.collectives import Answer, rows_of
from netdoctor.measure.ranks import RANK_S, Failed, Ranks

MIB = 1024**2
# What a job mostly does in these groups: activations, gradients, tokens to experts, neighbours in a ring.
OPERATIONS = {
    "tp": "all-reduce",
    "cp": "send-recv",
    "dp": "all-reduce",
    "ep": "all-to-all",
    "pp": "send-recv",
}
LEAST_BYTES = MIB
MOST_BYTES = {"gloo": 64 * MIB, "nccl": 1024 * MIB}
# One measurement. It takes MORE times as long with its warm-up, and a kind may be measured twice.
LEAST_S, MOST_S, MORE = 0.5, 5.0, 2


def groups(ranks: Ranks, session: Session, text: str, most_bytes: int, budget_s: float) -> Groups:
    """Every kind of group that `text` (``tp=8,pp=2``) makes, in about `budget_s`; slow ones twice.

    most_bytes: that an operation may move. It ends with the first kind in which a rank fails.
    """
    world = [rank.node for rank in ranks.ranks]
    try:
        kinds = layout(len(world), parse(text))
    except ValueError as error:
        return Groups(session=session, misfit=str(error))
    run = _Run(ranks, most_bytes)
    seconds = min(max(budget_s / (2 * MORE * max(len(kinds), 1)), LEAST_S), MOST_S)
    end, took_s = time.monotonic() + budget_s, MORE * seconds
    rates: list[GroupRate] = []
    late: list[str] = []
    kind = ""
    found = Groups(session=session, operations={k: OPERATIONS[k] for k in kinds}, budget_s=budget_s)
    try:
        for kind, division in kinds.items():
            began = time.monotonic()
            if rates and began + took_s > end:
                late.append(kind)
                continue
            first = run.measure(kind, division, seconds)
            took_s = max(took_s, time.monotonic() - began)
            rates += first
            if behind(first, world):
                again = {one.ranks: one.gbyte_s for one in run.measure(kind, division, seconds)}
                rates[-len(first) :] = [
                    replace(one, again_gbyte_s=again.get(one.ranks, 0.0)) for one in first
                ]
    except Failed as failed:
        found = replace(found, session=replace(session, trouble=failed.troubles), failed=kind)
    return replace(found, rates=tuple(rates), late=tuple(late), refused=run.refused, unread=run.unread)


class _Run:
    """One kind of groups after the other, and what could not be had of them."""

    def __init__(self, ranks: Ranks, most_bytes: int) -> None:
        self.ranks, self.most_bytes = ranks, min(most_bytes, MOST_BYTES[ranks.backend])
        self.refused: dict[str, str] = {}
        self.unread: dict[str, str] = {}

    def measure(self, kind: str, division: Division, seconds: float) -> list[GroupRate]:
        """The rate of each group."""
        world = len(self.ranks.ranks)
        answers = self.ranks.step(
            "side_by_side",
            MORE * seconds * 10 + 60.0 + world * RANK_S,
            op=OPERATIONS[kind],
            stride=division.stride,
            size=division.size,
            seconds=seconds,
            least_bytes=LEAST_BYTES,
            most_bytes=self.most_bytes,
        )
        replies = [read_as(answer, Answer) for answer in answers]
        if refused := next((one.refused for one in replies if one is not None and one.refused), ""):
            self.refused[kind] = refused[:200]
            return []
        found = []
        for members in division.groups(world):
            for row in rows_of(self.ranks, answers, members, self.unread, OPERATIONS[kind]):
                found.append(GroupRate(kind=kind, ranks=members, row=row))
        return found


def wait_s(budget_s: float, world: int) -> float:
    """How long the last measurement may be waited for, beyond the budget."""
    return MORE * min(budget_s, MOST_S) * 10 + 60.0 + world * RANK_S
