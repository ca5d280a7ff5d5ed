"""Frames between control host and agent.

To the agent: eight hex digits (length), a newline, JSON. From the agent: ``\\x1e`` marker, a space, the
decimal
length, a newline, JSON, a newline. The marker lets the reader skip whatever a login shell prints around
frames.
"""

import json
import os
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

MAX_PAYLOAD_BYTES = 8 << 20
_HEX = frozenset(b"0123456789abcdefABCDEF")


class BadFrame(Exception):
    """What came in is not a frame; there is no way back into step."""


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
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(clean(value), allow_nan=False).encode("ascii")
    if "\\ud" in text:
        text = json.dumps(clean(value), allow_nan=False)
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
    try:
        return json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as e:
        raise BadFrame("no JSON in a frame: " + str(e))


class Channel:
    """The way out. Owns a private copy of fd 1, so that a stray print cannot corrupt frames."""

    def __init__(self, fd: int, marker: str) -> None:
        self._fd = fd
        self._marker = marker
        self._lock = threading.Lock()

    @classmethod
    def take_stdout(cls, marker: str) -> "Channel":
        """Move fd 1 to a private close-on-exec descriptor and point fd 1 at fd 2."""
        private = os.dup(1)  # not inheritable, PEP 446
        try:
            os.dup2(2, 1)
        except OSError:  # no stderr: nowhere is good enough for stray output
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.close(null)
        return cls(private, marker)

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
                data = data[os.write(self._fd, data) :]
