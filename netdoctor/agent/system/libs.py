"""Finds shared libraries as the dynamic loader would, without starting ldconfig or a compiler."""

import os
import struct

from . import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Optional

_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_CAP = 8 << 20
_DIRECTORIES = (
    "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib",
)  # fmt: skip
# Where the container toolkit, drivers and vendors put libraries without telling ldconfig.
NVIDIA_DIRECTORIES = (
    "/usr/lib64/nvidia", "/usr/lib/nvidia", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
    "/usr/local/cuda/compat", "/run/nvidia/driver/usr/lib64", "/usr/lib/wsl/lib",
)  # fmt: skip


def parse_cache(data: bytes) -> "list[tuple[str, str]]":
    """Return (soname, path) pairs of /etc/ld.so.cache in its order; empty for a foreign format."""
    start = data.find(_CACHE_MAGIC)  # behind the older format where both are written
    if start < 0 or len(data) < start + 48:
        return []
    count = struct.unpack_from("=I", data, start + 20)[0]

    def text(offset: int) -> str:
        at = start + offset
        end = data.find(b"\0", at, at + 4096)
        return data[at:end].decode("utf-8", "replace") if end >= 0 else ""

    found = []
    for i in range(min(count, 100000)):
        at = start + 48 + 24 * i
        if at + 24 > len(data):
            break
        _, key, value = struct.unpack_from("=iII", data, at)
        found.append((text(key), text(value)))
    return found


def cached(soname: str, root: str = "/") -> "list[str]":
    """Return the paths that the loader's cache names for a soname."""
    try:
        data = files.read_bytes(files.under(root, "/etc/ld.so.cache"), _CACHE_CAP)
    except OSError:
        return []
    if soname.encode("utf-8", "surrogateescape") + b"\0" not in data:
        return []  # most names on most machines, and a thousand entries need not be read
    return [path for name, path in parse_cache(data) if name == soname]


def is_file(path: str, root: str = "/") -> bool:
    """Say whether a path, absolute on the node, is a file below `root`."""
    return os.path.isfile(files.under(root, path))


def version_of(path: str) -> "Optional[str]":
    """Return 2.21.5 of a library whose real name is libnccl.so.2.21.5, None where it names none."""
    version = os.path.realpath(path).rpartition(".so.")[2]
    return version if "." in version and version.replace(".", "").isdigit() else None


def find(soname: str, root: str = "/", library_path: str = "", more: "tuple[str, ...]" = ()) -> "list[str]":
    """Return existing paths of a library, in the loader's order, without repeats.

    library_path: LD_LIBRARY_PATH. more: directories that the loader itself would not look into, last.
    """
    folders = [folder for folder in library_path.replace(";", ":").split(":") if folder]
    paths = [os.path.join(folder, soname) for folder in folders]
    paths += cached(soname, root)
    paths += [os.path.join(folder, soname) for folder in _DIRECTORIES + more]
    found = []
    visited = set()
    for path in paths:
        if path.startswith("/") and is_file(path, root):
            real = os.path.realpath(files.under(root, path))
            if real not in visited:
                visited.add(real)
                found.append(path)
    return found


class Dynamic(object):
    """What an ELF file asks of the loader."""

    def __init__(self, needed: "list[str]", rpath: "list[str]", runpath: "list[str]") -> None:
        self.needed = needed
        self.rpath = rpath
        self.runpath = runpath


def _elf_head(file: "IO[bytes]") -> bytes:
    """Return the header of a 64-bit little-endian ELF file. Raises ValueError for another."""
    head = file.read(64)
    if head[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no ELF file of 64 bits")
    return head


def dynamic(path: str) -> "Optional[Dynamic]":
    """Return DT_NEEDED, DT_RPATH and DT_RUNPATH of a 64-bit little-endian ELF file, or None."""
    try:
        with open(path, "rb") as f:
            head = _elf_head(f)
            table = struct.unpack_from("<Q", head, 32)[0]
            size, count = struct.unpack_from("<HH", head, 54)
            segments = []
            dynamic_segment = None
            f.seek(table)
            for _ in range(min(count, 256)):
                row = f.read(size)
                kind = struct.unpack_from("<I", row)[0]
                offset, address = struct.unpack_from("<QQ", row, 8)
                length = struct.unpack_from("<Q", row, 32)[0]
                if kind == 1:  # PT_LOAD
                    segments.append((address, offset, length))
                elif kind == 2:  # PT_DYNAMIC
                    dynamic_segment = (offset, length)
            if dynamic_segment is None:
                return None
            f.seek(dynamic_segment[0])
            data = f.read(min(dynamic_segment[1], 1 << 20))
            entries = []
            for at in range(0, len(data) - 15, 16):
                tag, value = struct.unpack_from("<qQ", data, at)
                if tag == 0:
                    break
                entries.append((tag, value))
            where = dict(entries).get(5)  # DT_STRTAB
            if where is None:
                return None
            base = next((o + where - a for a, o, n in segments if a <= where < a + n), where)

            def text(offset: int) -> str:
                f.seek(base + offset)
                return f.read(4096).split(b"\0", 1)[0].decode("utf-8", "replace")

            return Dynamic(
                [text(value) for tag, value in entries[:4096] if tag == 1],
                [p for tag, value in entries if tag == 15 for p in text(value).split(":")],
                [p for tag, value in entries if tag == 29 for p in text(value).split(":")],
            )
    except (OSError, struct.error, ValueError):
        return None


def section(path: str, name: str, cap: int = 8 << 20) -> bytes:
    """Return at most `cap` bytes of a section (``.rodata``) of a 64-bit little-endian ELF file, else none."""
    try:
        with open(path, "rb") as f:
            head = _elf_head(f)
            table = struct.unpack_from("<Q", head, 40)[0]
            size, count, strings = struct.unpack_from("<HHH", head, 58)
            f.seek(table)
            data = f.read(size * min(count, 256))
            rows = [data[at : at + size] for at in range(0, len(data), size)]
            position, length = struct.unpack_from("<QQ", rows[strings], 24)
            f.seek(position)
            words = f.read(min(length, 65536))
            for row in rows:
                at = struct.unpack_from("<I", row)[0]
                if words[at:].startswith(name.encode("ascii") + b"\0"):
                    position, length = struct.unpack_from("<QQ", row, 24)
                    f.seek(position)
                    return f.read(min(length, cap))
    except (OSError, struct.error, ValueError, IndexError, OverflowError):
        pass
    return b""


def expand(entries: "list[str]", origin: str) -> "list[str]":
    """Return search directories with $ORIGIN replaced by the folder of the file that names them."""
    return [
        os.path.normpath(entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
        for entry in entries
        if entry
    ]
