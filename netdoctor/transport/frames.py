r"""The agent's side of the conversation, cut out of whatever else a login shell prints.

A frame is ``\x1e<marker> <length>\n<JSON>\n``. Everything else is noise: capped, and its beginning kept for
the report. Whatever an agent says is limited here: the size of a frame, how deep it nests and how many values
it holds, the noise around it. What of it may become a fact is `netdoctor.store`'s to say.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from netdoctor.errors import ProtocolError, UnreadableReply
from netdoctor.jsontext import has_more
from netdoctor.text import clean

FRAME_CAP_BYTES = 8 << 20
NOISE_CAP_BYTES = 1 << 20
NOISE_KEPT_BYTES = 2048
NOISE_SHOWN = 200
MAX_DEPTH = 64
MAX_VALUES = 200_000  # facts of 8 GPUs and 64 HCA ports are some 10,000


class Hello(msgspec.Struct):
    """How an agent presents itself. tag: what code has to be made for, as `bundle.own_tag` says it."""

    python: str = ""
    tag: str = ""
    executable: str = ""
    pid: int = 0
    uid: int = -1
    machine: str = ""
    bits: int = 64
    old_python: str | None = None


class Frame(msgspec.Struct):
    """Any message of an agent. `result` stays undecoded: it is only passed on."""

    hello: Hello | None = None
    id: int | None = None
    ok: bool = False
    result: msgspec.Raw = msgspec.Raw(b"null")
    why: str = ""
    detail: str = ""
    need: str | None = None


_decode = msgspec.json.Decoder(Frame).decode


def decode_frame(payload: bytes) -> Frame:
    """Return the message in a frame. Raises UnreadableReply when it is not strict JSON of the right shape."""
    try:
        return _decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise UnreadableReply(f"the agent's reply cannot be read: {clean(str(e), 120)}") from e


T = TypeVar("T")
_NESTED = frozenset({dict, list})


def _decode_bounded(raw: bytes, decode: Callable[[bytes], T]) -> T:
    # Before anything is made of it: 8 MiB of "[],[],…" would become 300 MiB of lists.
    if has_more(raw, MAX_VALUES):
        raise UnreadableReply(f"the result has more than {MAX_VALUES} values")
    try:
        return decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise UnreadableReply(f"the result cannot be read: {clean(str(e), 120)}") from e


def decode_result(raw: bytes) -> Any:
    """Return a node's result as plain data. Raises UnreadableReply: bad JSON, too many values, too deep."""
    value = _decode_bounded(raw, msgspec.json.decode)
    level = [value] if type(value) in _NESTED else []
    for _ in range(MAX_DEPTH):
        if not level:
            return value
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in _NESTED
        ]
    raise UnreadableReply(f"the result is nested more than {MAX_DEPTH} levels deep")


_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def decode_members(raw: bytes) -> dict[str, msgspec.Raw]:
    """Return the members of a node's result, each as it came and not looked at. Raises UnreadableReply."""
    return _decode_bounded(raw, _members)


def length_prefixed(message: Mapping[str, Any]) -> bytes:
    """Return a message for the agent: eight hex digits, a newline, JSON."""
    body = json.dumps(message, allow_nan=False).encode("ascii")
    return b"%08x\n" % len(body) + body


def request_frame(number: int, op: str, args: bytes) -> bytes:
    """Return a request whose `args` are JSON already."""
    body = b'{"id":%d,"op":%s,"args":%s}' % (number, json.dumps(op).encode("ascii"), args)
    return b"%08x\n" % len(body) + body


class FrameReader:
    """Finds the frames of one agent in the bytes of its channel."""

    def __init__(self, marker: str) -> None:
        self._head = b"\x1e" + marker.encode("ascii") + b" "
        self._buffer = bytearray()
        self._payload_length = -1  # length of the payload whose header was read, -1 before
        self._noise = bytearray()
        self._noise_bytes = 0

    @property
    def noise(self) -> str:
        """The first characters that were not part of a frame, sanitised."""
        return clean(bytes(self._noise), NOISE_SHOWN)

    @property
    def tail_bytes(self) -> bytes:
        """Noise and what is still undecided: what a shell printed instead of starting an agent."""
        return bytes(self._noise + self._buffer[:NOISE_KEPT_BYTES])

    @property
    def tail(self) -> str:
        """The beginning of that, sanitised."""
        return clean(self.tail_bytes, NOISE_SHOWN)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads that `data` completes. Raises ProtocolError: over the caps, a bad length."""
        self._buffer += data
        found: list[bytes] = []
        while True:
            if self._payload_length < 0 and not self._read_head():
                return found
            if len(self._buffer) < self._payload_length + 1:
                return found
            found.append(bytes(memoryview(self._buffer)[: self._payload_length]))
            # The newline after a payload is not checked: a frame is its length.
            del self._buffer[: self._payload_length + 1]
            self._payload_length = -1

    def _read_head(self) -> bool:
        start = self._buffer.find(self._head)
        if start < 0:
            # The end of the buffer may be the beginning of a head.
            keep = len(self._head) - 1
            cut = self._buffer.rfind(b"\x1e", max(0, len(self._buffer) - keep))
            self._skip(len(self._buffer) if cut < 0 else cut)
            return False
        self._skip(start)
        end = self._buffer.find(b"\n", len(self._head), len(self._head) + 12)
        if end < 0:
            if len(self._buffer) >= len(self._head) + 12:
                raise ProtocolError("a frame without a length")
            return False
        digits = bytes(self._buffer[len(self._head) : end])
        if not digits.isdigit():
            raise ProtocolError("a frame without a length")
        self._payload_length = int(digits)
        if self._payload_length > FRAME_CAP_BYTES:
            raise ProtocolError(f"a reply of {self._payload_length} bytes, the limit is {FRAME_CAP_BYTES}")
        del self._buffer[: end + 1]
        return True

    def _skip(self, count: int) -> None:
        """Count and drop bytes that belong to no frame."""
        if not count:
            return
        room = NOISE_KEPT_BYTES - len(self._noise)
        if room > 0:
            self._noise += self._buffer[: min(count, room)]
        del self._buffer[:count]
        self._noise_bytes += count
        if self._noise_bytes > NOISE_CAP_BYTES:
            raise ProtocolError(f"more than {NOISE_CAP_BYTES >> 20} MiB of output around the agent's replies")
