"""Flight records of several ranks, held against each other: who did not come, who called another. Pure.

In each process group, operation k of one rank meets operation k of every other. The first that does not fit
is reported; what comes after it follows from it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from netdoctor.compat import UTC
from netdoctor.explain.flight import Operation, Record
from netdoctor.text import ranges

SIZES_DIFFER = ("all_to_all", "all_gather_v", "reduce_scatter_v")
MAY_BE_UNEVEN = ("all_gather", "reduce_scatter", "gather", "scatter")
DONE = "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """The first operation of a group that does not fit.

    Kinds: ``absent``, ``different``, ``stalled``, ``uneven`` (of all_to_all: more is sent than received, or
    less), ``unpaired`` (a send without its receive, or one of another size).
    """

    kind: str
    group: str
    text: str  # what the group is for
    number: int  # of the operation
    calls: tuple[tuple[Operation, tuple[int, ...]], ...]  # each with its ranks, the commonest first
    absent: tuple[int, ...] = ()  # ranks that never came
    stalled: tuple[int, ...] = ()  # whose operation waits for others on their GPU while their peers' runs
    lost: tuple[int, ...] = ()  # members without a record

    @property
    def waiting(self) -> tuple[int, ...]:
        return tuple(sorted(rank for _, ranks in self.calls for rank in ranks))


def mismatches(records: Iterable[Record]) -> list[Mismatch]:
    """What does not fit, at most one operation a group, in order of groups."""
    by_rank = {record.rank: record for record in records}
    found: list[Mismatch] = []
    for (group, members), text in _groups(by_rank).items():
        present = {rank: by_rank[rank] for rank in members if rank in by_rank}
        if len(present) < 2:
            continue
        lost = tuple(rank for rank in members if rank not in by_rank)
        first = _first(group, text, present, lost) or _unpaired(group, text, members, present)
        found += [first] if first is not None else []
    return found


def _groups(by_rank: Mapping[int, Record]) -> dict[tuple[str, tuple[int, ...]], str]:
    """Name and ranks of every group, and what it is for. Where files have no ranks (gloo), its users."""
    groups: dict[tuple[str, tuple[int, ...]], str] = {}
    users: dict[str, set[int]] = {}
    for rank, record in sorted(by_rank.items()):
        for name in dict.fromkeys(operation.group for operation in record.operations):
            if name not in record.members:
                users.setdefault(name, set()).add(rank)
        for name, members in record.members.items():
            if rank in members:
                groups.setdefault((name, members), record.texts.get(name, ""))
    for name, ranks in users.items():
        text = next(by_rank[rank].texts.get(name, "") for rank in ranks)
        every = by_rank if text == "default_pg" else ranks
        groups.setdefault((name, tuple(sorted(every))), text)
    return groups


def _first(group: str, text: str, present: Mapping[int, Record], lost: tuple[int, ...]) -> Mismatch | None:
    steps_of = {rank: _steps(record, group) for rank, record in present.items()}
    start = max((min(steps) for steps in steps_of.values() if steps), default=0)
    numbers = sorted({number for steps in steps_of.values() for number in steps if number >= start})
    for number in numbers:
        here = {rank: steps[number] for rank, steps in steps_of.items() if number in steps}
        absent = tuple(
            rank
            for rank, steps in steps_of.items()
            if rank not in here and (max(steps) < number if steps else not present[rank].wrapped)
        )
        calls = _calls(here)
        stalled: tuple[int, ...] = ()
        if absent and any(_open(one) for ops in here.values() for one in ops):
            kind = "absent"
        elif len(calls) > 1:
            kind = "different"
        elif not lost and _uneven(here):
            kind = "uneven"
        elif number == numbers[-1] and (stalled := _stalled(here)):
            kind, absent = "stalled", ()
        else:
            continue
        return Mismatch(
            kind=kind,
            group=group,
            text=text,
            number=number,
            calls=calls,
            absent=absent,
            stalled=stalled,
            lost=lost,
        )
    return None


def _steps(record: Record, group: str) -> dict[int, list[Operation]]:
    """The collectives of a group by number; those that were coalesced have one number."""
    steps: dict[int, list[Operation]] = {}
    for operation in record.operations:
        if operation.group == group and not operation.p2p:
            steps.setdefault(operation.number, []).append(operation)
    return steps


def _open(operation: Operation) -> bool:
    return operation.state != DONE


def _calls(here: Mapping[int, Sequence[Operation]]) -> tuple[tuple[Operation, tuple[int, ...]], ...]:
    """Different calls with their ranks, the commonest first."""
    ranks_of: dict[tuple[tuple[object, ...], ...], list[int]] = {}
    for rank, ops in sorted(here.items()):
        ranks_of.setdefault(tuple(map(_signature, ops)), []).append(rank)
    order = sorted(ranks_of, key=lambda signature: (-len(ranks_of[signature]), ranks_of[signature][0]))
    first_rank = next(iter(here))
    found = []
    for signature in order:
        ranks = ranks_of[signature]
        other = tuple(map(_signature, here[first_rank])) if signature == order[0] else order[0]
        odd = next((i for i, one in enumerate(signature) if i >= len(other) or other[i] != one), 0)
        found.append((here[ranks[0]][odd], tuple(ranks)))
    return tuple(found)


def _signature(one: Operation) -> tuple[object, ...]:
    """What has to be equal on all ranks: of a scatter only the outputs, of a gather only the inputs."""
    free = one.name.startswith(SIZES_DIFFER)
    inputs = () if free or one.name == "scatter" else one.inputs
    outputs = () if free or one.name == "gather" else one.outputs
    has_types = any(one.inputs) and one.name not in ("scatter", "broadcast")
    in_types = frozenset(one.input_dtypes) if has_types else 0
    out_types = frozenset(one.output_dtypes) if any(one.outputs) and one.name != "gather" else 0
    return (one.name, inputs, outputs, in_types, out_types)


def _uneven(here: Mapping[int, Sequence[Operation]]) -> bool:
    """Whether an all_to_all sends another number of elements than it receives, over all ranks."""
    every = [ops[0] for ops in here.values()]
    if not every[0].name.startswith("all_to_all"):
        return False
    sent = sum(math.prod(size) for one in every for size in one.inputs[:1])
    return sent != sum(math.prod(size) for one in every for size in one.outputs[:1])


def _stalled(here: Mapping[int, Sequence[Operation]]) -> tuple[int, ...]:
    """Ranks that have it scheduled only, where others have begun."""
    states = {rank: ops[-1].state for rank, ops in here.items()}
    if "started" not in states.values() or DONE in states.values():
        return ()
    return tuple(sorted(rank for rank, state in states.items() if state == "scheduled"))


# --- sends and receives ----------------------------------------------------------------------------


def _unpaired(
    group: str, text: str, members: Sequence[int], present: Mapping[int, Record]
) -> Mismatch | None:
    """The first send or receive between two ranks whose other half is missing or of another size."""
    sends: dict[tuple[int, int], list[Operation]] = {}
    receives: dict[tuple[int, int], list[Operation]] = {}
    for rank, record in present.items():
        for one in record.operations:
            if one.group != group or not one.p2p or record.wrapped:
                continue
            ends = _ends(one.name, members)
            if ends and rank == ends[0] and one.name.startswith("send"):
                sends.setdefault(ends, []).append(one)
            elif ends and rank == ends[1]:
                receives.setdefault(ends, []).append(one)
    for ends in sorted({*sends, *receives}):
        if not all(rank in present and not present[rank].wrapped for rank in ends):
            continue
        out, into = sends.get(ends, []), receives.get(ends, [])
        for one, other in zip(out, into, strict=False):
            if one.inputs != other.outputs:
                calls = ((one, (ends[0],)), (other, (ends[1],)))
                return Mismatch(kind="unpaired", group=group, text=text, number=one.number, calls=calls)
        longer, waits, missing = (out, ends[0], ends[1]) if len(out) > len(into) else (into, ends[1], ends[0])
        shorter = min(len(out), len(into))
        if len(longer) > shorter and _open(longer[shorter]):
            return Mismatch(
                kind="unpaired",
                group=group,
                text=text,
                number=longer[shorter].number,
                calls=((longer[shorter], (waits,)),),
                absent=(missing,),
            )
    return None


def _ends(name: str, members: Sequence[int]) -> tuple[int, int] | None:
    """From and to, as ranks of the job, of ``send 0->1`` or ``recv 1<-0``, which name ranks of the group."""
    verb, _, ends = name.partition(" ")
    first, arrow, second = ends.partition("->" if verb == "send" else "<-")
    if not arrow or not (first.isdecimal() and second.isdecimal()):
        return None
    pair = (int(first), int(second)) if verb == "send" else (int(second), int(first))
    if max(pair) >= len(members):
        return None
    return members[pair[0]], members[pair[1]]


# --- in words --------------------------------------------------------------------------------------


def lines(records: Sequence[Record], by: str = "flight record") -> Iterator[tuple[str, int, str]]:
    """(file, rank, line) of what is wrong, as lines of a log, the root of it first. by: who says it."""
    by_rank = {record.rank: record for record in records}
    found = mismatches(records)
    waits = {rank: one for one in reversed(found) for rank in one.waiting}
    rows = [row for one in found for row in _rows(one, by_rank, waits)]
    for _, rank, text in sorted(rows, key=lambda row: row[0]):
        file = by_rank[rank].file if rank in by_rank else next(iter(by_rank.values())).file
        yield file, rank, f"[rank{rank}]: {by}: {text}"


def _rows(
    one: Mismatch, by_rank: Mapping[int, Record], waits: Mapping[int, Mismatch]
) -> Iterator[tuple[int, int, str]]:
    """(0 for the gravest, rank, text) of what is wrong in one group.

    A rank that did not come because it waits in another group is no root; ranks that wait for each other are.
    """
    where = _where(one)
    if one.kind == "unpaired":
        yield 1, one.waiting[0], f"{where}: no partner: {_partner(one)}"
        return
    first, peers = one.calls[0]
    for call, ranks in one.calls[1:]:
        position = f", at {call.where}" if call.where else ""
        text = f"{_fault(call, first)}: {in_words(ranks)} called {_call(call)}{position}"
        yield 0, ranks[0], f"{where}: {text} where {in_words(peers)} called {_call(first)}"
    for rank in one.absent:
        if rank not in waits:
            wait = "wait" if len(one.waiting) > 1 else "waits"
            peers_wait = f"{in_words(one.waiting)} {wait} for in {_call(first)}"
            text = f"never entered by {in_words([rank])}, which {peers_wait}"
            last = f"its last there was {_last(by_rank[rank], one.group)}{_since(one, by_rank[rank])}"
            yield 1, rank, f"{where}: {text}; {last}"
        elif _cycle(rank, one, waits):
            other = f"{in_words([rank])} waits in {_where(waits[rank])}"
            text = f"another order of groups: {other}, while {in_words(one.waiting)} wait for it here"
            yield 0, rank, f"{where}: mismatch: {text}"
    if one.kind == "stalled":
        text = f"not begun on {in_words(one.stalled)}, whose GPU is at something else"
        yield 2, one.stalled[0], f"{where}: {text}"
    if one.kind == "uneven":
        text = f"the sizes of {first.name} do not add up over all ranks"
        yield 0, one.waiting[0], f"{where}: mismatch: {text}"
    if one.lost:
        yield 3, one.lost[0], f"{where}: no record of {in_words(one.lost)}"


def _fault(one: Operation, other: Operation) -> str:
    """Lists of tensors may be of several sizes where the backend allows it."""
    return "uneven sizes" if one.name == other.name and one.name in MAY_BE_UNEVEN else "mismatch"


def _partner(one: Mismatch) -> str:
    (call, ranks), *others = one.calls
    if others:
        other, peers = others[0]
        return f"{in_words(ranks)} called {_call(call)}, and {in_words(peers)} {_call(other)}"
    return f"{in_words(ranks)} waits in {_call(call)} for {in_words(one.absent)}, which has no such call"


def _cycle(rank: int, mismatch: Mismatch, waits: Mapping[int, Mismatch]) -> bool:
    """Whether following who waits for whom comes back to this group."""
    visited: set[int] = set()
    queue = [rank]
    while queue:
        one = queue.pop()
        if one not in visited and one in waits:
            visited.add(one)
            if one != rank and one in mismatch.waiting:
                return True
            queue += waits[one].absent
    return False


def _where(one: Mismatch) -> str:
    name = f" ({one.text})" if one.text and one.text != "undefined" else ""
    return f"group {one.group}{name}, {'operation' if one.kind == 'unpaired' else 'collective'} {one.number}"


def _call(one: Operation) -> str:
    sizes = ",".join("x".join(map(str, size)) or "scalar" for size in (one.inputs or one.outputs)[:3])
    types = "/".join(dict.fromkeys((*one.input_dtypes, *one.output_dtypes)))
    return f"{one.name}({sizes}{' ' if types else ''}{types})" if sizes or types else one.name


def _last(record: Record, group: str) -> str:
    last = next((one for one in reversed(record.operations) if one.group == group), None)
    if last is None:
        return "none"
    state = f", {last.state}" if record.backend != "gloo" else ""  # whose never changes
    return f"{last.number} ({last.name}{state})"


def _since(one: Mismatch, record: Record) -> str:
    """How long before the others' call this rank did anything at all that was recorded."""
    came = min((call.created for call, _ in one.calls if call.created), default=0.0)
    last = max((each.created for each in record.operations), default=0.0)
    if not came or not last:
        return ""
    when = datetime.fromtimestamp(came, UTC)
    return f", {abs(came - last):.1f} s {'before' if last <= came else 'after'} they came at {when:%H:%M:%S}"


def in_words(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 0-2,5``."""
    parts = ranges(sorted(ranks))
    more = f" and {len(parts) - 8} ranges more" if len(parts) > 8 else ""
    return f"rank{'s' * (len(ranks) > 1)} {','.join(parts[:8])}{more}"
