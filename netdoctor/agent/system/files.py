"""Reading files of a node that may be huge, binary, endless, absent or forbidden."""

import errno
import os
import stat

from .. import runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

CAP_BYTES = 256 * 1024


def read_bytes(path: str, cap: int = CAP_BYTES) -> bytes:
    """Return at most `cap` bytes. Raises OSError; refuses FIFOs, sockets and devices, which could block."""
    # O_NONBLOCK so that the open itself does not wait for the other end of a FIFO.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        parts = []
        left = cap
        while left > 0:
            part = os.read(fd, min(left, 65536))
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def read_text(path: str, cap: int = CAP_BYTES) -> str:
    """Return at most `cap` bytes as text, undecodable bytes replaced. Raises OSError."""
    return read_bytes(path, cap).decode("utf-8", "replace")


def text_or_none(path: str, cap: int = 4096) -> "Optional[str]":
    """Return the stripped text of a small file such as a sysfs attribute, or None where unreadable."""
    try:
        return read_bytes(path, cap).decode("utf-8", "replace").strip("\0 \t\r\n")
    except (OSError, ValueError):
        return None


def attribute(path: str) -> "Optional[str]":
    """Return the stripped text of a file of sysfs, None where unreadable: what one read gives is all of it.

    Thousands are read, and this takes half of what text_or_none() does.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        return os.read(fd, 4096).decode("utf-8", "replace").strip("\0 \t\r\n")
    except OSError:
        return None
    finally:
        os.close(fd)


def number(path: str) -> "Optional[int]":
    """Return the integer (decimal or 0x…) in a file of sysfs, or None."""
    text = attribute(path)
    try:
        return int(text, 0) if text else None
    except ValueError:
        return None


def names(path: str, cap: int = 65536) -> "list[str]":
    """Return the sorted names in a directory, empty where unreadable."""
    try:
        return sorted(os.listdir(path))[:cap]
    except (OSError, ValueError):
        return []


def pci_address(path: str) -> "Optional[str]":
    """Return the last PCI address in a path of sysfs: ``0000:0a:00.0``."""
    for part in reversed(path.split("/")):
        words = part.split(":")
        if len(words) == 3 and len(words[0]) >= 4 and len(words[1]) == 2 and len(words[2]) == 4:
            slot, dot, function = words[2].partition(".")
            digits = words[0] + words[1] + slot
            if dot and function in tuple("01234567") and not digits.strip("0123456789abcdef"):
                return part
    return None


def pci_path(path: str) -> "list[str]":
    """Return what leads to a PCI function, from its host bridge on: ``pci0000:80``, ``0000:80:01.1``, …."""
    parts = path.split("/")
    bridges = [i for i, part in enumerate(parts) if part.startswith("pci") and part[-3:-2] == ":"]
    return [parts[bridges[-1]]] + [p for p in parts[bridges[-1] :] if pci_address(p)] if bridges else []


_vendors = {}  # type: dict[tuple[object, str], list[tuple[str, Optional[str]]]]


def pci_of(root: str, vendor: str) -> "list[str]":
    """Return the addresses of a vendor's PCI functions, ``0x10de``.

    A large node has hundreds, and several groups of a request ask: they are read once for all of them.
    """
    request = getattr(runtime.scope, "request", None)
    known = _vendors.get((request, root)) if request is not None else None
    if known is None:
        folder = under(root, "/sys/bus/pci/devices")
        known = [(address, attribute(folder + "/" + address + "/vendor")) for address in names(folder)]
        _vendors.clear()
        _vendors[request, root] = known
    return [address for address, found in known if found == vendor]


def under(root: str, path: str) -> str:
    """Return `path` (absolute) below `root`, which tests replace by a recorded tree."""
    return os.path.join(root, path.lstrip("/"))


def errno_name(error: Exception) -> str:
    """Return ``EADDRINUSE`` and the like, or the error's text where it has no number."""
    number = getattr(error, "errno", None)
    return errno.errorcode.get(number, "errno %d" % number) if number else str(error)


def uptime_s(root: str = "/") -> "Optional[float]":
    """Return for how long the kernel runs, of ``350735.47 234388.90``."""
    word = (text_or_none(under(root, "/proc/uptime")) or "").partition(" ")[0]
    return float(word) if word.replace(".", "", 1).isdecimal() else None


def link_name(path: str) -> "Optional[str]":
    """Return the last part of where a link leads, as to a device's driver; None where there is no link."""
    try:
        return os.path.basename(os.readlink(path)) or None
    except OSError:
        return None
