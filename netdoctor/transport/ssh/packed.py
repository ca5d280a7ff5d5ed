"""Messages of the SSH protocol, packed and unpacked. Runs inside a worker process only."""

import struct
from typing import Any

import paramiko
from paramiko.util import asbytes

PACKET_BYTES_MAX = 256 << 10  # OpenSSH's PACKET_MAX_SIZE
INTEGER_BYTES_MAX = 2 << 10 | 1  # a modulus of 16,384 bits, OpenSSL's limit for RSA, and its sign
READS_PAST_END_MAX = 16

_length = struct.Struct(">I").pack
_longer = struct.Struct(">Q").pack


class PeerMessage(paramiko.Message):  # type: ignore[misc]  # paramiko has no types
    """A message whose reader stops at its end, and takes no number that nobody could compute with.

    Over bytes, where paramiko's is over a file: a login packs and unpacks some 150 fields. A test fails
    where paramiko gains a method that needs its file.
    """

    _past_end = 0

    def __init__(self, content: bytes | None = None) -> None:
        self._data = bytearray() if content is None else bytes(content)
        self._at = 0

    def __repr__(self) -> str:
        return f"PeerMessage({self.asbytes()!r})"

    def buffer(self) -> bytes | bytearray:
        """Its bytes, not copied."""
        return self._data

    def asbytes(self) -> bytes:
        return bytes(self._data)

    def rewind(self) -> None:
        self._at = 0

    def get_remainder(self) -> bytes:
        return bytes(self._data[self._at :])

    def get_so_far(self) -> bytes:
        return bytes(self._data[: self._at])

    def get_bytes(self, n: int) -> bytes:
        """Return n bytes. Beyond the end paramiko goes on with zeros, as often as a count says."""
        start = self._at
        found = bytes(self._data[start : start + n])
        self._at = start + len(found)
        if len(found) == n:
            return found
        self._past_end += 1
        if n > PACKET_BYTES_MAX or self._past_end > READS_PAST_END_MAX:
            raise paramiko.SSHException("a message ends before what it announces")
        return found.ljust(n, b"\0")

    def get_int(self) -> int:
        return int.from_bytes(self.get_bytes(4), "big")

    def get_string(self) -> bytes:
        return self.get_bytes(int.from_bytes(self.get_bytes(4), "big"))

    get_binary = get_string

    def get_text(self) -> str:
        return self.get_string().decode()

    def get_mpint(self) -> int:
        """Return a number. Over one that fills a packet paramiko computes for six seconds; with a negative
        modulus it looks for an exponent for ever."""
        data = self.get_string()
        if len(data) > INTEGER_BYTES_MAX or data[:1] > b"\x7f":
            raise paramiko.SSHException(f"a negative number or one of {len(data)} bytes")
        return int.from_bytes(data, "big")

    def add_bytes(self, b: bytes) -> "PeerMessage":
        self._data += b
        return self

    add_byte = add_bytes

    def add_boolean(self, b: bool) -> "PeerMessage":
        self._data += b"\1" if b else b"\0"
        return self

    def add_int(self, n: int) -> "PeerMessage":
        self._data += _length(n)
        return self

    def add_int64(self, n: int) -> "PeerMessage":
        self._data += _longer(n)
        return self

    def add_adaptive_int(self, n: int) -> "PeerMessage":
        if n >= self.big_int:
            self._data += b"\xff"
            return self.add_mpint(n)
        return self.add_int(n)

    def add_mpint(self, z: int) -> "PeerMessage":
        """Add a number that is not negative; no other is ever sent."""
        return self.add_string(z.to_bytes(z.bit_length() // 8 + 1, "big"))

    def add_string(self, s: Any) -> "PeerMessage":
        """Add text, bytes, or whatever can be made bytes."""
        kind = type(s)
        if kind is str:
            s = s.encode()
        elif kind is not bytes and kind is not memoryview:
            # What paramiko's own does tries a key for text first, and fails.
            s = s.asbytes() if hasattr(s, "asbytes") else asbytes(s)
        self._data += _length(len(s))
        self._data += s
        return self
