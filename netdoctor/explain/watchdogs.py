"""What torch's watchdogs print of each rank's collectives, compared over all ranks. Pure.

Once a collective of a group timed out, every rank says which one it called last and which was done last
(pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, 2.2 and newer). Who called fewer than the
others wait in did not come. Of a group that is a part of the job only those who wait in it print that: who
waits nowhere, where nearly all do, did not come there. What it did instead, its flight record or stack says.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from netdoctor.explain import desync
from netdoctor.explain.flight import Operation, Record
from netdoctor.explain.lines import speaker

STATUSES_MAX = 200_000
# What others wait in, all before it are done: who is further behind counts something else (sends have numbers
# of their own).
BEHIND_MAX = 64
# Where more than one rank in so many waits in nothing, the time of the first is up and others may yet come.
ELSEWHERE_ONE_IN = 4
_MARK = b"ast enqueued "
_STATUS = re.compile(
    r"(?: at (?:NCCL )?work(?: sequence id)?: (?P<at>\d{1,18})\D{1,20})?"
    r"last enqueued (?:NCCL )?work: (?P<last>-?\d{1,18}), "
    r"last completed (?:NCCL )?work: (?P<done>-?\d{1,18})",
    re.I,
)
# [PG ID 2 PG GUID 3(tp) Rank 1]; [PG 0 (default_pg) Rank 3] of 2.3 and 2.4; [Rank 3] before that
_GROUP = re.compile(r"\[(?:PG (?:ID \d+ PG GUID )?(\w{1,64}) ?(?:\(([^()]{1,80})\) ?)?)?Rank \d+\]")


class Status(NamedTuple):
    """How far a rank is in a group."""

    file: str
    number: int  # of the line
    last: int
    done: int
    at: int | None  # that timed out


class Watchdogs:
    """Takes in logs, block by block."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[int, Status]] = {}
        self._count = 0
        self._texts: dict[str, str] = {}
        self._unclear: set[str] = set()  # groups that began anew, or are of two jobs in one log

    def block(self, file: str, data: bytes, number: int) -> None:
        """Take in a block of a log. number: of its first line."""
        at = data.find(_MARK)
        while at >= 0 and self._count < STATUSES_MAX:
            start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            end = len(data) if end < 0 else end
            text = data[max(start, at - 1000) : min(end, at + 200)].decode("utf-8", "replace")
            self._line(file, number + data.count(b"\n", 0, start), text)
            at = data.find(_MARK, end)

    def _line(self, file: str, number: int, text: str) -> None:
        found, group, rank = _STATUS.search(text), _GROUP.search(text), speaker(text).rank
        if found is None or group is None or rank is None:
            return
        name = group[1] or "0"
        last, done, at = int(found["last"]), int(found["done"]), int(found["at"]) if found["at"] else None
        statuses = self._groups.setdefault(name, {})
        known = statuses.get(rank)
        if done > last or (known is not None and last < known.last):
            self._unclear.add(name)
        self._texts.setdefault(name, group[2] or ("default_pg" if name == "0" else ""))
        if known is None or (known.at is None and at is not None):
            self._count += known is None
            statuses[rank] = Status(file, number, last, done, at)

    def lines(self, world: int | None) -> Iterator[tuple[str, int, str]]:
        """(file, number, line) of who did not come, as lines of a log. world: ranks of the job, if known."""
        operations: dict[int, list[Operation]] = {}
        for name in sorted(self._groups.keys() - self._unclear):
            for rank, one in _at_the_first(name, self._groups[name]):
                operations.setdefault(rank, []).append(one)
        records = [
            Record(file="", rank=rank, backend="nccl", operations=tuple(each), members={}, texts=self._texts)
            for rank, each in operations.items()
        ]
        every = [pair for statuses in self._groups.values() for pair in statuses.items()]
        status_of = dict(reversed(every))
        waiters = {rank for rank, one in every if one.at is not None}
        elsewhere = sorted(status_of.keys() - waiters - {rank for rank, one in every if one.last > one.done})
        absent = [(rank, text) for _, rank, text in desync.lines(records, "watchdogs") if rank not in waiters]
        few = 0 < len(elsewhere) * ELSEWHERE_ONE_IN <= len(status_of)
        if few and waiters and not (absent or self._unclear):
            waited = f"waited in nothing when the time of {len(waiters)} others was up"
            text = f"[rank{elsewhere[0]}]: watchdogs: {desync.in_words(elsewhere)} {waited}"
            absent = [(elsewhere[0], text)]
        waiting = [one for one in records if one.operations[0].state != desync.DONE]
        if world and world > 1 and len(waiting) == world and len({one.operations[0] for one in waiting}) == 1:
            first = waiting[0].operations[0]
            where = f"group {first.group}, collective {first.number}"
            absent = [(waiting[0].rank, f"watchdogs: {where}: entered by all {world} ranks, done by none")]
        for rank, text in absent:
            yield status_of[rank].file, status_of[rank].number, text


def _at_the_first(group: str, statuses: Mapping[int, Status]) -> Iterator[tuple[int, Operation]]:
    """What each rank is at: the first that timed out, or what it called last before that."""
    first = min((one.at for one in statuses.values() if one.at is not None), default=None)
    if first is None or any(one.last < first - BEHIND_MAX for one in statuses.values()):
        return
    for rank, one in statuses.items():
        number = min(one.last, first)
        state = desync.DONE if number <= one.done else "enqueued"
        yield rank, Operation(group=group, number=number, name="a collective", state=state)
