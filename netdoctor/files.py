"""Files that a user names, read whole without waiting for a pipe or a device; and a file for a traceback."""

import errno
import os
import stat


def read_regular(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the bytes of a regular file, one more than `limit` where it is larger; the null device is empty.

    Raises OSError, whose strerror says what is there instead of a file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
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
