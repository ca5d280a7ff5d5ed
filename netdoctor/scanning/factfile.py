"""Lines of facts that tasks of a job write: as in `factlines`, with what the task knows of the job.

    {"schema":"netdoctor.facts/1","node":"gpu03","version":"0.1.0","taken":"2026-11-22T08:01:12.345Z",
     "task":{"launcher":"slurm","job":"slurm 12","rank":3},"job":{"MASTER_ADDR":"gpu00"},
     "session":{"interpreter":"/opt/bin/python3","python":"3.12.1"},"facts":{"host":{"value":{…}},…},
     "crc":"1c291ca3"}

in one line and in this order, so that what is left of a broken one still says whose it is. Other lines, as in
the log of a pod or of mpirun, are passed over, and so is what a launcher puts before each line. Tasks that
share a pipe may tear each other's lines so that the halves fit: the CRC-32 of what stands before it tells. A
line that no task wrote has none.
"""

import re
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from netdoctor.compat import StrEnum, instant
from netdoctor.factlines import SCHEMA
from netdoctor.inventory.names import is_valid_host, node_id
from netdoctor.inventory.task import COUNT_MAX, NODES_MAX, TEXT_MAX, Task
from netdoctor.jsontext import encode_line
from netdoctor.text import clean

NAME, _, MAJOR = SCHEMA.partition("/")
SUFFIX = ".facts.jsonl"
HEAD = f'{{"schema":"{NAME}/'.encode()
# Of the task's environment, what tells where the job meets.
MEETING = ("MASTER_ADDR", "MASTER_PORT")

_CRC = b',"crc":"%08x"}\n'
_END = len(_CRC % 0) - 1
_NODE = re.compile(rb'"netdoctor\.facts/([0-9]{1,9})","node":"([A-Za-z0-9_.:%-]{1,253})"')
_Short = Annotated[str, Meta(max_length=TEXT_MAX)]
_Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)] | None


class Fault(StrEnum):
    """Why what was written of a node does not count. The words stand for ``session.stage``."""

    ABSENT = "absent"
    OLD = "old"
    EARLY = "early"
    BROKEN = "broken"
    FORMAT = "format"
    OTHER_JOB = "other_job"
    TWICE = "twice"
    FOREIGN = "stranger"
    UNREAD = "unread"


class _Task(Struct):
    """Task, as somebody else may have written it."""

    launcher: _Short = ""
    job: _Short = ""
    rank: _Count = None
    world: _Count = None
    local_rank: _Count = None
    local_world: _Count = None
    node_rank: _Count = None
    nodes: _Count = None
    nodelist: Annotated[str, Meta(max_length=NODES_MAX)] = ""


class _Line(Struct, rename={"collected_at": "taken"}):
    schema: str
    node: str
    version: _Short = ""
    collected_at: _Short = ""
    task: _Task = msgspec.field(default_factory=_Task)
    job: Annotated[dict[str, _Short], Meta(max_length=len(MEETING))] = {}
    session: Annotated[dict[_Short, _Short], Meta(max_length=16)] = {}
    facts: msgspec.Raw = msgspec.Raw(b"{}")
    crc: _Short = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one line says."""

    position: str  # ``gpu03.facts.jsonl:1``
    node: str = ""  # empty where that cannot be told any more
    version: str = ""
    written: float = 0.0  # seconds since the epoch, by the node's own clock
    task: Task = field(default_factory=Task)
    job: Mapping[str, str] = field(default_factory=dict)
    python: tuple[str, str] = ("", "")  # the interpreter and its version
    facts: bytes = b"{}"  # JSON, undecoded
    fault: Fault | None = None  # why it does not count, and that in words
    detail: str = ""


def encode(
    node: str,
    *,
    version: str,
    collected_at: str,
    task: Task,
    job: Mapping[str, str],
    session: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> bytes:
    """One line with its end. collected_at: as of factlines.now(). facts: an agent's answer by group."""
    line = {
        "schema": SCHEMA,
        "node": node,
        "version": version,
        "taken": collected_at,
        "task": {name: value for name, value in asdict(task).items() if value not in (None, "")},
        "job": {name: job[name] for name in MEETING if job.get(name)},
        "session": session,
        "facts": facts,
    }
    body = encode_line(line)[: -len("}\n")]
    return body + _CRC % zlib.crc32(body)


_decode = msgspec.json.Decoder(_Line).decode


def decode(line: bytes, position: str) -> Written | None:
    """What a line says, None where it is no line of facts. Never raises."""
    at = line.find(HEAD)
    if at < 0:
        return None
    text = line[at:].rstrip(b"\r\n")
    node_match = _NODE.search(text)
    node = node_id(node_match[2].decode()) if node_match and is_valid_host(node_match[2].decode()) else ""
    if node_match and node_match[1].decode() != MAJOR:
        detail = (
            f"it has format {node_match[1].decode()}, this netdoctor reads {MAJOR}; use the one that wrote it"
        )
        return Written(position=position, node=node, fault=Fault.FORMAT, detail=detail)
    if not node:
        return _broken(position, node, "it does not say whose it is")
    if text.count(HEAD) > 1:
        return _broken(position, node, "another line begins in the middle of it: two tasks wrote at once")
    try:
        found = _decode(text)
        written = _seconds(found.collected_at)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # One that is cut behind an inner object ends in a brace, too.
        is_cut = not text.endswith(b"}") or "truncated" in str(error)
        cut = "; the line seems cut off" if is_cut else ""
        return _broken(position, node, f"{clean(str(error), 120)}{cut}")
    except ValueError as error:
        return _broken(position, node, f"it does not say when it was written: {clean(str(error), 80)}")
    sealed = text[-_END:] == (_CRC % zlib.crc32(text[:-_END])).rstrip(b"\n")
    if not sealed and (found.crc or found.task != _Task()):
        return _broken(
            position, node, "its checksum is another one: a part of it is lost, or of another line"
        )
    return Written(
        position=position,
        node=node,
        version=clean(found.version, 40),
        written=written,
        task=Task(**{name: getattr(found.task, name) for name in _Task.__struct_fields__}),
        job={name: value for name, value in found.job.items() if name in MEETING},
        python=(clean(found.session.get("interpreter", ""), 200), clean(found.session.get("python", ""), 20)),
        facts=bytes(found.facts),
    )


def _seconds(stamp: str) -> float:
    """Of RFC 3339, since the epoch. Raises ValueError."""
    when = instant(stamp)
    if when.tzinfo is None or not 1970 < when.year < 9000:
        raise ValueError(f"{stamp} is no such time")
    return when.timestamp()


def _broken(position: str, node: str, why: str) -> Written:
    return Written(position=position, node=node, fault=Fault.BROKEN, detail=why)


def name_of(node: str) -> str:
    """The file of a node in a folder of them. node: a host name or address, which has no slash in it."""
    return f"{node}{SUFFIX}"
