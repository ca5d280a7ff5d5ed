"""Errors in other languages and by number alone, as English has them, so that patterns find them. Pure.

glibc and bash speak the session's language; a number means the same in all. strerror.toml has the texts.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from netdoctor.tables import table


class _Texts(msgspec.Struct, forbid_unknown_fields=True):
    """The file: English texts by number, and foreign ones by English."""

    numbers: dict[str, str]
    texts: dict[str, tuple[str, ...]]
    signals: dict[str, tuple[str, ...]]


_DATA = table("netdoctor.explain", "strerror.toml", _Texts)
_NUMBERS = {key.encode(): text.encode() for key, text in _DATA.numbers.items()}
_ENGLISH = (*_NUMBERS.values(), *(text.encode() for text in _DATA.texts))


def _by_text(table: Mapping[str, Iterable[str]]) -> dict[bytes, bytes]:
    return {text.encode(): english.encode() for english, texts in table.items() for text in texts}


def _any(texts: Iterable[bytes]) -> bytes:
    return b"|".join(map(re.escape, sorted(texts, key=len, reverse=True)))


_TEXTS = _by_text(_DATA.texts)
_FOREIGN = re.compile(_any(_TEXTS))
_SIGNALS = _by_text(_DATA.signals)
# bash: job.sh: 줄 3: 21230 죽었음               python train.py; at a prompt the word alone
_SIGNAL = re.compile(rb"(?m)(\d |^)(" + _any(_SIGNALS) + rb")(?=  | \(|\r?$)")
# … 行 7: torchrun: 未找到命令; 5 行: and 행 5번: in others
_LINE = re.compile(": (?:(?:第|행|行|列|줄) (\\d{1,7})(?: 行| 列|번)?|(\\d{1,7}) 行)(?:\uff1a|: )".encode())
# First bytes of all characters from hiragana to hangul; bars and borders are drawn with others.
_LEADS = [bytes([lead]) for lead in range(0xE3, 0xEE)]
# A number, and those that mean nothing else but trouble of a socket or a file system.
_PYTHON = re.compile(rb"\[Errno (-?\d{1,3})\] ?")
_C = re.compile(rb"rr(?:no|or)[ :=]{1,3}(28|30|9[789]|1(?:01|04|07|1[0136]|22))\b(?: - )?")
_SOCKET = re.compile(rb"(?i)(?:socket|connect(?:ion)?|recv|send|bind|listen|accept|errno)\b")
_NEAR = 60


def english(block: bytes) -> bytes:
    """A block with the English text in place of the foreign one, and beside a number that has none.

    Line ends and returns stay where they are.

    >>> english("OSError: [Errno 98] 地址已在使用".encode())
    b'OSError: [Errno 98] Address already in use'
    >>> english(b"connect: error 104")
    b'connect: error 104 Connection reset by peer'
    """
    if not block.isascii() and any(lead in block for lead in _LEADS):
        if _FOREIGN.search(block):
            block = _FOREIGN.sub(lambda match: _TEXTS[match[0]], block)
            block = _LINE.sub(lambda match: b": line %b: " % (match[1] or match[2]), block)
        block = _SIGNAL.sub(lambda match: match[1] + _SIGNALS[match[2]], block)
    if b"[Errno " in block:
        block = _PYTHON.sub(lambda match: _with_text(match, block), block)
    return _C.sub(lambda match: _with_text(match, block), block)


def _with_text(match: re.Match[bytes], block: bytes) -> bytes:
    """A number with its text behind it, unless one stands there that is English too."""
    text, end = _NUMBERS.get(match[1], b""), match.end()
    behind = block[end : end + _NEAR].lstrip(b" -:]")
    if not text or behind.startswith(_ENGLISH) or behind[:1].islower():  # a program's own words
        return match[0]
    if not match[0].startswith(b"["):
        start = max(match.start() - _NEAR, block.rfind(b"\n", 0, match.start()) + 1, 0)
        if not _SOCKET.search(block, start, match.start() + 4):
            return match[0]
    return match[0].rstrip(b" ") + b" " + text + (b" " if match[0].endswith(b" ") else b"")
