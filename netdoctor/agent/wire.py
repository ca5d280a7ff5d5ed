"""Frames between control host and agent.

To the agent: eight hex digits (length), a newline, JSON. From the agent: ``\\x1e`` marker, a space, the
decimal length, a newline, JSON, a newline. The marker lets the reader skip whatever a login shell prints
around frames.
"""

import os

from . import runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Callable

try:
    # What `json` itself works with in CPython. It brings regular expressions and enumerations along, which
    # cost a node as much as all that it is asked.
    _json = __import__("_json")  # type: Any
except ImportError:
    _json = None

MAX_PAYLOAD_BYTES = 8 << 20
PACKED = b"\0"  # as the loader has it
_HEX = frozenset(b"0123456789abcdefABCDEF")


class BadFrame(Exception):
    """What came in is not a frame; there is no way back into step."""


class _Decoding(object):
    """What a scanner is told: as json.JSONDecoder() has it."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int

    @staticmethod
    def parse_constant(name: str) -> float:
        return float(name)  # NaN, Infinity, -Infinity


def loads(text: str) -> "Any":
    """Return the value that a JSON text says. Raises ValueError and RecursionError."""
    if _json is None:
        import json

        return json.loads(text)
    text = text.strip(" \t\n\r")
    try:
        value, end = _json.make_scanner(_Decoding)(text, 0)
    except StopIteration:
        raise ValueError("not JSON")
    if end != len(text):
        raise ValueError("more than one value")
    return value


def dumps(value: "Any") -> str:
    """Return ASCII JSON, without NaN. Raises TypeError, ValueError and RecursionError."""
    if _json is None:
        import json

        return json.dumps(value, allow_nan=False)
    encode = _json.make_encoder(
        {}, _refuse, _json.encode_basestring_ascii, None, ": ", ", ", False, False, False
    )
    return "".join(encode(value, 0))


def _refuse(value: "Any") -> "Any":
    raise TypeError(type(value).__name__ + " has no form in JSON")


def clean(value: "Any", depth: int = 0) -> "Any":
    """Return `value` as strict JSON can carry it: no NaN, no lone surrogates, text keys, bounded depth."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
            return value
        except UnicodeEncodeError:
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        # NaN and the infinities have no form in JSON.
        return value if value - value == 0 else None
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    if depth > 60:
        return None
    if isinstance(value, dict):
        return {clean(k if isinstance(k, str) else str(k)): clean(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [clean(v, depth + 1) for v in value]
    return clean(str(value))


def encode(value: "Any") -> bytes:
    """Return strict ASCII JSON."""
    try:
        text = dumps(value)
    except (TypeError, ValueError, RecursionError):
        return dumps(clean(value)).encode("ascii")
    if "\\ud" in text:
        text = dumps(clean(value))
    return text.encode("ascii")


def frame(marker: str, payload: bytes) -> bytes:
    """Return one agent-to-control frame."""
    return b"\x1e" + marker.encode("ascii") + b" %d\n" % len(payload) + payload + b"\n"


def read_frame(stream: "IO[bytes]") -> "Any":
    """Return the next request, or None at end of file. Raises BadFrame."""
    head = stream.read(9)
    if len(head) < 9:
        return None
    if head[8:] != b"\n" or not all(c in _HEX for c in head[:8]):
        raise BadFrame("no length in " + repr(head))
    length = int(head[:8], 16)
    if length > MAX_PAYLOAD_BYTES:
        raise BadFrame("a frame of %d bytes is over the limit" % length)
    body = stream.read(length)
    if len(body) < length:
        return None
    return parse(body)


def parse(body: bytes) -> "Any":
    """Return what the body of a frame says; modules of the agent as {"pack": body}. Raises BadFrame."""
    if body[:1] == PACKED:
        return {"pack": body}
    try:
        return loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as e:
        raise BadFrame("no JSON in a frame: " + str(e))


class Channel:
    """The way out. Owns a private copy of fd 1, so that a stray print cannot corrupt frames."""

    def __init__(self, write: "Callable[[memoryview], int]", marker: str) -> None:
        self._write = write
        self._marker = marker
        self._lock = runtime.Lock()

    @classmethod
    def take_stdout(cls, marker: str, stream: "Any" = None) -> "Channel":
        """Move fd 1 to a private close-on-exec descriptor and point fd 1 at fd 2.

        stream: what frames go to in its place.
        """
        private = os.dup(1)  # not inheritable, PEP 446
        try:
            os.dup2(2, 1)
        except OSError:  # no stderr: nowhere is good enough for stray output
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.close(null)
        return cls(stream.write if stream else lambda data: os.write(private, data), marker)

    def send(self, message: "dict[str, Any]") -> None:
        """Write one frame; a payload over the cap becomes an error reply. Raises OSError."""
        payload = encode(message)
        if len(payload) > MAX_PAYLOAD_BYTES:
            size = len(payload)
            payload = encode(
                {
                    "id": message.get("id"),
                    "ok": False,
                    "why": "failed",
                    "detail": "the reply has %d bytes, over the limit of %d" % (size, MAX_PAYLOAD_BYTES),
                }
            )
        data = memoryview(frame(self._marker, payload))
        with self._lock:
            while data:
                data = data[self._write(data) :]
