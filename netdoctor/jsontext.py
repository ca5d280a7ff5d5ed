"""JSON as we write it, in which nothing can steer a terminal; and what somebody else's may be."""

import json
import math
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import msgspec

from netdoctor.text import REPLACEMENT

SAFE_INTEGER = 2**53

# Legal in JSON, yet able to steer the terminal that it is printed to: DEL, C1, bidirectional and other
# invisible controls, line separators, the byte order mark; and surrogates, which UTF-8 cannot carry.
_UNSAFE = re.compile(
    "[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
    r"|(?<=#)#(?=\w*\[)"  # ##vso[, a command in the logs of some CI
)
_ASCII = [re.compile(b"\x7f"), re.compile(rb"##\w*\[")]
_OTHERS = [
    *map(re.compile, (b"\xc2[\x80-\x9f\xad]", b"\xd8\x9c", b"\xef\xbb\xbf", b"\xef\xbf[\xb9-\xbb]")),
    *map(re.compile, (b"\xe2\x80[\x8b-\x8f\xa8-\xae]", b"\xe2\x81[\xa0-\xaf]")),
]
_SURROGATES = re.compile("[\ud800-\udfff]")
# What may be a number too long to be read again: sixteen digits where a value begins.
_LONG = b":" + b"0" * 16
_BLANK = b" \t\r-"
_VALUES = bytes.maketrans(b"123456789,[\n", b"0" * 9 + b":" * 3)
_BLOCK = 1 << 20
_NOT_MARKS = bytes(set(range(256)) - set(b'[]{}"'))
_AS_BRACKETS = bytes.maketrans(b"{}", b"[]")


def encode(data: Any, pretty: bool = False) -> bytes:
    """Return plain data, dataclasses among it, as UTF-8 JSON in which no character can steer a terminal."""
    if not pretty:
        try:
            found: bytes = msgspec.json.encode(data)
            if not has_long_number(found):
                return found if _is_inert(found) else _inert(found.decode())
        except (ValueError, OverflowError):  # a surrogate, a number beyond any machine's
            pass
    return _inert(_text(data, {"indent": 2} if pretty else {"separators": (",", ":")}))


def encode_line(data: Any) -> bytes:
    """Return data as `encode` does, in one line with its end, for readers in any language.

    Surrogates, which no parser but Python's reads again, become U+FFFD.
    """
    line = encode(data)
    if b"\\ud" in line:
        line = _inert(_SURROGATES.sub(REPLACEMENT, _text(data, {"separators": (",", ":")})))
    return line + b"\n"


def _text(data: Any, layout: dict[str, Any]) -> str:
    data = msgspec.to_builtins(data, str_keys=True)
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, **layout)
        tame = not has_long_number(text.encode("utf-8", "replace"))
    except ValueError:  # NaN, infinity
        tame = False
    if not tame:  # rare, and looking at each value costs more than all the rest
        text = json.dumps(finite(data), ensure_ascii=False, allow_nan=False, **layout)
    return text


def _is_inert(data: bytes) -> bool:
    """Whether nothing of _UNSAFE is in it. Each search begins with bytes that hardly any text has."""
    known = _ASCII if data.isascii() else (*_ASCII, *_OTHERS)
    return not any(pattern.search(data) for pattern in known)


def _inert(text: str) -> bytes:
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()


def finite(value: Any) -> Any:
    """Return plain data with null for numbers that are none, and no larger integers than are read again."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and abs(value) > SAFE_INTEGER:
        return SAFE_INTEGER if value > 0 else -SAFE_INTEGER
    return value


def has_long_number(data: bytes) -> bool:
    """Whether JSON may hold an integer beyond SAFE_INTEGER: there is one of sixteen digits."""
    return _LONG in data.translate(_VALUES, _BLANK) and _LONG in b"".join(_outside(data)).translate(
        _VALUES, _BLANK
    )


def has_more(data: bytes, most: int) -> bool:
    """Whether JSON has more than so many commas, which none of fewer bytes has."""
    return len(data) > most and data.count(b",") > most


def depth(data: bytes, most: int) -> int:
    """Return how deep brackets nest, without parsing: the parser itself must not be what falls over.

    Exact above `most`; at most that otherwise.
    """
    left = _brackets(data)
    for level in range(most + 1):
        if not left:
            return level
        left = left.replace(b"[]", b"")  # the innermost
    steps = (1 if bracket == ord("[") else -1 for bracket in _brackets(data))  # too deep, or cut off
    return max(accumulate(steps), default=0)


def _brackets(data: bytes) -> bytes:
    """The brackets outside of strings, braces as brackets."""
    marks = _unescaped(data).translate(_AS_BRACKETS, _NOT_MARKS)
    # Two quotes that meet change nothing about what is between others; hardly any string has a bracket.
    return b"".join(_outside(marks.replace(b'""', b"")))


def _unescaped(data: bytes) -> bytes:
    """JSON in which every quote begins or ends a string."""
    return data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data


def _outside(data: bytes) -> Iterator[bytes]:
    """What stands outside of strings, in parts."""
    plain = _unescaped(data)
    inside = False
    for start in range(0, len(plain), _BLOCK):
        parts = plain[start : start + _BLOCK].split(b'"')
        yield b"".join(parts[inside::2])
        inside ^= len(parts) % 2 == 0
