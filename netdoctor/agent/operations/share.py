"""Whether a folder is one on all nodes, by writing: a small hidden file, which goes in any case.

A child holds what it has written, and removes it when nobody asks it any more: when the experiment is over,
when the session ends, and when the agent is killed. A node that dies leaves its file to the others.
"""

import errno
import os
import time

from .. import runtime
from ..facts import places as facts_places
from ..system import aside, files, mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

# As for other questions about mounts; a write waits for the server's disk, too.
PATIENCE_S = 8.0
LETTING_GO_S = 2.0
PATHS_AT_MOST = 8
# A page: enough for quotas, full file systems and delayed allocation to show at the latest in fsync.
SIZE_BYTES = 4096
PREFIX = ".netdoctor-write-"
# NFS may take a directory's attributes from its cache for acdirmax, 60 s unless it was mounted otherwise.
# [nfs(5)] A mount that says more is waited for so long, to a bound; what is not NFS makes no such promise.
ACDIRMAX_S = 60.0
CACHED_AT_MOST_S = 120.0
LEEWAY_S = 5.0
UNCACHED_S = 1.0

_HEX = frozenset("0123456789abcdef")
_experiments = {}  # type: dict[str, _Experiment]  # by the token of the experiment


def name_of(token: str, number: int) -> str:
    """Return the name of the file that node `number` writes. Raises ValueError."""
    if len(token) != 32 or set(token) - _HEX:
        raise ValueError("no token")
    return "%s%s-%d" % (PREFIX, token, int(number))


def content_of(token: str, number: int) -> bytes:
    """Return what is in it."""
    line = b"netdoctor writes this and removes it: %s %d\n" % (token.encode(), int(number))
    return (line * (SIZE_BYTES // len(line) + 1))[:SIZE_BYTES]


def cached_s(mount: "Optional[mounts.Mount]") -> float:
    """Return how long a client may know nothing of a new file."""
    if mount is None or not mount.is_network:
        return 0.0
    for option in mount.options.split(","):
        name, _, value = option.partition("=")
        if name in ("acdirmax", "actimeo") and value.isdigit():
            return min(float(value), CACHED_AT_MOST_S)
    return ACDIRMAX_S


# --- in the child -----------------------------------------------------------------------------------------


class Folder(object):
    """One folder, held open, and the file that was written into it."""

    def __init__(self, path: str, token: str, number: int) -> None:
        self.path = path
        self.token = token
        self.number = number
        self.fd = -1
        self.created = False

    def write(self) -> "dict[str, Any]":
        """Make the file, which must not be there yet, and have it on the server."""
        row = {"error": "", "step": "", "owner": None}  # type: dict[str, Any]
        step = "folder"
        try:
            # A link to the folder is followed, as a job's open() would; none is inside of it.
            self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            step = "create"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(name_of(self.token, self.number), flags, 0o600, dir_fd=self.fd)
            self.created = True
            step = "write"
            try:
                data = content_of(self.token, self.number)
                while data:
                    data = data[os.write(file, data) :]
                os.fsync(file)
                row["owner"] = os.fstat(file).st_uid
            finally:
                os.close(file)
        except OSError as e:
            row.update(error=files.errno_name(e), step=step)
            self.remove()
        return row

    def read(self, number: int) -> str:
        """Return what keeps another node's file from being read, empty for nothing."""
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(name_of(self.token, number), flags, dir_fd=self.fd)
            try:
                found = os.read(file, 2 * SIZE_BYTES)
            finally:
                os.close(file)
        except OSError as e:
            return files.errno_name(e)
        return "" if found == content_of(self.token, number) else "other bytes"

    def remove(self, number: "Optional[int]" = None) -> str:
        """Remove the own file, or another node's; return the error, empty also where it is gone already."""
        try:
            if self.fd >= 0 and (number is not None or self.created):
                os.unlink(name_of(self.token, self.number if number is None else number), dir_fd=self.fd)
        except OSError as e:
            if e.errno != errno.ENOENT:
                return files.errno_name(e)
        if number is None:
            self.created = False
        return ""


def _answer(folder: Folder, question: "list[Any]") -> "Any":
    what, numbers = question
    if what == "write":
        return folder.write()
    if what == "read":
        return [folder.read(number) for number in numbers]
    return folder.remove() or next(filter(None, map(folder.remove, numbers)), "")


# --- in the agent -----------------------------------------------------------------------------------------


class _Experiment(object):
    """The folders of one experiment, each with its child."""

    def __init__(self, token: str, number: int) -> None:
        self.token = token
        self.number = number
        self.askers = {}  # type: dict[str, aside.Asker]

    def open(self, path: str, real: str) -> None:
        """Raises OSError where no process can be started."""
        folder = Folder(real, self.token, self.number)
        self.askers[path] = aside.Asker(lambda question: _answer(folder, question), folder.remove)

    def ask(self, path: str, what: str, numbers: "Optional[list[int]]" = None) -> "Any":
        """Return a child's answer, None where it hangs: then it is given up, and its file left to others."""
        asker = self.askers.get(path)
        if asker is None:
            return None
        try:
            return asker.ask([what, numbers or []], PATIENCE_S)
        except (aside.Hung, OSError, ValueError):
            del self.askers[path]
            asker.close()
            return None

    def close(self) -> None:
        askers = list(self.askers.values())
        self.askers.clear()
        aside.let_go(askers, LETTING_GO_S)


def _close_all() -> None:
    while _experiments:
        _experiments.popitem()[1].close()


def _paths(args: "dict[str, Any]") -> "list[str]":
    return [str(path) for path in list(args.get("paths") or [])[:PATHS_AT_MOST]]


def share(args: "dict[str, Any]") -> "list[dict[str, Any]]":
    """Write into the folders. args: {"paths", "token", "number": this node's}.

    Rows: {"path", "error": name of an errno or "hangs", "step": "folder", "create" or "write", "owner": of
    the file, "uid": of this process, "place": what is mounted there, "cached_s": for how long it may be
    unseen}.
    """
    experiment = _Experiment(str(args.get("token")), int(args.get("number") or 0))
    name_of(experiment.token, experiment.number)
    if not _experiments:
        runtime.at_exit(_close_all)
    _experiments[experiment.token] = experiment
    mounted = mounts.read_mounts("/")
    rows = []
    home = os.environ.get("HOME") or ""
    for path in _paths(args):
        real = home + path[1:] if path == "~" or path.startswith("~/") else path
        row = {"path": path, "error": facts_places.HUNG, "step": "folder"}  # type: dict[str, Any]
        row.update(owner=None, uid=os.geteuid())
        experiment.open(path, real)
        answer = experiment.ask(path, "write")
        mount = mounts.mount_of(real, mounted)
        row["place"] = "%s %s" % (mount.kind, mount.source) if mount and mount.is_network else "local"
        row["cached_s"] = cached_s(mount)
        row.update(answer or {})
        rows.append(row)
    return rows


def read(args: "dict[str, Any]") -> "list[dict[str, Any]]":
    """Read what others have written. args: {"token", "reads": {path: [numbers]}, "cached_s": by path}.

    Rows: {"path", "number", "error", "after_s": how long it took to be seen}.
    """
    experiment = _experiments.get(str(args.get("token")))
    waits = dict(args.get("cached_s") or {})
    waiting = {}  # type: dict[tuple[str, int], dict[str, Any]]
    for path, numbers in dict(args.get("reads") or {}).items():
        for number in list(numbers)[:64]:
            row = {"path": path, "number": number, "error": facts_places.HUNG, "after_s": 0.0}
            waiting[path, number] = row
    rows = list(waiting.values())
    started = time.monotonic()
    pause = 0.05
    while experiment and waiting:
        for path in sorted({path for path, _ in waiting}):
            numbers = [number for at, number in waiting if at == path]
            after = time.monotonic() - started
            answer = experiment.ask(path, "read", numbers) or [facts_places.HUNG] * len(numbers)
            cached = min(float(waits.get(path) or 0.0), CACHED_AT_MOST_S)
            limit = cached + LEEWAY_S if cached > 0 else UNCACHED_S
            for number, error in zip(numbers, answer):  # noqa: B905  strict= is of 3.10
                waiting[path, number].update(error=error, after_s=after)
                # What is not there may still come; everything else is an answer.
                if error not in ("ENOENT", "ESTALE") or after >= limit:
                    del waiting[path, number]
        if waiting:
            time.sleep(pause)
            pause = min(2 * pause, 2.0)
    return rows


def remove(args: "dict[str, Any]") -> "dict[str, str]":
    """Remove the own files, and others'. args: {"token", "others": numbers of those who said nothing}.

    Result: what went wrong, by path.
    """
    experiment = _experiments.pop(str(args.get("token")), None)
    found = {}
    for path in list(experiment.askers) if experiment else []:
        assert experiment is not None
        error = experiment.ask(path, "remove", list(args.get("others") or []))
        if error or error is None:
            found[path] = str(error or facts_places.HUNG)
    if experiment:
        experiment.close()
    return found
