"""What a tried job's processes print, as files: bounded, and no trial ends because a disk is full."""

import os
from pathlib import Path
from typing import BinaryIO

from netdoctor.text import clean

FILE_MAX = 64 << 20
ALL_MAX = 2 << 30
TAIL_MAX = 256 << 10


class Logs:
    """A file for each process, ``NODE.log`` or ``NODE.INDEX.log``. What is over the limits is left out, but
    for the end. fault: why nothing more is written, empty where all is well."""

    def __init__(self, folder: Path, processes: int) -> None:
        """Make the folder. Raises OSError."""
        folder.mkdir(mode=0o700, parents=True)
        self.folder = folder
        self.fault = ""
        self._most = min(FILE_MAX, ALL_MAX // max(1, processes))
        self._files: dict[str, BinaryIO] = {}
        self._sizes: dict[str, int] = {}
        self._tails: dict[str, bytes] = {}
        self._names: dict[str, str] = {}  # in the folder, by node

    def path(self, node: str, index: int, count: int) -> Path:
        if node not in self._names:
            plain = "".join(c if c.isalnum() or c in "._-" else "_" for c in node).lstrip(".") or "node"
            alone = plain not in self._names.values()
            self._names[node] = plain if alone else f"{plain}-{len(self._names)}"
        name = self._names[node]
        return self.folder / (f"{name}.log" if count == 1 else f"{name}.{index}.log")

    def write(self, path: Path, data: bytes, left_out: int = 0) -> None:
        """Add what was printed; left_out: bytes behind it that nobody has."""
        if left_out:
            data += f"\n[netdoctor: {left_out} bytes of output were left out here]\n".encode()
        name = path.name
        size = self._sizes.get(name, 0)
        room = max(0, self._most - size)
        if data[:room]:
            self._append(path, data[:room])
        if data[room:]:
            self._tails[name] = (self._tails.get(name, b"") + data[room:])[-TAIL_MAX:]
        self._sizes[name] = size + len(data)

    def _append(self, path: Path, data: bytes) -> None:
        if self.fault:
            return
        try:
            if path.name not in self._files:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
                self._files[path.name] = os.fdopen(os.open(path, flags, 0o600), "ab", buffering=0)
            self._files[path.name].write(data)
        except OSError as error:
            self.fault = clean(f"{path}: {error.strerror}", 300)

    def close(self) -> None:
        """Write the ends of what was too long, and close all files."""
        for name, tail in self._tails.items():
            lost = self._sizes[name] - self._most - len(tail)
            mark = f"\n[netdoctor: {lost} bytes of output were left out here]\n".encode() if lost > 0 else b""
            self._append(self.folder / name, mark + tail)
        for file in self._files.values():
            file.close()
        self._files.clear()
