"""How fast a file system is for this node: writes with fsync, cold reads, small files; bounded in all.

A child holds a private folder in each path, measures in slices, and removes it when nobody asks any more:
also when the agent is killed. What a dead node has left the others remove, or a later run.
"""

import errno
import fcntl
import mmap
import os
import stat
import time

from .. import runtime
from ..system import aside, files, mounts
from . import share

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PREFIX, SAMPLE = ".netdoctor-rate-", "sample"
# Space that a node takes in a path, and in its own /tmp; what it moves in one measurement, whatever the rate.
SAMPLE_BYTES, LOCAL_BYTES, MIN_BYTES = 256 << 20, 64 << 20, 8 << 20
MOVED_BYTES = {"write": 2 << 30, "read": 4 << 30, "files": 1 << 30}
# The first piece of I/O and the largest: they grow while one takes less than PIECE_S.
PIECE_BYTES, PIECES_BYTES, PIECE_S = 1 << 20, 16 << 20, 0.1
FILES, FILE_BYTES = tuple(map(str, range(8))), 4096
SLICE_S, SECONDS_MAX = 0.25, 5.0
# For one slice, or for what is done at first and at last: a path that does not answer is given up.
PATIENCE_S, LETTING_GO_S = 12.0, 4.0
# What another run has left is older, by the file server's clock. So many names are looked at.
STALE_S, NAMES_MAX = 3600.0, 20000
READ_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
INSIDE = os.O_NOFOLLOW | os.O_CLOEXEC

_experiments = {}  # type: dict[str, dict[str, aside.Asker]]  # by token: the child of each path


class Storage(object):
    """In a child: a folder in which files are written and read, or one file that is only read."""

    def __init__(self, path: str, token: str, number: int, max_bytes: int, nodes: int) -> None:
        self.path, self.token, self.max_bytes, self.nodes = path, token, max_bytes, nodes
        self.name = self.name_of(number)
        self.above = self.folder = self.fd = -1
        self.position = self.size = 0
        self.piece = PIECE_BYTES
        self.direct = False
        self.buffer = mmap.mmap(-1, PIECES_BYTES)  # on a page's bound, as O_DIRECT wants it

    def name_of(self, number: int) -> str:
        return PREFIX + share.name_of(self.token, number)[len(share.PREFIX) :]

    def open(self) -> "dict[str, Any]":
        """Make the private folder, where the path is one; a file is only looked at. Raises OSError."""
        if stat.S_ISREG(os.stat(self.path).st_mode):
            self.fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self.size = os.fstat(self.fd).st_size
            return {"error": "" if self.size else "empty", "file": True}
        self.above = os.open(self.path, READ_FOLDER)
        room = os.fstatvfs(self.above)
        # Half of what is free, for all nodes together.
        pieces = room.f_bavail * room.f_frsize // (2 * self.nodes) // PIECE_BYTES
        self.max_bytes = min(self.max_bytes, pieces * PIECE_BYTES)
        if self.max_bytes < MIN_BYTES:
            return {"error": "room"}
        os.mkdir(self.name, 0o700, dir_fd=self.above)
        self.folder = os.open(self.name, READ_FOLDER | os.O_NOFOLLOW, dir_fd=self.above)
        self.buffer.write(os.urandom(PIECES_BYTES))  # what a file system cannot compress
        self._remove_stale()
        return {"error": ""}

    def start(self, kind: str, part: int) -> "dict[str, Any]":
        """Begin a measurement. part: of a file that is only read, so that no two nodes read the same."""
        self.position, self.piece = 0, PIECE_BYTES
        if kind == "write":
            if self.fd >= 0:
                os.close(self.fd)
            self.fd = os.open(SAMPLE, INSIDE | os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=self.folder)
            self.size = 0
        elif kind == "read":
            if self.folder < 0:
                self.position = part * SAMPLE_BYTES % max(1, self.size - PIECES_BYTES) // 4096 * 4096
            self._drop()
            self.direct = self._is_direct()
        return {"error": ""}

    def measure(self, kind: str, seconds: float) -> "dict[str, Any]":
        """Do so for a while. amount: bytes, or files created, looked at and removed."""
        step = {"write": self._write, "read": self._read, "files": self._files}[kind]
        amount, before = 0, time.monotonic()
        end = before + seconds
        began = before
        while before < end:
            amount += step()
            after = time.monotonic()
            if after - before < PIECE_S:
                self.piece = min(2 * self.piece, PIECES_BYTES)
            before = after
        return {"error": "", "amount": amount, "seconds": before - began, "direct": self.direct}

    def _write(self) -> int:
        rest = memoryview(self.buffer)[: min(self.piece, self.max_bytes - self.position)]
        size = len(rest)
        os.lseek(self.fd, self.position, os.SEEK_SET)
        while rest:
            rest = rest[os.write(self.fd, rest) :]
        os.fsync(self.fd)
        self.size = max(self.size, self.position + size)
        self.position = (self.position + size) % self.max_bytes
        return size

    def _read(self) -> int:
        os.lseek(self.fd, self.position, os.SEEK_SET)
        size = os.readv(self.fd, [memoryview(self.buffer)[: self.piece]])
        self.position += size
        if self.position >= self.size or not size:
            self.position = 0
            self._drop()
        self.position -= self.position % 4096  # for O_DIRECT, after a read that ended early
        return size

    def _files(self) -> int:
        for name in FILES:
            file = os.open(name, INSIDE | os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self.folder)
            os.write(file, memoryview(self.buffer)[:FILE_BYTES])
            os.close(file)
        for name in FILES:
            os.stat(name, dir_fd=self.folder)
        for name in FILES:
            os.unlink(name, dir_fd=self.folder)
        return len(FILES)

    def _drop(self) -> None:
        """Take the file out of the page cache: what is on disk already can go. [posix_fadvise(2)]"""
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def _is_direct(self) -> bool:
        """Read past the page cache from now on, where the file system lets us."""
        flags = fcntl.fcntl(self.fd, fcntl.F_GETFL)
        try:
            fcntl.fcntl(self.fd, fcntl.F_SETFL, flags | os.O_DIRECT)
            os.lseek(self.fd, 0, os.SEEK_SET)
            os.readv(self.fd, [memoryview(self.buffer)[:PIECE_BYTES]])
        except OSError as e:
            if e.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            fcntl.fcntl(self.fd, fcntl.F_SETFL, flags & ~os.O_DIRECT)
            return False
        return True

    def _remove_stale(self) -> None:
        """Remove what this user's earlier runs have left."""
        own_folder = os.fstat(self.folder)
        with os.scandir(self.path) as entries:
            for _, entry in zip(range(NAMES_MAX), entries):  # noqa: B905  strict= is of 3.10
                token, _, number = entry.name[len(PREFIX) :].partition("-")
                if entry.name.startswith(PREFIX) and len(token) == 32 and number.isdigit():
                    found = os.stat(entry.name, dir_fd=self.above, follow_symlinks=False)
                    if found.st_uid == own_folder.st_uid and own_folder.st_mtime - found.st_mtime > STALE_S:
                        self._remove(entry.name)

    def _remove(self, name: str) -> str:
        """Remove a private folder and our files in it; return the error, empty also where it is gone."""
        try:
            folder = os.open(name, READ_FOLDER | os.O_NOFOLLOW, dir_fd=self.above)
            try:
                for file in set(os.listdir(folder)) & {SAMPLE, *FILES}:
                    os.unlink(file, dir_fd=folder)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=self.above)
        except FileNotFoundError:
            pass
        except OSError as e:
            return files.errno_name(e)
        return ""

    def remove(self, others: "tuple[int, ...]" = ()) -> "dict[str, Any]":
        """Remove the own folder, and those of nodes that were lost."""
        if self.fd >= 0:
            os.close(self.fd)  # NFS keeps a file under another name while it is open
            self.fd = -1
        names = [self.name] if self.folder >= 0 else []
        names += map(self.name_of, others if self.above >= 0 else ())
        return {"error": next(filter(None, map(self._remove, names)), "")}

    def answer(self, question: "list[Any]") -> "dict[str, Any]":
        try:
            found = getattr(self, question[0])(*question[1:])  # type: dict[str, Any]
        except OSError as e:
            return {"error": files.errno_name(e)}
        return found


# --- in the agent -----------------------------------------------------------------------------------------


def _start(storage: Storage) -> aside.Asker:
    """Return a child at the priority that a job has. Raises OSError."""
    child = runtime.normally(lambda: aside.Asker(storage.answer, storage.remove))  # type: aside.Asker
    return child


def _ask(children: "dict[str, aside.Asker]", path: str, *question: "Any") -> "dict[str, Any]":
    """Return a child's answer; a child that hangs is given up, and its folder left to others."""
    try:
        found = children[path].ask(list(question), PATIENCE_S)  # type: dict[str, Any]
    except (aside.Hung, OSError, ValueError, KeyError):
        if path in children:
            children.pop(path).close()
        return {"error": "hangs"}
    return found


def _close_all() -> None:
    while _experiments:
        aside.let_go(list(_experiments.popitem()[1].values()), LETTING_GO_S)


def _local_folder(mounted: "list[mounts.Mount]") -> str:
    """Return a folder for temporary files on this machine itself, empty for none."""
    for path in (os.environ.get("TMPDIR") or "", "/tmp", "/var/tmp"):  # noqa: S108  a private folder in it
        mount = mounts.mount_of(os.path.realpath(path), mounted) if path.startswith("/") else None
        if mount and not mount.is_network and os.access(path, os.W_OK):
            return path
    return ""


def open_storage(args: "dict[str, Any]") -> "list[dict[str, Any]]":
    """Make ready. args: {"path", "token", "number": this node's, "nodes": how many take part}.

    Rows for the path, and for ``""``, a folder of this machine's own: {"path", "error": name of an errno,
    "hangs", "room" or "empty", "file": it is one, "place": what is mounted there}.
    """
    token, number, asked_path = str(args.get("token")), int(args.get("number") or 0), str(args.get("path"))
    share.name_of(token, number)  # raises ValueError
    if not _experiments:
        runtime.at_exit(_close_all)
    children = _experiments.setdefault(token, {})
    mounted, rows = mounts.read_mounts("/"), []
    home = os.environ.get("HOME") or ""
    real = home + asked_path[1:] if asked_path == "~" or asked_path.startswith("~/") else asked_path
    nodes = max(1, int(args.get("nodes") or 1))
    for path, at, size, count in (
        (asked_path, real, SAMPLE_BYTES, nodes),
        ("", _local_folder(mounted), LOCAL_BYTES, 1),
    ):
        children[path] = _start(Storage(at, token, number, size, count))
        mount = mounts.mount_of(os.path.abspath(at), mounted)
        row = {"path": path, "file": False, "place": "local"}  # type: dict[str, Any]
        if mount and mount.is_network:
            row["place"] = "%s %s" % (mount.kind, mount.source)
        row.update(_ask(children, path, "open"))
        rows.append(row)
    return rows


def run_storage(args: "dict[str, Any]") -> "list[dict[str, Any]]":
    """Measure, one after the other. args: {"token", "steps": [{"path", "kind", "seconds", "part"}]}.

    Rows: {"path", "kind", "amount": bytes or files, "seconds", "direct": read past the page cache, "full":
    all that may be moved was moved before the time was over, "error"}.
    """
    children = _experiments.get(str(args.get("token"))) or {}
    rows = []
    for step in list(args.get("steps") or [])[:16]:
        path, kind = str(step["path"]), str(step["kind"])
        left = min(float(step["seconds"]), SECONDS_MAX)
        row = {"path": path, "kind": kind, "direct": False}  # type: dict[str, Any]
        amount, seconds, full = 0, 0.0, False
        answer = _ask(children, path, "start", kind, int(step.get("part") or 0))
        while not answer["error"] and left > seconds and not full:
            answer = _ask(children, path, "measure", kind, min(SLICE_S, left - seconds))
            if not answer["error"]:
                amount += answer["amount"]
                seconds += answer["seconds"]
                row["direct"] = kind == "read" and answer["direct"]
                full = amount * (FILE_BYTES if kind == "files" else 1) >= MOVED_BYTES[kind]
        rows.append(dict(row, amount=amount, seconds=seconds, full=full, error=answer["error"]))
    return rows


def close_storage(args: "dict[str, Any]") -> "dict[str, str]":
    """Remove all; return what went wrong, by path. args: {"token", "others": numbers of lost nodes}."""
    children = _experiments.pop(str(args.get("token")), {})
    others = list(args.get("others") or [])
    found = {path: _ask(children, path, "remove", others if path else [])["error"] for path in list(children)}
    aside.let_go(list(children.values()), LETTING_GO_S)
    return {path: error for path, error in found.items() if error}
