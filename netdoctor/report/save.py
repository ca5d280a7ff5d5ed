"""Reports in files: whole or not at all, for their owner's eyes."""

import contextlib
import dataclasses
import errno
import os
import re
import secrets
import select
import stat
import time
from collections.abc import Container, Iterator
from pathlib import Path

from netdoctor.files import behind_links, nearest_file, open_own, open_shared
from netdoctor.report import LAST, history, repeats
from netdoctor.report.commands import SCRIPT, quote_path
from netdoctor.report.foreign import disowned
from netdoctor.report.formats.json_ import SIZE_MAX, ReportError, dumps, loads
from netdoctor.report.model import Cause, Report
from netdoctor.report.moved import moved
from netdoctor.report.scripts import with_scripts

__all__ = [
    "LAST",
    "READABLE",
    "is_ours",
    "keep",
    "load",
    "open_stream",
    "own_folder",
    "pour",
    "save",
    "write_into",
    "write_whole",
]

# Longer than any write takes: what is older was left by a process that was killed.
STALE_S = 600.0
READER_S = 10.0
# Of -o FILE: a node exporter, a web server or a step of a CI reads it, as another user.
READABLE = 0o644
# The report of more has its facts and pairs packed: fewer bytes, and read when they are needed.
PLAIN_NODES = 100
SCRIPTS_KEPT = 300


def save(report: Report, path: Path = LAST) -> Report:
    """Write the report with its facts and return it as written, its run naming the file.

    One that goes to the usual place goes into the history beside it, too. Raises OSError; what was there
    before is then still there.
    """
    report = dataclasses.replace(report, run=dataclasses.replace(report.run, saved_to=str(path)))
    report = write_scripts(report, path)
    data = dumps(report, facts=True, packed=len(report.matrix.nodes) > PLAIN_NODES)
    write_whole(path, data)
    if is_ours(path) and path.name == LAST.name:
        with contextlib.suppress(OSError):  # the report is safe; what is missing is a copy of it
            _remember(report, path, data)
    return report


def write_scripts(report: Report, path: Path) -> Report:
    """Write a script for each long fix beside the usual report, and name it; elsewhere fixes stay whole.

    They stay so, too, where it cannot be written, or where others may write into netdoctor's own folder.
    """
    if path != LAST:
        return report
    linked, texts = with_scripts(report)
    try:
        with _closing(own_folder(LAST.parent)) as folder:
            if os.fstat(folder).st_mode & 0o022:
                return report  # a script that somebody else may change is not for a person's root shell
            for name, text in texts.items():
                _replace(folder, name, text.encode())
            _forget_scripts(folder)
    except OSError:
        return report
    return linked


def _forget_scripts(folder: int) -> None:
    """Remove the oldest scripts: those of the last scans stay, which somebody may be in the middle of."""
    with os.scandir(folder) as entries:
        found = [e for e in entries if SCRIPT.fullmatch(str(LAST.parent / e.name))]
        ages = {entry.name: entry.stat(follow_symlinks=False).st_mtime for entry in found}
    for name in sorted(ages, key=lambda one: ages[one], reverse=True)[SCRIPTS_KEPT:]:
        os.unlink(name, dir_fd=folder)


def _remember(report: Report, path: Path, data: bytes) -> None:
    """Keep a report that was saved to `path` beyond the next one. Raises OSError."""
    name = history.name_of(report)
    if name is None:
        return
    with _closing(own_folder(path.parent / history.FOLDER)) as folder:
        try:
            # The same bytes under a second name: the next report replaces only the first.
            os.link(path, name, dst_dir_fd=folder, follow_symlinks=False)
        except OSError:  # a file system without such names, or this run's report once more
            _replace(folder, name, data)
        scan = history.name_of(dataclasses.replace(report, trial=None))
        if scan is not None and scan != name:  # the same report, before its job was tried
            with contextlib.suppress(FileNotFoundError):
                os.unlink(scan, dir_fd=folder)
        history.forget(folder)
        if line := repeats.line_of(report):
            _append(folder, line)


def _append(folder: int, line: bytes) -> None:
    """Add a line to the records of nodes, of which the older half goes when they are many. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with os.fdopen(os.open(repeats.NAME, flags, 0o600, dir_fd=folder), "r+b") as file:
        if os.fstat(file.fileno()).st_size + len(line) <= repeats.BYTES_MAX:
            file.write(line)
            return
        lines = file.read(2 * repeats.BYTES_MAX).splitlines(keepends=True)
    newer = b"".join(lines[len(lines) // 2 :])[-repeats.BYTES_MAX // 2 :]
    _replace(folder, repeats.NAME, newer + line)


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def keep(report: Report, folder: Path, name: str) -> None:
    """Write a report without facts into a folder below netdoctor's own one. Raises OSError."""
    os.close(own_folder(LAST.parent))
    for parent in reversed([folder, *folder.parents]):
        if LAST.parent in parent.parents:
            with _closing(own_folder(parent)) as descriptor:
                if parent == folder:
                    _replace(descriptor, name, dumps(report))


def is_ours(path: Path) -> bool:
    """Whether a file is for netdoctor's own folder, which nobody has named for it."""
    return path.parent.name == LAST.parent.name


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file by temporary name, fsync and rename. Raises OSError.

    mode: what the umask takes from; READABLE for what was named for another program to read.

    A device or a pipe, such as /dev/stderr, cannot be replaced and is written to as it is. No link is
    followed that somebody else has made, and in netdoctor's own folder none at all.
    """
    ours, name = is_ours(path), path.name
    if ours:
        folder = own_folder(path.parent)
    elif path.exists() and not path.is_file() and not path.is_dir():
        with _closing(open_stream(path)) as descriptor:
            pour(descriptor, data)
        return
    else:
        # Through links, as an ordinary write would go; renaming over the link would part it from its target.
        folder, name = behind_links(path)
    with _closing(folder):
        if ours:
            _sweep(folder, name)
        _replace(folder, name, data, mode)


def write_into(folder: Path, name: str, data: bytes) -> None:
    """Write a file of mode 0600 into a folder, whole or not at all. Raises OSError.

    A link of that name is replaced and not followed: in a folder that several may write to, somebody else
    knows the name beforehand.
    """
    with _closing(open_own(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
        _replace(descriptor, name, data)


def own_folder(path: Path) -> int:
    """A descriptor of netdoctor's own folder, which is made where there is none. Raises OSError.

    One that is a link, or that belongs to somebody else, is not used.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, f"{path} is a link, and nothing is written through it")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    owner = os.fstat(folder).st_uid
    if owner != os.geteuid():
        os.close(folder)
        raise OSError(errno.EPERM, f"{path} belongs to somebody else (uid {owner})")
    return folder


def _replace(folder: int, name: str, data: bytes, mode: int = 0o600) -> None:
    """Put a file into a folder, in the place of one of that name."""
    temporary = f".{name[:100]}.{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, mode, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    with contextlib.suppress(OSError):  # the file is whole; only its name may be lost in a power cut
        os.fsync(folder)


def _sweep(folder: int, name: str) -> None:
    """Remove what processes that were killed left of their writing of this file."""
    ours = re.compile(rf"\.{re.escape(name[:100])}\.[a-z0-9_]{{8,16}}\.tmp")
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not ours.fullmatch(entry.name):
                continue
            info = entry.stat(follow_symlinks=False)
            old = time.time() - info.st_mtime > STALE_S
            if old and stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid():
                os.unlink(entry.name, dir_fd=folder)


def open_stream(path: Path) -> int:
    """A descriptor to write to a pipe or device by, without waiting for a reader. Raises OSError."""
    return open_own(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def pour(descriptor: int, data: bytes) -> None:
    """Write to a pipe or device. Raises OSError, also where its reader takes nothing for ten seconds."""
    left = memoryview(data)
    ready = select.poll()
    ready.register(descriptor, select.POLLOUT)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            if not ready.poll(READER_S * 1000):
                raise OSError(errno.ETIMEDOUT, f"its reader took nothing for {READER_S:g} s") from None


def load(path: Path = LAST) -> Report:
    """The report in a file; one that is somebody else's as `disowned` has it.

    Raises ReportError with one line that names the file.
    """
    try:
        # Not blocking on a pipe without a writer, and never more bytes than a report may have.
        opened = open_shared(path, found=False)
        with opened.file as file:
            # Python sets aside as much as is asked for, whatever is there.
            data = file.read(min(opened.size, SIZE_MAX) + 1)
    except IsADirectoryError:
        raise ReportError(f"{path}: is a folder; name a file") from None
    except FileNotFoundError:
        advice = "; netdoctor scan writes it" if path == LAST else nearest_file(path)
        raise ReportError(f"{path}: no such file{advice}") from None
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise ReportError(f"{path}: {text or error}") from None
    try:
        report = loads(data, str(path))
    except ReportError as error:
        raise ReportError(f"{path}: {_hosts_file(path, data) or error}") from None
    owner = opened.owner or report.run.foreign
    return disowned(report, owner) if owner else _with_present_scripts(moved(report, path))


def _hosts_file(path: Path, data: bytes) -> str:
    """What is wrong with a file that is no report where it is a list of hosts; else ''."""
    from netdoctor.inventory import InventoryError
    from netdoctor.inventory import load as load_hosts

    if data.lstrip()[:1] in (b"{", b"["):
        return ""
    try:
        load_hosts([str(path)])
    except InventoryError:
        return ""
    return f"this is a hosts file, not a report; netdoctor scan {quote_path(str(path))} examines its nodes"


def _with_present_scripts(report: Report) -> Report:
    """The report; a fix whose script is not there any more, or not from here, is printed whole."""
    fixes = [fix for cause in report.causes for fix in cause.fixes]
    missing = {fix.script for fix in fixes if fix.script and not Path(fix.script).is_file()}
    if not missing:
        return report
    return dataclasses.replace(report, causes=tuple(_without(cause, missing) for cause in report.causes))


def _without(cause: Cause, scripts: Container[str]) -> Cause:
    fixes = (dataclasses.replace(f, script="") if f.script in scripts else f for f in cause.fixes)
    return dataclasses.replace(cause, fixes=tuple(fixes))
