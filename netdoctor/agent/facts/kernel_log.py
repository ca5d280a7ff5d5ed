"""Group `kernel_log`: what NVIDIA's driver has written into the kernel log since the node was started."""

import os
import stat
import time

from .. import runtime
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Optional

KMSG = "/dev/kmsg"
# A kernel log is 128 KiB to some MiB; one that is written faster than it is read must not hold us.
CAP_BYTES = 16 << 20
READ_S = 3.0
MAX_EVENTS = 128
TEXT_MAX = 200

# NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, name=python, Ch 00000008, …
# NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No
# nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
_EVENT = (
    r"(NVRM: X|: SX)id \((?:PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})[^)]{0,40}\): "
    r"(\d{1,6})\b,?\s*(.*)"
)
# NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (…)
_LOADED = "NVRM: loading NVIDIA"
# The kernel's first message: who sees it in the journal sees the kernel's messages.
_FIRST = "Linux version "
_GREP = _FIRST + "|NVRM|SXid"


def records(data: bytes) -> "Iterator[tuple[float, str]]":
    """Return (seconds after boot, message) of what NVIDIA's drivers say: ``6,1234,98765432,-;message``."""
    for line in data.split(b"\n"):
        if b"NVRM" not in line and b"SXid" not in line:
            continue
        head, found, message = line.partition(b";")
        fields = head.split(b",")
        # A line with a blank in front goes on with key=value of the record before.
        if found and len(fields) >= 3 and fields[2].isdigit():
            yield int(fields[2][:18]) / 1e6, message.decode("utf-8", "replace")


def journal(text: str) -> "Iterator[tuple[float, str]]":
    """Return the same of ``[   12.345678] host kernel: message``, journalctl's short-monotonic."""
    import re

    for line in text.splitlines():
        found = re.match(r"\[\s*(\d{1,12}\.\d{1,9})\] \S+ kernel: (.*)", line)
        if found:
            yield float(found.group(1)), found.group(2)


def events(rows: "Iterator[tuple[float, str]]", now: float) -> "dict[str, Any]":
    """Return facts.gpu.KernelLog but for what says how it was read: equal events counted together."""
    import re

    pattern = re.compile(_EVENT)
    found = {}  # type: dict[tuple[str, str, int], dict[str, Any]]
    loaded = None  # type: Optional[float]
    for at, message in rows:
        if _LOADED in message:
            loaded = at
        event = pattern.search(message)
        if event is None:
            continue
        kind = "xid" if event.group(1)[0] == "N" else "sxid"
        key = (kind, event.group(2).lower()[-10:], int(event.group(3)))
        age = max(0.0, round(now - at, 1))
        if key not in found and len(found) >= MAX_EVENTS:
            continue
        row = found.setdefault(
            key, {"kind": kind, "device": key[1], "code": key[2], "count": 0, "first_age_s": age}
        )
        row["count"] += 1
        row["last_age_s"] = age
        row["text"] = " ".join(event.group(4).split())[:TEXT_MAX]
    return {
        "events": list(found.values()),
        "driver_age_s": None if loaded is None else max(0.0, round(now - loaded, 1)),
    }


def read_kmsg(path: str) -> bytes:
    """Return the records that the kernel has kept. Raises OSError: EPERM where only root may read them."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        kind = os.fstat(fd).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISCHR(kind)):
            raise OSError(22, "neither a device nor a file", path)
        parts = []
        size, ends = 0, time.monotonic() + READ_S
        while size < CAP_BYTES and time.monotonic() < ends:
            try:
                part = os.read(fd, 8192)  # one record from the device
            except BlockingIOError:
                break  # all of them
            except BrokenPipeError:
                continue  # this one was overwritten meanwhile: the next read goes on after it
            if not part:
                break
            parts.append(part)
            size += len(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def from_journal() -> "Optional[str]":
    """Return what the journal keeps of this boot for us, None where it shows us no kernel messages."""
    tool = runtime.find_tool("journalctl")
    if tool is None:
        return None
    argv = [tool, "-k", "-b", "-q", "--no-pager", "-o", "short-monotonic", "-g", _GREP]
    done = runtime.run_tool(argv, 4.0)
    return done.out if _FIRST in done.out else None


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.gpu.KernelLog. Raises Unavailable: not_applicable without NVIDIA's driver."""
    if not os.path.isdir(files.under(root, "/proc/driver/nvidia")):
        raise runtime.Unavailable("not_applicable", "no NVIDIA driver is loaded")
    now = time.monotonic()
    try:
        data = read_kmsg(files.under(root, KMSG))
    except OSError as e:
        text = from_journal()
        if text is None:
            return {"refused": files.errno_name(e)}
        return dict(events(journal(text), now), source="journal")
    found = events(records(data), now)
    number, at = [*data[:200].split(b",", 3), b"", b"", b""][1:3]
    # Records are numbered from 0; a buffer that begins later has lost those before.
    if number.isdigit() and at.isdigit() and int(number[:18]) > 0:
        # The journal may have kept them.
        text = from_journal()
        if text is not None:
            return dict(events(journal(text), now), source="journal")
        found["since_s"] = max(0.0, round(now - int(at[:18]) / 1e6, 1))
    return dict(found, source=KMSG)
