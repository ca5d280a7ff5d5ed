"""Files that a user names, read whole without waiting for a pipe or a device; those that others may have
written or put a link in the place of; and a file for a traceback."""

import errno
import os
import shlex
import stat
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice

from netdoctor.text import clean

# As the kernel has it.
LINKS_MAX = 40
NEIGHBOURS_MAX = 5000
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_regular(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the bytes of a regular file, one more than `limit` where it is larger; the null device is empty.

    Raises OSError, whose strerror says what is there instead of a file.
    """
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, a device without a driver
            raise _no_file(path) from None
        raise
    try:
        found = os.fstat(descriptor)
        null = stat.S_ISCHR(found.st_mode) and os.path.samestat(found, os.stat(os.devnull))
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) or null):
            raise _no_file(path)
        with open(descriptor, "rb", closefd=False) as file:  # IsADirectoryError
            return file.read(limit + 1)
    finally:
        os.close(descriptor)


def reason(error: Exception) -> str:
    """What was wrong with a file that somebody named, and the name that he may have meant."""
    name = getattr(error, "filename", None) if isinstance(error, FileNotFoundError) else None
    text = clean(getattr(error, "strerror", None) or str(error))
    return f"{text[:1].lower()}{text[1:]}{nearest_file(name) if name else ''}"


def nearest_file(path: str | os.PathLike[str]) -> str:
    """``; did you mean train.env?``: the file whose name is nearest; or the folder that is missing."""
    from difflib import get_close_matches

    folder, name = os.path.split(os.fspath(path))
    if folder and not os.path.isdir(folder):
        return f"; there is no folder {clean(folder, 200)}"
    # The file itself may be among them, where it cannot be opened.
    others = [one for one in names_in(folder or ".") if one != name]
    found = (os.path.join(folder, one) for one in get_close_matches(name[:255], others, n=3))
    return next((f"; did you mean {clean(path, 300)}?" for path in found if os.path.isfile(path)), "")


def names_in(folder: str) -> list[str]:
    """Names in a folder, of a large one some; none where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, NEIGHBOURS_MAX)]
    except OSError:
        return []


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that others may have written. All is asked of the open file: its name may stand for another
    one a moment later. It is the caller's to close."""

    file: BufferedReader
    owner: str | None  # as foreign_owner() has it
    mode: int  # permissions
    uid: int
    size: int


def open_shared(path: str | os.PathLike[str], *, found: bool) -> Opened:
    """Open a regular file in a place where others may write. Raises OSError.

    found: the name was found in a folder, and no link is followed; where the user has typed it, links of his
    own and of root's are.
    """
    descriptor = os.open(path, _READ | os.O_NOFOLLOW) if found else open_own(path, _READ)
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        if stat.S_ISDIR(info.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    file = os.fdopen(descriptor, "rb")
    return Opened(file, foreign_owner(info.st_uid), stat.S_IMODE(info.st_mode), info.st_uid, info.st_size)


def require_own(path: str | os.PathLike[str]) -> None:
    """Raise OSError where somebody else has made a file or folder, may write to it, or a link on its way."""
    descriptor = open_own(path, _READ)
    info = os.fstat(descriptor)
    os.close(descriptor)
    mode, owner = stat.S_IMODE(info.st_mode), foreign_owner(info.st_uid)
    if owner:
        raise PermissionError(errno.EPERM, f"it belongs to {owner}; take a copy of yours", os.fspath(path))
    if mode & 0o022:
        fix = f"chmod go-w {shlex.quote(os.fspath(path))}"
        raise PermissionError(errno.EPERM, f"others may write to it (mode {mode:o}): {fix}", os.fspath(path))


def open_own(path: str | os.PathLike[str], flags: int) -> int:
    """A descriptor of what is there now, through no link that is somebody else's. Raises OSError."""
    folder, name = behind_links(path)
    try:
        return os.open(name, flags | (0 if _is_magic(folder, name) else os.O_NOFOLLOW), dir_fd=folder)
    finally:
        os.close(folder)


def behind_links(path: str | os.PathLike[str]) -> tuple[int, str]:
    """(descriptor of a folder, name in it) of what stands behind the links of that name. Raises OSError.

    A link that neither this user nor root has made is not followed. There may be nothing of that name.
    """
    folder, name = _parent(os.fspath(path), None)
    try:
        for _ in range(LINKS_MAX):
            try:
                info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return folder, name
            if not stat.S_ISLNK(info.st_mode) or _is_magic(folder, name):
                return folder, name
            link = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                owner, target = foreign_owner(os.fstat(link).st_uid), os.readlink("", dir_fd=link)
            finally:
                os.close(link)
            if owner:
                raise OSError(
                    errno.EPERM, f"it is a link that belongs to {owner}, and is not followed", os.fspath(path)
                )
            before = folder
            folder, name = _parent(target, before)
            os.close(before)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    except BaseException:
        os.close(folder)
        raise


def _parent(path: str, folder: int | None) -> tuple[int, str]:
    parent, name = os.path.split(path.rstrip("/") or path)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    return os.open(parent or ".", flags, dir_fd=folder), name or "."


def _is_magic(folder: int, name: str) -> bool:
    """Whether it is one of the kernel's own links that lead to no path, such as /proc/self/fd/1 to a pipe."""
    try:
        target = os.readlink(name, dir_fd=folder)
        return not target.startswith("/") and os.fstat(folder).st_dev == os.stat("/proc/self/fd").st_dev
    except OSError:
        return False


def foreign_owner(uid: int) -> str | None:
    """Who a file belongs to, None where that is this user or root, who could change netdoctor itself.

    As a number: asking for the name may wait for a directory server, and redaction would have to hide it.
    """
    return None if uid in (os.geteuid(), 0) else f"uid {uid}"


def _no_file(path: str | os.PathLike[str]) -> OSError:
    return OSError(errno.EINVAL, "not a regular file", os.fspath(path))


def keep_traceback(text: str) -> str | None:
    """Write a traceback to a temporary file and return its name; None where none can be written."""
    import tempfile

    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="netdoctor-", suffix=".traceback", delete=False, encoding="utf-8", errors="replace"
        ) as file:
            file.write(text)
            return file.name
    except OSError:
        return None
