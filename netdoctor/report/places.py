"""Where reports go, held against what is read and against each other, before anything runs."""

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from netdoctor.errors import InputError
from netdoctor.report.output import Output

# What a file is called on the command line, and the file.
NamedPath = tuple[str, Path]


def opened(outputs: Sequence[Output], save: Path | None, reads: Iterable[NamedPath]) -> list[Output]:
    """The outputs, those that are pipes or devices with an open descriptor.

    save: where the report is saved, None for nowhere. reads: all files that will be read. Raises InputError
    for a file that cannot be written, or would be written over what is read or written elsewhere.
    """
    writes = [(f"-o {o.format}={o.path}", o.path) for o in outputs if o.path is not None]
    if save is not None:
        writes.append((f"--save {save}", save))
    keep_apart(writes, reads)
    for name, path in writes:
        check(name, path)
    return [replace(o, stream=_stream(o.path)) if o.path is not None else o for o in outputs]


def _stream(path: Path) -> int | None:
    """A descriptor of a pipe or device, None for a file.

    Held open until there is something to write: a reader who waits must see no end before.
    """
    from netdoctor.report.save import open_stream

    if not _is_stream(path):
        return None
    try:
        return open_stream(path)
    except OSError as error:
        nobody = "nobody reads from this pipe yet; start its reader first"
        raise InputError(f"-o {path}: {nobody if path.is_fifo() else error.strerror}") from None


def keep_apart(writes: Sequence[NamedPath], reads: Iterable[NamedPath]) -> None:
    """Raise InputError where a file would be written that is read, or written under another name as well."""
    known = list(reads)
    for name, path in writes:
        for other, known_path in known:
            if _same(path, known_path):
                raise InputError(f"{name} and {other} are the same file: one would replace it; name another")
        known.append((name, path))


def _same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)  # also by another hard link
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def check(name: str, path: Path) -> None:
    """Raise InputError where a file cannot be written. name: how it was asked for."""
    from netdoctor.report.save import is_ours, own_folder

    folder = path.parent
    if path.is_dir():
        raise InputError(f"{name}: is a folder; name a file")
    elsewhere = ""
    if is_ours(path):
        elsewhere = "; --save FILE saves the report elsewhere, --no-save nowhere"
        try:
            if os.path.lexists(folder):
                os.close(own_folder(folder))
        except OSError as error:
            raise InputError(f"{name}: {error.strerror or error}{elsewhere}") from None
        while not folder.exists():
            folder = folder.parent
    if not folder.is_dir():
        raise InputError(f"{name}: no folder {folder}{elsewhere}")
    if not _is_stream(path) and not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{name}: no permission to write in {folder.absolute()}{elsewhere}")
    if name.startswith("--") and path.is_fifo():
        raise InputError(f"{name}: is a pipe; -o json={path} writes there")


def _is_stream(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)
