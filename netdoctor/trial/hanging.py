"""Who holds a job up that runs and hangs, from where its ranks are. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from netdoctor.explain import ras
from netdoctor.explain.model import Confidence
from netdoctor.inventory.nodeset import fold
from netdoctor.text import clean, listing, ranges
from netdoctor.trial.following import STOPPED, Stack, place_of
from netdoctor.trial.rendering import Cause

# The two looks at a rank are so far apart: a collective that nobody left meanwhile does not move.
WAIT_S = 5.0
# Chosen by us: whoever has slept for longer is between no two steps of a job that is well.
SURE_S = 30.0
BUSY = 0.5  # of a CPU
# Doubling from 0.2 s, a connection has been without an answer for 1.4 s (RFC 6298, section 5).
STUCK_TRIES = 3
RANK_MAX = 100_000
TRACED = "held by a debugger"
# What torch's collectives and rendezvous run in, and what may stand between them and the call into C++.
_CALL = re.compile(r"/torch/distributed/(distributed_c10d|rendezvous|_functional_collectives)\.py$")
_BETWEEN = re.compile(r"/torch/(_ops|utils/_contextlib|distributed/c10d_logger)\.py$")
_BACKWARD = re.compile(r"/torch/autograd/(graph|__init__)\.py$")
_JOINING = frozenset(("init_process_group", "new_group", "_new_process_group_helper"))
_SPEAKER = re.compile(r"\[rank(\d{1,7})\]:")
# Kernel functions that a thread sleeps in, as wchan has them (fs/locks.c, fs/select.c, kernel/futex, net/).
_THREAD, _SOCKET = "waits for another thread", "waits on a socket"
_WAITS = (
    (re.compile(r"nanosleep"), "sleeps"),
    (re.compile(r"futex"), _THREAD),
    (re.compile(r"locks_lock|flock|fcntl_setlk"), "waits for a file lock"),
    (re.compile(r"pipe_read|pipe_wait|pipe_write"), "waits on a pipe"),
    (re.compile(r"poll|select|^ep_"), "waits for a file or socket"),
    (re.compile(r"inet_csk|tcp_|sk_wait|unix_stream|skb_wait"), _SOCKET),
    (re.compile(r"^do_wait"), "waits for a child process"),
    (re.compile(r"nfs|rpc_"), "waits for NFS"),
    (re.compile(r"io_schedule|folio_wait|wait_on_page|blk_|jbd2|fuse|request_wait"), "waits for a disk"),
)


class Sample(msgspec.Struct):
    """How the main thread of a process is at one time. Untrusted, as all of an `Answer`."""

    state: str = ""
    wchan: str = ""
    switches: int | None = None
    cpu_s: float = 0.0
    asleep_s: float | None = None
    frames: list[tuple[str, int, str]] = []


class Child(Sample):
    pid: int = 0
    name: str = ""


class RankProcess(msgspec.Struct):
    """A rank's process, looked at twice. stuck: [peer, times sent again] of its TCP connections."""

    pid: int
    rank: int
    before: Sample
    after: Sample
    world: int = 0
    local_world: int = 0
    job: str = ""
    gpu: bool = False
    children: list[Child] = []
    stuck: list[tuple[str, int]] = []


class Answer(msgspec.Struct):
    """What the `hang` operation of a node says."""

    ranks: list[RankProcess] = []
    addresses: list[str] = []
    notes: list[str] = []
    left_out: int = 0
    ras: list[str] = []
    records: list[tuple[int, str]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a rank is. call: the collective that it is in. does: what its main thread does, by the kernel.

    moves: it did something between the looks, None where that cannot be told. works: it is busy or elsewhere;
    who only looks again and again whether data are there does not work.
    """

    rank: int
    node: str
    pid: int
    where: str
    call: str
    does: str
    moves: bool | None
    works: bool
    stopped: bool
    gpu: bool
    asleep_s: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """The judgement. confidence: None where nobody is blamed. suspects: ranks, on nodes."""

    headline: str
    confidence: Confidence | None = None
    suspects: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    moves: bool = False
    positions: tuple[Position, ...] = ()
    found: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()  # what a scan finds on the nodes


def position(node: str, one: RankProcess, wait_s: float, with_stacks: bool) -> Position:
    """Where a rank is, of both looks. with_stacks: whether every rank has one, and they can be compared."""
    last = one.after if one.after.state else one.before
    busy = max(0.0, last.cpu_s - one.before.cpu_s) / max(wait_s, 0.1)
    does, stopped = _does(last, one.before, busy), last.state in ("T", "t")
    was, now = (_innermost(one.pid, s) if with_stacks else _waits(s.wchan) for s in (one.before, last))
    notes = [f"child {c.pid} ({clean(c.name, 20)}) {words}" for c in one.children if (words := _note(c))]
    return Position(
        rank=one.rank,
        node=node,
        pid=one.pid,
        where=(TRACED if last.state == "t" else STOPPED) if stopped else now if with_stacks else does,
        call=_call(last.frames, busy) if with_stacks else "",
        does="" if stopped else does,
        moves=_moves(one, busy),
        works=not stopped and last.state != "D" and (busy >= BUSY or was != now),
        stopped=stopped,
        gpu=one.gpu,
        asleep_s=last.asleep_s,
        note=next(iter(notes), ""),
    )


def _innermost(pid: int, sample: Sample) -> str:
    text = "\n".join(f'File "{file}", line {line} in {name}' for file, line, name in sample.frames)
    return place_of(Stack(pid, "", text))


def _waits(wchan: str) -> str:
    known = next((words for pattern, words in _WAITS if pattern.search(wchan)), "")
    return known or (f"asleep in {clean(wchan, 40)}" if wchan not in ("", "0") else "")


def _does(last: Sample, before: Sample, busy: float) -> str:
    if busy >= BUSY:
        return f"busy, {100 * busy:.0f} % of a CPU"
    words = _waits(last.wchan)
    return f"in the kernel, cannot be interrupted: {words}" if last.state == before.state == "D" else words


def _note(child: Sample) -> str:
    states = {"T": "is " + STOPPED, "t": "is " + TRACED, "D": "cannot be interrupted"}
    words = _waits(child.wchan)
    return states.get(child.state) or (words if words.endswith(("lock", "NFS", "disk")) else "")


def _call(frames: Sequence[tuple[str, int, str]], busy: float) -> str:
    """The collective, or the meeting of ranks, that the innermost calls are: ``all_reduce``; or nothing."""
    call = ""
    for file, _, name in frames:
        if _CALL.search(file):
            call = name
        elif not _BETWEEN.search(file):
            break
    if not call and frames and _BACKWARD.search(frames[0][0]) and busy < BUSY:
        return "backward"  # where data parallel ranks wait for gradients
    return clean(call, 60)


def _moves(one: RankProcess, busy: float) -> bool | None:
    if one.before.frames != one.after.frames:
        return True
    if busy >= BUSY or one.gpu or one.before.switches is None or one.after.switches is None:
        return None  # it computes, or spins while it waits
    if {name for _, _, name in one.after.frames} & _JOINING:  # they look whether the others are there
        return False
    return one.after.switches > one.before.switches


def judge(answers: Mapping[str, Answer], silent: Sequence[str] = (), wait_s: float = WAIT_S) -> Hang:
    """Who holds the job up that has the most ranks; there has to be one. silent: nodes without an answer."""
    jobs = Counter(one.job for answer in answers.values() for one in answer.ranks)
    job = min(jobs, key=lambda name: (-jobs[name], name))
    every_rank = [(node, one) for node, answer in answers.items() for one in answer.ranks]
    of_job = [(node, one) for node, one in every_rank if one.job == job and 0 <= one.rank < RANK_MAX]
    live = [r for _, r in of_job if r.after.state not in ("", "T", "t")]
    with_stacks = bool(live) and all(r.before.frames and r.after.frames for r in live)
    every = sorted((position(n, r, wait_s, with_stacks) for n, r in of_job), key=lambda p: p.rank)
    judged = _judge(every, of_job, answers, silent, with_stacks)
    notes = list(dict.fromkeys(clean(note, 200) for one in answers.values() for note in one.notes))[:4]
    if len(jobs) > 1:
        notes.append(f"{sum(jobs.values()) - jobs[job]} ranks of {len(jobs) - 1} other jobs are left aside")
    if left_out := sum(answer.left_out for answer in answers.values()):
        notes.append(f"{left_out} ranks are beyond what is looked at on a node")
    return replace(judged, positions=tuple(every), notes=(*judged.notes, *notes))


def _judge(
    every: Sequence[Position],
    of_job: Sequence[tuple[str, RankProcess]],
    answers: Mapping[str, Answer],
    silent: Sequence[str],
    with_stacks: bool,
) -> Hang:
    if stopped := [p for p in every if p.stopped]:
        return _blame(stopped, Confidence.CERTAIN, stopped[0].where)
    waiting = _waiting(every, with_stacks)
    if how := _movement(every, waiting, answers):
        return Hang(headline=f"it moves: {how}", moves=True)
    absent, nodes, why, sure = _absent(of_job, answers, silent)
    if nodes:
        return Hang(
            headline=f"{_ranks(absent)} without a process: {fold(nodes, 60)} {why}",
            confidence=Confidence.CERTAIN if sure else Confidence.LIKELY,
            suspects=absent,
            nodes=nodes,
        )
    if linked := _links(of_job, answers):
        return linked
    notes = (f"{_ranks(absent)} on no node that was asked",) if absent else ()
    rest = [p for p in every if p not in waiting]
    if waiting and rest:
        return replace(_behind(rest, waiting), notes=notes)
    by_where = Counter(p.where for p in waiting).most_common()
    if with_stacks and len(by_where) > 1 and by_where[-1][1] < by_where[-2][1]:
        odd = [p for p in waiting if p.where == by_where[-1][0]]
        words = f"in another call than the others: {odd[0].where}"
        return replace(_blame(odd, Confidence.LIKELY, words), notes=notes)
    words = f"all {len(every)} ranks wait, and " if len(waiting) == len(every) else ""
    hint = () if with_stacks else ("with py-spy on the nodes their stacks can be compared",)
    return Hang(headline=f"{words}where they are does not say for whom", found=hint, notes=notes)


def _absent(
    of_job: Sequence[tuple[str, RankProcess]], answers: Mapping[str, Answer], silent: Sequence[str]
) -> tuple[tuple[int, ...], tuple[str, ...], str, bool]:
    """(ranks without a process, nodes where they should be, why those, whether that is sure)."""
    world = min(max(one.world for _, one in of_job), RANK_MAX)
    ranks = tuple(sorted(set(range(world)) - {one.rank for _, one in of_job}))
    counts = Counter(node for node, _ in of_job)
    lacks = {node: one.local_world - counts[node] for node, one in of_job if one.local_world > counts[node]}
    if not ranks or any(answer.left_out for answer in answers.values()):
        return (), (), "", False
    if sum(lacks.values()) == len(ranks):
        return ranks, tuple(sorted(lacks)), "has fewer than its launcher started", True
    without = [node for node, one in answers.items() if not one.ranks]
    for nodes, why in ((silent, "does not answer"), (without, "has no process of a rank")):
        if nodes and len(nodes) * max(counts.values()) == len(ranks):
            return ranks, tuple(nodes), why, not silent
    return ranks, (), "", False


def _waiting(every: Sequence[Position], with_stacks: bool) -> list[Position]:
    """Who waits for others: the ranks in a collective, else more than half of all, asleep alike."""
    if with_stacks and (found := [p for p in every if p.call]):
        return found
    does, count = Counter(p.does for p in every).most_common(1)[0]
    return (
        [p for p in every if p.does == does] if does in (_THREAD, _SOCKET) and 2 * count > len(every) else []
    )


def _movement(every: Sequence[Position], waiting: Sequence[Position], answers: Mapping[str, Answer]) -> str:
    """What shows that the job goes on; "" where nothing does."""
    if any(len(one.ras) == 2 and _launched(one.ras[0]) != _launched(one.ras[1]) for one in answers.values()):
        return "NCCL counts more collectives than before"
    count = sum(p.moves is True for p in (waiting or every))
    if count and (waiting or 2 * count > len(every)):
        return f"{count} of {len(every)} ranks went on between two looks"
    computing = [p for p in every if p.works and not p.gpu]  # who waits for a GPU may spin
    return "its ranks compute" if not waiting and 2 * len(computing) > len(every) else ""


def _launched(text: str) -> list[Any]:
    """How many collectives RAS counts, by communicator and operation."""
    return sorted((one.name, repr(sorted(one.launched.items()))) for one in ras.read(text).communicators)


def _behind(rest: Sequence[Position], waiting: Sequence[Position]) -> Hang:
    """Where some ranks wait for others, and those are elsewhere."""
    call = Counter(f"in {p.call}" if p.call else p.does for p in waiting).most_common(1)[0][0]
    first = rest[0]
    where = f"{first.where} ({first.does})" if first.does not in ("", first.where) else first.where
    others = (
        f"{len(waiting)} {'rank waits' if len(waiting) == 1 else 'ranks wait'} {call.removeprefix('waits ')}"
    )
    asleep_s = min(p.asleep_s or 0.0 for p in waiting)
    if any(p.works for p in rest) and asleep_s < SURE_S:
        words = f"{others} for {_who(rest)}, which works: {where}. It is slow, or it hangs: ask again"
        return Hang(headline=words)
    sure = asleep_s >= SURE_S and 2 * len(waiting) > len(rest) and not any(p.works for p in rest)
    return _blame(rest, Confidence.CERTAIN if sure else Confidence.LIKELY, f"{where}; {others}")


def _links(of_job: Sequence[tuple[str, RankProcess]], answers: Mapping[str, Answer]) -> Hang | None:
    """What TCP connections say of a link that is cut: data that nobody acknowledges."""
    node_of = {address: node for node, one in answers.items() for address in one.addresses}
    pairs = {
        tuple(sorted((node, node_of.get(peer, clean(peer, 45)))))
        for node, one in of_job
        for peer, tries in one.stuck
        if tries >= STUCK_TRIES and node_of.get(peer) != node
    }
    if not pairs:
        return None
    shared = set.intersection(*(set(pair) for pair in pairs)) if len(pairs) > 1 else set()
    nodes = tuple(sorted(shared or {name for pair in pairs for name in pair}))
    between = listing([f"{a} and {b}" for a, b in sorted(pairs)], 4)
    return Hang(
        headline=f"the network of {fold(nodes, 60)}: nobody answers to what is sent between {between}",
        confidence=Confidence.CERTAIN if len(nodes) == 1 else Confidence.LIKELY,
        suspects=tuple(sorted(one.rank for node, one in of_job if node in nodes)),
        nodes=nodes,
    )


def _blame(suspects: Sequence[Position], confidence: Confidence, words: str) -> Hang:
    return Hang(
        headline=f"{_who(suspects)}: {words}",
        confidence=confidence,
        suspects=tuple(p.rank for p in suspects),
        nodes=tuple(dict.fromkeys(p.node for p in suspects)),
        found=tuple(f"{_who([p])}: {p.note}" for p in suspects if p.note)[:4],
    )


def with_lines(hang: Hang, lines: Iterable[str]) -> Hang:
    """The same with what RAS and flight records say, which name ranks where nothing else does."""
    texts = [clean(line, 300) for line in lines][:6]
    numbers = sorted({int(by[1]) for text in texts if (by := _SPEAKER.match(text))})
    if numbers and hang.confidence is None and not hang.moves:
        nodes = tuple(dict.fromkeys(p.node for p in hang.positions if p.rank in numbers))
        words, *texts = texts
        by_lines = Hang(headline=words, confidence=Confidence.LIKELY, suspects=tuple(numbers), nodes=nodes)
        hang = replace(by_lines, positions=hang.positions, notes=hang.notes)
    return replace(hang, found=(*hang.found, *texts))


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) != 1)} {listing(ranges(ranks))}"


def _who(positions: Sequence[Position]) -> str:
    nodes = fold(sorted({p.node for p in positions}), 60)
    return f"{_ranks(sorted(p.rank for p in positions))} on {nodes}"
