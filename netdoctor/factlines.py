"""Facts in lines: what was learnt of one node, one JSON object to a line, to be judged wherever it is read.

    {"schema":"netdoctor.facts/1","node":"gpu-a01","version":"0.1.0","taken":"2026-11-22T08:01:12.345Z",
     "facts":{"limits":{"value":{"nofile_soft":1024}},"rdma":{"missing":{"why":"timed_out","detail":"…"}}}}

stands in one line, with a newline at its end. Lines of any nodes, in any order and from any releases may
follow each other, so files are joined by `cat`, all plain or all compressed (gzip). A group of facts holds
``value`` or ``missing``, as agents reply and as `store.decode` takes it, which also checks it: here a group
is any object, and node and version are any text. Within a major version of the schema fields are only added;
a reader passes over those that it does not know.

    line = Line(node="gpu-a01", version=__version__, taken=now(), facts=reply)
    file.write(encode(line))

    with open(path, "rb") as file:               # whose, and of which mode, is the caller's to ask
        for place, line in read(file, str(path)):
            facts = {group: store.decode(group, raw) for group, raw in line.facts.items()}

Raises InputError that begins with file and line. What is read is a stranger's: a line has a greatest size,
depth and number of values, a file a greatest number of bytes when expanded, and nothing is held but one line.
"""

import gzip
import io
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from netdoctor.compat import UTC, instant
from netdoctor.errors import InputError
from netdoctor.jsontext import depth, encode_line, has_more
from netdoctor.text import clean

SCHEMA = "netdoctor.facts/1"
# An agent's reply has at most 8 MiB. Some 15 kB are usual.
LINE_MAX = 16 << 20
VALUES_MAX = 400_000
DEPTH_MAX = 64
NAME_MAX = 300
# Expanded: a gigabyte of zeros is a megabyte.
FILE_MAX = 2 << 30
# A file of nothing but line ends would be read for minutes.
LINES_MAX = 4_000_000
_GZIP = b"\x1f\x8b"
# How `encode` begins a line: whose schema needs no reading of its own.
_OURS = f'{{"schema":"{SCHEMA}",'.encode()
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What is known of a node."""

    node: str  # its id, as a hosts file would name it
    version: str  # of the netdoctor that asked
    taken: str  # when its facts were complete, RFC 3339 in UTC with milliseconds
    # By group ``{"value": …}`` or ``{"missing": {"why": …, "detail": …}}``; when encoded a value may be a
    # fact's own dataclass, unread it is JSON.
    facts: Mapping[str, Any]


def now() -> str:
    """This moment, as `Line.taken` has it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encode(line: Line) -> bytes:
    """Return the line, its end included: UTF-8 that no terminal can be steered by."""
    return encode_line({"schema": SCHEMA, **{name: getattr(line, name) for name in Line.__slots__}})


class _Head(msgspec.Struct):
    schema: str


class _Wire(msgspec.Struct):
    node: str
    version: str
    taken: str
    facts: dict[str, dict[str, Any]]


class _Unread(msgspec.Struct):
    node: str
    version: str
    taken: str
    facts: dict[str, msgspec.Raw]


_head = msgspec.json.Decoder(_Head)
_wire: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Wire)
_unread: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Unread)


def decode(data: bytes, position: str, unread: bool = False) -> Line:
    """Return the line in `data`. place: ``file:line``, for messages. Raises InputError.

    unread: with each fact as the JSON that it came as, which is all that `store.decode` needs.
    """

    def refuse(why: object) -> InputError:
        return InputError(f"{position}: {clean(str(why), 200)}")

    if is_too_large(data):
        raise refuse(f"the line has more than {LINE_MAX >> 20} MiB or {VALUES_MAX} values")
    if depth(data, DEPTH_MAX) > DEPTH_MAX:
        raise refuse(f"the line is nested more than {DEPTH_MAX} deep")
    try:
        if not data.startswith(_OURS):
            _check_schema(_head.decode(data).schema)
        wire = (_unread if unread else _wire).decode(data)
    except msgspec.ValidationError as error:
        raise refuse(f"not a line of facts: {error}; netdoctor facts writes them") from None
    except msgspec.DecodeError as error:
        raise refuse(f"not JSON ({error}); the file may be cut off here") from None
    except UnicodeDecodeError as error:
        raise refuse(f"not UTF-8 ({error.reason})") from None
    except InputError as error:
        raise refuse(error) from None
    line = Line(node=wire.node, version=wire.version, taken=wire.taken, facts=wire.facts)
    if not is_time(line.taken):
        raise refuse("the field taken is not a time such as 2026-11-22T08:01:12.345Z") from None
    if not line.node or len(line.node) > NAME_MAX:
        raise refuse(f"the field node is empty or has more than {NAME_MAX} characters")
    return line


def is_too_large(data: bytes) -> bool:
    """Whether a line has more than is read."""
    return len(data) > LINE_MAX or has_more(data, VALUES_MAX)


def is_time(text: str) -> bool:
    """Whether it may stand as `Line.taken`."""
    try:
        return _TIME.fullmatch(text) is not None and instant(text).timestamp() >= 0
    except (ValueError, OverflowError):
        return False


def _check_schema(schema: str) -> None:
    name, _, major = schema.partition("/")
    known, _, ours = SCHEMA.partition("/")
    if name != known or not major.isdecimal():
        raise InputError(f"not a line of facts: its schema is {schema[:60]!a}, expected {SCHEMA}")
    if major != ours:
        raise InputError(
            f"facts of format {major[:20]}, this netdoctor reads {ours}; use the one that wrote it"
        )


def read(file: io.BufferedReader, name: str) -> Iterator[tuple[str, Line]]:
    """Yield each line of a file, plain or gzip, with its place ``name:line``; empty lines are passed over.

    Raises InputError as `decode`, and for bytes that cannot be expanded; OSError of the file.
    """
    for position, data in raw_lines(file, name):
        yield position, decode(data, position)


def raw_lines(file: io.BufferedReader, name: str, longest: int = LINE_MAX) -> Iterator[tuple[str, bytes]]:
    """As `read`, undecoded: no more than `longest` bytes of a line and FILE_MAX of a file."""
    packed = file.peek(2).startswith(_GZIP)
    lines: io.BufferedReader | gzip.GzipFile = gzip.GzipFile(fileobj=file) if packed else file
    number = size = 0
    while True:
        position = f"{name}:{number + 1}"
        try:
            data = lines.readline(longest + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            why = "cut off" if isinstance(error, EOFError) else f"damaged ({clean(str(error), 80)})"
            raise InputError(f"{position}: the compressed file is {why}; copy it again") from None
        if not data:
            return
        number, size = number + 1, size + len(data)
        if len(data) > longest:
            raise InputError(f"{position}: the line has more than {longest >> 20} MiB")
        if number > LINES_MAX:
            raise InputError(f"{position}: the file has more than {LINES_MAX} lines")
        if size > FILE_MAX:
            raise InputError(f"{position}: the file has more than {FILE_MAX >> 30} GiB when expanded")
        if data.strip():
            yield position, data
