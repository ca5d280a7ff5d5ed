"""From a file or stdin to numbered lines: size, encoding, and what is not a hosts file at all."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from netdoctor.files import names_in, nearest_file, read_regular
from netdoctor.inventory.errors import Problems
from netdoctor.inventory.names import host_fault
from netdoctor.inventory.nodeset import RANGE_MAX, TOO_MANY

if TYPE_CHECKING:
    from typing import TextIO

FILE_MAX = 4 * 1024 * 1024
# What kubectl prints of a thousand pods is longer than any list of names.
JSON_MAX = 64 * 1024 * 1024
LINE_MAX = 64 * 1024
# Shorter names are one edit from too many others.
SLIP_MIN = 4
_PLAIN_NAME = re.compile(r"[\w.-]+")
_DIGITS = re.compile(r"[0-9]+")

# No top-level domains among them: gpu1.example.sh is a host.
_PATH_ENDS = (
    *(".txt", ".hosts", ".hostfile", ".machines", ".nodes", ".list", ".lst", ".inventory"),
    *(".cfg", ".conf", ".ini", ".yaml", ".yml", ".json", ".toml", ".csv", ".env"),
)
_PATH_NAMES = frozenset({"hosts", "hostfile", "hostlist", "machinefile", "machines", "nodefile", "nodelist"})


@dataclass(frozen=True, slots=True)
class Line:
    """One line with content: its number in the file and its text without comment and edges."""

    number: int
    text: str


def looks_like_path(arg: str) -> bool:
    """Return whether an argument that names no file was probably meant to."""
    folded = arg.lower()
    return "/" in arg or arg.startswith("~") or folded.endswith(_PATH_ENDS) or folded in _PATH_NAMES


def is_slip_of_a_file(arg: str) -> bool:
    """Return whether an argument is one edit away from a file here, and not another name of its kind.

    ``hosts.tx`` beside hosts.txt; not gpu12 beside a file gpu11, nor anything that is short.
    """
    if len(arg) < SLIP_MIN or not _PLAIN_NAME.fullmatch(arg):
        return False
    return any(
        _one_edit(arg, name) and _DIGITS.sub("", arg) != _DIGITS.sub("", name) and os.path.isfile(name)
        for name in names_in(".")
    )


def _one_edit(one: str, other: str) -> bool:
    """Return whether a character is missing, too many or another, or two have changed places."""
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    a, b = one[start:], other[start:]
    return a[1:] == b or a == b[1:] or a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])


def file_exists(path: str) -> bool:
    """Return whether something of that name is there, also where it may not be looked at."""
    try:
        os.lstat(path)
    except PermissionError:
        return "/" in path
    except (OSError, ValueError):  # ValueError: NUL or characters that no file name can hold
        return False
    return True


def read_file(path: str, problems: Problems) -> bytes | None:
    """Return the bytes of a regular file, None after noting why it cannot be read.

    Never waits: a pipe or device under that name is refused, not read.
    """
    try:
        return read_regular(path, JSON_MAX)
    except OSError as error:
        problems.add(path, None, "", *_open_fault(path, error))
        return None


def _open_fault(path: str, error: OSError) -> tuple[str, str]:
    """Return message and hint for a file that could not be opened."""
    if isinstance(error, PermissionError):
        return "no permission to read this file", ""
    if error.errno == errno.ELOOP:
        return "symbolic links in a circle", ""
    if isinstance(error, FileNotFoundError) and os.path.islink(path):
        return "symbolic link to a file that does not exist", ""
    if isinstance(error, IsADirectoryError):
        return "is a directory, not a hosts file", _host_hint(path)
    if error.errno == errno.EINVAL:
        return "is not a regular file", "pipe it instead: ... | netdoctor scan -"
    if isinstance(error, FileNotFoundError):
        hints = [nearest_file(path).removeprefix("; "), "" if looks_like_path(path) else _host_hint(path)]
        return "no such file", " ".join(filter(None, hints)) or _host_hint(path)
    return f"cannot be read: {error.strerror}", ""


def _host_hint(path: str) -> str:
    """Say how to name a host that is called like a file or folder."""
    return "" if "/" in path or host_fault(path) else f"for the host of that name write: {path},"


def read_stream(stream: TextIO, source: str, problems: Problems) -> bytes | str | None:
    """Return what a stream holds, as bytes where it has them, up to the size limit."""
    try:
        raw = getattr(stream, "buffer", None)
        content = (stream if raw is None else raw).read(JSON_MAX + 1)
    except UnicodeDecodeError:
        problems.add(source, None, "", "is not UTF-8 text")
        return None
    except (OSError, ValueError) as error:  # ValueError: closed
        problems.add(source, None, "", f"cannot be read: {error}")
        return None
    return content if isinstance(content, bytes | str) else None


def decode(content: bytes | str, source: str, problems: Problems) -> str | None:
    """Return the text of a hosts file, None after noting why it is not one."""
    if len(content) > (JSON_MAX if is_document(content[:1000]) else FILE_MAX):
        problems.add(source, *_too_large(content))
        return None
    if isinstance(content, str):
        return content.removeprefix("\ufeff")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        hint = "convert it: iconv -f UTF-16 -t UTF-8"
        problems.add(source, 1, "", "is UTF-16 text, UTF-8 is read", hint)
        return None
    if b"\0" in content:
        line = content.count(b"\n", 0, content.index(b"\0")) + 1
        problems.add(source, line, "", "NUL byte: this is not a text file")
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problems.add(
            source,
            line,
            "",
            f"byte 0x{content[error.start]:02x} is not UTF-8",
            "convert it: iconv -f LATIN1 -t UTF-8, or from SHIFT_JIS, GBK or EUC-KR",
        )
        return None


def is_document(text: bytes | str) -> bool:
    """Return whether a text begins as a JSON object, whose lines are nothing to look at one by one."""
    start = (
        text[:1000] if isinstance(text, str) else text[:1000].decode("latin-1").removeprefix("\xef\xbb\xbf")
    )
    return start.lstrip().startswith("{")


def _too_large(content: bytes | str) -> tuple[int | None, str, str]:
    """Return line, token and message: a long list passes the limit on hosts before the one on bytes."""
    text = content if isinstance(content, str) else content.decode("latin-1")
    hosts = 0
    for number, line in enumerate(text.split("\n"), 1):
        hosts += line.strip(" \t\r")[:1] not in ("", "#")
        if hosts > RANGE_MAX:
            return number, line[:40], TOO_MANY
    most = JSON_MAX if is_document(content) else FILE_MAX
    return None, "", f"is larger than {most // 1024 // 1024} MiB"


def content_lines(text: str, source: str, problems: Problems, *, first_only: bool = False) -> list[Line]:
    """Return the lines that are more than blanks and comments, noting those that are too long.

    first_only: of a document only the first, which may be as long as it likes.

    Split at line feeds only: `str.splitlines` also splits at characters that no editor counts as a
    line end. A comment begins with '#' at the start or after a space.
    """
    if first_only:
        head = text[: len(text) - len(text.lstrip())]
        return [Line(head.count("\n") + 1, text.lstrip()[:LINE_MAX].partition("\n")[0].rstrip())]
    lines = []
    for number, raw in enumerate(text.split("\n"), 1):
        if len(raw) > LINE_MAX:
            message = f"line of {len(raw)} characters, {LINE_MAX} are allowed"
            problems.add(source, number, raw[:40], message)
            continue
        body = raw.removesuffix("\r")
        content = re.split(r"(?:^|(?<=[ \t]))#", body, maxsplit=1)[0].strip(" \t")
        if "\r" in content:
            hint = "line ends of an old Mac? convert it: tr '\\r' '\\n'"
            problems.add(source, number, content, "carriage return inside a line", hint)
        elif content:
            lines.append(Line(number, content))
    return lines
