"""What the live page of a trial shows, from what is known of its ranks. Pure."""

from collections.abc import Mapping, Sequence

from netdoctor.inventory.nodeset import fold
from netdoctor.text import clean
from netdoctor.trial.following import Follower, Process, Rank
from netdoctor.trial.judging import HANGS_S
from netdoctor.tui.trial.page import Picture, Row

# More nodes than this are rows of those that fare alike; and so many rows at most have trouble.
ROWS_MAX, BAD_MAX = 64, 200
_ORDER = ("failed", "lost", "quiet", "starts", "waits", "joined", "steps", "ended")


def picture_of(
    job: Follower, seconds: float, limit_s: float, ranks: Mapping[str, int], what: str = ""
) -> Picture:
    """The trial now. ranks: how many each node is to have; what: in a ladder, the rung."""
    by_node: dict[str, list[Rank]] = {node: [] for node in job.nodes}
    for rank in list(job.ranks.values()):
        by_node.setdefault(rank.node, []).append(rank)
    rows = [_row(job, node, found, seconds, ranks.get(node, 0)) for node, found in by_node.items()]
    ordered = sorted(rows, key=lambda row: _ORDER.index(row.state))
    left_out = 0
    if len(rows) > ROWS_MAX:
        bad = [row for row in ordered if row.is_bad]
        left_out = len(bad[BAD_MAX:])
        ordered = bad[:BAD_MAX]
        for state in _ORDER:
            same_state = [row for row in rows if row.state == state and not row.is_bad]
            ordered += [_together(same_state)] if same_state else []
    return Picture(
        seconds=seconds,
        limit_s=limit_s,
        world=job.world or sum(ranks.values()),
        joined=len(job.joined),
        steps=job.steps() if job.steps_seen else 0,
        rate=job.rate(),
        nodes=len(rows),
        what=what,
        rows=tuple(ordered),
        left_out=left_out,
    )


def _row(job: Follower, node: str, ranks: Sequence[Rank], seconds: float, expected: int) -> Row:
    processes = job.processes.get(node, [])
    joined = [rank for rank in ranks if rank.joined_s is not None]
    firsts = [rank.first_step_s for rank in ranks if rank.first_step_s is not None]
    rates = [rate for rank in ranks if (rate := rank.rate) is not None]
    lasts = [rank.last_step_s for rank in ranks if rank.last_step_s is not None]
    steps = [rank.steps for rank in ranks if rank.first_step_s is not None]
    counted = job.log_steps.get(node)
    if not firsts and counted is not None and counted.last > counted.first:  # known by its log alone
        firsts, lasts, steps = [counted.first_s], [counted.last_s], [counted.last]
        took = counted.last_s - counted.first_s
        rates = [(counted.last - counted.first) / took] if took > 0 else []
    tail = next((one.tail[-1] for one in processes if one.tail), "")
    state = "steps" if firsts else "joined" if joined else "waits" if ranks else "starts"
    if lasts and seconds - min(lasts) > HANGS_S:
        state = "quiet"
    if processes and all(one.state in ("ended", "failed") for one in processes):
        state = "ended"
    bad = next((one for one in processes if one.is_bad), None)
    if bad is not None:
        state, tail = "failed", f"{_end_of(bad)}{f': {bad.tail[-1]}' if bad.tail else ''}"
    if node in job.lost:
        state, tail = "lost", job.lost[node]
    return Row(
        name=node,
        state=state,
        ranks=max(expected, len(ranks)),
        joined=len(joined),
        first_step_s=max(firsts, default=None),
        steps=min(steps, default=0),
        rate=min(rates, default=None),
        last=clean(tail, 400),
    )


def _end_of(process: Process) -> str:
    """How a process ended that did not end well."""
    if process.state == "failed":
        return f"not started ({process.what})" if process.what else "not started"
    if process.is_killed:
        return "killed"
    code = process.code or 0
    return f"signal {-code}" if code < 0 else f"exit {code}"


def _together(rows: Sequence[Row]) -> Row:
    """Nodes in one state as a row: the sums, the last first step, and the slowest one's rate and line."""
    firsts = [row.first_step_s for row in rows if row.first_step_s is not None]
    slowest = min(rows, key=lambda row: (row.rate if row.rate is not None else float("inf"), row.steps))
    return Row(
        name=f"{len(rows)} nodes {fold([row.name for row in rows], 200)}" if rows[1:] else rows[0].name,
        state=slowest.state,
        ranks=sum(row.ranks for row in rows),
        joined=sum(row.joined for row in rows),
        first_step_s=max(firsts, default=None),
        steps=min(row.steps for row in rows),
        rate=slowest.rate,
        last=f"{slowest.name}: {slowest.last}" if rows[1:] and slowest.last else slowest.last,
    )
