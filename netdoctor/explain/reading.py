"""Logs to blocks of whole lines: files, folders, globs and stdin, compressed or in UTF-16, of any size.

Memory is bounded by the block: a line longer than `LINE_MAX` is cut, with a remark.
"""

import bz2
import codecs
import errno
import glob
import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import BinaryIO

from netdoctor.errors import InputError
from netdoctor.files import nearest_file
from netdoctor.text import clean

BLOCK = 1 << 18
LINE_MAX = 1 << 20
FILES_MAX = 20_000
HEAD = 4096  # of a log, that shows its encoding
STDIN = "<stdin>"

_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
# What no text holds: control characters but for blanks, line ends, backspace and escape.
_CONTROL = bytes({*range(32), 127} - {8, 9, 10, 11, 12, 13, 27})
# What torch's flight recorder and cores leave beside logs.
_NO_LOGS = (
    *(".pt", ".pth", ".safetensors", ".npy", ".npz", ".pkl", ".so", ".pyc", ".tar", ".tgz", ".zip"),
    *(".py", ".toml", ".yaml", ".yml", ".md", ".csv", ".parquet", ".png", ".svg"),
)


@dataclass(slots=True)
class Log:
    """One log while it is read. remarks: what was cut, skipped or is wrong with it."""

    name: str
    path: str | None
    lines: int = 0
    size_bytes: int = 0
    remarks: list[str] = field(default_factory=list)


def logs(names: Sequence[str]) -> list[Log]:
    """The logs that files, folders, patterns and ``-`` name, each once, in order.

    Raises InputError for what names nothing.
    """
    found: dict[str, Log] = {}
    for name in names:
        for log in _logs_of(name):
            found.setdefault(log.path or STDIN, log)
            if len(found) > FILES_MAX:
                raise InputError(f"explain log: more than {FILES_MAX} files; name fewer")
    if not found:
        raise InputError("explain log: no log was named; give files, folders, patterns or - for stdin")
    return list(found.values())


def _logs_of(name: str) -> Iterator[Log]:
    if name == "-":
        yield Log(STDIN, None)
        return
    if os.path.isdir(name):
        paths = sorted(_below(name))
        if not paths:
            raise InputError(f"explain log: {clean(name)}: no files in this folder")
        yield from (Log(path, path) for path in paths)
    elif os.path.lexists(name):
        yield Log(name, name)
    elif "\0" not in name and glob.has_magic(name):
        paths = sorted(glob.iglob(name, recursive=True))
        if not paths:
            raise InputError(f"explain log: {clean(name)}: no file matches")
        for path in paths:
            yield from _logs_of(path) if os.path.isdir(path) else [Log(path, path)]
    else:
        raise InputError(
            f"explain log: {clean(name)}: no such file"
            + (nearest_file(name) or "; name a log, a folder, a pattern in quotes, or - to read stdin")
        )


def _below(folder: str) -> Iterator[str]:
    for top, folders, files in os.walk(folder):
        folders.sort()
        for file in files:
            path = os.path.join(top, file)
            if not file.endswith(_NO_LOGS) and os.path.isfile(path):
                yield path


def blocks(log: Log, stdin: BinaryIO | None = None) -> Iterator[tuple[int, bytes]]:
    """(number of the first line, whole lines) of a log, its `remarks` filled in. Lines are UTF-8 as found.

    What cannot be read ends the log with a remark; the other logs are none the worse.
    """
    try:
        with _opened(log, stdin) as stream:
            yield from _lines(log, _plain(log, stream))
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        log.remarks.append(_fault(error, log))


def _opened(log: Log, stdin: BinaryIO | None) -> BinaryIO:
    if log.path is None:
        return stdin or os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    descriptor = os.open(log.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is a folder" if stat.S_ISDIR(kind) else "is not a regular file")
    return os.fdopen(descriptor, "rb", buffering=0)


def _plain(log: Log, stream: BinaryIO) -> Iterator[bytes]:
    """The bytes of a log, unpacked and in UTF-8, in pieces."""
    head = b""
    while len(head) < HEAD and (more := stream.read(HEAD - len(head))):
        head += more
    kind = next((kind for magic, kind in _PACKED.items() if head.startswith(magic)), "")
    if kind == "zstd":
        raise OSError(
            errno.EINVAL,
            "is packed with zstd, which is not read here: zstd -dc FILE | netdoctor explain log -",
        )
    if kind:
        opener = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}[kind]
        packed = io.BufferedReader(_Headed(head, stream))
        pieces = _until_broken(log, opener(packed, "rb"))  # type: ignore[operator]
    else:
        pieces = chain([head], iter(lambda: stream.read(BLOCK), b""))
    first = next(pieces, b"")
    encoding = next((name for mark, name in _UTF16.items() if first.startswith(mark)), "") or _bare_utf16(
        first
    )
    if encoding:
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        yield decoder.decode(first).removeprefix("\ufeff").encode("utf-8", "replace")
        for piece in pieces:
            yield decoder.decode(piece).encode("utf-8", "replace")
        return
    if len(first[:HEAD]) - len(first[:HEAD].translate(None, _CONTROL)) > len(first[:HEAD]) // 20:
        log.remarks.append("is a binary file; only its readable parts were looked at")
    yield first.removeprefix(codecs.BOM_UTF8)
    yield from pieces


def _bare_utf16(first: bytes) -> str:
    """UTF-16 without a mark, as some Windows tools write it: every second byte is zero."""
    head = first[:HEAD]
    if len(head) < 8:
        return ""
    odd, even = head[1::2].count(0), head[0::2].count(0)
    half = len(head) // 2
    return (
        "utf-16-le" if odd > half * 0.9 and not even else "utf-16-be" if even > half * 0.9 and not odd else ""
    )


class _Headed(io.RawIOBase):
    """A stream whose first bytes were taken already."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head, self._stream = head, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        data = self._head[: len(buffer)] or self._stream.read(len(buffer)) or b""
        self._head = self._head[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def _until_broken(log: Log, stream: BinaryIO) -> Iterator[bytes]:
    """What can be unpacked; a file that was copied while it was written ends early."""
    try:
        while data := stream.read1(BLOCK):  # type: ignore[attr-defined]
            yield data
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, OSError, ValueError) as error:
        log.remarks.append(
            f"the packed data end early or are damaged ({clean(str(error), 80)}); read until there"
        )


def _lines(log: Log, pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    rest, number, cut = b"", 1, 0
    skipping = False
    for piece in pieces:
        log.size_bytes += len(piece)
        at = 0
        if skipping:  # the rest of a line that was too long
            at = piece.find(b"\n")
            if at < 0:
                continue
            skipping = False
        end = piece.rfind(b"\n", at)
        if end < 0:
            data = rest + piece[at:]
            # A progress bar: what was written over is looked at, and the line goes on as it began.
            back = data.rfind(b"\r") if len(data) > LINE_MAX else -1
            if back > 0:
                yield number, data[:back]
                data = data[: data.find(b"\r")][:HEAD] + data[back:]
            rest = data
            if len(data) > LINE_MAX:
                rest, skipping = data[:LINE_MAX], True
                cut += 1
            continue
        yield number, b"".join((rest, memoryview(piece)[at:end]))
        number += piece.count(b"\n", at)
        rest = piece[end + 1 :]
    if rest:
        yield number, rest
        number += 1
    log.lines = number - 1
    if cut:
        log.remarks.append(
            f"{cut} line{'s' * (cut != 1)} longer than {LINE_MAX >> 20} MiB: only the beginning was read"
        )


def _fault(error: Exception, log: Log) -> str:
    if isinstance(error, PermissionError):
        return "no permission to read this file"
    if isinstance(error, FileNotFoundError):
        return "link to a file that is not there" if os.path.islink(log.path or "") else "no such file"
    return clean(getattr(error, "strerror", None) or str(error), 120)
