"""Group `places`: file systems and paths that a job uses, each asked with a bound of its own."""

import os
import stat

from ..system import aside, files
from ..system.mounts import mount_of, read_mounts
from . import limits as facts_limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ..system.mounts import Mount

# A mount that answers at all does so in milliseconds; a cold automount, or a busy server, in a second or two.
PATIENCE_S = 4.0
HUNG_AT_MOST = 3
MOUNTS_AT_MOST = 8
PATHS_AT_MOST = 32
CACHES = ("HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME")

# Where mounts of services and containers lie.
_OWN_PLACES = ("/run/", "/var/lib/kubelet/", "/var/lib/docker/", "/var/lib/containers/", "/snap/")

# Contents of a file: the whole of it up to here, of a longer one windows from end to end.
SAMPLE_BYTES = 16 << 20
WINDOW_BYTES = 256 << 10
# Of a folder: so many entries by name, of each so many below it; contents of what is small enough to be code.
ENTRIES_AT_MOST = 64
BELOW_AT_MOST = 128
LISTED_AT_MOST = 20000
SMALL_BYTES = 64 << 10
READ_BYTES = 256 << 10
DEPTH = 4
# What differs from node to node, or from minute to minute, where all is well.
_PASSING = frozenset((
    "__pycache__", ".git", ".cache", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache",
    "wandb", "logs", "nohup.out", "lost+found", ".snapshot", ".snapshots", ".Trash-0", ".locks",
))  # fmt: skip
_PASSING_ENDS = (".pyc", ".pyo", ".log", ".lock", ".pid", ".tmp", ".swp", ".out", ".err")
_PASSING_STARTS = (".nfs", "core.", "slurm-", "events.out.", ".fuse_hidden")


# --- in the child -----------------------------------------------------------------------------------------


def look(entry: "dict[str, Any]", mounts: "list[Mount]", root: str) -> "dict[str, Any]":
    """Return facts.places.Place of one path. Whatever this touches may hang."""
    found = dict(entry)
    real = os.path.realpath(files.under(root, entry["path"]))
    inside = real if root == "/" else "/" + os.path.relpath(real, os.path.realpath(root))
    mount = mount_of(inside, mounts)
    if mount is not None:
        below = inside[len(mount.point.rstrip("/")) :]
        found.update(
            fs_type=mount.kind,
            mount_point=mount.point,
            source=mount.source,
            inside=(mount.root.rstrip("/") + below) or "/",
            network=mount.is_network,
            read_only=mount.read_only,
            fell_read_only=mount.fell,
        )
    try:
        status = os.stat(real)
        space = os.statvfs(real)
        folder = stat.S_ISDIR(status.st_mode)
        found.update(
            kind="directory" if folder else "file" if stat.S_ISREG(status.st_mode) else "other",
            readable=os.access(real, os.R_OK | os.X_OK if folder else os.R_OK),
            writable=os.access(real, os.W_OK) and not space.f_flag & os.ST_RDONLY,
            total_bytes=space.f_blocks * space.f_frsize,
            free_bytes=space.f_bavail * space.f_frsize,
            inodes_total=space.f_files,
            inodes_free=space.f_favail,
        )
        if entry["role"] == "path":
            found.update(
                device="%d:%d" % (os.major(status.st_dev), os.minor(status.st_dev)),
                inode=str(status.st_ino),
                changed=str(status.st_ctime_ns),
            )
            if found["readable"]:
                found.update(contents(real, status, folder))
    except OSError as e:
        found["error"] = files.errno_name(e)
    return found


def contents(real: str, status: "os.stat_result", folder: bool) -> "dict[str, Any]":
    """Return what tells one content from another: a digest, for a folder those of its entries, a revision."""
    import hashlib

    found = {"revision": revision(real if folder else os.path.dirname(real))}  # type: dict[str, Any]
    if folder:
        every = list_folder(real)
        if every is None:
            return dict(found, entries_total=LISTED_AT_MOST, sampled=True)
        entries = {}
        sampled = len(every) > ENTRIES_AT_MOST
        for name in every[:ENTRIES_AT_MOST]:
            budget = [BELOW_AT_MOST, READ_BYTES]
            digest = hashlib.sha256()
            _add(digest, os.path.join(real, name), budget, DEPTH)
            entries[printable(name)] = digest.hexdigest()[:12]
            sampled = sampled or budget[0] <= 0
        names = hashlib.sha256("\0".join(map(printable, every)).encode("utf-8", "replace"))
        found.update(
            entries=entries, entries_total=len(every), digest=names.hexdigest()[:16], sampled=sampled
        )
    elif stat.S_ISREG(status.st_mode):
        digest = hashlib.sha256(b"%d" % status.st_size)
        _add_file(digest, real, status.st_size, SAMPLE_BYTES, WINDOW_BYTES)
        sampled = status.st_size > SAMPLE_BYTES
        found.update(size_bytes=status.st_size, digest=digest.hexdigest()[:16], sampled=sampled)
    return found


def printable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")[:120]


def list_folder(folder: str) -> "Optional[list[str]]":
    """Return the names in a folder but for what comes and goes, sorted; None where there are too many."""
    found = []  # type: list[str]
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if len(found) >= LISTED_AT_MOST:
                return None
            if not (name in _PASSING or name.endswith(_PASSING_ENDS) or name.startswith(_PASSING_STARTS)):
                found.append(name)
    return sorted(found)


def _add(digest: "Any", path: str, budget: "list[int]", depth: int) -> None:
    """Add names, kinds, sizes and small contents of a tree. budget: entries and bytes that are left."""
    budget[0] -= 1
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            # Caches of models link to what holds the bytes; a link to a folder may lead round in a circle.
            target = os.stat(path)
            if not stat.S_ISREG(target.st_mode):
                digest.update(b"link" + os.fsencode(os.readlink(path)))
                return
            status = target
        if stat.S_ISDIR(status.st_mode):
            every = list_folder(path) if depth else []
            digest.update(b"folder %d" % len(every or "") if depth else b"folder")
            for name in every or ():
                if budget[0] <= 0:
                    break
                digest.update(b"\0" + os.fsencode(name) + b"\0")
                _add(digest, os.path.join(path, name), budget, depth - 1)
        elif stat.S_ISREG(status.st_mode):
            digest.update(b"file %d" % status.st_size)
            if budget[1] > 0:
                budget[1] -= _add_file(digest, path, status.st_size, SMALL_BYTES, SMALL_BYTES // 2)
        else:
            digest.update(b"other")
    except OSError as e:
        digest.update(b"errno %d" % (e.errno or 0))


def _add_file(digest: "Any", path: str, size: int, sample: int, window: int) -> int:
    """Add a file's contents; of one longer than `sample`, windows that make so much. Return what was read."""
    if size <= sample:
        starts = [0]
        window = sample
    else:
        count = max(2, sample // window)
        starts = [(size - window) * i // (count - 1) for i in range(count)]
    read = 0
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        for start in starts:
            done = 0
            while done < window:
                part = os.pread(fd, min(window - done, 1 << 18), start + done)
                if not part:
                    break
                digest.update(part)
                done += len(part)
            read += done
    finally:
        os.close(fd)
    return read


def revision(folder: str) -> "Optional[str]":
    """Return the commit that git has checked out in a folder or above it, read from git's own files."""
    for _ in range(12):
        git = os.path.join(folder, ".git")
        if os.path.lexists(git):
            return _head(git)
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    return None


def _head(git: str) -> "Optional[str]":
    # A linked work tree has a file there: "gitdir: /repo/.git/worktrees/x". [gitrepository-layout(5)]
    link = files.text_or_none(git) if os.path.isfile(git) else None
    if link and link.startswith("gitdir: "):
        git = os.path.join(os.path.dirname(git), link[8:].strip())
    head = files.text_or_none(os.path.join(git, "HEAD")) or ""
    common = files.text_or_none(os.path.join(git, "commondir"))
    shared = os.path.join(git, common) if common else git
    if head.startswith("ref: refs/"):
        name = head[5:]
        if ".." in name:
            return None
        head = ""
        for where in (git, shared):
            head = head or files.text_or_none(os.path.join(where, name)) or ""
        packed = files.text_or_none(os.path.join(shared, "packed-refs"), 4 << 20) if not head else None
        for line in (packed or "").splitlines():
            commit, _, ref = line.partition(" ")
            if ref == name:
                head = commit
    return head if len(head) in (40, 64) and not head.strip("0123456789abcdef") else None


# --- what is looked at ------------------------------------------------------------------------------------


def select_paths(args: "dict[str, Any]", mounts: "list[Mount]", root: str) -> "list[dict[str, Any]]":
    """Return the places: /, /tmp, home, caches, what the user named, and network mounts."""
    home = os.environ.get("HOME") or ""
    paths_by_role = [("tmp", facts_limits.temporary(args.get("tmpdir"), root)), ("root", "/"), ("home", home)]
    job_env = args.get("env")
    env = job_env if isinstance(job_env, dict) else {}
    paths_by_role += [("cache", str(env.get(name) or os.environ.get(name) or "")) for name in CACHES]
    paths = args.get("paths")
    requested = {}  # type: dict[str, str]
    for path in paths[:PATHS_AT_MOST] if isinstance(paths, list) else ():
        text = str(path)
        if text == "~" or text.startswith("~/"):
            text = home + text[1:]
        paths_by_role.append(("path", text))
        requested[text] = str(path)
    network = [m.point for m in mounts if m.is_network and not m.point.startswith(_OWN_PLACES)]
    paths_by_role += [("mount", point) for point in sorted(network)[:MOUNTS_AT_MOST]]
    found = []  # type: list[dict[str, Any]]
    visited = set()  # type: set[str]
    # What the user named comes first: it is looked at more closely than a mount at the same place.
    for role, path in sorted(paths_by_role, key=lambda one: one[0] != "path"):
        if path.startswith("/") and path not in visited:
            visited.add(path)
            found.append({"role": role, "path": path, "asked": requested.get(path)})
    return found


def collect(args: "dict[str, Any]", root: str = "/") -> "dict[str, Any]":
    """Return facts.places.PlaceFacts. args: {"paths": of the job, "env": its variables, "tmpdir"}."""
    mounts = read_mounts(root)
    entries = select_paths(args, mounts, root)
    if any(one["role"] == "path" for one in entries):
        # Here, as a child that imports may wait for a lock that nobody holds any more.
        import hashlib  # noqa: F401
    found = []
    answers = aside.answers(lambda entry: look(entry, mounts, root), entries, PATIENCE_S, HUNG_AT_MOST)
    hung = 0
    for entry, answer in zip(entries, answers):  # noqa: B905  strict= is of 3.10
        if isinstance(answer, dict):
            found.append(answer)
            continue
        late = dict(entry, error=HUNG if hung < HUNG_AT_MOST else UNTRIED)
        mount = mount_of(entry["path"], mounts)
        if mount is not None:
            late.update(fs_type=mount.kind, mount_point=mount.point, source=mount.source)
            late["network"] = mount.is_network
        found.append(late)
        hung += 1
    return {"places": found, "patience_s": PATIENCE_S}


# Beside the names of errno.
HUNG = "hangs"
UNTRIED = "not tried"
