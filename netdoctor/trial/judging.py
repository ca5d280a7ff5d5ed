"""STARTED, FAILED or UNDECIDED, from what is known of a tried job's ranks. Pure."""

import errno
import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netdoctor.compat import StrEnum
from netdoctor.inventory.nodeset import fold
from netdoctor.trial.following import STOPPED, Follower, Process, Rank

# Steps that stopped for so long, and for twice what any took, are not known to go on: another is waited for;
# after the second, and ten times that, they hang. Chosen by us: a checkpoint or an evaluation of minutes may
# come between two, and nobody publishes how long theirs take. News of a healthy step is up to 1.3 s old.
QUIET_S, HANGS_S, HANGS_MOST_S = 1.5, 30.0, 120.0
NAMES_MAX = 8
# Ends within so many seconds are of one trouble.
TOGETHER_S = 10.0
ECHO = 3
# Nothing more is expected to call init_process_group so long after the last one that did. Chosen by us.
SETTLED_S = 10.0


class State(StrEnum):
    STARTED = "started"
    FAILED = "failed"
    UNDECIDED = "undecided"
    INTERRUPTED = "interrupted"


class Ended(StrEnum):
    """What ended a trial."""

    TIME = "time"
    STEPS = "steps"
    JOB = "job"  # the job, by itself
    INTERRUPT = "interrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """headline: one line. found: more of them. nodes: those at fault, where that is known. cause: the label
    of what `explain` knows, where the ranks themselves show it."""

    state: State
    headline: str
    found: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    hangs: bool = False
    cause: str = ""


def judge(job: Follower, ended: Ended, seconds: float) -> Judgement:
    """The judgement of a trial that has ended. seconds: how long the job ran.

    STARTED takes proof: every rank of one world has joined, every node has some of them, and steps were made
    up to the end, or until the job ended well by itself.
    """
    if job.own_fault:
        return Judgement(
            state=State.UNDECIDED,
            headline=f"netdoctor itself could not go on: {job.own_fault}",
            found=_how_far(job),
        )
    if job.lost:
        return _of_lost_nodes(job)
    if job.bad():
        return _of_failed_processes(job)
    if ended is Ended.INTERRUPT:
        return Judgement(
            state=State.INTERRUPTED, headline="interrupted before it was decided", found=_how_far(job)
        )
    if not job.joined:
        return _of_waiting_ranks(job, seconds)
    if partial := _of_partial_world(job):
        return partial
    return _of_steps(job, ended, seconds)


def _of_lost_nodes(job: Follower) -> Judgement:
    nodes = list(job.lost)
    reasons = [f"{node}: {job.lost[node]}" for node in nodes[:NAMES_MAX]]
    return Judgement(
        state=State.FAILED,
        headline=f"{fold(nodes, 60)} went away, or could not be asked",
        found=(*reasons, *_how_far(job)),
        nodes=tuple(nodes),
    )


def _of_failed_processes(job: Follower) -> Judgement:
    first = first_to_end(job)
    bad = job.bad()
    # torchrun's summary follows a rank's own error and says less.
    found = [f"{first.node}: {line}" for line in ([first.error] if first.error else first.tail[-3:])]
    nodes = list(dict.fromkeys(one.node for one in bad if one.node != first.node))
    if nodes:
        wait = max(0.0, (bad[-1].ended_s or 0.0) - (first.ended_s or 0.0))
        found.append(f"{fold(nodes, 60)} ended behind it, within {wait:.1f} s")
    if first.code == 0:
        headline = f"{first.node}: its process ended with code 0{_after(first)}, and the others went on"
    else:
        headline = f"{first.node}: {how_it_ended(first)}"
    return Judgement(
        state=State.FAILED, headline=headline, found=(*found, *_how_far(job)), nodes=(first.node,)
    )


def first_to_end(job: Follower) -> Process:
    """The process that the others' end follows from: one that was killed, or failed by itself; the earliest.

    Clocks of nodes are compared to some hundredths of a second, and who only tells of another ends within
    less: what a process printed goes before when it ended. Where all tell of another, it is who left with
    code 0 before them.
    """
    bad = job.bad()
    began = min(one.ended_s or 0.0 for one in bad)
    near = [one for one in bad if (one.ended_s or 0.0) - began <= TOGETHER_S]
    first = min(near, key=lambda one: (_distance(one), one.ended_s or 0.0))
    if _distance(first) < ECHO:
        return first
    left = [
        one
        for all_ in job.processes.values()
        for one in all_
        if one.state == "ended" and one.code == 0 and (one.ended_s or 0.0) <= began + 1.0
    ]
    return min(left or [first], key=lambda one: one.ended_s or 0.0)


def _distance(process: Process) -> int:
    """How far from the root of a failure a process is, by what it printed and how it ended."""
    if process.is_killed:
        return 0
    if process.raises:
        return 1
    return ECHO if process.echoes else 2


def _after(process: Process) -> str:
    return f" after {process.ended_s:.1f} s" if process.ended_s is not None else ""


def how_it_ended(process: Process) -> str:
    """``its process ended with code 1 after 3.2 s``."""
    when = _after(process)
    if process.state == "failed":
        why = os.strerror(process.errno or 0)
        what = {"folder": "the folder to start in", "command": "the command"}.get(process.what, "the process")
        venv = (
            "; --python PATH looks in that interpreter's folder first"
            if process.errno == errno.ENOENT
            else ""
        )
        return f"{what} could not be used: {why}{venv if process.what == 'command' else ''}"
    if (name := signal_of(process)) is not None:
        return f"its process was killed by {name}{when}"
    return f"its process ended with code {process.code}{when}"


def signal_of(process: Process) -> str | None:
    """The signal that ended a process, ``SIGSEGV``; None where none did."""
    if process.code is None or process.code >= 0:
        return None
    try:
        return signal.Signals(-process.code).name
    except ValueError:
        return str(-process.code)


def _of_waiting_ranks(job: Follower, seconds: float) -> Judgement:
    waiting = [rank for rank in job.ranks.values() if rank.waits_s is not None]
    if odd := _of_numbers(job, waiting, seconds):
        return odd
    if waiting:
        headline = f"no rank has joined within {seconds:.0f} s: {len(waiting)} wait in init_process_group"
        idle = _idle(job)
        found = (*([f"nothing has called it on {fold(idle, 60)}"] if idle else []), *_where(job))
        return Judgement(state=State.FAILED, headline=headline, found=found, nodes=tuple(idle), hangs=True)
    silent = all(not one.tail for all_ in job.processes.values() for one in all_)
    if job.is_over:
        return Judgement(
            state=State.UNDECIDED, headline="it ended with code 0, and no rank was seen to join a group"
        )
    if job.steps_seen:
        return Judgement(
            state=State.UNDECIDED,
            headline="its log counts steps, and nothing shows that its ranks are in one group",
            found=_how_far(job),
        )
    what = "and printed nothing" if silent else "and nothing shows that its ranks have joined"
    # To load its libraries takes a job minutes where they lie on a slow disk.
    return Judgement(
        state=State.UNDECIDED,
        headline=f"it ran for {seconds:.0f} s, {what}",
        found=("none of its ranks has called init_process_group; longer: --for", *_where(job)),
        hangs=True,
    )


def _of_numbers(job: Follower, waiting: Sequence[Rank], seconds: float) -> Judgement | None:
    """Where ranks that wait were given numbers that do not fit each other."""
    why, nodes, cause = "", [], "rank_world_size_misconfig"
    worlds = {rank.number: str(rank.given_world) for rank in waiting if rank.given_world}
    last_s = max((rank.waits_s or 0.0 for rank in waiting), default=0.0)
    settled = len(waiting) == len(job.ranks) and not _idle(job) and seconds - last_s >= SETTLED_S
    if twice := [rank for rank in waiting if len(rank.nodes) > 1]:
        nodes = sorted(twice[0].nodes)
        why = f"rank {twice[0].number} was given to {fold(nodes, 60)}"
    elif odd := _odd_one(worlds):
        numbers, value, others = odd
        nodes = sorted({job.ranks[n].node for n in numbers})
        why = f"WORLD_SIZE is {value} on {fold(nodes, 60)}, and {others} elsewhere"
    elif odd := _odd_one({rank.number: rank.meets for rank in waiting if rank.meets}):
        numbers, value, others = odd
        nodes = sorted({job.ranks[n].node for n in numbers})
        why = f"rank {numbers[0]} on {fold(nodes, 60)} goes to {value}, the others to {others}"
        cause = "rdzv_endpoint_mismatch"
    elif settled and (world := max(map(int, worlds.values()), default=0)) > len(waiting):
        why = f"WORLD_SIZE is {world}, and {len(waiting)} ranks were started"
    if not why:
        return None
    return Judgement(
        state=State.FAILED,
        headline=f"no rank has joined within {seconds:.0f} s: {why}",
        found=tuple(_where(job)),
        nodes=tuple(nodes),
        hangs=True,
        cause=cause,
    )


def _odd_one(values: Mapping[int, str]) -> tuple[list[int], str, str] | None:
    """(the ranks that differ from most, their value, that of the others); None where all are alike."""
    counts = Counter(values.values()).most_common()
    if len(counts) < 2:
        return None
    value = counts[-1][0]
    return sorted(number for number, one in values.items() if one == value), value, counts[0][0]


def _of_partial_world(job: Follower) -> Judgement | None:
    """Where the ranks that joined are no whole world."""
    twice = [rank for rank in job.ranks.values() if len(rank.nodes) > 1]
    if twice:
        nodes = sorted({node for rank in twice for node in rank.nodes})
        return Judgement(
            state=State.FAILED,
            headline=f"no single group: {fold(nodes, 60)} have a rank {twice[0].number} each",
            found=(
                "each started a job of its own; what says how many nodes there are, and where they meet?",
            ),
            nodes=tuple(nodes),
        )
    worlds = sorted({rank.world for rank in job.joined})
    if len(worlds) > 1:
        sizes = ", ".join(map(str, worlds[:NAMES_MAX]))
        return Judgement(
            state=State.FAILED,
            headline=f"its ranks are in groups of different sizes: {sizes}",
            found=_how_far(job),
        )
    world = worlds[0]
    numbers = {rank.number for rank in job.joined}
    without = [node for node in job.nodes if node not in {rank.node for rank in job.joined}]
    absent = sorted(set(range(world)) - numbers)
    if absent:
        who = ", ".join(map(str, absent[:NAMES_MAX])) + (" ..." if absent[NAMES_MAX:] else "")
        on = sorted({job.ranks[n].node for n in absent if n in job.ranks} | set(without))
        return Judgement(
            state=State.FAILED,
            headline=f"{len(numbers)} of {world} ranks have joined; not rank {who}",
            found=(*([f"on {fold(on, 60)}"] if on else []), *_where(job)),
            nodes=tuple(on),
            hangs=True,
        )
    if without:
        return Judgement(
            state=State.FAILED,
            headline=f"all {world} ranks of its group are on other nodes than {fold(without, 60)}",
            found=("the job does not use all the nodes that it was given",),
            nodes=tuple(without),
        )
    return None


def _of_steps(job: Follower, ended: Ended, seconds: float) -> Judgement:
    world = job.world
    group = f"all {world} ranks joined" if world > 1 else "its one rank joined"
    if not job.steps_seen:
        after = f"in {seconds:.0f} s" if ended is Ended.TIME else "before it ended"
        return Judgement(
            state=State.UNDECIDED,
            headline=f"{group}, and no step was seen {after}",
            found=(
                "longer: --for; where torch's optimizers make no steps, --step REGEX counts lines",
                *_where(job),
            ),
            hangs=ended is Ended.TIME,
        )
    behind = [rank for rank in job.joined if rank.first_step_s is None]
    if behind and any(rank.first_step_s is not None for rank in job.joined):
        nodes = sorted({rank.node for rank in behind})
        return Judgement(
            state=State.UNDECIDED,
            headline=f"{group}, and {len(behind)} of them made no step that could be seen",
            found=(f"on {fold(nodes, 60)}",),
            nodes=tuple(nodes),
            hangs=True,
        )
    quiet_s = seconds - (job.last_step_s() or 0.0)
    if ended is not Ended.JOB and quiet_s > _quiet_s(job):
        hangs = quiet_s > _hangs_s(job)
        why = "" if hangs else ": a checkpoint, or a hang; longer: --for"
        return Judgement(
            state=State.FAILED if hangs else State.UNDECIDED,
            headline=f"its steps stopped after {job.steps()}, {quiet_s:.0f} s before the end{why}",
            found=_how_far(job),
            nodes=_nodes_of_few(job),
            hangs=True,
            cause="mismatched_collectives" if hangs and _in_other_collectives(job) else "",
        )
    return Judgement(state=State.STARTED, headline=", ".join([group, *_rate(job)]), found=_how_far(job)[1:])


def may_go_on(job: Follower, seconds: float) -> bool:
    """Whether steps have stopped for a time that says neither that they go on nor that they hang."""
    quiet_s = seconds - (job.last_step_s() or 0.0)
    return job.steps_seen and _quiet_s(job) < quiet_s <= _hangs_s(job)


def _quiet_s(job: Follower) -> float:
    return max(QUIET_S, 2 * _longest(job))


def _hangs_s(job: Follower) -> float:
    return min(max(HANGS_S, 10 * _longest(job)), HANGS_MOST_S)


def _longest(job: Follower) -> float:
    rate = job.rate()
    return max(job.longest_step_s(), 1 / rate if rate else 0.0)


def _rate(job: Follower) -> list[str]:
    words = []
    if (first := job.first_step_s()) is not None:
        words.append(f"first step after {first:.1f} s")
    if (rate := job.rate()) is not None:
        words.append(f"{rate:.3g} steps/s")
    return words


def _idle(job: Follower) -> list[str]:
    busy = {rank.node for rank in job.ranks.values() if rank.waits_s is not None}
    return [node for node in job.nodes if node not in busy]


def _where(job: Follower) -> list[str]:
    """Where the ranks of a job that hangs are: the fewest first, as the others wait for them."""
    by_place: dict[str, list[int]] = {}
    for number, rank in sorted(job.ranks.items()):
        if rank.place_now:
            by_place.setdefault(rank.place_now, []).append(number)
    lines = []
    for text, numbers in sorted(by_place.items(), key=lambda item: len(item[1]))[:4]:
        nodes = fold(sorted({job.ranks[n].node for n in numbers}), 40)
        who = f"rank {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} ranks"
        lines.append(f"{who} on {nodes}: {'' if text == STOPPED else 'in '}{text}")
    return lines


def _nodes_of_few(job: Follower) -> tuple[str, ...]:
    """The nodes of the few ranks that are at one place while all others are at another."""
    positions = [rank.place_now for rank in job.ranks.values()]
    counts = Counter(positions).most_common()
    if len(counts) != 2 or not all(positions) or 2 * counts[1][1] >= len(positions):
        return ()
    return tuple(sorted({rank.node for rank in job.ranks.values() if rank.place_now == counts[1][0]}))


def _in_other_collectives(job: Follower) -> bool:
    """Whether every rank is in a collective, and not all in the same."""
    found = {rank.collective_now for rank in job.ranks.values()}
    return len(found) > 1 and "" not in found


def _how_far(job: Follower) -> tuple[str, ...]:
    """How far the ranks came, in a line, and where they are; nothing where nobody knows."""
    if not job.ranks:
        return ()
    world = job.world or len(job.ranks)
    words = [f"{len(job.joined)} of {world} ranks joined"]
    if job.steps_seen:
        words.append(f"{job.steps()} steps")
    return (", ".join(words), *_where(job))
