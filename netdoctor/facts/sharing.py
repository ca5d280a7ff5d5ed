"""Facts about folders that all nodes should share, as writing into them shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedWrite:
    """What became of the small file that `node` wrote into a folder."""

    node: str
    path: str
    error: str = ""  # name of an errno, ``hangs`` where nothing answered in time, empty where it was written
    step: str = ""  # ``folder`` (it could not be opened), ``create`` or ``write``
    owner: int | None = None  # the file's user id
    uid: int | None = None  # of whoever wrote it
    place: str = ""  # what is mounted there, ``local`` for no network file system
    # For how long its client may not see what others write (acdirmax of NFS), 0 for no such promise.
    cached_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRead:
    """`reader` read what `writer` wrote."""

    path: str
    reader: str
    writer: str
    error: str = ""  # empty where it got just that
    after_s: float = 0.0  # until it was seen


@fact("sharing", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Writes into folders, and who read whose."""

    writes: tuple[SharedWrite, ...] = ()
    reads: tuple[SharedRead, ...] = ()
    failed_nodes: Mapping[str, str] = field(default_factory=dict)  # whose part did not run, and why
    # What kept a file from being removed, by node and path.
    left: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    names: str = ""  # the pattern of the files' names
