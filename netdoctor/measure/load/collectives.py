"""The collectives that a training job runs, over ranks that are joined: each verified, then timed by size."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from netdoctor.facts.bandwidth import Collectives, Session, SizeRow
from netdoctor.measure.common import read_as
from netdoctor.measure.ranks import RANK_S, Failed, Ranks

KIB, MIB, GIB = 1024, 1024**2, 1024**3
# What a training job runs: data parallel, sharded (ZeRO, FSDP), experts, the first weights, pipelines.
NAMES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send-recv")
# Where latency rules, and the largest for which a rate is asked.
LATENCY_SIZES = (8, 512, 4 * KIB, 64 * KIB)
LARGEST = GIB
# As long as one size of an all-reduce in a full run (measure/collective.py).
EACH_S = 3.0
# Operations of a batch, and batches, at least: in a batch of few the filling of a broadcast's tree counts,
# and a shaper's burst. 12 are within 3 % of 20, which nccl-tests takes (benchmarks/collectives.py).
LEAST, BATCHES = 12, 2


def busbw_factor(name: str, ranks: int) -> float:
    """busbw over algbw (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md): a link carries
    so much of the size."""
    if name in ("broadcast", "send-recv"):
        return 1.0
    return (2 if name == "all-reduce" else 1) * (ranks - 1) / ranks


def sweep_wait_s(budget_s: float, world: int) -> float:
    """How long sizes from small to large are waited for."""
    return budget_s * 2 + 60.0 + world * RANK_S


class Row(msgspec.Struct):
    """One size as a rank reports it."""

    size: int
    median_s: float
    least_s: float
    most_s: float
    batches: int
    iterations: int
    wrong: int = 0
    first_wrong: list[Any] | None = None
    senders: list[int] = []


def rows_of(
    ranks: Ranks,
    found: Sequence[Any],
    members: Sequence[int],
    unread: dict[str, str],
    name: str = "all-reduce",
) -> tuple[SizeRow, ...]:
    """One collective. Times are the same on every rank; what was wrong is its own.

    A rank whose answer cannot be read, or misses a size, is put into `unread`: nobody verified its sums.
    """
    tables = {}
    for number in members:
        raw = found[number].get("rows") if isinstance(found[number], dict) else None
        tables[number] = read_as(raw, list[Row]) or []
    n = len(members)
    sizes = len(tables[members[0]])
    for number, table in tables.items():
        if not table or len(table) < sizes:
            text = f"rank {number} reports {len(table)} sizes" + (f" of {sizes}" if sizes else "")
            unread.setdefault(ranks.ranks[number].node, text)
    rows = []
    for at, row in enumerate(tables[members[0]]):
        if not (row.size > 0 and 0 < row.median_s < 1e6 and row.least_s > 0):
            unread.setdefault(ranks.ranks[members[0]].node, f"rank {members[0]} gives figures that cannot be")
            continue
        wrong: dict[str, int] = {}
        senders: dict[str, set[str]] = {}
        first = ""
        for number, table in tables.items():
            local = table[at] if at < len(table) else None
            if local is not None and local.wrong > 0:
                node = ranks.ranks[number].node
                wrong[node] = wrong.get(node, 0) + local.wrong
                known = [ranks.ranks[src].node for src in local.senders if 0 <= src < len(ranks.ranks)]
                senders.setdefault(node, set()).update(known)
                first = first or f"rank {number}, {str(local.first_wrong)[:100]} (index, value, expected)"
        algbw = row.size / row.median_s / 1e9
        rows.append(
            SizeRow(
                size_bytes=row.size,
                median_s=row.median_s,
                least_s=row.least_s,
                most_s=row.most_s,
                batches=row.batches,
                iterations=row.iterations,
                algbw_gbyte_s=algbw,
                busbw_gbyte_s=algbw * busbw_factor(name, n),
                wrong=wrong,
                wrong_from={node: tuple(sorted(ends)) for node, ends in senders.items() if ends},
                first_wrong=first,
            )
        )
    return tuple(rows)


class Answer(msgspec.Struct):
    """What a rank says of one collective, beside its rows."""

    refused: str = ""


def collectives(ranks: Ranks, session: Session, sizes: Sequence[int], budget_s: float) -> Collectives:
    """All of NAMES, in equal parts of the time; it ends with the first in which a rank fails.

    sizes: for which a rate is measured, as memory and time allow, beside LATENCY_SIZES.
    """
    found = Collectives(session=session, budget_s=budget_s)
    if len(ranks.ranks) < 2:
        return found
    each_s = budget_s / len(NAMES)
    every_size = sorted({*LATENCY_SIZES, *(size for size in sizes if LATENCY_SIZES[-1] < size <= LARGEST)})
    for name in NAMES:
        try:
            answers = ranks.step(
                "collective",
                sweep_wait_s(each_s, len(ranks.ranks)),
                op=name,
                sizes=every_size,
                budget_s=each_s,
                each_s=EACH_S,
                latency_bytes=LATENCY_SIZES[-1],
                least=LEAST,
                batches=BATCHES,
            )
        except Failed as failed:
            return replace(found, session=replace(session, trouble=failed.troubles), failed=name)
        replies = [read_as(answer, Answer) for answer in answers]
        refused = next((one.refused for one in replies if one is not None and one.refused), "")
        if refused:
            found.refused[name] = refused[:200]
            continue
        found.rows[name] = rows_of(ranks, answers, range(len(answers)), found.unread, name)
    return found
