"""Facts about folders that all nodes should share, as writing into them shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.facts.base import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedWrite:
    """What became of the small file that `node` wrote into a folder.

    error: name of an errno, ``hangs`` where nothing answered in time, empty where it was written. step:
    ``folder`` (it could not be opened), ``create`` or ``write``. owner: the file's user id, uid: of whoever
    wrote it. place: what is mounted there, ``local`` for no network file system. cached_s: for how long its
    client may not see what others write (acdirmax of NFS), 0 for no such promise.
    """

    node: str
    path: str
    error: str = ""
    step: str = ""
    owner: int | None = None
    uid: int | None = None
    place: str = ""
    cached_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRead:
    """`reader` read what `writer` wrote. error: empty where it got just that. after_s: until it was seen."""

    path: str
    reader: str
    writer: str
    error: str = ""
    after_s: float = 0.0


@fact("sharing", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Writes into folders, and who read whose. failed_nodes: whose part did not run, and why.

    left: what kept a file from being removed, by node and path. names: the pattern of the files' names.
    """

    writes: tuple[SharedWrite, ...] = ()
    reads: tuple[SharedRead, ...] = ()
    failed_nodes: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    names: str = ""
