"""Flight records of torch: what each rank's file says, as plain data.

torch writes one file a rank when a collective times out (TORCH_FR_DUMP_TEMP_FILE and the rank's number), as a
pickle; `_dump_nccl_trace_json` and `_dump_fr_trace_json` give the same as JSON. Format 2.0 to 2.10:
torch/csrc/distributed/c10d/FlightRecorderDetail.hpp.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from netdoctor.explain import plain_pickle

PICKLE_MAX = 32 << 20
JSON_MAX = 12 << 20  # lists of one character each are the most expensive
HEAD = 4096
# Operations of one rank that are looked at, the last ones; fewer where there are very many ranks.
ENTRIES_MAX, ENTRIES_MIN, ENTRIES_IN_ALL = 20_000, 64, 400_000
TENSORS_MAX = 64  # of one operation that are compared
T = TypeVar("T")
_MARKS = (b"collective_seq_id", b"pg_config", b"nccl_comm_state", b"comm_lib_version")
_RANK = re.compile(r"(\d{1,7})(?:\.(?:json|pickle|pkl|dump|txt))?$")


class FlightError(ValueError):
    """A flight record that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation as one rank recorded it."""

    group: str
    number: int  # in its group, from 1; of a send or receive among those
    name: str  # ``all_reduce``, ``send 0->1`` (ranks of the group)
    p2p: bool = False
    inputs: tuple[tuple[int, ...], ...] = ()  # sizes of the tensors
    outputs: tuple[tuple[int, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    state: str = ""  # ``scheduled``, ``started``, ``completed``; gloo's stay scheduled
    created: float = 0.0  # seconds since 1970, 0 if not known
    where: str = ""  # the program's line that called it


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One rank's file."""

    file: str
    rank: int
    backend: str
    operations: tuple[Operation, ...]
    members: Mapping[str, tuple[int, ...]]  # ranks of each group, where the file has them
    texts: Mapping[str, str]  # what a group is for
    wrapped: bool = False  # the ring was full, and older operations are gone


def is_record(head: bytes) -> bool:
    """Whether a file begins as a flight record does. head: its first HEAD bytes."""
    start = head[:HEAD].lstrip()
    if start[:1] == b"\x80":
        return any(mark in head for mark in _MARKS)
    return start[:1] == b"{" and any(b'"%s"' % mark in head for mark in _MARKS)


def rank_of(file: str) -> int | None:
    """The number at the end of a file's name, which is the rank."""
    found = _RANK.search(os.path.basename(file))
    return int(found[1]) if found else None


def read(data: bytes, file: str, most: int = ENTRIES_MAX) -> Record:
    """A record from the bytes of its file, the last `most` operations. Raises FlightError."""
    limit = PICKLE_MAX if data[:1] == b"\x80" else JSON_MAX
    if len(data) > limit:
        raise FlightError(f"a flight record of more than {limit >> 20} MiB")
    rank = rank_of(file)
    if rank is None:
        raise FlightError("a flight record whose file name does not end in its rank's number")
    try:
        content = plain_pickle.load(data) if data[:1] == b"\x80" else json.loads(data)
    except plain_pickle.NotPlain as error:
        raise FlightError(f"a flight record that is not read: {error}") from None
    except (ValueError, RecursionError):
        raise FlightError("a flight record whose JSON is damaged") from None
    entries = content.get("entries") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise FlightError("a flight record without entries")
    begins = entries[0].get("record_id") if entries and isinstance(entries[0], dict) else 0
    wrapped = len(entries) > most or begins not in (0, None)
    entries = entries[-most:]
    operations = [operation for entry in entries if (operation := _operation(entry)) is not None]
    if len(operations) < len(entries):
        raise FlightError("a flight record with entries of another form")
    members, texts = _groups(content.get("pg_config"))
    for entry in entries:
        group = entry["process_group"]
        texts.setdefault(str(group[0])[:100], str(group[1])[:100])
    backend = str(entries[-1]["profiling_name"]).partition(":")[0][:20] if entries else ""
    return Record(
        file=file,
        rank=rank,
        backend=backend,
        operations=tuple(operations),
        members=members,
        texts=texts,
        wrapped=wrapped,
    )


def _operation(entry: Any) -> Operation | None:
    if not isinstance(entry, dict):
        return None
    group, name = entry.get("process_group"), entry.get("profiling_name")
    p2p = entry.get("is_p2p") is True
    number = entry.get("p2p_seq_id" if p2p else "collective_seq_id")
    if not (
        isinstance(group, list | tuple)
        and len(group) == 2
        and all(isinstance(one, str) for one in group)
        and isinstance(name, str)
        and isinstance(number, int)
    ):
        return None
    created = entry.get("time_created_ns")
    return Operation(
        group=sys.intern(group[0][:100]),
        number=number,
        name=sys.intern(name.partition(":")[2][:80] or name[:80]),
        p2p=p2p,
        inputs=_sizes(entry.get("input_sizes")),
        outputs=_sizes(entry.get("output_sizes")),
        input_dtypes=_texts(entry.get("input_dtypes")),
        output_dtypes=_texts(entry.get("output_dtypes")),
        state=sys.intern(str(entry.get("state", ""))[:20]),
        created=created / 1e9 if isinstance(created, int) and 0 <= created < 1 << 63 else 0.0,
        where=_where(entry.get("frames")),
    )


def _sizes(value: Any) -> tuple[tuple[int, ...], ...]:
    return _same(tuple(_numbers(one) for one in _items(value) if isinstance(one, list | tuple)))


def _numbers(sizes: Any) -> tuple[int, ...]:
    return tuple(n for n in _items(sizes) if isinstance(n, int) and abs(n) < 1 << 63)


def _texts(value: Any) -> tuple[str, ...]:
    return _same(tuple(one[:40] for one in _items(value) if isinstance(one, str)))


def _items(value: Any, most: int = TENSORS_MAX) -> Sequence[Any]:
    return value[:most] if isinstance(value, list | tuple) else ()


_interned: dict[Any, Any] = {}


def _same(value: T) -> T:
    """One object for equal ones: there are few kinds of calls and very many calls."""
    if len(_interned) > 10_000:
        _interned.clear()
    return _interned.setdefault(value, value)  # type: ignore[no-any-return]  # it is equal to `value`


def _where(frames: Any) -> str:
    """The innermost frame that is not torch's own."""
    for frame in _items(frames, 200):
        if isinstance(frame, dict):
            name, file, line = frame.get("name"), frame.get("filename"), frame.get("line")
            if isinstance(file, str) and "/torch/" not in file:
                return sys.intern(f"{file[-200:]}:{str(line)[:10]} in {str(name)[:80]}")
    return ""


def _groups(config: Any) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    members: dict[str, tuple[int, ...]] = {}
    texts: dict[str, str] = {}
    for key, group in config.items() if isinstance(config, dict) else ():
        if not isinstance(group, dict):
            continue
        name = str(group.get("name", key))[:100]
        ranks = group.get("ranks")
        numbers = re.findall(r"\d{1,7}", ranks) if isinstance(ranks, str) else ranks
        found = tuple(sorted({int(n) for n in _items(numbers, 100_000) if str(n).isdecimal()}))
        if found:
            members[name] = found
            texts[name] = str(group.get("desc", ""))[:100]
    return members, texts
