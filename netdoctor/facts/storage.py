"""Facts about how fast a file system is, for one node alone and for all at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netdoctor.facts.base import fact

KINDS = ("write", "read", "files")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePath:
    """What a node found there before anything was measured."""

    node: str
    error: str = ""  # name of an errno, ``hangs``, ``room`` (too little is free) or ``empty``
    file: bool = False  # a file, which is only read
    place: str = ""  # what is mounted there, ``local`` for no network file system


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRate:
    """One measurement of one node."""

    node: str
    kind: str  # of KINDS; ``files``: files of 4 KiB created, looked at and removed
    turn: str  # ``alone``, ``again`` (alone, a second time) or ``together``
    path: str = ""  # empty for a folder of the node's own, to compare with
    amount: int = 0  # bytes, or files
    seconds: float = 0.0
    direct: bool = False  # read past the page cache (O_DIRECT), else after asking the kernel to drop it
    full: bool = False  # all that may be moved was moved before the time was over
    error: str = ""

    @property
    def rate(self) -> float:
        """Bytes or files per second."""
        return self.amount / self.seconds if self.seconds > 0 else 0.0


@fact("storage", scope="cluster", origin="measure")
@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRates:
    """Rates at the path of --rate-test. left: what kept a folder from being removed, by node."""

    paths: tuple[StoragePath, ...] = ()
    rates: tuple[StorageRate, ...] = ()
    failed_nodes: Mapping[str, str] = field(default_factory=dict)  # whose part did not run, and why
    left: Mapping[str, str] = field(default_factory=dict)
    names: str = ""  # the pattern of the folders' names
