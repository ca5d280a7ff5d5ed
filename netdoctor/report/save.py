"""Reports in files: whole or not at all, for their owner's eyes."""

import contextlib
import dataclasses
import os
import stat
import tempfile
from pathlib import Path

from netdoctor.report import LAST
from netdoctor.report.json_ import SIZE_MAX, ReportError, dumps, loads
from netdoctor.report.model import Report

__all__ = ["LAST", "load", "save", "write_whole"]


def save(report: Report, path: Path = LAST) -> Report:
    """Write the report with its facts and return it as written, its run naming the file.

    Raises OSError with a text that names the file; what was there before is then still there.
    """
    report = dataclasses.replace(report, run=dataclasses.replace(report.run, saved_to=str(path)))
    if path.parent.name == ".netdoctor":
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, dumps(report, facts=True))
    return report


def write_whole(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 by temporary name, fsync and rename. Raises OSError.

    A device or a pipe, such as /dev/stderr, cannot be replaced and is written to as it is.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(data)
        return
    # Through links, as an ordinary write would go; renaming over the link would part it from its target.
    path = Path(os.path.realpath(path))
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    with contextlib.suppress(OSError):  # the file is whole; only its name may be lost in a power cut
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load(path: Path = LAST) -> Report:
    """Return the report in a file. Raises ReportError with one line that names the file."""
    try:
        # Not blocking on a pipe without a writer, and never more bytes than a report may have.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ReportError(f"{path}: is no regular file")
            data = file.read(SIZE_MAX + 1)
    except IsADirectoryError:
        raise ReportError(f"{path}: is a folder; name a file") from None
    except FileNotFoundError:
        advice = "; netdoctor scan writes it" if path == LAST else ""
        raise ReportError(f"{path}: no such file{advice}") from None
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise ReportError(f"{path}: {text or error}") from None
    try:
        return loads(data)
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from None
