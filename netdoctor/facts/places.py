"""Facts about file systems and paths that a job uses."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.facts.base import fact

# Variables that say where libraries keep what they download.
CACHES = ("HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME")
# In Place.error, beside the names of errno.
HUNG = "hangs"
UNTRIED = "not tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A path of a node, and the file system below it."""

    path: str
    # ``root``, ``tmp``, ``home``, ``cache``, ``path`` (named by the user), ``mount`` (from the network).
    role: str = "path"
    asked: str | None = None  # what the user wrote after --path, for the role ``path``
    # Name of an errno, HUNG where nothing answered in time, UNTRIED behind several that hung.
    error: str | None = None
    kind: str | None = None
    fs_type: str | None = None
    mount_point: str | None = None
    source: str | None = None
    inside: str | None = None  # the path as its file system's own server or disk has it
    network: bool = False  # another machine serves it
    read_only: bool = False
    fell_read_only: bool = False  # mounted for writing, and made read-only by itself after an error
    readable: bool = True
    writable: bool = False
    total_bytes: int = 0
    free_bytes: int = 0
    inodes_total: int = 0  # 0 where the file system has no such number
    inodes_free: int = 0
    # device, inode, changed: of the path itself.
    device: str | None = None
    inode: str | None = None
    changed: str | None = None  # ctime in ns
    size_bytes: int | None = None
    digest: str | None = None  # of a file's size and contents, of a folder's names
    entries: Mapping[str, str] = field(default_factory=dict)  # digests of a folder's first entries by name
    entries_total: int | None = None
    sampled: bool = False  # not all of it was looked at
    revision: str | None = None  # the commit that git has checked out


@fact("places")
@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFacts:
    """What the node has at /, /tmp, home, caches and each --path, and its network mounts."""

    places: tuple[Place, ...] = ()
    patience_s: float = 0.0  # how long each was waited for

    def missing_field(self) -> str:
        if not any(place.path == "/" for place in self.places):
            return "what is at /"
        return next((f"what is at {p.path}" for p in self.places if p.error is None and p.kind is None), "")
