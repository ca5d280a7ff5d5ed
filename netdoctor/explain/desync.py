"""Flight records of several ranks, held against each other: who did not come, who called another. Pure.

In each process group, operation k of one rank meets operation k of every other. The first that does not fit
is told; what comes after it is its doing.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from netdoctor.explain.flight import Operation, Record

SIZES_DIFFER = ("all_to_all", "all_gather_v", "reduce_scatter_v")
MAY_BE_UNEVEN = ("all_gather", "reduce_scatter", "gather", "scatter")
DONE = "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The first operation of a group that does not fit.

    group, text: the group's name and what it is for. number: of the operation. calls: what ranks called, each
    call with its ranks, the most usual first. absent: ranks that never came; held: ranks whose operation
    waits behind others on their GPU while their peers' runs. lost: members without a record. kind:
    ``absent``, ``different``, ``held``, ``uneven`` (of all_to_all: more is sent than received, or less) or
    ``unpaired`` (a send without its receive, or one of another size).
    """

    kind: str
    group: str
    text: str
    number: int
    calls: tuple[tuple[Operation, tuple[int, ...]], ...]
    absent: tuple[int, ...] = ()
    held: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()

    @property
    def waiting(self) -> tuple[int, ...]:
        return tuple(sorted(rank for _, ranks in self.calls for rank in ranks))


def troubles(records: Iterable[Record]) -> list[Trouble]:
    """What does not fit, at most one operation a group, in order of groups."""
    by_rank = {record.rank: record for record in records}
    found: list[Trouble] = []
    for (group, members), texts in _groups(by_rank).items():
        present = {rank: by_rank[rank] for rank in members if rank in by_rank}
        if len(present) < 2:
            continue
        lost = tuple(rank for rank in members if rank not in by_rank)
        trouble = _first(group, texts, present, lost) or _unpaired(group, texts, members, present)
        if trouble is not None:
            found.append(trouble)
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


def _first(group: str, text: str, present: Mapping[int, Record], lost: tuple[int, ...]) -> Trouble | None:
    steps = {rank: _steps(record, group) for rank, record in present.items()}
    begun = [min(mine) for mine in steps.values() if mine]
    if not begun:
        return None
    start = max(begun)
    numbers = sorted({number for mine in steps.values() for number in mine if number >= start})
    for number in numbers:
        here = {rank: mine[number] for rank, mine in steps.items() if number in mine}
        absent = tuple(
            rank
            for rank, mine in steps.items()
            if rank not in here and (max(mine) < number if mine else not present[rank].wrapped)
        )
        calls = _calls(here)
        if absent and any(_open(one) for ops in here.values() for one in ops):
            kind = "absent"
        elif len(calls) > 1:
            kind = "different"
        elif not lost and _uneven(here):
            kind = "uneven"
        else:
            held = _held(here)
            if not held or number < numbers[-1]:
                continue
            return Trouble(
                kind="held", group=group, text=text, number=number, calls=calls, held=held, lost=lost
            )
        return Trouble(
            kind=kind, group=group, text=text, number=number, calls=calls, absent=absent, lost=lost
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
    """Different calls with their ranks, the most usual first."""
    signatures = {rank: tuple(_signature(one) for one in ops) for rank, ops in here.items()}
    usual = Counter(signatures.values())
    order = sorted(
        usual, key=lambda one: (-usual[one], min(rank for rank, own in signatures.items() if own == one))
    )
    found = []
    for signature in order:
        ranks = tuple(sorted(rank for rank, own in signatures.items() if own == signature))
        ops = here[ranks[0]]
        other = signatures[next(iter(here))] if signature == order[0] else order[0]
        odd = next((i for i, one in enumerate(signature) if i >= len(other) or other[i] != one), 0)
        found.append((ops[odd], ranks))
    return tuple(found)


def _signature(one: Operation) -> tuple[object, ...]:
    """What has to be equal on all ranks: of a scatter only the outputs, of a gather only the inputs."""
    free = one.name.startswith(SIZES_DIFFER)
    inputs = () if free or one.name == "scatter" else one.inputs
    outputs = () if free or one.name == "gather" else one.outputs
    alike = any(one.inputs) and one.name not in ("scatter", "broadcast")
    in_types = frozenset(one.input_dtypes) if alike else 0
    out_types = frozenset(one.output_dtypes) if any(one.outputs) and one.name != "gather" else 0
    return (one.name, inputs, outputs, in_types, out_types)


def _uneven(here: Mapping[int, Sequence[Operation]]) -> bool:
    """Whether an all_to_all sends another number of elements than it receives, over all ranks."""
    every = [ops[0] for ops in here.values()]
    if not every[0].name.startswith("all_to_all"):
        return False
    sent, got = (sum(math.prod(size) for one in every for size in sizes(one)) for sizes in (_ins, _outs))
    return sent != got


def _ins(one: Operation) -> tuple[tuple[int, ...], ...]:
    return one.inputs[:1]


def _outs(one: Operation) -> tuple[tuple[int, ...], ...]:
    return one.outputs[:1]


def _held(here: Mapping[int, Sequence[Operation]]) -> tuple[int, ...]:
    """Ranks that have it scheduled only, where others have begun."""
    states = {rank: ops[-1].state for rank, ops in here.items()}
    if "started" not in states.values() or DONE in states.values():
        return ()
    return tuple(sorted(rank for rank, state in states.items() if state == "scheduled"))


# --- sends and receives ----------------------------------------------------------------------------


def _unpaired(group: str, text: str, members: Sequence[int], present: Mapping[int, Record]) -> Trouble | None:
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
                return Trouble(kind="unpaired", group=group, text=text, number=one.number, calls=calls)
        longer, waits, missing = (out, ends[0], ends[1]) if len(out) > len(into) else (into, ends[1], ends[0])
        shorter = min(len(out), len(into))
        if len(longer) > shorter and _open(longer[shorter]):
            return Trouble(
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
    places = (int(first), int(second)) if verb == "send" else (int(second), int(first))
    if max(places) >= len(members):
        return None
    return members[places[0]], members[places[1]]


# --- in words --------------------------------------------------------------------------------------


def lines(records: Sequence[Record]) -> Iterator[tuple[str, int, str]]:
    """(file, rank, line) of what is wrong, as lines of a log, the root of it first.

    A rank that did not come because it waits in another group is no root; ranks that wait for each other are.
    """
    by_rank = {record.rank: record for record in records}
    found = troubles(records)
    waits = {rank: one for one in reversed(found) for rank in one.waiting}
    told: list[tuple[int, int, str]] = []
    for one in found:
        roots = [rank for rank in one.absent if rank not in waits]
        where = _where(one)
        if one.kind != "unpaired" and len(one.calls) > 1:
            first, usual = one.calls[0]
            for call, ranks in one.calls[1:]:
                at = f", at {call.where}" if call.where else ""
                told.append(
                    (
                        0,
                        ranks[0],
                        f"{where}: {_fault(call, first)}: {_ranks(ranks)} called {_call(call)}{at} "
                        f"where {_ranks(usual)} called {_call(first)}",
                    )
                )
        if one.kind == "unpaired":
            told.append((1, one.waiting[0], f"{where}: no partner: {_partner(one)}"))
            continue
        for rank in roots:
            last = _last(by_rank[rank], one.group)
            told.append(
                (
                    1,
                    rank,
                    f"{where}: never entered by {_ranks([rank])}, which {_ranks(one.waiting)} wait for "
                    f"in {_call(one.calls[0][0])}; its last there was {last}{_since(one, by_rank[rank])}",
                )
            )
        for rank in one.absent:
            if rank in waits and _cycle(rank, one, waits):
                other = waits[rank]
                told.append(
                    (
                        0,
                        rank,
                        f"{where}: mismatch: another order of groups: {_ranks([rank])} waits in "
                        f"{_where(other, short=True)}, while {_ranks(one.waiting)} wait for it here",
                    )
                )
        if one.kind == "held":
            said = f"{where}: not begun on {_ranks(one.held)}, whose GPU is at something else"
            told.append((2, one.held[0], said))
        if one.kind == "uneven":
            said = f"{where}: mismatch: the sizes of {one.calls[0][0].name} do not add up over all ranks"
            told.append((0, one.waiting[0], said))
        if one.lost:
            told.append((3, one.lost[0], f"{where}: no record of {_ranks(one.lost)}"))
    for _, rank, text in sorted(told, key=lambda one: one[0]):
        file = by_rank[rank].file if rank in by_rank else next(iter(by_rank.values())).file
        yield file, rank, f"[rank{rank}]: flight record: {text}"


def _fault(one: Operation, usual: Operation) -> str:
    """Lists of tensors may be of several sizes where the backend allows it."""
    return "uneven sizes" if one.name == usual.name and one.name in MAY_BE_UNEVEN else "mismatch"


def _partner(one: Trouble) -> str:
    (call, ranks), *others = one.calls
    if others:
        other, peers = others[0]
        return f"{_ranks(ranks)} called {_call(call)}, and {_ranks(peers)} {_call(other)}"
    return f"{_ranks(ranks)} waits in {_call(call)} for {_ranks(one.absent)}, which has no such call"


def _cycle(rank: int, trouble: Trouble, waits: Mapping[int, Trouble]) -> bool:
    """Whether following who waits for whom comes back to this group."""
    seen: set[int] = set()
    at = [rank]
    while at:
        one = at.pop()
        if one in seen or one not in waits:
            continue
        seen.add(one)
        if one != rank and one in trouble.waiting:
            return True
        at += waits[one].absent
    return False


def _where(one: Trouble, short: bool = False) -> str:
    name = f"{one.text} " if one.text and one.text != "undefined" else ""
    place = f"group {one.group}" + (f" ({name.strip()})" if name else "")
    return f"{place}, {'operation' if one.kind == 'unpaired' else 'collective'} {one.number}"


def _call(one: Operation) -> str:
    sizes = ",".join("x".join(map(str, size)) or "scalar" for size in (one.inputs or one.outputs)[:3])
    types = "/".join(dict.fromkeys((*one.input_dtypes, *one.output_dtypes)))
    return f"{one.name}({sizes}{' ' if types else ''}{types})"


def _last(record: Record, group: str) -> str:
    mine = [one for one in record.operations if one.group == group]
    if not mine:
        return "none"
    state = f", {mine[-1].state}" if record.backend != "gloo" else ""  # whose never changes
    return f"{mine[-1].number} ({mine[-1].name}{state})"


def _since(one: Trouble, record: Record) -> str:
    """How long before the others' call this rank did anything at all that was recorded."""
    came = min((call.created for call, _ in one.calls if call.created), default=0.0)
    last = max((each.created for each in record.operations), default=0.0)
    if not came or not last:
        return ""
    when = datetime.fromtimestamp(came, UTC)
    return f", {abs(came - last):.1f} s {'before' if last <= came else 'after'} they came at {when:%H:%M:%S}"


def _ranks(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 0-2,5``."""
    parts: list[str] = []
    ordered = sorted(ranks)
    start = previous = ordered[0]
    for rank in [*ordered[1:], -2]:
        if rank != previous + 1:
            parts.append(f"{start}-{previous}" if previous > start else f"{start}")
            start = rank
        previous = rank
    shown = ",".join(parts[:8]) + (f" and {len(parts) - 8} ranges more" if len(parts) > 8 else "")
    return f"rank{'s' * (len(ordered) > 1)} {shown}"
